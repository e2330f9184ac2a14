"""Avro files read: blocks are found by their heads, and decoded some at a time.

A file has no footer: its header and the heads of all blocks are read when it is opened (a file at a store that is asked
by requests is read whole). Chunks are groups of neighbouring blocks of about `CHUNK_ROWS`. Without the extra `avro`
it is by far the slowest format to read, the choice for files that are read once, such as level 0 and
changelogs.

Records become Arrow columns:

| read by | where | 200,000 rows of ten columns, Parquet 0.12 s |
|---|---|---|
| arrow-avro, into columns | the extra `avro` is there, and of `ROWS_MIN` rows | 0.2 s |
| fastavro, into records of which Arrow makes columns | else, and whatever arrow-avro does not take | 2.7 s |

Both read with a copy of the file's schema that is plain: no logical types, text as bytes, maps as arrays of records
(the bytes are the same). So values are numbers and bytes; no dates, decimals or texts are made one by one, and what
columns mean is done to whole columns afterwards. All fields are read: to let fastavro pass over some by a schema of the
reader takes longer (100,000 rows, 9 fields of 10: 0.82 s, not 0.45 s).

Several blocks are one to arrow-avro. Behind their last record it reads one more, made of the sync mark of the file:
where that is not found, a record is too short or too long for its schema, and fastavro says which error the file has.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final, TypeAlias

import fastavro
import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.avro_file import BROKEN, EXPAND
from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.codec.varints import read_signed
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.files.avro.container import SYNC_BYTES, Block, Header, header, read_header
from freshet.storage.files.file_columns import StoredColumns
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader, read_errors
from freshet.storage.files.opening import no_footer, open_file, opened_input, read_part
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField
from freshet.storage.model.nested_arrays import Nested

ROWS_MIN: Final = 1000
"""Fewer rows are not worth what a process pays for its first use of arrow-avro: the time of 20,000 by fastavro."""

_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.binary(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    # The names are swapped in files of Paimon; the zone is that of the column.
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_DECIMAL_BYTES: Final = 16

Finish: TypeAlias = "Callable[[pa.Array[Any]], pa.Array[Any]]"


class _Part(Frozen):
    """A type of the file: what fastavro reads, as what Arrow takes it, and what it becomes then."""

    plain: Any
    raw: pa.DataType
    result: pa.DataType
    finish: Finish


class Decoder:
    """Decodes records of one file, some of the columns; prepared once for many blocks."""

    def __init__(self, file: Header, columns: Collection[str]) -> None:
        names = _Names()
        everything = {field["name"]: names.part(field["type"]) for field in file.schema["fields"]}
        self._parts = {name: part for name, part in everything.items() if name in columns}
        self._plain = {"type": "record", "name": "record", "fields": _fields(everything)}
        self._file = file
        self._arrow: _MarkedColumns | None = None

    def columns(self, blocks: bytes, row_count: int) -> tuple[int, dict[str, pa.Array[Any]]]:
        """The number of records in these blocks, and their columns; `row_count` is what the heads of the blocks say."""
        raw = self._by_arrow(blocks) if row_count >= ROWS_MIN and has_arrow_avro() else None
        if raw is None:
            head = header(self._plain, self._file.codec, self._file.sync)
            reader: Any = fastavro.reader(io.BytesIO(head + blocks))
            records = list(reader)
            row_count = len(records)
            raw = {name: pa.array([each[name] for each in records], part.raw) for name, part in self._parts.items()}
        return row_count, {name: part.finish(raw[name]) for name, part in self._parts.items()}

    def _by_arrow(self, blocks: bytes) -> dict[str, pa.Array[Any]] | None:
        """The raw columns; None where fastavro has to read the blocks."""
        if self._arrow is None:
            self._arrow = _MarkedColumns(self._plain, self._file.sync)
        try:
            records, row_count = _expanded(blocks, self._file)
            batch = self._arrow.read(records, row_count)
            if batch is None:
                return None
            found: dict[str, pa.Array[Any]] = {}
            for name, part in self._parts.items():
                column = batch.column(name)
                found[name] = column if column.type == part.raw else column.cast(part.raw)
        except BROKEN:
            return None
        return found


def has_arrow_avro() -> bool:
    """Whether arrow-avro is there: it comes with the extra `avro`."""
    return find_spec("polars_avro") is not None


class _MarkedColumns:
    """Records of one schema by arrow-avro, and behind them one that is known."""

    def __init__(self, plain: Any, octets: bytes) -> None:
        from freshet._arrow_avro import ArrowAvro

        self._records = ArrowAvro(plain)
        self._mark = _some_value(plain, octets)
        encoded = io.BytesIO()
        fastavro.schemaless_writer(encoded, fastavro.parse_schema(plain), self._mark)
        self._encoded_mark = encoded.getvalue()

    def read(self, records: list[bytes], row_count: int) -> pa.RecordBatch | None:
        batch = self._records.read([*records, self._encoded_mark], row_count + 1)
        if batch is None or batch.slice(row_count).to_pylist() != [self._mark]:
            return None
        return batch.slice(0, row_count)


def _some_value(plain: Any, octets: bytes) -> Any:
    """A value of a plain type, made of octets that chance does not bring."""
    kind = plain["type"] if isinstance(plain, dict) else plain
    if isinstance(kind, list):
        return _some_value(next(one for one in kind if one != "null"), octets)
    match kind:
        case "record":
            return {field["name"]: _some_value(field["type"], octets) for field in plain["fields"]}
        case "array":
            return []
        case "bytes":
            return octets
        case "boolean":
            return True
    number = int.from_bytes(octets[:3], "big")
    return number if kind in ("int", "long") else float(number)


def _expanded(blocks: bytes, file: Header) -> tuple[list[bytes], int]:
    """The records of the blocks, and their number; one of `BROKEN` where the blocks are none."""
    expand, view = EXPAND[file.codec], memoryview(blocks)
    records, position, row_count = [], 0, 0
    while position < len(blocks):
        rows, position = read_signed(blocks, position)
        size, position = read_signed(blocks, position)
        end = position + size
        if view[end : end + SYNC_BYTES] != file.sync:
            raise ValueError("a block does not end with the mark of its file")
        records.append(expand(view[position:end]))
        row_count += rows
        position = end + SYNC_BYTES
    return records, row_count


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _fields(parts: dict[str, _Part]) -> list[dict[str, Any]]:
    return [{"name": name, "type": part.plain} for name, part in parts.items()]


class _Names:
    """Gives every record of the plain schema a name of its own: maps have become records, too."""

    def __init__(self) -> None:
        self._count = 0
        self._known: dict[str, Any] = {}
        """Records of the file by their names without the namespace; the same one may come again as its name alone."""

    def part(self, schema: Any) -> _Part:
        if isinstance(schema, list):
            (inner,) = (one for one in schema if one != "null") if len(schema) == 2 and "null" in schema else (None,)
            if inner is None:
                raise UnsupportedFeatureError(f"an Avro file has a union of {schema}; only unions with null are read")
            part = self.part(inner)
            # In the order of the file, which the numbers of its values follow.
            return _Part([part.plain if one != "null" else one for one in schema], part.raw, part.result, part.finish)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.part(kind)
        if kind == "record":
            record = self._record({field["name"]: self.part(field["type"]) for field in schema["fields"]})
            self._known[_bare(schema["name"])] = schema
            return record
        if kind == "array":
            element = self.part(schema["items"])
            is_map = schema.get("logicalType") == "map"
            return _array(element, is_map=is_map)
        if kind == "map":
            entry = self._record({"key": self.part("string"), "value": self.part(schema["values"])})
            return _array(entry, is_map=True)
        if kind in _PLAIN:
            return _scalar(kind, schema if isinstance(schema, dict) else {})
        if _bare(kind) in self._known:
            return self.part(self._known[_bare(kind)])
        raise UnsupportedFeatureError(f"an Avro file has the type {kind!r}, which data files of Paimon do not have")

    def _record(self, parts: dict[str, _Part]) -> _Part:
        self._count += 1
        plain = {"type": "record", "name": f"r{self._count}", "fields": _fields(parts)}
        raw = pa.struct([pa.field(name, part.raw) for name, part in parts.items()])
        result = pa.struct([pa.field(name, part.result) for name, part in parts.items()])
        if raw == result:
            return _Part(plain, raw, result, lambda array: array)

        def finish(array: pa.Array[Any]) -> pa.Array[Any]:
            nested = Nested.of(array)
            made = [part.finish(child) for part, child in zip(parts.values(), nested.children, strict=True)]
            return nested.over(made, result)

        return _Part(plain, raw, result, finish)


def _array(element: _Part, *, is_map: bool) -> _Part:
    plain, raw = {"type": "array", "items": element.plain}, pa.list_(element.raw)
    result = pa.list_(element.result)
    if is_map:
        key, value = element.result.field(0).type, element.result.field(1).type
        result = pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))

    def finish(array: pa.Array[Any]) -> pa.Array[Any]:
        nested = Nested.of(array)
        made = element.finish(nested.children[0])
        return nested.over(made.flatten() if is_map else [made], result)

    return _Part(plain, raw, result, finish)


def _scalar(kind: str, schema: dict[str, Any]) -> _Part:
    raw, logical = _PLAIN[kind], schema.get("logicalType")
    plain = "bytes" if kind == "string" else kind
    if kind == "string":
        return _Part(plain, raw, pa.string(), lambda array: array.cast(pa.string()))
    if logical == "decimal":
        decimal = pa.decimal128(schema["precision"], schema.get("scale", 0))
        return _Part(plain, raw, decimal, lambda array: _decimals(array, decimal))
    result = _LOGICAL.get(logical or "")
    if result is None or result.bit_width != raw.bit_width:
        return _Part(plain, raw, raw, lambda array: array)
    return _Part(plain, raw, result, lambda array: array.cast(result))


def _decimals(array: pa.Array[Any], decimal: pa.DataType) -> pa.Array[Any]:
    """Big-endian numbers of any length as 16 little-endian bytes."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    if len(lengths) and int(lengths.max()) > _DECIMAL_BYTES:
        raise ValueError("a decimal has more than 16 bytes")
    # Column i of the result is the byte of weight 256**i: the last but i of the value, else its sign.
    places = np.arange(_DECIMAL_BYTES)
    at = offsets[1:, None] - 1 - places[None, :]
    is_there = places[None, :] < lengths[:, None]
    padded = data if len(data) else np.zeros(1, np.uint8)
    first = padded[np.minimum(offsets[:-1], len(padded) - 1)]
    sign = np.where((first >= 0x80) & (lengths > 0), np.uint8(0xFF), np.uint8(0))
    little = np.where(is_there, padded[np.where(is_there, at, 0)], sign[:, None])
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(decimal, len(array), [valid, pa.py_buffer(np.ascontiguousarray(little))])


