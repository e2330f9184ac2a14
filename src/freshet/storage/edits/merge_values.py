"""What a clause of a merge makes of rows: new values of stored rows, and rows that are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.edits.expression import Expression
from freshet.storage.edits.merge_clauses import Action, Clause, Side
from freshet.storage.edits.merge_join import MergeJoin, Numbers, Pairs
from freshet.storage.edits.update_rows import constant
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arrow_types import arrow_schema, conform
from freshet.storage.model.data_type import with_nullable
from freshet.storage.write.column_defaults import ColumnDefaults


def with_values(store: TableStore, join: MergeJoin, clause: Clause, rows: pa.Table, pairs: Pairs) -> pa.Table:
    """The rows with the values of a clause, in the types of the table but for NOT NULL; they belong to the pairs."""
    schema, values = arrow_schema(store.schema), dict(clause.values or {})
    expressions = {name: each for name, each in values.items() if isinstance(each, Expression)}
    computed = join.computed(expressions, schema, pairs)
    if clause.values is None and pairs.source is not None:
        for name in all_columns(store, pairs.source.column_names, clause.action):
            values[name] = None
            computed[name] = pairs.source.column(name)
    for name, value in values.items():
        column = computed[name] if name in computed else constant(store, name, value, rows.num_rows)
        fitting = fitting_column(store, name, column)
        rows = rows.set_column(rows.column_names.index(name), pa.field(name, fitting.type), fitting)
    return rows


def added_rows(store: TableStore, join: MergeJoin, clauses: Sequence[Clause], source: pa.Table) -> pa.Table | None:
    """The rows that are added for rows of the source which nothing matches; None for none."""
    inserts = [each for each in clauses if each.side is Side.NOT_MATCHED]
    if not inserts or not source.num_rows:
        return None
    chosen = join.chosen([each.condition for each in inserts], Pairs(source, None))
    added = []
    for index, clause in enumerate(inserts):
        is_meant = chosen == index
        if is_meant.any():
            given = source if is_meant.all() else source.filter(pa.array(is_meant))
            added.append(with_values(store, join, clause, _new_rows(store, given.num_rows), Pairs(given, None)))
    return pa.concat_tables(added) if added else None


def all_columns(store: TableStore, names: Sequence[str], action: Action) -> list[str]:
    """The columns of the source that the table has, too; of an update none that would make another row of it."""
    schema = store.schema
    fixed = {*schema.primary_keys, *schema.partition_keys, *store.bucket_key} if action is Action.UPDATE else set()
    return [name for name in names if name in schema.by_name and name not in fixed]


def fitting_column(store: TableStore, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the type of the table, without loss; NULL is left to the writer."""
    field = store.schema.by_name[name]
    nullable = replace(field, type=with_nullable(field.type, True))
    return conform(pa.table({name: column}), [nullable], table=store.name).column(0)


def refuse_two(
    store: TableStore, source: pa.Table, source_rows: Numbers, target_rows: Numbers, on: Sequence[str]
) -> None:
    """Raises where two rows of the source match one of the table, which lie side by side in `target_rows`."""
    twice = np.flatnonzero(target_rows[1:] == target_rows[:-1])
    if len(twice):
        raise twice_error(store, {name: source.column(name)[int(source_rows[twice[0]])].as_py() for name in on})


def twice_error(store: TableStore, key: dict[str, Any]) -> InvalidRequestError:
    """The error of a key that the source has twice."""
    return InvalidRequestError(
        f"merge into {store.name}: the source has the key {key} more than once; leave one of its rows, else it is "
        "chance which one counts",
        table=store.name,
    )


def _new_rows(store: TableStore, count: int) -> pa.Table:
    """Rows that have no values but defaults."""
    defaults = ColumnDefaults(store.schema, takes_whole_rows=store.options.takes_whole_rows)
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(store.schema)])
    is_new = np.ones(count, np.bool_)
    return pa.table([defaults.column(field, is_new) for field in store.schema.fields], schema=schema)
