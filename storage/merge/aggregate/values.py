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
import pyarrow.types as pt

from storage.exceptions import InvalidRequestError
from storage.merge.aggregate.events import AggregationError, ColumnEvents, Event, Flags, Positions, Reduction
from storage.merge.sort_words import sequence_words

Codes = npt.NDArray[np.int64]
Part = TypeVar("Part")

_TAKE_RETRACTS: Final = "sum, product, last_value, last_non_null_value, collect, merge_map and nested_update"
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
        return replace(self, rows=self.rows[chosen], keys=self.keys[chosen], codes=self.codes[chosen])

    @property
    def counts(self) -> Positions:
        """Number of events of each key."""
        return np.bincount(self.keys, minlength=self.key_count)

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


def live_events(events: ColumnEvents, *, trimmed: bool = True) -> LiveEvents:
    """The events that decide, for functions that remember nothing beside the accumulator.

    Not `trimmed`, those before a SET are among them: they may still be refused.
    """
    keys = np.repeat(np.arange(events.key_count), np.diff(events.starts, append=len(events.codes)))
    live = events.codes != Event.SKIP
    rows = np.arange(len(events.codes))
    is_set = events.codes == Event.SET
    if trimmed and is_set.any():
        last_set = np.full(events.key_count, -1, np.int64)
        last_set[keys[is_set]] = rows[is_set]
        live &= rows >= last_set[keys]
    return LiveEvents(rows[live], keys[live], events.codes[live], events.key_count)


def refuse_retracts(events: ColumnEvents, function: str, column: str) -> None:
    """Raises `AggregationError` for the first RETRACT."""
    retracts = np.flatnonzero(events.codes == Event.RETRACT)
    if len(retracts):
        raise AggregationError(
            int(retracts[0]),
            f"{function} does not take retracts; {_TAKE_RETRACTS} do. "
            f"Set fields.{column}.ignore-retract=true to leave them out",
        )


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
        """All parts of the values of these events, in their order."""
        lengths = self.lengths[events.rows]
        present = np.zeros(events.key_count, np.bool_)
        present[events.keys[self.valid[events.rows]]] = True
        return Picks(ranges(self.starts[events.rows], lengths), np.repeat(events.keys, lengths), present)

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


def first_of_each(groups: Codes) -> Flags:
    """True at the first position of each group."""
    return last_of_each(groups[::-1])[::-1]


def last_of_each(groups: Codes) -> Flags:
    """True at the last position of each group."""
    dense = dense_codes(groups)
    last = np.empty(int(dense.max()) + 1 if len(dense) else 0, np.int64)
    last[dense] = np.arange(len(dense))
    flags = np.zeros(len(dense), np.bool_)
    flags[last] = True
    return flags


def dense_codes(codes: Codes) -> Codes:
    """The same codes, numbered from 0 without gaps."""
    return _encoded(pa.array(codes))


def paired(left: Codes, right: Codes) -> Codes:
    """Dense codes of pairs. Both are dense or at least smaller than 2^31."""
    return dense_codes(left * (int(right.max(initial=0)) + 1) + right)


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
        return _sequence_codes(parts, paired(names, items)[order])
    if pt.is_list(kind):
        parts = Parts.of(values)
        elements = parts.picks(_each(len(values)))
        return _sequence_codes(parts, equality_codes(parts.children[0])[elements.parts])
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
        codes = paired(codes, equality_codes(column))
    return codes


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
