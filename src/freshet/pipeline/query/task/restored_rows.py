"""Turns carriers of rows that have crossed a shuffle back into the table's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from freshet.pipeline.decode.carriers import carrier_arrow_type, restore_array
from freshet.pipeline.decode.outcomes import DATA_PREFIX, KIND
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema


def restore_rows(
    rows: pa.Table, schema: TableSchema, carried: tuple[str, ...], *, only: Sequence[str] | None = None
) -> pa.Table:
    """The table's columns in its own types, with `_ROW_KIND` where the rows have one; or `only` some columns.

    `carried` are the columns that the rows have, by index; a column that is not among them is left to the writer, or
    NULL where it is wanted.
    """
    indexes = {name: index for index, name in enumerate(carried)}
    columns = []
    names = [name for name in schema.column_names if name in indexes] if only is None else list(only)
    for field in (schema.by_name[name] for name in names):
        target = arrow_schema([field])[0].type
        if field.name not in indexes:
            columns.append(pa.nulls(rows.num_rows, target))
            continue
        column: Any = rows.column(f"{DATA_PREFIX}{indexes[field.name]}")
        if column.type != carrier_arrow_type(field.type) or column.type != target:
            column = pa.chunked_array([restored_array(chunk, field) for chunk in column.chunks], target)
        columns.append(column)
    if only is None and KIND in rows.column_names:
        columns.append(rows.column(KIND))
        names.append(ROW_KIND_COLUMN)
    return pa.Table.from_arrays(columns, names=names)


def restored_array(chunk: pa.Array, field: DataField) -> pa.Array:
    """A column that came from Spark, in the table's type; `InvalidRequestError` for a value that does not fit."""
    if pa.types.is_null(chunk.type):
        return pa.nulls(len(chunk), arrow_schema([field])[0].type)
    try:
        return restore_array(chunk, field.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", column=field.name
        ) from error
