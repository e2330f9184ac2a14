"""Control records: short notes in a topic of their own, `<topic>-control`, with one partition.

| kind | written | says |
|---|---|---|
| recover | when a writer starts | its epoch is the offset of this record; older epochs are not expected to commit |
| commit | after a snapshot | batch and snapshot id: committed readers may look |
| published | in the transaction that publishes the changes of snapshots | the last of these snapshots |

`recover` and `commit` are hints. A reader that never sees one finds the same in the snapshots, later. That an offset is
given once, and later ones are larger, is what makes it an epoch. `published` says how far the publisher has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import orjson

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LogUnavailableError
from freshet.logstore.protocol.client import LogClient, LogProducer, StoredRecord, TopicPartition

CONTROL_HEADER: Final = b"control 1"
CONTROL_SUFFIX: Final = "-control"
CONTROL_WAIT_S: Final = 10.0

LOOK_BACK: Final = 100
"""Offsets from the end that are looked at first for the newest record of a kind."""


class ControlKind(StrEnum):
    """What a control record says; part of the format."""

    RECOVER = "recover"
    COMMIT = "commit"
    PUBLISHED = "published"


class ControlRecord(Frozen):
    """A note. `epoch` is -1 in the `recover` record itself: its offset is the epoch."""

    kind: ControlKind
    commit_user: str
    epoch: int = -1
    batch: int = -1
    snapshot_id: int = -1
    table: str = ""
    """In a `recover` or `published` record: whose log it is."""
    topic_id: str = ""
    """In a `published` record: that of the topic with the changes."""
    time_ms: int = -1
    """In a `published` record: when the snapshot was made, which distinguishes it from another one of its id."""


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
            "topic-id": record.topic_id,
            "time": record.time_ms,
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
            source.get("topic-id", ""),
            source.get("time", -1),
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


def first_claim(client: LogClient, topic: str) -> ControlRecord | None:
    """The first record that names a table: whose log it is, and of which kind. None where none does."""
    topic_partition = control_topic(topic)
    first, end = client.bounds(topic_partition.topic)[0]
    return next((record for record in _records(client, topic_partition, first, end) if record.table), None)


def is_of_others(client: LogClient, topic: str) -> bool:
    """True where the control topic has records, and none that is ours."""
    topic_partition = control_topic(topic)
    is_empty = True
    for record in _stored(client, topic_partition, *client.bounds(topic_partition.topic)[0]):
        if decode_control(record.header, record.value) is not None:
            return False
        is_empty = False
    return not is_empty


def last_published(client: LogClient, topic: str, table: str) -> ControlRecord | None:
    """The newest `published` record of a table; `client` is one that sees what is committed."""
    topic_partition = control_topic(topic)
    first, end = client.bounds(topic_partition.topic)[0]
    start, count = end, LOOK_BACK
    while start > first:
        stop, start, count = start, max(first, end - count), 4 * count
        found = None
        for record in _records(client, topic_partition, start, stop):
            if record.kind is ControlKind.PUBLISHED and record.table == table:
                found = record
        if found is not None:
            return found
    return None


def _records(client: LogClient, topic_partition: TopicPartition, position: int, end: int) -> Iterator[ControlRecord]:
    for record in _stored(client, topic_partition, position, end):
        found = decode_control(record.header, record.value)
        if found is not None:
            yield found


def _stored(client: LogClient, topic_partition: TopicPartition, position: int, end: int) -> Iterator[StoredRecord]:
    while position < end:
        fetched = client.fetch({topic_partition: position}, wait_s=CONTROL_WAIT_S).get(topic_partition)
        if fetched is None:
            raise LogUnavailableError(
                f"topic {topic_partition.topic}: its records from {position} to {end} could not be read"
            )
        yield from (record for record in fetched.records if record.offset < end)
        position = fetched.next_offset


def end_of_control(client: LogClient, topic: str) -> int:
    """The offset that the next control record will have; 0 where there is no such topic."""
    if client.topic(topic + CONTROL_SUFFIX) is None:
        return 0
    return client.bounds(topic + CONTROL_SUFFIX)[0].end
