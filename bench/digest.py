"""One number for all cells of a table, whatever the order of its rows; `PaimonBench.java` makes the same.

    cell     NULL: a constant; numbers: mix(their 64 bits, integers sign-extended, decimals unscaled, timestamps in
             microseconds); texts: mix(length + sum of mix(byte + 256 * position)); arrays: mix(length + sum of
             mix(cell of the element + position))
    row      mix(sum of mix(cell + column number))
    table    sum over the rows, modulo 2^64

A mixed row cannot be made up by cells of other rows, so that equal digests mean equal tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from bench.cells import Words, splitmix64

_NULL: Final = np.uint64(0x6E756C6C)
_BATCH_ROWS: Final = 64 * 1024


def digest(batches: Iterable[pa.RecordBatch]) -> dict[str, object]:
    """Number of rows and the digest of all their columns."""
    count = total = 0
    for batch in batches:
        for begin in range(0, batch.num_rows, _BATCH_ROWS):
            part = batch.slice(begin, _BATCH_ROWS)
            count += part.num_rows
            total += int(_row_words(part).sum(dtype=np.uint64))
    return {"seconds": 0.0, "rows": count, "checksum": total % (1 << 64)}


def _row_words(batch: pa.RecordBatch) -> Words:
    words = np.zeros(batch.num_rows, np.uint64)
    for ordinal, column in enumerate(batch.columns):
        words += splitmix64(_cell_words(column) + np.uint64(ordinal))
    return splitmix64(words)


def _cell_words(values: pa.Array[Any]) -> Words:
    kind = values.type
    if pt.is_list(kind):
        words = _sums(_cell_words(values.flatten()), np.asarray(values.value_lengths().fill_null(0)), np.uint64(1))
    elif pt.is_string(kind) or pt.is_large_string(kind):
        filled = values.fill_null("")
        offset_type = np.int64 if pt.is_large_string(kind) else np.int32
        offsets = np.frombuffer(filled.buffers()[1], offset_type)[filled.offset : filled.offset + len(filled) + 1]
        data = filled.buffers()[2]
        flat = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
        words = _sums(flat.astype(np.uint64), np.diff(offsets), np.uint64(256))
    else:
        words = splitmix64(_number_words(values))
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, words, _NULL)


def _sums(parts: Words, lengths: Any, step: np.uint64) -> Words:
    """mix(length + sum of mix(part + step * position)), of the parts of each value."""
    lengths = lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    positions = (np.arange(len(parts)) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
    running = np.append(np.uint64(0), np.cumsum(splitmix64(parts + step * positions), dtype=np.uint64))
    return splitmix64(lengths.astype(np.uint64) + running[ends] - running[ends - lengths])


def _number_words(values: pa.Array[Any]) -> Words:
    if pt.is_decimal(values.type):
        low = np.frombuffer(values.buffers()[1], np.uint64)[::2]
        return low[values.offset : values.offset + len(values)]
    if pt.is_boolean(values.type):
        return values.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
    if pt.is_temporal(values.type):
        if pt.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us"))
        values = values.view(pa.int32() if pt.is_date32(values.type) else pa.int64())
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        return numbers.astype(np.float64).view(np.uint64)
    return numbers.astype(np.int64).view(np.uint64)