CHUNK_ROWS: Final = 16 * 1024
_HEADER_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 20
"""The count and the size of a block at most."""
_WINDOW_BYTES: Final = 256 * 1024
_DECODED_PER_BYTE: Final = 4


class AvroReader(FileReader):
    """One file open for reading."""

    def __init__(
        self, env: Env, path: str, *, size_bytes: int | None = None, part: tuple[int, int] | None = None
    ) -> None:
        self.path = path
        if env.reads is not None and part is None and size_bytes is not None:
            if size_bytes <= env.file_io.read_costs.whole_bytes:
                data = open_file(env, path, size_bytes, no_footer).data
            else:
                data = read_part(env, path, ByteRange(0, size_bytes), size_bytes)
            self._input: Any = pa.BufferReader(data)
        else:
            self._input = opened_input(env, path, size_bytes, part)
        self._lock = Lock()
        try:
            with _read_errors(path):
                self._size = self._input.size()
                self._header = self._read_header()
                self._chunks = _grouped(self._blocks())
                self._names = [field["name"] for field in self._header.schema["fields"]]
        except BaseException:
            self._input.close()
            raise

    def close(self) -> None:
        self._input.close()

    @property
    def chunk_rows(self) -> Sequence[int]:
        return [sum(block.row_count for block in chunk) for chunk in self._chunks]

    @property
    def column_names(self) -> frozenset[str]:
        return frozenset(self._names)

    def chunk_bytes(self, chunk: int) -> int:
        """An estimate of what the columns of the blocks take."""
        return sum(block.length for block in self._chunks[chunk]) * _DECODED_PER_BYTE

    def chunk_stats(self, chunk: int, source: DataField, wanted: DataField) -> ColumnStats:
        """Nothing: files have no statistics."""
        return NO_STATS

    def batches(
        self,
        fields: Sequence[DataField],
        *,
        chunks: Sequence[int] | None = None,
        batch_rows: int = READ_BATCH_ROWS,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order; a group of blocks is held."""
        decoder = self._decoder(fields)
        for chunk in self._wanted(chunks):
            yield from self._table(fields, decoder, chunk).to_batches(batch_rows)

    def table(
        self, fields: Sequence[DataField], *, chunks: Sequence[int] | None = None, use_threads: bool = True
    ) -> pa.Table:
        """All rows of the groups at once."""
        decoder = self._decoder(fields)
        wanted = self._wanted(chunks)
        if decoder is None:
            return StoredColumns(fields, self.path).table({}, sum(self.chunk_rows[chunk] for chunk in wanted))
        tables = [self._table(fields, decoder, chunk) for chunk in wanted]
        return pa.concat_tables(tables) if tables else arrow_schema(fields).empty_table()

    def _decoder(self, fields: Sequence[DataField]) -> Decoder | None:
        names = {field.name for field in fields} & self.column_names
        with _read_errors(self.path):
            return Decoder(self._header, names) if names else None

    def _table(self, fields: Sequence[DataField], decoder: Decoder | None, chunk: int) -> pa.Table:
        blocks = self._chunks[chunk]
        expected = sum(block.row_count for block in blocks)
        found: dict[str, pa.ChunkedArray[Any]] = {}
        with _read_errors(self.path):
            if decoder is not None:
                first, last = blocks[0], blocks[-1]
                data = self._read(first.offset, last.offset + last.length - first.offset)
                count, columns = decoder.columns(data, expected)
                if count != expected:
                    raise ValueError(f"{count} records where blocks say {expected}")
                found = {name: pa.chunked_array([column]) for name, column in columns.items()}
            return StoredColumns(fields, self.path).table(found, expected)

    def _wanted(self, chunks: Sequence[int] | None) -> Sequence[int]:
        return range(len(self._chunks)) if chunks is None else chunks

    def _read(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._input.seek(offset)
            data: bytes = self._input.read(length)
        return data

    def _read_header(self) -> Any:
        length = _HEADER_BYTES
        while True:
            try:
                return read_header(self._read(0, length))
            except IndexError:
                if length >= self._size:
                    raise
                length *= 4

    def _blocks(self) -> list[Block]:
        found: list[Block] = []
        offset = self._header.length
        start, window = 0, b""
        while offset < self._size:
            if offset + _HEAD_BYTES > start + len(window):
                # Small blocks are found in windows; large ones are passed over, not read.
                start, window = offset, self._read(offset, _WINDOW_BYTES if not found else _window(found[-1].length))
            count, position = read_signed(window, offset - start)
            size, position = read_signed(window, position)
            length = position - (offset - start) + size + SYNC_BYTES
            if count <= 0 or size < 0 or offset + length > self._size:
                raise ValueError("a block is cut short")
            found.append(Block(offset, length, count))
            offset += length
        if found and self._read(self._size - SYNC_BYTES, SYNC_BYTES) != self._header.sync:
            raise ValueError("it does not end with a block")
        return found


def _window(block_bytes: int) -> int:
    return _WINDOW_BYTES if block_bytes * 4 < _WINDOW_BYTES else _HEAD_BYTES


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    groups: list[list[Block]] = []
    rows = CHUNK_ROWS
    for block in blocks:
        if rows >= CHUNK_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(block)
        rows += block.row_count
    return groups


def _read_errors(path: str) -> AbstractContextManager[None]:
    return read_errors(path, "Avro", *BROKEN)
