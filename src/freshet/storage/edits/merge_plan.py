"""What rows a merge writes: a `RowPlan` over the rows of a source and those of a keyed table.

| `on` | rows of the table are |
|---|---|
| the primary key, or more | looked up by the keys of the source, part by part |
| other columns, or with a clause of rows that the source lacks | scanned, part by part |

A key that two rows of the source have is refused where both would count: which one does would be chance. Rows are
looked up only where each row that is added has the key of its row of the source, so that what others change of that key
is found again. Of a table that is scanned, what others change meanwhile makes all be computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.edits.expression import Expression
from freshet.storage.edits.key_check import with_keys
from freshet.storage.edits.merge_clauses import Action, Clause, Side
from freshet.storage.edits.merge_join import MergeJoin, Numbers
from freshet.storage.edits.row_plan import rows_of_keys, with_kind
from freshet.storage.edits.row_rules import UpdateRules
from freshet.storage.edits.update_rows import as_updates, check_updated, constant
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform
from freshet.storage.model.data_type import with_nullable
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.table_scan import TableScan

PART_ROWS: Final = 100_000
"""Rows of the source that are looked up at a time."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Rules are those of the updates, by the number of their clause."""

    source: pa.Table
    on: tuple[str, ...]
    clauses: tuple[Clause, ...]
    rules: dict[int, UpdateRules]
    is_by_key: bool

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """By lookups, or by a scan."""
        if self.is_by_key:
            _refuse_two_of(store, self.source.select(list(self.on)))
            for start in range(0, self.source.num_rows, PART_ROWS):
                yield from self._by_key(store, snapshot, self.source.slice(start, PART_ROWS))
            return
        matched = np.zeros(self.source.num_rows, np.bool_)
        for batch in TableScan(store, snapshot=snapshot).to_batches() if snapshot is not None else ():
            yield from self._written(store, self.source, pa.Table.from_batches([batch]), matched)
        yield from self._inserted(store, snapshot, self.source.filter(pa.array(~matched)))

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """By lookups; only where the whole plan is."""
        part = with_keys(self.source, keys.select(list(store.schema.primary_keys)))
        return pa.concat_tables(list(self._by_key(store, snapshot, part)), promote_options="default")

    def _by_key(self, store: TableStore, snapshot: Snapshot | None, part: pa.Table) -> Iterator[pa.Table]:
        names = list(store.schema.primary_keys)
        has_key = np.ones(part.num_rows, np.bool_)
        for name in names:
            has_key &= part.column(name).is_valid().to_numpy()
        target = rows_of_keys(store, snapshot, part.filter(pa.array(has_key)).select(names))
        matched = np.zeros(part.num_rows, np.bool_)
        yield from self._written(store, part, target, matched)
        yield from self._inserted(store, snapshot, part.filter(pa.array(~matched)))

    def _written(
        self, store: TableStore, source: pa.Table, target: pa.Table, matched: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> Iterator[pa.Table]:
        """Updates and deletes of these rows of the table; notes which rows of the source have matched one."""
        if not target.num_rows:
            return
        with closing(MergeJoin(source, target)) as join:
            source_rows, target_rows = join.pairs(self.on)
            matched[source_rows] = True
            _refuse_two(store, source, source_rows, target_rows, self.on)
            yield from self._of_side(store, join, Side.MATCHED, target, source_rows, target_rows)
            unmatched = np.setdiff1d(np.arange(target.num_rows), target_rows)
            yield from self._of_side(store, join, Side.BY_SOURCE, target, None, unmatched)

    def _of_side(
        self,
        store: TableStore,
        join: MergeJoin,
        side: Side,
        target: pa.Table,
        source_rows: Numbers | None,
        target_rows: Numbers,
    ) -> Iterator[pa.Table]:
        numbered = [(number, each) for number, each in enumerate(self.clauses) if each.side is side]
        if not numbered or not len(target_rows):
            return
        chosen = join.chosen([each.condition for _, each in numbered], source_rows, target_rows)
        for index, (number, clause) in enumerate(numbered):
            is_meant = chosen == index
            if not is_meant.any():
                continue
            before = target.take(pa.array(target_rows[is_meant]))
            if clause.action is Action.DELETE:
                yield with_kind(before, RowKind.DELETE)
                continue
            rows = None if source_rows is None else source_rows[is_meant]
            new = self._with_values(store, join, clause, before, rows, target_rows[is_meant])
            check_updated(store, before, new, self.rules[number])
            yield as_updates(store, before, new, self.rules[number])

    def _inserted(self, store: TableStore, snapshot: Snapshot | None, source: pa.Table) -> Iterator[pa.Table]:
        """The rows that are added for rows of the source without a match."""
        clauses = [each for each in self.clauses if each.side is Side.NOT_MATCHED]
        schema = arrow_schema(store.schema)
        empty = with_kind(pa.schema([field.with_nullable(True) for field in schema]).empty_table(), RowKind.INSERT)
        yield empty
        if not clauses or not source.num_rows:
            return
        with closing(MergeJoin(source, schema.empty_table())) as join:
            everything = np.arange(source.num_rows)
            chosen = join.chosen([each.condition for each in clauses], everything, None)
            added = []
            for index, clause in enumerate(clauses):
                rows = everything[chosen == index]
                if len(rows):
                    blank = pa.table(
                        [pa.nulls(len(rows), field.type) for field in schema],
                        schema=pa.schema([field.with_nullable(True) for field in schema]),
                    )
                    added.append(self._with_values(store, join, clause, blank, rows, None))
        if added:
            new = pa.concat_tables(added)
            keys = new.select(list(store.schema.primary_keys))
            _refuse_two_of(store, keys)
            if not self.is_by_key or set(self.on) != set(store.schema.primary_keys):
                _refuse_stored(store, snapshot, keys)
            yield with_kind(new, RowKind.INSERT)

    def _with_values(
        self,
        store: TableStore,
        join: MergeJoin,
        clause: Clause,
        rows: pa.Table,
        source_rows: Numbers | None,
        target_rows: Numbers | None,
    ) -> pa.Table:
        """The rows with the values of a clause, in the types of the table but for NOT NULL."""
        schema, values = arrow_schema(store.schema), dict(clause.values or {})
        expressions = {name: each for name, each in values.items() if isinstance(each, Expression)}
        computed = join.computed(expressions, schema, source_rows, target_rows)
        if clause.values is None and source_rows is not None:
            for name in all_columns(store, self.source, clause.action):
                values[name] = None
                computed[name] = join.source.column(name).take(pa.array(source_rows))
        for name, value in values.items():
            column = computed[name] if name in computed else constant(store, name, value, rows.num_rows)
            fitting = fitting_column(store, name, column)
            rows = rows.set_column(rows.column_names.index(name), pa.field(name, fitting.type), fitting)
        return rows


def all_columns(store: TableStore, source: pa.Table, action: Action) -> list[str]:
    """The columns of the source that the table has, too; of an update none that would make another row of it."""
    fixed = {*store.schema.primary_keys, *store.schema.partition_keys} if action is Action.UPDATE else set()
    return [name for name in source.column_names if name in store.schema.by_name and name not in fixed]


def fitting_column(store: TableStore, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the type of the table, without loss; NULL is left to the writer."""
    field = store.schema.by_name[name]
    nullable = replace(field, type=with_nullable(field.type, True))
    return conform(pa.table({name: column}), [nullable], table=store.name).column(0)


def _refuse_two(
    store: TableStore, source: pa.Table, source_rows: Numbers, target_rows: Numbers, on: Sequence[str]
) -> None:
    """`target_rows` are in order: two rows of the source that match one row of the table lie side by side."""
    twice = np.flatnonzero(target_rows[1:] == target_rows[:-1])
    if len(twice):
        raise _twice(store, {name: source.column(name)[int(source_rows[twice[0]])].as_py() for name in on})


def _refuse_two_of(store: TableStore, keys: pa.Table) -> None:
    """Raises for a key that is there twice; NULL is none."""
    names = keys.column_names
    counted = keys.drop_null().group_by(names).aggregate([([], "count_all")])
    twice = np.flatnonzero(counted.column("count_all").to_numpy() > 1)
    if len(twice):
        raise _twice(store, {name: counted.column(name)[int(twice[0])].as_py() for name in names})


def _refuse_stored(store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> None:
    """A row that is added under a key that is there would replace the row of that key, which was not matched."""
    stored = rows_of_keys(store, snapshot, keys.drop_null())
    if stored.num_rows:
        key = {name: stored.column(name)[0].as_py() for name in keys.column_names}
        raise InvalidRequestError(
            f"merge into {store.name}: a row would be added under the key {key}, which the table has and nothing "
            "matched; match on the primary key",
            table=store.name,
        )


def _twice(store: TableStore, key: dict[str, Any]) -> InvalidRequestError:
    return InvalidRequestError(
        f"merge into {store.name}: the source has the key {key} more than once; leave one of its rows, else it is "
        "chance which one counts",
        table=store.name,
    )
