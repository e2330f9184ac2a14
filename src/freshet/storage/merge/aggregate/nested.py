"""The functions `nested_update` and `nested_partial_update`: tables nested in an array of rows.

Rows that are NULL are dropped by everything below. With a nested key, a row whose key holds a NULL is kept (null
strategy merge), dropped (ignore) or refused (error). An x that is NULL leaves acc as it is.

| nested_update | acc NULL | acc an array |
|---|---|---|
| ADD, no nested key | x, cut to the limit | acc, then x, as long as there are fewer rows than the limit |
| ADD, nested key | as if acc were empty | acc by key, then x row by row |
| RETRACT, no nested key | NULL | acc without all rows that equal a row of x |
| RETRACT, nested key | NULL | acc without the keys of x |

A row of x replaces the row of its nested key unless its sequence is older; a new key is put while there are fewer rows
than the limit. The rows of acc itself are never cut.

nested_partial_update overlays per nested key the non-null fields of acc, then of x, and takes no retracts. ADD_LATE
exchanges acc and x in both; an x that meets acc NULL this way is kept as it is, NULL rows and repeated keys included,
until something else is added.

All keys are done at once: nested_update drops what was retracted later and takes the last (or the newest by sequence)
row per nested key, nested_partial_update the last non-null value per field, late values coming first. Only keys of
nested_update with a SET or ADD_LATE, or with a RETRACT where there is a limit or the null strategy is error, are folded
one by one, on positions of rows. The order of rows with a nested key is free.

Source: MERGING.md §2.5, §2.6.1, vectors 49 and 50.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.equality import (
    Codes,
    Groups,
    equality_codes,
    field_columns,
    last_of_each,
    order_ranks,
    outlived,
    paired,
    row_key_codes,
)
from freshet.storage.merge.aggregate.events import (
    AggregationError,
    ColumnAggregator,
    ColumnEvents,
    Event,
    LiveEvents,
    Reduction,
    live_events,
)
from freshet.storage.merge.aggregate.parts import Parts, Selection
from freshet.storage.merge.gather import gathered
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.value_bits import valid_flags
from freshet.storage.options.engine import ColumnAggregate

ERROR: Final = "error"
"""Null strategy that refuses rows with a NULL in their nested key."""

_IGNORE: Final = "ignore"


class NestedRows(Frozen):
    """The rows of all nested tables. `counts` is true for rows that are not dropped."""

    column: str
    rows: pa.Array[Any]
    counts: Flags
    keys: Codes | None
    null_keys: Flags
    sequences: Codes | None
    strategy: str

    @classmethod
    def of(cls, function: ColumnAggregate, column: str, rows: pa.Array[Any]) -> NestedRows:
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
        """With codes that distinguish rows, also where there is no nested key."""
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


_Table = dict[int, int]


class NestedFold:
    """Folds the events of one key after the other, on positions of rows.

    acc is None, a list of positions that nothing was added to yet, or rows by nested key.
    """

    def __init__(self, function: ColumnAggregate, rows: NestedRows, parts: Parts, events: LiveEvents) -> None:
        self._limit = function.count_limit
        self._keyed = bool(function.nested_key)
        self._rows = rows
        self._parts = parts
        self._events = events
        taken = parts.select(events).parts
        assert rows.keys is not None
        self._codes: list[int] = rows.keys[taken].tolist()
        self._counts: list[bool] = rows.counts[taken].tolist()
        self._null_keys: list[bool] = rows.null_keys[taken].tolist()
        self._sequences: list[int] | None = None if rows.sequences is None else rows.sequences[taken].tolist()
        self._event = 0

    def results(self) -> dict[int, list[int] | None]:
        """The rows of each key."""
        return self._parts.folded(self._events, self._step)

    def _step(
        self, acc: Sequence[int] | _Table | None, code: int, x: Sequence[int] | None, event: int
    ) -> Sequence[int] | _Table | None:
        self._event = event
        if code == Event.SET:
            return x
        if code == Event.RETRACT:
            return acc if acc is None or x is None else self._without(acc, x)
        if code == Event.ADD_LATE:
            return x if acc is None else self._added(x, list(_rows_of(acc)))
        return acc if x is None else self._added(acc, x)

    def _added(self, acc: Sequence[int] | _Table | None, x: Sequence[int]) -> Sequence[int] | _Table:
        if self._keyed:
            table = acc if isinstance(acc, dict) else self._put({}, acc or (), None)
            return self._put(table, x, self._limit)
        rows = list(_rows_of(acc)) if acc is not None else []
        room = None if self._limit is None else self._limit - len(rows)
        if acc is not None and room is not None and room <= 0:
            return rows
        new = [index for index in x if self._counts[index]]
        return [index for index in rows if self._counts[index]] + (new if room is None else new[: max(room, 0)])

    def _without(self, acc: Sequence[int] | _Table, x: Sequence[int]) -> Sequence[int] | _Table:
        if self._keyed:
            table = dict(acc) if isinstance(acc, dict) else self._put({}, acc, None, by_sequence=False)
            for index in self._looked_at(x):
                table.pop(self._codes[index], None)
            return table
        retracted = {self._codes[index] for index in x if self._counts[index]}
        return [index for index in _rows_of(acc) if self._counts[index] and self._codes[index] not in retracted]

    def _put(self, table: _Table, x: Iterable[int], limit: int | None, *, by_sequence: bool = True) -> _Table:
        sequences = self._sequences if by_sequence else None
        for index in self._looked_at(x):
            code = self._codes[index]
            old = table.get(code)
            if old is None:
                if limit is None or len(table) < limit:
                    table[code] = index
            elif sequences is None or sequences[index] >= sequences[old]:
                table[code] = index
        return table

    def _looked_at(self, x: Iterable[int]) -> Iterable[int]:
        for index in x:
            if self._null_keys[index] and self._rows.strategy == ERROR:
                raise self._rows.null_key_error(self._event)
            if self._counts[index]:
                yield index


def _rows_of(acc: Sequence[int] | _Table) -> Iterable[int]:
    return acc.values() if isinstance(acc, dict) else acc


class NestedUpdate(ColumnAggregator):
    """nested_update of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        parts = Parts.of(events.values)
        rows = NestedRows.of(self.function, self.column, parts.children[0])
        rows.refuse_null_keys(parts, events, Event.ADD)
        scalar_keys = events.keys_with(Event.SET, Event.ADD_LATE)
        if self.function.count_limit is not None or rows.strategy == ERROR:
            scalar_keys |= events.keys_with(Event.RETRACT)
        live = live_events(events, trimmed=rows.strategy != ERROR)
        at_once = live.only(~scalar_keys[live.keys])
        selection = self._at_once(rows, parts.select(at_once), parts.retracted(at_once))
        if scalar_keys.any():
            folded = NestedFold(self.function, rows.identified(), parts, live.only(scalar_keys[live.keys]))
            selection = selection.with_scalar_results(scalar_keys, folded.results())
        return Reduction(selection.to_array(events.values.type, parts.children), scalar_keys)

    def _at_once(self, rows: NestedRows, selection: Selection, retracted: Flags) -> Selection:
        counted = rows.counts[selection.parts]
        selection, retracted = selection.only(counted), retracted[counted]
        if retracted.any():
            identity = rows.identified().keys
            assert identity is not None
            selection = selection.only(outlived(selection, retracted, identity[selection.parts]))
        limit = self.function.count_limit
        if rows.keys is None:
            every = np.ones(len(selection.keys), np.bool_)
            return selection if limit is None else selection.only(_ranks(selection.keys, every) < limit)
        codes = paired(selection.keys, rows.keys[selection.parts])
        if limit is not None:
            # A nested key is put once and for all: the first ones are, as many as there is room for.
            groups = Groups.of(codes)
            firsts = np.zeros(len(codes), np.bool_)
            firsts[groups.firsts] = True
            fits = (_ranks(selection.keys, firsts) < limit)[groups.firsts]
            chosen = groups.spread(np.repeat(fits, groups.lengths))
            selection, codes = selection.only(chosen), codes[chosen]
        if rows.sequences is not None:
            # Of the newest rows of a nested key the last one is kept.
            order = np.lexsort((rows.sequences[selection.parts], codes))
            selection, codes = selection.only(order), codes[order]
        return selection.only(last_of_each(codes))


