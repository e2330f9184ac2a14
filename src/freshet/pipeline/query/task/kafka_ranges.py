"""Ranges of Kafka's offsets that a worker reads itself, and decodes: no record goes through the engine.

    numbers of groups of ranges ─ RangeReader ─ blocks of records ─ packer ─ packed outcomes

The ranges of a group are read at the same time. Each task says how far it came with the rows that it gives
(`Tally.reached`), and the driver compares that with the ranges (`query.driver.batch_check`).

Measured, 646-byte Debezium records: see docs/benchmarks.md, W9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.logstore.kafka.offset_range import OffsetRange, RangeProgress
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.decode.outcomes import EventTimes, Tally
from freshet.pipeline.decode.raw_records import OLD_KEY_HEADER
from freshet.pipeline.decode.record_block import MIXED_RECORDS, KafkaBlock
from freshet.pipeline.errors.repeating_errors import error_document
from freshet.pipeline.query.task.batch_work import BatchWork, RecordPacker, TablePacker, record_packer
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackedValue, packed_batches
from freshet.pipeline.query.wire.ranges import range_name
from freshet.storage.exceptions import NotFoundError

if TYPE_CHECKING:
    from freshet.logstore.kafka.polled_records import PolledRecords
    from freshet.logstore.kafka.range_reader import RangeReader

PASSED_OVER: Final = "offsets that were not in Kafka any more (failOnDataLoss is false)"
ISOLATION: Final = "isolation.level"
_FETCH_BYTES: Final = "fetch.message.max.bytes"
_QUEUE_KB: Final = "queued.max.messages.kbytes"
_SEVERAL_FETCH: Final = {_FETCH_BYTES: str(512 << 10)}
_SEVERAL_MIN: Final = 8
_LARGE_FETCH: Final = {_FETCH_BYTES: str(1 << 10)}
_PROBED: Final = 16
_PROBED_MAX: Final = 8
"""Records at a place of a range, and ranges, whose sizes are looked at."""
_LOOK_FETCH: Final = {_FETCH_BYTES: str(128 << 10), "queued.min.messages": "1"}


@dataclass(frozen=True, slots=True)
class DirectClient:
    """How the workers reach the brokers of one source."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    timeout_s: float
    takes_losses: bool
    is_kept: bool = True
    """Whether a process keeps its consumer for the next batch."""
    stays: bool = False
    """Whether that consumer goes on reading where a range ended: the next batch of the same process begins there."""

    def for_several(self, ranges: int) -> DirectClient:
        """For so many ranges that are read at the same time. What is fetched behind their ends is dropped: measured,
        125,000 records of fifty ranges take 0.65 s of processor time, and 0.85 s with the fetches of a single one."""
        if ranges < _SEVERAL_MIN or self.stays:
            return self
        return replace(self, settings=tuple(sorted({**_SEVERAL_FETCH, **dict(self.settings)}.items())))

    def for_large_records(self) -> DirectClient:
        """For records that are large: a fetch has about one batch of a producer, and no more where these compress well.
        14,000 records of 100 KB, one letter, were 128 KB, and a gigabyte once they were unpacked."""
        return replace(self, settings=tuple(sorted({**dict(self.settings), **_LARGE_FETCH}.items())))

    def holding(self, size_bytes: int) -> DirectClient:
        """With no more than so much ahead of what was read. Measured, 200,000 records of 646 bytes: 8 MB and not 64
        take 7 % less processor time, and 100 MB less of memory."""
        settings = {_QUEUE_KB: str(size_bytes >> 10), **dict(self.settings)}
        return replace(self, settings=tuple(sorted(settings.items())))

    def under(self, isolation: str) -> DirectClient:
        """For records of transactions under another isolation."""
        return replace(self, settings=tuple(sorted({**dict(self.settings), ISOLATION: isolation}.items())))

    def for_a_look(self) -> DirectClient:
        """For a few records of each range, once: nothing is fetched ahead."""
        settings = tuple(sorted({**dict(self.settings), **_LOOK_FETCH}.items()))
        return replace(self, settings=settings, is_kept=False, stays=False)


