"""Columns of a new table as what other libraries say: a frame, or a schema of theirs, as Arrow's or in words.

| given | taken by |
|---|---|
| a schema, an array or rows of Arrow, whatever the library (polars, DuckDB, …) | its Arrow interface |
| a pandas frame | its columns, and the index where it has a name |
| a StructType or a DataFrame of Spark | its document in JSON |

Types of Spark without a zone and with one are TIMESTAMP(6) and TIMESTAMP(6) WITH LOCAL TIME ZONE, as in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError

_SPARK_NAMES: Final = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "binary": "BYTES",
    "timestamp": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "timestamp_ntz": "TIMESTAMP(6)",
}


def given_columns(given: Any) -> pa.Schema | Mapping[str, Any]:
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
