"""The decision of engines that make a row column by column: the columns' results, put together.

| a column's result | lone keys | merged keys |
|---|---|---|
| `Chosen` | their row's value | the value of the row chosen, NULL for -1 |
| `Computed` | their row's value | the value computed |
| none given | their row's value | the value of their newest row (key columns: all rows have the same) |

Every key has a result. Columns are computed when rows are asked for, and only of the columns asked for.

Source: MERGING.md §0 (lone-record rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.column_results import (
    Chosen,
    ColumnResult,
    Computed,
    EventRefused,
    NullInNotNull,
    SystemValues,
)
from freshet.storage.merge.gather import gathered, joined, valid_flags
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import KeyRows
from freshet.storage.merge.merge_error import MergedTable
from freshet.storage.merge.merge_function import RowKinds, kinds_of
from freshet.storage.merge.merge_metrics import MergeMetrics
from freshet.storage.merge.sort_words import Positions
from freshet.storage.merge.take import PARALLEL_CELLS_MIN
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN


class ColumnResults(Protocol):
    """The results of the columns of the merged keys."""

    @property
    def scalar_count(self) -> int:
        """Keys for which something was done one by one, in the columns asked for so far."""
        ...

    def column(self, name: str) -> ColumnResult | None:
        """The result of one column; asked for each output column once, from several threads."""
        ...


@dataclass(frozen=True)
class MergedColumns:
    """A `Decision`; `keys` are those merged."""

    segments: KeySegments
    keys: KeyRows
    system: SystemValues
    results: ColumnResults
    table: MergedTable
    metrics: MergeMetrics

    @cached_property
    def kinds(self) -> RowKinds:
        """The kind of each key's result."""
        lone, numbers = self.keys.lone, self.keys.numbers
        if numbers is None and lone is None:
            return self.system.kinds
        kinds: RowKinds = kinds_of(self.segments.rows)[self._newest]
        if numbers is not None:
            kinds[numbers] = self.system.kinds
        elif lone is not None:
            kinds = np.where(lone, kinds, self.system.kinds)
        return kinds

    def rows(self, kept: Flags | None, columns: Sequence[str], executor: Executor | None) -> pa.Table:
        """One row for each key kept."""
        rows = self.segments.rows
        schema = pa.schema([rows.schema.field(name) for name in columns])
        if not columns:
            return pa.table({}, schema=schema)
        newest = self._newest

        def column(name: str) -> pa.Array[Any]:
            if name == VALUE_KIND_COLUMN:
                return pa.array(_kept(self.kinds, kept))
            if name == SEQUENCE_NUMBER_COLUMN:
                return pa.array(_kept(self._sequence_numbers, kept))
            values = self._column(rows.column(name), self.results.column(name), kept)
            if name in self.table.not_null and values.null_count:
                raise NullInNotNull(name, int(_kept(newest, kept)[np.flatnonzero(~valid_flags(values))[0]]))
            return values

        try:
            if executor is None or rows.num_rows * len(columns) < PARALLEL_CELLS_MIN:
                arrays = [column(name) for name in columns]
            else:
                arrays = list(executor.map(column, columns))
        except (EventRefused, NullInNotNull) as error:
            raise self.table.column_error(rows, error) from error
        self.metrics.add(self.keys.merged_count, self.results.scalar_count)
        return pa.Table.from_arrays(arrays, schema=schema)

    @cached_property
    def _newest(self) -> Positions:
        """The row that stands for each key unless a column says otherwise."""
        return self.segments.last_rows

    @cached_property
    def _sequence_numbers(self) -> npt.NDArray[np.int64]:
        if self.keys.numbers is None:
            return self.system.sequence_numbers
        numbers: npt.NDArray[np.int64] = self.segments.rows.column(SEQUENCE_NUMBER_COLUMN).to_numpy()[self._newest]
        numbers[self.keys.numbers] = self.system.sequence_numbers
        return numbers

    def _column(self, stored: pa.ChunkedArray[Any], result: ColumnResult | None, kept: Flags | None) -> pa.Array[Any]:
        if not isinstance(result, Computed):
            positions = _kept(self._rows_chosen(result), kept)
            return gathered(joined(stored.chunks, stored.type), positions, may_miss=result is not None)
        if self.keys.numbers is None:
            return result.values if kept is None else result.values.filter(pa.array(kept))
        positions = self._newest.copy()
        positions[self.keys.numbers] = len(stored) + np.arange(len(self.keys.numbers))
        return gathered(joined([*stored.chunks, result.values], stored.type), _kept(positions, kept), may_miss=False)

    def _rows_chosen(self, chosen: Chosen | None) -> Positions:
        if chosen is None:
            return self._newest
        if self.keys.numbers is None:
            return chosen.rows
        rows = self._newest.copy()
        rows[self.keys.numbers] = chosen.rows
        return rows


def _kept(values: npt.NDArray[Any], kept: Flags | None) -> npt.NDArray[Any]:
    return values if kept is None else values[kept]
