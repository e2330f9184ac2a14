"""The Avro schema of data files as Paimon writes them, and what of the format's types Avro cannot hold.

| type | Avro |
|---|---|
| TINYINT, SMALLINT, INT | int |
| DATE, TIME(0..3) | int: date, time-millis |
| TIMESTAMP(0..3), (4..6) | long: timestamp-millis, timestamp-micros |
| TIMESTAMP WITH LOCAL TIME ZONE | long: local-timestamp-millis, local-timestamp-micros |
| DECIMAL | bytes: decimal |
| MAP with CHAR or VARCHAR keys | map |
| other MAPs | array of records key, value |
| nullable types | union of null, first, and the type; default null |

The names of the two kinds of timestamps are swapped, not their values. TIMESTAMP(7) and finer are refused, as
are names that are none in Avro. A record is named by the columns and fields on the way to it, `a_b` for field b of
column a: two of one name are refused. Source: FORMAT.md §2.3, §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
    TypeRoot,
    with_nullable,
)
from freshet.storage.options.file_formats import AVRO_NAME
from freshet.storage.schema.file_formats import avro_name_of_two

_RECORD: Final = "org.apache.paimon.avro.generated.record"
_MILLIS_PRECISION_MAX: Final = 3
_MICROS_PRECISION_MAX: Final = 6
_PLAIN: Final = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
}


def avro_schema(fields: Sequence[DataField]) -> dict[str, Any]:
    """The record of a file; `UnsupportedFeatureError` names the column that Avro cannot hold."""
    for field in fields:
        check_avro(field.name, field)
    twice = avro_name_of_two(fields)
    if twice is not None:
        name, first, second = twice
        raise UnsupportedFeatureError(
            f"columns {first!r} and {second!r} cannot be written to one Avro file: a record in each would have the "
            f"name {name!r}; use other names, or file.format=parquet"
        )
    schema: dict[str, Any] = _schema_of(RowType(tuple(fields), nullable=False), _RECORD)
    return schema


def check_avro(column: str, field: DataField) -> None:
    """Refuses what Avro cannot hold of a column, or of a field in it."""
    if not AVRO_NAME.fullmatch(field.name):
        raise UnsupportedFeatureError(
            f"column {column!r} cannot be written to Avro files: {field.name!r} is no name of a field there; use "
            "letters, digits and underscores, or file.format=parquet"
        )
    _check_type(column, field.type)


def _check_type(column: str, data_type: DataType) -> None:
    match data_type:
        case ArrayType(element=element):
            _check_type(column, element)
        case MapType(key=key, value=value):
            _check_type(column, key)
            _check_type(column, value)
        case RowType(fields=fields):
            for field in fields:
                check_avro(column, field)
        case ScalarType(root=root, precision=precision):
            most = _MILLIS_PRECISION_MAX if root is TypeRoot.TIME else _MICROS_PRECISION_MAX
            if (root in TIMESTAMP_ROOTS or root is TypeRoot.TIME) and (precision or 0) > most:
                raise UnsupportedFeatureError(
                    f"column {column!r} cannot be written to Avro files, which hold {root} up to {most} digits "
                    f"of a second, not {data_type}; use file.format=parquet"
                )


def _schema_of(data_type: DataType, path: str) -> Any:
    schema = _not_null(data_type, path)
    return ["null", schema] if data_type.nullable else schema


def _not_null(data_type: DataType, path: str) -> Any:
    match data_type:
        case ArrayType(element=element):
            return {"type": "array", "items": _schema_of(element, path)}
        case MapType(key=key, value=value) if key.root in TEXT_ROOTS:
            return {"type": "map", "values": _schema_of(value, path)}
        case MapType(key=key, value=value):
            entry = [
                {"name": "key", "type": _schema_of(with_nullable(key, False), f"{path}_key")},
                _field("value", value, f"{path}_value"),
            ]
            return {"type": "array", "items": {"type": "record", "name": path, "fields": entry}, "logicalType": "map"}
        case RowType(fields=fields):
            parts = [_field(field.name, field.type, f"{path}_{field.name}") for field in fields]
            return {"type": "record", "name": path, "fields": parts}
    return _scalar(data_type)


def _field(name: str, data_type: DataType, path: str) -> dict[str, Any]:
    field = {"name": name, "type": _schema_of(data_type, path)}
    return {**field, "default": None} if data_type.nullable else field


def _scalar(data_type: ScalarType) -> Any:
    root, precision = data_type.root, data_type.precision or 0
    if root in _PLAIN:
        return _PLAIN[root]
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        return "string" if root in TEXT_ROOTS else "bytes"
    if root is TypeRoot.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": data_type.scale or 0}
    if root is TypeRoot.DATE:
        return {"type": "int", "logicalType": "date"}
    if root is TypeRoot.TIME:
        return {"type": "int", "logicalType": "time-millis"}
    zone = "local-" if root is TypeRoot.TIMESTAMP_LTZ else ""
    unit = "millis" if precision <= _MILLIS_PRECISION_MAX else "micros"
    return {"type": "long", "logicalType": f"{zone}timestamp-{unit}"}
