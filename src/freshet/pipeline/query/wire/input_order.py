"""The order in which rows entered: what decides which of two changes of one key is the later one.

| source | order |
|---|---|
| Kafka | (source, NULL, topic, Kafka partition, offset, position within the record) |
| files | (source, modification time, path, NULL, row, position within the record) |
| any other frame | (Spark partition, position in it), as one number |

A shuffle hands a task the sorted runs of its map tasks in any sequence, so the rows are put back in order here. In the
usual case the rows are in order already (found out in one comparison per row and column, 1 ns each), or whole runs
have changed order: `runs_in_order` finds them and puts them in order as wholes. Where runs overlap, all rows are
sorted.

Source: pipeline/README.md, "Glossary".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]

RUNS_MAX: Final = 10_000
"""More runs than this are no runs: the rows are sorted one by one."""


class OrderedRun(NamedTuple):
    """Rows `start` up to `stop` of one batch, in order; `first` and `last` are their positions in the input order."""

    batch: int
    start: int
    stop: int
    first: tuple[Any, ...]
    last: tuple[Any, ...]


def runs_in_order(
    batches: Sequence[pa.RecordBatch], order_columns: Sequence[str], *, let_go: Callable[[], None] = lambda: None
) -> list[OrderedRun] | None:
    """The sorted runs of these batches, one after the other in input order; None where they overlap.

    `let_go` is called after each batch was looked at.
    """
    runs: list[OrderedRun] = []
    for number, batch in enumerate(batches):
        columns: list[Any] = [batch.column(name) for name in order_columns]
        cuts = _descents([key for key in (_sort_key(column) for column in columns) if key is not None])
        bounds = [0, *cuts, batch.num_rows]
        if len(runs) + len(bounds) > RUNS_MAX:
            return None
        for start, stop in pairwise(bounds):
            runs.append(OrderedRun(number, start, stop, _position(columns, start), _position(columns, stop - 1)))
        let_go()
    runs.sort(key=lambda run: run.first)
    if any(before.last > after.first for before, after in pairwise(runs)):
        return None
    return runs


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
    """Few distinct texts (topics, paths) in many rows: ranked once, then looked up by dictionary code.

    Chunk by chunk: all the paths of a task need not fit into one column of 32-bit offsets.
    """
    encoded = column.dictionary_encode()
    chunks = encoded.unify_dictionaries().chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    texts: Any = chunks[0].dictionary.to_pylist()
    if len(texts) == 1 and not column.null_count:
        return None
    ranks = np.empty(len(texts) + 1, dtype=np.int64)
    ranks[np.array(sorted(range(len(texts)), key=lambda position: texts[position].encode()), dtype=np.int64)] = (
        np.arange(len(texts), dtype=np.int64)
    )
    ranks[-1] = -1
    codes: list[Any] = [pc.fill_null(chunk.indices, -1) for chunk in chunks]
    return ranks[np.concatenate([code.to_numpy(zero_copy_only=False) for code in codes])]


def _descents(keys: Sequence[npt.NDArray[Any]]) -> list[int]:
    """Rows that are smaller than the one before them, compared column by column."""
    if not keys:
        return []
    undecided = np.ones(len(keys[0]) - 1, dtype=bool)
    falls = np.zeros(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        before, after = key[:-1], key[1:]
        falls |= undecided & (before > after)
        undecided &= before == after
    return [int(position) + 1 for position in np.flatnonzero(falls)]


def _position(columns: Sequence[Any], row: int) -> tuple[Any, ...]:
    """The row's position in the input order, so that NULL is smallest."""
    values = [column[row].as_py() for column in columns]
    return tuple((value is not None, value.encode() if isinstance(value, str) else value or 0) for value in values)


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
