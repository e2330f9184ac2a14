"""Reads ranges of offsets that somebody else has planned, with one consumer that a process keeps.

A range is over when what was reached is at or beyond its end:

| what was seen | reached |
|---|---|
| a record | the offset behind it; a record at or beyond the end is not given |
| the end of the partition | what the broker says: a marker of a transaction, or a compacted tail, may be last |

Nothing else ends it: where nothing comes for the time allowed, `LogUnavailableError`; where an offset is not in Kafka
any more, or the partition ends before the range and stays so (`ENDED_S`), `LogTruncatedError`, or the reader goes on at
the first that is there, and says how many it has passed over.
Memory: what the client holds ahead is bounded (`QUEUE_BYTES`, and what a fetch of 8 MiB unpacks to), and so is a batch
(`BATCH_BYTES`, or one record). Measured, 646-byte records with lz4: 2.3 µs of processor time each, the threads of the
client included.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from freshet.logstore.exceptions import LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka.connection import LastError, made_client

QUEUE_BYTES: Final = 64 << 20
"""What a consumer holds ahead, at most; a process reads one range at a time."""
BATCH_RECORDS: Final = 16_384
BATCH_BYTES: Final = 32 << 20
_FIRST_RECORDS: Final = 1024
"""Of a reader that has seen none: they may be large."""
ENDED_S: Final = 30.0
"""How long a partition that ends before the range may still grow. A new leader does not know at once which records all
replicas have."""
_POLL_S: Final = 0.05
_FETCH: Final[Mapping[str, Any]] = {
    "fetch.message.max.bytes": 8 << 20,
    "fetch.max.bytes": QUEUE_BYTES,
    "queued.max.messages.kbytes": QUEUE_BYTES >> 10,
    "queued.min.messages": 200_000,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 5,
}
_NOT_OURS: Final[Mapping[str, Any]] = {
    "group.id": "freshet-ranges",  # wanted by the client; with `assign` and without commits nothing is kept of it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
}

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""Records of one range."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition, from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} offsets {self.start} to {self.end}"


@dataclass(slots=True)
class RangeProgress:
    """How far the reading of a range is; filled in as it goes on."""

    reached: int
    passed_over: int = 0
    """Offsets that were not in Kafka any more."""
    ended_at: int | None = None
    """The end of the partition, where one was seen."""


class RangeReader:
    """A consumer for ranges of one cluster; used by one thread, of the process that made it."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_s: float, takes_losses: bool) -> None:
        """`settings` are those of librdkafka for the connection, and its `isolation.level`."""
        self._timeout_s = timeout_s
        self._takes_losses = takes_losses
        self._records_max = _FIRST_RECORDS
        self._last_error = LastError(settings)
        own = {"error_cb": self._last_error.keep}
        self._consumer = made_client(Consumer, {**_FETCH, **settings, **_NOT_OURS, **own})

    def read(self, wanted: OffsetRange, progress: RangeProgress) -> Iterator[pa.RecordBatch]:
        """The records of the range, in batches of `RECORD_SCHEMA`.

        Raises `LogUnavailableError`, `LogTruncatedError`.
        """
        if wanted.start >= wanted.end:
            return
        try:
            self._seek(wanted, wanted.start)
            yield from self._read(wanted, progress)
        except KafkaException as error:
            raise self._last_error.unavailable(f"{wanted} cannot be read", error) from error
        finally:
            with suppress(KafkaException):
                self._consumer.unassign()  # nothing is fetched between two ranges

    def close(self) -> None:
        """Ends its connections."""
        self._consumer.close()

    def _seek(self, wanted: OffsetRange, offset: int) -> None:
        self._consumer.assign([KafkaPartition(wanted.topic, wanted.partition, offset)])

    def _read(self, wanted: OffsetRange, progress: RangeProgress) -> Iterator[pa.RecordBatch]:
        heard_s = time.monotonic()
        while progress.reached < wanted.end:
            # It returns when so many are there, or after the time: what cannot come is not waited for.
            messages = self._consumer.consume(min(self._records_max, wanted.end - progress.reached), _POLL_S)
            now_s = time.monotonic()
            before = progress.reached
            records = self._taken(messages, wanted, progress)
            if records:
                yield from self._batches(records)
            if progress.reached > before:
                heard_s = time.monotonic()  # what the caller did meanwhile does not count
                self._last_error.last = None
            elif progress.ended_at == before and now_s - heard_s > min(ENDED_S, self._timeout_s):
                self._pass_over_the_rest(wanted, progress)
            elif now_s - heard_s > self._timeout_s:
                raise LogUnavailableError(
                    f"{wanted}: nothing came for {self._timeout_s:.0f} s behind offset {progress.reached}"
                    f"{self._last_error.text()}; try again, or allow more time (kafkaConsumer.pollTimeoutMs)"
                )

    def _batches(self, records: list[Message]) -> Iterator[pa.RecordBatch]:
        """Of limited size; what is asked for next follows the size of these."""
        ends = np.fromiter(map(len, records), np.int64, len(records)).cumsum()
        mean = int(ends[-1]) // len(records) + 1
        self._records_max = max(1, min(BATCH_RECORDS, BATCH_BYTES // mean))
        start, used = 0, 0
        while start < len(records):
            end = max(start + 1, int(np.searchsorted(ends, used + BATCH_BYTES, side="right")))
            yield _batch(records[start:end])
            start, used = end, int(ends[end - 1])

    def _taken(self, messages: list[Message], wanted: OffsetRange, progress: RangeProgress) -> list[Message]:
        """The records of the range among what came; says how far it is."""
        has_events = any(map(Message.error, messages))
        records = [message for message in messages if message.error() is None] if has_events else messages
        if records:
            last = _offset(records[-1])
            if last >= wanted.end:
                records = [message for message in records if _offset(message) < wanted.end]
            progress.reached = max(progress.reached, last + 1)
        for message in messages if has_events else ():
            error = message.error()
            if error is not None:
                self._take_event(error, _offset(message), wanted, progress)
        return records

    def _take_event(self, error: KafkaError, offset: int, wanted: OffsetRange, progress: RangeProgress) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            progress.ended_at = offset
            progress.reached = max(progress.reached, offset)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._pass_over(wanted, progress)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and (error.fatal() or not error.retriable()):
            raise KafkaException(error)  # of the group, which nothing is asked of, a user may know nothing

    def _pass_over_the_rest(self, wanted: OffsetRange, progress: RangeProgress) -> None:
        """The partition has ended before the range for a while."""
        _, high = self._watermarks(wanted)
        progress.ended_at = None
        if high < wanted.end:
            self._pass_over(wanted, progress)

    def _watermarks(self, wanted: OffsetRange) -> tuple[int, int]:
        partition = KafkaPartition(wanted.topic, wanted.partition)
        low, high = self._consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
        return low, high

    def _pass_over(self, wanted: OffsetRange, progress: RangeProgress) -> None:
        """The offset that was asked for is not there."""
        low, high = self._watermarks(wanted)
        if not self._takes_losses:
            raise LogTruncatedError(
                f"{wanted}: offset {progress.reached} is not in Kafka, which has {low} to {high}: records were "
                "deleted by retention, or the topic was deleted and made again. What was lost must come from "
                "the source once more (a snapshot of its tables); to go on without it, set failOnDataLoss: false"
            )
        following = min(low, wanted.end) if low > progress.reached else wanted.end
        progress.passed_over += following - progress.reached
        progress.reached = following
        if following < wanted.end:
            self._seek(wanted, following)


def _batch(records: list[Message]) -> pa.RecordBatch:
    times = np.fromiter((message.timestamp()[1] for message in records), np.int64, len(records))
    columns = [
        pa.array(list(map(Message.key, records)), pa.binary()),
        pa.array(list(map(Message.value, records)), pa.binary()),
        pa.array(np.fromiter(map(_offset, records), np.int64, len(records))),
        pa.array(times * 1000).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _offset(message: Message) -> int:
    offset: int = message.offset()  # type: ignore[assignment]
    return offset
