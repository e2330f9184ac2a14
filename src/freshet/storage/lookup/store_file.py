"""One store: the rows of one immutable data file, uncompressed and mapped, so that a key costs what it touches.

    "FRSHLKP2"
    pieces        rows that follow each other, `piece_bytes` of them; of each, one Arrow IPC stream for a few columns
                  each, at multiples of 64 bytes
    first rows    the first row of each piece, as a stream too
    footer        JSON: whose rows these are, the groups of columns, the row counts of pieces, and of each stream its
                  start, length and CRC-32
    tail          length and CRC-32 of the footer (two little-endian UINT32), "FRSHLKP2"

So a store is written as its rows come, of files of any size, with one piece in memory. Rows are in the order of the
data file, so a row has the same position in both; keys are searched in the key columns themselves (`key_search`), in
the piece that the first rows lead to.

A stream is checked when it is used first, since a machine that crashed may have lost what was not synced. Only a store
of more than `CHECKED_BYTES_MAX` that was written since the machine was started is not: to check those of 100 M rows,
13 GB, took 8 s of processor time in the first batch of each process. What Arrow cannot read of it is known as damaged
all the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.ipc as ipc

from freshet._frozen import Frozen, field
from freshet.storage.io.local_cache import LocalCache, NewFile
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.lookup.file_lookup import FoundRows
from freshet.storage.lookup.key_search import SortedKeys, ranges_of
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore
from freshet.storage.merge.sort_words import Positions

MAGIC: Final = b"FRSHLKP2"
"""Another number for every change of what the file holds."""

SUFFIX: Final = ".rows"
GROUPS_MAX: Final = 25
"""Streams of a piece: each has one column, or a few columns of a wide table; all of them where the store is small."""
SMALL_BYTES: Final = 256 * 1024
"""A stream up to this is made in memory, and a store of one such piece has one: 80 rows of six columns are written in
0.4 ms, not 0.8, and opened and asked in 0.8 ms, not 1.1."""

CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Larger stores are not checked as long as the machine runs that has written them."""

_TAIL: Final = struct.Struct("<II8s")
_ALIGNMENT: Final = 64
_IPC: Final = ipc.IpcWriteOptions(use_threads=False)


class ByteSink(Protocol):
    """Takes bytes in order."""

    def write(self, data: Any) -> Any:
        """Appends them."""


class MappedKind(Frozen):
    """A `StoreKind`. A piece is held in memory, and the largest group of its columns once more.

    `machine_start` is that of `Env`.
    """

    piece_bytes: int
    machine_start: str
    suffix: str = SUFFIX

    def begin(
        self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema, key_columns: Sequence[str]
    ) -> MappedWriter:
        """The method of `StoreKind`."""
        file = cache.new_file(name)
        with undone_on_failure(file.discard):
            return MappedWriter(file, StoreEncoder(file, identity, schema, self.piece_bytes, self.machine_start))

    def open(self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema) -> LookupStore | None:
        """The method of `StoreKind`."""
        content = cache.map(name)
        return None if content is None else StoreFile.open(content, identity, self.machine_start)


class MappedWriter(Frozen):
    """A `StoreWriter`."""

    file: NewFile
    encoder: StoreEncoder

    def add(self, rows: pa.Table) -> None:
        """The method of `StoreWriter`."""
        self.encoder.add(rows)

    def publish(self) -> None:
        """The method of `StoreWriter`."""
        self.encoder.finish()
        self.file.publish()

    def discard(self) -> None:
        """The method of `StoreWriter`."""
        self.file.discard()


