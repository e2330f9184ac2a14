"""Which log a topic has: that of a table goes into one that is empty, or that is its own already.

| the control topic | the topic | a log may go there |
|---|---|---|
| names this table first, and the same kind of log | any | yes |
| names another table, or another kind | any | no |
| names none | the snapshots of the table know it | yes: an older version wrote it |
| names none | has records | no: it is not known what they are |
| names none, or is not there | empty, or not there | yes |
| has records that are none of ours | any | no |

This is checked before anything is made (`refuse_foreign`), and again once the table has named itself (`check_owner`):
of two that begin at once only one gets the topic. A log is of one kind, since records that were not published in a
transaction may be of attempts that were dropped.
"""

from __future__ import annotations

from typing import Final

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.protocol.client import LogClient
from freshet.logstore.protocol.control import CONTROL_SUFFIX, ControlKind, first_claim, is_of_others

TOPIC_OPTION: Final = "kafka.topic"
NEW_TABLE: Final = "not made yet"
"""Instead of the id of a table that is not there: every log is another's."""


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
    """Raises `LogConfigError` where the log of a table must not go into the topic; makes and writes nothing.

    `is_known` says that snapshots of the table name the topic.
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
