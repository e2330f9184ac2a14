"""INSERT INTO and INSERT OVERWRITE: the rows of a query, or VALUES, into a table, in one commit.

Columns are matched by position, in the order of the table or of the column list; with `BY NAME` by the names of the
query. Columns that are not given are NULL, those of `PARTITION (dt = '…')` have that value. Decimals are rounded to the
scale of their column, or to a DOUBLE; all else is converted without loss, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.partition_choice import partition_scalar
from freshet.storage.model.arrow_types import is_lossless_pair
from freshet.storage.scan.frame_outputs import RowStream
from freshet.storage.sql.column_types import type_text
from freshet.storage.sql.names import (
    SqlName,
    by_keys,
    column_name,
    columns_as_written,
    name_of,
    only_name,
    partition_values,
)
from freshet.storage.sql.query import checked_query, rows_of
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.result import Rows, SqlResult, edited
from freshet.storage.sql.session import Plan, SqlSession

if TYPE_CHECKING:
    from freshet.storage.table import Table


class _Insert(Frozen):
    """An INSERT; `columns` is the list that the statement has, `values` what PARTITION gives."""

    name: SqlName
    query: exp.Query
    columns: tuple[str, ...] = ()
    values: tuple[tuple[str, str | None], ...] = ()
    is_overwrite: bool = False
    is_by_name: bool = False

    def write(self, session: SqlSession) -> SqlResult:
        """Writes the rows, and commits them."""
        table = session.table(self.name)
        constants = by_keys(table, dict(self.values))
        rows = rows_of(session, self.query)
        stream = fitted_rows(table, rows, self._targets(table, rows.schema, constants), constants)
        with stream.read_by():
            if not self.is_overwrite:
                return edited(table, table.append(stream))
            return edited(table, table.overwrite(stream, partition=constants or None, dry_run=session.dry_run))

    def _targets(self, table: Table, schema: pa.Schema, constants: Mapping[str, object]) -> list[str]:
        """The columns of the table that those of the query go to."""
        if self.is_by_name or self.columns:
            targets = columns_as_written(table, schema.names if self.is_by_name else self.columns)
        else:
            targets = [name for name in table.schema.column_names if name not in constants]
        twice = next((name for name in targets if targets.count(name) > 1 or name in constants), None)
        if twice is not None:
            raise InvalidRequestError(
                f"SQL: column {twice!r} of table {table.name} is given twice", table=table.name, column=twice
            )
        return targets


def plan_insert(tree: exp.Insert) -> Plan:
    """The plan of INSERT."""
    only(tree, "this", "expression", "overwrite", "by_name", "source", "with_")
    target: exp.Expr = tree.this
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(column_name(each) for each in target.expressions)
        target = target.this
    if not isinstance(target, exp.Table):
        raise refused(target, "rows are written into tables of a catalog")
    only_name(target, "partition")
    partition = target.args.get("partition")
    values: dict[str, str | None] = {} if partition is None else partition_values(partition)[0]
    if tree.args.get("by_name") and columns:
        raise wrong(tree, "BY NAME and a list of columns exclude each other")
    insert = _Insert(
        name_of(target),
        _query(tree),
        columns,
        tuple(values.items()),
        bool(tree.args.get("overwrite")),
        bool(tree.args.get("by_name")),
    )
    return Plan(insert.write, has_dry_run=insert.is_overwrite)


def _query(tree: exp.Insert) -> exp.Query:
    source = tree.args.get("source") or None
    query = exp.select("*").from_(source.copy()) if isinstance(source, exp.Table) else tree.expression
    if isinstance(query, exp.Values):
        for row in query.expressions:
            for value in row.find_all(exp.Var):
                raise refused(value, "write the value, or leave the column out")
        query = exp.select("*").from_(query.copy())
    if not isinstance(query, exp.Query):
        raise refused(tree)
    with_ = tree.args.get("with_")
    if with_ is not None:
        query = query.copy()
        if query.args.get("with_"):
            raise refused(with_, "two WITH")
        query.set("with_", with_.copy())
    return checked_query(query)


def fitted_rows(
    table: Table, rows: Rows, targets: Sequence[str], constants: Mapping[str, str | None] | None = None
) -> RowStream:
    """The rows as the table takes them: their columns are `targets`, by position, and each of `constants` has one
    value. Raises `InvalidRequestError` where the numbers of columns differ."""
    if len(rows.schema) != len(targets):
        raise InvalidRequestError(
            f"SQL: the rows have {len(rows.schema)} columns, and {len(targets)} of table {table.name} are to fill: "
            f"{', '.join(targets)}",
            table=table.name,
        )
    wanted = table.arrow_schema
    kept = dict(constants or {})
    fixed = {name: partition_scalar(table.store, name, value) for name, value in kept.items()}
    fields = []
    for field in wanted:
        if field.name not in targets and field.name not in fixed:
            continue  # The writer gives it its default.
        at = list(targets).index(field.name) if field.name in targets else None
        given = field.type if at is None else rows.schema.field(at).type
        taken = _taken(given, field.type)
        if not pa.types.is_nested(field.type) and not is_lossless_pair(taken, field.type):
            wanted_text = type_text(table.schema.by_name[field.name].type)
            raise InvalidRequestError(
                f"SQL: column {field.name!r} of table {table.name} is {wanted_text}, the rows have {taken} there; cast "
                f"it: CAST(… AS {wanted_text})",
                table=table.name,
                column=field.name,
            )
        fields.append(pa.field(field.name, taken))
    schema = pa.schema(fields)
    return RowStream(schema, lambda: _batches(rows, schema, list(targets), fixed))


def _batches(
    rows: Rows, schema: pa.Schema, targets: list[str], fixed: Mapping[str, pa.Scalar]
) -> Iterator[pa.RecordBatch]:
    for batch in rows.batches():
        arrays = []
        for field in schema:
            if field.name in targets:
                arrays.append(_rounded(batch.column(targets.index(field.name)), field.type))
            else:
                arrays.append(pa.repeat(fixed[field.name], batch.num_rows))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _taken(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type in which a column is handed on: that of the table where it only has to be rounded."""
    is_number = pa.types.is_decimal(wanted) or pa.types.is_floating(wanted)
    return wanted if pa.types.is_null(given) or (pa.types.is_decimal(given) and is_number) else given


def _rounded(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_decimal(array.type) and pa.types.is_decimal(wanted) and array.type.scale > wanted.scale:
        array = pc.round(array, wanted.scale, "half_towards_infinity")
    try:
        return pc.cast(array, wanted)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"SQL: a value of the rows does not fit into {wanted}: {error}") from error
