"""The writer schemas of one registry in one process, and single datums by them."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro

from freshet._lazy import LazyModule
from freshet.pipeline.decode.avro.values import value_of
from freshet.pipeline.decode.avro.wire import datum_of
from freshet.pipeline.decode.avro.writer_schema import Node, SchemaError, WriterSchema, parse_schema
from freshet.pipeline.decode.json_value import JsonValue
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.storage.io.env import process_environment

NO_WIRE_FORMAT: Final = (
    "the value is not in the wire format of schema registries: a zero byte, the id of a schema, Avro"
)
_REGISTRIES_MAX: Final = 8
_kafka: Any = LazyModule("freshet.logstore.kafka.schema_registry")


class UnreadableError(ValueError):
    """A value cannot be read; the text is the reason of its dead letter."""


class ReadDatum(NamedTuple):
    """A datum and its type."""

    node: Node
    value: JsonValue


class Schemas:
    """The schemas by id. `find` and `read` wait for a registry that is away, and raise then (`SchemaRegistry`)."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._registry = _kafka.SchemaRegistry(settings.resolved(process_environment()))
        self._known: dict[int, WriterSchema | str] = {}
        self._parsed: dict[int, Any] = {}

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

    def _reader_of(self, schema_id: int, schema: WriterSchema) -> Any:
        found = self._parsed.get(schema_id)
        if found is None:
            found = self._parsed[schema_id] = fastavro.parse_schema(schema.physical)
        return found


@lru_cache(_REGISTRIES_MAX)
def schemas_of(settings: RegistrySettings) -> Schemas:
    """Those of this process: workers live for many batches."""
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
