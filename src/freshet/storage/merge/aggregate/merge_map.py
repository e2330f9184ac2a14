"""The functions `merge_map` and `merge_map_with_keytime`: put the entries of maps together.

| merge_map | acc NULL | x NULL | both maps |
|---|---|---|---|
| ADD | x | acc | acc and x; under an equal key the value of x, also if it is NULL |
| ADD_LATE | x | acc | the same with acc and x exchanged |
| RETRACT | NULL | acc | acc without the keys of x |

| merge_map_with_keytime, entry of x | acc has no such key, or NULL under it | acc has a row |
|---|---|---|
| NULL | nothing | the key is removed (in both cases) |
| row without a time | nothing | nothing |
| row with a time | is put | is put if acc's row has no time or an older one |

There ADD with acc NULL gives x as it is, ADD_LATE exchanges acc and x, and retracts are not taken. The time is a text
and compared as one, by UTF-16 units: "50" is later than "100".

merge_map takes the last entry of each key of a map, unless it is a retracted one, for all keys of the table at once.
Only keys with both ADD_LATE and RETRACT, and those of merge_map_with_keytime that have several maps, are folded one by
one, on positions of entries. The order of entries is free.

Source: MERGING.md §2.5, §2.6.1, vectors 47 and 48.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.merge.aggregate.equality import equality_codes, field_columns, last_of_each, order_ranks, paired
from freshet.storage.merge.aggregate.events import (
    ColumnAggregator,
    ColumnEvents,
    Event,
    LiveEvents,
    Reduction,
    live_events,
)
from freshet.storage.merge.aggregate.parts import Parts
from freshet.storage.model.value_bits import valid_flags

_Entries = dict[int, int]


class MergeMap(ColumnAggregator):
    """merge_map of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        parts = Parts.of(events.values)
        live = live_events(events)
        live = live.only((live.codes != Event.RETRACT) | (parts.lengths[live.rows] > 0))
        scalar_keys = live.keys_with(Event.RETRACT) & live.keys_with(Event.ADD_LATE)
        at_once = live.only(~scalar_keys[live.keys]).late_first()
        selection = parts.select(at_once)
        codes = equality_codes(parts.children[0].take(pa.array(selection.parts)))
        selection = selection.only(last_of_each(paired(selection.keys, codes)) & ~parts.retracted(at_once))
        if scalar_keys.any():
            selection = selection.with_scalar_results(scalar_keys, _folded(parts, live.only(scalar_keys[live.keys])))
        return Reduction(selection.to_array(events.values.type, parts.children), scalar_keys)


class MergeMapWithKeyTime(ColumnAggregator):
    """merge_map_with_keytime of one column."""

    def _reduce(self, events: ColumnEvents) -> Reduction:
        parts = Parts.of(events.values)
        live = live_events(events)
        live = live.only(parts.valid[live.rows])
        scalar_keys = live.counts > 1
        selection = parts.select(live)
        if scalar_keys.any():
            selection = selection.with_scalar_results(
                scalar_keys, self._folded(parts, live.only(scalar_keys[live.keys]))
            )
        return Reduction(selection.to_array(events.values.type, parts.children), scalar_keys)

    def _folded(self, parts: Parts, events: LiveEvents) -> dict[int, list[int] | None]:
        taken = pa.array(parts.select(events).parts)
        names, items = (child.take(taken) for child in parts.children)
        codes = equality_codes(names).tolist()
        (texts,) = field_columns(items, [self.function.time_field or items.type.field(items.type.num_fields - 1).name])
        rows, timed = valid_flags(items).tolist(), valid_flags(texts).tolist()
        times = _text_ranks(texts)

        def step(acc: _Entries | None, code: int, indices: Sequence[int] | None, _: int) -> _Entries:
            x = {codes[index]: index for index in indices or ()}
            if acc is None:
                return x
            if code == Event.ADD_LATE:
                acc, x = x, acc
            for name, index in x.items():
                if not rows[index]:
                    acc.pop(name, None)
                    continue
                old = acc.get(name)
                if timed[index] and (old is None or not timed[old] or times[index] > times[old]):
                    acc[name] = index
            return acc

        return parts.folded(events, step)


def _folded(parts: Parts, events: LiveEvents) -> dict[int, list[int] | None]:
    """The entries, as positions, of keys that are folded one by one."""
    codes = equality_codes(parts.children[0].take(pa.array(parts.select(events).parts))).tolist()

    def step(acc: _Entries | None, code: int, indices: Sequence[int] | None, _: int) -> _Entries | None:
        x = None if indices is None else {codes[index]: index for index in indices}
        if code == Event.SET or (acc is None and code != Event.RETRACT):
            return x
        if acc is None or x is None:
            return acc
        if code == Event.RETRACT:
            return {name: index for name, index in acc.items() if name not in x}
        return x | acc if code == Event.ADD_LATE else acc | x

    return parts.folded(events, step)


def _text_ranks(texts: pa.Array[Any]) -> list[int]:
    """Numbers that order as the texts do by UTF-16 units, which is the order of their bytes if all are ASCII."""
    ordered = texts
    if pc.all(pc.string_is_ascii(texts)).as_py() is False:
        ordered = pa.array([None if text is None else text.encode("utf-16-be") for text in texts.to_pylist()])
    ranks: list[int] = order_ranks([ordered], ["time"]).tolist()
    return ranks
