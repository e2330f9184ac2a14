"""The topic of a log: what it must be like, whose it is, and making it.

| setting | must be | because |
|---|---|---|
| partitions | the buckets of the table | the rows of a bucket are in the partition of its number |
| cleanup.policy | delete | compaction takes records away that counts and sequences need |
| topic id | the one that the snapshots name | offsets of a topic that was deleted and created again mean nothing |
| retention.ms | warned of, if below snapshot.time-retained | a reader that starts at a snapshot goes on in the log |
| min.insync.replicas | warned of, if 1 | a record that one broker acknowledged is lost with that broker |

A topic is created only by the call that finds none, and nothing here ever deletes one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.protocol.client import LogClient, TopicFacts
from freshet.logstore.protocol.control import CONTROL_SUFFIX, ControlKind, first_claim, is_of_others
from freshet.storage.exceptions import InvalidRequestError

RECORD_BYTES_DEFAULT: Final = 1_000_000
"""What librdkafka and brokers let a record have unless configured otherwise."""

TOPIC_SETTINGS: Final[Mapping[str, str]] = {"cleanup.policy": "delete"}
CONTROL_SETTINGS: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""Control records are small, and offsets of the topic are epochs: they stay."""

TOPIC_OPTION: Final = "kafka.topic"
NEW_TABLE: Final = "not made yet"
"""Instead of the id of a table that is not there: every log is another's."""

_TOPIC_CHARACTERS_MAX: Final = 249 - len(CONTROL_SUFFIX)
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka.acks": ("all", "-1"),
    "kafka.request.required.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
}
"""What a log relies on: the only values that may be given."""

_RUNS_CODE: Final = frozenset({
    "kafka.plugin.library.paths", "kafka.ssl.engine.location", "kafka.ssl.engine.id", "kafka.ssl.providers",
    "kafka.sasl.kerberos.kinit.cmd",
})  # fmt: skip
"""What loads libraries into the process, or is a command."""
_IN_A_COMMAND: Final = "kafka.sasl.kerberos."
_HARMLESS: Final = re.compile(r"[\w.@/:-]*")
"""What may stand in the command by which librdkafka asks for a Kerberos ticket."""


def ensure_topics(client: LogClient, name: str, bucket_count: int, *, table: str) -> TopicFacts:
    """The topic of a log, made if it is not there; checked. Raises `LogConfigError`."""
    client.create_topic(name, bucket_count, TOPIC_SETTINGS)
    client.create_topic(name + CONTROL_SUFFIX, 1, CONTROL_SETTINGS)
    return existing_topic(client, name, bucket_count, table=table)


def existing_topic(client: LogClient, name: str, bucket_count: int, *, table: str) -> TopicFacts:
    """The topic of a log, checked; for readers, which create none."""
    facts = client.topic(name)
    if facts is None:
        raise LogConfigError(
            f"table {table}: topic {name} of its log is not there; the writer creates it. If it was deleted, set "
            "kafka.topic to a new name, which begins a new log",
            table=table,
            option="kafka.topic",
        )
    check_topic(facts, bucket_count, table=table)
    return facts


def check_topic(facts: TopicFacts, bucket_count: int, *, table: str) -> None:
    """Raises `LogConfigError` where the topic cannot carry the log of a table."""
    if facts.partition_count != bucket_count:
        raise LogConfigError(
            f"table {table} has {bucket_count} buckets and topic {facts.name} of its log {facts.partition_count} "
            "partitions; they must be as many. Set kafka.topic to a new name, which is created rightly, or to a topic "
            f"with {bucket_count} partitions",
            table=table,
            option="kafka.topic",
        )
    policy = facts.settings.get("cleanup.policy", "delete")
    if policy != "delete":
        raise LogConfigError(
            f"table {table}: topic {facts.name} of its log has cleanup.policy={policy}, which takes records out of the "
            "middle; set cleanup.policy=delete on the topic",
            table=table,
            option="kafka.topic",
        )


def topic_warnings(facts: TopicFacts, *, snapshot_time_retained_ms: int) -> list[str]:
    """What may go wrong later with the topic as it is."""
    found = []
    retention_ms = int(facts.settings.get("retention.ms", -1))
    if 0 <= retention_ms < snapshot_time_retained_ms:
        found.append(
            f"topic {facts.name} keeps records for {retention_ms} ms, snapshots are kept for "
            f"{snapshot_time_retained_ms} ms: a reader that starts at an old snapshot will find the log after it gone; "
            "raise retention.ms of the topic"
        )
    if facts.settings.get("min.insync.replicas") == "1":
        found.append(
            f"topic {facts.name} has min.insync.replicas=1: records that were acknowledged are lost with one broker, "
            "and readers of the log then fail until they start again; use three replicas and min.insync.replicas=2"
        )
    return found


