"""The options of a batch frame that say which state of a table it shows, or which changes. Needs no Spark.

| option | shows |
|---|---|
| `scan.snapshot-id` | that snapshot |
| `scan.tag-name` | the snapshot of a tag |
| `scan.timestamp-millis`, `scan.timestamp` | the newest snapshot committed at or before a time |
| `scan.version` | a tag of this name, else the snapshot of this id |
| `incremental-between` | `3,7`: what was committed after snapshot 3, up to 7; or after one tag, up to another |
| `incremental-between-timestamp` | the same between two times |
| `incremental-between-scan-mode` | `auto`, `delta`, `changelog` or `diff`, as in `Table.changes_between` |

At most one of them, besides the mode. A time is in milliseconds since 1970, or a text such as `2026-11-27 08:00:00`, of
the time zone of the machine where it names none. Keys and meanings are those of Apache Paimon, but that it reads the
mode for tags only with `incremental-between-tag-to-snapshot`.

Source: MERGING.md §6.4, §6.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.config.stream_options import SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION, whole_number
from freshet.pipeline.exceptions import InvalidRequestError

TIME_OPTION: Final = "scan.timestamp"
VERSION_OPTION: Final = "scan.version"
BETWEEN_OPTION: Final = "incremental-between"
BETWEEN_TIMES_OPTION: Final = "incremental-between-timestamp"
BETWEEN_MODE_OPTION: Final = "incremental-between-scan-mode"

TRAVEL_OPTIONS: Final = (SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION, TIME_OPTION, VERSION_OPTION)
BETWEEN_OPTIONS: Final = (BETWEEN_OPTION, BETWEEN_TIMES_OPTION)

_NUMBER: Final = re.compile(r"[0-9]+")
_WATERMARK: Final = "watermark-"

TagNames = Callable[[], Collection[str]]
"""The names of a table's tags, where they are needed."""


class Travel(Frozen):
    """The snapshot asked for, as arguments of `Table.scan`; none of them for the latest."""

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp_ms: int | None = None


class ChangesBetween(Frozen):
    """The changes asked for, as arguments of `Table.changes_between`."""

    start: int | str | datetime
    end: int | str | datetime
    mode: str


def check_travel(options: Mapping[str, str]) -> None:
    """Raises `InvalidRequestError` for options that exclude each other."""
    chosen = [option for option in (*TRAVEL_OPTIONS, *BETWEEN_OPTIONS) if option in options]
    if len(chosen) > 1:
        raise InvalidRequestError(f"give at most one of {', '.join(chosen)}")
    if BETWEEN_MODE_OPTION in options and not any(option in options for option in BETWEEN_OPTIONS):
        raise InvalidRequestError(
            f"option {BETWEEN_MODE_OPTION} says how changes are read: give {BETWEEN_OPTION} or {BETWEEN_TIMES_OPTION}, "
            "such as '3,7'"
        )


def travel_of(options: Mapping[str, str], tags: TagNames) -> Travel:
    """The snapshot that the options ask for."""
    if VERSION_OPTION in options:
        return _version(options[VERSION_OPTION].strip(), tags)
    timestamp_ms = whole_number(options, TIMESTAMP_OPTION)
    if TIME_OPTION in options:
        timestamp_ms = _millis(options[TIME_OPTION], TIME_OPTION)
    return Travel(whole_number(options, SNAPSHOT_OPTION), options.get(TAG_OPTION), timestamp_ms)


def between_of(options: Mapping[str, str], tags: TagNames) -> ChangesBetween | None:
    """The changes that the options ask for; None where they ask for none."""
    mode = options.get(BETWEEN_MODE_OPTION, "auto").strip()
    if BETWEEN_TIMES_OPTION in options:
        start, end = (
            datetime.fromtimestamp(_millis(text, BETWEEN_TIMES_OPTION) / 1000, UTC)
            for text in _pair(options, BETWEEN_TIMES_OPTION)
        )
        return ChangesBetween(start, end, mode)
    if BETWEEN_OPTION not in options:
        return None
    first, last = _pair(options, BETWEEN_OPTION)
    known = tags()
    if first in known and last in known:
        return ChangesBetween(first, last, mode)
    if not (_NUMBER.fullmatch(first) and _NUMBER.fullmatch(last)):
        raise InvalidRequestError(
            f"option {BETWEEN_OPTION} is two snapshot ids such as '3,7', or two tags, not {options[BETWEEN_OPTION]!r}; "
            f"tags of the table: {', '.join(sorted(known)) or 'none'}"
        )
    return ChangesBetween(int(first), int(last), mode)


def _version(text: str, tags: TagNames) -> Travel:
    known = tags()
    if text in known:
        return Travel(tag=text)
    if _NUMBER.fullmatch(text):
        return Travel(snapshot_id=int(text))
    if text.startswith(_WATERMARK):
        raise InvalidRequestError(
            f"option {VERSION_OPTION}: snapshots are not looked up by watermark; name one, or a tag"
        )
    raise InvalidRequestError(
        f"option {VERSION_OPTION} is a tag or the id of a snapshot, not {text!r}; tags of the table: "
        f"{', '.join(sorted(known)) or 'none'}"
    )


def _pair(options: Mapping[str, str], option: str) -> tuple[str, str]:
    parts = [part.strip() for part in options[option].split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidRequestError(
            f"option {option} is a start, which is not part of it, and an end, such as '3,7', not {options[option]!r}"
        )
    return parts[0], parts[1]


def _millis(text: str, option: str) -> int:
    """Milliseconds since 1970 of a number of them or a time."""
    given = text.strip()
    if _NUMBER.fullmatch(given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"option {option} is a time such as '2026-11-27 08:00:00', or milliseconds since 1970, not {text!r}"
        ) from error
    return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)
