"""Reads ranges of offsets that somebody else has planned, with one consumer that a process keeps.

A range is over when what was reached is at or beyond its end:

| what was seen | reached |
|---|---|
| a record | the offset behind it; a record at or beyond the end is not given |
| the end of the partition | what the broker says: a marker of a transaction, or a compacted tail, may be last |

Nothing else ends it: where nothing comes for the time allowed, `LogUnavailableError`; where an offset is not in Kafka
any more, or the partition ends before the range or the offset and stays so (`ENDED_S`), `LogTruncatedError`, or the
reader goes on at the first that is there, and says how many it has passed over. What an open transaction holds back of
a reader under `read_committed` is there: it is waited for.
Memory: what the client holds ahead is bounded (`QUEUE_BYTES`, and what a fetch of 8 MiB unpacks to), and so is a batch
(`BATCH_BYTES`, or one record). Measured, 646-byte records with lz4: 2.3 µs of processor time each, the threads of the
client included.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from freshet._garbage import without_gc
from freshet.logstore.exceptions import LOST, LogTruncatedError, LogUnavailableError
from freshet.logstore.kafka.connection import LastError, made_client
from freshet.logstore.kafka.java_options import READ_UNCOMMITTED
from freshet.logstore.kafka.polled_records import PolledRecords, offset_of

QUEUE_BYTES: Final = 64 << 20
"""What a consumer holds ahead, at most; a process reads one range at a time."""
BATCH_RECORDS: Final = 16_384
BATCH_BYTES: Final = 32 << 20
_FIRST_RECORDS: Final = 1024
"""Of a reader that has seen none: they may be large."""
ENDED_S: Final = 30.0
"""How long a partition that ends before the range may still grow. A new leader does not know at once which records all
replicas have."""
_AGAIN_S: Final = 0.5
"""How long until an offset is asked for again that was not there."""
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
        self._settings = settings
        self._timeout_s = timeout_s
        self._takes_losses = takes_losses
        self._records_max = _FIRST_RECORDS
        self._last_error = LastError(settings)
        self._known: set[str] = set()
        """Topics that the client knows."""
        self._stopped: dict[tuple[str, int], float] = {}
        """Partitions that the client reads no more, as it was told that an offset is not there; when it is to ask
        again."""
        own = {"error_cb": self._last_error.keep}
        self._consumer = made_client(Consumer, {**_FETCH, **settings, **_NOT_OURS, **own})

    def read(self, wanted: OffsetRange, progress: RangeProgress) -> Iterator[PolledRecords]:
        """The records of the range, in batches.

        Raises `LogUnavailableError`, `LogTruncatedError`.
        """
        for _, batch in self.read_several([(wanted, progress)]):
            yield batch

    def read_several(self, wanted: Sequence[tuple[OffsetRange, RangeProgress]]) -> Iterator[tuple[int, PolledRecords]]:
        """The records of some ranges, which are read at the same time: the index of the range with each batch.

        Ranges of one partition are read one after the other.
        """
        left = [index for index, (each, progress) in enumerate(wanted) if progress.reached < each.end]
        while left:
            now: dict[tuple[str, int], int] = {}
            for index in left:
                now.setdefault((wanted[index][0].topic, wanted[index][0].partition), index)
            later = [index for index in left if index not in now.values()]
            try:
                for topic in {topic for topic, _ in now} - self._known:
                    # The client itself asks for topics that it does not know once a second: measured, ten topics one
                    # after the other took 9 s, and 0.2 s like this.
                    self._consumer.list_topics(topic, timeout=self._timeout_s)
                    self._known.add(topic)
                self._consumer.assign(
                    [KafkaPartition(*place, wanted[index][1].reached) for place, index in now.items()]
                )
                yield from self._read(wanted, now)
            except KafkaException as error:
                unread = next(each for each, progress in wanted if progress.reached < each.end)
                raise self._last_error.unavailable(f"{unread} cannot be read", error) from error
            finally:
                with suppress(KafkaException):
                    self._consumer.unassign()  # nothing is fetched between two ranges
            left = later

    def close(self) -> None:
        """Ends its connections."""
        self._consumer.close()

    def _read(
        self, wanted: Sequence[tuple[OffsetRange, RangeProgress]], now: dict[tuple[str, int], int]
    ) -> Iterator[tuple[int, PolledRecords]]:
        """Reads the ranges in `now`, by their partitions, to their ends."""
        heard_s = time.monotonic()
        only = next(iter(now)) if len(now) == 1 else None
        self._stopped.clear()
        while now:
            self._ask_again(wanted, now)
            missing = sum(wanted[index][0].end - wanted[index][1].reached for index in now.values())
            # It returns when so many are there, or after the time: what cannot come is not waited for.
            with without_gc():  # thousands of messages, which refer to nothing else
                messages = self._consumer.consume(min(self._records_max, missing), _POLL_S)
            now_s = time.monotonic()
            has_progressed = False
            for place, part in _by_partition(messages, only).items():
                index = now.get(place)
                if index is None:  # behind the end of its range, and fetched before that was known; or of no partition
                    self._refuse_errors(part)
                    continue
                each, progress = wanted[index]
                before = progress.reached
                records = self._taken(part, each, progress)
                if records:
                    for batch in self._batches(records):
                        yield index, batch
                has_progressed |= progress.reached > before
                self._end(place, wanted, now)
            if has_progressed:
                heard_s = time.monotonic()  # what the caller did meanwhile does not count
                self._last_error.last = None
                continue
            waited_s = now_s - heard_s
            for place, index in list(now.items()):
                each, progress = wanted[index]
                if progress.ended_at == progress.reached and waited_s > min(ENDED_S, self._timeout_s):
                    self._pass_over_the_rest(each, progress)
                self._end(place, wanted, now)
            if now and waited_s > self._timeout_s:
                each, progress = wanted[next(iter(now.values()))]
                raise LogUnavailableError(
                    f"{each}: nothing came for {self._timeout_s:.0f} s behind offset {progress.reached}"
                    f"{self._last_error.text()}; try again, or allow more time (kafkaConsumer.pollTimeoutMs)"
                )

    def _batches(self, records: list[Message]) -> Iterator[PolledRecords]:
        """Of limited size; what is asked for next follows the size of these."""
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        ends = lengths.cumsum()
        mean = int(ends[-1]) // len(records) + 1
        self._records_max = max(1, min(BATCH_RECORDS, BATCH_BYTES // mean))
        start, used = 0, 0
        while start < len(records):
            end = max(start + 1, int(np.searchsorted(ends, used + BATCH_BYTES, side="right")))
            yield PolledRecords(records[start:end], lengths[start:end])
            start, used = end, int(ends[end - 1])

    def _taken(self, messages: list[Message], wanted: OffsetRange, progress: RangeProgress) -> list[Message]:
        """The records of the range among what came of its partition; says how far it is."""
        has_events = any(map(Message.error, messages))
        records = [message for message in messages if message.error() is None] if has_events else messages
        if records:
            last = offset_of(records[-1])
            if last >= wanted.end:
                records = [message for message in records if offset_of(message) < wanted.end]
            progress.reached = max(progress.reached, last + 1)
        for message in messages if has_events else ():
            error = message.error()
            if error is not None:
                self._take_event(error, offset_of(message), wanted, progress)
        return records

    def _take_event(self, error: KafkaError, offset: int, wanted: OffsetRange, progress: RangeProgress) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            progress.ended_at = offset
            progress.reached = max(progress.reached, offset)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._not_there(wanted, progress)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and (error.fatal() or not error.retriable()):
            raise KafkaException(error)  # of the group, which nothing is asked of, a user may know nothing

    def _end(
        self,
        place: tuple[str, int],
        wanted: Sequence[tuple[OffsetRange, RangeProgress]],
        now: dict[tuple[str, int], int],
    ) -> None:
        """Takes a range that is over out of `now`."""
        each, progress = wanted[now[place]]
        if progress.reached >= each.end:
            del now[place]
            self._stopped.pop(place, None)
            if now:
                self._consumer.incremental_unassign([KafkaPartition(*place)])

    def _refuse_errors(self, messages: list[Message]) -> None:
        """Raises where an event that is of no range says that nothing will come."""
        for message in messages:
            error = message.error()
            if error is not None and not message.topic():
                self._take_event(error, -1, OffsetRange("", 0, 0, 0), RangeProgress(0))

    def _not_there(self, wanted: OffsetRange, progress: RangeProgress) -> None:
        """The client was told that an offset is not there. It may be on its way where it lies behind the end of the
        partition: a leader that has just changed does not know at once how far that goes."""
        low, high = self._watermarks(wanted)
        if progress.reached < low:
            self._pass_over(wanted, progress, low, high)
            return
        if progress.reached >= high:
            progress.ended_at = progress.reached
        self._stopped[wanted.topic, wanted.partition] = time.monotonic() + _AGAIN_S

    def _ask_again(
        self, wanted: Sequence[tuple[OffsetRange, RangeProgress]], now: Mapping[tuple[str, int], int]
    ) -> None:
        """Has the client go on with partitions that have waited."""
        for place in [place for place, due_s in self._stopped.items() if due_s <= time.monotonic()]:
            del self._stopped[place]
            each, progress = wanted[now[place]]
            self._go_on(each, progress.reached)

    def _pass_over_the_rest(self, wanted: OffsetRange, progress: RangeProgress) -> None:
        """The partition has ended before the range for a while."""
        low, high = self._watermarks(wanted)
        progress.ended_at = None
        if high <= progress.reached:
            self._pass_over(wanted, progress, low, high)

    def _watermarks(self, wanted: OffsetRange) -> tuple[int, int]:
        """The first offset and the end, of open transactions too: the consumer's own end is where one began."""
        asking = made_client(Consumer, {**self._settings, **_NOT_OURS, "isolation.level": READ_UNCOMMITTED})
        try:
            partition = KafkaPartition(wanted.topic, wanted.partition)
            low, high = asking.get_watermark_offsets(partition, timeout=self._timeout_s)
            return low, high
        finally:
            asking.close()

    def _pass_over(self, wanted: OffsetRange, progress: RangeProgress, low: int, high: int) -> None:
        """The offset that was asked for is not there, and will not come."""
        if not self._takes_losses:
            raise LogTruncatedError(
                f"{wanted}: offset {progress.reached} is not in Kafka, which has {low} to {high}: {LOST}"
            )
        following = min(low, wanted.end) if low > progress.reached else wanted.end
        progress.passed_over += following - progress.reached
        progress.reached = following
        if following < wanted.end:
            self._go_on(wanted, following)

    def _go_on(self, wanted: OffsetRange, offset: int) -> None:
        self._consumer.incremental_unassign([KafkaPartition(wanted.topic, wanted.partition)])
        self._consumer.incremental_assign([KafkaPartition(wanted.topic, wanted.partition, offset)])


def _by_partition(messages: list[Message], only: tuple[str, int] | None) -> dict[tuple[str, int], list[Message]]:
    """The messages of each partition in their order; `only` where nothing else was ever assigned."""
    if only is not None:
        return {only: messages}
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        found.setdefault((message.topic() or "", message.partition() or 0), []).append(message)
    return found
