"""Builds the indexes of one data file while its rows are written: bloom filters and bitmaps.

Other types that a table's options ask for (range bitmaps) are not written: indexes only save reading.

Source: FORMAT.md §11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from freshet.storage.codec.bitmap_index import BitmapIndexBuilder
from freshet.storage.codec.bloom_filter import BloomFilterBuilder
from freshet.storage.codec.file_index import BLOOM_FILTER, encode_file_index
from freshet.storage.codec.index_hashes import value_hashes
from freshet.storage.model.data_type import ScalarType
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.file_indexes import indexed_columns
from freshet.storage.schema.file_indexes import TYPES, bloom_size


class _ColumnIndex(Protocol):
    def add(self, values: pa.ChunkedArray[Any]) -> None:
        """Takes the next rows."""

    def encode(self) -> bytes | None:
        """The bytes; None where there was no value."""


class FileIndexBuilder:
    """The indexes of one file; of a table without any, nothing."""

    def __init__(self, schema: TableSchema, given: Mapping[str, str]) -> None:
        self._columns: dict[str, dict[str, _ColumnIndex]] = {}
        for index in indexed_columns(given):
            column = schema.by_name.get(index.column)
            if column is None or index.kind not in TYPES or not TYPES[index.kind](column.type):
                continue
            assert isinstance(column.type, ScalarType)
            made: _ColumnIndex = _Bitmap(column.type)
            if index.kind == BLOOM_FILTER:
                made = _Bloom(column.type, *bloom_size(index))
            self._columns.setdefault(index.column, {})[index.kind] = made

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


class _Bitmap:
    def __init__(self, data_type: ScalarType) -> None:
        self._builder = BitmapIndexBuilder(data_type)

    def add(self, values: pa.ChunkedArray[Any]) -> None:
        for chunk in values.chunks:
            self._builder.add(chunk)

    def encode(self) -> bytes:
        return self._builder.encode()


def _present(values: pa.ChunkedArray[Any]) -> Sequence[pa.Array[Any]]:
    chunks = (chunk.drop_null() if chunk.null_count else chunk for chunk in values.chunks)
    return [chunk for chunk in chunks if len(chunk)]
