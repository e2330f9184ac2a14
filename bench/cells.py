"""The formula of the benchmarks' cells, for whole columns.

A cell is made of `bits = splitmix64(SEED + row * 64 + column)`; text is cut from a 64-symbol alphabet, six bits a
character, so that it does not compress much. `PaimonBench.java` holds the same formula.

| kind | type | value |
|---|---|---|
| BIGINT, INT, DOUBLE, DECIMAL(14, 4), TIMESTAMP(6), DATE, BOOLEAN | the same | bits, cut to size |
| SMALL | BIGINT | 0 to 999: sums do not overflow |
| QUARTER | DOUBLE | quarters up to 2^18: sums are exact, in whatever order they are made |
| CLOCK | BIGINT | the row's number plus up to 200,000: grows, but rows come late |
| TEXTn | STRING | n characters |
| KEYn | STRING | n digits of a number in the key space |
| INTSn | ARRAY<INT> | up to n numbers |

A kind that ends in `?` is NULL in half of its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SEED: Final = 20261121
_ALPHABET: Final = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", dtype=np.uint8)
_LATE_ROWS: Final = 200_000
_TYPES: Final = {"SMALL": "BIGINT", "QUARTER": "DOUBLE", "CLOCK": "BIGINT"}

Words = npt.NDArray[np.uint64]


def splitmix64(value: Words) -> Words:
    """The 64-bit mixer both sides use; input and output uint64."""
    with np.errstate(over="ignore"):
        z = value + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def paimon_type(kind: str) -> str:
    """Type of a column in the table."""
    bare = kind.removesuffix("?")
    if bare.startswith(("TEXT", "KEY")):
        return "STRING"
    return "ARRAY<INT>" if bare.startswith("INTS") else _TYPES.get(bare, bare)


def cells(kind: str, rows: Words, ordinal: int, key_space: int) -> pa.Array[Any]:
    """The cells of one column in these rows; `key_space` is not 0 for a key."""
    with np.errstate(over="ignore"):
        bits = splitmix64(np.uint64(SEED) + rows * np.uint64(64) + np.uint64(ordinal))
    values = _values(kind.removesuffix("?"), bits, rows, key_space)
    if not kind.endswith("?"):
        return values
    is_null = (splitmix64(~bits) & np.uint64(1)).astype(bool)
    return pc.if_else(pa.array(is_null), pa.scalar(None, values.type), values)


def _values(kind: str, bits: Words, rows: Words, key_space: int) -> pa.Array[Any]:
    if kind.startswith("KEY"):
        return _key_text(bits % np.uint64(key_space), int(kind[3:]))
    if kind.startswith("TEXT"):
        return _text(bits, int(kind[4:]))
    if kind.startswith("INTS"):
        return _numbers(bits, int(kind[4:]))
    if kind == "CLOCK":
        return pa.array((rows + bits % np.uint64(_LATE_ROWS)).astype(np.int64))
    if key_space:
        return pa.array((bits % np.uint64(key_space)).astype(np.int64))
    return _FIXED[kind](bits)


def _text(bits: Words, length: int) -> pa.Array[Any]:
    words = -(-length // 10)
    symbols = np.empty((len(bits), words * 10), dtype=np.uint8)
    for word in range(words):
        with np.errstate(over="ignore"):
            mixed = splitmix64(bits + np.uint64(word))
        for position in range(10):
            symbols[:, word * 10 + position] = (mixed >> np.uint64(6 * position)) & np.uint64(63)
    return _strings(_ALPHABET[symbols[:, :length]])


def _key_text(keys: Words, length: int) -> pa.Array[Any]:
    digits = np.empty((len(keys), length), dtype=np.uint8)
    rest = keys.copy()
    for position in range(length - 1, -1, -1):
        digits[:, position] = rest % np.uint64(10) + np.uint64(ord("0"))
        rest //= np.uint64(10)
    return _strings(digits)


def _strings(matrix: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    count, length = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * length
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _numbers(bits: Words, length_max: int) -> pa.Array[Any]:
    lengths = (bits % np.uint64(length_max + 1)).astype(np.int64)
    with np.errstate(over="ignore"):
        table = np.stack([splitmix64(bits + np.uint64(1 + position)) for position in range(length_max)], axis=1)
    elements = table[np.arange(length_max) < lengths[:, None]]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _int(elements))


def _int(bits: Words) -> pa.Array[Any]:
    return pa.array((bits >> np.uint64(32)).astype(np.uint32).view(np.int32))


def _decimal(bits: Words) -> pa.Array[Any]:
    unscaled = (bits % np.uint64(10**12)).astype(np.int64)
    wide = np.zeros((len(unscaled), 2), dtype=np.int64)
    wide[:, 0] = unscaled
    return pa.Array.from_buffers(pa.decimal128(14, 4), len(unscaled), [None, pa.py_buffer(wide)])


_FIXED: Final[Mapping[str, Callable[[Words], pa.Array[Any]]]] = {
    "BIGINT": lambda bits: pa.array(bits.astype(np.int64)),
    "SMALL": lambda bits: pa.array((bits % np.uint64(1000)).astype(np.int64)),
    "INT": _int,
    "DOUBLE": lambda bits: pa.array((bits >> np.uint64(11)).astype(np.float64) / float(1 << 53)),
    "QUARTER": lambda bits: pa.array((bits % np.uint64(1 << 20)).astype(np.float64) / 4),
    "DECIMAL(14, 4)": _decimal,
    "TIMESTAMP(6)": lambda bits: pa.array((bits % np.uint64(2 * 10**15)).astype(np.int64), pa.timestamp("us")),
    "DATE": lambda bits: pa.array((bits % np.uint64(20000)).astype(np.int32), pa.date32()),
    "BOOLEAN": lambda bits: pa.array((bits & np.uint64(1)).astype(bool)),
}
