"""The one job of each batch of a query on the workers of this machine.

    large   ranges, pieces ─ decode, in all workers ─▶ (task, table, packed) ─▶ write, in the worker of the task
    small   ranges, pieces ─ decode and write, in one worker

A partition of Kafka stays with the worker that has read it last, as long as that has no more than its share, and a task
always runs in the worker of its number: so consumers, caches of tables and stores of buckets are where they are wanted.
Between workers outcomes wait in files (`packed_store`) of a scratch folder (TMPDIR), which is removed with the batch,
or by the next process where this one was killed.

A worker that ends takes what it had of the batch with it: the job is run again from its start. What the tasks have
written until then are orphans, and no snapshot names them.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, pairwise
from typing import Any, Final, NamedTuple
from uuid import uuid4

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.identity.planned_isolation import PlannedBefore
from freshet.pipeline.local.batch_calls import (
    Forgetting,
    Handover,
    Leaving,
    PackedToPacked,
    PackedToResults,
    PiecesToPacked,
    PiecesToResults,
    RangePiece,
    SizeProbe,
)
from freshet.pipeline.local.packed_store import Shelf, Waiting
from freshet.pipeline.local.source import NewsSource, Piece, PieceSource, RangeSource, ReadSource, Span
from freshet.pipeline.local.worker_processes import Call
from freshet.pipeline.local.workers import LocalEngine, WorkerDiedError, settled
from freshet.pipeline.query.driver.direct_reads import look_pieces
from freshet.pipeline.query.driver.engine import MicroBatch
from freshet.pipeline.query.driver.work import Work
from freshet.pipeline.query.task.batch_work import BatchWork, StageWork
from freshet.pipeline.query.task.kafka_ranges import DirectClient, RangeWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.batch_pin import BatchPin, Handed, TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.ranges import Ranges, record_count_of
from freshet.pipeline.query.wire.task_result import TaskResult, sum_results

ATTEMPTS_MAX: Final = 4
"""How often the job of a batch is run whose workers end; as often as Spark tries a task."""
SMALL_RECORDS: Final = 4000
SMALL_BYTES: Final = 4 << 20
"""Batches up to this are done by one worker; by the mean of the records seen so far. Measured, inserts of 560 bytes
into 2 buckets on two busy cores, processor time in ms of the one worker, and of each of two:

    1000  19, 17 + 16    2000  26, 20 + 20    4000  36, 28 + 26    8000  52, 40 + 43

