"""The rows of all nested tables of a column: which count, and what tells them apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.merge.aggregate.equality import equality_codes, field_columns, order_ranks, row_key_codes
from freshet.storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, Flags
from freshet.storage.merge.aggregate.groups import Codes
from freshet.storage.merge.aggregate.live_events import live_events
from freshet.storage.merge.aggregate.parts import Parts
from freshet.storage.merge.aggregate.values import valid_flags
from freshet.storage.options.engine import ColumnFunction

ERROR: Final = "error"
"""Null strategy that refuses rows with a NULL in their nested key."""

_IGNORE: Final = "ignore"


@dataclass(frozen=True, slots=True)
class NestedRows:
    """The rows of all nested tables. `counts` is true for rows that are not dropped."""

    column: str
    rows: pa.Array[Any]
    counts: Flags
    keys: Codes | None
    null_keys: Flags
    sequences: Codes | None
    strategy: str

    @classmethod
    def of(cls, function: ColumnFunction, column: str, rows: pa.Array[Any]) -> NestedRows:
        counts = valid_flags(rows)
        if not function.nested_key:
            return cls(column, rows, counts, None, np.zeros(len(rows), np.bool_), None, function.null_strategy)
        keys, null_keys = row_key_codes(rows, function.nested_key)
        null_keys &= counts
        if function.null_strategy == _IGNORE:
            counts = counts & ~null_keys
        sequences = None
        if function.nested_sequence:
            sequences = order_ranks(field_columns(rows, function.nested_sequence), function.nested_sequence)
        return cls(column, rows, counts, keys, null_keys, sequences, function.null_strategy)

    def identified(self) -> NestedRows:
        """With codes that tell rows apart, also where there is no nested key."""
        return self if self.keys is not None else replace(self, keys=equality_codes(self.rows))

    def refuse_null_keys(self, parts: Parts, events: ColumnEvents, *codes: Event, keys: Flags | None = None) -> None:
        """Raises `AggregationError` for the first event of these kinds, of these keys, with a NULL in a nested key."""
        if self.strategy != ERROR or not self.null_keys.any():
            return
        bad = np.append(0, np.cumsum(self.null_keys))
        found = bad[parts.starts + parts.lengths] > bad[parts.starts]
        found &= np.isin(events.codes, codes)
        if keys is not None:
            live = live_events(events)
            considered = np.zeros(len(found), np.bool_)
            considered[live.rows] = keys[live.keys]
            found &= considered
        if found.any():
            raise self.null_key_error(int(np.argmax(found)))

    def null_key_error(self, event: int) -> AggregationError:
        return AggregationError(
            event,
            "a nested row has NULL in its nested key; fill it, or set "
            f"fields.{self.column}.nested-key-null-strategy to merge or ignore",
        )
