"""What a merge does to the rows of a table without a primary key: a `FilePlan` over the rows of a source.

Rows of the table may repeat, and several may match one row of the source; two rows of the source that match one row of
the table are refused. The source is held in memory, of the table the columns of a part at a time. Files without a value
between the smallest and the largest of the source are not read, unless a clause is about rows that the source lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.commit.round_change import RoundCheck
from freshet.storage.edits.arrivals import Arrivals
from freshet.storage.edits.expression import Expression
from freshet.storage.edits.file_plan import Choice, Flags, Numbers, together
from freshet.storage.edits.merge_clauses import Action, Clause, Side
from freshet.storage.edits.merge_join import NO_CLAUSE, MergeJoin, Pairs, target_columns
from freshet.storage.edits.merge_values import added_rows, refuse_two, with_values
from freshet.storage.filters.predicate import Comparison, IsIn, Predicate, conjunction
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.pruning import ScanFilter

VALUES_MAX: Final = 100
"""Values of a partition key up to which they are listed for pruning; of more the range counts."""


class FileMergePlan:
    """One merge; `close` it whatever happens."""

    def __init__(self, store: TableStore, source: pa.Table, on: Sequence[str], clauses: Sequence[Clause]) -> None:
        self._store = store
        self._source = source
        self._on = list(on)
        self._clauses = list(clauses)
        self._join = MergeJoin(source, on, store.env)
        self._matched = np.zeros(source.num_rows, np.bool_)
        self._needs_all = any(each.side is Side.BY_SOURCE for each in clauses)
        self.filter = None if self._needs_all else ScanFilter.bind(store.schema, _bounds(store, source, on))
        conditions = [each.condition for each in clauses if each.side is not Side.NOT_MATCHED]
        named = target_columns([each for each in conditions if each is not None], store.schema.column_names)
        self.columns = list(dict.fromkeys([*on, *named]))

    def close(self) -> None:
        """Ends the join."""
        self._join.close()

    def begin(self) -> None:
        """No row of the source has matched."""
        self._matched[:] = False

    def choose(self, rows: pa.Table) -> Choice:
        """By the first clause that fits; notes which rows of the source have matched."""
        source_rows, target_rows = self._join.pairs(rows)
        refuse_two(self._store, self._source, source_rows, target_rows, self._on)
        self._matched[source_rows] = True
        chosen = self._chosen(Side.MATCHED, rows, target_rows, source_rows)
        if not self._needs_all:
            return chosen
        is_unmatched = np.ones(rows.num_rows, np.bool_)
        is_unmatched[target_rows] = False
        others = self._chosen(Side.BY_SOURCE, rows, np.flatnonzero(is_unmatched), None)
        both = together([chosen, others])
        return both.of(np.argsort(both.positions, kind="stable"))

    def deletes(self, clauses: Numbers) -> Flags:
        """By the action of each clause."""
        deleting = np.array([each.action is Action.DELETE for each in self._clauses], np.bool_)
        return deleting[clauses]

    def updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        """By the clause of each row."""
        fields, parts, places = self._store.schema.fields, [], []
        for number in np.unique(choice.clauses):
            where = np.flatnonzero(choice.clauses == number)
            clause, before = self._clauses[number], rows.take(pa.array(where))
            given = None
            if clause.side is Side.MATCHED:
                given = self._source.take(pa.array(choice.source_rows[where]))
            new = with_values(self._store, self._join, clause, before, Pairs(given, before))
            parts.append(conform(new, fields, table=self._store.name))
            places.append(where)
        made = pa.concat_tables([arrow_schema(self._store.schema).empty_table(), *parts])
        return made.take(pa.array(np.argsort(np.concatenate([np.empty(0, np.int64), *places]))))

    def added(self) -> Iterator[pa.Table]:
        """For rows of the source that have matched none."""
        new = added_rows(self._store, self._join, self._clauses, self._source.filter(pa.array(~self._matched)))
        if new is not None:
            yield conform(new, self._store.schema.fields, table=self._store.name)

    def check(self, upon: Snapshot | None) -> RoundCheck | None:
        """A row that others add meanwhile and that matches one of the source: who adds it too would have it twice."""
        if self._matched.all() or not any(each.side is Side.NOT_MATCHED for each in self._clauses):
            return None

        def concern(rows: pa.Table) -> bool:
            source_rows, _ = self._join.pairs(rows)
            return not bool(self._matched[source_rows].all())

        predicate = None if self.filter is None else self.filter.predicate
        return Arrivals(self._store, upon, self._on, concern, predicate)

    def _chosen(self, side: Side, rows: pa.Table, target_rows: Numbers, source_rows: Numbers | None) -> Choice:
        numbered = [(number, each) for number, each in enumerate(self._clauses) if each.side is side]
        conditions = [each.condition for _, each in numbered]
        needed = [] if not conditions or conditions[0] is None else [each for each in conditions if each is not None]
        chosen = self._join.chosen(conditions, self._pairs(needed, rows, target_rows, source_rows))
        is_meant = chosen != NO_CLAUSE
        numbers = np.array([number for number, _ in numbered], np.int64)
        given = np.full(len(target_rows), -1, np.int64) if source_rows is None else source_rows
        return Choice(target_rows[is_meant], numbers[chosen[is_meant]], given[is_meant])

    def _pairs(
        self, conditions: Sequence[Expression], rows: pa.Table, target_rows: Numbers, source_rows: Numbers | None
    ) -> Pairs:
        """What conditions look at; without any no column is taken."""
        target = rows.select(self.columns if conditions else self._on[:1]).take(pa.array(target_rows))
        source = None
        if source_rows is not None and conditions:
            source = self._source.take(pa.array(source_rows))
        return Pairs(source, target)


def _bounds(store: TableStore, source: pa.Table, on: Sequence[str]) -> Predicate | None:
    """A filter that is true for every row that one of the source can match."""
    parts: list[Predicate] = []
    for name in on:
        column = source.column(name).drop_null()
        if not len(column):
            return IsIn(name, ())
        kind = column.type
        if not (
            pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind)
        ):
            continue
        if name in store.schema.partition_keys:
            distinct = pc.unique(column)
            if len(distinct) <= VALUES_MAX:
                parts.append(IsIn(name, tuple(distinct.to_pylist())))
                continue
        ends: dict[str, Any] = pc.min_max(column).as_py()
        parts += [Comparison(name, ">=", ends["min"]), Comparison(name, "<=", ends["max"])]
    return conjunction(parts)
