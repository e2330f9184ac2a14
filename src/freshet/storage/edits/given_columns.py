"""Upserts of some columns: those that are given replace what is stored, the others stay, whatever the merge engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.storage.edits.key_check import check_once, with_keys
from freshet.storage.edits.row_plan import with_kind
from freshet.storage.edits.row_rules import UpdateRules
from freshet.storage.edits.update_rows import as_updates, check_updated
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import conform
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.column_defaults import ColumnDefaults
from freshet.storage.write.input_rows import input_tables

PART_ROWS: Final = 100_000
"""Keys that are looked up at a time."""


@dataclass(frozen=True, slots=True)
class GivenColumnsPlan:
    """A `RowPlan` of the rows given, which have the key and some columns."""

    given: pa.Table
    rules: UpdateRules

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """Part by part."""
        for start in range(0, self.given.num_rows, PART_ROWS):
            yield from self._written(store, snapshot, self.given.slice(start, PART_ROWS))

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """Those of the rows given that have one of the keys."""
        again = with_keys(self.given, keys.select(list(store.schema.primary_keys)))
        parts = list(self._written(store, snapshot, again))
        return pa.concat_tables(parts, promote_options="default")

    def _written(self, store: TableStore, snapshot: Snapshot | None, given: pa.Table) -> Iterator[pa.Table]:
        found = find_stored_rows(store, snapshot, given)
        is_there = pa.array(found.is_found)
        before = found.rows.take(pa.array(found.positions[found.is_found]))
        new = before
        known = given.filter(is_there)
        for name in given.column_names:
            new = new.set_column(new.column_names.index(name), new.schema.field(name), known.column(name))
        check_updated(store, before, new, self.rules)
        yield as_updates(store, before, new, self.rules)
        unknown = given.filter(pa.array(~found.is_found))
        defaults = ColumnDefaults(store.schema, takes_whole_rows=store.options.takes_whole_rows)
        is_new = np.ones(unknown.num_rows, np.bool_)
        for field in store.schema.fields:
            if field.name not in given.column_names:
                column = defaults.column(field, is_new)
                unknown = unknown.append_column(pa.field(field.name, column.type), column)
        yield with_kind(unknown.select(store.schema.column_names), RowKind.INSERT)


def given_rows(store: TableStore, data: object) -> pa.Table:
    """The rows in the types of the table; raises `InvalidRequestError` for a key that is missing or there twice, and
    for a row that lacks a column of the others: it is not to become NULL."""
    _refuse_uneven(store, data)
    schema, tables = store.schema, list(input_tables(data, store.schema.fields, table=store.name))
    names = tables[0].column_names
    for name in names:
        if name == ROW_KIND_COLUMN or name not in schema.by_name:
            raise InvalidRequestError(
                f"table {store.name} has no column {name!r} that could be given; its columns are "
                f"{', '.join(schema.column_names)}",
                table=store.name,
                column=name,
            )
    missing = [name for name in schema.primary_keys if name not in names]
    if missing:
        raise InvalidRequestError(
            f"the rows lack {missing[0]!r} of the primary key of {store.name}, by which rows are found",
            table=store.name,
            column=missing[0],
        )
    rows = conform(pa.concat_tables(tables), [schema.by_name[name] for name in names], table=store.name)
    check_once(store, rows)
    return rows


def _refuse_uneven(store: TableStore, data: object) -> None:
    rows = data if isinstance(data, Sequence) else ()
    names = {name: None for row in rows if isinstance(row, Mapping) for name in row}
    for number, row in enumerate(rows):
        lacked = next((name for name in names if isinstance(row, Mapping) and name not in row), None)
        if lacked is not None:
            raise InvalidRequestError(
                f"row {number} lacks column {lacked!r} of table {store.name}, which others of the rows have; upsert "
                "rows apart that have other columns",
                table=store.name,
                column=lacked,
            )
