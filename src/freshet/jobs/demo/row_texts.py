"""Rows as texts, so that those of a database and those of a lake can be compared value by value, and counted.

| type of the column in the lake | text |
|---|---|
| DECIMAL | the number without zeros at its end |
| FLOAT, DOUBLE | the shortest text that is this number and no other |
| DATE, TIME, TIMESTAMP | ISO; WITH LOCAL TIME ZONE in UTC |
| BYTES | hexadecimal digits |
| ARRAY | the texts of its items |
| others | the value as it is |
"""

from __future__ import annotations

import datetime
import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa


def texts_of_table(rows: pa.Table, columns: Sequence[str]) -> Counter[str]:
    """How often each row of a table is there, by its text. Raises `KeyError` for a column that it does not have."""
    chosen = rows.select(columns)
    return Counter(_text(row) for row in chosen.to_pylist())


def texts_of_json(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Counter[str]:
    """The same of rows as PostgreSQL shows them in JSON, by the types that the table of the lake has.

    Numbers are `Decimal`. Raises `ValueError` where a value is none of its type.
    """
    return Counter(_text({name: _value(value, schema.field(name).type) for name, value in row.items()}) for row in rows)


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _shown(value) for name, value in row.items()}, ensure_ascii=False)


def _shown(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value


def _value(value: Any, arrow_type: pa.DataType) -> Any:
    """What a row of the lake holds if it holds this."""
    if value is None:
        return None
    if pa.types.is_list(arrow_type):
        return [_value(each, arrow_type.value_type) for each in value]
    if pa.types.is_integer(arrow_type):
        return int(value)
    if pa.types.is_decimal(arrow_type):
        return Decimal(value)
    if pa.types.is_float32(arrow_type):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if pa.types.is_float64(arrow_type):
        return float(value)
    if pa.types.is_date(arrow_type):
        return datetime.date.fromisoformat(value)
    if pa.types.is_time(arrow_type):
        return datetime.time.fromisoformat(value)
    if pa.types.is_timestamp(arrow_type):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type):
        return bytes.fromhex(value.removeprefix("\\x"))
    return value
