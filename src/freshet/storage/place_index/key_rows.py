"""The keys of rows, as bytes in which equal keys are equal, and the shares in which they are indexed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.lookup.key_search import key_array
from freshet.storage.model.schema import TableSchema


class KeyShare(Frozen):
    """One of so many parts of the keys of a table, by the hash of the full key."""

    number: int = 0
    count: int = 1

    def has(self, rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> npt.NDArray[np.bool_] | None:
        """Which of the rows have keys of it; None for all."""
        if self.count == 1:
            return None
        columns = [rows.column(name) for name in schema.primary_keys]
        hashes = row_hashes(columns, schema.types_of(schema.primary_keys))
        is_own: npt.NDArray[np.bool_] = np.abs(np.fmod(hashes, np.int32(self.count))) == self.number
        return is_own


ALL_KEYS: Final = KeyShare()


def keys_of(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> pa.Array[Any]:
    """The full keys of rows, LARGE_BINARY."""
    columns = [rows.column(name) for name in schema.primary_keys]
    return key_array([_whole(column) for column in columns])


def _whole(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    if isinstance(column, pa.ChunkedArray):
        whole: pa.Array[Any] = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [])
        return whole
    return column
