"""What a record says, as the careful path reads it: a change, or why it is none.

`read_record` of `reading` gives one of these for every record. A record that must stop the run raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.decode.dialect import BYTES, STRING, Fact
from freshet.pipeline.decode.json_value import JsonValue, parse_json

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
"""Row kinds, as in `freshet.storage.model.row_kind`."""

NO_ENVELOPE: Final = "the value is not JSON of the form expected"
NO_OBJECT: Final = "the value is not a JSON object"
TOMBSTONE, BLANK_LINE = "tombstone", "blank line"

_SCALE: Final = re.compile("-?[0-9]{1,4}")

Facts = Mapping[str, Fact] | None
"""What the record's schema says of the fields; None when the record brings no schema."""


class Change(Frozen):
    """A row that was inserted, updated or deleted. `before` is the row before an update, where the record brings it."""

    kind: int
    image: Mapping[str, JsonValue]
    before: Mapping[str, JsonValue] | None = None
    facts: Facts = None
    op: str | None = None
    ts_ms: int | None = None
    source: JsonValue = None


class Skipped(Frozen):
    """A record that is only counted."""

    reason: str


class Dead(Frozen):
    """A record that cannot be read."""

    reason: str
    column: str | None = None
    source: JsonValue = None
    """Where it could be read: it names the table of the record."""


class Truncate(Frozen):
    """A record that says that the source table was truncated."""

    source: JsonValue = None


class Several(Frozen):
    """The changes of a record that has several rows, at least two, in their order; all of one kind and source."""

    changes: tuple[Change, ...]

    @property
    def source(self) -> JsonValue:
        """The source of the record."""
        return self.changes[0].source


Reading = Change | Several | Skipped | Dead | Truncate


class RawRecord(Frozen):
    """One record; `is_line` for lines of files."""

    key: bytes | None
    value: bytes | None
    is_line: bool = False
    topic: str = ""
    """For messages."""
    old_key: bytes | None = None
    """The key that the row had before, as a header says it."""


def changes_of(reading: Reading) -> tuple[Change, ...]:
    """The changes of a record; none where it is none."""
    match reading:
        case Change():
            return (reading,)
        case Several(changes):
            return changes
    return ()


def message_of(record: RawRecord) -> dict[str, JsonValue] | Skipped | Dead:
    """The JSON object that the value of a record is, or what becomes of a record whose value is none."""
    value = record.value
    if value is None or value == b"null":
        return Skipped(TOMBSTONE)
    if not value.strip():
        return Skipped(BLANK_LINE) if record.is_line else Dead("the value is empty")
    found = json_object(value)
    return Dead(NO_ENVELOPE) if found is None else found


def key_image(key: bytes | None) -> dict[str, JsonValue] | None:
    """The fields of a message key, which may be under `payload` next to a `schema`; None when it is no object."""
    return unwrapped(json_object(key))


def json_object(octets: bytes | None) -> dict[str, JsonValue] | None:
    """The JSON object that some bytes are; None where they are none, or it is nested too deep."""
    try:
        value = None if octets is None else parse_json(octets.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def unwrapped(members: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    """The object under `payload` where `schema` and `payload` are all there is; None when that is no object."""
    if members is not None and is_wrapped(members):
        payload = members["payload"]
        return payload if isinstance(payload, dict) else None
    return members


def is_wrapped(members: Mapping[str, JsonValue]) -> bool:
    """True for just `schema` and `payload`."""
    return len(members) == 2 and "schema" in members and "payload" in members


def facts_of(fields: JsonValue) -> Facts:
    """The facts in the list of fields of a Connect schema; None when it is no list."""
    if not isinstance(fields, list):
        return None
    facts = {}
    for each in fields:
        if isinstance(each, dict) and isinstance(each.get("field"), str):
            facts[each["field"]] = _fact(each)
    return facts


def _fact(schema: Mapping[str, JsonValue]) -> Fact:
    name, parameters, items = schema.get("name"), schema.get("parameters"), schema.get("items")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    own = int(scale) if isinstance(scale, str) and _SCALE.fullmatch(scale) else None
    kind = schema.get("type")
    return Fact(
        name if isinstance(name, str) else "",
        own,
        _fact(items) if isinstance(items, dict) else None,
        kind if kind in (BYTES, STRING) else "",
    )


def whole_ts(value: JsonValue) -> int | None:
    """`ts_ms` as a BIGINT, None where it is none."""
    text = str(value) if isinstance(value, str) else ""
    number = int(text) if len(text) < 20 and text.lstrip("-").isdecimal() and text.isascii() else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
