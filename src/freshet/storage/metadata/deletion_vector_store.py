"""The deletion vectors of one table: which rows of a data file do not count any more.

Index files never change under their name, so bytes that were read once are kept, `CACHED_BYTES_MAX` of them. Each
vector is decoded when it is asked for. `BucketVectors` are those of one bucket with what was marked since.

Source: FORMAT.md §4.3, §10.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Final
from zlib import crc32

from freshet._frozen import Frozen, field
from freshet.storage.codec.roaring_bitmaps import (
    Bitmap32,
    read_bitmap32,
    read_portable64,
    write_bitmap32,
    write_portable64,
)
from freshet.storage.exceptions import CorruptDataError, InvalidRequestError, MissingFileError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_cache import CacheKind
from freshet.storage.io.file_io import create_or_ask
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.model.manifest import DELETION_VECTORS_INDEX, DeletionVectorRange, IndexFileMeta
from freshet.storage.paths import INDEX_FILE_PREFIX, TablePaths

CACHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of index files kept in memory for each open table."""

VERSION: Final = b"\1"
"""First byte of an index file. Part of the format, do not change."""
_MAGIC_32: Final = bytes.fromhex("5e43f2d0")
_MAGIC_64: Final = bytes.fromhex("d1d33964")
_U32: Final = struct.Struct(">I")
_FRAME_BYTES: Final = 2 * _U32.size
"""Length field and CRC."""


