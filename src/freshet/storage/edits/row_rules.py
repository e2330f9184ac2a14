"""Whether a keyed table takes deletes and updates of its rows by what its merge engine does with them; else why it does
not. Updates are rows of kind +U; in front of each stands its -U where the table's changelog is its input.

| merge engine | delete | update of a column |
|---|---|---|
| deduplicate | yes | yes |
| partial-update | with `partial-update.remove-record-on-delete` | to a value, not where a function merges it |
| aggregation | with `aggregation.remove-record-on-delete` | of `last_value`; of `last_non_null_value` to a value |
| first-row | no | no |

None with `ignore-delete`, `rowkind.field` or `bucket=-2`. Apache Paimon 2.0.0 commits a DELETE that such a table then
passes over, and says nothing.

A row that is written again must not be merged with itself: of partial-update and aggregation the columns that are not
updated are left NULL, which keeps what is stored, and columns that order rows are written as they are, where an equal
value counts as newer.

Source: MERGING.md §2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.edits.clauses import Action, Clause
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.options.aggregate_function import AggregateFunction
from freshet.storage.options.choices import ChangelogProducer, MergeEngine
from freshet.storage.options.engine import EngineOptions, engine_options

_REPEATABLE: Final = frozenset({"max", "min", "bool_and", "bool_or", "first_value", "first_non_null_value"})
"""Functions to which the stored value may be given again."""


class UpdateRules(Frozen):
    """How updated rows of a table are written.

    `kept` are columns that are written as they were, `left_out` those that are left NULL, so that what is stored stays.
    `not_null` are updated columns that cannot become NULL, `ordered_by` columns of which one at least must hold a value
    in each row, else the update would be passed over.
    """

    kept: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    ordered_by: tuple[tuple[str, ...], ...] = ()


def rules_of(store: TableStore, clauses: Sequence[Clause]) -> dict[int, UpdateRules]:
    """The rules of each clause that updates, by its number; raises `InvalidRequestError` for one that cannot be."""
    rules = {}
    for number, clause in enumerate(clauses):
        match clause.action:
            case Action.DELETE:
                _check_deletes(store)
            case Action.UPDATE:
                rules[number] = _update_rules(store, clause.values or {})
            case Action.INSERT:
                _check_inserts(store)
    return rules


def as_updates(store: TableStore, before: pa.Table, new: pa.Table, rules: UpdateRules) -> pa.Table:
    """The rows to write: +U with the columns that are left to the stored row as NULL, behind its -U where needed.

    Raises `InvalidRequestError` for the first row that would be passed over or merged into another value.
    """
    _check_updated(store, before, new, rules)
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


def with_kind(rows: pa.Table, kind: RowKind) -> pa.Table:
    """The rows with their kind."""
    return rows.append_column(ROW_KIND_COLUMN, pa.array(np.full(rows.num_rows, kind, np.int8)))


def _check_deletes(store: TableStore) -> None:
    """Raises `InvalidRequestError` where the rows of a keyed table cannot be deleted."""
    options = store.options
    _check_common(store, "deleted")
    removes = engine_options(store.schema, options).remove_record_on_delete
    match options.merge_engine:
        case MergeEngine.PARTIAL_UPDATE if not removes:
            raise _refused(store, "deleted", "a partial-update table removes a row where it has "
                           "partial-update.remove-record-on-delete=true; a new table can have it")  # fmt: skip
        case MergeEngine.AGGREGATE if not removes:
            raise _refused(store, "deleted", "an aggregation removes a row where it has "
                           "aggregation.remove-record-on-delete=true, else a -D takes its values back; a new table can "
                           "have it")  # fmt: skip


def _check_inserts(store: TableStore) -> None:
    """Raises `InvalidRequestError` where rows that a merge adds would be none, or those there are cannot be seen."""
    if store.options.has_postponed_buckets or store.options.rowkind_field:
        _check_common(store, "merged")


def _update_rules(store: TableStore, updated: Collection[str]) -> UpdateRules:
    """How updates of these columns are written; raises `InvalidRequestError` where they cannot be.

    Columns of the primary key are refused by the caller.
    """
    _check_common(store, "updated")
    schema, options = store.schema, store.options
    others = [name for name in schema.column_names if name not in updated]
    rules = engine_options(schema, options)
    match options.merge_engine:
        case MergeEngine.PARTIAL_UPDATE:
            return _partial_update(store, rules, updated, others)
        case MergeEngine.AGGREGATE:
            return _aggregation(store, rules, updated, others)
        case _:
            return UpdateRules(tuple(others))


def _partial_update(
    store: TableStore, rules: EngineOptions, updated: Collection[str], others: list[str]
) -> UpdateRules:
    for name in updated:
        if name in rules.functions and rules.functions[name].name is not AggregateFunction.LAST_NON_NULL_VALUE:
            raise _merged(store, name, rules)
    touched = [group for group in rules.groups if {*group.ordering, *group.protected} & set(updated)]
    in_touched = {name for group in touched for name in (*group.ordering, *group.protected)}
    kept, left_out = _split(store, rules, others, lambda name: name in in_touched and name not in rules.functions)
    grouped = {name for group in rules.groups for name in group.protected}
    return UpdateRules(
        kept,
        left_out,
        tuple(name for name in updated if name not in grouped),
        tuple(group.ordering for group in touched),
    )


def _aggregation(store: TableStore, rules: EngineOptions, updated: Collection[str], others: list[str]) -> UpdateRules:
    not_null = []
    for name in updated:
        function = rules.functions[name].name
        if function is AggregateFunction.LAST_NON_NULL_VALUE:
            not_null.append(name)
        elif function is not AggregateFunction.LAST_VALUE:
            raise _merged(store, name, rules)
    last = {name for name, each in rules.functions.items() if each.name is AggregateFunction.LAST_VALUE}
    kept, left_out = _split(store, rules, others, last.__contains__)
    return UpdateRules(kept, left_out, tuple(not_null))


def _split(
    store: TableStore, rules: EngineOptions, others: list[str], is_kept: Callable[[str], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that are written as they were, and those that are left NULL."""
    written = {*store.schema.primary_keys, *(store.options.sequence_field or ())}
    kept, left_out = [], []
    for name in others:
        field = store.schema.by_name[name]
        if name in written or is_kept(name):
            kept.append(name)
        elif field.type.nullable:
            left_out.append(name)
        elif name in rules.functions and rules.functions[name].name.value not in _REPEATABLE:
            raise _refused(
                store,
                "updated",
                f"column {name!r} is NOT NULL, so it cannot be left out, and would be merged with itself "
                f"({rules.functions[name].name.value}); make it nullable",
            )
        else:
            kept.append(name)
    return tuple(kept), tuple(left_out)


