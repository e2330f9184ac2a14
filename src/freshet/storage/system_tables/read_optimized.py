"""`$ro`: rows that need no merging. Of a keyed table those of the highest level alone, as the last full compaction of
each bucket has left them; of an append table all.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataField
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import SplitReader
from freshet.storage.system_tables.definition import SystemTableDefinition


class ReadOptimizedRows(Frozen):
    """Rows of one snapshot."""

    store: TableStore
    snapshot: Snapshot | None

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The fields of the table."""
        return self.store.schema.fields

    def plan(self, predicate: Predicate | None) -> Sequence[Split]:
        """Splits of files of the highest level, which is one run in each bucket."""
        scan_filter = ScanFilter.bind(self.store.schema, predicate)
        if not self.store.schema.has_primary_key:
            return plan_scan(self.store, self.snapshot, scan_filter)
        highest = self.store.options.num_levels - 1
        return plan_scan(self.store, self.snapshot, scan_filter, keeps_level=lambda level: level == highest)

    def batches(
        self, part: Split, columns: tuple[str, ...], predicate: Predicate | None, executor: Executor | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a split."""
        reader = SplitReader(self.store, columns, ScanFilter.bind(self.store.schema, predicate))
        yield from reader.read(part, executor)


READ_OPTIMIZED: Final = SystemTableDefinition(
    "ro", "its rows without merging: of a keyed table those of the highest level", ReadOptimizedRows, travels=True
)
