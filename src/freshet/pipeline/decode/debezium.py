"""Debezium's change envelope, with or without a `schema` next to it: each record may have either form.

| record | outcome |
|---|---|
| op r, c | `+I` of `after` |
| op u | `+U` of `after`; `before` goes along |
| op d | `-D` of `before`, else of the key's fields |
| no value, `payload` null | skipped: tombstone |
| an empty line of a file | skipped: blank line |
| op t | stops the run, or skipped: truncate |
| op m | skipped: message |
| `status` BEGIN or END | skipped: transaction |
| `databaseName` or `ddl` | skipped: schema change |
| nothing but `ts_ms` | skipped: heartbeat |
| no JSON, no envelope, an unknown op, a missing image | dead letter |

Source: Debezium 3.5/3.6 captures of PostgreSQL and MariaDB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from freshet.pipeline.decode.change import (
    DELETE,
    INSERT,
    NO_ENVELOPE,
    TOMBSTONE,
    UPDATE_AFTER,
    Change,
    Dead,
    Facts,
    RawRecord,
    Reading,
    Skipped,
    Truncate,
    facts_of,
    key_image,
    message_of,
    whole_ts,
)
from freshet.pipeline.decode.json_value import JsonValue, text_of

SCHEMA_CHANGE: Final = "schema change"
KINDS: Final = {"r": INSERT, "c": INSERT, "u": UPDATE_AFTER, "d": DELETE}
_OP_SHOWN_MAX: Final = 10


def read_envelope(record: RawRecord) -> Reading:
    """What a change envelope says."""
    top = message_of(record)
    if not isinstance(top, dict):
        return top
    schema, body = top.get("schema"), top
    if top.get("op") is None and "payload" in top:
        body = top["payload"]
        if body is None and isinstance(schema, dict):
            return Skipped(TOMBSTONE)
        if not isinstance(body, dict):
            return Dead(NO_ENVELOPE)
    return read_body(body, facts_of(row_fields(schema)), lambda: key_image(record.key))


def read_body(
    body: dict[str, JsonValue],
    facts: Facts,
    key: Callable[[], dict[str, JsonValue] | None],
    no_envelope: str = NO_ENVELOPE,
) -> Reading:
    """What the members of an envelope say; `key` gives the fields of the message key."""
    before, after, op = body.get("before"), body.get("after"), text_of(body.get("op"))
    source = body.get("source")
    if not isinstance(before, dict | None) or not isinstance(after, dict | None):
        return Dead(no_envelope, source=source)
    if op is None:
        return _other(body)
    if op == "t":
        return Truncate(source)
    if op == "m":
        return Skipped("message")
    if op not in KINDS:
        return Dead(f"unknown op {op[:_OP_SHOWN_MAX]}", source=source)
    image = after
    if op == "d":
        image = before if before is not None else key()
    if image is None:
        what = (
            "a delete without before and without the key in the message key" if op == "d" else "no after in the record"
        )
        return Dead(what, source=source)
    return Change(
        kind=KINDS[op],
        image=image,
        before=before if op == "u" else None,
        facts=facts,
        op=op,
        ts_ms=whole_ts(body.get("ts_ms")),
        source=source,
    )


def _other(body: dict[str, JsonValue]) -> Reading:
    """What a record without an operation is, if it is something that Debezium writes."""
    if body.get("status") in ("BEGIN", "END"):
        return Skipped("transaction")
    if body.get("ddl") is not None or body.get("databaseName") is not None:
        return Skipped(SCHEMA_CHANGE)
    if body.get("before") is None and body.get("after") is None and body.get("ts_ms") is not None:
        return Skipped("heartbeat")
    return Dead("no Debezium envelope: op is missing")


def row_fields(schema: JsonValue) -> JsonValue:
    """The fields of the row in the schema of an envelope, or None. `before` and `after` have the same type; a delete's
    schema has both."""
    members = schema.get("fields") if isinstance(schema, dict) else None
    for each in members if isinstance(members, list) else ():
        if isinstance(each, dict) and each.get("field") == "after":
            return each.get("fields")
    return None
