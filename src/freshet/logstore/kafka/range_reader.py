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

A reader that stays goes on reading the partitions of a range that is over, so that what follows it is here already when
it is asked for: 0.2 ms for 42 records, and 3 to 30 ms otherwise. What came behind the range, and of partitions that
were not asked for, is kept (`KEPT_BYTES`); so is the news that a partition has ended, which the client says once. A
range that begins elsewhere, or after an error, begins anew, and stays nowhere: another process may read what follows.
Who knows that it does calls `leave`: a partition that nobody asks for is fetched until the bounds are reached.

Source: docs/explanation/spark.md.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from freshet.logstore.kafka.offset_range import OffsetRange, RangeProgress
from freshet.logstore.kafka.polled_records import PolledRecords, offset_of

QUEUE_BYTES: Final = 64 << 20
"""What a consumer holds ahead, at most; a process reads one range at a time."""
BATCH_RECORDS: Final = 16_384
BATCH_BYTES: Final = 32 << 20
KEPT_BYTES: Final = 16 << 20
"""What is kept of a partition that stays, at most, besides what one poll gave."""
_MESSAGE_BYTES: Final = 300
"""What a message takes besides its value."""
_FIRST_RECORDS: Final = 1024
"""Records that a reader polls first, which has seen none: they may be large."""
ENDED_S: Final = 30.0
"""How long a partition that ends before the range may still grow. A new leader does not know at once which records all
replicas have."""
_ALL_FROM: Final = 8
"""So many topics are asked for all at once, with those that nobody reads."""
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
_STAYS: Final[Mapping[str, Any]] = {
    "queued.max.messages.kbytes": QUEUE_BYTES >> 11,
    # Of each partition. The client counts the bytes of values, and takes 370 more for each: 8 MB of 45 bytes were 64.
    "queued.min.messages": BATCH_RECORDS,
    # While nothing comes, 0.2 % of a core, and 0.9 % with 10 ms. A range elsewhere has to wait for the last fetch.
    "fetch.wait.max.ms": 100,
    "enable.sparse.connections": False,  # else the second broker is often asked only after 50 ms
}
_NOT_OURS: Final[Mapping[str, Any]] = {
    "group.id": "freshet-ranges",  # wanted by the client; with `assign` and without commits nothing is kept of it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": 0,
}


@dataclass(slots=True)
class _Stand:
    """A partition that is read on when a range of it is over."""

    offset: int
    """Where the range that comes next has to begin."""
    kept: list[Message]
    """What the client gave of it from there on, records and ends of the partition."""
    size: int = 0