By the clock two workers were no faster up to 4000 records (404 and 432 ms, 276 and 187), and were from 8000 on (486 and
418, 798 and 597); what they take more is taken from the broker."""
UNKNOWN_BYTES: Final = 32 << 10
"""The size of a record before any was seen, so that a first batch of large ones is not done by one worker."""
LARGE_BYTES: Final = 16 << 10
"""Of a record that consumers fetch less of at a time."""
AHEAD_BYTES: Final = 8 << 20
"""What a consumer holds ahead: it stays at its place while its worker does something else."""
SPLIT_MIN: Final = 50_000
"""Records in each part of a range that is read by several workers."""
_PIECES_PER_WORKER: Final = 2
_SKEW: Final = 1.25
"""How much more than its share a worker is left with, so that partitions stay where they are."""
_LOG: Final = logging.getLogger(__name__)


class LocalJob:
    """A `Job`: runs the batches of one query."""

    is_planned = False

    def __init__(
        self,
        work: Work,
        sources: Sequence[ReadSource],
        table_name: str,
        *,
        planned_before: PlannedBefore | None = None,
    ) -> None:
        """`planned_before` is a batch that is read under another isolation than the sources have now."""
        self._work = work
        self._sources = tuple(sources)
        self._table_name = table_name
        self._planned_before = planned_before
        self._name = str(uuid4())
        self._rounds = count()
        self._home: int | None = None
        self._placing = Placing()
        self._standing = Standing()
        self._sizes = RecordSizes()

    def ranges(self, batch: MicroBatch) -> Ranges | None:
        """`Job.ranges`."""
        assert isinstance(batch.engine, LocalEngine)
        found = self._ranges(batch)
        return {index: divided(of, batch.engine.parallelism) for index, of in found.items()} or None

    def planned_ranges(self, batch: MicroBatch) -> Ranges | None:
        """`Job.planned_ranges`."""
        found = self._ranges(batch)
        return found if len(found) == len(self._sources) else None

    def first_look(self, batch: MicroBatch, ranges: Ranges | None) -> Ranges | None:
        """`Job.first_look`."""
        if ranges is None:
            return {} if self._looks(batch, self._work.now()) else None
        pieces = look_pieces(ranges.get(0, ()))
        return None if pieces is None else {0: pieces}

    def keep_state(self, batch: MicroBatch) -> None:
        """`Job.keep_state`: there is none."""

    def run(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: Ranges | None, *, is_look: bool = False
    ) -> tuple[TaskResult, int]:
        """`Job.run`."""
        for attempt in range(1, ATTEMPTS_MAX):
            try:
                return self._run(batch, pins, ranges, is_look=is_look)
            except WorkerDiedError as error:
                _LOG.warning(
                    "table %s: the job of batch %d is run again from its start (attempt %d of %d): %s",
                    self._table_name,
                    batch.number,
                    attempt + 1,
                    ATTEMPTS_MAX,
                    error,
                )
        return self._run(batch, pins, ranges, is_look=is_look)

    def _run(
        self, batch: MicroBatch, pins: Mapping[int, BatchPin], ranges: Ranges | None, *, is_look: bool
    ) -> tuple[TaskResult, int]:
        """`run`, once."""
        assert isinstance(batch.engine, LocalEngine)
        engine, work, number = batch.engine, self._work.now(), next(self._rounds)
        with engine.pool.scratch(f"{self._name}-{number}") as folder:
            run = _Round(engine, self._work, work, Handed(pins), self._name, number, folder)
            try:
                hands = self._hands(batch, work, ranges, is_look=is_look)
                for (worker, client), places in self._standing.left(hands).items():
                    engine.pool.submit(Leaving(client, tuple(places)), worker=worker % engine.parallelism)
                results = run.results(hands)
            except Exception:
                for worker in range(engine.pool.workers):
                    engine.pool.submit(Forgetting(self._name), worker=worker)
                raise
        result = sum_results(results)
        if result.read.sizes.largest:
            self._sizes = result.read.sizes
        return result, self._work.task_count

    def _hands(
        self, batch: MicroBatch, work: KeptValue[BatchWork], ranges: Ranges | None, *, is_look: bool
    ) -> list[Hand]:
        """What each worker reads."""
        assert isinstance(batch.engine, LocalEngine)
        workers = batch.engine.parallelism
        others = self._looks(batch, work) if is_look else self._pieces(batch, work, _PIECES_PER_WORKER * workers)
        is_small = len(others) <= 1 and self._is_small(ranges or {}) and not self._work.numbered_tables
        hands: dict[int, list[Piece]] = {}
        if ranges:
            if not (is_small or is_look or self._sizes.largest):
                self._probe(batch, ranges)
            for worker, index, numbers in _all_at_home(ranges) if is_small else self._placing.groups(ranges, workers):
                together = is_small or self._work.reads_together
                groups = (tuple(numbers),) if together else tuple((each,) for each in numbers)
                client = self._client(batch.number, index, len(numbers), is_look=is_look)
                crosses = not is_small or self._work.stage_count > 0
                piece = RangePiece(RangeWork(client, tuple(ranges[index]), groups, work, index, crosses))
                hands.setdefault(worker, []).append(piece)
        if not is_small:
            return [*(Hand(tuple(each), worker) for worker, each in hands.items()), *(Hand((one,)) for one in others)]
        whole = [*(piece for each in hands.values() for piece in each), *others]
        if self._home is None:
            self._home = batch.engine.pool.home()
        return [Hand(tuple(whole), self._home, is_all=True)] if whole else []

    def _client(self, number: int, index: int, ranges: int, *, is_look: bool = False) -> DirectClient:
        """What reads so many ranges of a source in a batch."""
        source, before = self._sources[index], self._planned_before
        assert isinstance(source, RangeSource), "its ranges are of Kafka"
        client = source.client
        if before is not None and before.micro_batch_id == number:
            client = client.under(before.isolations[index])
        if is_look:
            return client.for_a_look()
        client = client.holding(AHEAD_BYTES)
        return client.for_large_records() if self._sizes.mean > LARGE_BYTES else client.for_several(ranges)

    def _probe(self, batch: MicroBatch, ranges: Ranges) -> None:
        """Looks at the sizes of records before many of them are read for the first time."""
        assert isinstance(batch.engine, LocalEngine)
        probes = [SizeProbe(self._client(batch.number, index, 1), tuple(of)) for index, of in ranges.items() if of]
        for sizes in settled([batch.engine.pool.submit(probe) for probe in probes]):
            self._sizes = self._sizes.joined(sizes)

    def _pieces(self, batch: MicroBatch, work: KeptValue[BatchWork], count: int) -> list[Piece]:
        """What is read of sources that are not Kafka."""
        found: list[Piece] = []
        for index, source in enumerate(self._sources):
            start, end = _span(batch, index)
            if isinstance(source, PieceSource) and end is not None and end != start:
                found += source.pieces(start, end, work, index, count)
        return found

    def _looks(self, batch: MicroBatch, work: KeptValue[BatchWork]) -> list[Piece]:
        """What is read of these for a first look."""
        found: list[Piece] = []
        for index, source in enumerate(self._sources):
            start, end = _span(batch, index)
            if isinstance(source, NewsSource) and end is not None and end != start:
                found += source.looks(start, end, work, index)
        return found

    def _ranges(self, batch: MicroBatch) -> dict[int, Sequence[OffsetRange]]:
        """What a batch reads of its Kafka sources."""
        found: dict[int, Sequence[OffsetRange]] = {}
        for index, source in enumerate(self._sources):
            start, end = _span(batch, index)
            if isinstance(source, RangeSource):
                found[index] = [] if end is None else source.ranges(start, end)
        return found

    def _is_small(self, ranges: Ranges) -> bool:
        records = record_count_of(ranges)
        return records <= SMALL_RECORDS and records * (self._sizes.mean or UNKNOWN_BYTES) <= SMALL_BYTES


def _span(batch: MicroBatch, index: int) -> Span:
    """Start and end of a source in a batch; of one that is no query's, all that the source has."""
    spans: Sequence[Span] | None = batch.frame
    return (None, "") if spans is None else spans[index]


