"""The rows of one task, gathered as they come and given back in input order, in portions and in bounded memory.

    arriving batches ──▶ memory, up to MEMORY_BYTES ──▶ then all of them in one Arrow file on scratch disk, mapped
    order columns alone are sorted ──▶ portions of about PORTION_BYTES, gathered from the batches they touch

A shuffle mixes whole runs, so a portion touches few batches. A task that fits into one portion, which every ordinary
micro-batch does, is one table and nothing is copied that is in order already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from freshet.pipeline.batch.input_order import Int64Array, input_order
from freshet.storage.io.env import Env
from freshet.storage.merge.take import take_rows

MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Rows held in memory while they arrive."""

PORTION_BYTES: Final = 64 * 1024 * 1024


class GatheredRows:
    """Rows of one task. Call `add` for each batch, then the others; `close` removes the scratch file."""

    def __init__(self, env: Env, *, memory_bytes: int = MEMORY_BYTES, portion_bytes: int = PORTION_BYTES) -> None:
        self._env = env
        self._memory_bytes = memory_bytes
        self._portion_bytes = portion_bytes
        self._batches: list[pa.RecordBatch] = []
        self._folder: str | None = None
        self._path = ""
        self._sink: Any = None
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

    def table(self) -> pa.Table:
        """All rows, in the order in which they came; mapped, not read, when they lie on disk. Ends the adding."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
            reader = ipc.open_file(pa.memory_map(self._path))
            self._batches = [reader.get_batch(place) for place in range(reader.num_record_batches)]
        return pa.Table.from_batches(self._batches)

    def portions(self, order_columns: Sequence[str]) -> Iterator[pa.Table]:
        """All rows in input order, given by these columns, the most significant first."""
        table = self.table()
        order = input_order([table.column(name) for name in order_columns])
        step = max(1, self._portion_bytes * self.row_count // max(1, self._size_bytes))
        if step >= self.row_count:
            yield table if order is None else take_rows(table, order)
            return
        for start in range(0, self.row_count, step):
            yield table.slice(start, step) if order is None else self._taken(order[start : start + step])

    def close(self) -> None:
        """Lets the rows go."""
        self._batches = []
        if self._sink is not None:
            self._sink.close()
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

    def _taken(self, positions: Int64Array) -> pa.Table:
        """These rows, from the batches they lie in and no others."""
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        starts = np.concatenate(([0], ends[:-1]))
        places = np.searchsorted(ends, positions, side="right")
        touched, ranks = np.unique(places, return_inverse=True)
        few = [self._batches[place] for place in touched.tolist()]
        few_starts = np.concatenate(([0], np.cumsum([batch.num_rows for batch in few])[:-1]))
        return take_rows(pa.Table.from_batches(few), few_starts[ranks] + (positions - starts[places]))
