"""Control records: short notes in a topic of their own, `<topic>-control`, with one partition.

| kind | written | says |
|---|---|---|
| recover | when a writer starts | its epoch is the offset of this record; older epochs are not expected to commit |
| commit | after a snapshot | batch and snapshot id: committed readers may look |

They are hints. A reader that never sees one finds the same in the snapshots, later. That an offset is given once, and
later ones are larger, is what makes it an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from freshet.logstore.client import LogClient, LogProducer, TopicPartition
from freshet.logstore.exceptions import LogUnavailableError

CONTROL_HEADER: Final = b"control 1"
CONTROL_SUFFIX: Final = "-control"
CONTROL_WAIT_S: Final = 10.0


class ControlKind(StrEnum):
    """What a control record says; part of the format."""

    RECOVER = "recover"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A note. `epoch` is -1 in the `recover` record itself: its offset is the epoch."""

    kind: ControlKind
    commit_user: str
    epoch: int = -1
    batch: int = -1
    snapshot_id: int = -1
    table: str = ""
    """In a `recover` record: whose log it is."""


def control_topic(topic: str) -> TopicPartition:
    """Where the control records of a log are."""
    return TopicPartition(topic + CONTROL_SUFFIX, 0)


def encode_control(record: ControlRecord) -> bytes:
    """JSON."""
    return orjson.dumps(
        {
            "kind": record.kind,
            "user": record.commit_user,
            "epoch": record.epoch,
            "batch": record.batch,
            "snapshot": record.snapshot_id,
            "table": record.table,
        }
    )


def decode_control(header: bytes | None, value: bytes) -> ControlRecord | None:
    """None for what this version does not know: control records may be missed."""
    if header != CONTROL_HEADER:
        return None
    try:
        source = orjson.loads(value)
        return ControlRecord(
            ControlKind(source["kind"]),
            source["user"],
            source["epoch"],
            source["batch"],
            source["snapshot"],
            source.get("table", ""),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def claim_epoch(producer: LogProducer, topic: str, commit_user: str, time_ms: int, table: str = "") -> int:
    """Writes a `recover` record; its offset is the epoch of this writer."""
    note(producer, topic, ControlRecord(ControlKind.RECOVER, commit_user, table=table), time_ms)
    offsets = [offset for _, offset in producer.flush()]
    if not offsets:
        raise LogUnavailableError(
            f"topic {topic}{CONTROL_SUFFIX}: the record that begins an epoch was not acknowledged"
        )
    return max(offsets)


def note(producer: LogProducer, topic: str, record: ControlRecord, time_ms: int) -> None:
    """Sends a control record, without waiting for it."""
    producer.send(control_topic(topic), CONTROL_HEADER, encode_control(record), time_ms, CONTROL_HEADER)


def first_table(client: LogClient, topic: str) -> str:
    """The table that the first `recover` record of a log names: whose log it is. Empty where none says so."""
    place = control_topic(topic)
    position, end = client.bounds(place.topic)[0]
    while position < end:
        fetched = client.fetch({place: position}, wait_s=CONTROL_WAIT_S).get(place)
        if fetched is None:
            raise LogUnavailableError(f"topic {place.topic}: its first records could not be read")
        for record in fetched.records:
            found = decode_control(record.header, record.value)
            if found is not None and found.table:
                return found.table
        position = fetched.next_offset
    return ""


def end_of_control(client: LogClient, topic: str) -> int:
    """The offset that the next control record will have; 0 where there is no such topic."""
    if client.topic(topic + CONTROL_SUFFIX) is None:
        return 0
    return client.bounds(topic + CONTROL_SUFFIX)[0].end
