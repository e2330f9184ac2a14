"""Messages of Canal and Maxwell, which read MySQL's binary log.

Canal (FlatMessage): the rows that one statement changed in one table, `data`, each a map of texts.

| record | outcome |
|---|---|
| INSERT | `+I` of each row of `data` |
| UPDATE | `+U` of each row; the row before goes along: the same with what `old` has in its place over it |
| DELETE | `-D` of each row |
| no value | skipped: tombstone |
| an empty line of a file | skipped: blank line |
| TRUNCATE | stops the run, or skipped: truncate |
| `isDdl`, CREATE, ALTER, ERASE, RENAME, CINDEX, DINDEX | skipped: schema change |
| QUERY that is no DDL (a binary log of statements) | skipped: statement |
| GTID, XACOMMIT, XAROLLBACK | skipped: transaction |
| MHEARTBEAT, TIDB_WATERMARK | skipped: heartbeat |
| no JSON, no message, an unknown type, no rows, more or fewer `old` than rows | dead letter |

The rows of a message are applied together, or the message is one dead letter. `old` left out, or NULL for a row: the
row before is not known. `_source.x` is the member x of the message, `_op` its `type`, `_ts_ms` its `ts`.

Measured (`bench.decode_bench`, 200,000 rows of ten columns, one core that was not quiet): 3.5 to 4 µs of CPU a message
of one row, 270,000 records a second; 2.0 to 2.3 µs a row in messages of eight, 460,000 rows a second. The same changes
in debezium-json: 1.7 to 2.4 µs, 500,000 a second.

Maxwell: one row of one table, `data`, with values in the types of JSON.

| record | outcome |
|---|---|
| insert, bootstrap-insert | `+I` of `data` |
| update | `+U` of `data`; the row before goes along: the same with what `old` has over it |
| delete | `-D` of `data` |
| no value | skipped: tombstone |
| an empty line of a file | skipped: blank line |
| bootstrap-start, bootstrap-complete | skipped: bootstrap |
| table-create, table-alter, table-drop, database-create, database-alter, database-drop | skipped: schema change |
| no JSON, no message, an unknown type, no `data` | dead letter |

`old` left out: the row before is not known. `_source.x` is the member x of the message, `_op` its `type`, `_ts_ms` its
`ts` in milliseconds. Maxwell does not tell of TRUNCATE.

Measured (`bench.decode_bench`, 200,000 rows of ten columns, one core that was not quiet): 1.5 to 2.3 µs of CPU a
message, 530,000 a second; the same changes in debezium-json 1.7 to 2.4 µs, 500,000 a second.

Source: alibaba/canal, FlatMessage and EntryProtocol; TiCDC's documentation of the same format; zendesk/maxwell,
docs/docs/dataformat.md and bootstrapping.md.
"""

from __future__ import annotations

from typing import Final

from freshet.pipeline.decode.change import (
    DELETE,
    INSERT,
    NO_ENVELOPE,
    UPDATE_AFTER,
    Change,
    Dead,
    RawRecord,
    Reading,
    Several,
    Skipped,
    Truncate,
    message_of,
    whole_ts,
)
from freshet.pipeline.decode.json_value import JsonValue, text_of

CANAL_KINDS: Final = {"INSERT": INSERT, "UPDATE": UPDATE_AFTER, "DELETE": DELETE}

_CANAL_PASSED_OVER: Final = {
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX"), "schema change"),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), "transaction"),
    **dict.fromkeys(("MHEARTBEAT", "TIDB_WATERMARK"), "heartbeat"),
    "QUERY": "statement",
}
_ROWS: Final = ("data", "old")
_CANAL_SHOWN_MAX: Final = 10


def read_canal(record: RawRecord) -> Reading:
    """What a message of Canal says."""
    message = message_of(record)
    if not isinstance(message, dict):
        return message
    kind = text_of(message.get("type"))
    source = {name: value for name, value in message.items() if name not in _ROWS}
    if kind is None:
        return Dead("no Canal message: type is missing", source=source)
    if kind == "TRUNCATE":
        return Truncate(source)
    if kind in CANAL_KINDS:
        return _changes(message, kind, source)
    if message.get("isDdl") is True:
        return Skipped("schema change")
    if kind in _CANAL_PASSED_OVER:
        return Skipped(_CANAL_PASSED_OVER[kind])
    return Dead(f"unknown type {kind[:_CANAL_SHOWN_MAX]}", source=source)


def _changes(message: dict[str, JsonValue], kind: str, source: JsonValue) -> Reading:
    rows, olds = message.get("data"), message.get("old") if kind == "UPDATE" else None
    if not isinstance(rows, list | None) or not isinstance(olds, list | None):
        return Dead(NO_ENVELOPE, source=source)
    if not rows:
        return Dead("no rows in data", source=source)
    if olds is None:
        olds = [None] * len(rows)
    if len(olds) != len(rows):
        return Dead("data and old have different numbers of rows", source=source)
    ts_ms = whole_ts(message.get("ts"))
    changes = []
    for row, old in zip(rows, olds, strict=True):
        if not isinstance(row, dict) or not isinstance(old, dict | None):
            return Dead(NO_ENVELOPE, source=source)
        before = None if old is None else {**row, **old}
        changes.append(Change(CANAL_KINDS[kind], row, before, op=kind, ts_ms=ts_ms, source=source))
    return changes[0] if len(changes) == 1 else Several(tuple(changes))


MAXWELL_KINDS: Final = {"insert": INSERT, "bootstrap-insert": INSERT, "update": UPDATE_AFTER, "delete": DELETE}
SECOND_MS: Final = 1000
"""`ts` is in seconds."""

TS_MAX: Final = (2**63 - 1) // SECOND_MS
"""Seconds whose milliseconds fit a BIGINT; others are none."""

_MAXWELL_PASSED_OVER: Final = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), "bootstrap"),
    **{f"{what}-{change}": "schema change" for what in ("table", "database") for change in ("create", "alter", "drop")},
}
_MAXWELL_SHOWN_MAX: Final = 20


def read_maxwell(record: RawRecord) -> Reading:
    """What a message of Maxwell says."""
    message = message_of(record)
    if not isinstance(message, dict):
        return message
    kind = text_of(message.get("type"))
    source: JsonValue = {name: value for name, value in message.items() if name not in _ROWS}
    if kind is None:
        return Dead("no Maxwell message: type is missing", source=source)
    if kind in _MAXWELL_PASSED_OVER:
        return Skipped(_MAXWELL_PASSED_OVER[kind])
    if kind not in MAXWELL_KINDS:
        return Dead(f"unknown type {kind[:_MAXWELL_SHOWN_MAX]}", source=source)
    row, old = message.get("data"), message.get("old") if kind == "update" else None
    if not isinstance(row, dict | None) or not isinstance(old, dict | None):
        return Dead(NO_ENVELOPE, source=source)
    if row is None:
        return Dead("no data in the record", source=source)
    before = None if old is None else {**row, **old}
    ts = whole_ts(message.get("ts"))
    ts_ms = None if ts is None or abs(ts) > TS_MAX else ts * SECOND_MS
    return Change(MAXWELL_KINDS[kind], row, before, op=kind, ts_ms=ts_ms, source=source)
