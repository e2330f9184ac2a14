"""The options of a stream that a table gives: of the Spark format `freshet` and of a `table` source in a pipeline file.

What they mean is in `sources.stream_source`. Needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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

_OF_BATCHES: Final = ("scan.timestamp", "scan.version", "incremental-between", "incremental-between-timestamp")

_NUMBER: Final = re.compile(r"-?[0-9]+")

ISOLATIONS: Final = ("committed", "speculative", "none")

PlannedStream = SplitStream | LoggedSplitStream


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
    others = [option for option in _OF_BATCHES if option in options]
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
