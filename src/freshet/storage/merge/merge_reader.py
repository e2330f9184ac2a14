"""Merges sorted runs into one stream of rows, a round at a time, in memory bound by the batches of the runs.

Round: 1. every run tops up its buffer to `fill_rows` rows; 2. the watermark is the smallest last key of the buffers
whose run goes on (none: everything is there); 3. all buffered rows up to the watermark are cut off, ordered together
and merged; 4. the rest waits. No row at or below the watermark can still come, because runs are sorted, so each key is
merged exactly once, with all its rows. The run that gave the watermark is used up, so every round moves.

At most two batches per run are held: the caller bounds memory by the number of rows in a batch.

Raw runs (`keys_repeat`) hold several rows of a key, in order, as a write buffer spills them for engines that must see
all rows of a key at once. A key may then go on in the next batch of its run, so rounds cut strictly below the
watermark. Where nothing lies below it, the runs that are at the watermark read on until something does: the rows of a
single hot key are held together, whatever their number.

Source: MERGING.md §1.2, §2.1, §6.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.gather import in_pieces, take_from_batches, take_rows
from freshet.storage.merge.key_order import Key, KeySegments, RowOrder, row_key, rows_tied, sort_segments
from freshet.storage.merge.merge_function import (
    Merged,
    MergeFunction,
    PreviousRow,
    retracts,
    stored_columns,
    without_retracts,
)

FILL_ROWS: Final = 64 * 1024
"""Rows of each run that a round waits for, unless the caller says otherwise."""

ROUND_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all runs together after which a round waits for no further rows: the number of rows is reckoned from their
average, and a few rows of many megabytes are in no average."""

_PIECES_MAX: Final = 256
"""Pieces of a buffer that parts are gathered from: every part looks into each of them."""

Completion = Callable[[KeySegments], KeySegments]
"""Adds rows from elsewhere to the keys of a round, or leaves keys out."""


def as_they_are(segments: KeySegments) -> KeySegments:
    """The `Completion` that changes nothing."""
    return segments


