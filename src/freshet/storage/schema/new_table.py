"""The first schema of a table, from what its creator gives.

Columns of a new table as what other libraries say: a frame, or a schema of theirs, as Arrow's or in words.

| given | taken by |
|---|---|
| a schema, an array or rows of Arrow, whatever the library (polars, DuckDB, …) | its Arrow interface |
| a pandas frame | its columns, and the index where it has a name |
| a StructType or a DataFrame of Spark | its document in JSON |

Types of Spark without a zone and with one are TIMESTAMP(6) and TIMESTAMP(6) WITH LOCAL TIME ZONE, as in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.data_type import DataField, DataType, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import column_type
from freshet.storage.schema.validation import validate_new_table

ColumnTypes: TypeAlias = pa.Schema | Mapping[str, str | DataType] | Mapping[str, DataField] | Any
"""Columns of a new table: an Arrow schema, or names with types as people write them (`DECIMAL(14, 4) NOT NULL`), or
with fields, of which type and description count; or what says its columns, such as a frame (`_given_columns`)."""

_SPARK_NAMES: Final = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "binary": "BYTES",
    "timestamp": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "timestamp_ntz": "TIMESTAMP(6)",
}


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
    schema = _given_columns(schema)
    if isinstance(schema, pa.Schema):
        return fields_from_arrow(schema, primary_keys, partition_keys)
    columns = []
    for name, written in schema.items():
        described = written.description if isinstance(written, DataField) else None
        data_type = column_type(name, written.type if isinstance(written, DataField) else written)
        is_key = name in primary_keys
        columns.append(DataField(0, name, with_nullable(data_type, False) if is_key else data_type, described))
    return assign_ids(columns)


def _given_columns(given: Any) -> pa.Schema | Mapping[str, Any]:
    """An Arrow schema, or types by name; raises `InvalidRequestError` for what says nothing of columns."""
    if isinstance(given, pa.Schema | Mapping) and not hasattr(given, "__arrow_c_schema__"):
        return given
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
        found = pa.Schema.from_pandas(given)
        return pa.schema([field for field in found if not field.name.startswith("__index_level_")])
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).schema
    document = _document(given)
    if document is not None:
        return {field["name"]: _text(field["type"], is_nullable=field["nullable"]) for field in document["fields"]}
    raise InvalidRequestError(
        "schema is a pyarrow schema, a frame, a StructType of Spark, or names with types such as {'id': 'BIGINT'}, "
        f"not {given!r}"
    )


def _document(given: Any) -> Mapping[str, Any] | None:
    """The schema of Spark as JSON has it."""
    schema: Any = given if hasattr(given, "jsonValue") else getattr(given, "schema", None)
    document = schema.jsonValue() if hasattr(schema, "jsonValue") else None
    return document if isinstance(document, Mapping) and document.get("type") == "struct" else None


def _text(given: Any, *, is_nullable: bool) -> str:
    """A type of Spark's document in the words of column types."""
    match given:
        case {"type": "array", "elementType": element, "containsNull": null}:
            text = f"ARRAY<{_text(element, is_nullable=null)}>"
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": null}:
            text = f"MAP<{_text(key, is_nullable=False)}, {_text(value, is_nullable=null)}>"
        case {"type": "struct", "fields": fields}:
            inner = (f"`{each['name']}` {_text(each['type'], is_nullable=each['nullable'])}" for each in fields)
            text = f"ROW<{', '.join(inner)}>"
        case str():
            text = _SPARK_NAMES.get(given, given)
        case _:
            text = str(given)  # which no column has, and the reader of types says so
    return text if is_nullable else f"{text} NOT NULL"
