"""Puts the result of a merge together, column by column.

| a column's result | lone keys | merged keys |
|---|---|---|
| `Chosen` | their row's value | the value of the row chosen, NULL for -1 |
| `Computed` | their row's value | the value computed |
| none given | their row's value | the value of their newest row (key columns: all rows have the same) |

Source: LSM semantics §0 (lone-record rule).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.gather import gathered, joined, valid_flags
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import KeyRows
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import PARALLEL_CELLS_MIN
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN


@dataclass(frozen=True, slots=True)
class Chosen:
    """Position in the table of the row whose value stands, for each merged key; -1 for NULL."""

    rows: Positions


@dataclass(frozen=True, slots=True)
class Computed:
    """The value of each merged key."""

    values: pa.Array[Any]


ColumnResult = Chosen | Computed
Results = Callable[[str], ColumnResult | None]
"""The result of a column, by name; asked for each output column once, from several threads."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Kind and sequence number of the result of each merged key."""

    kinds: npt.NDArray[np.int8]
    sequence_numbers: npt.NDArray[np.int64]


class NullInNotNull(Exception):
    """Merging left NULL in a NOT NULL column; `row` is the newest row of such a key."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(column)
        self.column = column
        self.row = row


def assemble(
    segments: KeySegments,
    keys: KeyRows,
    results: Results,
    heads: Heads,
    *,
    drop_delete: bool,
    columns: tuple[str, ...] | None,
    not_null: frozenset[str],
    executor: Executor | None,
) -> pa.Table:
    """One row per key, in key order; without those of kind -U and -D where they are dropped."""
    rows = segments.rows
    names = list(rows.column_names if columns is None else columns)
    schema = pa.schema([rows.schema.field(name) for name in names])
    if not names:
        return pa.table({}, schema=schema)
    outline = _Outline.of(segments, keys, heads, drop_delete)

    def column(name: str) -> pa.Array[Any]:
        if name in outline.system:
            return outline.system[name]
        values = outline.column(rows.column(name), results(name))
        if name in not_null and values.null_count:
            raise NullInNotNull(name, outline.newest_of(values))
        return values

    if executor is None or rows.num_rows * len(names) < PARALLEL_CELLS_MIN:
        arrays = [column(name) for name in names]
    else:
        arrays = list(executor.map(column, names))
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class _Outline:
    """Which keys have a result, and the row that stands for each of them unless a column says otherwise."""

    newest: Positions
    kept: Flags | None
    numbers: Positions | None
    system: Mapping[str, pa.Array[Any]]

    @classmethod
    def of(cls, segments: KeySegments, keys: KeyRows, heads: Heads, drop_delete: bool) -> _Outline:
        newest = segments.last_rows
        kinds, sequence = heads.kinds, heads.sequence_numbers
        stored = segments.rows.column(VALUE_KIND_COLUMN).to_numpy()
        if keys.lone is not None:
            kinds = np.where(keys.lone, stored[newest], kinds)
        if keys.numbers is not None:
            kinds = stored[newest]
            kinds[keys.numbers] = heads.kinds
            sequence = segments.rows.column(SEQUENCE_NUMBER_COLUMN).to_numpy()[newest]
            sequence[keys.numbers] = heads.sequence_numbers
        kept = None
        if drop_delete:
            is_kept = (kinds != RowKind.UPDATE_BEFORE) & (kinds != RowKind.DELETE)
            if not is_kept.all():
                kept, kinds, sequence = is_kept, kinds[is_kept], sequence[is_kept]
        system = {VALUE_KIND_COLUMN: pa.array(kinds), SEQUENCE_NUMBER_COLUMN: pa.array(sequence)}
        return cls(newest, kept, keys.numbers, system)

    def column(self, stored: pa.ChunkedArray[Any], result: ColumnResult | None) -> pa.Array[Any]:
        if not isinstance(result, Computed):
            return gathered(joined(stored.chunks, stored.type), self._positions(result), may_miss=result is not None)
        if self.numbers is None:
            return result.values if self.kept is None else result.values.filter(pa.array(self.kept))
        positions = self.newest.copy()
        positions[self.numbers] = len(stored) + np.arange(len(self.numbers))
        if self.kept is not None:
            positions = positions[self.kept]
        return gathered(joined([*stored.chunks, result.values], stored.type), positions, may_miss=False)

    def newest_of(self, values: pa.Array[Any]) -> int:
        """The newest row of the first key whose value is NULL."""
        newest = self.newest if self.kept is None else self.newest[self.kept]
        return int(newest[np.flatnonzero(~valid_flags(values))[0]])

    def _positions(self, chosen: Chosen | None) -> Positions:
        positions = self.newest
        if chosen is not None:
            positions = chosen.rows
            if self.numbers is not None:
                positions = self.newest.copy()
                positions[self.numbers] = chosen.rows
        return positions if self.kept is None else positions[self.kept]