def merge_section(
    runs: Sequence[Iterable[pa.RecordBatch]],
    order: RowOrder,
    function: MergeFunction,
    *,
    drop_delete: bool,
    columns: tuple[str, ...] | None = None,
    fill_rows: int = FILL_ROWS,
    executor: Executor | None = None,
    keys_repeat: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Merged rows in key order. Runs (older first) are sorted by key, and have system columns.

    A run holds each key once, or, with `keys_repeat`, the rows of a key in order. `drop_delete` leaves out results of
    kind -U and -D: readers do, and compactions where no older row can lie below.
    """
    may_pass = function.passes_lone_rows and not keys_repeat
    keep = without_retracts if drop_delete else None
    for cuts in _rounds(runs, order, fill_rows, keys_repeat):
        if len(cuts) == 1 and may_pass:
            rows = _pass(pa.Table.from_batches(cuts[0]), drop_delete, columns)
        else:
            segments = _sorted(cuts, order)
            rows = function.merge(segments, columns=columns, keep=keep, executor=executor).rows
            del segments
        del cuts
        yield from rows.to_batches()
        del rows


def merge_rounds(
    runs: Sequence[Iterable[pa.RecordBatch]],
    order: RowOrder,
    function: MergeFunction,
    *,
    drop_delete: bool,
    completed: Completion,
    previous_row: PreviousRow,
    fill_rows: int = FILL_ROWS,
    keys_repeat: bool = False,
) -> Iterator[Merged]:
    """The same round by round, with what became of each key; no row passes by the merge.

    `completed` is applied to the keys of each round before they are merged; `previous_row` says which of a key's rows
    is the old one. Let go of each round before the next: it holds all its rows.
    """
    keep = without_retracts if drop_delete else None
    for segments in segment_rounds(runs, order, fill_rows=fill_rows, keys_repeat=keys_repeat):
        waiting = [completed(segments)]
        del segments
        # Popped, so that nothing here holds the rows of a round while the caller uses its result.
        yield function.merge(waiting.pop(), keep=keep, previous_row=previous_row)


def segment_rounds(
    runs: Sequence[Iterable[pa.RecordBatch]], order: RowOrder, *, fill_rows: int, keys_repeat: bool
) -> Iterator[KeySegments]:
    """The keys of sorted runs with all their rows, unmerged, round by round."""
    for cuts in _rounds(runs, order, fill_rows, keys_repeat):
        waiting = [_sorted(cuts, order)]
        del cuts
        yield waiting.pop()


def _rounds(
    runs: Sequence[Iterable[pa.RecordBatch]], order: RowOrder, fill_rows: int, keys_repeat: bool
) -> Iterator[list[list[pa.RecordBatch]]]:
    """The rows of each round, run by run."""
    fill_bytes = ROUND_BYTES // max(1, len(runs))
    buffers = [RunBuffer(run, order.key_columns, fill_bytes) for run in runs]
    while True:
        for buffer in buffers:
            buffer.fill(fill_rows)
        buffers = [buffer for buffer in buffers if buffer.row_count]
        if not buffers:
            return
        yield _next_cuts(buffers, fill_rows, keys_repeat)


def _sorted(cuts: Sequence[Sequence[pa.RecordBatch]], order: RowOrder) -> KeySegments:
    rows = pa.Table.from_batches([batch for cut in cuts for batch in cut])
    return sort_segments(rows, order, [sum(batch.num_rows for batch in cut) for cut in cuts])


def _next_cuts(buffers: Sequence[RunBuffer], fill_rows: int, keys_repeat: bool) -> list[list[pa.RecordBatch]]:
    """The rows of the next round, run by run; runs without any are left out."""
    while True:
        goes_on = [buffer for buffer in buffers if not buffer.is_exhausted]
        watermark = min((buffer.last_key() for buffer in goes_on), default=None)
        cuts = [cut for cut in (buffer.cut(watermark, strictly=keys_repeat) for buffer in buffers) if cut]
        if cuts:
            return cuts
        for buffer in goes_on:
            if buffer.last_key() == watermark:
                buffer.fill_more(fill_rows)


def merge_table(rows: pa.Table, order: RowOrder, function: MergeFunction, executor: Executor | None = None) -> pa.Table:
    """Rows in any order, merged in memory; of rows that tie in everything the later one wins. For the write buffer."""
    return _merge_segments(sort_segments(rows, order), function, executor)


def _merge_segments(segments: KeySegments, function: MergeFunction, executor: Executor | None) -> pa.Table:
    rows = segments.rows
    if function.passes_lone_rows and len(segments.starts) == len(segments.order):
        return _in_order(rows, segments.order, stored_columns(rows), executor)
    return function.merge(segments, executor=executor).rows


def merge_table_in_parts(
    rows: pa.Table,
    order: RowOrder,
    function: MergeFunction,
    part_bytes: int,
    *,
    is_merged: bool = True,
    executor: Executor | None = None,
) -> Iterator[pa.Table]:
    """What `merge_table` gives, or `sort_table` where it `is_merged` not: key range after key range.

    So the result needs the memory of a part, not of all rows once more.
    """
    waiting = [rows]
    del rows
    for own in segments_in_parts(waiting.pop(), order, part_bytes, executor):
        if is_merged:
            yield _merge_segments(own, function, executor)
        else:
            yield _in_order(own.rows, own.order, None, executor)


def segments_in_parts(
    rows: pa.Table, order: RowOrder, part_bytes: int, executor: Executor | None = None
) -> Iterator[KeySegments]:
    """The keys of rows in any order, key range after key range, each with rows of its own."""
    segments = sort_segments(rows, order)
    part_rows = max(1, part_bytes * rows.num_rows // max(1, rows.nbytes))
    positions, starts = segments.order, segments.starts
    del segments
    are_in_order = _is_theirs(positions)
    pieces = in_pieces(rows, _PIECES_MAX)
    del rows
    firsts = [0]
    while firsts[-1] < len(starts):
        # A part ends before the first key that begins beyond it; it has one key at least.
        ends_at = int(np.searchsorted(starts, starts[firsts[-1]] + part_rows))
        firsts.append(max(ends_at, firsts[-1] + 1))
    for first, end in pairwise(firsts):
        low = int(starts[first])
        high = int(starts[end]) if end < len(starts) else len(positions)
        if are_in_order:
            part, order_in_part = pa.Table.from_batches(pieces).slice(low, high - low), positions[: high - low]
        else:
            part, order_in_part = take_from_batches(pieces, positions[low:high], executor)
        yield KeySegments(part, order_in_part, starts[first:end] - low)


def sort_table(rows: pa.Table, order: RowOrder, *, executor: Executor | None = None) -> pa.Table:
    """All rows in order, nothing merged."""
    return _in_order(rows, sort_segments(rows, order).order, None, executor)


def _in_order(
    rows: pa.Table, order: npt.NDArray[np.int64], columns: Sequence[str] | None, executor: Executor | None
) -> pa.Table:
    """The rows in this order, as they are where that is theirs: a copy by ranges of the key brings them so, and joining
    and gathering them was a sixth of what its workers did."""
    if _is_theirs(order):
        rows = rows.slice(0, len(order))
        return rows if columns is None else rows.select(list(columns))
    return take_rows(rows, order, columns, executor)


def _is_theirs(order: npt.NDArray[np.int64]) -> bool:
    """Whether the order of all rows is the one that they have."""
    return not len(order) or bool(order[0] == 0 and order[-1] == len(order) - 1 and (order[1:] > order[:-1]).all())


def _pass(rows: pa.Table, drop_delete: bool, columns: tuple[str, ...] | None) -> pa.Table:
    """Rows of a single run: each key is alone."""
    if drop_delete:
        is_retract = retracts(rows)
        if is_retract.any():
            rows = rows.filter(pa.array(~is_retract))
    return rows.select(list(columns or stored_columns(rows)))


class RunBuffer:
    """The next rows of one run."""

    __slots__ = ("_batches", "_fill_bytes", "_key_columns", "_sizes_bytes", "_source", "is_exhausted", "row_count")

    def __init__(
        self, source: Iterable[pa.RecordBatch], key_columns: Sequence[str], fill_bytes: int = ROUND_BYTES
    ) -> None:
        self._source = iter(source)
        self._key_columns = tuple(key_columns)
        self._fill_bytes = fill_bytes
        self._batches: deque[pa.RecordBatch] = deque()
        self._sizes_bytes: deque[int] = deque()  # of the batches: asking one takes 20 µs
        self.is_exhausted = False
        self.row_count = 0

    def fill(self, row_count: int) -> None:
        """Reads until `row_count` rows, or so many bytes as a round may hold, are buffered or the run ends."""
        while not self.is_exhausted and self.row_count < row_count and sum(self._sizes_bytes) < self._fill_bytes:
            self._read()

    def fill_more(self, row_count: int) -> None:
        """Reads one batch at least, for a run whose rows buffered are all of one key."""
        wanted = self.row_count + row_count
        self._read()
        self.fill(wanted)

    def _read(self) -> None:
        batch = next(self._source, None)
        if batch is None:
            self.is_exhausted = True
        elif batch.num_rows:
            self._batches.append(batch)
            self._sizes_bytes.append(batch.nbytes)
            self.row_count += batch.num_rows

    def last_key(self) -> Key:
        """Key of the last row buffered."""
        return self.key(self._batches[-1], self._batches[-1].num_rows - 1)

    def cut(self, watermark: Key | None, *, strictly: bool) -> list[pa.RecordBatch]:
        """Removes and returns the rows at or below the watermark, or strictly below it; all rows if there is none."""
        taken: list[pa.RecordBatch] = []
        while self._batches:
            head = self._batches[0]
            count = head.num_rows
            if watermark is not None and not self._is_within(head, count - 1, watermark, strictly):
                count = self._rows_within(head, watermark, strictly)
            if count < head.num_rows:
                if count:
                    taken.append(head.slice(0, count))
                    self._batches[0] = head.slice(count)
                    self._sizes_bytes[0] = self._batches[0].nbytes
                break
            taken.append(self._batches.popleft())
            self._sizes_bytes.popleft()
        self.row_count -= sum(batch.num_rows for batch in taken)
        return taken

    def _rows_within(self, batch: pa.RecordBatch, watermark: Key, strictly: bool) -> int:
        low, high = rows_tied(batch.column(self._key_columns[0]), watermark[0])
        while low < high:
            middle = (low + high) // 2
            if self._is_within(batch, middle, watermark, strictly):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_within(self, batch: pa.RecordBatch, row: int, watermark: Key, strictly: bool) -> bool:
        key = self.key(batch, row)
        return key < watermark if strictly else key <= watermark

    def key(self, batch: pa.RecordBatch, row: int) -> Key:
        """Key of a row of a batch, comparable."""
        return row_key(batch, row, self._key_columns)
