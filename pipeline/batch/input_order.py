"""The order in which rows entered: what decides which of two changes of one key is the later one.

| source | order |
|---|---|
| Kafka | (source, 0, topic, Kafka partition, offset, place within the record) |
| files | (source, modification time, path, NULL, row, place within the record) |
| any other frame | (Spark partition, position in it), as one number |

A shuffle hands a task the sorted runs of its map tasks in any sequence, so the rows are put back in order here. In the
usual case the rows are in order already (found out in one comparison per row and column, 1 ns each), or whole runs
have changed places; numpy's stable sort takes such runs as they are.

Source: design §1.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]


def input_order(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Int64Array | None:
    """Row numbers in input order, the most significant column first; None when the rows are in order as they are.

    NULL comes before every value.
    """
    keys = [key for key in (_sort_key(column) for column in columns) if key is not None]
    if not keys or _is_sorted(keys):
        return None
    if len(keys) == 1:
        return np.argsort(keys[0], kind="stable")
    return np.lexsort(keys[::-1])


def _sort_key(column: Any) -> npt.NDArray[Any] | None:
    """The column as numbers of the same order; None when it is the same in every row and so decides nothing."""
    if len(column) == 0 or column.null_count == len(column):
        return None
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _text_ranks(column)
    numbers: Any = column.cast(pa.int64())
    if numbers.null_count:
        numbers = pc.fill_null(numbers, np.iinfo(np.int64).min)
    key: Int64Array = numbers.to_numpy()
    return None if (key == key[0]).all() else key


def _text_ranks(column: Any) -> npt.NDArray[Any] | None:
    """Few distinct texts (topics, paths) in many rows: ranked once, then looked up by dictionary code."""
    encoded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = encoded.dictionary_encode()
    texts: Any = encoded.dictionary.to_pylist()
    if len(texts) == 1 and not encoded.null_count:
        return None
    ranks = np.empty(len(texts) + 1, dtype=np.int64)
    ranks[np.array(sorted(range(len(texts)), key=lambda place: texts[place].encode()), dtype=np.int64)] = np.arange(
        len(texts), dtype=np.int64
    )
    ranks[-1] = -1
    indices: Any = encoded.indices
    codes: Any = pc.fill_null(indices, -1)
    return ranks[codes.to_numpy(zero_copy_only=False)]


def _is_sorted(keys: Sequence[npt.NDArray[Any]]) -> bool:
    """True when no row is smaller than the one before it, compared column by column."""
    undecided = np.ones(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        before, after = key[:-1], key[1:]
        if bool((undecided & (before > after)).any()):
            return False
        undecided &= before == after
        if not undecided.any():
            return True
    return True
