"""The options of frames over a table: of the Spark format `freshet` and of a `table` source in a pipeline file.

What those of a stream mean is in `sources.stream_source`. Those of a frame that is no stream say which state of the
table it shows, or which changes:

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
mode for tags only with `incremental-between-tag-to-snapshot`. Needs no Spark.

Source: MERGING.md §6.4, §6.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.table import Table
from freshet.storage.table_engine import LoggedSplitStream, StreamLimit

FILTER_OPTION: Final = "filter"
COLUMNS_OPTION: Final = "columns"
SNAPSHOT_OPTION: Final = "scan.snapshot-id"
TAG_OPTION: Final = "scan.tag-name"
TIMESTAMP_OPTION: Final = "scan.timestamp-millis"

MODE_OPTION: Final = "scan.mode"
ISOLATION_OPTION: Final = "log.read.isolation"
CONSUMER_OPTION: Final = "consumer-id"
SNAPSHOT_COLUMN_OPTION: Final = "with-snapshot-id"
UPSERTS_OPTION: Final = "upserts"
FILES_OPTION: Final = "maxFilesPerTrigger"
BYTES_OPTION: Final = "maxBytesPerTrigger"
ROWS_OPTION: Final = "maxRowsPerTrigger"
OFFSETS_OPTION: Final = "maxOffsetsPerTrigger"

LOG_OPTIONS: Final = ("log.on-truncated", "log.on-lake-only")
KAFKA_PREFIX: Final = "kafka."
"""Options of the table that a query may set for itself."""

STREAM_OPTIONS: Final = (
    MODE_OPTION, ISOLATION_OPTION, CONSUMER_OPTION, SNAPSHOT_COLUMN_OPTION, UPSERTS_OPTION, FILES_OPTION, BYTES_OPTION,
    ROWS_OPTION, OFFSETS_OPTION, *LOG_OPTIONS,
)  # fmt: skip
"""Those that a frame which is no stream does not have."""

_NUMBER: Final = re.compile(r"-?[0-9]+")

ISOLATIONS: Final = ("committed", "speculative", "none")

PlannedStream = SplitStream | LoggedSplitStream
TIME_OPTION: Final = "scan.timestamp"
VERSION_OPTION: Final = "scan.version"
BETWEEN_OPTION: Final = "incremental-between"
BETWEEN_TIMES_OPTION: Final = "incremental-between-timestamp"
BETWEEN_MODE_OPTION: Final = "incremental-between-scan-mode"

TRAVEL_OPTIONS: Final = (SNAPSHOT_OPTION, TAG_OPTION, TIMESTAMP_OPTION, TIME_OPTION, VERSION_OPTION)
BETWEEN_OPTIONS: Final = (BETWEEN_OPTION, BETWEEN_TIMES_OPTION)

_DIGITS: Final = re.compile(r"[0-9]+")
_WATERMARK: Final = "watermark-"

TagNames = Callable[[], Collection[str]]
"""The names of a table's tags, where they are needed."""


class StreamOptions(Frozen):
    """What the options of a streaming frame ask for."""

    request: StreamRequest
    limit: StreamLimit

    def stream(self, table: Table) -> PlannedStream:
        """The changes asked for; raises as `Table.stream` does."""
        return table.engine.split_stream(self.request)


def stream_options(options: Mapping[str, str]) -> StreamOptions | None:
    """What a streaming frame asks for; None for one that is not. Raises for options of a stream without its mode.

    Names are in small letters, as Spark hands them over.
    """
    mode = options.get(MODE_OPTION)
    given = [option for option in STREAM_OPTIONS if option.lower() in options]
    others = [option for option in (TIME_OPTION, VERSION_OPTION, *BETWEEN_OPTIONS) if option in options]
    if mode is not None and others:
        raise InvalidRequestError(
            f"option {others[0]} is one of frames that are no streams; a stream begins where {MODE_OPTION}, "
            f"{SNAPSHOT_OPTION} and {TIMESTAMP_OPTION} say"
        )
    if mode is None:
        if given:
            raise InvalidRequestError(
                f"option {given[0]} is given without {MODE_OPTION}: a stream over a table needs both, for "
                f"example option({MODE_OPTION!r}, 'latest-full')"
            )
        return None
    if TAG_OPTION in options:
        raise InvalidRequestError(f"a stream cannot begin at a tag ({TAG_OPTION}); give {SNAPSHOT_OPTION}")
    request = StreamRequest(
        columns=column_list(options),
        filter=options.get(FILTER_OPTION),
        scan_mode=mode,
        from_snapshot=whole_number(options, SNAPSHOT_OPTION),
        from_timestamp=whole_number(options, TIMESTAMP_OPTION),
        consumer_id=options.get(CONSUMER_OPTION),
        with_snapshot_id=flag(options, SNAPSHOT_COLUMN_OPTION),
        upserts=flag(options, UPSERTS_OPTION),
        isolation=_isolation(options),
    )
    limits = (_count(options, option) for option in (FILES_OPTION, BYTES_OPTION, ROWS_OPTION, OFFSETS_OPTION))
    return StreamOptions(request, StreamLimit(*limits))


def table_for(table: Table, options: Mapping[str, str]) -> Table:
    """The table with the options that this query sets for itself."""
    own = {key: text for key, text in options.items() if key in LOG_OPTIONS or key.startswith(KAFKA_PREFIX)}
    return table.with_options(own) if own else table


def column_list(options: Mapping[str, str]) -> list[str] | None:
    """The names in `columns`."""
    columns = options.get(COLUMNS_OPTION)
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def whole_number(options: Mapping[str, str], option: str) -> int | None:
    """The value of an option that is a number, None where it is not given."""
    text = options.get(option.lower())
    if text is None:
        return None
    if not _NUMBER.fullmatch(text.strip()):
        raise InvalidRequestError(f"option {option} must be a whole number, not {text!r}")
    return int(text)


def _isolation(options: Mapping[str, str]) -> str | None:
    text = options.get(ISOLATION_OPTION)
    if text is not None and text.lower() not in ISOLATIONS:
        raise InvalidRequestError(f"option {ISOLATION_OPTION} is one of {', '.join(ISOLATIONS)}, not {text!r}")
    return None if text is None else text.lower()


def flag(options: Mapping[str, str], option: str) -> bool:
    """The value of an option that is true or false, false where it is not given."""
    text = options.get(option.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(f"option {option} must be true or false, not {text!r}")
    return text == "true"


def _count(options: Mapping[str, str], option: str) -> int | None:
    number = whole_number(options, option)
    if number is not None and number <= 0:
        raise InvalidRequestError(f"option {option} must be greater than 0, not {number}")
    return number


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
    if not (_DIGITS.fullmatch(first) and _DIGITS.fullmatch(last)):
        raise InvalidRequestError(
            f"option {BETWEEN_OPTION} is two snapshot ids such as '3,7', or two tags, not {options[BETWEEN_OPTION]!r}; "
            f"tags of the table: {', '.join(sorted(known)) or 'none'}"
        )
    return ChangesBetween(int(first), int(last), mode)


def _version(text: str, tags: TagNames) -> Travel:
    known = tags()
    if text in known:
        return Travel(tag=text)
    if _DIGITS.fullmatch(text):
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
    if _DIGITS.fullmatch(given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"option {option} is a time such as '2026-11-27 08:00:00', or milliseconds since 1970, not {text!r}"
        ) from error
    return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)
