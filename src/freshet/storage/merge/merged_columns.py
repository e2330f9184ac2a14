"""The decision of engines that make a row column by column: the columns' results, put together.

| a column's result | lone keys | merged keys |
|---|---|---|
| `Chosen` | their row's value | the value of the row chosen, NULL for -1 |
| `Computed` | their row's value | the value computed |
| none given | their row's value | the value of their newest row (key columns: all rows have the same) |

Every key has a result. Columns are computed when rows are asked for, and only of the columns asked for.

Source: MERGING.md §0 (lone-record rule), §2.5, §2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.choosers import Chooser, SharedEvents
from freshet.storage.merge.aggregate.events import AggregationError, ColumnAggregator, ColumnEvents, Event, EventCodes
from freshet.storage.merge.gather import contiguous, gathered, side_by_side
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import KeyRows, rows_at
from freshet.storage.merge.merge_function import RowKinds, kinds_of
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.model.value_bits import valid_flags


class Chosen(Frozen):
    """Position in the table of the row whose value is the result, for each merged key; -1 for NULL."""

    rows: Positions


class Computed(Frozen):
    """The value of each merged key."""

    values: pa.Array[Any]


ColumnResult = Chosen | Computed


class SystemValues(Frozen):
    """Row kind and sequence number of the result of each merged key."""

    kinds: RowKinds
    sequence_numbers: npt.NDArray[np.int64]


class KeyEvents(Frozen, dict=True):
    """What happens to columns: event i has `codes[i]` and the values of row `rows[i]`; key k begins at `starts[k]`."""

    codes: EventCodes
    rows: Positions
    starts: Positions
    lone: Flags | None
    """True for keys of one ADD whose value passes as it is; None if there is none."""

    @cached_property
    def shared(self) -> SharedEvents:
        """The events, for functions that choose one; no code is changed after this was asked."""
        return SharedEvents(self.codes, self.starts)

    @cached_property
    def exact_codes(self) -> EventCodes:
        """The codes for functions that may change a single value: SET for what passes as it is."""
        if self.lone is None:
            return self.codes
        codes = self.codes.copy()
        codes[self.starts[self.lone]] = Event.SET
        return codes

    def with_leading_set(self, events: Positions) -> KeyEvents:
        """Each of these events is preceded by a SET of the same row; they are the first of their keys."""
        if not len(events):
            return self
        codes = np.insert(self.codes, events, np.int8(Event.SET))
        rows = np.insert(self.rows, events, self.rows[events])
        # A key begins later by the number of events inserted before it, its own excepted.
        starts = self.starts + np.searchsorted(events, self.starts, side="left")
        return KeyEvents(codes, rows, starts, self.lone)


class ColumnResults(ABC):
    """The results of the columns of the merged keys, by name. Threads may ask side by side."""

    def __init__(self, keys: KeyRows, table: MergedTable, scalar_keys: Flags) -> None:
        """`scalar_keys` are keys for which something was done one by one already."""
        self._keys = keys
        self._table = table
        self._scalar_keys = [scalar_keys]

    @property
    def scalar_count(self) -> int:
        """Keys for which something was done one by one, in the columns asked for so far."""
        return int(np.logical_or.reduce(self._scalar_keys).sum())

    @abstractmethod
    def column(self, name: str) -> ColumnResult | None:
        """The result of one column, which is asked for once; None where the newest row of each key has it."""

    def _aggregated(self, column: str, events: KeyEvents, function: ColumnAggregator | Chooser) -> ColumnResult:
        """The result of a column by its aggregate function."""
        keys = self._keys
        try:
            if isinstance(function, Chooser):
                choice = function.choose(events.shared, keys.valid(column, events.rows))
                self._scalar_keys.append(choice.scalar_keys)
                return Chosen(rows_at(events.rows, choice.events))
            codes = events.codes if function.keeps_lone_value else events.exact_codes
            reduction = function.reduce(ColumnEvents(keys.values(column, events.rows), codes, events.starts))
        except AggregationError as error:
            row = int(events.rows[error.event])
            raise self._table.merge_error(keys.table, row, f"column {column!r}: {error.reason}") from error
        self._scalar_keys.append(reduction.scalar_keys)
        return Computed(reduction.values)


class MergedColumns(Frozen, dict=True):
    """A `Decision`; `keys` are those merged."""

    segments: KeySegments
    keys: KeyRows
    system: SystemValues
    results: ColumnResults
    table: MergedTable

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
                row = int(_kept(newest, kept)[np.flatnonzero(~valid_flags(values))[0]])
                reason = f"column {name!r} is NOT NULL, and merging leaves NULL there; make the column nullable"
                raise self.table.merge_error(rows, row, reason)
            return values

        arrays = side_by_side(column, columns, rows.num_rows, executor)
        self.table.metrics.add(self.keys.merged_count, self.results.scalar_count)
        return pa.Table.from_arrays(arrays, schema=schema)

    @cached_property
    def _newest(self) -> Positions:
        """The row that gives each key its values unless a column says otherwise."""
        return self.segments.last_rows

    @cached_property
    def _sequence_numbers(self) -> npt.NDArray[np.int64]:
        if self.keys.numbers is None:
            return self.system.sequence_numbers
        numbers: npt.NDArray[np.int64] = self.segments.rows.column(SEQUENCE_NUMBER_COLUMN).to_numpy()[self._newest]
        numbers[self.keys.numbers] = self.system.sequence_numbers
        return numbers

    def _column(self, stored: pa.ChunkedArray[Any], result: ColumnResult | None, kept: Flags | None) -> pa.Array[Any]:
        numbers = self.keys.numbers
        if not isinstance(result, Computed):
            rows = self._newest if result is None else self._of_all_keys(result.rows)
            return gathered(contiguous(stored), _kept(rows, kept), may_miss=result is not None)
        if numbers is None:
            return result.values if kept is None else result.values.filter(pa.array(kept))
        positions = self._of_all_keys(len(stored) + np.arange(len(numbers)))
        return gathered(contiguous(stored, result.values), _kept(positions, kept), may_miss=False)

    def _of_all_keys(self, rows: Positions) -> Positions:
        """The newest row of lone keys, and these of the merged ones."""
        if self.keys.numbers is None:
            return rows
        positions = self._newest.copy()
        positions[self.keys.numbers] = rows
        return positions


def _kept(values: npt.NDArray[Any], kept: Flags | None) -> npt.NDArray[Any]:
    return values if kept is None else values[kept]
