"""Which source table each record of a block is of, read without the rest of the record.

| format | the name stands in |
|---|---|
| debezium-json | `source` of the envelope, or of `payload` |
| debezium-avro | the same, by the column (`decode.avro.source_tables`) |
| canal-json, maxwell-json | `database` and `table` of the message |
| debezium-unwrapped | the fields that the transformation adds (`add.fields`), else nowhere: the topic is the table |
| json, avro, row-kind | nowhere: the topic is the table |

Measured: 0.5 µs a record of 650 bytes; of unwrapped rows 1.1 µs, 3.3 with a schema of 1.3 KB beside them. Of records
that no cache holds yet it is 2.3 µs, a fifth of what becomes of them: so where all records of a topic were Debezium
envelopes of one table, those that follow are taken for the same (`presumed`), which is checked as they are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.config.formats import PLAIN_FORMATS, Format
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.column_block import columns_of
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.plan import RegistrySettings
from freshet.pipeline.decode.source_table import ADDED_NAMES, SourceTable, table_of_topic

if TYPE_CHECKING:
    from freshet.pipeline.decode.avro.source_tables import AvroTables

ByTable = dict[SourceTable | None, RowIndexes]
"""Indexes in the block; under None those whose table only the careful path can tell."""


SORTED_MIN: Final = 10_000
"""Records of a topic that are sorted in any case: to make the structs that refuse other tables takes 10 ms, as long as
5000 are sorted."""


class SortedRecords(Frozen):
    """The records of a block by their tables."""

    by_table: ByTable
    may_be_wrapped: bool = True
    """Whether a record may have a schema beside its payload; False where all were seen to have none."""


_NOT_READ: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Source(msgspec.Struct, gc=False):
    db: str | None = None
    schema: str | None = None
    table: str | None = None


class _Payload(msgspec.Struct, gc=False):
    op: str | None = None
    source: _Source | None = None


class _Envelope(msgspec.Struct, gc=False):
    op: str | None = None
    source: _Source | None = None
    payload: _Payload | None = None


class _Message(msgspec.Struct, gc=False):
    type: str | None = None
    database: str | None = None
    table: str | None = None
    payload: ClassVar[None] = None


_NOTHING: Final = msgspec.Raw()


class _Row(
    msgspec.Struct,
    gc=False,
    rename=dict(zip(("own_db", "db", "own_schema", "schema", "own_table", "table"), ADDED_NAMES, strict=True))
    | {"beside": "schema"},
):
    """An unwrapped row: both forms of the names that were added to it, and some of what is in records of transactions,
    schema changes and heartbeats, and in those with a schema beside them."""

    own_db: str | None = None
    db: str | None = None
    own_schema: str | None = None
    schema: str | None = None
    own_table: str | None = None
    table: str | None = None
    event_count: msgspec.Raw = _NOTHING
    databaseName: msgspec.Raw = _NOTHING  # noqa: N815 - as in the records
    ts_ms: msgspec.Raw = _NOTHING
    beside: msgspec.Raw = _NOTHING
    payload: msgspec.Raw = _NOTHING


class _Wrapped(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_AROUND: Final = b'{"schema":,"payload":}'


class UnwrappedTables:
    """Reads the names in the fields that were added to unwrapped rows, with or without a schema beside them."""

    def __init__(self) -> None:
        self._row = msgspec.json.Decoder(_Row).decode
        self._wrapped = msgspec.json.Decoder(_Wrapped).decode
        self._known: dict[Any, SourceTable | None] = {}

    def tables(self, values: Sequence[bytes], topics: Sequence[str]) -> list[SourceTable | None]:
        """The table of each record; None where only the careful path can tell, or it may be no row."""
        names_of, known = self._names, self._known
        found: list[SourceTable | None] = []
        for value, topic in zip(values, topics, strict=True):
            try:
                names = names_of(value)
            except _NOT_READ:
                found.append(None)
                continue
            if names is None or names[2]:
                of: Any = names
            else:
                of = topic
            if of not in known:
                known[of] = self._table(of)
            found.append(known[of])
        return found

    def _names(self, value: bytes) -> tuple[str | None, str | None, str | None] | None:
        """db, schema and table; None where the record may be no row."""
        row = self._row(value)
        if row.payload and row.beside:
            # Else it is a row with columns of these names, or the payload is no object.
            with suppress(msgspec.ValidationError):
                payload = row.payload if _is_all(row, value) else self._wrapped(value).payload
                row = self._row(payload)
        table = row.own_table if row.own_table is not None else row.table
        if not table and (row.payload or row.ts_ms or row.event_count or row.databaseName or row.beside):
            return None
        return (
            row.own_db if row.own_db is not None else row.db,
            row.own_schema if row.own_schema is not None else row.schema,
            table,
        )

    @staticmethod
    def _table(of: tuple[str | None, ...] | str | None) -> SourceTable | None:
        if isinstance(of, str):
            return table_of_topic("debezium-unwrapped", of)
        return None if of is None else SourceTable(*(part or "" for part in of))


def _is_all(row: _Row, value: bytes) -> bool:
    """Whether a value is a schema and a payload as converters write them, and no more."""
    return len(row.beside) + len(row.payload) + len(_AROUND) == len(value)


class RecordSorter:
    """Sorts the records of one format."""

    def __init__(self, format_name: Format, registry: RegistrySettings | None = None) -> None:
        self._format = format_name
        self._by_topic = format_name in PLAIN_FORMATS
        self._avro: AvroTables | None = None
        if registry is not None and not self._by_topic:
            from freshet.pipeline.decode.avro.source_tables import AvroTables

            self._avro = AvroTables(registry)
        self._unwrapped = UnwrappedTables() if format_name == "debezium-unwrapped" else None
        self._known: dict[Any, SourceTable | None] = {}
        shape: type[Any] = _Envelope if format_name == "debezium-json" else _Message
        self._decode = msgspec.json.Decoder(shape).decode
        self._may_presume = format_name == "debezium-json"
        self._of_topics: dict[str, SourceTable | None] = {}
        """The one table of each topic; None where there were others."""
        self._sorted: Counter[str] = Counter()
        """Records of each topic that were sorted."""

    def sort(self, block: Any, indexes: RowIndexes) -> SortedRecords:
        """The records at these indexes, whose values are not NULL."""
        columns = columns_of(block)
        if columns is not None:
            return SortedRecords(dict(columns.by_table(indexes)))
        if self._avro is not None:
            return SortedRecords(self._of_avro(self._avro, block, indexes))
        if self._by_topic:
            return SortedRecords(dict(tables_of_topics(self._format, block, indexes)))
        if self._unwrapped is not None:
            topics = block.taken(raw_records.TOPIC, indexes).to_pylist()
            return SortedRecords(_grouped(self._unwrapped.tables(block.values(indexes), topics), indexes))
        tables, may_be_wrapped = self._tables(block.values(indexes))
        by_table = _grouped(tables, indexes)
        if self._may_presume and not may_be_wrapped:
            self._learn(block, by_table)
        return SortedRecords(by_table, may_be_wrapped)

    def presumed(self, block: Any, indexes: RowIndexes) -> tuple[dict[SourceTable, RowIndexes], RowIndexes]:
        """The records at these indexes whose topics have had one table alone, by that table, and the others.

        They may be of another table all the same, or no change.
        """
        of_topics = {topic: of for topic, of in self._of_topics.items() if self._sorted[topic] >= SORTED_MIN}
        if not any(of_topics.values()):
            return {}, indexes
        found: dict[SourceTable | None, list[RowIndexes]] = {}
        for topic, rows in _by_topic(block, indexes):
            found.setdefault(of_topics.get(topic), []).append(rows)
        joined = {table: np.sort(np.concatenate(rows)) for table, rows in found.items()}
        others = joined.pop(None, indexes[:0])
        return {table: rows for table, rows in joined.items() if table is not None}, others

    def forget(self, table: SourceTable) -> None:
        """Many records that were taken for those of this table are not: none are from now on."""
        self._of_topics |= {topic: None for topic, of in self._of_topics.items() if of == table}

    def _learn(self, block: Any, by_table: ByTable) -> None:
        """Which topics have one table, of a block of envelopes."""
        for table, indexes in by_table.items():
            for topic, rows in _by_topic(block, indexes):
                self._sorted[topic] += len(rows)
                if self._of_topics.setdefault(topic, table) != table:
                    self._of_topics[topic] = None

    def _of_avro(self, tables: AvroTables, block: Any, indexes: RowIndexes) -> ByTable:
        found: dict[SourceTable | None, list[RowIndexes]] = {}
        for table, rows in tables.by_table(block, block.column(raw_records.VALUE), indexes):
            found.setdefault(table, []).append(rows)
        by_table: ByTable = {table: np.sort(np.concatenate(parts)) for table, parts in found.items()}
        left = np.setdiff1d(indexes, np.concatenate(list(by_table.values()))) if by_table else indexes
        return {**by_table, None: left} if len(left) else by_table

    def _tables(self, values: Sequence[bytes]) -> tuple[list[SourceTable | None], bool]:
        """The table of each, and whether one may have a payload."""
        decode, parts_of, known = self._decode, _PARTS[self._format], self._known
        tables: list[SourceTable | None] = []
        may_be_wrapped = False
        for value in values:
            try:
                record = decode(value)
            except _NOT_READ:
                tables.append(None)
                may_be_wrapped = True
                continue
            parts = parts_of(record)
            if parts not in known:
                known[parts] = SourceTable(*(part or "" for part in parts)) if parts is not None and parts[2] else None
            tables.append(known[parts])
            may_be_wrapped = may_be_wrapped or record.payload is not None
        return tables, may_be_wrapped


_Parts = tuple[str | None, str | None, str | None] | None


def _envelope_parts(record: _Envelope) -> _Parts:
    found = record if record.op is not None or record.payload is None else record.payload
    source = found.source
    return None if found.op is None or source is None else (source.db, source.schema, source.table)


def _message_parts(record: _Message) -> _Parts:
    return None if record.type is None else (record.database, None, record.table)


_PARTS: Final[Mapping[Format, Callable[[Any], _Parts]]] = {
    "debezium-json": _envelope_parts,
    "canal-json": _message_parts,
    "maxwell-json": _message_parts,
}


def _grouped(tables: Sequence[SourceTable | None], indexes: RowIndexes) -> ByTable:
    found = dict.fromkeys(tables)
    if len(found) == 1:
        return {tables[0]: indexes}
    codes = {table: code for code, table in enumerate(found)}
    coded = np.fromiter(map(codes.__getitem__, tables), np.int64, len(tables))
    return {table: indexes[coded == code] for table, code in codes.items()}


def tables_of_topics(format_name: Format, block: Any, indexes: RowIndexes) -> Iterator[tuple[SourceTable, RowIndexes]]:
    """The records at these indexes by the tables that their topics stand for."""
    for topic, rows in _by_topic(block, indexes):
        table = table_of_topic(format_name, topic)
        assert table is not None, "a format whose topics stand for tables"
        yield table, rows


def _by_topic(block: Any, indexes: RowIndexes) -> Iterator[tuple[str, RowIndexes]]:
    """The records at these indexes by their topics."""
    topics: Any = pc.fill_null(block.taken(raw_records.TOPIC, indexes), "").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        yield topic, indexes[codes == code]
