"""Rows that a filter may be true for, by indexes: never without a row for which it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.bitmap_index import BitmapIndex, BitmapIndexWriter, can_have_bitmap
from freshet.storage.codec.bloom_filter import BloomFilter, BloomFilterBuilder, value_hashes
from freshet.storage.codec.file_index import BITMAP, BLOOM_FILTER, RANGE_BITMAP
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmap, RangeBitmapWriter, can_have_range_bitmap
from freshet.storage.files.file_evidence import ColumnIndex, ColumnIndexes, IndexOfColumn, rows_that_may_match
from freshet.storage.filters.column import col
from freshet.storage.filters.predicate import Predicate
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import parse_data_type
from tests.kit.hypothesis_profile import examples

KINDS = {"i": "INT", "s": "STRING", "d": "DOUBLE", "t": "TIMESTAMP(9)", "plain": "INT"}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3),
    "s": st.sampled_from(["", "a", "ab", "b"]),
    "d": st.sampled_from([-0.0, 0.0, 1.5, float("nan"), float("inf")]),
    "t": st.integers(-2500, 2500).map(lambda nanos: pa.scalar(nanos, pa.timestamp("ns"))),
    "plain": st.integers(0, 2),
}
SCHEMA = pa.schema([pa.field(name, arrow_type(parse_data_type(kind))) for name, kind in KINDS.items()])


def leaf(draw: Callable[..., Any]) -> Predicate:
    name = draw(st.sampled_from(sorted(KINDS)))
    value = draw(LITERALS[name])
    column = col(name)
    return draw(
        st.sampled_from(
            [
                column == value,
                column != value,
                column < value,
                column <= value,
                column > value,
                column >= value,
                column.is_in([value, draw(LITERALS[name])]),
                column.is_null(),
                ~column.is_null(),
            ]
        )
    )


@st.composite
def trees(draw: Callable[..., Any], depth: int = 3) -> Predicate:
    shape = draw(st.integers(0, 5)) if depth else 0
    if shape < 3:
        return leaf(draw)
    first = draw(trees(depth - 1))
    if shape == 3:
        return ~first
    second = draw(trees(depth - 1))
    return first & second if shape == 4 else first | second


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    count = draw(st.integers(0, 12))
    rows = {name: [draw(st.one_of(st.none(), LITERALS[name])) for _ in range(count)] for name in KINDS}
    rows["t"] = [None if value is None else value.value for value in rows["t"]]
    rows["t"] = pa.array(rows["t"], pa.int64()).view(pa.timestamp("ns"))
    return pa.table({name: pa.array(rows[name], SCHEMA.field(name).type) for name in KINDS})


def indexes_of(table: pa.Table, chosen: set[str]) -> ColumnIndexes:
    found: dict[str, list[IndexOfColumn]] = {}
    for name in KINDS.keys() - {"plain"}:
        values = table.column(name).combine_chunks()
        for kind in sorted(chosen):
            if TAKES[kind](parse_data_type(KINDS[name])):
                found.setdefault(name, []).append(IndexOfColumn(form_of(name), index_of(kind, name, values)))
    return found


TAKES = {BLOOM_FILTER: lambda _: True, BITMAP: can_have_bitmap, RANGE_BITMAP: can_have_range_bitmap}


def form_of(name: str) -> KeyForm:
    form = KeyForm.of(parse_data_type(KINDS[name]))
    assert form is not None
    return form


def index_of(kind: str, name: str, values: pa.Array[Any]) -> ColumnIndex:
    form = form_of(name)
    if kind == BLOOM_FILTER:
        builder = BloomFilterBuilder(20, 0.1)
        builder.add(value_hashes(values.drop_null(), form.kind))
        return BloomFilter.decode(builder.encode())
    if kind == BITMAP:
        bitmaps = BitmapIndexWriter(form)
        bitmaps.add(values)
        return BitmapIndex(form, bitmaps.write())
    ranges = RangeBitmapWriter(form)
    ranges.add(values)
    return RangeBitmap(form, ranges.write())


@pytest.mark.dear("a hundred tables with three indexes each")
@settings(max_examples=examples(400))
@given(tables(), trees(), st.sets(st.sampled_from(sorted(TAKES)), min_size=1))
def test_no_row_that_matches_is_left_out(table: pa.Table, tree: Predicate, chosen: set[str]) -> None:
    bound = tree.bind(SCHEMA)
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    matching = set(numbered.filter(bound.to_arrow()).column("row").to_pylist())
    rows = rows_that_may_match(bound, indexes_of(table, chosen), table.num_rows)
    assert rows is None or matching <= set(rows)
    if chosen >= {RANGE_BITMAP} and bound.columns() <= {"i", "s"}:
        assert rows is not None
        assert set(rows) == matching, "range bitmaps answer exactly"


def test_two_columns_exclude_what_none_of_them_excludes() -> None:
    table = pa.table({"i": pa.array([1, 2], pa.int32()), "s": ["a", "b"], "d": [0.0, 0.0]})
    table = table.append_column("t", pa.nulls(2, pa.timestamp("ns"))).append_column("plain", pa.nulls(2, pa.int32()))
    indexes = indexes_of(table, {BITMAP})
    both = ((col("i") == 1) & (col("s") == "b")).bind(SCHEMA)
    assert list(rows_that_may_match(both, indexes, 2) or ()) == []
    assert rows_that_may_match(both, indexes, 2) is not None
    assert set(rows_that_may_match((col("s") == "b").bind(SCHEMA), indexes, 2) or ()) == {1}
    assert rows_that_may_match((col("plain") == 1).bind(SCHEMA), indexes, 2) is None
