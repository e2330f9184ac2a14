"""Builds the indexes of one data file while its rows are written: bloom filters, bitmaps and range bitmaps.

Other types that a table's options ask for (`bsi`, values of maps) are not written: indexes only save reading.

Source: FORMAT.md §11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from freshet.storage.codec.bitmap_index import BLOCK_BYTES, BitmapIndexWriter
from freshet.storage.codec.bloom_filter import BloomFilterBuilder
from freshet.storage.codec.file_index import BLOOM_FILTER, RANGE_BITMAP, encode_file_index
from freshet.storage.codec.index_hashes import value_hashes
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmapWriter
from freshet.storage.model.data_type import ScalarType
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.file_indexes import IndexedColumn, indexed_columns
from freshet.storage.schema.file_indexes import TYPES, block_bytes, bloom_size


class ColumnIndexBuilder(Protocol):
    """Builds one index of one column."""

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        """Takes the next rows."""

    def encode(self) -> bytes | None:
        """The bytes; None where there was no value."""


class FileIndexBuilder:
    """The indexes of one file; of a table without any, nothing."""

    def __init__(self, schema: TableSchema, given: Mapping[str, str]) -> None:
        self._columns: dict[str, dict[str, ColumnIndexBuilder]] = {}
        for index in indexed_columns(given):
            column = schema.by_name.get(index.column)
            if column is None or index.kind not in TYPES or not TYPES[index.kind](column.type):
                continue
            assert isinstance(column.type, ScalarType)
            self._columns.setdefault(index.column, {})[index.kind] = new_index(index, column.type)

    def add(self, rows: pa.Table) -> None:
        """Takes the next rows."""
        for name, indexes in self._columns.items():
            for index in indexes.values():
                index.add(rows.column(name))

    def encode(self) -> bytes | None:
        """The container of the indexes; None where there are none."""
        if not self._columns:
            return None
        return encode_file_index(
            {name: {kind: index.encode() for kind, index in indexes.items()} for name, indexes in self._columns.items()}
        )


@dataclass(slots=True)
class _Bloom:
    data_type: ScalarType
    items: int
    fpp: float
    _filter: BloomFilterBuilder | None = None

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        for chunk in _present(values):
            if self._filter is None:
                self._filter = BloomFilterBuilder(self.items, self.fpp)
            self._filter.add(value_hashes(chunk, self.data_type))

    def encode(self) -> bytes | None:
        return None if self._filter is None else self._filter.encode()


class _Bitmaps:
    """A bitmap or a range bitmap."""

    def __init__(self, writer: BitmapIndexWriter | RangeBitmapWriter) -> None:
        self._writer = writer

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        for chunk in values.chunks:
            self._writer.add(chunk)

    def encode(self) -> bytes:
        return self._writer.write()


def new_index(index: IndexedColumn, data_type: ScalarType) -> ColumnIndexBuilder:
    """An empty index of a column of this type, which it must take."""
    if index.kind == BLOOM_FILTER:
        return _Bloom(data_type, *bloom_size(index))
    form, size = KeyForm(data_type), block_bytes(index)
    if index.kind == RANGE_BITMAP:
        return _Bitmaps(RangeBitmapWriter(form, size))
    return _Bitmaps(BitmapIndexWriter(form, BLOCK_BYTES if size is None else size))


def _present(values: pa.ChunkedArray[Any]) -> Sequence[pa.Array[Any]]:
    chunks = (chunk.drop_null() if chunk.null_count else chunk for chunk in values.chunks)
    return [chunk for chunk in chunks if len(chunk)]
