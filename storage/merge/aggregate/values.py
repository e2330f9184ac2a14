"""What functions over texts, arrays, maps and bytes share: the events that decide, values taken apart, exact equality.

Values are not turned into Python objects: arrays and maps are taken apart into the positions of their parts (`Parts`),
functions choose positions, and one gather puts the results together (`Picks`). So every element type comes out as it
went in. Where a rule asks whether parts are equal it compares codes:

| type | equal when |
|---|---|
| FLOAT, DOUBLE | bits are equal; every NaN is one NaN, -0.0 is not 0.0 |
| ROW | all fields are |
| ARRAY | lengths and all elements are |
| MAP | they hold equal values under equal keys, whatever the order |
| every other | values are, strings and binary byte by byte |

and NULL equals NULL.

Source: LSM semantics §0, §2.5, §2.6.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from storage.exceptions import InvalidRequestError
from storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, Flags, Positions, Reduction
from storage.merge.sort_words import sequence_words

Codes = npt.NDArray[np.int64]
Part = TypeVar("Part")

_WORD_BITS: Final = 63
_PAIRABLE: Final = 1 << 31
_NAN_BITS: Final = {4: 0x7FC00000, 8: 0x7FF8000000000000}


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """Events that decide the result, without SKIP and without all that stands before the last SET of a key.

    The i-th is event `rows[i]` of key `keys[i]` with the code `codes[i]`. They stand key after key.
    """

    rows: Positions
    keys: Positions
    codes: npt.NDArray[np.int8]
    key_count: int

    def only(self, chosen: Flags) -> LiveEvents:
        """Those that are chosen."""
        if chosen.all():
            return self
        return replace(self, rows=self.rows[chosen], keys=self.keys[chosen], codes=self.codes[chosen])

    @property
    def counts(self) -> Positions:
        """Number of events of each key."""
        return np.bincount(self.keys, minlength=self.key_count)

    def keys_with(self, *codes: Event) -> Flags:
        """True for keys that have one of these events."""
        flags = np.zeros(self.key_count, np.bool_)
        flags[self.keys[np.isin(self.codes, codes)]] = True
        return flags

    def last_rows(self, chosen: Flags) -> Positions:
        """The last chosen event of each key, -1 where there is none."""
        found = np.full(self.key_count, -1, np.int64)
        found[self.keys[chosen]] = self.rows[chosen]
        return found

    def late_first(self) -> LiveEvents:
        """ADD_LATE events before the others of their key, the last of them first.

        This is the order of the values in functions that join values and have aggReversed(acc, x) = agg(x, acc).
        """
        late = self.codes == Event.ADD_LATE
        if not late.any():
            return self
        rank = np.where(late, -self.rows - 1, self.rows)
        order = np.lexsort((rank, self.keys))
        return replace(self, rows=self.rows[order], keys=self.keys[order], codes=self.codes[order])


def live_events(events: ColumnEvents, *, takes_retracts: bool = False, trimmed: bool = True) -> LiveEvents:
    """The events that decide, for functions that remember nothing beside the accumulator.

    Not `trimmed`, those before a SET are among them: they may still be refused.
    """
    # The registry has refused retracts where the function takes none.
    assert takes_retracts or not (events.codes == Event.RETRACT).any()
    count = len(events.codes)
    keys = np.repeat(np.arange(events.key_count), np.diff(events.starts, append=count))
    live = events.codes != Event.SKIP
    rows = np.arange(count)
    is_set = events.codes == Event.SET
    if trimmed and is_set.any():
        last_set = np.full(events.key_count, -1, np.int64)
        last_set[keys[is_set]] = rows[is_set]
        live &= rows >= last_set[keys]
    return LiveEvents(rows, keys, events.codes, events.key_count).only(live)


def valid_flags(values: pa.Array[Any]) -> Flags:
    """True for values that are not null."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    flags: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return flags


def gathered(values: pa.Array[Any], rows: Positions) -> pa.Array[Any]:
    """The values at these positions, NULL for -1."""
    missing = rows < 0
    return values.take(pa.array(rows, mask=missing if missing.any() else None))


def with_looped(values: pa.Array[Any], rows: Positions, looped: Positions, results: Sequence[Any]) -> pa.Array[Any]:
    """The values at `rows` (-1: NULL), one per key, where the keys `looped` have these results instead."""
    if not len(looped):
        return gathered(values, rows)
    rows = rows.copy()
    rows[looped] = len(values) + np.arange(len(looped))
    return gathered(pa.concat_arrays([values, pa.array(results, values.type)]), rows)


