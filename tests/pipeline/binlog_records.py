"""Messages of Canal and Maxwell in the shapes that their documentation shows, and how they write a row."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]


def canal(kind: str, rows: Sequence[Any] | None, old: Sequence[Any] | None = None, **members: Any) -> dict[str, Any]:
    """A message of Canal; the values of the rows are texts or None."""
    types = {name: "varchar(255)" for row in rows or () if isinstance(row, dict) for name in row} or None
    return {
        "data": rows, "database": "shop", "es": 1700000000000, "id": 9, "isDdl": False, "mysqlType": types, "old": old,
        "pkNames": ["id"], "sql": "", "sqlType": None if types is None else dict.fromkeys(types, 12),
        "table": "orders", "ts": 1700000000798, "type": kind, **members,
    }  # fmt: skip


def maxwell(kind: str, row: Any = None, old: Any = None, **members: Any) -> dict[str, Any]:
    """A message of Maxwell; `old` None leaves it out."""
    message = {
        "database": "shop", "table": "orders", "type": kind, "ts": 1700000000, "xid": 23396, "commit": True,
        "position": "master.000006:800911", "server_id": 23042, "primary_key_columns": ["id"], "data": row, **members,
    }  # fmt: skip
    return message if old is None else {**message, "old": old}


def canal_value(value: Any) -> str | None:
    """How Canal writes a value."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case bytes():
            return value.decode("latin-1")
        case datetime.datetime():
            return _stamp(value)
        case _:
            return str(value)


def maxwell_value(value: Any) -> Any:
    """How Maxwell writes a value."""
    match value:
        case bool():
            return int(value)
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return _stamp(value)
        case Decimal() | datetime.date():
            return str(value)
        case _:
            return value


def _stamp(value: datetime.datetime) -> str:
    return value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
