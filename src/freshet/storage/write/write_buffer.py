"""Rows of one bucket between `write` and the level-0 file: in memory as they came, then spilled as sorted runs.

    add          chunks in arrival order, each row with a number that grows in this order
    spill        the chunks, sorted, become one run on scratch disk; memory is free again, no file of the table was made
    take_merged  spilled runs, oldest first, and what is still in memory, merged into one stream in key order

What a spilled run holds depends on the engine:

| engine | run | why |
|---|---|---|
| merges in stages (deduplicate, first-row) | merged rows, each key once | the result takes the place of its rows |
| any other | raw rows in order, several of a key | merged twice is not merged once: lone rows pass, sums round |

so that the level-0 file is the same whether rows were spilled or not. Where the raw rows are wanted besides the merged
ones (`keeps_raw_rows`, for changelogs of the input), every engine spills them; `take_segments` gives them. Rows that
tie stay in the order of arrival. The raw rows of one key are merged at once: a hot key needs the memory of all its rows
since the last flush.

Source: MERGING.md §0, §1.2, §2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.storage.io.spill_file import SpillFile
from freshet.storage.merge.key_order import KeySegments, RowOrder, sort_segments
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_reader import (
    merge_section,
    merge_table,
    merge_table_in_parts,
    segment_rounds,
    segments_in_parts,
    sort_table,
)
from freshet.storage.merge.row_levels import with_level, with_levels

MERGE_BYTES: Final = 32 * 1024 * 1024
"""Rows of all runs together that one round of merging spilled runs holds."""

AT_ONCE_BYTES: Final = 64 * 1024 * 1024
"""Rows of a bucket up to this size are merged as a whole, which needs the memory of the result on top of theirs.

Measured, write-only commits of 38 to 45 MB (W5, W6, W7): key ranges take 11 to 25 % more processor time."""

PART_BYTES: Final = 8 * 1024 * 1024
"""More rows are sorted as a whole, but gathered and merged in key ranges of about this size.

