"""The distinct values of a column while a file is written, and the rows of each.

Columns are kept as dictionaries, chunk by chunk: a column of few values takes 4 bytes a row until the file is closed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.index_keys import Int64Array, KeyForm

UInt32Array = npt.NDArray[np.uint32]


class DistinctRows(NamedTuple):
    """`rows` are positions in the file, those of a key together, the keys in their order; `bounds` says where the rows
    of each key begin, with the end."""

    row_count: int
    keys: Int64Array | pa.Array[Any]
    bounds: Int64Array
    rows: UInt32Array
    nulls: UInt32Array


class DistinctColumn:
    """Takes the values of one column in the order of the rows."""

    def __init__(self, form: KeyForm) -> None:
        self._form = form
        self._chunks: list[pa.Array[Any]] = []

    def add(self, values: pa.Array[Any]) -> None:
        """Some more rows."""
        self._chunks.append(self._keyed(values).dictionary_encode())

    def rows(self) -> DistinctRows:
        """What was added."""
        key_type = pa.binary() if self._form.is_bytes else pa.int64()
        chunks = self._chunks or [pa.array([], key_type).dictionary_encode()]
        merged = pa.chunked_array(chunks).unify_dictionaries()
        keys, ranks = self._ranked(merged.chunk(0).dictionary)
        codes = pa.chunked_array([chunk.indices for chunk in merged.chunks]).combine_chunks()
        is_null = codes.is_null().to_numpy(zero_copy_only=False)
        plain = ranks[codes.drop_null().to_numpy(zero_copy_only=False)]
        order = np.argsort(plain, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(plain, minlength=len(keys)))]).astype(np.int64)
        valid, nulls = (np.flatnonzero(flags).astype(np.uint32) for flags in (~is_null, is_null))
        return DistinctRows(len(codes), keys, bounds, valid[order], nulls)

    def _keyed(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """The keys of the values, NULL where those are; of numbers, so that -0.0 and 0.0 are different."""
        keys = self._form.keys(values.drop_null()) if values.null_count else self._form.keys(values)
        if not isinstance(keys, np.ndarray):
            return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
        if not values.null_count:
            return pa.array(keys)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        spread = np.zeros(len(values), np.int64)
        spread[~is_null] = keys
        return pa.array(spread, mask=is_null)

    def _ranked(self, keys: pa.Array[Any]) -> tuple[Int64Array | pa.Array[Any], npt.NDArray[np.int64]]:
        """Distinct keys in order, and the rank of each among them."""
        order = pc.sort_indices(keys)
        ranks = np.empty(len(order), np.int64)
        ranks[order.to_numpy()] = np.arange(len(order))
        ordered = keys.take(order)
        return ordered if self._form.is_bytes else ordered.to_numpy(), ranks
