"""A record of any format, read as the careful path reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode.binlog import read_canal, read_maxwell
from freshet.pipeline.decode.change import DELETE, INSERT, Change, RawRecord, Reading, key_image
from freshet.pipeline.decode.debezium import read_envelope
from freshet.pipeline.decode.flat import read_row, read_unwrapped
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.plan import RegistrySettings

_Reader: TypeAlias = Callable[[RawRecord, str | None, RegistrySettings | None], Reading]

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
    return READERS[format_name](record, kind_field, registry)


def _of_registry(name: str) -> _Reader:
    """The reader of this name of records in Avro."""

    def read(record: RawRecord, kind_field: str | None, registry: RegistrySettings | None) -> Reading:
        from freshet.pipeline.decode.avro import schemas

        assert registry is not None, "a rule of the pipeline file"
        reading: Reading = getattr(schemas, name)(record, schemas.schemas_of(registry))
        return reading

    return read


READERS: Final[dict[str, _Reader]] = {
    "debezium-json": lambda record, *_: read_envelope(record),
    "debezium-unwrapped": lambda record, *_: read_unwrapped(record),
    "canal-json": lambda record, *_: read_canal(record),
    "maxwell-json": lambda record, *_: read_maxwell(record),
    "debezium-avro": _of_registry("read_avro_envelope"),
    "avro": _of_registry("read_avro_row"),
    "json": lambda record, kind_field, _: read_row(record, kind_field),
    "row-kind": lambda record, kind_field, _: read_row(record, kind_field),
}
"""How a record of each format is read."""


def old_key_of(
    format_name: Format, record: RawRecord, deletion: Change | None, registry: RegistrySettings | None = None
) -> Mapping[str, JsonValue] | None:
    """The key that the row of an insert had before: what a header says, else that of the deletion which stands for the
    same update. None where neither says it."""
    if record.old_key is None:
        return None if deletion is None else deletion.image
    if registry is None:
        return key_image(record.old_key)
    from freshet.pipeline.decode.avro.schemas import read_avro_key, schemas_of

    return read_avro_key(record.old_key, record.topic, schemas_of(registry))


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


def _event_of(change: Change) -> tuple[JsonValue, ...] | None:
    """What tells the event of a change from others; None where the record does not say it."""
    source = change.source if isinstance(change.source, dict) else {}
    found = tuple(source.get(name) for name in _SAME_EVENT)
    return found if any(each is not None for each in found[3:]) else None
