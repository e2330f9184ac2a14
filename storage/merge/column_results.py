"""What a column of the merged keys has come to: the row whose value stands, or a value that was computed.

`aggregated` hands the rows of merged keys to the aggregate function of a column, and takes its result back.

Source: MERGING.md §2.5, §2.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.merge.aggregate.aggregator import Chooser, ColumnAggregator
from freshet.storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, EventCodes, SharedEvents
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import KeyRows, rows_at
from freshet.storage.merge.merge_function import RowKinds
from freshet.storage.merge.sort_words import Positions


@dataclass(frozen=True, slots=True)
class Chosen:
    """Position in the table of the row whose value stands, for each merged key; -1 for NULL."""

    rows: Positions


@dataclass(frozen=True, slots=True)
class Computed:
    """The value of each merged key."""

    values: pa.Array[Any]


ColumnResult = Chosen | Computed


@dataclass(frozen=True, slots=True)
class SystemValues:
    """Row kind and sequence number of the result of each merged key."""

    kinds: RowKinds
    sequence_numbers: npt.NDArray[np.int64]


class NullInNotNull(Exception):
    """Merging left NULL in a NOT NULL column; `row` is the newest row of such a key."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(column)
        self.column = column
        self.row = row


@dataclass(frozen=True)
class KeyEvents:
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


class EventRefused(Exception):
    """A function cannot take an event of this column; `row` is the row it comes from."""

    def __init__(self, column: str, row: int, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.row = row
        self.reason = reason


def aggregated(
    keys: KeyRows, events: KeyEvents, column: str, function: ColumnAggregator | Chooser
) -> tuple[ColumnResult, Flags]:
    """The result of a column, and for which keys it took a loop."""
    try:
        if isinstance(function, Chooser):
            choice = function.choose(events.shared, keys.valid_in(column, events.rows))
            return Chosen(rows_at(events.rows, choice.events)), choice.scalar_keys
        codes = events.codes if function.keeps_lone_value else events.exact_codes
        reduction = function.reduce(ColumnEvents(keys.values_in(column, events.rows), codes, events.starts))
    except AggregationError as error:
        raise EventRefused(column, int(events.rows[error.event]), error.reason) from error
    return Computed(reduction.values), reduction.scalar_keys