def record_bytes_max(facts: TopicFacts, kafka_options: Mapping[str, str]) -> int:
    """What a record may have, by the topic and by the client."""
    texts = [facts.settings.get("max.message.bytes"), kafka_options.get("message.max.bytes")]
    given = [int(text) for text in texts if text is not None]
    return min([RECORD_BYTES_DEFAULT, *given]) if "message.max.bytes" not in kafka_options else min(given)


def check_owner(client: LogClient, topic: str, *, table: str, table_id: str, kind: ControlKind) -> bool:
    """Raises `LogConfigError` where another table, or another kind of log, has the topic; False where none says so."""
    claim = first_claim(client, topic)
    if claim is None or not table_id:
        return False
    if claim.table != table_id:
        raise LogConfigError(
            f"table {table}: topic {topic} has the log of another table (created {claim.table}, this one "
            f"{table_id}); a topic has the log of one table. Set kafka.topic to a name of its own",
            table=table,
            option=TOPIC_OPTION,
        )
    if claim.kind is not kind:
        was = "transactional" if claim.kind is ControlKind.PUBLISHED else "eventual"
        raise LogConfigError(
            f"table {table}: the records of topic {topic} were written with log.consistency={was}, which a topic "
            "keeps: set kafka.topic to a new name to change it",
            table=table,
            option="log.consistency",
        )
    return True


def refuse_foreign(
    client: LogClient, topic: str, *, table: str, table_id: str, is_known: bool, kind: ControlKind
) -> None:
    """The check that the log of a table may go into the topic: into one that is empty, or that is its own already.
    Raises `LogConfigError` where it must not; makes and writes nothing. `is_known` says that snapshots of the table
    name the topic.

    | the control topic | the topic | a log may go there |
    |---|---|---|
    | names this table first, and the same kind of log | any | yes |
    | names another table, or another kind | any | no |
    | names none | the snapshots of the table know it | yes: an older version wrote it |
    | names none | has records | no: it is not known what they are |
    | names none, or is not there | empty, or not there | yes |
    | has records that are none of ours | any | no |

    This is checked before anything is made (`refuse_foreign`), and again once the table has named itself
    (`check_owner`): of two that begin at once only one gets the topic. A log is of one kind, since records that were
    not published in a transaction may be of attempts that were dropped.
    """
    if client.topic(topic + CONTROL_SUFFIX) is not None:
        seen = client.committed() if kind is ControlKind.PUBLISHED else client
        try:
            if check_owner(seen, topic, table=table, table_id=table_id, kind=kind):
                return
            if is_of_others(seen, topic):
                raise _foreign(topic + CONTROL_SUFFIX, topic, table)
        except LogUnavailableError:
            if kind is not ControlKind.PUBLISHED:
                raise
            return  # a transaction that is open hides what is there; the publisher that takes it over finds out
        finally:
            if seen is not client:
                seen.close()
    if not is_known and _has_records(client, topic):
        raise _foreign(topic, topic, table)


def _has_records(client: LogClient, topic: str) -> bool:
    if client.topic(topic) is None:
        return False
    return any(bounds.first < bounds.end for bounds in client.bounds(topic).values())


def _foreign(found: str, topic: str, table: str) -> LogConfigError:
    return LogConfigError(
        f"table {table}: its log is to go into topic {topic}, and topic {found} has records of which it is not known "
        "what they are: a log has a topic that is empty, or its own. Set kafka.topic to a new name, which is created",
        table=table,
        option=TOPIC_OPTION,
    )


def check_topic_options(given: Mapping[str, str]) -> None:
    """The check of the options of a table about its topic and its clients, as far as it needs no brokers. Raises
    `InvalidRequestError`, naming the option, where there can be no log with these.
    """
    topic = given.get(TOPIC_OPTION, "").strip()
    if not topic:
        raise InvalidRequestError(f"log.system=kafka needs the option {TOPIC_OPTION}", option=TOPIC_OPTION)
    if not _TOPIC.fullmatch(topic) or len(topic) > _TOPIC_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"{TOPIC_OPTION}={topic}: a topic has letters, digits, '.', '_' and '-', {_TOPIC_CHARACTERS_MAX} of them "
            f"at most (the control topic adds {CONTROL_SUFFIX})",
            option=TOPIC_OPTION,
        )
    check_runs_no_code(given)
    for key, allowed in _ALLOWED.items():
        value = given.get(key, "").strip().lower()
        if value and value not in allowed:
            raise InvalidRequestError(
                f"{key}={value}: a log that loses what was acknowledged is no log; leave the option out, it is "
                f"{allowed[0]}",
                option=key,
            )


def check_runs_no_code(given: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError` for an option by which a table would run code in each process that opens its log."""
    for key, value in given.items():
        if key in _RUNS_CODE or (key.startswith(_IN_A_COMMAND) and not _HARMLESS.fullmatch(value)):
            raise InvalidRequestError(
                f"{key} is refused: by it a table would run code in every process that opens its log; take it away",
                option=key,
            )
