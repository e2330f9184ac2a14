"""Records in Avro by the writer schemas of a registry: what each says, as the careful path reads it.

A value is a zero byte, the id of its writer schema in four bytes, and the datum.

| format | a record is | no value |
|---|---|---|
| debezium-avro | Debezium's envelope, with the outcomes of `decode.debezium` | skipped: tombstone |
| avro | a row (`+I`) | skipped: tombstone |

A value that is not in the wire format, or does not decode with its schema, is a dead letter. A deletion without
`before` is read through its key, in Avro or JSON; a key that cannot be read is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.pipeline.decode.avro.values import value_of
from freshet.pipeline.decode.avro.writer_schema import Node, SchemaError, WriterSchema, parse_schema
from freshet.pipeline.decode.change import INSERT, TOMBSTONE, Change, Dead, RawRecord, Reading, Skipped, key_image
from freshet.pipeline.decode.debezium import read_body
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.storage.io.env import process_environment

MAGIC: Final = 0
HEAD_BYTES: Final = 5
_BYTES_MAX: Final = 2**31 - 1
"""No value is longer. Arrow multiplies the end of a slice by the number of values, which must not overflow."""


class Datum(NamedTuple):
    """What a value in the wire format holds."""

    schema_id: int
    octets: bytes


def datum_of(value: bytes) -> Datum | None:
    """The id and the datum; None for what is not in the wire format."""
    if len(value) < HEAD_BYTES or value[0] != MAGIC:
        return None
    return Datum(int.from_bytes(value[1:HEAD_BYTES], "big"), value[HEAD_BYTES:])


class DatumGroup(NamedTuple):
    """Datums of one writer schema, and the indexes of their records in the block."""

    schema_id: int
    indexes: RowIndexes
    datums: pa.Array
    """A binary array."""


def groups_of(values: pa.Array, indexes: RowIndexes) -> Iterator[DatumGroup]:
    """The values at these indexes, none of them NULL, by schema; those not in the wire format are in no group."""
    part = values if len(indexes) == len(values) else values.take(pa.array(indexes))
    heads = pc.binary_slice(part, 0, HEAD_BYTES).dictionary_encode()
    numbers = heads.indices.to_numpy(zero_copy_only=False)
    for number, head in enumerate(heads.dictionary.to_pylist()):
        found = datum_of(head)
        if found is None:
            continue
        is_alone = len(heads.dictionary) == 1
        rows = np.arange(len(part)) if is_alone else np.flatnonzero(numbers == number)
        chosen = part if is_alone else part.take(pa.array(rows))
        yield DatumGroup(found.schema_id, indexes[rows], pc.binary_slice(chosen, HEAD_BYTES, _BYTES_MAX))


NO_WIRE_FORMAT: Final = (
    "the value is not in the wire format of schema registries: a zero byte, the id of a schema, Avro"
)
_REGISTRIES_MAX: Final = 8


class UnreadableError(ValueError):
    """A value cannot be read; the text is the reason of its dead letter."""


class ReadDatum(NamedTuple):
    """A datum and its type."""

    node: Node
    value: JsonValue


class Schemas:
    """The schemas by id. `find` and `read` wait for a registry that is away, and raise then (`SchemaRegistry`)."""

    def __init__(self, settings: RegistrySettings) -> None:
        from freshet.logstore.kafka.schema_registry import SchemaRegistry

        self._registry = SchemaRegistry(settings.resolved(process_environment()))
        self._known: dict[int, WriterSchema | str] = {}
        self._parsed: dict[int, JsonValue] = {}

    def find(self, schema_id: int, topic: str) -> WriterSchema:
        """The schema of an id; raises `UnreadableError` where it is none that can be read."""
        found = self._known.get(schema_id)
        if found is None:
            found = self._known[schema_id] = _parsed(schema_id, self._registry.schema(schema_id, topic))
        if isinstance(found, str):
            raise UnreadableError(found)
        return found

    def read(self, value: bytes, topic: str) -> ReadDatum:
        """A value in the wire format; raises `UnreadableError` where it cannot be read."""
        datum = datum_of(value)
        if datum is None:
            raise UnreadableError(NO_WIRE_FORMAT)
        schema = self.find(datum.schema_id, topic)
        stream = BytesIO(datum.octets)
        try:
            raw = fastavro.schemaless_reader(stream, self._reader_of(datum.schema_id, schema), None)
            found = value_of(schema.root, raw)
        except (EOFError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError) as error:
            raise UnreadableError(_undecoded(datum.schema_id)) from error
        if stream.tell() != len(datum.octets):
            raise UnreadableError(_undecoded(datum.schema_id))
        return ReadDatum(schema.root, found)

    def can_read(self, schema_id: int, schema: WriterSchema, datum: bytes) -> bool:
        """Whether a datum is one of the schema from its first byte to its last."""
        stream = BytesIO(datum)
        try:
            fastavro.schemaless_reader(stream, self._reader_of(schema_id, schema), None)
        except (EOFError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError):
            return False
        return stream.tell() == len(datum)

    def _reader_of(self, schema_id: int, schema: WriterSchema) -> JsonValue:
        found = self._parsed.get(schema_id)
        if found is None:
            found = self._parsed[schema_id] = fastavro.parse_schema(schema.physical)
        return found


@lru_cache(_REGISTRIES_MAX)
def schemas_of(settings: RegistrySettings) -> Schemas:
    """The schemas of this process: workers live for many batches."""
    return Schemas(settings)


def _parsed(schema_id: int, registered: Any) -> WriterSchema | str:
    if not registered.is_avro:
        return f"the schema of id {schema_id} is no Avro schema ({registered.kind})"
    try:
        return parse_schema(registered.text, registered.references)
    except SchemaError as error:
        return f"the schema of id {schema_id} cannot be read: {error}"


def _undecoded(schema_id: int) -> str:
    return f"the value does not decode with the schema of id {schema_id}"


NO_RECORD = "the value is no record of Avro"
_NO_ENVELOPE = "the value is not a record of the form expected"


def read_avro_envelope(record: RawRecord, schemas: Schemas) -> Reading:
    """What a change envelope says."""
    if record.value is None:
        return Skipped(TOMBSTONE)
    try:
        node, body = schemas.read(record.value, record.topic)
    except UnreadableError as error:
        return Dead(str(error))
    if not isinstance(body, dict):
        return Dead(NO_RECORD)
    rows = (node.fields.get(image) for image in ("after", "before"))
    facts = next((row.facts for row in rows if row is not None and row.kind == "record"), None)
    return read_body(body, facts, lambda: read_avro_key(record.key, record.topic, schemas), _NO_ENVELOPE)


def read_avro_row(record: RawRecord, schemas: Schemas) -> Reading:
    """What a plain row says."""
    if record.value is None:
        return Skipped(TOMBSTONE)
    try:
        node, row = schemas.read(record.value, record.topic)
    except UnreadableError as error:
        return Dead(str(error))
    return Change(INSERT, row, facts=node.facts) if isinstance(row, dict) and node.kind == "record" else Dead(NO_RECORD)


def read_avro_key(octets: bytes | None, topic: str, schemas: Schemas) -> dict[str, JsonValue] | None:
    """The fields of a key, in Avro or JSON; None where it cannot be read."""
    if not octets or octets[0] != MAGIC:
        return key_image(octets)
    try:
        node, key = schemas.read(octets, topic)
    except UnreadableError:
        return None
    return key if isinstance(key, dict) and node.kind == "record" else None
