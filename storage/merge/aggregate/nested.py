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
row per nested key, nested_partial_update the last non-null value per field, late values standing first. Only keys of
nested_update with a SET or ADD_LATE, or with a RETRACT where there is a limit or the null strategy is error, are folded
one by one, on positions of rows. The order of rows with a nested key is free.

Source: LSM semantics §2.5, §2.6.1, vectors 49 and 50.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from storage.engine_options import ColumnFunction
from storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, Flags, Positions, Reduction
from storage.merge.aggregate.values import (
    Codes,
    Groups,
    LiveEvents,
    Parts,
    Picks,
    equality_codes,
    field_columns,
    gathered,
    last_of_each,
    live_events,
    order_ranks,
    outlived,
    paired,
    row_key_codes,
    valid_flags,
)
from storage.model.data_type import DataType

_IGNORE: Final = "ignore"
_ERROR: Final = "error"


@dataclass(frozen=True, slots=True)
class NestedUpdate:
    """nested_update of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The nested table of each key."""
        parts = Parts.of(events.values)
        rows = _NestedRows.of(self.function, self.column, parts.children[0])
        rows.refuse_null_keys(parts, events, Event.ADD)
        looped = events.keys_with(Event.SET, Event.ADD_LATE)
        if self.function.count_limit is not None or rows.strategy == _ERROR:
            looped |= events.keys_with(Event.RETRACT)
        live = live_events(events, takes_retracts=True, trimmed=rows.strategy != _ERROR)
        at_once = live.only(~looped[live.keys])
        picks = self._at_once(rows, parts.picks(at_once), parts.retracted(at_once))
        if looped.any():
            folded = _Fold(self.function, self.column, rows.identified(), parts)
            picks = picks.with_looped(looped, folded.results(live.only(looped[live.keys])))
        return Reduction(picks.to_array(events.values.type, parts.children), looped)

    def _at_once(self, rows: _NestedRows, picks: Picks, retracted: Flags) -> Picks:
        counted = rows.counts[picks.parts]
        picks, retracted = picks.only(counted), retracted[counted]
        if retracted.any():
            identity = rows.identified().keys
            assert identity is not None
            picks = picks.only(outlived(picks, retracted, identity[picks.parts]))
        limit = self.function.count_limit
        if rows.keys is None:
            every = np.ones(len(picks.keys), np.bool_)
            return picks if limit is None else picks.only(_ranks(picks.keys, every) < limit)
        codes = paired(picks.keys, rows.keys[picks.parts])
        if limit is not None:
            # A nested key is put once and for all: the first ones are, as many as there is room for.
            groups = Groups.of(codes)
            firsts = np.zeros(len(codes), np.bool_)
            firsts[groups.firsts] = True
            fits = (_ranks(picks.keys, firsts) < limit)[groups.firsts]
            chosen = groups.spread(np.repeat(fits, groups.lengths))
            picks, codes = picks.only(chosen), codes[chosen]
        if rows.sequences is not None:
            # Of the newest rows of a nested key the last one stands.
            order = np.lexsort((rows.sequences[picks.parts], codes))
            picks, codes = picks.only(order), codes[order]
        return picks.only(last_of_each(codes))


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate:
    """nested_partial_update of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The nested table of each key."""
        parts = Parts.of(events.values)
        rows = _NestedRows.of(self.function, self.column, parts.children[0])
        rows.refuse_null_keys(parts, events, Event.ADD)
        live = live_events(events)
        as_is = self._as_it_is(parts, live)
        rows.refuse_null_keys(parts, events, Event.SET, Event.ADD_LATE, keys=~as_is)
        ordered = live.late_first()
        picks = parts.picks(ordered)
        chosen = as_is[picks.keys] | rows.counts[picks.parts]
        picks = picks.only(chosen)
        assert rows.keys is not None
        groups = paired(picks.keys, rows.keys[picks.parts])
        # A row that stays as it is forms a group of its own.
        alone = np.flatnonzero(as_is[picks.keys])
        groups[alone] = int(groups.max(initial=0)) + 1 + alone
        return Reduction(self._overlaid(events.values.type, parts, picks, groups), np.zeros(events.key_count, np.bool_))

    def _as_it_is(self, parts: Parts, live: LiveEvents) -> Flags:
        """Keys whose result is one value that was set or came late onto NULL, and nothing was added to."""
        valid = live.only(parts.valid[live.rows])
        alone = valid.counts == 1
        position = valid.last_rows(np.ones(len(valid.rows), np.bool_))
        last_late = live.last_rows(live.codes == Event.ADD_LATE)
        flags: Flags = alone & np.isin(position, live.rows[live.codes != Event.ADD]) & (last_late <= position)
        return flags

    def _overlaid(self, kind: pa.DataType, parts: Parts, picks: Picks, codes: Codes) -> pa.Array[Any]:
        groups = Groups.of(codes)
        lasts = groups.lasts
        in_key_order = np.argsort(picks.keys[lasts], kind="stable")
        rows = parts.children[0].take(pa.array(picks.parts))
        fields = []
        for column in rows.flatten():
            sources = groups.last_with(valid_flags(column)) if column.null_count else lasts
            fields.append(gathered(column, sources[in_key_order]))
        chosen = lasts[in_key_order]
        validity = pa.array(valid_flags(rows)[chosen]).buffers()[1]
        structs = pa.Array.from_buffers(kind.value_type, len(chosen), [validity], children=fields)
        return picks.only(chosen).assembled(kind, (structs,))