def _check_common(store: TableStore, verb: str) -> None:
    options = store.options
    if options.has_postponed_buckets:
        raise _refused(
            store,
            verb,
            "with bucket=-2 rows wait for their buckets, unseen; give the table a number of buckets (rescale)",
        )
    if options.merge_engine is MergeEngine.FIRST_ROW:
        raise _refused(
            store, verb, "a first-row table keeps the first row of a key, whatever comes later; overwrite it"
        )
    if options.ignore_delete and verb == "deleted":
        raise _refused(store, verb, "it has ignore-delete=true; reset that option (alter) if rows are to go")
    if options.rowkind_field:
        raise _refused(
            store,
            verb,
            f"the column {options.rowkind_field!r} says of which kind a row is (rowkind.field); upsert rows",
        )


def _merged(store: TableStore, name: str, rules: EngineOptions) -> InvalidRequestError:
    return _refused(
        store,
        "updated",
        f"a new value of column {name!r} would be merged with the stored one ({rules.functions[name].name.value}); "
        "upsert what is to be merged",
    )


def _refused(store: TableStore, verb: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"rows of table {store.name} cannot be {verb}: {reason}", table=store.name)


def _check_updated(store: TableStore, before: pa.Table, new: pa.Table, rules: UpdateRules) -> None:
    for name in rules.not_null:
        if new.column(name).null_count:
            raise _not_so(store, name, "NULL keeps what is stored there; write a value")
    for ordering in rules.ordered_by:
        if _any(_all_null(new, ordering)):
            raise _not_so(
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
        raise _not_so(
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


def _not_so(store: TableStore, column: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} of table {store.name} cannot be updated so: {reason}", table=store.name, column=column
    )