class NestedPartialUpdate(ColumnAggregator):
    """nested_partial_update of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        parts = Parts.of(events.values)
        rows = NestedRows.of(self.function, self.column, parts.children[0])
        rows.refuse_null_keys(parts, events, Event.ADD)
        live = live_events(events)
        as_is = self._as_it_is(parts, live)
        rows.refuse_null_keys(parts, events, Event.SET, Event.ADD_LATE, keys=~as_is)
        ordered = live.late_first()
        selection = parts.select(ordered)
        chosen = as_is[selection.keys] | rows.counts[selection.parts]
        selection = selection.only(chosen)
        assert rows.keys is not None
        groups = paired(selection.keys, rows.keys[selection.parts])
        # A row that stays as it is forms a group of its own.
        alone = np.flatnonzero(as_is[selection.keys])
        groups[alone] = int(groups.max(initial=0)) + 1 + alone
        return Reduction(
            self._overlaid(events.values.type, parts, selection, groups), np.zeros(events.key_count, np.bool_)
        )

    def _as_it_is(self, parts: Parts, live: LiveEvents) -> Flags:
        """Keys whose result is one value that was set or came late onto NULL, and nothing was added to."""
        valid = live.only(parts.valid[live.rows])
        alone = valid.counts == 1
        position = valid.last_rows(np.ones(len(valid.rows), np.bool_))
        last_late = live.last_rows(live.codes == Event.ADD_LATE)
        flags: Flags = alone & np.isin(position, live.rows[live.codes != Event.ADD]) & (last_late <= position)
        return flags

    def _overlaid(self, arrow_type: pa.DataType, parts: Parts, selection: Selection, codes: Codes) -> pa.Array[Any]:
        groups = Groups.of(codes)
        lasts = groups.lasts
        in_key_order = np.argsort(selection.keys[lasts], kind="stable")
        rows = parts.children[0].take(pa.array(selection.parts))
        fields = []
        for column in rows.flatten():
            sources = groups.last_with(valid_flags(column)) if column.null_count else lasts
            fields.append(gathered(column, sources[in_key_order], may_miss=True))
        chosen = lasts[in_key_order]
        validity = pa.array(valid_flags(rows)[chosen]).buffers()[1]
        structs = pa.Array.from_buffers(arrow_type.value_type, len(chosen), [validity], children=fields)
        return selection.only(chosen).assembled(arrow_type, (structs,))


def _ranks(keys: Positions, flags: Flags) -> Positions:
    """How many flags are set before each position in its key; keys lie one after the other."""
    before: Positions = np.cumsum(flags) - flags
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    ranks: Positions = before - np.repeat(before[starts], np.diff(starts, append=len(keys)))
    return ranks