class RangeReader:
    """A consumer for ranges of one cluster; used by one thread, of the process that made it."""

    def __init__(
        self, settings: Mapping[str, Any], *, timeout_s: float, takes_losses: bool, stays: bool = False
    ) -> None:
        """`settings` are those of librdkafka for the connection, and its `isolation.level`. One that `stays` fetches
        ahead where a range has ended, within bounds, until it is closed."""
        self._settings = settings
        self._timeout_s = timeout_s
        self._takes_losses = takes_losses
        self._stays = stays
        self._stands: dict[tuple[str, int], _Stand] = {}
        self._ended: dict[tuple[str, int], int] = {}
        """Where the last range of each partition has ended, of a reader that stays."""
        self._records_max = _FIRST_RECORDS
        self._last_error = LastError(settings)
        self._known: set[str] = set()
        """Topics that the client knows."""
        self._stopped: dict[tuple[str, int], float] = {}
        """Partitions that the client reads no more, as it was told that an offset is not there; when it is to ask
        again."""
        own = {"error_cb": self._last_error.keep}
        self._consumer = made_client(Consumer, {**_FETCH, **(_STAYS if stays else {}), **settings, **_NOT_OURS, **own})

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
            is_over = False
            try:
                self._meet({topic for topic, _ in now} - self._known)
                self._go_to({place: wanted[index][1].reached for place, index in now.items()})
                yield from self._read(wanted, now)
                is_over = True
            except KafkaException as error:
                unread = next(each for each, progress in wanted if progress.reached < each.end)
                raise self._last_error.unavailable(f"{unread} cannot be read", error) from error
            finally:
                if not (is_over and self._stands):
                    self._stands.clear()
                    with suppress(KafkaException):
                        self._consumer.unassign()  # nothing is fetched between two ranges
            left = later

    def leave(self, places: Collection[tuple[str, int]]) -> None:
        """Reads these partitions no more, by topic and number: another process does."""
        for place in places:
            self._leave(place)

    def close(self) -> None:
        """Ends its connections."""
        self._consumer.close()

    def _meet(self, topics: Collection[str]) -> None:
        """Makes these topics known to the client, which itself asks for one that it does not know once a second:
        measured, ten topics one after the other took 9 s, and 0.2 s like this.

        Each question waits for the fetch that stands: a hundred of them took 10 s.
        """
        for topic in topics if len(topics) < _ALL_FROM else [None]:
            self._consumer.list_topics(topic, timeout=self._timeout_s)
        self._known.update(topics)

    def _go_to(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Has the client read these partitions from there on; those that stand there already stay."""
        for place in [place for place in starts if place in self._stands]:
            if self._stands[place].offset != starts[place]:
                self._leave(place)
        new = {place: start for place, start in starts.items() if place not in self._stands}
        assigned = [KafkaPartition(*place, start) for place, start in new.items()]
        if not self._stands:
            self._consumer.assign(assigned)
        elif assigned:
            self._consumer.incremental_assign(assigned)
        if self._stays:
            following = {place: start for place, start in new.items() if self._ended.get(place, start) == start}
            self._stands |= {place: _Stand(start, []) for place, start in following.items()}

    def _leave(self, place: tuple[str, int]) -> None:
        """Has the client read a partition no more when it is not asked for."""
        if self._stands.pop(place, None) is not None:
            self._consumer.incremental_unassign([KafkaPartition(*place)])

    def _keep(self, place: tuple[str, int], messages: list[Message], *, offset: int | None = None) -> None:
        """Keeps what came behind the range of a partition, which ends at `offset`, or while none is read."""
        stand = self._stands.get(place)
        if stand is None:
            return
        has_events = any(map(Message.error, messages))
        if offset is not None:
            stand.offset = offset
            is_over = not messages or (not has_events and offset_of(messages[-1]) < offset)
            if not has_events:
                messages = messages[bisect_left(messages, offset, key=offset_of) :]
            else:
                messages = [] if is_over else [each for each in messages if offset_of(each) >= offset]
        if has_events and any(
            error and error.code() != KafkaError._PARTITION_EOF for error in map(Message.error, messages)
        ):
            self._leave(place)
            return
        stand.kept += messages
        stand.size += sum(map(len, messages)) + _MESSAGE_BYTES * len(messages)
        if stand.size > KEPT_BYTES and offset is None:
            self._leave(place)

    def _taken_up(self, now: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], list[Message]]:
        """What is kept of the partitions that are asked for."""
        found = {place: stand.kept for place, stand in self._stands.items() if place in now and stand.kept}
        for place in found:
            self._stands[place].kept, self._stands[place].size = [], 0
        return found

    def _read(
        self, wanted: Sequence[tuple[OffsetRange, RangeProgress]], now: dict[tuple[str, int], int]
    ) -> Iterator[tuple[int, PolledRecords]]:
        """Reads the ranges in `now`, by their partitions, to their ends."""
        heard_s = time.monotonic()
        only = next(iter(now)) if len(self._stands.keys() | now.keys()) == 1 else None
        self._stopped.clear()
        parts = self._taken_up(now)
        while now:
            self._ask_again(wanted, now)
            missing = sum(wanted[index][0].end - wanted[index][1].reached for index in now.values())
            # It returns when so many are there, or after the time: what cannot come is not waited for.
            if not parts:
                with without_gc():  # thousands of messages, which refer to nothing else
                    messages = self._consumer.consume(min(self._records_max, missing), _POLL_S)
                parts = _by_partition(messages, only)
            now_s = time.monotonic()
            has_progressed = False
            for place, part in parts.items():
                index = now.get(place)
                if index is None:  # behind the end of its range, and fetched before that was known; or of no partition
                    self._refuse_errors(part)
                    self._keep(place, part)
                    continue
                each, progress = wanted[index]
                before = progress.reached
                records = self._taken(part, each, progress)
                if records:
                    for batch in self._batches(records):
                        yield index, batch
                has_progressed |= progress.reached > before
                self._end(place, wanted, now, part)
            parts = {}
            if has_progressed:
                heard_s = time.monotonic()  # what the caller did meanwhile does not count
                self._last_error.last = None
                continue
            waited_s = now_s - heard_s
            for place, index in list(now.items()):
                each, progress = wanted[index]
                if progress.ended_at == progress.reached and waited_s > min(ENDED_S, self._timeout_s):
                    self._pass_over_the_rest(each, progress)
                self._end(place, wanted, now, [])
            if now and waited_s > self._timeout_s:
                each, progress = wanted[next(iter(now.values()))]
                raise LogUnavailableError(
                    f"{each}: nothing came for {self._timeout_s:.0f} s behind offset {progress.reached}"
                    f"{self._last_error.text()}; try again, or allow more time (kafkaConsumer.pollTimeoutMs)"
                )

    def _batches(self, records: list[Message]) -> Iterator[PolledRecords]:
        """Batches of limited size; what is asked for next follows the size of these."""
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
                records = records[: bisect_left(records, wanted.end, key=offset_of)]
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
        part: list[Message],
    ) -> None:
        """Takes a range that is over out of `now`; `part` is what came last of its partition."""
        each, progress = wanted[now[place]]
        if progress.reached >= each.end:
            del now[place]
            self._stopped.pop(place, None)
            self._ended[place] = each.end
            if place in self._stands:
                self._keep(place, part, offset=each.end)
            elif now or self._stands:
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
        self._stands.pop((wanted.topic, wanted.partition), None)
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
        self._stands.pop((wanted.topic, wanted.partition), None)
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
