"""The rows of one task, gathered as they come and given back in input order, in slices and in bounded memory.

    arriving batches ──▶ memory, up to MEMORY_BYTES ──▶ then all of them in one Arrow file on scratch disk, mapped
    sorted runs      ──▶ put in order as wholes: nothing is copied, slices of about SLICE_BYTES
    runs that overlap ─▶ order columns alone are sorted; slices are gathered from the batches they touch
    few rows          ─▶ one table, sorted
    a slice is cut by rows of the average size, and by bytes where some are much larger

A shuffle mixes whole runs, each of them sorted: those of Kafka partitions and of files never overlap. What has been
mapped and handed out is let go page by page, so a task of any size holds about a slice.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from freshet.pipeline.query.wire.input_order import Int64Array, OrderedRun, input_order, runs_in_order
from freshet.storage.io.env import Env
from freshet.storage.merge.gather import take_from_batches, take_rows

MEMORY_BYTES: Final = 96 * 1024 * 1024
"""Rows held in memory while they arrive."""

SLICE_BYTES: Final = 32 * 1024 * 1024

SMALL_BYTES: Final = 1024 * 1024
"""So much is put in order as one table: 80 rows in three batches, their runs overlap, 0.9 ms, and 4.3 ms by runs."""


class GatheredRows:
    """Rows of one task. Call `add` for each batch, then `slices`; `close` removes the scratch file."""

    def __init__(self, env: Env, *, memory_bytes: int = MEMORY_BYTES, slice_bytes: int = SLICE_BYTES) -> None:
        self._env = env
        self._memory_bytes = memory_bytes
        self._slice_bytes = slice_bytes
        self._batches: list[pa.RecordBatch] = []
        self._folder: str | None = None
        self._path = ""
        self._sink: Any = None
        self._mapped: mmap.mmap | None = None
        self._size_bytes = 0
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows; empty batches are left out."""
        if not batch.num_rows:
            return
        self.row_count += batch.num_rows
        self._size_bytes += batch.nbytes
        if self._sink is not None:
            self._sink.write_batch(batch)
            return
        self._batches.append(batch)
        if self._size_bytes > self._memory_bytes:
            self._move_to_disk()

    def batches(self) -> Sequence[pa.RecordBatch]:
        """All rows, in the order in which they came; mapped, not read, when they lie on disk. Ends the adding."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
            with open(self._path, "rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            reader = ipc.open_file(pa.py_buffer(self._mapped))
            self._batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        return self._batches

    def slices(self, order_columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows in input order, given by these columns, the most significant first."""
        batches = self.batches()
        if not batches:
            return
        if self._size_bytes <= min(SMALL_BYTES, self._slice_bytes) and self._mapped is None:
            rows = pa.Table.from_batches(batches)
            order = input_order([rows.column(name) for name in order_columns])
            yield rows if order is None else take_rows(rows, order)
            return
        runs = runs_in_order(batches, order_columns, let_go=self._let_go)
        for rows in self._sorted(order_columns) if runs is None else self._joined(runs):
            yield rows
            self._let_go()

    def close(self) -> None:
        """Lets the rows go."""
        self._batches = []
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._mapped = None
        if self._folder is not None:
            self._env.release_scratch(self._folder)
            self._folder = None

    def _move_to_disk(self) -> None:
        self._folder = self._env.scratch_folder()
        self._path = f"{self._folder}/gathered.arrow"
        self._sink = ipc.new_file(self._path, self._batches[0].schema)
        for batch in self._batches:
            self._sink.write_batch(batch)
        self._batches = []

    def _joined(self, runs: Sequence[OrderedRun]) -> Iterator[pa.Table]:
        """Runs that follow one another, cut where a slice is full."""
        row_bytes = max(1, self._size_bytes // max(1, self.row_count))
        step = max(1, self._slice_bytes // row_bytes)
        parts: list[pa.RecordBatch] = []
        count = size_bytes = 0
        for run in runs:
            for start in range(run.start, run.stop, step):
                stop = min(run.stop, start + step)
                for part in self._pieces(self._batches[run.batch].slice(start, stop - start)):
                    is_full = count + part.num_rows > step or size_bytes + part.nbytes > 2 * self._slice_bytes
                    if parts and is_full:
                        yield pa.Table.from_batches(parts)
                        parts, count, size_bytes = [], 0, 0
                    parts.append(part)
                    count += part.num_rows
                    size_bytes += part.nbytes
        yield pa.Table.from_batches(parts)

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows as they are, or halved where some of them are much larger than the average."""
        if rows.num_rows == 1 or rows.nbytes <= 2 * self._slice_bytes:
            yield rows
            return
        half = rows.num_rows // 2
        yield from self._pieces(rows.slice(0, half))
        yield from self._pieces(rows.slice(half))

    def _sorted(self, order_columns: Sequence[str]) -> Iterator[pa.Table]:
        table = pa.Table.from_batches(self._batches)
        order = input_order([table.column(name) for name in order_columns])
        step = max(1, self._slice_bytes * self.row_count // max(1, self._size_bytes))
        ends = _ends_of_texts(self._batches, order)
        start = 0
        while start < self.row_count:
            used = ends[start - 1] if start else 0
            fitting = int(np.searchsorted(ends, used + 2 * self._slice_bytes, side="right"))
            stop = max(start + 1, min(start + step, fitting, self.row_count))
            if order is None:
                yield table.slice(start, stop - start)
            else:
                yield take_rows(*take_from_batches(self._batches, order[start:stop]))
            start = stop

    def _let_go(self) -> None:
        """Pages that were read count as memory of the process until they are given back; the page cache keeps them."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _ends_of_texts(batches: Sequence[pa.RecordBatch], order: Int64Array | None) -> Int64Array:
    """Bytes of texts and binaries up to and with each row, in this order: what makes some rows larger than others."""
    lengths = []
    for batch in batches:
        sizes = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
                of_column: Any = pc.fill_null(pc.binary_length(column), 0)
                sizes += of_column.to_numpy(zero_copy_only=False)
        lengths.append(sizes)
    whole = np.concatenate(lengths)
    return np.cumsum(whole if order is None else whole[order])
