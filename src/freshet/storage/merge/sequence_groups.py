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

`rows_removing_records` says which rows remove the record. A -D does so if it is in order in a group that asks for it.
From then on all groups hold what that row has, so that what one group removes decides what is in order in the others.
With one such group nothing changes for itself: the row was the largest it had seen. With several, the keys that have
such a -D are walked through, row by row.

Source: MERGING.md §2.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.merge.key_order import Flags
from freshet.storage.merge.key_rows import KeyRows
from freshet.storage.merge.sort_words import WORD_BITS, FixedWord, Positions, dense, narrowed, pack, sequence_words
from freshet.storage.model.row_kind import RowKind
from freshet.storage.options.engine import SequenceGroup

SPAN_BITS_MIN: Final = 12
"""Numbers that leave fewer bits for the span are ranked first, which costs a sort."""


class GroupOrder(Frozen):
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
    return dense(parts)


def _is_running_max(spans: Positions, word: FixedWord, present: Flags) -> Flags:
    """True where the word is not smaller than all words before it in the span, of rows that are present.

    Span and word share 64 bits; of many spans with wide words as many are looked at together as fit.
    """
    if not len(spans):
        return np.zeros(0, np.bool_)
    if word.bits > WORD_BITS - SPAN_BITS_MIN:
        word = dense([word.values])
    bits = np.uint64(word.bits)
    spans_max = 1 << min(WORD_BITS - word.bits, WORD_BITS - 2)
    values = np.where(present, word.values, np.uint64(0))
    result = np.zeros(len(spans), np.bool_)
    for low in range(0, int(spans[-1]) + 1, spans_max):
        begin, end = np.searchsorted(spans, (low, low + spans_max))
        value = ((spans[begin:end] - low).astype(np.uint64) << bits) | values[begin:end]
        np.equal(np.maximum.accumulate(value), value, out=result[begin:end])
    return result


def rows_removing_records(
    keys: KeyRows, orders: Mapping[SequenceGroup, GroupOrder], is_start: Flags
) -> tuple[Flags, Flags]:
    """True for rows that remove the record, and for which keys they were found one by one."""
    deletes = keys.kinds == RowKind.DELETE
    removing = [order for group, order in orders.items() if group.removes_record]
    none = np.zeros(keys.key_count, np.bool_)
    if not removing or not deletes.any():
        return np.zeros(len(deletes), np.bool_), none
    if len(removing) == 1:
        # A row that removes the record is the largest its group has seen, so the group goes on as without the removal.
        return deletes & removing[0].in_order(is_start), none
    candidates = deletes & np.logical_or.reduce([order.present for order in removing])
    if not candidates.any():
        return candidates, none
    scalar_keys = np.logical_or.reduceat(candidates, keys.starts)
    removes = np.zeros(len(deletes), np.bool_)
    for first, end in zip(keys.starts[scalar_keys].tolist(), keys.ends[scalar_keys].tolist(), strict=True):
        indices = np.arange(first, end)
        rows = list(zip(*(order.numbers_at(indices) for order in removing), strict=True))
        removes[first:end] = _removing_rows(deletes[first:end].tolist(), rows)
    return removes, scalar_keys


def _removing_rows(deletes: list[bool], rows: list[tuple[int, ...]]) -> list[bool]:
    """Which rows of one key remove the record; `rows` has the number of each group that removes, -1 for no event."""
    held = [-1] * len(rows[0])
    removes = []
    for is_delete, numbers in zip(deletes, rows, strict=True):
        in_order = [0 <= number >= holds for number, holds in zip(numbers, held, strict=True)]
        removes.append(is_delete and any(in_order))
        if removes[-1] or len(removes) == 1:
            held = list(numbers)
        else:
            held = [n if follows else h for n, h, follows in zip(numbers, held, in_order, strict=True)]
    return removes
