"""Merge engine `aggregation`: each column has a function, and a row of a key is one more value for it.

| row | columns | kind of the result, if it is the last row |
|---|---|---|
| +I, +U | agg(acc, x) | +I |
| -D, with `aggregation.remove-record-on-delete` | the row's, whatever was there | -D |
| -U, -D otherwise | retract(acc, x) | +I |

So a retract never removes a row with which it is merged. After a removal the following adds go on from the values of
the removed row. A `sequence.field` column has `last_value`. Sequence number: of the last row. A key with a lone row
passes as it is.

Source: MERGING.md §2.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from freshet.storage.merge.aggregate.choosers import Chooser
from freshet.storage.merge.aggregate.events import ColumnAggregator, Event
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import KeyRows, merged_rows
from freshet.storage.merge.merge_function import Decision, MergeFunction
from freshet.storage.merge.merged_columns import ColumnResult, ColumnResults, KeyEvents, MergedColumns, SystemValues
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN


@dataclass(frozen=True, slots=True)
class Aggregation(MergeFunction):
    """The engine with its options."""

    table: MergedTable
    functions: Mapping[str, ColumnAggregator | Chooser]
    """Of every column outside the primary key."""
    remove_record_on_delete: bool = False
    passes_lone_rows: bool = True

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        keys = merged_rows(segments, passes_lone_rows=self.passes_lone_rows)
        removes = keys.kinds == RowKind.DELETE if self.remove_record_on_delete else None
        codes = np.where(keys.retracts, np.int8(Event.RETRACT), np.int8(Event.ADD))
        if removes is not None:
            codes[removes] = Event.SET
        events = KeyEvents(codes, keys.rows, keys.starts, keys.lone)
        results = _Results(self, keys, events)
        return MergedColumns(segments, keys, _system_values(keys, removes), results, self.table)


class _Results(ColumnResults):
    def __init__(self, engine: Aggregation, keys: KeyRows, events: KeyEvents) -> None:
        super().__init__(keys, engine.table, np.zeros(keys.key_count, np.bool_))
        self._events = events
        self._functions = engine.functions

    def column(self, name: str) -> ColumnResult | None:
        return self._aggregated(name, self._events, self._functions[name]) if name in self._functions else None


def _system_values(keys: KeyRows, removes: Flags | None) -> SystemValues:
    last = keys.ends - 1
    kinds = np.full(keys.key_count, RowKind.INSERT, np.int8)
    if removes is not None:
        kinds[removes[last]] = RowKind.DELETE
    sequence = keys.table.column(SEQUENCE_NUMBER_COLUMN).to_numpy()[keys.rows[last]]
    return SystemValues(kinds, sequence)