Measured, a task with a buffer of 256 MB, peak of the process: 1 M rows of ten columns 624 MB at once, 462 MB
in key ranges. 1.6 M rows, which spill, 582 MB with ranges of 16 MB and 510 MB with these; sorting 1.5 M rows takes 2 %
more processor time, 7 % in chunks of 2000 rows."""

_FILL_ROWS_MAX: Final = 64 * 1024
_FILL_ROWS_MIN: Final = 1024
_MEMORY_LEVEL: Final = -1


class WriteBuffer:
    """Rows of one bucket; used by one thread at a time."""

    def __init__(
        self,
        order: RowOrder,
        function: MergeFunction,
        new_spill_path: Callable[[], str],
        *,
        keeps_raw_rows: bool = False,
    ) -> None:
        self._order = order
        self._function = function
        self._new_spill_path = new_spill_path
        self._spills_merged = function.merges_in_stages and not keeps_raw_rows
        self._chunks: list[pa.Table] = []
        self._runs: list[SpillFile] = []
        self.size_bytes = 0
        """Bytes in memory."""

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to flush."""
        return not (self._chunks or self._runs)

    @property
    def spilled_bytes(self) -> int:
        """Bytes on scratch disk."""
        return sum(run.size_bytes for run in self._runs)

    def add(self, rows: pa.Table) -> None:
        """Takes rows with their system columns; later rows have larger sequence numbers."""
        if rows.num_rows:
            self._chunks.append(rows)
            self.size_bytes += rows.nbytes

    def own_memory(self) -> None:
        """Copies rows whose memory is shared with others: a slice keeps all of what it was cut from."""
        if self._chunks:
            self._chunks = [own_copy(self._chunks)]

    def spill(self) -> None:
        """Moves what is in memory to scratch disk."""
        if self._chunks:
            parts = self._memory_run(None)
            first = next(parts)
            self._runs.append(SpillFile(self._new_spill_path(), first.schema, chain([first], parts)))

    def take_merged(self, executor: Executor | None = None) -> Iterator[pa.Table | pa.RecordBatch]:
        """All rows, merged, in key order; the buffer is empty afterwards."""
        runs, self._runs = self._runs, []
        if not runs:
            if self._chunks:
                yield from self._parts(executor, is_merged=True)
            return
        sources = self._sources(runs, executor)
        yield from merge_section(
            sources,
            self._order,
            self._function,
            drop_delete=False,
            fill_rows=_fill_rows(runs, len(sources)),
            keys_repeat=not self._spills_merged,
        )
        for run in runs:
            run.remove()

    def take_segments(self, executor: Executor | None = None) -> Iterator[KeySegments]:
        """All rows in key order, unmerged, all rows of a key together; for buffers that keep raw rows. The buffer is
        empty afterwards."""
        runs, self._runs = self._runs, []
        if not runs:
            if self._chunks:
                yield from self._memory_segments(executor)
            return
        sources = self._sources(runs, executor)
        yield from segment_rounds(sources, self._order, fill_rows=_fill_rows(runs, len(sources)), keys_repeat=True)
        for run in runs:
            run.remove()

    def _memory_segments(self, executor: Executor | None) -> Iterator[KeySegments]:
        waiting = [self._leveled(self._taken_memory())]
        if waiting[0].nbytes > AT_ONCE_BYTES:
            yield from segments_in_parts(waiting.pop(), self._order, PART_BYTES, executor)
        else:
            yield sort_segments(waiting.pop(), self._order)

    def _sources(self, runs: Sequence[SpillFile], executor: Executor | None) -> list[Iterable[pa.RecordBatch]]:
        sources: list[Iterable[pa.RecordBatch]] = [run.read() for run in runs]
        if self._chunks:
            sources.append(_batches(self._memory_run(executor)))
        if self._function.reads_levels:
            sources = [with_levels(source, _MEMORY_LEVEL) for source in sources]
        return sources

    def clear(self) -> None:
        """Forgets everything."""
        for run in self._runs:
            run.remove()
        self._chunks.clear()
        self._runs.clear()
        self.size_bytes = 0

    def _memory_run(self, executor: Executor | None) -> Iterator[pa.Table]:
        """What is in memory as a run: merged, or raw rows in order."""
        return self._parts(executor, is_merged=self._spills_merged)

    def _parts(self, executor: Executor | None, *, is_merged: bool) -> Iterator[pa.Table]:
        """What is in memory in key order; key range after key range where it is much."""
        rows = self._taken_memory()
        if is_merged:
            rows = self._leveled(rows)
        if rows.nbytes > AT_ONCE_BYTES:
            waiting = [rows]
            del rows
            # Popped, so that nothing here holds rows that are let go as they are joined into larger pieces.
            yield from merge_table_in_parts(
                waiting.pop(), self._order, self._function, PART_BYTES, is_merged=is_merged, executor=executor
            )
        elif is_merged:
            yield merge_table(rows, self._order, self._function, executor)
        else:
            yield sort_table(rows, self._order, executor=executor)

    def _leveled(self, rows: pa.Table) -> pa.Table:
        return with_level(rows, _MEMORY_LEVEL) if self._function.reads_levels else rows

    def _taken_memory(self) -> pa.Table:
        rows = pa.concat_tables(self._chunks)
        self._chunks.clear()
        self.size_bytes = 0
        return rows


def own_copy(chunks: Sequence[pa.Table]) -> pa.Table:
    """The rows of all chunks in memory of their own."""
    rows = pa.concat_tables(chunks)
    if all(column.num_chunks > 1 for column in rows.columns):
        return rows.combine_chunks()
    return rows.take(np.arange(rows.num_rows))


def rows_within(budget_bytes: int, size_bytes: int, row_count: int) -> int:
    """Rows of this average size that fit into the budget, within what is sensible for one round."""
    row_bytes = max(1, size_bytes // max(1, row_count))
    return max(_FILL_ROWS_MIN, min(_FILL_ROWS_MAX, budget_bytes // row_bytes))


def _fill_rows(runs: Sequence[SpillFile], source_count: int) -> int:
    size_bytes, row_count = sum(run.size_bytes for run in runs), sum(run.row_count for run in runs)
    return rows_within(MERGE_BYTES // source_count, size_bytes, row_count)


def _batches(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for rows in parts:
        yield from rows.to_batches(max_chunksize=_FILL_ROWS_MAX)
