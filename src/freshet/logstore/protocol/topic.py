"""The topic of a log: what it must be like, and making it.

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

from collections.abc import Mapping
from typing import Final

from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.protocol.client import LogClient, TopicFacts
from freshet.logstore.protocol.control import CONTROL_SUFFIX

RECORD_BYTES_DEFAULT: Final = 1_000_000
"""What librdkafka and brokers let a record have unless configured otherwise."""

TOPIC_SETTINGS: Final[Mapping[str, str]] = {"cleanup.policy": "delete"}
CONTROL_SETTINGS: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""Control records are small, and offsets of the topic are epochs: they stay."""


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
