"""Rows decoded together are the rows decoded one by one; broken ones are refused alike."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.codec.decoded_rows import arity_of, decode_rows
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataType, parse_data_type
from tests.kit.hypothesis_profile import examples

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(9, 2)": st.decimals(-9999999, 9999999, places=2),
    "DECIMAL(18, 0)": st.decimals(-(10**18) + 1, 10**18 - 1, places=0),
    "DECIMAL(30, 4)": st.decimals(-(10**20), 10**20, places=4),
    "STRING": st.text(max_size=20),
    "CHAR(3)": st.text(min_size=3, max_size=3),
    "VARBINARY(20)": st.binary(max_size=20),
    "DATE": st.dates(),
    "TIME(3)": st.integers(0, 86_399_999),
    "TIMESTAMP(0)": st.integers(-(10**9), 10**10),
    "TIMESTAMP(3)": st.integers(-(10**12), 10**13),
    "TIMESTAMP(6)": st.integers(-(10**15), 10**16),
    "TIMESTAMP(9)": st.integers(-(10**18), 9 * 10**18),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": st.integers(-(10**15), 10**16),
}


@settings(max_examples=examples(60))
@given(st.data())
def test_as_one_by_one(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=70))
    types = [parse_data_type(name) for name in names]
    values = st.tuples(*(st.none() | VALUES[name] for name in names))
    rows = [encode_row(row, types) for row in data.draw(st.lists(values, max_size=5))]
    found = decode_rows(rows, types)
    expected = list(zip(*(decode_row(row, types) for row in rows), strict=True)) or [()] * len(types)
    for array, column, kind in zip(found, expected, types, strict=True):
        assert array.type == arrow_type(kind)
        array.validate(full=True)
        assert array == _array(column, kind)


def _array(values: Any, kind: DataType) -> pa.Array[Any]:
    goal = arrow_type(kind)
    if pa.types.is_timestamp(goal):
        return pa.array(values, pa.int64()).cast(goal)
    if pa.types.is_time(goal):
        return pa.array(values, pa.int32()).cast(goal)
    return pa.array(values, goal)


def test_nested_values_and_days_beyond_the_calendar() -> None:
    types = [parse_data_type({"type": "ARRAY", "element": "INT"}), parse_data_type("DATE")]
    rows = [encode_row(row, types) for row in ([[1, None], datetime.date(2024, 1, 1)], [None, -800_000])]
    lists, days = decode_rows(rows, types)
    assert lists.to_pylist() == [[1, None], None]
    assert days.cast(pa.int32()).to_pylist() == [19723, -800_000]


def test_rows_without_fields() -> None:
    row = encode_row([], [])
    assert decode_rows([row, row], []) == []
    assert arity_of(row) == 0


@pytest.mark.parametrize(
    "row",
    [
        encode_row([1], [parse_data_type("INT")]),
        encode_row(["a text that is long", 1], [parse_data_type("STRING"), parse_data_type("INT")])[:-16],
        encode_row(["ab", 1], [parse_data_type("STRING"), parse_data_type("INT")])[:-8],
        encode_row([b"\xff\xfe", 1], [parse_data_type("VARBINARY(9)"), parse_data_type("INT")]),
        b"",
    ],
)
def test_broken_rows(row: bytes) -> None:
    types = [parse_data_type("STRING"), parse_data_type("INT")]
    whole = encode_row(["x", 1], types)
    for rows in ([row], [whole, row], [row, whole]):
        with pytest.raises(InvalidRequestError, match="binary row"):
            decode_rows(rows, types)


def test_decimals_keep_their_sign() -> None:
    types = [parse_data_type("DECIMAL(9, 2)")]
    rows = [encode_row([Decimal(text)], types) for text in ("-0.01", "1.50")]
    assert decode_rows(rows, types)[0].to_pylist() == [Decimal("-0.01"), Decimal("1.50")]