@dataclass(frozen=True, slots=True)
class Parts:
    """Arrays or maps taken apart. Value i holds the parts `starts[i]` to `starts[i] + lengths[i]` of each child."""

    children: tuple[pa.Array[Any], ...]
    starts: Positions
    lengths: Positions
    valid: Flags

    @classmethod
    def of(cls, values: pa.Array[Any]) -> Parts:
        """The elements of arrays; the keys and items of maps."""
        offsets = values.offsets.to_numpy().astype(np.int64)
        first, end = int(offsets[0]), int(offsets[-1])
        raw = (values.keys, values.items) if pt.is_map(values.type) else (values.values,)
        valid = valid_flags(values)
        return cls(
            tuple(child.slice(first, end - first) for child in raw),
            offsets[:-1] - first,
            np.where(valid, np.diff(offsets), 0),
            valid,
        )

    def picks(self, events: LiveEvents) -> Picks:
        """All parts of the values of these events, in their order; values that are only retracted make no result."""
        lengths = self.lengths[events.rows]
        present = np.zeros(events.key_count, np.bool_)
        present[events.keys[self.valid[events.rows] & (events.codes != Event.RETRACT)]] = True
        return Picks(ranges(self.starts[events.rows], lengths), np.repeat(events.keys, lengths), present)

    def retracted(self, events: LiveEvents) -> Flags:
        """For the parts of `picks(events)`, whether they are of a RETRACT."""
        return np.repeat(events.codes == Event.RETRACT, self.lengths[events.rows])

    def walk(self, events: LiveEvents) -> Iterator[tuple[int, int, int, int | None, int]]:
        """(key, event, code, length or None for NULL, first index into `picks(events).parts`) of each event."""
        lengths = self.lengths[events.rows]
        yield from zip(
            events.keys.tolist(),
            events.rows.tolist(),
            events.codes.tolist(),
            [length if valid else None for length, valid in zip(lengths, self.valid[events.rows], strict=True)],
            (np.cumsum(lengths) - lengths).tolist(),
            strict=True,
        )


@dataclass(frozen=True, slots=True)
class Picks:
    """What results are made of: part `parts[i]` belongs to key `keys[i]`; keys that are not `present` have NULL.

    The parts of a key stand in the order of its result, the keys need not.
    """

    parts: Positions
    keys: Positions
    present: Flags

    def only(self, chosen: Flags | Positions) -> Picks:
        """The parts that are chosen, of the same keys."""
        return replace(self, parts=self.parts[chosen], keys=self.keys[chosen])

    def of_keys(self, keys: Positions) -> Positions:
        """Indices of the parts of these keys."""
        chosen = np.zeros(len(self.present), np.bool_)
        chosen[keys] = True
        return np.flatnonzero(chosen[self.keys])

    def with_looped(self, looped: Flags, results: dict[int, list[int] | None]) -> Picks:
        """These picks, where the looped keys have other parts: those given, or NULL."""
        if not results:
            return self
        mine = ~looped[self.keys]
        present = self.present & ~looped
        present[[key for key, parts in results.items() if parts is not None]] = True
        lengths = [len(parts or ()) for parts in results.values()]
        flat = [part for parts in results.values() for part in parts or ()]
        return Picks(
            np.concatenate([self.parts[mine], np.array(flat, np.int64)]),
            np.concatenate([self.keys[mine], np.repeat(np.fromiter(results, np.int64, len(results)), lengths)]),
            present,
        )

    def in_key_order(self) -> Picks:
        """The same, key after key."""
        if not len(self.keys) or bool((np.diff(self.keys) >= 0).all()):
            return self
        return self.only(np.argsort(self.keys, kind="stable"))

    def to_array(self, kind: pa.DataType, children: tuple[pa.Array[Any], ...]) -> pa.Array[Any]:
        """One array or map per key, gathered from the children."""
        ordered = self.in_key_order()
        indices = pa.array(ordered.parts)
        return ordered.assembled(kind, tuple(child.take(indices) for child in children))

    def assembled(self, kind: pa.DataType, children: tuple[pa.Array[Any], ...]) -> pa.Array[Any]:
        """One array or map per key, of children that stand key after key as these picks do."""
        counts = np.bincount(self.keys, minlength=len(self.present))
        offsets = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
        mask = None if self.present.all() else pa.array(~self.present)
        form = pa.MapArray if pt.is_map(kind) else pa.ListArray
        return form.from_arrays(offsets, *children, type=kind, mask=mask)


def ranges(starts: Positions, lengths: Positions) -> Positions:
    """The numbers `starts[i]` to `starts[i] + lengths[i]`, one range after the other."""
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


