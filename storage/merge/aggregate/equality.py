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

Source: MERGING.md §0, §2.6.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet.storage.merge.aggregate.events import Event, Flags
from freshet.storage.merge.aggregate.groups import PAIRABLE, Codes, paired
from freshet.storage.merge.aggregate.live_events import LiveEvents
from freshet.storage.merge.aggregate.parts import Parts
from freshet.storage.merge.aggregate.values import valid_flags
from freshet.storage.merge.sort_words import sequence_words

_NAN_BITS: Final = {4: 0x7FC00000, 8: 0x7FF8000000000000}


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
