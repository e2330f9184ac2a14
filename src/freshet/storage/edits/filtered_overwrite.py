"""Overwrites by a filter: rows in the place of those for which it is true, in one commit. Each row must satisfy it.

| table | filter | what is committed |
|---|---|---|
| any whose rows stay in their partition | on partition keys alone | an OVERWRITE of these partitions (`overwrite`) |
| without a primary key | any | an OVERWRITE: rows that go by position, as a delete's, and the new files |
| with a primary key | any | -D of rows that go, +U and +I of the new ones, as a delete and an upsert |

The third is no OVERWRITE: rows of a keyed table lie among others of their bucket, and to write a bucket again would
cost as much as the bucket has, would fail whenever a stream commits to it, and would tell no changelog. So the merge
engine has to take it (`row_rules`). A row of the table that the filter does not choose is never replaced: a new row
under its key is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.edits.append_edit import added_files, edit_files
from freshet.storage.edits.delete_rows import DeletePlan
from freshet.storage.edits.edit_result import EditResult
from freshet.storage.edits.filter_plans import FilterPlan, passing
from freshet.storage.edits.given_columns import PART_ROWS
from freshet.storage.edits.key_check import check_once, with_keys, without_keys
from freshet.storage.edits.keyed_edit import edit_rows
from freshet.storage.edits.overwrite import replaced, written_upon_nothing
from freshet.storage.edits.row_plan import with_kind
from freshet.storage.edits.row_rules import UpdateRules, check_deletes, update_rules
from freshet.storage.edits.update_rows import as_updates, check_updated
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import partition_constants
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.lookup.stored_rows import find_stored_rows
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.write.writer_factory import record_rules


def overwrite_filtered(store: TableStore, data: object, predicate: Predicate, *, dry_run: bool = False) -> EditResult:
    """Replaces the rows for which the filter is true.

    Raises `InvalidRequestError` for the first row for which it is not, before anything is committed.
    """
    bound = ScanFilter(store.schema, predicate.bind(arrow_schema(store.schema)))
    rows = fitting_rows(store, data, bound, predicate)
    if bound.is_on_partitions_only and store.schema.partition_keys and not store.moves_rows:
        return replaced(store, _PartitionTest(store, bound), written_upon_nothing(store, rows), dry_run=dry_run)
    if not store.schema.has_primary_key:
        return _by_position(store, rows, bound, dry_run)
    given = pa.concat_tables([arrow_schema(store.schema).empty_table(), *rows])
    check_once(store, given)
    check_deletes(store)
    others = [name for name in store.schema.column_names if name not in store.schema.primary_keys]
    return edit_rows(store, _ReplacePlan(given, bound, update_rules(store, others)), dry_run=dry_run)


def fitting_rows(store: TableStore, data: object, bound: ScanFilter, predicate: Predicate) -> Iterator[pa.Table]:
    """The rows in the columns and types of the table, once the filter is true for each of a part."""
    rules, number = record_rules(store), 0
    for part in rules.input_tables(data):
        accepted = rules.accept(part)
        if accepted.kinds is not None:
            raise InvalidRequestError(
                f"the rows for {store.name} have kinds that take rows away; leave _ROW_KIND out of an overwrite",
                table=store.name,
            )
        rows = accepted.rows
        is_fitting = np.zeros(rows.num_rows, np.bool_)
        is_fitting[passing(rows, bound)] = True
        if not is_fitting.all():
            first = int(np.flatnonzero(~is_fitting)[0])
            names = sorted(bound.predicate.columns())
            shown = {name: rows.column(name)[first].as_py() for name in names}
            raise InvalidRequestError(
                f"row {number + first} of the rows for {store.name} has {shown}, for which the filter is not true: it "
                "would not be replaced the next time. Leave it out, or append it; nothing was committed",
                table=store.name,
                column=names[0] if names else None,
            )
        number += rows.num_rows
        yield rows


def _by_position(store: TableStore, rows: Iterator[pa.Table], bound: ScanFilter, dry_run: bool) -> EditResult:
    count, messages = 0, list[CommitMessage]()
    writer = added_files(store, store.snapshots.latest())
    with undone_on_failure(writer.abort):
        for part in rows:
            count += writer.write(part)
        if not dry_run:
            messages = writer.prepare_commit()
    writer.close()
    result = edit_files(store, FilterPlan(store, bound, replaces=True), dry_run=dry_run, given=messages)
    return replace(result, rows_updated=None, rows_inserted=count)


class _PartitionTest:
    """Whether the filter is true for the rows of a partition."""

    def __init__(self, store: TableStore, bound: ScanFilter) -> None:
        self._store = store
        self._filter = bound
        self._answers: dict[bytes, bool] = {}

    def __call__(self, partition: bytes) -> bool:
        if partition not in self._answers:
            values = partition_constants(self._store, partition)
            row = pa.table({name: pa.array([value.as_py()], value.type) for name, value in values.items()})
            self._answers[partition] = bool(len(passing(row, self._filter)))
        return self._answers[partition]


@dataclass(frozen=True, slots=True)
class _ReplacePlan:
    """A `RowPlan` of a keyed table; `given` has each key once."""

    given: pa.Table
    filter: ScanFilter
    rules: UpdateRules

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """The new rows by lookups, part by part, and what goes by a scan."""
        for start in range(0, self.given.num_rows, PART_ROWS):
            yield from self._written(store, snapshot, self.given.slice(start, PART_ROWS))
        keys = self._keys(store)
        for rows in DeletePlan(self.filter.predicate).of_table(store, snapshot):
            yield without_keys(rows, keys)

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """By lookups."""
        gone = DeletePlan(self.filter.predicate).of_keys(store, snapshot, keys)
        parts = [without_keys(gone, self._keys(store)), *self._written(store, snapshot, with_keys(self.given, keys))]
        return pa.concat_tables(parts, promote_options="default")

    def _keys(self, store: TableStore) -> pa.Table:
        return self.given.select(list(store.schema.primary_keys))

    def _written(self, store: TableStore, snapshot: Snapshot | None, given: pa.Table) -> Iterator[pa.Table]:
        found = find_stored_rows(store, snapshot, given)
        before = found.rows.take(pa.array(found.positions[found.is_found]))
        self._refuse_others(store, before)
        new = given.filter(pa.array(found.is_found))
        check_updated(store, before, new, self.rules)
        yield as_updates(store, before, new, self.rules)
        yield with_kind(given.filter(pa.array(~found.is_found)), RowKind.INSERT)

    def _refuse_others(self, store: TableStore, before: pa.Table) -> None:
        is_chosen = np.zeros(before.num_rows, np.bool_)
        is_chosen[passing(before, self.filter)] = True
        if is_chosen.all():
            return
        first = int(np.flatnonzero(~is_chosen)[0])
        key: dict[str, Any] = {name: before.column(name)[first].as_py() for name in store.schema.primary_keys}
        raise InvalidRequestError(
            f"the rows for {store.name} have the key {key}, and the filter is not true for the row that the table has "
            "of it: that row would be replaced too. Leave the key out, or upsert it; nothing was committed",
            table=store.name,
        )
