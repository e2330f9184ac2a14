"""Appends the changes of one commit to the log, and says what was appended once all of it is acknowledged.

    writer.begin(17)                              another attempt at batch 17
    writer.log(partition, bucket, rows)           any number of times for a bucket, in the order of its rows
    increments = writer.finish()                  acknowledged, or `LogUnavailableError`

Kafka partition = bucket. Rows of a bucket come in one order that a replay repeats (by key, as the merge gives them), so
that a replay of the same rows makes the same records. Records carry the batch's start time, the same in every attempt
of a writer. Several threads may log at once, each its own buckets.

Offsets come from acknowledgements, never from asking for the end of a partition: another producer may have appended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.exceptions import LogConfigError
from freshet.logstore.protocol.client import LogProducer, TopicFacts, TopicPartition
from freshet.logstore.protocol.record import (
    ARROW_FORMAT,
    NO_HASH,
    Attempt,
    RecordHeader,
    encode_header,
    encode_values,
    rolled_hash,
    user_hash,
)
from freshet.logstore.protocol.topic import record_bytes_max
from freshet.logstore.writing.json_records import FORMATS, JsonRecord, json_records
from freshet.storage.logs.log_systems import LoggedTable
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import LogIdentity, LogIncrement

RECORD_BYTES: Final = 256 * 1024
"""Size that records are cut to; smaller ones cost more of everything, larger ones make readers wait."""

HEADER_ROOM_BYTES: Final = 4 * 1024
"""What a record takes besides its value, with room to spare for long table partitions."""


@dataclass(slots=True)
class _BucketProgress:
    row_count: int = 0
    row_hash: bytes = NO_HASH


class WriterSettings(Frozen):
    """`record_bytes_max` is what topic and client let a record have."""

    log: LogIdentity
    epoch: int
    schema_id: int
    record_bytes_max: int
    value_format: int = ARROW_FORMAT
    key_names: tuple[str, ...] = ()
    """Columns of the message key, in formats that have keys."""


def settings_of(
    table: LoggedTable, facts: TopicFacts, identity: LogIdentity, epoch: int, schema_id: int
) -> WriterSettings:
    """What the options of a table and its topic say."""
    kafka = {
        key.removeprefix("kafka."): value for key, value in table.options.given.items() if key.startswith("kafka.")
    }
    value_format = FORMATS.get(table.options.log_format, ARROW_FORMAT)
    keys = () if value_format == ARROW_FORMAT else table.primary_keys
    return WriterSettings(identity, epoch, schema_id, record_bytes_max(facts, kafka), value_format, keys)


class LogWriter:
    """Logs the batches of one writer, one after the other."""

    def __init__(self, producer: LogProducer, settings: WriterSettings, *, attempt: int = 0) -> None:
        """`attempt` is that of the first `begin`; tasks that may run twice give a number that is never given twice."""
        self._producer = producer
        self._settings = settings
        self._user = user_hash(settings.log.commit_user)
        self._attempt = Attempt(settings.epoch, attempt - 1)
        self._batch = -1
        self._time_ms = 0
        self._buckets: dict[BucketId, _BucketProgress] = {}
        self._ends = dict(settings.log.start)
        self._lock = threading.Lock()

    def begin(self, batch: int, time_ms: int) -> None:
        """Begins another attempt; what an earlier one has not finished does not count."""
        self._producer.discard()
        self._attempt = Attempt(self._attempt.epoch, self._attempt.attempt + 1)
        self._batch, self._time_ms = batch, time_ms
        self._buckets = {}

    def log(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        """Appends rows of a bucket: `_ROW_KIND` as int8, then the columns of the table."""
        bucket_id = (partition, bucket)
        with self._lock:
            progress = self._buckets.setdefault(bucket_id, _BucketProgress())
        topic_partition = TopicPartition(self._settings.log.topic, bucket)
        for record in self._records(rows):
            progress.row_hash = rolled_hash(progress.row_hash, record.value or b"")
            header = RecordHeader(
                self._user,
                self._attempt,
                self._batch,
                bucket_id,
                progress.row_count,
                record.row_count,
                self._settings.schema_id,
                progress.row_hash,
                self._settings.value_format,
            )
            progress.row_count += record.row_count
            value, time_ms = record.value, self._time_ms
            self._producer.send(topic_partition, encode_header(header), value, time_ms, bucket_id, record.key)

    def _records(self, rows: pa.Table) -> Iterator[JsonRecord]:
        settings = self._settings
        size_max = settings.record_bytes_max - HEADER_ROOM_BYTES
        if settings.value_format != ARROW_FORMAT:
            yield from json_records(rows, settings.value_format, settings.key_names, size_bytes_max=size_max)
            return
        for count, value in encode_values(rows, size_bytes=min(RECORD_BYTES, size_max), size_bytes_max=size_max):
            yield JsonRecord(count, None, value)

    def finish(self) -> Mapping[BucketId, LogIncrement]:
        """Waits for acknowledgements; what was logged, of every bucket that has rows."""
        after: dict[BucketId, int] = {}
        first: dict[int, int] = {}
        for token, offset in self._producer.flush():
            assert isinstance(token, tuple)
            after[token] = max(after.get(token, 0), offset + 1)
            first[token[1]] = min(first.get(token[1], offset), offset)
        self._check_ends(first)
        for (_, bucket), end in after.items():
            self._ends[bucket] = max(self._ends.get(bucket, 0), end)
        done = {
            bucket_id: LogIncrement(*self._attempt, after[bucket_id], progress.row_count, progress.row_hash.hex())
            for bucket_id, progress in self._buckets.items()
            if progress.row_count
        }
        self._buckets = {}
        return done

    def _check_ends(self, first: Mapping[int, int]) -> None:
        """Offsets only grow: one that was given before is of another topic."""
        for bucket, offset in first.items():
            if offset < self._ends.get(bucket, 0):
                raise LogConfigError(
                    f"topic {self._settings.log.topic} partition {bucket}: a record has offset {offset}, though those "
                    f"up to {self._ends[bucket]} were given before: the topic was deleted and created again while it "
                    "was written. Nothing is committed; set kafka.topic to a new name and start again",
                    option="kafka.topic",
                )

    def abort(self) -> None:
        """Drops the attempt; records of it that are in the log already do not count."""
        self._producer.discard()
        self._buckets = {}
