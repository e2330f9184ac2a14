"""Bitmaps and range bitmaps: their bytes, and what they find, compared with looking at every row."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from freshet.storage.codec.bitmap_index import _BLOCKS_UNITED_MAX, BitmapIndex, BitmapIndexWriter, can_have_bitmap
from freshet.storage.codec.bloom_filter import can_be_hashed
from freshet.storage.codec.index_keys import KeyForm
from freshet.storage.codec.range_bitmap import RangeBitmap, RangeBitmapWriter, can_have_range_bitmap
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.filters.literal import canonical
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, parse_data_type
from tests.kit.hypothesis_profile import examples

# Row 0 "a", 1 "b", 2 "a", 3 NULL, as Apache Paimon 2.0.0 wrote it.
A_B_A_NULL = bytes.fromhex(
    "020000000400000002" "01fffffffc00000012" "00000001" "000000016100000000" "0000001e"
    "00000002" "00000001610000000000000014" "0000000162fffffffeffffffff"
    "3a30000001000000000001001000000000000200"
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "BIGINT": st.one_of(st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1)),
    "DECIMAL(18, 2)": st.decimals(-(10**15), 10**15, places=2),
    "FLOAT": st.one_of(st.floats(width=32), st.sampled_from([-0.0, 0.0, math.nan])),
    "DOUBLE": st.one_of(st.floats(), st.sampled_from([-0.0, 0.0, math.nan])),
    "DATE": st.dates(),
    "TIME(3)": st.integers(0, 86_399_999),
    "TIMESTAMP(0)": st.integers(-(10**9), 10**9),
    "TIMESTAMP(3)": st.integers(-(10**12), 10**12),
    "TIMESTAMP(6)": st.integers(-(10**15), 10**15),
    "TIMESTAMP(9)": st.integers(-3000, 3000),
    "STRING": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "BYTES": st.binary(max_size=40),
}


def form_of(kind: str) -> KeyForm:
    form = KeyForm.of(parse_data_type(kind))
    assert form is not None
    return form


def column(kind: str, values: Sequence[Any]) -> pa.Array[Any]:
    target = arrow_type(parse_data_type(kind))
    if pa.types.is_timestamp(target) or pa.types.is_time(target):
        plain = pa.int32() if pa.types.is_time(target) else pa.int64()
        return pa.array(values, plain).view(target)
    return pa.array(values, target)


def order(value: Any) -> Any:
    """A key that orders values as filters compare them."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def test_the_reference_bitmap() -> None:
    form, writer = form_of("STRING"), BitmapIndexWriter(form_of("STRING"))
    writer.add(pa.array(["a", "b", "a", None]))
    assert writer.write() == A_B_A_NULL
    index = BitmapIndex(form, A_B_A_NULL)
    assert [set(index.rows_with([key])) for key in (b"a", b"b", b"c")] == [{0, 2}, {1}, set()]
    assert set(index.nulls) == {3}


def test_a_bitmap_of_the_first_version() -> None:
    """The layout of Apache Paimon before 1.1: no blocks, no lengths, values in no order."""
    two = A_B_A_NULL[-20:]
    data = bytes.fromhex("01000000040000000201fffffffc" "0000000162fffffffe" "000000016100000000") + two  # fmt: skip
    index = BitmapIndex(form_of("STRING"), data)
    assert [set(index.rows_with([key])) for key in (b"a", b"b", b"c")] == [{0, 2}, {1}, set()]
    assert set(index.nulls) == {3}


@st.composite
def columns(draw: Callable[..., Any]) -> tuple[str, list[Any], list[int]]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    pool = draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    values = draw(st.lists(st.one_of(st.none(), st.sampled_from(pool)), max_size=60))
    return kind, values, draw(st.lists(st.integers(0, 60), max_size=3))