class StoreEncoder:
    """Writes a whole store as its rows come."""

    def __init__(
        self,
        sink: ByteSink,
        identity: Mapping[str, Any],
        schema: pa.Schema,
        piece_bytes: int,
        machine_start: str = "",
    ) -> None:
        self._out = _Summed(sink)
        self._identity = dict(identity)
        self._machine_start = machine_start
        self._piece_bytes = piece_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._pieces: list[dict[str, Any]] = []
        self._first_rows = [schema.empty_table()]
        width = -(-len(schema) // GROUPS_MAX)
        self._groups = [schema.names[start : start + width] for start in range(0, len(schema), width)]
        self._out.write(MAGIC)

    def add(self, rows: pa.Table) -> None:
        """Appends rows."""
        if rows.num_rows:
            self._pending.append(rows)
            self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self._piece_bytes:
            self._write_piece()

    def finish(self) -> None:
        """Writes what is pending, and the end."""
        if not self._pieces and self._pending_bytes <= SMALL_BYTES:
            self._groups = [[name for group in self._groups for name in group]]
        self._write_piece()
        footer = orjson.dumps(
            {
                "identity": self._identity,
                "machine start": self._machine_start,
                "groups": self._groups,
                "pieces": self._pieces,
                "first rows": self._stream(pa.concat_tables(self._first_rows)),
            }
        )
        self._out.write(footer)
        self._out.write(_TAIL.pack(len(footer), zlib.crc32(footer), MAGIC))

    def _write_piece(self) -> None:
        if not self._pending:
            return
        rows, self._pending, self._pending_bytes = pa.concat_tables(self._pending), [], 0
        self._first_rows.append(rows.take(pa.array([0])))  # a copy: a slice would keep the piece
        self._pieces.append({"rows": rows.num_rows, "streams": [self._stream(rows.select(of)) for of in self._groups]})

    def _stream(self, rows: pa.Table) -> tuple[int, int, int]:
        """Writes rows as one batch; where they are, and their sum."""
        out = self._out
        out.write(b"\0" * (-out.size % _ALIGNMENT))
        start, out.crc = out.size, 0
        is_small = rows.get_total_buffer_size() <= SMALL_BYTES
        sink = pa.BufferOutputStream() if is_small else pa.PythonFile(out, "w")
        with ipc.new_stream(sink, rows.schema, options=_IPC) as writer:
            for batch in rows.combine_chunks().to_batches():
                writer.write_batch(batch)
        if is_small:
            out.write(sink.getvalue())
        return start, out.size - start, out.crc


class _Summed:
    """A file that is written once, with the CRC-32 of what was written since `crc` was set to 0."""

    closed = False

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self.size = 0
        self.crc = 0

    def write(self, data: Any) -> int:
        self._sink.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        """The sink belongs to the caller."""


class _Span(Frozen):
    start: int
    length: int
    crc: int


class _Piece(Frozen):
    """Rows that follow each other; its columns and keys once they were used."""

    row_count: int
    streams: Mapping[str, _Span]
    columns: dict[str, pa.Array[Any]] = field(default_factory=dict)
    batches: dict[tuple[str, ...], pa.RecordBatch] = field(default_factory=dict)
    keys: dict[tuple[str, ...], SortedKeys] = field(default_factory=dict)


class StoreFile(Frozen):
    """An open store. Threads may share it; what a first use finds out twice is the same.

    Piece i has the rows [starts[i], starts[i + 1]).
    """

    content: pa.Buffer
    starts: Positions
    pieces: tuple[_Piece, ...]
    first_rows: pa.Table
    is_checked: bool

    @classmethod
    def open(cls, content: pa.Buffer, identity: Mapping[str, Any], machine_start: str = "") -> StoreFile:
        """Raises `BrokenStoreError`."""
        view = memoryview(content)
        if len(view) < len(MAGIC) + _TAIL.size or bytes(view[: len(MAGIC)]) != MAGIC:
            raise BrokenStoreError("it does not begin as a store does")
        length, crc, magic = _TAIL.unpack(view[-_TAIL.size :])
        end = len(view) - _TAIL.size
        if magic != MAGIC or length > end or zlib.crc32(view[end - length : end]) != crc:
            raise BrokenStoreError("its footer is damaged or missing")
        footer = orjson.loads(view[end - length : end])
        if footer["identity"] != dict(identity):
            raise BrokenStoreError(f"it is of another file: {footer['identity']}")
        pieces = []
        for piece in footer["pieces"]:
            streams: dict[str, _Span] = {}
            for names, stream in zip(footer["groups"], piece["streams"], strict=True):
                streams |= dict.fromkeys(names, _Span(*stream))
            pieces.append(_Piece(piece["rows"], streams))
        starts = np.cumsum([0, *(piece["rows"] for piece in footer["pieces"])], dtype=np.int64)
        first_rows = _read(content, _Span(*footer["first rows"]), "of first rows")
        is_of_this_start = bool(machine_start) and footer["machine start"] == machine_start
        is_checked = len(view) <= CHECKED_BYTES_MAX or not is_of_this_start
        return cls(content, starts, tuple(pieces), first_rows, is_checked)

    def find(self, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of the keys: see `FileLookup`; the columns of `keys` are the key columns.

        Raises `BrokenStoreError`.
        """
        file_rows = self._found(keys)
        found = np.flatnonzero(file_rows >= 0)
        if columns is None:
            return FoundRows(pa.table({}), np.where(file_rows >= 0, 0, -1), file_rows)
        positions = np.full(keys.num_rows, -1, np.int64)
        positions[found] = np.arange(len(found))
        return FoundRows(self._rows(file_rows[found], columns), positions, file_rows)

    def _found(self, keys: pa.Table) -> Positions:
        """For each key, in order, its row, or -1."""
        rows = np.full(keys.num_rows, -1, np.int64)
        names = tuple(keys.column_names)
        if not keys.num_rows or not self.pieces:
            return rows
        self._check_columns(names)
        arrays = [_array(column) for column in keys.columns]
        first_keys = SortedKeys.of([_array(self.first_rows.column(name)) for name in names])
        owners = first_keys.count_up_to(SortedKeys.of(arrays)) - 1
        for owner, start, end in ranges_of(owners):
            if owner >= 0:
                asked = SortedKeys.of([array.slice(start, end - start) for array in arrays])
                found = self._keys(self.pieces[owner], names).find(asked)
                rows[start:end] = np.where(found >= 0, found + self.starts[owner], -1)
        return rows

    def _keys(self, piece: _Piece, names: tuple[str, ...]) -> SortedKeys:
        if names not in piece.keys:
            piece.keys[names] = SortedKeys.of([self._column(piece, name) for name in names])
        return piece.keys[names]

    def _rows(self, rows: Positions, columns: Sequence[str]) -> pa.Table:
        """Rows at ascending positions, taken piece by piece: a gather from all at once costs several times more."""
        self._check_columns(columns)
        schema = pa.schema([self.first_rows.schema.field(name) for name in columns])
        owners = np.searchsorted(self.starts, rows, side="right") - 1
        parts = []
        for owner, start, end in ranges_of(owners):
            batch = self._batch(self.pieces[owner], schema)
            parts.append(batch.take(pa.array(rows[start:end] - self.starts[owner])))
        return pa.Table.from_batches(parts, schema)

    def _batch(self, piece: _Piece, schema: pa.Schema) -> pa.RecordBatch:
        names = tuple(schema.names)
        if names not in piece.batches:
            arrays = [self._column(piece, name) for name in names]
            piece.batches[names] = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return piece.batches[names]

    def _check_columns(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.first_rows.column_names:
                raise BrokenStoreError(f"it has no column {name!r}")

    def _column(self, piece: _Piece, name: str) -> pa.Array[Any]:
        if name not in piece.columns:
            stream, what = piece.streams[name], f"of column {name!r}"
            table = _read(self.content, stream, what, is_checked=self.is_checked)
            fields = [self.first_rows.schema.field(other) for other, at in piece.streams.items() if at is stream]
            if table.num_rows != piece.row_count or table.schema != pa.schema(fields):
                raise BrokenStoreError(f"its stream {what} is damaged: it has other columns or rows")
            piece.columns.update((other, _array(table.column(other))) for other in table.column_names)
        return piece.columns[name]


def _read(content: pa.Buffer, stream: _Span, what: str, *, is_checked: bool = True) -> pa.Table:
    part = content.slice(stream.start, stream.length)
    if is_checked and zlib.crc32(part) != stream.crc:
        raise BrokenStoreError(f"its stream {what} is damaged")
    try:
        with ipc.open_stream(pa.BufferReader(part)) as reader:
            table = reader.read_all()
        table.validate()
    except MemoryError:  # no fault of the store
        raise
    except (pa.ArrowException, OSError) as error:  # only of what is not checked
        raise BrokenStoreError(f"its stream {what} is damaged: {error}") from error
    return table


def _array(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
