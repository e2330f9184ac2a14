"""Updates columns of rows of a keyed table that a filter chooses: rows of kind +U, by the rules of the table's merge
engine (`row_rules`); in front of each its -U where the table's changelog is its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.edits.delete_rows import chosen
from freshet.storage.edits.expression import Expression, evaluate
from freshet.storage.edits.row_parts import in_parts
from freshet.storage.edits.row_plan import rows_of_keys, with_kind
from freshet.storage.edits.row_rules import UpdateRules
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.predicate import Predicate
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform, is_lossless_pair
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.scan.table_scan import TableScan


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """A `RowPlan` of the rows for which a filter is true, with new values of some columns."""

    filter: Predicate
    values: Mapping[str, Any]
    rules: UpdateRules

    def of_table(self, store: TableStore, snapshot: Snapshot | None) -> Iterator[pa.Table]:
        """By a scan."""
        if snapshot is None:
            return
        for rows in in_parts(TableScan(store, filter=self.filter, snapshot=snapshot).to_batches()):
            yield written_rows(store, rows, self.values, self.rules)

    def of_keys(self, store: TableStore, snapshot: Snapshot | None, keys: pa.Table) -> pa.Table:
        """By lookups."""
        rows = chosen(store, rows_of_keys(store, snapshot, keys), self.filter)
        return written_rows(store, rows, self.values, self.rules)


def written_rows(store: TableStore, rows: pa.Table, values: Mapping[str, Any], rules: UpdateRules) -> pa.Table:
    """What is written in place of stored rows, of all columns of the table, when these get new values."""
    new = updated(store, rows, values)
    check_updated(store, rows, new, rules)
    return as_updates(store, rows, new, rules)


def updated(store: TableStore, rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """The rows with their new values, in the types of the table."""
    schema = arrow_schema(store.schema)
    computed = evaluate(rows, {name: each for name, each in values.items() if isinstance(each, Expression)})
    for name, value in values.items():
        column = computed[name] if name in computed else constant(store, name, value, rows.num_rows)
        fitting = conform(pa.table({name: column}), [store.schema.by_name[name]], table=store.name)
        rows = rows.set_column(rows.column_names.index(name), schema.field(name), fitting.column(0))
    return rows


def constant(store: TableStore, name: str, value: Any, count: int) -> pa.ChunkedArray:
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


def as_updates(store: TableStore, before: pa.Table, new: pa.Table, rules: UpdateRules) -> pa.Table:
    """The rows to write: +U with the columns that are left to the stored row as NULL, behind its -U where needed."""
    written = new
    for name in rules.left_out:
        index = written.column_names.index(name)
        written = written.set_column(
            index, written.schema.field(index), pa.nulls(new.num_rows, written.column(index).type)
        )
    after = with_kind(written, RowKind.UPDATE_AFTER)
    options = store.options
    has_before = options.changelog_producer is ChangelogProducer.INPUT
    if not has_before or options.merge_engine is not MergeEngine.DEDUPLICATE or options.ignore_update_before:
        return after
    both = pa.concat_tables([with_kind(before.cast(new.schema), RowKind.UPDATE_BEFORE), after])
    numbers = np.arange(2 * new.num_rows)
    order = numbers // 2 + numbers % 2 * new.num_rows
    # Of a row that moves to another partition, the table writes itself that it left.
    moves = np.zeros(new.num_rows, np.bool_)
    for name in store.schema.partition_keys:
        is_same = pc.equal(before.column(name).cast(new.schema.field(name).type), new.column(name))
        moves |= ~pc.fill_null(is_same, False).to_numpy()
    return both.take(pa.array(order[(order >= new.num_rows) | ~moves[order % max(new.num_rows, 1)]]))


def check_updated(store: TableStore, before: pa.Table, new: pa.Table, rules: UpdateRules) -> None:
    """Raises `InvalidRequestError` for the first row that would be passed over or merged into another value."""
    for name in rules.not_null:
        if new.column(name).null_count:
            raise _refused(store, name, "NULL keeps what is stored there; write a value")
    for ordering in rules.ordered_by:
        if _any(_all_null(new, ordering)):
            raise _refused(
                store, ordering[0], "a row without a value in it is passed over (sequence-group); give it one as well"
            )
        _refuse_backwards(store, before, new, ordering, descending=False)
    fields = store.options.sequence_field
    if fields:
        _refuse_backwards(store, before, new, fields, descending=store.options.sequence_descending)


def _refuse_backwards(
    store: TableStore, before: pa.Table, new: pa.Table, names: Sequence[str], *, descending: bool
) -> None:
    is_less = pa.chunked_array([pa.repeat(False, new.num_rows)])
    is_equal = pa.chunked_array([pa.repeat(True, new.num_rows)])
    for name in names:
        old, now = before.column(name).cast(new.schema.field(name).type), new.column(name)
        compare = pc.greater if descending else pc.less
        less = pc.or_(pc.fill_null(compare(now, old), False), pc.and_(pc.is_null(now), pc.is_valid(old)))
        equal = pc.or_(pc.fill_null(pc.equal(now, old), False), pc.and_(pc.is_null(now), pc.is_null(old)))
        is_less = pc.or_(is_less, pc.and_(is_equal, less))
        is_equal = pc.and_(is_equal, equal)
    if _any(is_less):
        raise _refused(
            store,
            names[0],
            "its values order the rows of a key, and a row that goes back is passed over; set it higher",
        )


def _all_null(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    result = pc.is_null(rows.column(names[0]))
    for name in names[1:]:
        result = pc.and_(result, pc.is_null(rows.column(name)))
    return result


def _any(flags: pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())


def _refused(store: TableStore, column: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} of table {store.name} cannot be updated so: {reason}", table=store.name, column=column
    )
