"""The first schema of a table, from what its creator gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.data_type import DataField, DataType, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import column_type
from freshet.storage.schema.given_columns import given_columns
from freshet.storage.schema.validation import validate_new_table

ColumnTypes: TypeAlias = pa.Schema | Mapping[str, str | DataType] | Mapping[str, DataField] | Any
"""Columns of a new table: an Arrow schema, or names with types as people write them (`DECIMAL(14, 4) NOT NULL`), or
with fields, of which type and description count; or what says its columns, such as a frame (`given_columns`)."""


def new_table(
    columns: ColumnTypes,
    *,
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
    time_ms: int,
) -> TableSchema:
    """Schema 0; raises `InvalidRequestError` or `UnsupportedFeatureError` for a table that cannot be."""
    fields, highest = _fields(columns, primary_keys, partition_keys)
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=highest,
        partition_keys=tuple(partition_keys),
        primary_keys=tuple(primary_keys),
        options=options,
        comment=comment,
        time_ms=time_ms,
    )
    validate_new_table(schema)
    return schema


def _fields(
    schema: ColumnTypes, primary_keys: Sequence[str], partition_keys: Sequence[str]
) -> tuple[tuple[DataField, ...], int]:
    schema = given_columns(schema)
    if isinstance(schema, pa.Schema):
        return fields_from_arrow(schema, primary_keys, partition_keys)
    columns = []
    for name, written in schema.items():
        described = written.description if isinstance(written, DataField) else None
        data_type = column_type(name, written.type if isinstance(written, DataField) else written)
        is_key = name in primary_keys
        columns.append(DataField(0, name, with_nullable(data_type, False) if is_key else data_type, described))
    return assign_ids(columns)
