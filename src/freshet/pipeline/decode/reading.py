"""A record of any format, read as the careful path reads it."""

from __future__ import annotations

from typing import assert_never

from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.canal import read_canal
from freshet.pipeline.decode.change import RawRecord, Reading
from freshet.pipeline.decode.debezium import read_envelope
from freshet.pipeline.decode.flat import read_row, read_unwrapped
from freshet.pipeline.decode.maxwell import read_maxwell


def read_record(format_name: Format, record: RawRecord, kind_field: str | None = None) -> Reading:
    """What the record says; `kind_field` names the member with the row kind of `row-kind` records."""
    match format_name:
        case "debezium-json":
            return read_envelope(record)
        case "debezium-unwrapped":
            return read_unwrapped(record)
        case "canal-json":
            return read_canal(record)
        case "maxwell-json":
            return read_maxwell(record)
        case "json" | "row-kind":
            return read_row(record, kind_field)
        case unknown:
            assert_never(unknown)
