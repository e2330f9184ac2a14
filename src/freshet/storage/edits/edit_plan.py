"""The one plan of an edit of rows: which rows of a table are deleted, updated and added, by clauses.

| edit | filter | source | clauses |
|---|---|---|---|
| delete, update | of the rows that are meant | none | rows that no source matches, which are all of them |
| merge | none | its rows | those that people give |
| upsert of some columns | none | the rows given, by key | matched: update; not matched: insert |
| overwrite by a filter | of the rows that go | the same; none without a primary key | besides: delete the rest |

A `RowEdit` is a value and knows no snapshot; an `EditPlan` is what one attempt makes of it (`row_edits`). The rows of a
table with a primary key are found by scans and lookups (`rows_by_key`), others by their positions in files
(`rows_by_position`). A source is held in memory, of the table the columns of a part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.edits.clauses import Action, Clause, Side, Taken
from freshet.storage.edits.expression import Expression, Pairs, RowJoin, evaluate, target_columns
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import Comparison, IsIn, Predicate, conjunction
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform, is_lossless_pair
from freshet.storage.scan.pruning import ScanFilter
from freshet.storage.write.input_rows import ColumnDefaults

Numbers = npt.NDArray[np.int64]

VALUES_MAX: Final = 100
"""Values of a partition key up to which they are listed for pruning; of more the range counts."""
PART_ROWS: Final = 1_000_000
PART_BYTES: Final = 32 * 1024 * 1024
NO_CLAUSE: Final = -1
ROW: Final = "\0row"
"""No name of a column."""


class RowEdit(Frozen):
    """An edit of rows. Clauses that are about rows of the table are tried for those alone for which the filter is true.

    `is_by_key`: each row of the source has a key of its own, on which it is matched. `replaces`: rows that others add
    before the commit, and for which the filter is true, go too.
    """

    clauses: tuple[Clause, ...]
    filter: ScanFilter | None = None
    source: pa.Table | None = None
    on: tuple[str, ...] = ()
    is_by_key: bool = False
    replaces: bool = False

    def has(self, side: Side) -> bool:
        """Whether one of the clauses is about these rows."""
        return any(each.side is side for each in self.clauses)

    def keeps_keys(self, keys: Sequence[str]) -> bool:
        """Whether all that becomes of rows with a key follows from the rows that table and source have of it."""
        inserts = [each.values or {} for each in self.clauses if each.side is Side.NOT_MATCHED]
        return self.source is None or (
            set(keys) <= set(self.on) and all(_is_key(values.get(key), key) for values in inserts for key in keys)
        )


def _is_key(value: object, name: str) -> bool:
    if isinstance(value, Expression):
        return value.text.replace("`", "").lower() == f"source.{name}".lower()
    return value is Taken.FROM_SOURCE


class Choice(Frozen):
    """Rows that change: their positions, ascending; of each its clause, by number, and its row of the source or -1."""

    positions: Numbers
    clauses: Numbers
    source_rows: Numbers

    def __len__(self) -> int:
        return len(self.positions)

    def of(self, rows: slice | npt.NDArray[Any]) -> Choice:
        """Some of them, by their number or by flags."""
        return Choice(self.positions[rows], self.clauses[rows], self.source_rows[rows])

    def placed(self, positions: Numbers) -> Choice:
        """The same with other positions."""
        return Choice(positions, self.clauses, self.source_rows)


def together(choices: Sequence[Choice]) -> Choice:
    """Choices of parts of a file, in its order."""
    return Choice(
        np.concatenate([np.empty(0, np.int64), *(each.positions for each in choices)]),
        np.concatenate([np.empty(0, np.int64), *(each.clauses for each in choices)]),
        np.concatenate([np.empty(0, np.int64), *(each.source_rows for each in choices)]),
    )


class EditPlan:
    """The edit as one attempt makes it: it sees each row of the table that may change once; `close` it at the end."""

    def __init__(self, store: TableStore, edit: RowEdit) -> None:
        self.edit = edit
        self._store = store
        self._source = pa.table({}) if edit.source is None else edit.source
        self._join = RowJoin(self._source, edit.on, store.env, is_by_key=edit.is_by_key)
        self._matched = np.zeros(self._source.num_rows, np.bool_)
        is_bounded = edit.filter is None and edit.source is not None and not edit.has(Side.BY_SOURCE)
        bounds = _bounds(store, self._source, edit.on) if is_bounded else None
        self.filter = edit.filter if bounds is None else ScanFilter.bind(store.schema, bounds)
        """True for every row that may be chosen; None for all."""
        conditions = [each.condition for each in edit.clauses if each.side is not Side.NOT_MATCHED]
        named = target_columns([each for each in conditions if each is not None], store.schema.column_names)
        filtered = sorted(edit.filter.predicate.columns()) if edit.filter is not None else []
        self.columns = list(dict.fromkeys([*edit.on, *filtered, *named]))
        """The columns by which rows are chosen."""
        self._deletes = np.array([each.action is Action.DELETE for each in edit.clauses], np.bool_)

    def close(self) -> None:
        """Ends the join."""
        self._join.close()

    def choose(self, rows: pa.Table) -> Choice:
        """The rows that change, by the first clause that fits; notes which rows of the source have matched."""
        if self.edit.filter is None:
            return self._chosen(rows)
        passed = passing(rows, self.edit.filter)
        choice = self._chosen(rows if len(passed) == rows.num_rows else rows.take(pa.array(passed)))
        return choice.placed(passed[choice.positions])

    def deletes(self, choice: Choice) -> npt.NDArray[np.bool_]:
        """Whether each of the rows chosen goes; the others get new values."""
        return self._deletes[choice.clauses]

    def updated(self, rows: pa.Table, choice: Choice) -> pa.Table:
        """The rows chosen, of all columns and as they are, with the new values that their clauses give."""
        parts, places = [], []
        for number in np.unique(choice.clauses):
            where = np.flatnonzero(choice.clauses == number)
            clause, before = self.edit.clauses[number], rows.take(pa.array(where))
            given = self._source.take(pa.array(choice.source_rows[where])) if clause.side is Side.MATCHED else None
            parts.append(self._with_values(before, clause, Pairs(given, before)))
            places.append(where)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_tables(parts, promote_options="default").take(pa.array(np.argsort(np.concatenate(places))))

    def added(self) -> Iterator[pa.Table]:
        """The rows to add, once all were chosen: for rows of the source that have matched none."""
        if not self.edit.has(Side.NOT_MATCHED):
            return
        source = self._source.filter(pa.array(~self._matched))
        chosen = self._clauses_of(Side.NOT_MATCHED, source.num_rows, lambda: Pairs(source, None))
        for number in np.unique(chosen[chosen != NO_CLAUSE]):
            given = source.filter(pa.array(chosen == number))
            new = self._with_values(
                _new_rows(self._store, given.num_rows), self.edit.clauses[number], Pairs(given, None)
            )
            yield conform(new, self._store.schema.fields, table=self._store.name)

    def watched(self) -> list[str] | None:
        """The columns by which rows that others add before the commit outdate the plan; None where none can."""
        if self.edit.replaces:
            return self.columns
        is_adding = self.edit.has(Side.NOT_MATCHED) and not self._matched.all()
        return list(self.edit.on) if is_adding else None

    def is_outdated_by(self, rows: pa.Table) -> bool:
        """Whether one of such rows was to be replaced, or matches a row of the source that is to be added: who adds it
        too would have it twice."""
        if self.edit.replaces:
            return self.edit.filter is None or bool(len(passing(rows, self.edit.filter)))
        source_rows, _ = self._join.pairs(rows)
        return not bool(self._matched[source_rows].all())

    def _chosen(self, rows: pa.Table) -> Choice:
        columns, parts = rows.select(self.columns), []
        is_unmatched = np.ones(rows.num_rows, np.bool_)
        if self.edit.source is not None:
            source_rows, target_rows = self._join.pairs(rows)
            _refuse_two(self._store, self._source, source_rows, target_rows, self.edit.on)
            self._matched[source_rows] = True
            is_unmatched[target_rows] = False
            chosen = self._clauses_of(
                Side.MATCHED,
                len(target_rows),
                lambda: Pairs(self._source.take(pa.array(source_rows)), columns.take(pa.array(target_rows))),
            )
            parts.append(Choice(target_rows, chosen, source_rows))
        if self.edit.has(Side.BY_SOURCE):
            others = np.flatnonzero(is_unmatched)
            chosen = self._clauses_of(Side.BY_SOURCE, len(others), lambda: Pairs(None, columns.take(pa.array(others))))
            parts.append(Choice(others, chosen, np.full(len(others), -1, np.int64)))
        both = together(parts)
        both = both.of(both.clauses != NO_CLAUSE)
        return both.of(np.argsort(both.positions, kind="stable"))

    def _clauses_of(self, side: Side, count: int, pairs: Callable[[], Pairs]) -> Numbers:
        """The number of the first clause of a side that fits each of so many pairs, or -1."""
        numbers = [number for number, each in enumerate(self.edit.clauses) if each.side is side]
        conditions = [self.edit.clauses[number].condition for number in numbers]
        if not numbers or conditions[0] is None:
            return np.full(count, numbers[0] if numbers else NO_CLAUSE, np.int64)
        return np.array([*numbers, NO_CLAUSE], np.int64)[self._join.first_true(conditions, pairs())]

    def _with_values(self, rows: pa.Table, clause: Clause, pairs: Pairs) -> pa.Table:
        """The rows with the values of a clause, in the types of the table; they belong to the pairs."""
        store, schema, values = self._store, arrow_schema(self._store.schema), clause.values or {}
        expressions = {name: each for name, each in values.items() if isinstance(each, Expression)}
        computed = (
            evaluate(rows, expressions) if self.edit.source is None else self._join.computed(expressions, schema, pairs)
        )
        for name, value in values.items():
            if value is Taken.FROM_SOURCE and pairs.source is not None:
                column = pairs.source.column(name)
            else:
                column = computed[name] if name in computed else _constant(store, name, value, rows.num_rows)
            fitting = conform(pa.table({name: column}), [store.schema.by_name[name]], table=store.name)
            rows = rows.set_column(rows.column_names.index(name), schema.field(name), fitting.column(0))
        return rows


def passing(rows: pa.Table, bound: ScanFilter) -> Numbers:
    """Positions of the rows for which a filter is true."""
    numbered = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
    found: Numbers = numbered.filter(bound.predicate.to_arrow()).column(ROW).to_numpy().astype(np.int64)
    return found


def in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered into larger parts, none of them empty: joins, expressions, routing and files cost the same for
    few rows."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PART_ROWS or size >= PART_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _refuse_two(
    store: TableStore, source: pa.Table, source_rows: Numbers, target_rows: Numbers, on: Sequence[str]
) -> None:
    """Raises where two rows of the source match one of the table, which lie side by side in `target_rows`."""
    twice = np.flatnonzero(target_rows[1:] == target_rows[:-1])
    if len(twice):
        key = {name: source.column(name)[int(source_rows[twice[0]])].as_py() for name in on}
        raise InvalidRequestError(
            f"merge into {store.name}: the source has the key {key} more than once; leave one of its rows, else it is "
            "chance which one counts",
            table=store.name,
        )


def _constant(store: TableStore, name: str, value: Any, count: int) -> pa.ChunkedArray:
    """A column of one value."""
    kind = arrow_schema(store.schema).field(name).type
    if value is None:
        return pa.chunked_array([pa.nulls(count, kind)])
    if isinstance(value, str) and not is_lossless_pair(pa.string(), kind):
        raise InvalidRequestError(
            f"column {name!r} of table {store.name} is {store.schema.by_name[name].type}, and {value!r} is a text; SQL "
            f"over the columns of the row is expr({value!r})",
            table=store.name,
            column=name,
        )
    try:
        one = pa.array([value] if count else [])
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidRequestError(
            f"column {name!r} of table {store.name} cannot be {value!r}: {error}", table=store.name, column=name
        ) from error
    return pa.chunked_array([one.take(pa.array(np.zeros(count, np.int64)))])


def _new_rows(store: TableStore, count: int) -> pa.Table:
    """Rows that have no values but defaults."""
    defaults = ColumnDefaults(store.schema, takes_whole_rows=store.options.takes_whole_rows)
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(store.schema)])
    is_new = np.ones(count, np.bool_)
    return pa.table([defaults.column(field, is_new) for field in store.schema.fields], schema=schema)


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
