"""The rows of the benchmarks: every peer makes the same ones, from the same formula (`cells`).

| workload | rows | shape |
|---|---|---|
| W1 | 2 M in ten commits | bigint key uniform in 10 M, 150 bytes a row, two buckets |
| W2 | 1 M in ten commits | string key uniform in 5 M, 21 mixed columns, two buckets |
| W1-lookup, W2-fifth, … | as W1, W2 | with a changelog producer: `PRODUCERS` |
| W5 | 2 M in five commits, write-only | bigint key uniform in 1 M, 10 columns, one bucket: five overlapping runs |
| W6 | 1 M in ten commits | partial-update: bigint key uniform in 400 K, 20 columns half NULL, two sequence groups |
| W7 | 1 M in ten commits | aggregation: bigint key uniform in 400 K, 14 columns, most half NULL: sum, max, |
| | | last_non_null_value, listagg, collect |
| W6-runs, W7-runs | 1 M in five commits, write-only | the same, one bucket: five overlapping runs |
| W7-numbers, W7-joins | as W7-runs | only sum, max and last_non_null_value; only listagg and collect |

A digest of the rows read back (`digest`) shows that all peers wrote the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from bench.cells import cells


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: `columns` maps a column to its kind of cells; the first column is the primary key."""

    name: str
    rows: int
    commits: int
    buckets: int
    key_space: int
    columns: Mapping[str, str]
    write_only: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Name of the primary key column."""
        return next(iter(self.columns))

    @property
    def option_words(self) -> tuple[str, ...]:
        """The options as words of a command."""
        return tuple(f"{key}={value}" for key, value in self.options.items())

    def commit_rows(self, number: int) -> range:
        """Row numbers of one commit."""
        size = self.rows // self.commits
        return range(number * size, (number + 1) * size)

    def table(self, number: int) -> pa.Table:
        """Rows of one commit, as Arrow."""
        rows = self.commit_rows(number)
        index = np.arange(rows.start, rows.stop, dtype=np.uint64)
        arrays = {
            name: cells(kind, index, ordinal, self.key_space if ordinal == 0 else 0)
            for ordinal, (name, kind) in enumerate(self.columns.items())
        }
        return pa.table(arrays)

    def scaled(self, factor: float) -> Workload:
        """The same workload with fewer rows and, in proportion, fewer keys."""
        rows = max(self.commits, int(self.rows * factor) // self.commits * self.commits)
        return replace(self, rows=rows, key_space=max(1, int(self.key_space * factor)))

    def sized(self, rows: int, key_space: int) -> Workload:
        """The same workload as `scaled` made it elsewhere."""
        return replace(self, rows=rows, key_space=key_space)

    def in_runs(self) -> Workload:
        """The same rows as five overlapping runs of one bucket."""
        return replace(self, name=f"{self.name}-runs", commits=5, buckets=1, write_only=True)


def _aggregated(name: str, functions: Mapping[str, tuple[str, str]]) -> Workload:
    """Aggregation; `functions` maps a column to its kind and its function."""
    options = {f"fields.{column}.aggregate-function": function for column, (_, function) in functions.items()}
    columns = {"id": "BIGINT", **{column: kind for column, (kind, _) in functions.items()}}
    return Workload(name, 1_000_000, 10, 2, 400_000, columns, options={"merge-engine": "aggregation", **options})


_GROUPS: Final = {
    "a": ("INT?", "INT?", "BIGINT?", "BIGINT?", "DOUBLE?", "DOUBLE?", "TEXT20?", "TEXT20?"),
    "b": ("INT?", "BIGINT?", "DOUBLE?", "DECIMAL(14, 4)?", "TIMESTAMP(6)?", "DATE?", "BOOLEAN?", "TEXT12?"),
}
_NUMBERS: Final = {
    "n0": ("SMALL", "sum"),
    "n1": ("SMALL?", "sum"),
    "n2": ("QUARTER?", "sum"),
    "n3": ("DECIMAL(14, 4)?", "sum"),
    "m0": ("DOUBLE?", "max"),
    "m1": ("INT", "max"),
    "m2": ("TIMESTAMP(6)?", "max"),
    "v0": ("INT?", "last_non_null_value"),
    "v1": ("DOUBLE?", "last_non_null_value"),
    "v2": ("TEXT20?", "last_non_null_value"),
}
_JOINS: Final = {"t0": ("TEXT8?", "listagg"), "t1": ("TEXT4", "listagg"), "c0": ("INTS3?", "collect")}

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
W6: Final = Workload(
    "W6",
    1_000_000,
    10,
    2,
    400_000,
    {
        "id": "BIGINT",
        **{
            column: kind
            for group, kinds in _GROUPS.items()
            for column, kind in ((f"{group}_clock", "CLOCK?"), *((f"{group}{n}", kind) for n, kind in enumerate(kinds)))
        },
        "note": "TEXT8?",
    },
    options={
        "merge-engine": "partial-update",
        **{
            f"fields.{group}_clock.sequence-group": ",".join(f"{group}{n}" for n in range(len(kinds)))
            for group, kinds in _GROUPS.items()
        },
    },
)
W7: Final = _aggregated("W7", {**_NUMBERS, **_JOINS})
PRODUCERS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"},
    "fifth": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "5"},
}
CHANGELOG_WORKLOADS: Final = tuple(
    replace(workload, name=f"{workload.name}-{name}", options=options)
    for workload in (W1, W2)
    for name, options in PRODUCERS.items()
)
"""With each changelog producer, and with none to see what it costs."""

WORKLOADS: Final[Mapping[str, Workload]] = {
    workload.name: workload
    for workload in (
        *CHANGELOG_WORKLOADS,
        W1,
        W2,
        W5,
        W6,
        W7,
        W6.in_runs(),
        W7.in_runs(),
        replace(_aggregated("W7", _NUMBERS).in_runs(), name="W7-numbers"),
        replace(_aggregated("W7", _JOINS).in_runs(), name="W7-joins"),
    )
}
