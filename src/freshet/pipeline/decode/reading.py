"""A record of any format, read as the careful path reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from freshet._lazy import LazyModule
from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.canal import read_canal
from freshet.pipeline.decode.change import RawRecord, Reading
from freshet.pipeline.decode.debezium import read_envelope
from freshet.pipeline.decode.flat import read_row, read_unwrapped
from freshet.pipeline.decode.maxwell import read_maxwell
from freshet.pipeline.decode.plan import RegistrySettings

if TYPE_CHECKING:
    from freshet.pipeline.decode.avro import reading as _avro
    from freshet.pipeline.decode.avro import schemas as _schemas
else:
    _avro = LazyModule("freshet.pipeline.decode.avro.reading")
    _schemas = LazyModule("freshet.pipeline.decode.avro.schemas")


def read_record(
    format_name: Format,
    record: RawRecord,
    kind_field: str | None = None,
    registry: RegistrySettings | None = None,
) -> Reading:
    """What the record says; `kind_field` names the member with the row kind of `row-kind` records, `registry` has the
    schemas of records in Avro."""
    match format_name:
        case "debezium-json":
            return read_envelope(record)
        case "debezium-unwrapped":
            return read_unwrapped(record)
        case "canal-json":
            return read_canal(record)
        case "maxwell-json":
            return read_maxwell(record)
        case "debezium-avro":
            assert registry is not None, "a rule of the pipeline file"
            return _avro.read_avro_envelope(record, _schemas.schemas_of(registry))
        case "avro":
            assert registry is not None, "a rule of the pipeline file"
            return _avro.read_avro_row(record, _schemas.schemas_of(registry))
        case "json" | "row-kind":
            return read_row(record, kind_field)
        case unknown:
            assert_never(unknown)
