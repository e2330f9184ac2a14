"""Maxwell's messages: one row of one table, `data`, with values in the types of JSON.

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

Source: zendesk/maxwell, docs/docs/dataformat.md and bootstrapping.md.
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
    Skipped,
    message_of,
    whole_ts,
)
from freshet.pipeline.decode.json_value import JsonValue, text_of

KINDS: Final = {"insert": INSERT, "bootstrap-insert": INSERT, "update": UPDATE_AFTER, "delete": DELETE}
SECOND_MS: Final = 1000
"""`ts` is in seconds."""

TS_MAX: Final = (2**63 - 1) // SECOND_MS
"""Seconds whose milliseconds fit a BIGINT; others are none."""

_PASSED_OVER: Final = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), "bootstrap"),
    **{f"{what}-{change}": "schema change" for what in ("table", "database") for change in ("create", "alter", "drop")},
}
_ROWS: Final = ("data", "old")
_SHOWN_MAX: Final = 20


def read_maxwell(record: RawRecord) -> Reading:
    """What a message of Maxwell says."""
    message = message_of(record)
    if not isinstance(message, dict):
        return message
    kind = text_of(message.get("type"))
    source: JsonValue = {name: value for name, value in message.items() if name not in _ROWS}
    if kind is None:
        return Dead("no Maxwell message: type is missing", source=source)
    if kind in _PASSED_OVER:
        return Skipped(_PASSED_OVER[kind])
    if kind not in KINDS:
        return Dead(f"unknown type {kind[:_SHOWN_MAX]}", source=source)
    row, old = message.get("data"), message.get("old") if kind == "update" else None
    if not isinstance(row, dict | None) or not isinstance(old, dict | None):
        return Dead(NO_ENVELOPE, source=source)
    if row is None:
        return Dead("no data in the record", source=source)
    before = None if old is None else {**row, **old}
    ts = whole_ts(message.get("ts"))
    ts_ms = None if ts is None or abs(ts) > TS_MAX else ts * SECOND_MS
    return Change(KINDS[kind], row, before, op=kind, ts_ms=ts_ms, source=source)
