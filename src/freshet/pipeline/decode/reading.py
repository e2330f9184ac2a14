"""A record of any format, read as the careful path reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from freshet._lazy import LazyModule
from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.canal import read_canal
from freshet.pipeline.decode.change import DELETE, INSERT, Change, RawRecord, Reading, key_image
from freshet.pipeline.decode.debezium import read_envelope
from freshet.pipeline.decode.flat import read_row, read_unwrapped
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.maxwell import read_maxwell
from freshet.pipeline.decode.plan import RegistrySettings

if TYPE_CHECKING:
    from freshet.pipeline.decode.avro import reading as _avro
    from freshet.pipeline.decode.avro import schemas as _schemas
else:
    _avro = LazyModule("freshet.pipeline.decode.avro.reading")
    _schemas = LazyModule("freshet.pipeline.decode.avro.schemas")

_SAME_EVENT: Final = ("db", "schema", "table", "txId", "lsn", "scn", "change_lsn", "pos")
"""Members of `source` that a deletion and an insert have in common where they stand for one update."""


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


def old_key_of(
    format_name: Format, record: RawRecord, deletion: Change | None, registry: RegistrySettings | None = None
) -> Mapping[str, JsonValue] | None:
    """The key that the row of an insert had before: what a header says, else that of the deletion which stands for the
    same update. None where neither says it."""
    if record.old_key is None:
        return None if deletion is None else deletion.image
    if registry is None:
        return key_image(record.old_key)
    return _avro.read_avro_key(record.old_key, record.topic, _schemas.schemas_of(registry))


def deletion_of_update(
    format_name: Format, change: Change, before: Iterable[RawRecord], registry: RegistrySettings | None = None
) -> tuple[Change, RawRecord] | None:
    """The deletion that stands for the same update as an insert, if it is the last of the records before it that have a
    value, the nearest first."""
    for record in before if change.kind == INSERT else ():
        if record.value is None:
            continue
        found = read_record(format_name, record, registry=registry)
        if not isinstance(found, Change) or found.kind != DELETE or _event_of(found) is None:
            return None
        return (found, record) if _event_of(found) == _event_of(change) else None
    return None


def _event_of(change: Change) -> Any:
    """What tells the event of a change from others; None where the record does not say it."""
    source = change.source if isinstance(change.source, dict) else {}
    found = tuple(source.get(name) for name in _SAME_EVENT)
    return found if any(each is not None for each in found[3:]) else None