class RangeWork(Frozen):
    """Numbers of groups of ranges to packed outcomes of their records; a value that travels to the workers."""

    client: DirectClient
    ranges: tuple[OffsetRange, ...]
    groups: tuple[tuple[int, ...], ...]
    work: KeptValue[BatchWork]
    source_index: int
    crosses: bool = True
    """Whether the outcomes go to other tasks; False: to the one that reads them (`TablePacker`)."""

    def run(self, numbers: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """Batches of one column of numbers in, of `PACKED_SCHEMA` out."""
        packer = record_packer(place, self.work, self.source_index)
        if isinstance(packer, TablePacker) and not self.crosses:
            packer = replace(packer, crosses=False)
        for batch in numbers:
            for group in batch.column(0).to_pylist():
                yield from packed_batches(self._of_group(packer, self.groups[group]))

    def _of_group(self, packer: RecordPacker, group: Sequence[int]) -> Iterator[PackedValue]:
        wanted = [(self.ranges[number], RangeProgress(self.ranges[number].start)) for number in group]
        try:
            yield from packer(read_ranges(self.client, wanted))
        except NotFoundError as error:  # another attempt would not find it either
            yield from packer.tally(Tally(error=error_document(error)))
            return
        notes: Counter[str] = Counter()
        for _, progress in wanted:
            notes.update({PASSED_OVER: progress.passed_over} if progress.passed_over else {})
        reached = {
            range_name(self.source_index, number): progress.reached
            for number, (_, progress) in zip(group, wanted, strict=True)
        }
        yield from packer.tally(Tally(notes=notes, reached=reached))


def read_ranges(client: DirectClient, wanted: Sequence[tuple[OffsetRange, RangeProgress]]) -> Iterator[KafkaBlock]:
    """The records of some ranges; those of several are read at the same time, in blocks that are not small."""
    from freshet.logstore.kafka.range_reader import BATCH_BYTES

    with _reading(client) as reader:
        if len(wanted) == 1:
            ((only, progress),) = wanted
            for records in reader.read(only, progress):
                yield _block(only, records)
            return
        kept: list[KafkaBlock] = []
        count = size = 0
        for index, records in reader.read_several(wanted):
            kept.append(_block(wanted[index][0], records))
            count += len(records)
            size += int(records.lengths.sum()) + sum(map(len, filter(None, records.keys)))
            if count >= MIXED_RECORDS or size >= BATCH_BYTES:
                yield KafkaBlock.joined(kept)
                kept, count, size = [], 0, 0
    if kept:
        yield KafkaBlock.joined(kept)


def leave_ranges(client: DirectClient, places: Collection[tuple[str, int]]) -> None:
    """Has the reader of this process leave partitions (`RangeReader.leave`)."""
    _reader(client).leave(places)


def probed_sizes(client: DirectClient, ranges: Sequence[OffsetRange]) -> RecordSizes:
    """The sizes of some of the first, the middle and the last records; none where those are gone."""
    sizes = NOTHING_SEEN
    with suppress(NotFoundError), _reading(replace(client.for_large_records(), is_kept=False)) as reader:
        for each in ranges[:: -(-len(ranges) // _PROBED_MAX)]:
            last = max(each.start, each.end - _PROBED)
            for start in {each.start, (each.start + last) // 2, last}:
                part = replace(each, start=start, end=min(each.end, start + _PROBED))
                for records in reader.read(part, RangeProgress(start)):
                    lengths = records.lengths
                    sizes = sizes.joined(RecordSizes(int(lengths.mean()), int(lengths.max())))
    return sizes


@contextmanager
def _reading(client: DirectClient) -> Iterator[RangeReader]:
    if client.is_kept:
        yield _reader(client)
        return
    reader = _new_reader(client)
    try:
        yield reader
    finally:
        reader.close()


@lru_cache(8)
def _reader(client: DirectClient) -> RangeReader:
    """The one of this process: workers live for many batches."""
    return _new_reader(client)


def _new_reader(client: DirectClient) -> RangeReader:
    from freshet.logstore.kafka.range_reader import RangeReader

    return RangeReader(
        dict(client.settings), timeout_s=client.timeout_s, takes_losses=client.takes_losses, stays=client.stays
    )


def _block(wanted: OffsetRange, records: PolledRecords) -> KafkaBlock:
    return KafkaBlock(
        [(wanted.topic, wanted.partition)],
        None,
        records.keys,
        records.values,
        records.lengths,
        records.offsets,
        records.timestamps,
        partial(records.headers, OLD_KEY_HEADER),
        times=lambda: EventTimes(*bounds) if (bounds := records.time_bounds()) else None,
    )
