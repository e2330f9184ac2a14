"""The order of rows in a bucket: by key, then sequence fields, then sequence number, then position.

    key columns         natural order, left to right (`sort_words` has the rules of each type)
    sequence fields     nulls smallest; ascending or descending, all fields alike
    _SEQUENCE_NUMBER    ascending
    position            of two rows that still tie the later one wins: pass older runs first

`sort_segments` returns positions, it moves no value: `order` lists the rows in this order, `starts` says where in
`order` each key begins. 2 M rows in five sorted runs by one BIGINT: 0.02 s.

Source: MERGING.md §0, §2.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.codec.stats import order_of
from freshet.storage.merge.sort_words import (
    WORD_BITS,
    FixedWord,
    Positions,
    SortWords,
    UInt64s,
    dense,
    int_word,
    key_words,
    narrowed,
    pack,
    sequence_words,
)
from freshet.storage.model.data_type import DataType
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN
from freshet.storage.model.value_bits import fixed_width

_KNOWN_KEYS_MAX: Final = 1024
_KNOWN_KEY_BYTES_MAX: Final = 256
"""So many keys of files are kept decoded, and none that is longer."""

PRESORTED_RUNS_MAX: Final = 8
"""Up to this many sorted runs positions are sorted by a stable merge sort (25 ms for 2 M words in 5 runs); above, and
for unsorted rows, by vectorised quicksort (31 to 65 ms; the stable sort takes 55 ms for 50 runs, 200 ms for unsorted
words)."""

PACKED_RUNS_MAX: Final = 4
"""The same where the positions ride along in the words. 150 K of them in 5 runs: stable 1.25 ms, quicksort 0.65 ms with
AVX-512 and 1.5 ms with AVX2; in 3 runs 0.8 ms, 0.65 ms and 1.4 ms; in 8 runs 1.6 ms, 0.75 ms and 1.7 ms."""

Flags = npt.NDArray[np.bool_]
Key = tuple[Any, ...]


class RowOrder(Frozen):
    """Columns that order the rows of a bucket."""

    key_columns: tuple[str, ...]
    sequence_columns: tuple[str, ...] = ()
    sequence_descending: bool = False


class KeySegments(Frozen):
    """Rows and their order. `order[starts[i]:starts[i + 1]]` are the rows of the i-th key, the last one the newest.

    `never_lone` marks keys that had more rows, which a rule of levels has left out: they are merged in any case.
    """

    rows: pa.Table
    order: Positions
    starts: Positions
    never_lone: Flags | None = None

    @property
    def counts(self) -> Positions:
        """Number of rows of each key."""
        counts: Positions = np.diff(self.starts, append=len(self.order))
        return counts

    @property
    def ends(self) -> Positions:
        """One past the last row of each key in `order`."""
        return ends_of(self.starts, len(self.order))

    @property
    def last_rows(self) -> Positions:
        """Position in `rows` of the newest row of each key."""
        rows: Positions = self.order[self.ends - 1]
        return rows

    @property
    def lone(self) -> Flags:
        """True for keys with exactly one row, and none left out."""
        lone: Flags = self.counts == 1
        return lone if self.never_lone is None else lone & ~self.never_lone


def ends_of(starts: Positions, count: int) -> Positions:
    """Where segments end that begin at `starts` and fill `count` places."""
    ends: Positions = np.append(starts[1:], count)[: len(starts)]
    return ends


def sort_segments(rows: pa.Table, order: RowOrder, run_lengths: Sequence[int] | None = None) -> KeySegments:
    """Orders the rows. `run_lengths` says that they are sorted runs of these lengths, older runs first."""
    count = rows.num_rows
    if not count:
        return KeySegments(rows, np.zeros(0, np.int64), np.zeros(0, np.int64))
    extremes = None if run_lengths is None else _run_ends(run_lengths)
    keys: list[SortWords] = []
    for index, name in enumerate(order.key_columns):
        keys += key_words(rows.column(name), name, None if index else extremes)
    keys = pack(keys)
    positions, is_first = _sorted_by(keys, count, count if run_lengths is None else len(run_lengths))
    starts = np.flatnonzero(is_first)
    if len(starts) < count:
        for words in _sequence(rows, order, run_lengths):
            _refine(positions, is_first, words)
    return KeySegments(rows, positions, starts)


class KeyComparator:
    """Makes serialized keys (`min_key`, `max_key` of files) comparable."""

    __slots__ = ("_types",)

    def __init__(self, key_types: Sequence[DataType]) -> None:
        self._types = tuple(key_types)

    def sort_key(self, key: bytes) -> tuple[Any, ...]:
        """A tuple that sorts as the key does."""
        return _sort_key(key, self._types) if len(key) <= _KNOWN_KEY_BYTES_MAX else _decoded(key, self._types)


def _decoded(key: bytes, types: tuple[DataType, ...]) -> tuple[Any, ...]:
    return tuple(order_of(value) for value in decode_row(key, types))


_sort_key = lru_cache(_KNOWN_KEYS_MAX)(_decoded)
"""Each batch compares the bounds of the same files many times."""


def row_key(rows: pa.Table | pa.RecordBatch, row: int, key_columns: Sequence[str]) -> Key:
    """The key of one row, comparable with those of other rows of the same columns."""
    scalars = (rows.column(name)[row] for name in key_columns)
    return tuple(s.value if pa.types.is_temporal(s.type) else order_of(s.as_py()) for s in scalars)


def rows_tied(column: pa.Array[Any], value: Any) -> tuple[int, int]:
    """Where in a sorted key column, the first one, rows may have this item of a `row_key`: from, to.

    All rows, where the type does not tell at once. Integers and times do: to find where 5 runs of 1.65 M rows are cut
    for 8 rounds takes 1 ms, and 6 ms by comparing one row after the other.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)):
        return 0, len(column)
    numbers = fixed_width(column)
    wanted = numbers.dtype.type(value)  # a Python number would widen the whole column
    return int(np.searchsorted(numbers, wanted, "left")), int(np.searchsorted(numbers, wanted, "right"))


