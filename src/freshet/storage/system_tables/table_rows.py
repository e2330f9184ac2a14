"""System tables of rows.

`$audit_log`: the rows of a snapshot with the kinds that they are stored with, in a column `rowkind` before them.

Of a keyed table each key comes once, merged, and deletes that no compaction has removed yet come too, as -D; a row is
+U where the row that it was merged from is stored so. In an append table every row is +I. With the option
`table-read.sequence-number.enabled` the number of each row follows the kind.

`$ro`: rows that need no merging. Of a keyed table those of the highest level alone, as the last full compaction of
each bucket has left them; of an append table all.

Source: MERGING.md §6.3, §6.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.file_columns import SEQUENCE_NUMBER_FIELD
from freshet.storage.filters.predicate import Predicate, conjunction
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.split import Split
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.core import CoreOptions
from freshet.storage.scan.planner import plan_scan
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.split_reader import SplitReader
from freshet.storage.system_tables.definition import SystemTableDefinition

KIND_COLUMN: Final = "rowkind"
SEQUENCE_OPTION: Final = CoreOptions.audit_log_sequence_number.key

_KIND_TEXTS: Final = np.array([kind.text for kind in sorted(RowKind)])
"""By the code of the kind."""


class AuditLogRows(Frozen, dict=True):
    """Rows of one snapshot, with their kinds."""

    store: TableStore
    snapshot: Snapshot | None

    @cached_property
    def fields(self) -> tuple[DataField, ...]:
        """The kind, on request the number, and the columns of the table."""
        kind = DataField(0, KIND_COLUMN, parse_sql_type("STRING"))
        return (kind, *((SEQUENCE_NUMBER_FIELD,) if self._has_numbers else ()), *self.store.schema.fields)

    @property
    def _has_numbers(self) -> bool:
        is_asked = self.store.options.audit_log_sequence_number
        if is_asked and not self.store.schema.has_primary_key:
            raise InvalidRequestError(
                f"table {self.store.name} has {SEQUENCE_OPTION}=true, and no numbers of rows: it has no primary key",
                option=SEQUENCE_OPTION,
                table=self.store.name,
            )
        return is_asked

    def plan(self, predicate: Predicate | None) -> Sequence[Split]:
        """Splits as a scan has them."""
        return plan_scan(self.store, self.snapshot, self._on_table(predicate))

    def batches(
        self, part: Split, columns: tuple[str, ...], predicate: Predicate | None, executor: Executor | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a split."""
        names = self.store.schema.column_names
        wanted = tuple(name for name in columns if name in names)
        reader = SplitReader(self.store, wanted or (names[0],), self._on_table(predicate))
        if self.store.schema.has_primary_key:
            reader = replace(reader, system_columns=(VALUE_KIND_COLUMN, SEQUENCE_NUMBER_COLUMN))
        for batch in reader.read(part, executor):
            yield _named(batch, columns)

    def _on_table(self, predicate: Predicate | None) -> ScanFilter | None:
        """The conjuncts that look at columns of the table alone."""
        parts = () if predicate is None else predicate.conjuncts()
        of_table = set(self.store.schema.column_names)
        return ScanFilter.bind(self.store.schema, conjunction(part for part in parts if part.columns() <= of_table))


def _named(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    def column(name: str) -> pa.Array[Any]:
        if name != KIND_COLUMN:
            return batch.column(name)
        if VALUE_KIND_COLUMN not in batch.schema.names:
            return pa.array(np.repeat(_KIND_TEXTS[RowKind.INSERT], batch.num_rows), pa.string())
        return pa.array(_KIND_TEXTS[batch.column(VALUE_KIND_COLUMN).to_numpy()], pa.string())

    return pa.RecordBatch.from_arrays([column(name) for name in columns], names=list(columns))


AUDIT_LOG: Final = SystemTableDefinition(
    "audit_log", "its rows with their kinds, deletes that are still stored among them", AuditLogRows, travels=True
)


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
