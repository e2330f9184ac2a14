"""Which rows of a file a filter may be true for, by the indexes of its columns.

Each node of a bound filter has two answers, the rows for which it may be TRUE and those for which it may be FALSE; for
rows in neither it is NULL. An answer is a set of positions that may have too many rows but never too few, or None,
which is all rows. AND of TRUE is what both sides have in common, so that two columns exclude a file that neither of
them excludes.

| index | answers |
|---|---|
| bloom filter | `=` and IN: no row, or all |
| bitmap | `=`, IN, `!=`, NOT IN, IS NULL, IS NOT NULL; `<`, `<=`, `>`, `>=` of few values, of many: no row, or all |
| range bitmap | all of these |

Where values share a key (nanoseconds cut to microseconds) only `=` and IN are answered. NaN is above all numbers and
equals itself, -0.0 equals 0.0, as filters compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.bitmap_index import BitmapIndex
from freshet.storage.codec.bloom_filter import BloomFilter, mixed, value_hashes
from freshet.storage.codec.index_keys import Key, KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmap
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.codec.stats import ColumnStats
from freshet.storage.filters.literal import Literal
from freshet.storage.filters.predicate import And, Comparison, IsIn, IsNull, Not, Or, Predicate

Rows: TypeAlias = Bitmap32 | None
ColumnIndex: TypeAlias = BloomFilter | BitmapIndex | RangeBitmap

_NO_STATS: Final[Mapping[str, ColumnStats]] = MappingProxyType({})
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class IndexOfColumn(Frozen):
    """One index of a column, as the file's schema has the column."""

    form: KeyForm
    index: ColumnIndex | None
    """None for an index that was left empty: no row has a value, but it may be NULL."""


ColumnIndexes: TypeAlias = Mapping[str, Sequence[IndexOfColumn]]
"""Indexes by the name that the column has in the filter; a column may have none."""


def rows_that_may_match(
    predicate: Predicate, indexes: ColumnIndexes, row_count: int, stats: Mapping[str, ColumnStats] = _NO_STATS
) -> Rows:
    """Rows of a file for which a bound filter may be true; None is all of them. `stats` are what is known of its
    columns besides."""
    return _Evaluation(indexes, row_count, stats).rows(predicate, wanted=True)


class _Evaluation(Frozen):
    indexes: ColumnIndexes
    row_count: int
    stats: Mapping[str, ColumnStats]

    def rows(self, node: Predicate, *, wanted: bool) -> Rows:
        match node:
            case And(children=children):
                return self._joined(children, wanted, common=wanted)
            case Or(children=children):
                return self._joined(children, wanted, common=not wanted)
            case Not(child=child):
                return self.rows(child, wanted=not wanted)
        if not node.may_be(wanted, self.stats, self.row_count):
            return Bitmap32()
        match node:
            case Comparison(column=column, op=op, value=literal):
                op = op if wanted else _OPPOSITE[op]
                return self._of_column(column, lambda one: self._compared(one, op, literal))
            case IsIn(column=column, values=literals):
                return self._of_column(column, lambda one: self._listed(one, literals, wanted=wanted))
            case IsNull(column=column):
                return self._of_column(column, lambda one: self._null(one, wanted=wanted))
        return None

    def _joined(self, children: Sequence[Predicate], wanted: bool, *, common: bool) -> Rows:
        """The rows that all children have, or any of them."""
        joined: Rows = None if common else Bitmap32()
        for child in children:
            rows = self.rows(child, wanted=wanted)
            if common:
                joined = _common(joined, rows)
                if joined is not None and not joined:
                    return joined
            elif rows is None:
                return None
            else:
                joined = rows if joined is None else joined | rows
        return joined

    def _of_column(self, column: str, answer: Callable[[IndexOfColumn], Rows]) -> Rows:
        return reduce(_common, map(answer, self.indexes.get(column, ())), None)

    def _compared(self, one: IndexOfColumn, op: str, literal: Literal) -> Rows:
        if op in ("==", "!="):
            return self._listed(one, (literal,), wanted=op == "==")
        index = one.index
        if index is None:
            return Bitmap32()
        if isinstance(index, BloomFilter) or not one.form.is_exact:
            return None
        keys = one.form.literal_keys(literal.value, literal.type)
        match op:
            case ">":
                return index.rows_above(keys[-1], inclusive=False)
            case ">=":
                return index.rows_above(keys[0], inclusive=True)
            case "<":
                return index.rows_below(keys[0], inclusive=False)
            case _:
                return index.rows_below(keys[-1], inclusive=True)

    def _listed(self, one: IndexOfColumn, literals: Sequence[Literal], *, wanted: bool) -> Rows:
        keys = [key for literal in literals for key in one.form.literal_keys(literal.value, literal.type)]
        index = one.index
        if index is None:
            return Bitmap32()
        if isinstance(index, BloomFilter):
            return Bitmap32() if wanted and not _any_may_be(index, one.form, keys) else None
        if wanted:
            return index.rows_with(keys)
        return index.valid - index.rows_with(keys) if one.form.is_exact else None

    def _null(self, one: IndexOfColumn, *, wanted: bool) -> Rows:
        if one.index is None:
            return None if wanted else Bitmap32()
        if isinstance(one.index, BloomFilter):
            return None
        return one.index.nulls if wanted else one.index.valid


def _common(first: Rows, second: Rows) -> Rows:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _any_may_be(index: BloomFilter, form: KeyForm, keys: Sequence[Key]) -> bool:
    if not keys:
        return False
    if form.is_bytes:
        hashes = value_hashes(pa.array(keys, pa.binary()), form.kind)
    else:
        hashes = mixed(form.hashed(np.array(keys, np.int64)))
    return bool(index.may_have(hashes).any())
