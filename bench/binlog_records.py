"""The change stream of the CDC benchmarks as Canal and Maxwell write it: the rows of `cdc_records`.

`old` holds the columns that changed. With several rows a message of Canal holds that many changes of one kind, in the
order in which they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from bench.cdc_records import records

_CANAL: Final = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
_MAXWELL: Final = {"c": "insert", "u": "update", "d": "delete"}


def maxwell_records(count: int) -> Iterator[tuple[int, bytes]]:
    """(key, value) of each message."""
    for key, value in records(count):
        change = json.loads(value)
        message = {
            "database": "shop", "table": "orders", "type": _MAXWELL[change["op"]], "ts": change["ts_ms"] // 1000,
            "xid": change["ts_ms"], "commit": True, "position": "master.000006:800911", "data": _row(change),
        }  # fmt: skip
        if change["op"] == "u":
            message["old"] = _old(change)
        yield key, _text(message)


def canal_records(count: int, rows: int = 1) -> Iterator[tuple[int, bytes]]:
    """(key of the first row, value) of messages of up to `rows` rows, `count` rows in all."""
    waiting: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for key, value in records(count):
        change = json.loads(value)
        pending = waiting.setdefault(change["op"], [])
        pending.append((key, change))
        if len(pending) == rows:
            yield _canal(pending)
            pending.clear()
    yield from (_canal(pending) for pending in waiting.values() if pending)


def _canal(changes: list[tuple[int, dict[str, Any]]]) -> tuple[int, bytes]:
    key, first = changes[0]
    data = [{name: _canal_text(item) for name, item in _row(change).items()} for _, change in changes]
    old = [{name: _canal_text(item) for name, item in _old(change).items()} for _, change in changes]
    message = {
        "data": data, "database": "shop", "es": first["ts_ms"], "id": 9, "isDdl": False,
        "mysqlType": dict.fromkeys(data[0], "varchar(64)"), "old": old if first["op"] == "u" else None,
        "pkNames": ["id"], "sql": "", "sqlType": dict.fromkeys(data[0], 12), "table": "orders",
        "ts": first["ts_ms"], "type": _CANAL[first["op"]],
    }  # fmt: skip
    return key, _text(message)


def _row(change: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = change["after"] if change["after"] is not None else change["before"]
    return row


def _old(change: dict[str, Any]) -> dict[str, Any]:
    after = change["after"] or {}
    return {name: value for name, value in (change["before"] or {}).items() if after.get(name) != value}


def _canal_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _text(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
