"""Arrays and maps taken apart into the positions of their parts, and put together again by one gather.

Functions choose positions (`Selection`) and never touch values, so every element type comes out as it went in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.events import Event, LiveEvents
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.nested_arrays import Nested, assembled
from freshet.storage.model.value_bits import valid_flags

Step = Callable[[Any, int, Sequence[int] | None, int], Any]


class Parts(Frozen):
    """Arrays or maps taken apart. Value i holds the parts `starts[i]` to `starts[i] + lengths[i]` of each child."""

    children: tuple[pa.Array[Any], ...]
    starts: Positions
    lengths: Positions
    valid: Flags

    @classmethod
    def of(cls, values: pa.Array[Any]) -> Parts:
        """The elements of arrays; the keys and items of maps."""
        whole = Nested.of(values)
        assert whole.offsets is not None
        offsets = whole.offsets.astype(np.int64)
        return cls(whole.children, offsets[:-1], np.diff(offsets), valid_flags(values))

    def select(self, events: LiveEvents) -> Selection:
        """All parts of the values of these events, in their order; values that are only retracted make no result."""
        lengths = self.lengths.take(events.rows)
        parts = ranges(self.starts.take(events.rows), lengths)
        return Selection(parts, np.repeat(events.keys, lengths), self._present(events))

    def joined(self, events: LiveEvents, arrow_type: pa.DataType) -> pa.Array[Any]:
        """The values of each key, one after the other, none of them retracted.

        The same as all `selection` of these events, but without a number for each part.
        """
        lengths = self.lengths.take(events.rows)
        offsets = np.append(0, np.cumsum(lengths))
        children = self.children
        if int(offsets[-1]) != len(children[0]) or (np.diff(events.rows) < 0).any():
            indices = pa.array(ranges(self.starts.take(events.rows), lengths))
            children = tuple(child.take(indices) for child in children)
        bounds = offsets.take(np.append(0, np.cumsum(events.counts)))
        return _assembled(arrow_type, bounds, children, self._present(events))

    def _present(self, events: LiveEvents) -> Flags:
        brings = self.valid.take(events.rows) & (events.codes != Event.RETRACT)
        present = np.zeros(events.key_count, np.bool_)
        present[events.keys.take(np.flatnonzero(brings))] = True
        return present

    def retracted(self, events: LiveEvents) -> Flags:
        """For the parts of `select(events)`, whether they are of a RETRACT."""
        return np.repeat(events.codes == Event.RETRACT, self.lengths[events.rows])

    def folded(self, events: LiveEvents, step: Step) -> dict[int, list[int] | None]:
        """The parts of each key, one event after the other: `acc = step(acc, code, x, event)`, beginning with None.

        x are indices into `select(events).parts`, None for a value that is NULL. acc holds such indices, as a list or
        as the values of a dict.
        """
        lengths = self.lengths[events.rows]
        ends = np.cumsum(lengths)
        ranges_of_x = zip((ends - lengths).tolist(), ends.tolist(), self.valid[events.rows].tolist(), strict=True)
        accumulators: dict[int, Any] = dict.fromkeys(events.keys.tolist())
        walk = zip(events.keys.tolist(), events.codes.tolist(), events.rows.tolist(), ranges_of_x, strict=True)
        for key, code, event, (first, end, is_valid) in walk:
            accumulators[key] = step(accumulators[key], code, range(first, end) if is_valid else None, event)
        positions = self.select(events).parts.tolist()
        return {
            key: None if acc is None else [positions[at] for at in (acc.values() if isinstance(acc, dict) else acc)]
            for key, acc in accumulators.items()
        }


class Selection(Frozen):
    """What results are made of: part `parts[i]` belongs to key `keys[i]`; keys that are not `present` have NULL.

    The parts of a key are in the order of its result, the keys need not be in order.
    """

    parts: Positions
    keys: Positions
    present: Flags

    def only(self, chosen: Flags | Positions) -> Selection:
        """The parts that are chosen, of the same keys."""
        return replace(self, parts=self.parts[chosen], keys=self.keys[chosen])

    def of_keys(self, keys: Positions) -> Positions:
        """Indices of the parts of these keys."""
        chosen = np.zeros(len(self.present), np.bool_)
        chosen[keys] = True
        return np.flatnonzero(chosen[self.keys])

    def with_scalar_results(self, scalar_keys: Flags, results: dict[int, list[int] | None]) -> Selection:
        """The same, where the keys of the scalar path have other parts: those given, or NULL."""
        if not results:
            return self
        mine = ~scalar_keys[self.keys]
        present = self.present & ~scalar_keys
        present[[key for key, parts in results.items() if parts is not None]] = True
        lengths = [len(parts or ()) for parts in results.values()]
        flat = [part for parts in results.values() for part in parts or ()]
        return Selection(
            np.concatenate([self.parts[mine], np.array(flat, np.int64)]),
            np.concatenate([self.keys[mine], np.repeat(np.fromiter(results, np.int64, len(results)), lengths)]),
            present,
        )

    def in_key_order(self) -> Selection:
        """The same, key after key."""
        if not len(self.keys) or bool((np.diff(self.keys) >= 0).all()):
            return self
        return self.only(np.argsort(self.keys, kind="stable"))

    def to_array(self, arrow_type: pa.DataType, children: tuple[pa.Array[Any], ...]) -> pa.Array[Any]:
        """One array or map per key, gathered from the children."""
        ordered = self.in_key_order()
        indices = pa.array(ordered.parts)
        return ordered.assembled(arrow_type, tuple(child.take(indices) for child in children))

    def assembled(self, arrow_type: pa.DataType, children: tuple[pa.Array[Any], ...]) -> pa.Array[Any]:
        """One array or map per key, of children that lie key after key, as this selection does."""
        counts = np.bincount(self.keys, minlength=len(self.present))
        return _assembled(arrow_type, np.append(0, np.cumsum(counts)), children, self.present)


def _assembled(
    arrow_type: pa.DataType, offsets: Positions, children: tuple[pa.Array[Any], ...], present: Flags
) -> pa.Array[Any]:
    valid = None if present.all() else pa.array(present).buffers()[1]
    return assembled(arrow_type, len(present), valid, offsets.astype(np.int32), children)


def ranges(starts: Positions, lengths: Positions) -> Positions:
    """The numbers `starts[i]` to `starts[i] + lengths[i]`, one range after the other."""
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
