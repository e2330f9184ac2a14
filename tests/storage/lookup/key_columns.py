"""Keys of every type that a primary key may have, for hypothesis: values that crowd, and values from the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN

LONG = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(
    st.text("ab", max_size=3),
    st.text("a\0é", max_size=20),
    st.sampled_from(["", "prefix-0001", "prefix-00012", "prefix-0001\0", "x" * 90, "x" * 91]),
)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.one_of(st.integers(-3, 3), st.integers(-(2**15), 2**15 - 1)),
    pa.int32(): st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1)),
    pa.int64(): st.one_of(st.integers(-3, 3), LONG),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.one_of(st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]), st.floats()),
    pa.date32(): st.integers(-(10**6), 10**6),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.timestamp("us"): LONG,
    pa.decimal128(9, 2): st.one_of(st.integers(-3, 3), st.integers(-(10**9) + 1, 10**9 - 1)),
    pa.decimal128(38, 10): st.one_of(st.integers(-3, 3), st.integers(-(10**38) + 1, 10**38 - 1)),
    pa.string(): TEXTS,
    pa.binary(): st.one_of(TEXTS.map(str.encode), st.binary(max_size=12)),
}


def array(kind: pa.DataType, values: list[Any]) -> pa.Array[Any]:
    """The values as an array; temporal ones and decimals are given as integers."""
    if pa.types.is_decimal128(kind):
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


@st.composite
def key_tables(draw: st.DrawFn, kinds: tuple[pa.DataType, ...], max_size: int = 30) -> pa.Table:
    """Keys of columns k0, k1, …, ascending, each once."""
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=max_size))
    columns = {f"k{n}": array(kind, [row[n] for row in rows]) for n, kind in enumerate(kinds)}
    return sorted_once(pa.table(columns))


def sorted_once(keys: pa.Table) -> pa.Table:
    """The keys in order, each once."""
    names = tuple(keys.column_names)
    numbered = keys.append_column(SEQUENCE_NUMBER_COLUMN, pa.array(np.zeros(keys.num_rows, np.int64)))
    segments = sort_segments(numbered, RowOrder(names))
    return take_rows(keys, segments.order[segments.starts], names)


def exact(keys: pa.Table) -> list[tuple[Any, ...]]:
    """The keys as values that are equal in Python when they are equal as keys."""
    return [tuple(map(_exact, row)) for row in zip(*(_plain(column) for column in keys.columns), strict=True)]


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_temporal(column.type):
        return whole.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()
    return whole.to_pylist()


def _exact(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "NaN" if value != value else value.hex()
