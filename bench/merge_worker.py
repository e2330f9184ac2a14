"""Times the merge alone: rows in memory, by the workload's engine and by deduplicate, in one thread.

| shape | rows | what is timed |
|---|---|---|
| flush | those of one commit, unsorted | `merge_table` |
| runs | five sorted runs, as flushes leave them, in batches as a reader has them | `merge_section` |

Both engines get the same rows, and both order them first. Seconds are of the processor, so that a loaded machine does
not change the ratio of the two. One command a line, as in `freshet_worker`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from bench.cells import paimon_type
from bench.freshet_worker import serve
from bench.workloads import WORKLOADS, Workload
from freshet.storage.catalog import Catalog
from freshet.storage.merge.chosen_row import Deduplicate
from freshet.storage.merge.engine import merge_function, row_order
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merge_reader import merge_section, merge_table
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN

_BATCH_ROWS: Final = 64 * 1024


class Worker:
    """State between commands: the rows, and both engines."""

    def __init__(self) -> None:
        self.order: RowOrder | None = None
        self.functions: dict[str, MergeFunction] = {}
        self.columns: tuple[str, ...] = ()
        self.unsorted = pa.table({})
        self.runs: list[list[pa.RecordBatch]] = []

    def make(self, name: str, rows: str, key_space: str) -> dict[str, object]:
        """Makes the rows of a workload, unsorted and as runs."""
        workload = WORKLOADS[name].sized(int(rows), int(key_space))
        self.columns = tuple(workload.columns)
        self.order, function = _engine(workload)
        self.functions = {"engine": function, "deduplicate": Deduplicate()}
        commits = [_with_system_columns(workload, number) for number in range(workload.commits)]
        self.unsorted = commits[0]
        flushed = [merge_table(commit, self.order, function) for commit in commits]
        self.runs = [run.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS) for run in flushed]
        return {"flush": commits[0].num_rows, "runs": sum(run.num_rows for run in flushed)}

    def merge(self, shape: str, engine: str) -> dict[str, object]:
        """Merges the rows once."""
        function = self.functions[engine]
        started = time.process_time()
        count = self._flush(function) if shape == "flush" else self._read(function)
        return {"seconds": time.process_time() - started, "rows": count}

    def _flush(self, function: MergeFunction) -> int:
        assert self.order is not None
        return merge_table(self.unsorted, self.order, function).num_rows

    def _read(self, function: MergeFunction) -> int:
        assert self.order is not None
        merged = merge_section(self.runs, self.order, function, drop_delete=True, columns=self.columns)
        return sum(batch.num_rows for batch in merged)


def _engine(workload: Workload) -> tuple[RowOrder, MergeFunction]:
    with tempfile.TemporaryDirectory() as folder:
        table = Catalog(folder).create_table(
            "bench.merge",
            schema={name: paimon_type(kind) for name, kind in workload.columns.items()},
            primary_keys=[workload.key],
            options={"bucket": "1", **workload.options},
        )
        schema, options = table.store.schema, table.store.options
    return row_order(schema, options), merge_function(schema, options)


def _with_system_columns(workload: Workload, number: int) -> pa.Table:
    rows = workload.table(number)
    numbers = workload.commit_rows(number)
    columns: Sequence[pa.ChunkedArray] = rows.columns
    return pa.table(
        [
            pa.array(np.arange(numbers.start, numbers.stop)),
            pa.array(np.full(len(numbers), RowKind.INSERT, np.int8)),
            *columns,
        ],
        names=[SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, *rows.column_names],
    )


if __name__ == "__main__":
    serve(Worker())