def divided(ranges: Sequence[OffsetRange], parts: int) -> list[OffsetRange]:
    """The same offsets in ranges of which none is much more than one of so many parts of all."""
    share = max(SPLIT_MIN, sum(each.end - each.start for each in ranges) // parts)
    found: list[OffsetRange] = []
    for each in ranges:
        size = each.end - each.start
        pieces = math.ceil(size / share) if size > _SKEW * share else 1
        cuts = [each.start + size * number // pieces for number in range(pieces + 1)]
        found += [replace(each, start=start, end=end) for start, end in pairwise(cuts)]
    return found


def _all_at_home(ranges: Ranges) -> list[tuple[int, int, list[int]]]:
    """What `Placing.groups` gives of one worker, which leaves the places of large batches as they are."""
    return [(0, index, list(range(len(of)))) for index, of in ranges.items() if of]


class Placing:
    """Which worker reads a range: the one that has read its partition before, where that does not have far too much."""

    def __init__(self) -> None:
        self._workers: dict[tuple[int, str, int, int], int] = {}
        """By source, topic, partition, and the part of it."""

    def groups(self, ranges: Ranges, workers: int) -> list[tuple[int, int, list[int]]]:
        """Worker, source, and the numbers of its ranges."""
        places = [
            (place, index, number) for index, of in ranges.items() for number, place in enumerate(_places(index, of))
        ]
        sizes = [ranges[index][number].end - ranges[index][number].start for _, index, number in places]
        loads = [0] * workers
        found = [self._workers.get(place, workers) for place, _, _ in places]
        for size, worker in zip(sizes, found, strict=True):
            if worker < workers:
                loads[worker] += size
        by_size = sorted(range(len(places)), key=lambda each: -sizes[each])
        for each in by_size:
            if found[each] >= workers:
                found[each] = loads.index(min(loads))
                loads[found[each]] += sizes[each]
        if max(loads) > _SKEW * sum(sizes) / workers:
            anew = [0] * workers
            better = list(found)
            for each in by_size:
                better[each] = anew.index(min(anew))
                anew[better[each]] += sizes[each]
            if _SKEW * max(anew) < max(loads):
                found = better
        self._workers = {place: worker for (place, _, _), worker in zip(places, found, strict=True)}
        groups: dict[tuple[int, int], list[int]] = {}
        for (_, index, number), worker in zip(places, found, strict=True):
            groups.setdefault((worker, index), []).append(number)
        return [(worker, index, numbers) for (worker, index), numbers in groups.items()]


def _places(index: int, ranges: Sequence[OffsetRange]) -> Iterator[tuple[int, str, int, int]]:
    seen: Counter[tuple[str, int]] = Counter()
    for each in ranges:
        yield index, each.topic, each.partition, seen[each.topic, each.partition]
        seen[each.topic, each.partition] += 1


class Hand(NamedTuple):
    """Pieces that one worker reads, one after the other; the first that is free where none is named. `is_all`: they
    are all of the batch, and it is written by the same worker."""

    pieces: tuple[Piece, ...]
    worker: int | None = None
    is_all: bool = False


class Standing:
    """Where consumers stand (`DirectClient.stays`): each goes on fetching a partition that it has read."""

    def __init__(self) -> None:
        self._readers: dict[tuple[int, str, int], set[tuple[int, DirectClient]]] = {}
        """By source, topic and partition, the workers that have read it last, with their clients."""

    def left(self, hands: Sequence[Hand]) -> dict[tuple[int, DirectClient], list[tuple[str, int]]]:
        """By worker and client, the topics and partitions that others read from now on."""
        now: dict[tuple[int, str, int], set[tuple[int, DirectClient]]] = {}
        for piece, worker in ((piece, hand.worker or 0) for hand in hands for piece in hand.pieces):
            if isinstance(piece, RangePiece) and piece.work.client.stays:
                for each in map(piece.work.ranges.__getitem__, chain.from_iterable(piece.work.groups)):
                    place = piece.work.source_index, each.topic, each.partition
                    now.setdefault(place, set()).add((worker, piece.work.client))
        found: dict[tuple[int, DirectClient], list[tuple[str, int]]] = {}
        for place, readers in now.items():
            for reader in self._readers.get(place, set()) - readers:
                found.setdefault(reader, []).append(place[1:])
        self._readers |= now
        return found


class _Round:
    """One run of the job of a batch."""

    def __init__(
        self,
        engine: LocalEngine,
        work: Work,
        kept: KeptValue[BatchWork],
        handed: Handed,
        job: str,
        number: int,
        folder: str,
    ) -> None:
        self._engine = engine
        self._work = work
        self._stage = StageWork(kept) if work.stage_count else None
        self._task = WriteTask(kept)
        self._handed = handed
        self._job = job
        self._number = number
        self._folder = folder
        self._calls = count()

    def results(self, hands: Sequence[Hand]) -> list[bytes]:
        """What the tasks report."""
        if not self._work.is_shuffled or any(hand.is_all for hand in hands):
            return self._joined([(self._whole(hand), hand.worker) for hand in hands])
        parted, write = None, self._task
        if any(piece.keeps_together for hand in hands for piece in hand.pieces):
            parted, write = self._work.numbered_tables, replace(write, parallelism=self._work.task_count)
        shelf = self._shelf("decoded")
        onward = partial(self._way, parted=parted if self._stage is None else None)
        decoding = [(PiecesToPacked(hand.pieces, self._place(), onward(shelf)), hand.worker) for hand in hands]
        waiting = _by_task(self._joined(decoding))
        if self._stage is not None:
            of, shelf = shelf, self._shelf("staged")
            staging = [
                (PackedToPacked(each, of, self._stage, self._place(task), self._way(shelf, parted)), task)
                for task, each in waiting.items()
            ]
            waiting = _by_task(self._joined(staging))
        writing = [(PackedToResults(each, shelf, write, self._place(task)), task) for task, each in waiting.items()]
        return self._joined(writing)

    def _whole(self, hand: Hand) -> Call:
        task = replace(self._task, parallelism=self._work.task_count)
        return PiecesToResults(hand.pieces, self._stage, task, self._place(), self._way(self._shelf("whole")))

    def _joined(self, calls: Sequence[tuple[Call, int | None]]) -> list[Any]:
        """What these calls give, each in its worker."""
        pool, workers = self._engine.pool, self._engine.parallelism
        futures = [pool.submit(call, worker=None if number is None else number % workers) for call, number in calls]
        return [each for found in settled(futures) for each in found]

    def _place(self, number: int = 0) -> TaskPlace:
        return self._engine.place(self._handed, number)

    def _shelf(self, shuffle: str) -> Shelf:
        return Shelf(self._job, shuffle, self._number)

    def _way(self, shelf: Shelf, parted: frozenset[int] | None = None) -> Handover:
        return Handover(shelf, f"{self._folder}/{shelf.shuffle}-{next(self._calls)}", self._engine.parallelism, parted)


def _by_task(waiting: Sequence[Waiting]) -> dict[int, list[Waiting]]:
    """What waits for each task."""
    found: dict[int, list[Waiting]] = {}
    for each in waiting:
        found.setdefault(each.task, []).append(each)
    return found
