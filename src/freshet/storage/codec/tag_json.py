"""Tag files: a snapshot file, and with a retention two keys more.

| key | value |
|---|---|
| tagCreateTime | local time as an array: year, month, day, hour, minute, then second and nanosecond if they are not 0 |
| tagTimeRetained | seconds as a decimal number of nine places: 86400.000000000 |

Both are there or neither. Nanoseconds are cut to microseconds when they are read.

Source: FORMAT.md §12.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson

from freshet.storage.codec.snapshot_json import decode_snapshot, snapshot_content
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.tag import Tag


def encode_tag(tag: Tag) -> bytes:
    """Bytes of the tag file."""
    content = snapshot_content(tag.snapshot)
    if tag.created is not None and tag.retained is not None:
        content["tagCreateTime"] = _time_fields(tag.created)
        content["tagTimeRetained"] = orjson.Fragment(_seconds_text(tag.retained))
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def decode_tag(name: str, data: bytes, path: str) -> Tag:
    """The tag of this name; `CorruptDataError` for bytes that are no tag."""
    snapshot = decode_snapshot(data, path)
    content: Mapping[str, Any] = orjson.loads(data)
    created, retained = content.get("tagCreateTime"), content.get("tagTimeRetained")
    try:
        return Tag(
            name,
            snapshot,
            None if created is None else _time(created),
            None if retained is None else _duration(retained),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptDataError(
            f"the tag's retention cannot be read (tagCreateTime {created!r}, tagTimeRetained {retained!r}): {error}; "
            "delete the tag, or remove both keys from its file",
            path=path,
        ) from error


def _time_fields(time: datetime) -> list[int]:
    fields = [time.year, time.month, time.day, time.hour, time.minute]
    if time.second or time.microsecond:
        fields.append(time.second)
    if time.microsecond:
        fields.append(time.microsecond * 1000)
    return fields


def _seconds_text(duration: timedelta) -> bytes:
    seconds = duration.days * 86_400 + duration.seconds
    return f"{seconds}.{duration.microseconds:06}000".encode()


def _time(value: Any) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    if not isinstance(value, list) or not 3 <= len(value) <= 7:
        raise ValueError("a local time has three to seven fields")
    fields = [int(field) for field in value]
    return datetime(*fields[:6], microsecond=fields[6] // 1000 if len(fields) == 7 else 0)  # type: ignore[arg-type,misc]


def _duration(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a retention is a number of seconds")
    # The longest timedelta is rounded up to a number of seconds that no timedelta has.
    return timedelta.max if value >= timedelta.max.total_seconds() else timedelta(seconds=value)