def _sequence(rows: pa.Table, order: RowOrder, run_lengths: Sequence[int] | None) -> list[SortWords]:
    """Words after the key. The sequence number is left out where the position says the same."""
    words = [
        word
        for name in order.sequence_columns
        for word in sequence_words(rows.column(name), name, descending=order.sequence_descending)
    ]
    numbers = rows.column(SEQUENCE_NUMBER_COLUMN).to_numpy()
    if not _ascends(numbers, run_lengths):
        words.append(int_word(numbers))
    return pack(words)


def _run_ends(run_lengths: Sequence[int]) -> list[int]:
    """First and last row of each run: the smallest and largest first key column are among them."""
    ends = np.cumsum(run_lengths)
    return [
        row
        for length, end in zip(run_lengths, ends, strict=True)
        if length
        for row in (int(end) - length, int(end) - 1)
    ]


def _ascends(numbers: npt.NDArray[np.int64], run_lengths: Sequence[int] | None) -> bool:
    """True if of two rows with one key the later position has the larger number: a run holds each key once."""
    if run_lengths is None:
        return bool((numbers[1:] >= numbers[:-1]).all())
    newest = None
    end = 0
    for length in run_lengths:
        part = numbers[end : end + length]
        end += length
        if not length:
            continue
        if newest is not None and part.min() < newest:
            return False
        newest = part.max()
    return True


def _sorted_by(words: Sequence[SortWords], count: int, run_count: int) -> tuple[Positions, Flags]:
    is_first = np.zeros(count, np.bool_)
    is_first[0] = True
    if not words:
        return np.arange(count), is_first
    head = words[0]
    word = head.word(0, None)
    bits = head.bits if isinstance(head, FixedWord) else WORD_BITS
    positions, word, is_stable = _sorted_word(word, bits, run_count)
    np.not_equal(word[1:], word[:-1], out=is_first[1:])
    if not is_stable:
        _refine_by(positions, is_first.copy(), lambda rows: rows.view(np.uint64))
    for index in range(1, head.count):
        _refine_by(positions, is_first, lambda rows, i=index: head.word(i, rows))
    for other in words[1:]:
        _refine(positions, is_first, other)
    return positions, is_first


def _sorted_word(word: UInt64s, bits: int, run_count: int) -> tuple[Positions, UInt64s, bool]:
    """Positions by word, the word in this order, and whether ties are in order of position.

    The words are in sorted runs, of one row each where nothing is known of them.
    """
    count = len(word)
    index_bits = np.uint64((count - 1).bit_length())
    if bits + int(index_bits) <= WORD_BITS:
        # The position rides along in the low bits: sorting numbers is faster than sorting positions by number.
        # In place, because pages of a new array cost more than what is computed in it.
        packed = word << index_bits
        packed |= np.arange(count, dtype=np.uint64)
        packed.sort(kind="stable" if run_count <= PACKED_RUNS_MAX else "quicksort")
        positions = (packed & np.uint64((1 << int(index_bits)) - 1)).view(np.int64)
        packed >>= index_bits
        return positions, packed, True
    is_stable = run_count <= PRESORTED_RUNS_MAX
    positions = np.argsort(word, kind="stable" if is_stable else "quicksort")
    return positions, word[positions], is_stable


def _refine(positions: Positions, is_first: Flags, words: SortWords) -> None:
    for index in range(words.count):
        _refine_by(positions, is_first, lambda rows, i=index: words.word(i, rows))


def _refine_by(positions: Positions, is_first: Flags, word_of: Any) -> None:
    """Orders the rows of each group of ties by one more word, in place, and marks the groups that this splits."""
    is_last = np.append(is_first[1:], True)
    tied = np.flatnonzero(~(is_first & is_last))
    if not len(tied):
        return
    rows = positions[tied]
    word: UInt64s = word_of(rows)
    starts_group = is_first[tied]
    if ((word[1:] < word[:-1]) & ~starts_group[1:]).any():
        by = _by_group_and_word(np.cumsum(starts_group), word)
        rows, word = rows[by], word[by]
        positions[tied] = rows
    is_first[tied[1:]] |= word[1:] != word[:-1]


def _by_group_and_word(group: Positions, word: UInt64s) -> Positions:
    """A stable order by group, then word."""
    index_bits = (len(word) - 1).bit_length()
    group_word = FixedWord(group.view(np.uint64), int(group[-1]).bit_length())
    small = narrowed(word)
    if group_word.bits + small.bits + index_bits > WORD_BITS:
        small = dense([small.values])
    if group_word.bits + small.bits + index_bits > WORD_BITS:
        return np.lexsort((word, group))
    (packed,) = pack([FixedWord(group_word.values, max(group_word.bits, 1)), small])
    return _sorted_word(packed.word(0, None), group_word.bits + small.bits, len(word))[0]