@dataclass(frozen=True, slots=True)
class _NestedRows:
    """The rows of all nested tables. `counts` is true for rows that are not dropped."""

    column: str
    rows: pa.Array[Any]
    counts: Flags
    keys: Codes | None
    null_keys: Flags
    sequences: Codes | None
    strategy: str

    @classmethod
    def of(cls, function: ColumnFunction, column: str, rows: pa.Array[Any]) -> _NestedRows:
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

    def identified(self) -> _NestedRows:
        """With codes that tell rows apart, also where there is no nested key."""
        return self if self.keys is not None else replace(self, keys=equality_codes(self.rows))

    def refuse_null_keys(self, parts: Parts, events: ColumnEvents, *codes: Event, keys: Flags | None = None) -> None:
        """Raises `AggregationError` for the first event of these kinds, of these keys, with a NULL in a nested key."""
        if self.strategy != _ERROR or not self.null_keys.any():
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


class _Fold:
    """Folds the events of one key after the other, on positions of rows.

    acc is None, a list of positions that nothing was added to yet, or rows by nested key.
    """

    def __init__(self, function: ColumnFunction, column: str, rows: _NestedRows, parts: Parts) -> None:
        self._limit = function.count_limit
        self._keyed = bool(function.nested_key)
        self._rows = rows
        self._parts = parts
        self._positions: list[int] = []
        self._codes: list[int] = []
        self._counts: list[bool] = []
        self._null_keys: list[bool] = []
        self._sequences: list[int] | None = None
        self._event = 0

    def results(self, events: LiveEvents) -> dict[int, list[int] | None]:
        """The rows of each key."""
        picks = self._parts.picks(events)
        self._load(picks.parts)
        results: dict[int, list[int] | _Table | None] = dict.fromkeys(events.keys.tolist())
        for key, event, code, length, first in self._parts.walk(events):
            self._event = event
            x = None if length is None else list(range(first, first + length))
            acc = results[key]
            if code == Event.SET:
                acc = x
            elif code == Event.RETRACT:
                acc = acc if acc is None or x is None else self._without(acc, x)
            elif code == Event.ADD_LATE:
                acc = x if acc is None else self._added(x, list(_rows_of(acc)))
            elif x is not None:
                acc = self._added(acc, x)
            results[key] = acc
        return {
            key: None if acc is None else [self._positions[index] for index in _rows_of(acc)]
            for key, acc in results.items()
        }

    def _load(self, parts: Positions) -> None:
        rows = self._rows
        assert rows.keys is not None
        self._positions = parts.tolist()
        self._codes = rows.keys[parts].tolist()
        self._counts = rows.counts[parts].tolist()
        self._null_keys = rows.null_keys[parts].tolist()
        self._sequences = None if rows.sequences is None else rows.sequences[parts].tolist()

    def _added(self, acc: list[int] | _Table | None, x: list[int]) -> list[int] | _Table:
        if self._keyed:
            table = acc if isinstance(acc, dict) else self._put({}, acc or (), None)
            return self._put(table, x, self._limit)
        rows = list(_rows_of(acc)) if acc is not None else []
        room = None if self._limit is None else self._limit - len(rows)
        if acc is not None and room is not None and room <= 0:
            return rows
        new = [index for index in x if self._counts[index]]
        return [index for index in rows if self._counts[index]] + (new if room is None else new[: max(room, 0)])

    def _without(self, acc: list[int] | _Table, x: list[int]) -> list[int] | _Table:
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
            if self._null_keys[index] and self._rows.strategy == _ERROR:
                raise self._rows.null_key_error(self._event)
            if self._counts[index]:
                yield index


def _ranks(keys: Positions, flags: Flags) -> Positions:
    """How many flags are set before each position in its key; keys stand one after the other."""
    before: Positions = np.cumsum(flags) - flags
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    ranks: Positions = before - np.repeat(before[starts], np.diff(starts, append=len(keys)))
    return ranks


def _rows_of(acc: list[int] | _Table) -> Iterable[int]:
    return acc.values() if isinstance(acc, dict) else acc
