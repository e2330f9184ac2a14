"""What records in Avro say, as the careful path reads them.

| format | a record is | no value |
|---|---|---|
| debezium-avro | Debezium's envelope, with the outcomes of `decode.debezium` | skipped: tombstone |
| avro | a row (`+I`) | skipped: tombstone |

A value that is not in the wire format, or does not decode with its schema, is a dead letter. A deletion without
`before` is read through its key, in Avro or JSON; a key that cannot be read is none.
"""

from __future__ import annotations

from freshet.pipeline.decode.avro.schemas import Schemas, UnreadableError
from freshet.pipeline.decode.avro.wire import MAGIC
from freshet.pipeline.decode.change import (
    INSERT,
    TOMBSTONE,
    Change,
    Dead,
    Facts,
    RawRecord,
    Reading,
    Skipped,
    key_image,
)
from freshet.pipeline.decode.debezium import read_body
from freshet.pipeline.decode.json_value import JsonValue

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
    facts: Facts = None
    for image in ("after", "before"):
        row = node.fields.get(image)
        if row is not None and row.kind == "record":
            facts = row.facts
            break
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