@settings(max_examples=examples(300))
@example(("INT", [*range(20)], []), 0)
@given(columns(), st.sampled_from([0, 120, 16384]))
def test_every_index_finds_what_a_look_at_each_row_finds(
    drawn: tuple[str, list[Any], list[int]], chunk_bytes: int
) -> None:
    kind, values, cuts = drawn
    data_type, array = parse_data_type(kind), column(kind, values)
    held = [canonical(scalar) if scalar.is_valid else None for scalar in array]
    asked = [value for value in dict.fromkeys(map(order_free, held)) if value is not None]
    form = form_of(kind)
    for is_range, is_taken in ((False, can_have_bitmap(data_type)), (True, can_have_range_bitmap(data_type))):
        if not is_taken:
            continue
        writer = RangeBitmapWriter(form, chunk_bytes) if is_range else BitmapIndexWriter(form, chunk_bytes)
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(array)], strict=True):
            writer.add(array.slice(start, max(0, end - start)))
        index = RangeBitmap(form, writer.write()) if is_range else BitmapIndex(form, writer.write())
        for value in asked:
            keys = form.literal_keys(value, array.type)
            equal = {row for row, other in enumerate(held) if other is not None and order(other) == order(value)}
            found = set(index.rows_with(keys))
            assert found == equal if form.is_exact else found >= equal
            assert set(index.nulls) == {row for row, other in enumerate(held) if other is None}
            present = [(row, order(other)) for row, other in enumerate(held) if other is not None]
            above = {row for row, other in present if other > order(value)}
            if form.is_exact:
                below = set(index.valid) - above - equal
                for rows, expected in (
                    (index.rows_above(keys[-1], inclusive=False), above),
                    (index.rows_above(keys[0], inclusive=True), above | equal),
                    (index.rows_below(keys[0], inclusive=False), below),
                    (index.rows_below(keys[-1], inclusive=True), below | equal),
                ):
                    of_many_blocks = not is_range and len(asked) > _BLOCKS_UNITED_MAX and rows == index.valid
                    assert set(rows) == expected or (of_many_blocks and set(rows) > expected)


def order_free(value: Any) -> Any:
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def test_values_between_those_that_are_there() -> None:
    form, writer = form_of("BIGINT"), RangeBitmapWriter(form_of("BIGINT"), 24)
    writer.add(pa.array([10 * (row // 2) for row in range(40)]))
    index = RangeBitmap(form, writer.write())
    for value in range(-5, 205):
        above = {row for row in range(40) if 10 * (row // 2) > value}
        assert set(index.rows_above(value, inclusive=False)) == above, value
        assert set(index.rows_with([value])) == {row for row in range(40) if 10 * (row // 2) == value}


def damaged(data: bytes) -> list[bytes]:
    flipped = [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(min(len(data), 200))]
    return [data[:length] for length in range(0, len(data), 3)] + flipped


@pytest.mark.parametrize("kind", ["STRING", "INT"])
def test_damage_is_noticed_or_harmless_to_the_reader(kind: str) -> None:
    """Whatever the bytes: an answer, or the error that says they are damaged."""
    values = [None if row % 7 == 0 else row % 10 for row in range(50)]
    array = (
        pa.array([None if value is None else str(value) for value in values])
        if kind == "STRING"
        else pa.array(values, pa.int32())
    )
    noticed = 0
    form = form_of(kind)
    for writer in (BitmapIndexWriter(form), RangeBitmapWriter(form)):
        writer.add(array)
        for data in damaged(writer.write()):
            try:
                keys = form.literal_keys("3" if kind == "STRING" else 3, array.type)
                index = (BitmapIndex if isinstance(writer, BitmapIndexWriter) else RangeBitmap)(form, data)
                index.rows_with(keys)
                _ = index.nulls
                index.rows_above(keys[0], inclusive=False)
                index.rows_below(keys[0], inclusive=False)
            except CorruptDataError:
                noticed += 1
    assert noticed > 50


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("BOOLEAN", (False, True, True)),
        ("DECIMAL(18, 2)", (False, False, True)),
        ("DECIMAL(19, 2)", (False, False, False)),
        ("DOUBLE", (True, True, True)),
        ("BYTES", (True, False, False)),
        ("TIMESTAMP(9)", (True, True, False)),
        ("STRING", (True, True, True)),
        ("ARRAY<INT>", (False, False, False)),
    ],
)
def test_types(kind: str, taken: tuple[bool, bool, bool]) -> None:
    data_type = ArrayType(parse_data_type("INT")) if kind.startswith("ARRAY") else parse_data_type(kind)
    assert (can_be_hashed(data_type), can_have_bitmap(data_type), can_have_range_bitmap(data_type)) == taken


def test_dates_and_days() -> None:
    form = form_of("DATE")
    assert form.literal_keys(datetime.date(1970, 1, 2), pa.date32()) == (1,)
    assert form.keys(pa.array([datetime.date(1969, 12, 31)])).tolist() == [-1]