@dataclass(frozen=True, slots=True)
class Groups:
    """Positions by the code of their group: those of group i are `order[starts[i]:starts[i + 1]]`, as they stood."""

    order: Positions
    starts: Positions

    @classmethod
    def of(cls, codes: Codes) -> Groups:
        """Positions and their codes are sorted as one word if it holds both, which needs no stable sort.

        1.5 M positions in 1.1 M groups take 40 ms, hashing the codes takes 240 ms.
        """
        shift = len(codes).bit_length()
        if int(codes.max(initial=0)).bit_length() + shift < _WORD_BITS:
            words = codes << shift
            words |= np.arange(len(codes))
            words.sort()
            order, ordered = words & ((1 << shift) - 1), words >> shift
        else:
            order = np.argsort(codes, kind="stable")
            ordered = codes[order]
        return cls(order, np.flatnonzero(np.diff(ordered, prepend=-1)))

    @property
    def lengths(self) -> Positions:
        """Number of positions of each group."""
        lengths: Positions = np.diff(self.starts, append=len(self.order))
        return lengths

    @property
    def firsts(self) -> Positions:
        """The first position of each group."""
        return self.order[self.starts]

    @property
    def lasts(self) -> Positions:
        """The last position of each group."""
        lasts: Positions = self.order[self.starts + self.lengths - 1]
        return lasts

    def last_with(self, flags: Flags) -> Positions:
        """The last position of each group that has the flag, -1 where none has."""
        last = self._last_index(flags)
        positions: Positions = np.where(last < 0, -1, self.order[last])
        return positions

    def after_last(self, flags: Flags) -> Flags:
        """True for positions behind the last one of their group that has the flag."""
        return self.spread(np.arange(len(self.order)) > np.repeat(self._last_index(flags), self.lengths))

    def spread(self, ordered: Flags) -> Flags:
        """Flags given in the order of groups, in the order of positions."""
        flags = np.empty(len(ordered), np.bool_)
        flags[self.order] = ordered
        return flags

    def _last_index(self, flags: Flags) -> Positions:
        if not len(self.order):
            return self.starts
        indices: Positions = np.where(flags[self.order], np.arange(len(self.order)), -1)
        last: Positions = np.maximum.reduceat(indices, self.starts)
        return last


def first_of_each(codes: Codes) -> Flags:
    """True at the first position of each group."""
    return _flags_at(Groups.of(codes).firsts, len(codes))


def last_of_each(codes: Codes) -> Flags:
    """True at the last position of each group."""
    return _flags_at(Groups.of(codes).lasts, len(codes))


def outlived(picks: Picks, retracted: Flags, codes: Codes) -> Flags:
    """True for parts that no equal part of their key was retracted after; the codes tell parts apart."""
    kept = ~retracted
    if retracted.any():
        involved = picks.of_keys(picks.keys[retracted])
        groups = Groups.of(paired(picks.keys[involved], codes[involved]))
        kept[involved] &= groups.after_last(retracted[involved])
    return kept


def paired(left: Codes, right: Codes) -> Codes:
    """Codes of pairs of codes, each below 2^31; those of the pairs grow with the left one first."""
    width = int(right.max(initial=0)) + 1
    pairs: Codes = left * width + right
    return pairs


def _flags_at(positions: Positions, count: int) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[positions] = True
    return flags


def equality_codes(values: pa.Array[Any]) -> Codes:
    """Numbers that are equal where the values are, by the table above."""
    kind = values.type
    if pt.is_struct(kind):
        return _row_codes(valid_flags(values), values.flatten())
    if pt.is_map(kind):
        parts = Parts.of(values)
        entries = parts.picks(_each(len(values)))
        names, items = (equality_codes(child)[entries.parts] for child in parts.children)
        order = np.lexsort((names, entries.keys))
        return _sequence_codes(parts, _small(paired(names, items))[order])
    if pt.is_list(kind):
        parts = Parts.of(values)
        elements = parts.picks(_each(len(values)))
        return _sequence_codes(parts, equality_codes(parts.children[0])[elements.parts])
    if pt.is_integer(kind) and (near := _offset_codes(values)) is not None:
        return near
    if pt.is_floating(kind):
        values = _float_bits(values)
    return _encoded(values)


def row_key_codes(rows: pa.Array[Any], fields: Sequence[str]) -> tuple[Codes, Flags]:
    """Codes of these fields of rows, and which rows have a null among them."""
    columns = field_columns(rows, fields)
    has_null = np.zeros(len(rows), np.bool_)
    for column in columns:
        has_null |= ~valid_flags(column)
    return _row_codes(np.ones(len(rows), np.bool_), columns), has_null


