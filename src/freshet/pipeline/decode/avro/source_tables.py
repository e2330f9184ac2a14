"""Which source table each change in Avro is of, and what the writer schema of a record says of its table.

The names are read by the column, before the whole is decoded: 1 µs a record more. A table's columns are the fields of
`after` (`before`) of a change, those of the record where it is a plain row; its key has those of the record's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.avro.container import DatumColumns
from freshet.pipeline.decode.avro.schemas import MAGIC, Schemas, UnreadableError, groups_of, schemas_of
from freshet.pipeline.decode.avro.values import DatumError, member, values
from freshet.pipeline.decode.avro.writer_schema import Node, WriterSchema
from freshet.pipeline.decode.change import RawRecord, key_image
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.source_table import PARTS, SourceTable
from freshet.pipeline.decode.sql_types import DECIMAL_DIGITS_MAX, STRING, sql_type_of_name

_PLAIN = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bytes": "BYTES",
    "fixed": "BYTES",
}  # fmt: skip


class AvroTables:
    """Reads the names of one registry's records; those of other forms are left out."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._schemas = schemas_of(settings)
        self._readers: dict[int, tuple[WriterSchema, DatumColumns] | None] = {}

    def by_table(
        self, block: RecordBlock, column: pa.Array, indexes: RowIndexes
    ) -> Iterator[tuple[SourceTable, RowIndexes]]:
        """The records at these indexes of a binary column by their tables; a table may come several times."""
        for group in groups_of(column, indexes):
            reader = self._reader(group.schema_id, block, int(group.indexes[0]))
            if reader is None:
                continue
            schema, datums = reader
            found = datums.read(group.datums)
            if found is None:
                continue  # a broken one is among them
            try:
                names = _names(found, schema.root)
            except DatumError:
                continue
            for parts in dict.fromkeys(names):
                if parts[2]:
                    rows = [row for row, each in enumerate(names) if each == parts]
                    yield SourceTable(*(part or "" for part in parts)), group.indexes[rows]

    def _reader(self, schema_id: int, block: RecordBlock, index: int) -> tuple[WriterSchema, DatumColumns] | None:
        if schema_id not in self._readers:
            topic = block.column(raw_records.TOPIC)[index].as_py()
            try:
                schema = self._schemas.find(schema_id, topic or "")
            except UnreadableError:
                return None
            root = schema.root
            source = root.fields.get("source")
            is_read = schema.is_columnar and root.kind == "record" and not root.is_nullable
            is_read = is_read and source is not None and source.kind == "record" and "op" in root.fields
            self._readers[schema_id] = (schema, DatumColumns(schema)) if is_read else None
        return self._readers[schema_id]


def described_avro(
    record: RawRecord, settings: RegistrySettings, *, is_envelope: bool
) -> tuple[Mapping[str, str], tuple[str, ...]] | None:
    """The columns with their types in SQL, and the key, as the writer schemas of a change or a plain row say them; None
    where the record is none."""
    schemas = schemas_of(settings)
    try:
        node, _ = schemas.read(record.value or b"", record.topic)
    except UnreadableError:
        return None
    row = (node.fields.get("after") or node.fields.get("before")) if is_envelope else node
    if row is None or row.kind != "record":
        return None
    source = node.fields["source"].name if is_envelope and "source" in node.fields else ""
    return {name: sql_type_of_node(each, source) for name, each in row.fields.items()}, _keys(record, schemas)


def sql_type_of_node(node: Node, source: str = "") -> str:
    """The type of a column; STRING for what has none of its own. `source` as `sql_types` has it."""
    if node.is_decimal:
        scale, precision = node.scale or 0, node.precision or DECIMAL_DIGITS_MAX
        fits = 0 <= scale <= precision <= DECIMAL_DIGITS_MAX
        return f"DECIMAL({precision}, {scale})" if fits else STRING
    named = sql_type_of_name(node.name, source)
    if named is not None:
        return named
    if node.is_uuid:
        return STRING
    if node.kind == "array" and node.item is not None:
        return f"ARRAY<{sql_type_of_node(node.item, source)}>"
    if node.kind == "map" and node.item is not None:
        return f"MAP<{STRING}, {sql_type_of_node(node.item, source)}>"
    return _PLAIN.get(node.kind, STRING)


def _keys(record: RawRecord, schemas: Schemas) -> tuple[str, ...]:
    if not record.key or record.key[0] != MAGIC:
        return tuple(key_image(record.key) or ())
    try:
        node, _ = schemas.read(record.key, record.topic)
    except UnreadableError:
        return ()
    return tuple(node.fields) if node.kind == "record" else ()


def _names(datum: pa.Array, root: Node) -> list[tuple[Any, ...]]:
    """db, schema, table of each datum; None for what it does not name."""
    node = root.fields["source"]
    source = member(datum, root, "source")
    columns = [
        values(member(source, node, part), node.fields[part]) if part in node.fields else [None] * len(datum)
        for part in PARTS
    ]
    return list(zip(*columns, strict=True))
