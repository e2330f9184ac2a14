"""Avro files read: blocks are found by their heads, and decoded some at a time.

A file has no footer: its header and the heads of all blocks are read when it is opened (a file at a store that is asked
by requests is read whole). Chunks are groups of neighbouring blocks of about `CHUNK_ROWS`. Without the extra `avro`
(`decoder`) it is by far the slowest format to read, the choice for files that are read once, such as level 0 and
changelogs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from freshet.storage.codec.avro_file import BROKEN
from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.codec.varints import read_signed
from freshet.storage.files.avro.container import SYNC_BYTES, Block, read_header
from freshet.storage.files.avro.decoder import Decoder
from freshet.storage.files.file_format import READ_BATCH_ROWS, FileReader, read_errors
from freshet.storage.files.opening import no_footer, open_file, opened_input, read_part
from freshet.storage.files.stored_columns import StoredColumns
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import DataField

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
