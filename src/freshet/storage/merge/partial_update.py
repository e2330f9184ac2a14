"""Merge engine `partial-update`: every row of a key brings some columns, and the newest that brings one wins.

A column outside groups takes the newest value of the adds that is not NULL. A column in a sequence group follows its
group (`sequence_groups` says what a row is to it):

| row, to the group | ordering columns | protected, no function | protected, with function |
|---|---|---|---|
| add, in order | the row's | the row's, also NULL | agg(acc, x) |
| add, late | - | - | agg(x, acc) |
| retract, in order | the row's | NULL | retract(acc, x) |
| retract, late | - | - | retract(acc, x) |
| no event | - | - | - |

What else a retract does:

| option | a leading retract (first row of the merge) | any retract |
|---|---|---|
| `ignore-delete` | sets all columns, no more | nothing |
| `…remove-record-on-delete` | sets all columns | -D sets all columns; -U nothing |
| sequence groups | sets all columns, then as above | as above |
| `…remove-record-on-sequence-group` | | -D in order in such a group sets all columns, and no more |
| none of them | refused | refused |

Kind: -D if the last row removed the record, or no add was seen; else +I. Sequence number: of the last row that was not
ignored, 0 if all were. A key with a lone row passes as it is.

A row that sets all columns begins a *span*: what lay before is gone, but for the memory of first_value and
first_non_null_value. Nothing is done row by row, except that with several groups that remove records those of a
key are found one after the other, because each resets what the other groups hold.

Source: MERGING.md §2.4, §2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.choosers import Chooser
from freshet.storage.merge.aggregate.events import ColumnAggregator, Event
from freshet.storage.merge.key_order import Flags, KeySegments
from freshet.storage.merge.key_rows import KeyRows, last_marked, merged_rows, rows_at
from freshet.storage.merge.merge_function import Decision, MergeFunction
from freshet.storage.merge.merged_columns import (
    Chosen,
    ColumnResult,
    ColumnResults,
    KeyEvents,
    MergedColumns,
    SystemValues,
)
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.merge.sequence_groups import GroupOrder, group_order, rows_removing_records
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.row_kind import RowKind
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN
from freshet.storage.options.engine import EngineOptions, SequenceGroup

NO_RULE: Final = (
    "partial-update takes rows of kind -U and -D only with a rule for them; set ignore-delete, "
    "partial-update.remove-record-on-delete, or sequence groups (fields.<column>.sequence-group)"
)


@dataclass(frozen=True, slots=True)
class PartialUpdate(MergeFunction):
    """The engine with its options."""

    table: MergedTable
    options: EngineOptions
    functions: Mapping[str, ColumnAggregator | Chooser]
    """Of columns that sequence groups protect; all others take the newest value."""
    passes_lone_rows: bool = True

    def columns_needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        wanted = set(columns)
        ordering = [
            name
            for group in self.options.groups
            if group.removes_record or not wanted.isdisjoint((*group.ordering, *group.protected))
            for name in group.ordering
        ]
        return (*columns, *(name for name in dict.fromkeys(ordering) if name not in wanted))

    def decide(self, segments: KeySegments, columns: tuple[str, ...]) -> Decision:
        keys = merged_rows(segments, passes_lone_rows=self.passes_lone_rows)
        spans = self._spans(keys, self._group_orders(keys, columns))
        results = _ColumnResults(self, keys, spans)
        return MergedColumns(segments, keys, self._system_values(keys, spans), results, self.table)

    def _group_orders(self, keys: KeyRows, names: tuple[str, ...]) -> dict[SequenceGroup, GroupOrder]:
        """The orders of the groups that the columns ask for, or the removal of records."""
        wanted = set(names)
        return {
            group: group_order(keys, group.ordering)
            for group in self.options.groups
            if not wanted.isdisjoint((*group.ordering, *group.protected))
            or (group.removes_record and keys.has_retracts)
        }

    def _spans(self, keys: KeyRows, orders: Mapping[SequenceGroup, GroupOrder]) -> _Spans:
        is_start = np.zeros(len(keys.rows), np.bool_)
        is_start[keys.starts] = True
        if not keys.has_retracts:
            return _Spans(orders, is_start, keys.starts, None, np.zeros(keys.key_count, np.bool_))
        options, scalar_keys = self.options, np.zeros(keys.key_count, np.bool_)
        removes = np.zeros(len(keys.rows), np.bool_)
        if options.groups:
            removes, scalar_keys = rows_removing_records(keys, orders, is_start)
        elif options.remove_record_on_delete:
            removes = keys.kinds == RowKind.DELETE
        elif not options.ignore_delete:
            row = int(keys.rows[np.flatnonzero(keys.retracts)[0]])
            raise self.table.merge_error(keys.table, row, NO_RULE)
        sets = removes | (is_start & keys.retracts)
        origins = last_marked(sets, keys.starts, keys.ends)
        origins = np.where(origins < 0, keys.starts, origins)
        retracts = _RetractEffects(sets, removes, keys.retracts & options.ignore_delete, ~keys.retracts | sets)
        return _Spans(orders, is_start | sets, origins, retracts, scalar_keys)

    def _system_values(self, keys: KeyRows, spans: _Spans) -> SystemValues:
        numbers = keys.table.column(SEQUENCE_NUMBER_COLUMN).to_numpy()
        last = keys.ends - 1
        kinds = np.full(keys.key_count, RowKind.INSERT, np.int8)
        sequence = numbers[keys.rows[last]]
        if spans.retracts is not None:
            has_add = np.logical_or.reduceat(~keys.retracts, keys.starts)
            kinds[spans.retracts.removes[last] | ~has_add] = RowKind.DELETE
            if self.options.ignore_delete:
                last = last_marked(~keys.retracts, keys.starts, keys.ends)
                sequence = np.where(last < 0, 0, numbers[keys.rows[last]])
        return SystemValues(kinds, sequence)


class _RetractEffects(Frozen):
    """What retracts do, one flag per row of the merged keys."""

    sets: Flags
    """The row sets all columns."""
    removes: Flags
    """The row removes the record; it does nothing else."""
    ignored: Flags
    """A retract that only sets columns, if it leads."""
    brings: Flags
    """The row has values for columns outside groups: all but retracts that do not set."""


class _Spans(Frozen):
    """The rows of the merged keys cut into spans, each begun by a key or by a row that sets all columns.

    A key with `partial-update.remove-record-on-delete`, its first row being row index 4 of all merged rows:

        row index      4     5     6     7     8
        row            -D    +I    +I    -D    +I
        starts         x     .     .     x     .
        sets, removes  x     .     .     x     .
        brings         x     x     x     x     x

    Its origin is 7: no row before that counts for its columns.
    """

    orders: Mapping[SequenceGroup, GroupOrder]
    starts: Flags
    """One flag per row: a span begins."""
    origins: Positions
    """One row index per key: where its last span begins."""
    retracts: _RetractEffects | None
    """None where every row is an add."""
    scalar_keys: Flags
    """One flag per key: the rows that remove its record were found one by one."""


class _ColumnResults(ColumnResults):
    """What columns share is made once."""

    def __init__(self, engine: PartialUpdate, keys: KeyRows, spans: _Spans) -> None:
        super().__init__(keys, engine.table, spans.scalar_keys)
        self._engine = engine
        self._spans = spans
        self._shared: dict[str, ColumnResult] = {}
        self._events: dict[str, KeyEvents] = {}
        functions = engine.functions
        for group, order in spans.orders.items():
            ordering, protected, events = _followed(keys, spans, order, any(n in functions for n in group.protected))
            self._shared |= dict.fromkeys(group.ordering, ordering)
            self._shared |= dict.fromkeys((name for name in group.protected if name not in functions), protected)
            if events is not None:
                self._events |= dict.fromkeys((name for name in group.protected if name in functions), events)

    def column(self, name: str) -> ColumnResult | None:
        if name in self._shared:
            return self._shared[name]
        if name in self._events:
            return self._aggregated(name, self._events[name], self._engine.functions[name])
        if name in self._engine.table.key_columns:
            return None
        return self._newest_value(name)

    def _newest_value(self, name: str) -> ColumnResult | None:
        """The newest value of a column outside groups: that of an add, back to the row that set all columns."""
        keys, spans = self._keys, self._spans
        valid = keys.valid(name)
        brings = None if spans.retracts is None else spans.retracts.brings
        if valid is not None:
            brings = valid if brings is None else valid & brings
        if brings is None:
            return None
        return Chosen(rows_at(keys.rows, last_marked(brings, spans.origins, keys.ends)))


def _followed(
    keys: KeyRows, spans: _Spans, order: GroupOrder, has_functions: bool
) -> tuple[Chosen, Chosen, KeyEvents | None]:
    """What the ordering and the protected columns of a group become, and the events for its functions."""
    if spans.retracts is None:
        in_order = order.in_order(spans.starts)
        winners = _winners(keys, in_order, keys.starts)
        chosen = Chosen(rows_at(keys.rows, winners))
        if not has_functions:
            return chosen, chosen, None
        return chosen, chosen, _group_events(keys, order, in_order)
    sets, ignored, removes = spans.retracts.sets, spans.retracts.ignored, spans.retracts.removes
    in_order = order.in_order(spans.starts, ~ignored | sets)
    winners = _winners(keys, in_order, spans.origins)
    # A span that no row of the group follows keeps what the row that began it has set.
    holders = np.where(winners < 0, np.where(sets[spans.origins], spans.origins, -1), winners)
    held = rows_at(keys.rows, holders)
    is_silent = sets & (ignored | removes)
    clears = (winners >= 0) & keys.retracts[winners] & ~is_silent[winners]
    ordering, protected = Chosen(held), Chosen(np.where(clears, -1, held))
    if not has_functions:
        return ordering, protected, None
    events = _group_events(keys, order, in_order)
    events.codes[keys.retracts & order.present] = Event.RETRACT
    events.codes[ignored] = Event.SKIP
    events.codes[is_silent] = Event.SET
    return ordering, protected, events.with_leading_set(np.flatnonzero(sets & ~is_silent))


def _winners(keys: KeyRows, in_order: Flags, origins: Positions) -> Positions:
    """The last row in order of each key, or its lone row; -1 if there is none."""
    winners = last_marked(in_order, origins, keys.ends)
    return winners if keys.lone is None else np.where(keys.lone, keys.starts, winners)


def _group_events(keys: KeyRows, order: GroupOrder, in_order: Flags) -> KeyEvents:
    """What adds are to the functions of a group."""
    codes = np.where(in_order, np.int8(Event.ADD), np.where(order.present, np.int8(Event.ADD_LATE), np.int8(0)))
    if keys.lone is not None:
        codes[keys.starts[keys.lone]] = Event.ADD
    return KeyEvents(codes, keys.rows, keys.starts, keys.lone)
