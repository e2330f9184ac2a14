"""The function `collect`: joins arrays, as they are or without repeated elements.

| | acc NULL | x NULL | both arrays |
|---|---|---|---|
| ADD | x | acc | acc, then x |
| ADD, distinct | x without repetitions | acc without repetitions | acc, then what of x is new, without repetitions |
| RETRACT | NULL | acc | acc without one occurrence, from the left, of each element of x |

ADD_LATE does the same as ADD, with one exception: under `ignore-retract` x is put before acc.

What is written to a distinct column loses its repetitions before (`without_repetitions`), so that a row without others
of its key is distinct, too.

Two exceptions for distinct arrays of ROW, ARRAY or MAP: acc is taken for distinct and left as it is (this shows after
a SET), and a late x under `ignore-retract` plays the part of acc. Elements are kept in the order in which they first
came; the format promises that order for constructed element types only. Binary elements are equal when their bytes
are; Paimon 2.0.0 compares the identity of objects there, so that it never finds two that are equal.

The arrays of all keys are joined by arithmetic on offsets and one gather of their elements; 1 M arrays of 250,000 keys
take 110 ms, 210 ms if distinct. Retracts are done at once too, by counting equal elements. Only distinct keys under one
of the two exceptions, or with both a SET and a RETRACT, are folded one by one, on positions and codes of elements.

Source: MERGING.md §2.5, §2.6.1, vectors 45 and 46.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.storage.merge.aggregate.equality import Groups, equality_codes, first_of_each, outlived, paired
from freshet.storage.merge.aggregate.events import (
    ColumnAggregator,
    ColumnEvents,
    Event,
    LiveEvents,
    Reduction,
    live_events,
)
from freshet.storage.merge.aggregate.parts import Parts, Selection
from freshet.storage.merge.key_order import Flags
from freshet.storage.model.data_type import ArrayType, ScalarType


class Collect(ColumnAggregator):
    """collect of one column."""

    def without_repetitions(self, values: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        """Each array as if it were the only one of its key, and merged: a lone row is read as it is written."""
        chunks = [
            self.reduce(ColumnEvents(chunk, np.full(len(chunk), Event.ADD, np.int8), np.arange(len(chunk)))).values
            for chunk in values.chunks
        ]
        return pa.chunked_array(chunks, values.type)

    def _reduce(self, events: ColumnEvents) -> Reduction:
        parts = Parts.of(events.values)
        live = live_events(events)
        if not (self.function.distinct or (live.codes == Event.RETRACT).any()):
            ordered = live.late_first() if self.function.ignore_retract else live
            return Reduction(parts.joined(ordered, events.values.type), np.zeros(live.key_count, np.bool_))
        live = live.only((live.codes != Event.RETRACT) | (parts.lengths[live.rows] > 0))
        scalar_keys = self._scalar_keys(live)
        at_once = live.only(~scalar_keys[live.keys])
        if self.function.ignore_retract:
            at_once = at_once.late_first()
        selection = parts.select(at_once)
        selection = selection.only(self._kept(parts, at_once, selection))
        if scalar_keys.any():
            selection = selection.with_scalar_results(
                scalar_keys, self._folded(parts, live.only(scalar_keys[live.keys]))
            )
        return Reduction(selection.to_array(events.values.type, parts.children), scalar_keys)

    def _scalar_keys(self, live: LiveEvents) -> Flags:
        if not self.function.distinct:
            return np.zeros(live.key_count, np.bool_)
        if self.function.ignore_retract:
            return live.keys_with(Event.ADD_LATE) & self._keeps_acc
        return live.keys_with(Event.SET) & live.keys_with(Event.RETRACT)

    @property
    def _keeps_acc(self) -> bool:
        return isinstance(self.type, ArrayType) and not isinstance(self.type.element, ScalarType)

    def _kept(self, parts: Parts, events: LiveEvents, selection: Selection) -> Flags:
        """Which elements make up the results."""
        retracted = parts.retracted(events)
        if not self.function.distinct:
            return _remaining(parts, selection, retracted)
        codes = equality_codes(parts.children[0].take(pa.array(selection.parts)))
        kept = outlived(selection, retracted, codes)
        kept[kept] = first_of_each(paired(selection.keys[kept], codes[kept]))
        is_set = events.codes == Event.SET
        if is_set.any():
            verbatim = is_set if self._keeps_acc else is_set & (events.counts == 1)[events.keys]
            kept |= np.repeat(verbatim, parts.lengths[events.rows])
        return kept

    def _folded(self, parts: Parts, events: LiveEvents) -> dict[int, list[int] | None]:
        """The elements, as positions, of keys that are folded one by one."""
        codes = equality_codes(parts.children[0].take(pa.array(parts.select(events).parts))).tolist()

        def step(acc: Sequence[int] | None, code: int, x: Sequence[int] | None, _: int) -> Sequence[int] | None:
            if code == Event.SET:
                return x
            if code == Event.RETRACT:
                return acc if acc is None or x is None else _without(acc, x, codes)
            before = code == Event.ADD_LATE and self.function.ignore_retract
            return self._added(x, acc, codes) if before else self._added(acc, x, codes)

        return parts.folded(events, step)

    def _added(self, acc: Sequence[int] | None, x: Sequence[int] | None, codes: list[int]) -> list[int] | None:
        if acc is None and x is None:
            return None
        if not self.function.distinct:
            return [*(acc or ()), *(x or ())]
        kept: list[int] = list(acc or ()) if self._keeps_acc else []
        seen = {codes[index] for index in kept}
        for index in (x or ()) if self._keeps_acc else [*(acc or ()), *(x or ())]:
            if codes[index] not in seen:
                seen.add(codes[index])
                kept.append(index)
        return kept


def _remaining(parts: Parts, selection: Selection, retracted: Flags) -> Flags:
    """Which elements are left when each retracted one takes away the oldest that is equal, if there is one.

    Count up for an element and down for a retracted one, but not below zero: where it ends is how many are left, and
    they are the newest.
    """
    kept = ~retracted
    if not retracted.any():
        return kept
    involved = selection.of_keys(selection.keys[retracted])
    codes = equality_codes(parts.children[0].take(pa.array(selection.parts[involved])))
    groups = Groups.of(paired(selection.keys[involved], codes))
    added = kept[involved][groups.order]
    counts = np.cumsum(np.where(added, 1, -1))
    before = np.append(0, counts)[groups.starts]
    ends = groups.starts + groups.lengths - 1
    left = counts[ends] - np.minimum(before, np.minimum.reduceat(counts, groups.starts))
    newer = np.cumsum(added)
    newer = np.repeat(newer[ends], groups.lengths) - newer
    kept[involved] = groups.spread(added & (newer < np.repeat(left, groups.lengths)))
    return kept


def _without(acc: Sequence[int], x: Sequence[int], codes: list[int]) -> list[int]:
    """acc without one occurrence of each element of x."""
    retracted = Counter(codes[index] for index in x)
    kept = []
    for index in acc:
        if retracted[codes[index]]:
            retracted[codes[index]] -= 1
        else:
            kept.append(index)
    return kept
