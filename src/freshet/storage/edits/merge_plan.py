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

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.edits.key_check import with_keys
from freshet.storage.edits.merge_clauses import Action, Clause, Side
from freshet.storage.edits.merge_join import MergeJoin, Pairs
from freshet.storage.edits.merge_values import added_rows, refuse_two, twice_error, with_values
from freshet.storage.edits.row_parts import in_parts
from freshet.storage.edits.row_plan import rows_of_keys, with_kind
from freshet.storage.edits.row_rules import UpdateRules
from freshet.storage.edits.update_rows import as_updates, check_updated
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema
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
        with closing(MergeJoin(self.source, self.on, store.env)) as join:
            for rows in in_parts(TableScan(store, snapshot=snapshot).to_batches()) if snapshot is not None else ():
                yield from self._written(store, join, self.source, rows, matched)
            yield from self._inserted(store, join, snapshot, self.source.filter(pa.array(~matched)))

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
        with closing(MergeJoin(part, self.on, store.env)) as join:
            yield from self._written(store, join, part, target, matched)
            yield from self._inserted(store, join, snapshot, part.filter(pa.array(~matched)))

    def _written(
        self,
        store: TableStore,
        join: MergeJoin,
        source: pa.Table,
        target: pa.Table,
        matched: np.ndarray[Any, np.dtype[np.bool_]],
    ) -> Iterator[pa.Table]:
        """Updates and deletes of these rows of the table; notes which rows of the source have matched one."""
        if not target.num_rows:
            return
        source_rows, target_rows = join.pairs(target)
        matched[source_rows] = True
        refuse_two(store, source, source_rows, target_rows, self.on)
        pairs = Pairs(source.take(pa.array(source_rows)), target.take(pa.array(target_rows)))
        yield from self._of_side(store, join, Side.MATCHED, pairs)
        if any(each.side is Side.BY_SOURCE for each in self.clauses):
            is_unmatched = np.ones(target.num_rows, np.bool_)
            is_unmatched[target_rows] = False
            yield from self._of_side(store, join, Side.BY_SOURCE, Pairs(None, target.filter(pa.array(is_unmatched))))

    def _of_side(self, store: TableStore, join: MergeJoin, side: Side, pairs: Pairs) -> Iterator[pa.Table]:
        numbered = [(number, each) for number, each in enumerate(self.clauses) if each.side is side]
        if not numbered or not len(pairs):
            return
        chosen = join.chosen([each.condition for _, each in numbered], pairs)
        for index, (number, clause) in enumerate(numbered):
            is_meant = pa.array(chosen == index)
            given = Pairs(*(None if rows is None else rows.filter(is_meant) for rows in (pairs.source, pairs.target)))
            before = given.target
            assert before is not None, "both sides are of rows of the table"
            if not before.num_rows:
                continue
            if clause.action is Action.DELETE:
                yield with_kind(before, RowKind.DELETE)
                continue
            new = with_values(store, join, clause, before, given)
            check_updated(store, before, new, self.rules[number])
            yield as_updates(store, before, new, self.rules[number])

    def _inserted(
        self, store: TableStore, join: MergeJoin, snapshot: Snapshot | None, source: pa.Table
    ) -> Iterator[pa.Table]:
        """The rows that are added for rows of the source without a match."""
        schema = arrow_schema(store.schema)
        yield with_kind(pa.schema([field.with_nullable(True) for field in schema]).empty_table(), RowKind.INSERT)
        new = added_rows(store, join, self.clauses, source)
        if new is None:
            return
        keys = new.select(list(store.schema.primary_keys))
        _refuse_two_of(store, keys)
        if not self.is_by_key or set(self.on) != set(store.schema.primary_keys):
            _refuse_stored(store, snapshot, keys)
        yield with_kind(new, RowKind.INSERT)


def _refuse_two_of(store: TableStore, keys: pa.Table) -> None:
    """Raises for a key that is there twice; NULL is none."""
    names = keys.column_names
    counted = keys.drop_null().group_by(names).aggregate([([], "count_all")])
    twice = np.flatnonzero(counted.column("count_all").to_numpy() > 1)
    if len(twice):
        raise twice_error(store, {name: counted.column(name)[int(twice[0])].as_py() for name in names})


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
