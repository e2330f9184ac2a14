"""Values as numbers that are equal where the values are, and as numbers that order as the values do.

| type | equal when |
|---|---|
| FLOAT, DOUBLE | bits are equal; every NaN is one NaN, -0.0 is not 0.0 |
| ROW | all fields are |
| ARRAY | lengths and all elements are |
| MAP | they hold equal values under equal keys, whatever the order |
| every other | values are, strings and binary byte by byte |

and NULL equals NULL. Strings and numbers that lie far apart are hashed by Arrow; arrays are compared as one string of
the codes of their elements.

`Groups` are positions by such codes: the first or last of each group, and what came after the last one with a mark.
`paired` makes the codes of pairs.

Source: MERGING.md §0, §2.6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.merge.aggregate.parts import Selection
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.sort_words import Positions, dense, sequence_words
from freshet.storage.model.nested_arrays import Nested
from freshet.storage.model.value_bits import float_bits, valid_flags

Codes = npt.NDArray[np.int64]

PAIRABLE: Final = 1 << 31
"""Codes below this can be paired."""

_WORD_BITS: Final = 63


class Groups(Frozen):
    """Positions by the code of their group: those of group i are `order[starts[i]:starts[i + 1]]`, ascending."""

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


def paired(left: Codes, right: Codes) -> Codes:
    """Codes of pairs of codes, each below 2^31; those of the pairs grow with the left one first."""
    width = int(right.max(initial=0)) + 1
    pairs: Codes = left * width + right
    return pairs


def outlived(selection: Selection, retracted: Flags, codes: Codes) -> Flags:
    """True for parts that no equal part of their key was retracted after; the codes distinguish parts."""
    kept = ~retracted
    if retracted.any():
        involved = selection.of_keys(selection.keys[retracted])
        groups = Groups.of(paired(selection.keys[involved], codes[involved]))
        kept[involved] &= groups.after_last(retracted[involved])
    return kept


def _flags_at(positions: Positions, count: int) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[positions] = True
    return flags


def equality_codes(values: pa.Array[Any]) -> Codes:
    """Numbers that are equal where the values are, by the table above."""
    arrow_type = values.type
    if pt.is_nested(arrow_type):
        whole = Nested.of(values)
        if whole.offsets is None:
            return _row_codes(valid_flags(values), whole.children)
        codes, *items = (equality_codes(child) for child in whole.children)
        if items:
            order = np.lexsort((codes, whole.parents))
            codes = _small(paired(codes, items[0]))[order]
        return _sequence_codes(whole, codes)
    if pt.is_integer(arrow_type) and (near := _offset_codes(values)) is not None:
        return near
    if pt.is_floating(arrow_type):
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
    return dense(words).values.view(np.int64) if words else np.zeros(count, np.int64)


def field_columns(rows: pa.Array[Any], fields: Sequence[str]) -> list[pa.Array[Any]]:
    """Fields of rows; those of a null row are null."""
    columns = rows.flatten()
    return [columns[rows.type.get_field_index(name)] for name in fields]


def _row_codes(valid: Flags, columns: Iterable[pa.Array[Any]]) -> Codes:
    codes = valid.astype(np.int64)
    for column in columns:
        codes = _small(paired(codes, equality_codes(column)))
    return codes


def _small(codes: Codes) -> Codes:
    """The same codes, renumbered if they are too large to be paired again."""
    return codes if int(codes.max(initial=0)) < PAIRABLE else _encoded(pa.array(codes))


def _offset_codes(values: pa.Array[Any]) -> Codes | None:
    """Integers less their smallest one, if they lie near enough to each other to be codes."""
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None or high - low >= PAIRABLE - 1:
        return None
    valid = valid_flags(values)
    numbers = values.fill_null(low).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(valid, numbers - low + 1, 0)


def _sequence_codes(whole: Nested, codes: Codes) -> Codes:
    """Codes of sequences: the codes of their elements are compared as one string of bytes."""
    assert whole.offsets is not None
    offsets = whole.offsets.astype(np.int64) * codes.itemsize
    validity = pa.array(valid_flags(whole.array)).buffers()[1]
    texts = pa.Array.from_buffers(
        pa.large_binary(),
        len(whole.array),
        [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(codes))],
    )
    return _encoded(texts)


def _encoded(values: pa.Array[Any]) -> Codes:
    """Dense codes of values that Arrow can hash, NULL among them, in the order of their first occurrence."""
    codes: Codes = values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


def _float_bits(values: pa.Array[Any]) -> pa.Array[Any]:
    return pa.array(float_bits(values.fill_null(0).to_numpy(zero_copy_only=False)), mask=~valid_flags(values))
