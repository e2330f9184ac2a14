"""One store: the rows of one immutable data file, uncompressed and mapped, so that a key costs what it touches.

    "FRSHLKP1"
    sections      one Arrow IPC file for a few columns each, at multiples of 64 bytes
    footer        JSON: whose rows these are, and of each section its columns, start, length and CRC-32
    tail          length and CRC-32 of the footer (two little-endian UINT32), "FRSHLKP1"

Columns lie apart because a gather costs per piece: each has pieces of `piece_bytes`, so a column of numbers is mostly
one piece of the whole file. Rows are in the order of the data file, so a row has the same position in both; keys are
searched in the key columns themselves (`key_search`), nothing else is stored for them.

A section is checked when it is used first. Nothing is trusted before: the disk may have lost what was not synced, and
the file may be anybody's.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.ipc as ipc

from freshet.storage.io.local_cache import LocalCache
from freshet.storage.lookup.file_lookup import FoundRows
from freshet.storage.lookup.key_search import SortedKeys, ranges_of
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore, StoreRows
from freshet.storage.merge.sort_words import Positions

MAGIC: Final = b"FRSHLKP1"
"""Another number for every change of what the file holds."""

SUFFIX: Final = ".rows"

_TAIL: Final = struct.Struct("<II8s")
_ALIGNMENT: Final = 64
_IPC: Final = ipc.IpcWriteOptions(use_threads=False)


@dataclass(frozen=True, slots=True)
class MappedKind:
    """A `StoreKind`. A piece is held in memory twice."""

    piece_bytes: int
    suffix: str = SUFFIX

    def write(
        self, cache: LocalCache, name: str, identity: Mapping[str, Any], rows: StoreRows, key_columns: Sequence[str]
    ) -> None:
        """See `StoreKind`."""
        with cache.writing(name) as sink:
            write_store(sink, identity, rows.sections(), self.piece_bytes)

    def open(self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema) -> LookupStore | None:
        """See `StoreKind`."""
        content = cache.map(name)
        return None if content is None else StoreFile.open(content, identity)


def write_store(
    sink: pa.NativeFile,
    identity: Mapping[str, Any],
    sections: Iterable[Iterator[pa.RecordBatch]],
    piece_bytes: int,
) -> None:
    """Writes a whole store. Each section gives all rows of some columns; a piece is held in memory twice."""
    out = _Summed(sink)
    out.write(MAGIC)
    entries = []
    for batches in sections:
        out.write(b"\0" * (-out.size % _ALIGNMENT))
        start, out.crc = out.size, 0
        columns = _write_section(out, batches, piece_bytes)
        entries.append({"columns": columns, "start": start, "length": out.size - start, "crc": out.crc})
    footer = orjson.dumps({"identity": dict(identity), "sections": entries})
    out.write(footer)
    out.write(_TAIL.pack(len(footer), zlib.crc32(footer), MAGIC))


def _write_section(out: _Summed, batches: Iterator[pa.RecordBatch], piece_bytes: int) -> list[str]:
    writer: ipc.RecordBatchFileWriter | None = None
    columns: list[str] = []
    for piece in _pieces(batches, piece_bytes):
        if writer is None:
            columns = list(piece.schema.names)
            writer = ipc.new_file(pa.PythonFile(out, "w"), piece.schema, options=_IPC)
        writer.write_batch(piece)
    if writer is not None:
        writer.close()
    return columns


def _pieces(batches: Iterable[pa.RecordBatch], piece_bytes: int) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= piece_bytes:
            yield pa.concat_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_batches(pending)


class _Summed:
    """A file that is written once, with the CRC-32 of what was written since `crc` was set to 0."""

    closed = False

    def __init__(self, sink: pa.NativeFile) -> None:
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


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class StoreFile:
    """An open store. Threads may share it; what a first use finds out twice is the same."""

    content: pa.Buffer
    sections: Mapping[str, _Section]
    _read: dict[_Section, pa.Table] = field(default_factory=dict)
    _keys: dict[tuple[str, ...], _SegmentedKeys] = field(default_factory=dict)

    @classmethod
    def open(cls, content: pa.Buffer, identity: Mapping[str, Any]) -> StoreFile:
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
        sections: dict[str, _Section] = {}
        for entry in footer["sections"]:
            section = _Section(entry["start"], entry["length"], entry["crc"])
            sections |= dict.fromkeys(entry["columns"], section)
        return cls(content, sections)

    def find(self, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """What the file has of the keys: see `FileLookup`; the columns of `keys` are the key columns.

        Raises `BrokenStoreError`.
        """
        names = tuple(keys.column_names)
        if names not in self._keys:
            self._keys[names] = _SegmentedKeys.of([self._column(name) for name in names])
        file_rows = self._keys[names].find(keys)
        found = np.flatnonzero(file_rows >= 0)
        if columns is None:
            return FoundRows(pa.table({}), np.where(file_rows >= 0, 0, -1), file_rows)
        positions = np.full(keys.num_rows, -1, np.int64)
        positions[found] = np.arange(len(found))
        return FoundRows(self._rows(file_rows[found], columns), positions, file_rows)

    def _rows(self, rows: Positions, columns: Sequence[str]) -> pa.Table:
        """Rows at ascending positions."""
        fields, arrays = [], []
        for name in columns:
            table = self._table(name)
            fields.append(table.schema.field(name))
            arrays.append(_gathered(table.column(name), rows))
        return pa.table(arrays, schema=pa.schema(fields))

    def _column(self, name: str) -> pa.ChunkedArray[Any]:
        return self._table(name).column(name)

    def _table(self, name: str) -> pa.Table:
        section = self.sections.get(name)
        if section is None:
            raise BrokenStoreError(f"it has no column {name!r}")
        if section not in self._read:
            part = self.content.slice(section.start, section.length)
            if zlib.crc32(part) != section.crc:
                raise BrokenStoreError(f"its column {name!r} is damaged")
            with ipc.open_file(pa.BufferReader(part)) as reader:
                self._read[section] = reader.read_all()
        return self._read[section]


@dataclass(frozen=True, slots=True)
class _SegmentedKeys:
    """Keys in pieces, where the key columns have pieces of their own: each ends where one of them does."""

    starts: Positions
    first_keys: SortedKeys
    segments: tuple[SortedKeys, ...]

    @classmethod
    def of(cls, columns: Sequence[pa.ChunkedArray[Any]]) -> _SegmentedKeys:
        starts = np.unique(np.concatenate([_starts(column)[:-1] for column in columns]))
        ends = np.append(starts[1:], len(columns[0]))
        segments = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            segments.append(SortedKeys.of([column.slice(start, end - start).chunk(0) for column in columns]))
        first_keys = SortedKeys.of([pa.concat_arrays(column.take(pa.array(starts)).chunks) for column in columns])
        return cls(starts, first_keys, tuple(segments))

    def find(self, keys: pa.Table) -> Positions:
        """For each key, in order, its row, or -1."""
        rows = np.full(keys.num_rows, -1, np.int64)
        arrays = [pa.concat_arrays(column.chunks) for column in keys.columns] if keys.num_rows else []
        if not arrays or not len(self.starts):
            return rows
        owners = self.first_keys.count_up_to(SortedKeys.of(arrays)) - 1
        for owner, start, end in ranges_of(owners):
            if owner >= 0:
                asked = SortedKeys.of([array.slice(start, end - start) for array in arrays])
                found = self.segments[owner].find(asked)
                rows[start:end] = np.where(found >= 0, found + self.starts[owner], -1)
        return rows


def _gathered(column: pa.ChunkedArray[Any], rows: Positions) -> pa.ChunkedArray[Any]:
    """The values at ascending positions, taken piece by piece: a gather from all at once costs several times more."""
    if column.num_chunks == 1:
        return pa.chunked_array([column.chunk(0).take(pa.array(rows))], column.type)
    starts = _starts(column)
    owners = np.searchsorted(starts, rows, side="right") - 1
    parts = [
        column.chunk(owner).take(pa.array(rows[start:end] - starts[owner])) for owner, start, end in ranges_of(owners)
    ]
    return pa.chunked_array(parts, column.type)


def _starts(column: pa.ChunkedArray[Any]) -> Positions:
    """First row of each piece, and the number of rows."""
    return np.cumsum([0, *(len(chunk) for chunk in column.chunks)], dtype=np.int64)
