"""Rows and values by position, one column at a time.

`gathered` gives values, NULL for position -1. Columns of fixed width are gathered by numpy, value and validity each for
itself, which takes no branch per value: 0.8 M of 2 M BIGINTs with NULLs and missing positions take 3 ms, by Arrow
13 ms. All others are gathered by Arrow.

`take_rows` gives whole rows. Each column is made contiguous, gathered and freed before the next one, so that the peak
is one column and not the whole table. A gather from one array after a copy costs the same as one from chunks (10
columns, 2 M rows in 5 chunks, 0.9 M out: 65 ms and 61 ms) and does not slow down with the number of chunks. Of small
tables Arrow gathers all columns in one call: 80 rows of six columns in two chunks take 0.11 ms, and 0.24 ms one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.value_bits import bitmap, fixed_width, from_fixed_width, has_fixed_width, valid_flags

PARALLEL_CELLS_MIN: Final = 200_000
"""Gathering fewer cells is faster than handing it to a thread."""
SMALL_CELLS: Final = 20_000
SMALL_BYTES: Final = 4 * 1024 * 1024
"""Of what is gathered, and of the buffers of the table, where one call gathers all columns."""


def gathered(column: pa.Array[Any], positions: Positions, *, may_miss: bool) -> pa.Array[Any]:
    """The values at the positions; only where `may_miss` may positions be -1."""
    missing = positions < 0 if may_miss else None
    if missing is not None and not missing.any():
        missing = None
    if not has_fixed_width(column.type) or not len(column):
        return column.take(_indices(positions, missing))
    valid = None if missing is None else ~missing
    if column.null_count:
        known = valid_flags(column).take(positions, mode="clip")
        valid = known if valid is None else known & valid
    return from_fixed_width(fixed_width(column).take(positions, axis=0, mode="clip"), column.type, valid)


def gathered_or_computed(
    column: pa.Array[Any], positions: Positions, computed: Positions, results: Sequence[Any]
) -> pa.Array[Any]:
    """The values at the positions (-1: NULL), where the results at the indices `computed` are these Python values."""
    if not len(computed):
        return gathered(column, positions, may_miss=True)
    positions = positions.copy()
    positions[computed] = len(column) + np.arange(len(computed))
    return gathered(pa.concat_arrays([column, pa.array(results, column.type)]), positions, may_miss=True)


def contiguous(column: pa.ChunkedArray[Any], more: pa.Array[Any] | None = None) -> pa.Array[Any]:
    """The column as one array, with `more` behind it; chunked still where its text is beyond 32-bit offsets."""
    chunks = column.chunks if more is None else [*column.chunks, more]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def take_rows(
    rows: pa.Table,
    positions: npt.NDArray[np.int64],
    columns: Sequence[str] | None = None,
    executor: Executor | None = None,
) -> pa.Table:
    """The rows at `positions`, in their order, with all columns or those named."""
    names = list(rows.column_names if columns is None else columns)
    if not names:
        return pa.table({})
    if len(positions) * len(names) < SMALL_CELLS and rows.get_total_buffer_size() <= SMALL_BYTES:
        wanted = rows if columns is None else rows.select(names)
        return wanted.combine_chunks().take(pa.array(positions)).replace_schema_metadata()
    indices = _checked_indices(positions, rows.num_rows)

    def gather(name: str) -> pa.Array[Any] | pa.ChunkedArray[Any]:
        return pc.take(contiguous(rows.column(name)), indices, boundscheck=False)

    schema = pa.schema([rows.schema.field(name) for name in names])
    return pa.Table.from_arrays(side_by_side(gather, names, len(positions), executor), schema=schema)


def take_from_batches(
    batches: Sequence[pa.RecordBatch], positions: npt.NDArray[np.int64], executor: Executor | None = None
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The rows at `positions` of all batches together, as they lie there, and the order to take them in.

    Each batch gives its own before they are joined: whole batches may hold more of a column than 32-bit offsets reach,
    and a column of all of them would be a copy of it. Gathered upwards, so that memory is read in one direction.
    """
    upwards = np.argsort(positions)
    ascending = positions[upwards]
    ends = np.cumsum([batch.num_rows for batch in batches])
    bounds = np.concatenate(([0], np.searchsorted(ascending, ends)))
    taken = [
        (batch, pa.array(ascending[low:high] - (end - batch.num_rows)))
        for batch, end, (low, high) in zip(batches, ends, pairwise(bounds), strict=True)
        if low < high
    ]

    def gather(column: int) -> pa.ChunkedArray[Any]:
        return pa.chunked_array([batch.column(column).take(rows) for batch, rows in taken])

    schema = batches[0].schema
    columns = side_by_side(gather, range(len(schema)), len(positions), executor)
    order = np.empty(len(positions), dtype=np.int64)
    order[upwards] = np.arange(len(positions))
    return pa.Table.from_arrays(columns, schema=schema), order


def joined_rows(first: pa.Table, second: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of both in the columns of the schema, which may say less of NULL than theirs; nothing is copied."""
    arrays = [
        pa.chunked_array([*first.column(field.name).chunks, *second.column(field.name).chunks], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def in_pieces(rows: pa.Table, pieces_max: int) -> list[pa.RecordBatch]:
    """The rows as batches, neighbours joined where there are more than so many."""
    batches: list[pa.RecordBatch] = rows.to_batches()
    if len(batches) <= pieces_max:
        return batches
    least = -(-rows.num_rows // pieces_max)
    del rows
    pieces: list[pa.RecordBatch] = []
    batches.reverse()
    while batches:
        group = [batches.pop()]
        count = group[0].num_rows
        while batches and count + batches[-1].num_rows <= least:
            group.append(batches.pop())
            count += group[-1].num_rows
        pieces += group if len(group) == 1 else pa.Table.from_batches(group).combine_chunks().to_batches()
    return pieces


def side_by_side(
    gather: Callable[[Any], Any], columns: Sequence[Any], row_count: int, executor: Executor | None
) -> list[Any]:
    """What `gather` makes of each of the columns, by threads where the cells are many."""
    if executor is None or row_count * len(columns) < PARALLEL_CELLS_MIN:
        return [gather(column) for column in columns]
    return list(executor.map(gather, columns))


def _checked_indices(positions: Positions, row_count: int) -> pa.Array[Any]:
    """The positions for gathers that need not check them again, column for column: a sixth of their time."""
    indices = positions.view(np.uint64)  # negative ones are above all others
    if len(indices) and int(indices.max()) >= row_count:
        raise IndexError(f"positions {positions.min()} to {positions.max()} are not all among {row_count} rows")
    return pa.array(indices.astype(np.uint32) if row_count < 1 << 32 else indices)


def _indices(positions: Positions, missing: Flags | None) -> pa.Array[Any]:
    buffers = [None if missing is None else bitmap(~missing), pa.py_buffer(np.ascontiguousarray(positions))]
    return pa.Array.from_buffers(pa.int64(), len(positions), buffers)


def limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """At most `limit` rows; nothing is read beyond them."""
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        batch = batch.slice(0, left)
        left -= batch.num_rows
        yield batch
