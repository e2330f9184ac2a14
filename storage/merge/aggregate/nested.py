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

Source: MERGING.md §2.5, §2.6.1, vectors 49 and 50.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.merge.aggregate.events import ColumnEvents, Event, Flags, Positions, Reduction
from freshet.storage.merge.aggregate.groups import Codes, Groups, last_of_each, outlived, paired
from freshet.storage.merge.aggregate.live_events import LiveEvents, live_events
from freshet.storage.merge.aggregate.nested_fold import NestedFold
from freshet.storage.merge.aggregate.nested_rows import ERROR, NestedRows
from freshet.storage.merge.aggregate.parts import Parts, Picks
from freshet.storage.merge.aggregate.values import gathered, valid_flags
from freshet.storage.model.data_type import DataType
from freshet.storage.options.engine import ColumnFunction


@dataclass(frozen=True, slots=True)
class NestedUpdate:
    """nested_update of one column."""

    function: ColumnFunction
    column: str
    type: DataType

    def reduce(self, events: ColumnEvents) -> Reduction:
        """The nested table of each key."""
        parts = Parts.of(events.values)
        rows = NestedRows.of(self.function, self.column, parts.children[0])
        rows.refuse_null_keys(parts, events, Event.ADD)
        looped = events.keys_with(Event.SET, Event.ADD_LATE)
        if self.function.count_limit is not None or rows.strategy == ERROR:
            looped |= events.keys_with(Event.RETRACT)
        live = live_events(events, takes_retracts=True, trimmed=rows.strategy != ERROR)
        at_once = live.only(~looped[live.keys])
        picks = self._at_once(rows, parts.picks(at_once), parts.retracted(at_once))
        if looped.any():
            folded = NestedFold(self.function, self.column, rows.identified(), parts)
            picks = picks.with_looped(looped, folded.results(live.only(looped[live.keys])))
        return Reduction(picks.to_array(events.values.type, parts.children), looped)

    def _at_once(self, rows: NestedRows, picks: Picks, retracted: Flags) -> Picks:
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
        rows = NestedRows.of(self.function, self.column, parts.children[0])
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


def _ranks(keys: Positions, flags: Flags) -> Positions:
    """How many flags are set before each position in its key; keys stand one after the other."""
    before: Positions = np.cumsum(flags) - flags
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    ranks: Positions = before - np.repeat(before[starts], np.diff(starts, append=len(keys)))
    return ranks