class DeletionVectorStore:
    """Vectors of one table. May be shared by threads."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._files: SizedCache[str, bytes] = SizedCache(CACHED_BYTES_MAX)

    def read(self, index_files: Sequence[IndexFileMeta], file_name: str) -> Bitmap32 | None:
        """Deleted rows of a data file, by the index files of its bucket; None when none are marked.

        Raises `MissingFileError` and `CorruptDataError` for index files that are not there or damaged.
        """
        for index_file in index_files:
            for vector in index_file.deletion_vectors or ():
                if vector.data_file_name == file_name:
                    path = self._path(index_file)
                    return read_vector(self._bytes(index_file, path), vector, path)
        return None

    def read_all(self, index_files: Sequence[IndexFileMeta]) -> dict[str, Bitmap32]:
        """Deleted rows by name of the data file."""
        return {
            vector.data_file_name: read_vector(self._bytes(index_file, path), vector, path)
            for index_file in index_files
            for path in (self._path(index_file),)
            for vector in index_file.deletion_vectors or ()
        }

    def ahead(self, index_files: Iterable[IndexFileMeta]) -> AbstractContextManager[None]:
        """While the block runs, these files are requested before they are read, where that is worth it."""
        reads = self._env.reads
        if reads is None:
            return nullcontext()
        return reads.ahead(
            self._env.coming_bytes(self._path(file), file.file_size_bytes, CacheKind.BUCKET_INDEX)
            for file in index_files
            if file.file_name not in self._files
        )

    def counts(self, index_files: Sequence[IndexFileMeta]) -> dict[str, int]:
        """Number of deleted rows by name of the data file; index files are read only where their entries do not say."""
        return {
            vector.data_file_name: len(read_vector(self._bytes(index_file, path), vector, path))
            if vector.cardinality is None
            else vector.cardinality
            for index_file in index_files
            for path in (self._path(index_file),)
            for vector in index_file.deletion_vectors or ()
        }

    def write(self, vectors: Mapping[str, Bitmap32], *, is_64_bit: bool) -> IndexFileMeta:
        """Writes a new index file with these vectors, by name of their data file; it may have none."""
        data, ranges = write_vectors(vectors, is_64_bit=is_64_bit)
        name = f"{INDEX_FILE_PREFIX}{self._env.new_uuid()}-0"
        create_or_ask(self._env.file_io, self._paths.index_file(name), data)
        self._files.put(name, data)
        return IndexFileMeta(DELETION_VECTORS_INDEX, name, len(data), len(ranges), ranges)

    def delete(self, index_file: IndexFileMeta) -> None:
        """Removes a file that no snapshot names."""
        self._files.drop([index_file.file_name])
        self._env.file_io.delete(self._path(index_file))

    def _path(self, index_file: IndexFileMeta) -> str:
        return self._paths.index_file(index_file.file_name, index_file.external_path)

    def _bytes(self, index_file: IndexFileMeta, path: str) -> bytes:
        known = self._files.get(index_file.file_name)
        if known is not None:
            return known
        try:
            data = self._env.immutable_bytes(path, CacheKind.BUCKET_INDEX)
        except NotFoundError as error:
            raise MissingFileError(
                "the index file with the deletion vectors of a bucket is missing, without it deleted rows would come "
                "back: restore it from a copy, or read an older snapshot",
                path=path,
            ) from error
        if len(data) != index_file.file_size_bytes:
            self._env.forget_immutable(path, CacheKind.BUCKET_INDEX)
            raise CorruptDataError(
                f"the index file has {len(data)} bytes, its manifest entry says {index_file.file_size_bytes}: it was "
                "cut short or replaced; restore it from a copy",
                path=path,
            )
        self._files.put(index_file.file_name, data)
        return data


_NOTHING: Final[Mapping[str, Bitmap32]] = MappingProxyType({})


class BucketVectors(Frozen):
    """`index_files` are the committed ones of the bucket, `marks` the rows marked since, by name of the data file."""

    store: DeletionVectorStore
    index_files: tuple[IndexFileMeta, ...] = ()
    marks: Mapping[str, Bitmap32] = field(default_factory=lambda: _NOTHING)

    @property
    def marked_files(self) -> frozenset[str]:
        """Data files of which rows are marked as deleted."""
        vectors = (vector for index_file in self.index_files for vector in index_file.deletion_vectors or ())
        return frozenset(vector.data_file_name for vector in vectors) | self.marks.keys()

    def of(self, file_name: str) -> Bitmap32 | None:
        """Deleted rows of a data file; None when there are none."""
        marked, committed = self.marks.get(file_name), self.store.read(self.index_files, file_name)
        if marked is None or committed is None:
            return committed if marked is None else marked
        return committed | marked

    def marking(self, marks: Mapping[str, Bitmap32]) -> BucketVectors:
        """The vectors with more rows marked."""
        both = dict(self.marks)
        for name, rows in marks.items():
            known = both.get(name)
            both[name] = rows if known is None else known | rows
        return BucketVectors(self.store, self.index_files, MappingProxyType(both))

    def without(self, gone: Collection[str]) -> dict[str, Bitmap32]:
        """All vectors but those of the data files that are gone: what an index file of the bucket is to hold."""
        names = sorted(self.marked_files.difference(gone))
        return {name: rows for name in names if (rows := self.of(name)) is not None}


def write_vectors(vectors: Mapping[str, Bitmap32], *, is_64_bit: bool) -> tuple[bytes, tuple[DeletionVectorRange, ...]]:
    """An index file with the vectors of data files, by name, and where each is in it."""
    pieces, ranges, offset = [VERSION], [], len(VERSION)
    for name, rows in vectors.items():
        vector = _encoded(rows, is_64_bit=is_64_bit)
        length = len(vector) if is_64_bit else len(vector) - _FRAME_BYTES
        ranges.append(DeletionVectorRange(name, offset, length, len(rows)))
        pieces.append(vector)
        offset += len(vector)
    return b"".join(pieces), tuple(ranges)


def read_vector(data: bytes, vector: DeletionVectorRange, path: str) -> Bitmap32:
    """The deleted rows of one data file, out of the bytes of the index file at `path`.

    Raises `CorruptDataError` for bytes that are no vector of this length.

        file     u8 version = 1, then a vector for each data file, back to back
        vector   u32 length, big endian: of magic and bitmap
                 magic, bitmap (below)
                 u32 CRC-32 of magic and bitmap, big endian

    | | 32 bits | 64 bits |
    |---|---|---|
    | magic | 5E 43 F2 D0 | D1 D3 39 64 |
    | bitmap | portable 32-bit bitmap | i64 count, then for each high word, from 0 on: i32 high word, portable bitmap |
    | `length` of its range in the index manifest | magic and bitmap | everything: length and CRC as well |

    Bitmaps hold positions of rows in the data file, from 0, retracts counted. `offset` of a range is where its length
    field is. The magic says which of the two a vector is, whatever the options of the table say; one file may have
    both. A file without vectors is its version byte alone. No data file has 2^32 rows, so in memory all are 32-bit
    bitmaps.

    Source: FORMAT.md §10.
    """
    if data[:1] != VERSION:
        raise CorruptDataError(f"it begins with {data[:1].hex() or 'nothing'}, not with version 1", path=path)

    def damaged(reason: str) -> CorruptDataError:
        return CorruptDataError(
            f"the deletion vector of {vector.data_file_name} is damaged: {reason}; restore the index file from a copy",
            path=path,
            byte_offset=vector.offset,
        )

    body_start = vector.offset + _U32.size
    if not len(VERSION) <= vector.offset <= len(data) - _FRAME_BYTES - len(_MAGIC_32):
        raise damaged(f"the file ends at byte {len(data)}")
    (length,) = _U32.unpack_from(data, vector.offset)
    body = data[body_start : body_start + length]
    checksum = data[body_start + length : body_start + length + _U32.size]
    magic, bitmap = body[: len(_MAGIC_32)], body[len(_MAGIC_32) :]
    if magic not in (_MAGIC_32, _MAGIC_64):
        raise damaged(f"its magic number is {magic.hex()}")
    expected = vector.length if magic == _MAGIC_32 else vector.length - _FRAME_BYTES
    if length != expected:
        raise damaged(f"it has {length} bytes where the index manifest says {expected}")
    if len(checksum) < _U32.size:
        raise damaged(f"the file ends at byte {len(data)}")
    if checksum != _U32.pack(crc32(body)):
        raise damaged("its checksum does not match")
    try:
        rows = read_bitmap32(bitmap) if magic == _MAGIC_32 else read_portable64(bitmap)
    except InvalidRequestError as error:
        raise damaged(str(error)) from error
    if vector.cardinality is not None and len(rows) != vector.cardinality:
        raise damaged(f"it has {len(rows)} rows where the index manifest says {vector.cardinality}")
    return rows


def _encoded(rows: Bitmap32, *, is_64_bit: bool) -> bytes:
    body = _MAGIC_64 + write_portable64(rows) if is_64_bit else _MAGIC_32 + write_bitmap32(rows)
    return _U32.pack(len(body)) + body + _U32.pack(crc32(body))
