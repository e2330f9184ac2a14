"""The rows of the benchmarks: every peer makes the same ones, from the same formula.

A cell is `splitmix64(SEED + row * 64 + column)`; text is cut from the 64-symbol alphabet, six bits a character, so that
it does not compress much. `PaimonBench.java` holds the same formula; a checksum of the rows read back shows that both
wrote the same table.

| workload | rows | shape |
|---|---|---|
| W1 | 2 M in ten commits | bigint key uniform in 10 M, 150 bytes a row, two buckets |
| W2 | 1 M in ten commits | string key uniform in 5 M, 21 mixed columns, two buckets |
| W5 | 2 M in five commits, write-only | bigint key uniform in 1 M, 10 columns, one bucket: five overlapping runs |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

SEED: Final = 20261121
_ALPHABET: Final = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: `columns` maps a column to its Paimon type; the first column is the primary key."""

    name: str
    rows: int
    commits: int
    buckets: int
    key_space: int
    columns: Mapping[str, str]
    write_only: bool = False

    @property
    def key(self) -> str:
        """Name of the primary key column."""
        return next(iter(self.columns))

    def commit_rows(self, number: int) -> range:
        """Row numbers of one commit."""
        size = self.rows // self.commits
        return range(number * size, (number + 1) * size)

    def table(self, number: int) -> pa.Table:
        """Rows of one commit, as Arrow."""
        rows = self.commit_rows(number)
        index = np.arange(rows.start, rows.stop, dtype=np.uint64)
        arrays = {
            name: _column(kind, index, ordinal, self.key_space if ordinal == 0 else 0)
            for ordinal, (name, kind) in enumerate(self.columns.items())
        }
        return pa.table(arrays)

    def scaled(self, factor: float) -> Workload:
        """The same workload with fewer rows and, in proportion, fewer keys."""
        rows = max(self.commits, int(self.rows * factor) // self.commits * self.commits)
        return Workload(
            self.name,
            rows,
            self.commits,
            self.buckets,
            max(1, int(self.key_space * factor)),
            self.columns,
            self.write_only,
        )


W1: Final = Workload(
    "W1", 2_000_000, 10, 2, 10_000_000, {"id": "BIGINT", "v1": "BIGINT", "v2": "DOUBLE", "payload": "TEXT126"}
)
W2: Final = Workload(
    "W2",
    1_000_000,
    10,
    2,
    5_000_000,
    {
        "k": "KEY16",
        **{f"i{n}": "INT" for n in range(4)},
        **{f"l{n}": "BIGINT" for n in range(4)},
        **{f"d{n}": "DOUBLE" for n in range(3)},
        **{f"m{n}": "DECIMAL(14, 4)" for n in range(2)},
        **{f"t{n}": "TIMESTAMP(6)" for n in range(2)},
        "day": "DATE",
        "flag": "BOOLEAN",
        "s0": "TEXT8",
        "s1": "TEXT20",
        "s2": "TEXT40",
    },
)
W5: Final = Workload(
    "W5",
    2_000_000,
    5,
    1,
    1_000_000,
    {
        "id": "BIGINT",
        **{f"l{n}": "BIGINT" for n in range(3)},
        **{f"i{n}": "INT" for n in range(2)},
        **{f"d{n}": "DOUBLE" for n in range(2)},
        "s0": "TEXT20",
        "s1": "TEXT20",
    },
    write_only=True,
)
WORKLOADS: Final[Mapping[str, Workload]] = {workload.name: workload for workload in (W1, W2, W5)}


def splitmix64(value: np.ndarray) -> np.ndarray:
    """The 64-bit mixer both sides use; input and output uint64."""
    with np.errstate(over="ignore"):
        z = value + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def paimon_type(kind: str) -> str:
    """Type of a column in the table: texts and keys are STRING."""
    return "STRING" if kind.startswith(("TEXT", "KEY")) else kind


def _cells(index: np.ndarray, ordinal: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return splitmix64(np.uint64(SEED) + index * np.uint64(64) + np.uint64(ordinal))


def _column(kind: str, index: np.ndarray, ordinal: int, key_space: int) -> pa.Array:
    bits = _cells(index, ordinal)
    if kind.startswith("KEY"):
        return _key_text(bits % np.uint64(key_space), int(kind[3:]))
    if kind.startswith("TEXT"):
        return _text(bits, int(kind[4:]))
    if key_space:
        return pa.array((bits % np.uint64(key_space)).astype(np.int64))
    return _FIXED[kind](bits)


def _text(bits: np.ndarray, length: int) -> pa.Array:
    words = -(-length // 10)
    symbols = np.empty((len(bits), words * 10), dtype=np.uint8)
    for word in range(words):
        with np.errstate(over="ignore"):
            mixed = splitmix64(bits + np.uint64(word))
        for position in range(10):
            symbols[:, word * 10 + position] = (mixed >> np.uint64(6 * position)) & np.uint64(63)
    return _strings(_ALPHABET[symbols[:, :length]])


def _key_text(keys: np.ndarray, length: int) -> pa.Array:
    digits = np.empty((len(keys), length), dtype=np.uint8)
    rest = keys.copy()
    for position in range(length - 1, -1, -1):
        digits[:, position] = rest % np.uint64(10) + np.uint64(ord("0"))
        rest //= np.uint64(10)
    return _strings(digits)


def _strings(matrix: np.ndarray) -> pa.Array:
    count, length = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * length
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _decimal(bits: np.ndarray) -> pa.Array:
    unscaled = (bits % np.uint64(10**12)).astype(np.int64)
    wide = np.zeros((len(unscaled), 2), dtype=np.int64)
    wide[:, 0] = unscaled
    return pa.Array.from_buffers(pa.decimal128(14, 4), len(unscaled), [None, pa.py_buffer(wide)])


_FIXED: Final[Mapping[str, Callable[[np.ndarray], pa.Array]]] = {
    "BIGINT": lambda bits: pa.array(bits.astype(np.int64)),
    "INT": lambda bits: pa.array((bits >> np.uint64(32)).astype(np.uint32).view(np.int32)),
    "DOUBLE": lambda bits: pa.array((bits >> np.uint64(11)).astype(np.float64) / float(1 << 53)),
    "DECIMAL(14, 4)": _decimal,
    "TIMESTAMP(6)": lambda bits: pa.array((bits % np.uint64(2 * 10**15)).astype(np.int64), pa.timestamp("us")),
    "DATE": lambda bits: pa.array((bits % np.uint64(20000)).astype(np.int32), pa.date32()),
    "BOOLEAN": lambda bits: pa.array((bits & np.uint64(1)).astype(bool)),
}