def order_ranks(columns: Sequence[pa.Array[Any]], names: Sequence[str]) -> Codes:
    """Numbers that order as the columns do, left to right, nulls smallest; equal where all columns are equal."""
    count = len(columns[0])
    words = [
        word.word(index, None)
        for column, name in zip(columns, names, strict=True)
        for word in (sequence_words(column, name, descending=False) if count else ())
        for index in range(word.count)
    ]
    if not words:
        return np.zeros(count, np.int64)
    order = np.lexsort(words[::-1])
    grows = np.zeros(count, np.bool_)
    for word in words:
        grows[1:] |= word[order][1:] != word[order][:-1]
    ranks = np.empty(count, np.int64)
    ranks[order] = np.cumsum(grows)
    return ranks


def field_columns(rows: pa.Array[Any], fields: Sequence[str]) -> list[pa.Array[Any]]:
    """Fields of rows; those of a null row are null."""
    columns = rows.flatten()
    return [columns[rows.type.get_field_index(name)] for name in fields]


def fold_each(
    events: ColumnEvents,
    *,
    read: Callable[[bytes], Part],
    merge: Callable[[Part, Part], Part],
    write: Callable[[Part], bytes],
) -> Reduction:
    """Folds serialized values by a library: NULL changes nothing, a value alone stays as it is, byte by byte.

    `merge(acc, x)` may change `acc`. Keys with two values and more are folded one by one, in merge order.
    """
    live = live_events(events)
    live = live.only(valid_flags(events.values)[live.rows])
    looped = live.counts > 1
    keys = np.flatnonzero(looped)
    folded = live.only(looped[live.keys])
    values = events.values.take(pa.array(folded.rows)).to_pylist()
    steps = zip(folded.keys.tolist(), folded.rows.tolist(), folded.codes.tolist(), values, strict=True)
    results = []
    for _, group in groupby(steps, key=itemgetter(0)):
        accumulator: Part | None = None
        for _, event, code, value in group:
            try:
                part = read(value)
                if accumulator is None:
                    accumulator = part
                else:
                    late = code == Event.ADD_LATE
                    accumulator = merge(part, accumulator) if late else merge(accumulator, part)
            except InvalidRequestError as error:
                raise AggregationError(event, str(error)) from error
        assert accumulator is not None
        results.append(write(accumulator))
    rows = live.last_rows(np.ones(len(live.rows), np.bool_))
    return Reduction(with_looped(events.values, rows, keys, results), looped)


def _each(count: int) -> LiveEvents:
    """Every value as a key of its own."""
    rows = np.arange(count)
    return LiveEvents(rows, rows, np.full(count, Event.ADD, np.int8), count)


def _row_codes(valid: Flags, columns: Iterable[pa.Array[Any]]) -> Codes:
    codes = valid.astype(np.int64)
    for column in columns:
        codes = _small(paired(codes, equality_codes(column)))
    return codes


def _small(codes: Codes) -> Codes:
    """The same codes, numbered anew if they are too large to be paired again."""
    return codes if int(codes.max(initial=0)) < _PAIRABLE else _encoded(pa.array(codes))


def _offset_codes(values: pa.Array[Any]) -> Codes | None:
    """Integers less their smallest one, if they lie near enough to each other to be codes."""
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None or high - low >= _PAIRABLE - 1:
        return None
    valid = valid_flags(values)
    numbers = values.fill_null(low).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(valid, numbers - low + 1, 0)


def _sequence_codes(parts: Parts, codes: Codes) -> Codes:
    """Codes of sequences: the codes of their elements are compared as one string of bytes."""
    offsets = np.append(0, np.cumsum(parts.lengths)) * codes.itemsize
    validity = pa.array(parts.valid).buffers()[1]
    texts = pa.Array.from_buffers(
        pa.large_binary(),
        len(parts.valid),
        [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(codes))],
    )
    return _encoded(texts)


def _encoded(values: pa.Array[Any]) -> Codes:
    """Dense codes of values that Arrow can hash, NULL among them, in the order of their first occurrence."""
    codes: Codes = values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


def _float_bits(values: pa.Array[Any]) -> pa.Array[Any]:
    width = values.type.bit_width // 8
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    bits = numbers.view(np.int32 if width == 4 else np.int64)
    bits = np.where(np.isnan(numbers), bits.dtype.type(_NAN_BITS[width]), bits)
    return pa.array(bits, mask=~valid_flags(values))
