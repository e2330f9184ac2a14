"""Deletes the rows of a keyed table that a filter chooses: rows of kind -D, of as many columns as the table needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from freshet.storage.edits.row_parts import in_parts
from freshet.storage.edits.row_plan import rows_of_keys, with_kind
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import ChangelogProducer
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.scan.table_scan import TableScan


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """A `RowPlan` of the rows for which a filter is true."""

    filter: Predicate

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """By a scan."""
        if snapshot is None:
            return
        scan = TableScan(store, columns=_columns(store), filter=self.filter, snapshot=snapshot)
        for rows in in_parts(scan.to_batches()):
            yield with_kind(rows, RowKind.DELETE)

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """By lookups."""
        rows = chosen(store, rows_of_keys(store, snapshot, keys), self.filter)
        return with_kind(rows.select(_columns(store)), RowKind.DELETE)


def chosen(store: TableStore, rows: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows for which the filter is true."""
    bound = ScanFilter.bind(store.schema, predicate)
    return rows if bound is None else rows.filter(bound.predicate.to_arrow())


def _columns(store: TableStore) -> list[str]:
    """What a -D must have: all columns where readers of changes get it as it is, else the key, the partition and what
    orders rows."""
    schema, options = store.schema, store.options
    if options.changelog_producer in (ChangelogProducer.INPUT, ChangelogProducer.NONE):
        return list(schema.column_names)
    needed = {*schema.primary_keys, *schema.partition_keys, *options.sequence_field}
    return [name for name in schema.column_names if name in needed]
