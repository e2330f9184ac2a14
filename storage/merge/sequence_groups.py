"""What each row does to one sequence group: in order, late, or nothing.

    row's ordering columns            | the row is
    all NULL                          | no event of this group
    >= what the group holds           | in order: the group takes its ordering columns
    <  what the group holds           | late

A group begins with nothing, which is smaller than everything; a *seed* row (a leading retract, a row that removed the
record) makes it hold that row's ordering columns, all NULL meaning nothing. Columns compare left to right, NULL
smallest, always ascending.

The ordering columns of a row become one number; the running maximum of (span, number) over all rows is what the group
holds at each of them: one pass over 2 M rows takes 7 ms. A span is the rows of a key from one seed to the next.

Source: MERGING.md §2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import KeyRows
from freshet.storage.merge.sort_words import WORD_BITS, FixedWord, Positions, UInt64s, narrowed, pack, sequence_words

SPAN_BITS_MIN: Final = 12
"""Numbers that leave fewer bits for the span are ranked first, which costs a sort."""


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """The rows of the merged keys as one sequence group sees them, by row index."""

    present: Flags
    """True where an ordering column is not NULL."""
    numbers: FixedWord
    """The ordering columns; 0 where all of them are NULL, and maybe elsewhere."""

    def in_order(self, span_starts: Flags, counts: Flags | None = None) -> Flags:
        """True where a row is in order; `span_starts` marks the first row of each span. Rows of which `counts` is
        False are passed over."""
        present = self.present if counts is None else self.present & counts
        spans = np.cumsum(span_starts, dtype=np.int64)
        return _is_running_max(spans, self.numbers, present) & present

    def numbers_at(self, indices: Positions) -> list[int]:
        """One integer per row that orders as the group does; -1 where all ordering columns are NULL."""
        present: list[bool] = self.present[indices].tolist()
        numbers: list[int] = self.numbers.values[indices].tolist()
        return [number if is_there else -1 for number, is_there in zip(numbers, present, strict=True)]


def group_order(keys: KeyRows, ordering: Sequence[str]) -> GroupOrder:
    """Looks at the ordering columns of a group."""
    columns = [keys.values(name) for name in ordering]
    present = np.zeros(len(keys.rows), np.bool_)
    for column in columns:
        present |= column.is_valid().to_numpy(zero_copy_only=False)
    return GroupOrder(present, _one_word(columns, ordering, present))


def _one_word(columns: Sequence[pa.Array[Any]], names: Sequence[str], present: Flags) -> FixedWord:
    words = pack(
        word
        for column, name in zip(columns, names, strict=True)
        for word in sequence_words(column, name, descending=False)
    )
    count = len(present)
    if not words:
        return FixedWord(np.zeros(count, np.uint64), 0)
    parts = [words_of.word(index, None) for words_of in words for index in range(words_of.count)]
    if len(parts) == 1:
        # Rows without a value must not widen the range.
        low = parts[0][present].min() if present.any() else np.uint64(0)
        return narrowed(np.where(present, parts[0], low))
    return _dense(parts)


def _dense(parts: Sequence[UInt64s]) -> FixedWord:
    """The rank of each row among the distinct ones by several words, the first one the most significant."""
    by = np.argsort(parts[0]) if len(parts) == 1 else np.lexsort(tuple(reversed(parts)))
    differs = np.zeros(len(by), np.bool_)
    for part in parts:
        ordered = part[by]
        differs[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.zeros(len(by), np.uint64)
    ranks[by] = np.cumsum(differs, dtype=np.uint64)
    return FixedWord(ranks, int(ranks[by[-1]]).bit_length() if len(by) else 0)


def _is_running_max(spans: Positions, word: FixedWord, present: Flags) -> Flags:
    """True where the word is not smaller than all words before it in the span, of rows that are present.

    Span and word share 64 bits; of many spans with wide words as many are looked at together as fit.
    """
    if not len(spans):
        return np.zeros(0, np.bool_)
    if word.bits > WORD_BITS - SPAN_BITS_MIN:
        word = _dense([word.values])
    bits = np.uint64(word.bits)
    spans_max = 1 << min(WORD_BITS - word.bits, WORD_BITS - 2)
    values = np.where(present, word.values, np.uint64(0))
    result = np.zeros(len(spans), np.bool_)
    for low in range(0, int(spans[-1]) + 1, spans_max):
        begin, end = np.searchsorted(spans, (low, low + spans_max))
        value = ((spans[begin:end] - low).astype(np.uint64) << bits) | values[begin:end]
        np.equal(np.maximum.accumulate(value), value, out=result[begin:end])
    return result
