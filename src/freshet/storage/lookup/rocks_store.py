"""A store in RocksDB: one value for each row under its key (`key_search.key_bytes`), in one table file.

The file is written in key order and ingested into an empty database, which is never written to again; any process opens
it read-only, without a lock. Blocks are compressed and have checksums, which RocksDB checks whenever it reads one; a
bloom filter keeps most keys that are not there from reading any. The empty key holds whose rows these are: it is in
the same file, so a database that has lost the file is known as broken.

All stores of a process share one cache of blocks, which indexes and filters count in: `lookup.cache-max-memory-size`.

A row is one value, encoded and decoded column by column.

    row number         UINT64 LE, its position in the data file
    for each column    a byte, 1 unless NULL; then a value of fixed width, or the length of its part, UINT32 LE
    parts              of the other columns, one after the other

A part has, for the values of its column in the row, and so on for the children: a byte each for NULL; numbers in their
width; lengths as UINT32 LE, then text or the elements; the fields of a ROW one after the other. The columns of a row
are not in it: the store knows them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.exceptions import RetryableError, StorageError
from freshet.storage.io.local_cache import LocalCache, NewFolder
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.lookup.file_lookup import FoundRows
from freshet.storage.lookup.key_search import key_bytes
from freshet.storage.lookup.lookup_store import BrokenStoreError, LookupStore
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.nested_arrays import Nested, assembled, child_fields
from freshet.storage.model.value_bits import bitmap, text_parts, valid_flags

SUFFIX: Final = ".rocks"
PIECE_ROWS: Final = 2048
"""Rows that are encoded at a time, most of it without letting another thread have the interpreter."""
_BLOCK_BYTES: Final = 8 * 1024
_BLOOM_BITS: Final = 10
_IDENTITY_KEY: Final = b""

_cache_lock: Final = threading.Lock()
_caches: Final[dict[str, Any]] = {}

_Bytes = npt.NDArray[np.uint8]

_NUMBER_BYTES: Final = 8
_LENGTH_BYTES: Final = 4


@cache
def is_rocksdb_installed() -> bool:
    """Whether the extra `rocksdb` is there."""
    return find_spec("rocksdict") is not None


def _block_cache(size_bytes: int) -> Any:
    """The one of this process; the last size asked for holds."""
    with _cache_lock:
        cache = _caches.get("blocks")
        if cache is None:
            import rocksdict as _rocksdict

            cache = _caches["blocks"] = _rocksdict.Cache(size_bytes)
        else:
            cache.set_capacity(size_bytes)
        return cache


def _options(cache_bytes: int) -> Any:
    import rocksdict as _rocksdict

    table = _rocksdict.BlockBasedOptions()
    table.set_block_cache(_block_cache(cache_bytes))
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(_BLOOM_BITS, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(_rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    options = _rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(_rocksdict.DBCompressionType.zstd())
    options.set_keep_log_file_num(1)
    return options


class RocksKind(Frozen):
    """A `StoreKind`."""

    cache_bytes: int
    suffix: str = SUFFIX

    def begin(
        self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema, key_columns: Sequence[str]
    ) -> RocksWriter:
        """The method of `StoreKind`."""
        folder = cache.new_folder(name)
        with undone_on_failure(folder.discard):
            return RocksWriter(folder, _options(self.cache_bytes), identity, key_columns)

    def open(self, cache: LocalCache, name: str, identity: Mapping[str, Any], schema: pa.Schema) -> LookupStore | None:
        """The method of `StoreKind`."""
        folder = cache.folder(name)
        if folder is None:
            return None
        try:
            import rocksdict as _rocksdict

            read_only = _rocksdict.AccessType.read_only()
            options = _options(self.cache_bytes)
            # Without this the options of the file OPTIONS hold, which name no shared cache.
            families = {"default": options}
            database = _rocksdict.Rdict(folder, options, column_families=families, access_type=read_only)
            found = database.get(_IDENTITY_KEY)
        except OSError as error:  # of the binding, which writes a file of its own at each opening; RocksDB has no such
            raise RetryableError(f"cannot open the RocksDB database {folder}: {error}") from error
        except Exception as error:
            raise BrokenStoreError(f"RocksDB cannot open it: {error}") from error
        if found != _identity_bytes(identity):
            raise BrokenStoreError(f"it is of another file: {found!r}")
        return RocksStore(database, schema)


class RocksWriter:
    """A `StoreWriter`. A piece is held in memory, encoded."""

    def __init__(
        self, folder: NewFolder, options: Any, identity: Mapping[str, Any], key_columns: Sequence[str]
    ) -> None:
        self._folder = folder
        self._key_columns = key_columns
        self._count = 0
        self._path = f"{folder.temporary}/rows.sst"
        self._database: Any = None
        with self._errors():
            import rocksdict as _rocksdict

            self._database = _rocksdict.Rdict(folder.temporary, options)
            self._sorted = _rocksdict.SstFileWriter(options)
            self._sorted.open(self._path)
            self._sorted[_IDENTITY_KEY] = _identity_bytes(identity)

    def add(self, rows: pa.Table) -> None:
        """The method of `StoreWriter`."""
        with self._errors():
            for batch in rows.to_batches(PIECE_ROWS):
                keys = key_bytes([batch.column(key) for key in self._key_columns])
                values = encode_rows(batch, self._count).to_numpy(zero_copy_only=False).tolist()
                deque(map(self._sorted.__setitem__, keys, values), maxlen=0)  # there is no call for many
                self._count += batch.num_rows

    def publish(self) -> None:
        """The method of `StoreWriter`."""
        with self._errors():
            import rocksdict as _rocksdict

            self._sorted.finish()
            moved = _rocksdict.IngestExternalFileOptions()
            moved.set_move_files(True)
            self._database.ingest_external_file([self._path], moved)
            self._close()
        self._folder.publish()

    def discard(self) -> None:
        """The method of `StoreWriter`."""
        with suppress(RetryableError), self._errors():
            self._close()
        self._folder.discard()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # RocksDB has no other
            raise RetryableError(f"cannot write the RocksDB database {self._folder.path}: {error}") from error


class RocksStore(Frozen):
    """An open store."""

    database: Any
    schema: pa.Schema

    def find(self, keys: pa.Table, columns: Sequence[str] | None) -> FoundRows:
        """The method of `LookupStore`."""
        positions = np.full(keys.num_rows, -1, np.int64)
        file_rows = positions.copy()
        values = self._values(keys)
        found = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        rows, file_rows[found] = decode_rows(values.drop_null(), self.schema, columns or ())
        if columns is None:
            return FoundRows(pa.table({}), np.where(file_rows >= 0, 0, -1), file_rows)
        positions[found] = np.arange(len(found))
        return FoundRows(rows, positions, file_rows)

    def _values(self, keys: pa.Table) -> pa.Array[Any]:
        if not keys.num_rows:
            return pa.array([], pa.large_binary())
        asked = key_bytes([pa.concat_arrays(column.chunks) for column in keys.columns])
        try:
            return pa.array(self.database.get(asked), pa.large_binary())
        except Exception as error:
            raise BrokenStoreError(f"RocksDB cannot read it: {error}") from error


def _identity_bytes(identity: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(identity), option=orjson.OPT_SORT_KEYS)


def encode_rows(rows: pa.RecordBatch, first_row: int) -> pa.Array[Any]:
    """One LARGE_BINARY for each row."""
    count = rows.num_rows
    everywhere = np.arange(count + 1, dtype=np.int64)
    header = [_matrix(np.arange(first_row, first_row + count, dtype=np.uint64), count)]
    parts: list[pa.Array[Any]] = []
    for array in rows.columns:
        header.append(_matrix(_valid(array), count))
        width = _width(array.type)
        if width is not None:
            header.append(_matrix(_fixed_bytes(array), count))
            continue
        sections = _sections(array, everywhere)
        lengths = sum((np.diff(offsets) for _, offsets in sections), np.zeros(count, np.int64))
        header.append(_matrix(lengths.astype(np.uint32), count))
        parts += [_binary(data, offsets) for data, offsets in sections]
    fixed = np.ascontiguousarray(np.hstack(header))
    values = [_binary(fixed.reshape(-1), everywhere * fixed.shape[1]), *parts]
    return pc.binary_join_element_wise(*values, pa.scalar(b"", pa.large_binary())) if parts else values[0]


def decode_rows(values: pa.Array[Any], schema: pa.Schema, columns: Sequence[str]) -> tuple[pa.Table, Positions]:
    """These columns of rows of a schema, and the row numbers. Raises `BrokenStoreError`."""
    count = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + count + 1]
    data = values.buffers()[2]
    content = _Content(np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), offsets[1:])
    starts = offsets[:-1].astype(np.int64)
    numbers = content.take(starts, np.full(count, _NUMBER_BYTES)).view(np.uint64).astype(np.int64)
    at = _NUMBER_BYTES
    part_starts = starts + _NUMBER_BYTES + sum(1 + (_width(field.type) or _LENGTH_BYTES) for field in schema)
    wanted = frozenset(columns)
    found: dict[str, pa.Array[Any]] = {}
    for field in schema:
        width = _width(field.type)
        if field.name in wanted:
            valid = content.take(starts + at, np.full(count, 1)).view(np.bool_)
            if width is not None:
                found[field.name] = _from_fixed(field.type, content.take(starts + at + 1, np.full(count, width)), valid)
        if width is None:
            lengths = content.take(starts + at + 1, np.full(count, _LENGTH_BYTES)).view(np.uint32).astype(np.int64)
            if field.name in wanted:
                found[field.name] = _Cursor(content, part_starts.copy()).array(field.type, np.ones(count, np.int64))
            part_starts = part_starts + lengths
        at += 1 + (width or _LENGTH_BYTES)
    picked = pa.schema([schema.field(name) for name in columns])
    return pa.table([found[name] for name in columns], schema=picked), numbers


class _Content(Frozen):
    """The bytes of all rows, and where each row ends."""

    data: _Bytes
    ends: Positions

    def take(self, starts: Positions, lengths: Positions) -> _Bytes:
        """What each row has from a position on, one after the other."""
        if len(starts) and ((starts < 0) | (lengths < 0) | (starts + lengths > self.ends)).any():
            raise BrokenStoreError("a row in it is too short")
        before = np.cumsum(lengths) - lengths
        return self.data[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))]


class _Cursor(Frozen):
    """Reads the parts of a column; `starts` moves on."""

    content: _Content
    starts: Positions

    def array(self, kind: pa.DataType, counts: Positions) -> pa.Array[Any]:
        """So many values of each row."""
        valid = self._next(counts).view(np.bool_)
        width = _width(kind)
        if width is not None:
            return _from_fixed(kind, self._next(counts * width), valid)
        if pt.is_struct(kind):
            children = [self.array(field.type, counts) for field in kind]
            return assembled(kind, len(valid), bitmap(valid), None, children)
        lengths = self._next(counts * _LENGTH_BYTES).view(np.uint32).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(lengths)])
        bounds = np.concatenate([[0], np.cumsum(counts)])
        of_rows = np.diff(sums[bounds])
        if int(sums[-1]) >= 1 << 31:
            raise BrokenStoreError("a column of the rows found is larger than 2 GB")
        offsets = sums.astype(np.int32)
        if not pt.is_nested(kind):
            buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(self._next(of_rows))]
            return pa.Array.from_buffers(kind, len(valid), buffers)
        children = [self.array(field.type, of_rows) for field in child_fields(kind)]
        return assembled(kind, len(valid), bitmap(valid), offsets, children)

    def _next(self, lengths: Positions) -> _Bytes:
        taken = self.content.take(self.starts, lengths)
        self.starts[:] += lengths
        return taken


def _sections(array: pa.Array[Any], bounds: Positions) -> list[tuple[_Bytes, Positions]]:
    """Bytes, and where those of each row begin, in the order of `_Cursor`; row i has values from bounds[i] on."""
    flags = (_valid(array), bounds)
    width = _width(array.type)
    if width is not None:
        return [flags, (_fixed_bytes(array), bounds * width)]
    if pt.is_string(array.type) or pt.is_binary(array.type):
        offsets, data = text_parts(array)
        first = offsets.astype(np.int64)
        if array.null_count and (np.diff(first)[~_valid(array).view(np.bool_)] != 0).any():
            return _sections(array.take(pa.array(np.arange(len(array)))), bounds)
        lengths = np.diff(first).astype(np.uint32).view(np.uint8)
        return [flags, (lengths, bounds * _LENGTH_BYTES), (data[first[0] : first[-1]], (first - first[0])[bounds])]
    nested = Nested.of(array)
    if nested.offsets is None:
        return [flags, *(section for child in nested.children for section in _sections(child, bounds))]
    lengths = np.diff(nested.offsets).astype(np.uint32).view(np.uint8)
    inner = nested.offsets.astype(np.int64)[bounds]
    below = [section for child in nested.children for section in _sections(child, inner)]
    return [flags, (lengths, bounds * _LENGTH_BYTES), *below]


def _width(kind: pa.DataType) -> int | None:
    if pt.is_boolean(kind):
        return 1
    return None if pt.is_nested(kind) or pt.is_string(kind) or pt.is_binary(kind) else kind.bit_width // 8


def _valid(array: pa.Array[Any]) -> _Bytes:
    return valid_flags(array).astype(np.bool_).view(np.uint8)


def _fixed_bytes(array: pa.Array[Any]) -> _Bytes:
    if pt.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if not len(array):
        return np.zeros(0, np.uint8)
    width, start = array.type.bit_width // 8, array.offset
    return np.frombuffer(array.buffers()[1], np.uint8)[start * width : (start + len(array)) * width]


def _from_fixed(kind: pa.DataType, data: _Bytes, valid: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    if pt.is_boolean(kind):
        data = np.frombuffer(bitmap(data.view(np.bool_)), np.uint8)
    return pa.Array.from_buffers(kind, len(valid), [bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))])


def _matrix(values: npt.NDArray[Any], count: int) -> _Bytes:
    data = np.ascontiguousarray(values).view(np.uint8)
    return data.reshape(count, len(data) // max(1, count))


def _binary(data: _Bytes, offsets: Positions) -> pa.Array[Any]:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
