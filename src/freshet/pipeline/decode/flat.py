"""Records that are plain rows: one JSON object whose members are the fields.

`json` and `row-kind`: every record is a row (`+I`, or the kind that a field names); no value is skipped.

In all of them an empty line of a file is skipped.

`debezium-unwrapped` (ExtractNewRecordState), with or without a `schema` next to it:

| record | outcome |
|---|---|
| a row | `+I`, or by `__op` if it is there |
| `__deleted` true, `__op` d | `-D` of the row |
| no value, `payload` null | `-D` of the key's fields, with or without schema |
| `__op` t | stops the run, or skipped: truncate |
| heartbeats, transaction and schema-change records, which pass the transformation unchanged | skipped |

The fields `__…` that the transformation adds are never unknown fields; `_source.x` is `__source_x`, else `__x`.
"""

from __future__ import annotations

from typing import Final

from freshet.pipeline.decode.change import (
    BLANK_LINE,
    DELETE,
    INSERT,
    NO_OBJECT,
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
    is_wrapped,
    json_object,
    unwrapped,
    whole_ts,
)
from freshet.pipeline.decode.json_value import JsonValue, text_of

ADDED_PREFIX: Final = "__"
"""Begins the names of the fields that ExtractNewRecordState adds."""

KINDS: Final = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
_SHOWN_MAX: Final = 10


def read_row(record: RawRecord, kind_field: str | None) -> Reading:
    """What a plain JSON object says; `kind_field` names the member with the row kind of `row-kind` records."""
    value = record.value
    if value is None or value == b"null":
        return Skipped(TOMBSTONE)
    if record.is_line and not value.strip():
        return Skipped(BLANK_LINE)
    members = json_object(value)
    if members is None:
        return Dead(NO_OBJECT)
    if kind_field is None:
        return Change(INSERT, members)
    given = text_of(members.get(kind_field))
    if given in KINDS:
        return Change(KINDS[given], members)
    shown = "NULL" if given is None else given[:_SHOWN_MAX]
    return Dead(f"{kind_field} is no row kind (+I, -U, +U, -D): {shown}")


def is_tombstone(value: bytes | None) -> bool:
    """Whether an unwrapped record has no row: no value, `null`, or a `payload` that is null."""
    if value is None or value == b"null":
        return True
    root = json_object(value)
    return root is not None and is_wrapped(root) and root["payload"] is None


def read_unwrapped(record: RawRecord) -> Reading:
    """What a row that ExtractNewRecordState has unwrapped says."""
    value = record.value
    if value is not None and record.is_line and not value.strip():
        return Skipped(BLANK_LINE)
    root = None if value is None or value == b"null" else json_object(value)
    is_gone = value is None or value == b"null" or (root is not None and is_wrapped(root) and root["payload"] is None)
    if is_gone:
        # A tombstone is read through its key, which has the same two forms.
        root = json_object(record.key)
    elif root is None:
        return Dead(NO_OBJECT)
    members = unwrapped(root)
    if members is None:
        return Dead("a tombstone whose key is not a JSON object" if is_gone else "the payload is not a JSON object")
    op, deleted = text_of(members.get("__op")), text_of(members.get("__deleted"))
    if not is_gone:
        other = _other(record, members, op)
        if other is not None:
            return other
    is_delete = is_gone or deleted == "true" or op == "d"
    ts_ms = members.get("__ts_ms")
    return Change(
        kind=DELETE if is_delete else UPDATE_AFTER if op == "u" else INSERT,
        image=members,
        facts=_facts(root),
        op=op,
        ts_ms=whole_ts(ts_ms if ts_ms is not None else members.get("__source_ts_ms")),
        source=AddedSource(members),
    )


class AddedSource(dict[str, JsonValue]):
    """The fields of `_source` among those that the transformation added."""

    def __init__(self, members: dict[str, JsonValue]) -> None:
        super().__init__()
        self._members = members

    def get(self, name: str, default: JsonValue = None) -> JsonValue:  # type: ignore[override]
        """The value of `__source_NAME`, else of `__NAME`."""
        first = self._members.get(f"{ADDED_PREFIX}source_{name}")
        return first if first is not None else self._members.get(ADDED_PREFIX + name, default)


def _other(record: RawRecord, members: dict[str, JsonValue], op: str | None) -> Reading | None:
    if op == "t":
        return Truncate(AddedSource(members))
    if members.keys() >= {"status", "id", "event_count", "data_collections"}:
        return Skipped("transaction")
    if members.keys() >= {"source", "databaseName"}:
        return Skipped("schema change")
    if members.keys() == {"ts_ms"} and record.key is not None and b'"serverName"' in record.key:
        return Skipped("heartbeat")
    return None


def _facts(root: dict[str, JsonValue] | None) -> Facts:
    if root is None or not is_wrapped(root) or not isinstance(root["schema"], dict):
        return None
    return facts_of(root["schema"].get("fields"))
