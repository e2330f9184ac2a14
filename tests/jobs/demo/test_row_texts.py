"""Rows of PostgreSQL, in JSON, and rows of a lake are the same text where they are the same, and only there."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.jobs.demo.database_demo import texts_of_json, texts_of_table

UTC = datetime.UTC
SAME = [
    pytest.param(pa.int16(), "-7", -7, id="a whole number"),
    pytest.param(pa.decimal128(38, 18), "1.5", Decimal("1.500000000000000000"), id="a number of another scale"),
    pytest.param(pa.decimal128(14, 2), "1200", Decimal("1200.00"), id="zeros in front of the point"),
    pytest.param(pa.decimal128(14, 2), "-0.00", Decimal("0.00"), id="nothing"),
    pytest.param(pa.float32(), "0.1", 0.1, id="a short float"),
    pytest.param(pa.float64(), "1e+300", 1e300, id="a long float"),
    pytest.param(pa.float64(), '"NaN"', float("nan"), id="not a number"),
    pytest.param(pa.float32(), '"-Infinity"', float("-inf"), id="less than all"),
    pytest.param(pa.bool_(), "true", True, id="a boolean"),
    pytest.param(pa.string(), '"ab   "', "ab   ", id="spaces at the end"),
    pytest.param(pa.binary(), '"\\\\x00ff"', b"\x00\xff", id="bytes"),
    pytest.param(pa.date32(), '"0001-01-01"', datetime.date(1, 1, 1), id="a date"),
    pytest.param(pa.time32("ms"), '"12:34:56.789"', datetime.time(12, 34, 56, 789000), id="a time"),
    pytest.param(pa.timestamp("us"), '"2024-02-29T12:34:56.000001"', datetime.datetime(2024, 2, 29, 12, 34, 56, 1),
                 id="a timestamp"),
    pytest.param(pa.timestamp("us", "UTC"), '"2024-02-29T12:34:56+02:00"',
                 datetime.datetime(2024, 2, 29, 10, 34, 56, tzinfo=UTC), id="a moment"),
    pytest.param(pa.list_(pa.decimal128(10, 2)), "[1.5, null]", [Decimal("1.50"), None], id="an array"),
    pytest.param(pa.string(), "null", None, id="NULL"),
]  # fmt: skip
DIFFERENT = [
    pytest.param(pa.decimal128(38, 18), "1.5", Decimal("1.500000000000000001"), id="the last digit"),
    pytest.param(pa.float64(), "0.3", 0.1 + 0.2, id="the last bit"),
    pytest.param(pa.float64(), "0.0", -0.0, id="a sign"),
    pytest.param(pa.string(), '""', None, id="nothing is not NULL"),
    pytest.param(pa.string(), '"ab"', "ab ", id="a space"),
    pytest.param(pa.timestamp("us", "UTC"), '"2024-02-29T12:34:56+00:00"',
                 datetime.datetime(2024, 2, 29, 12, 34, 56, 1, tzinfo=UTC), id="a microsecond"),
    pytest.param(pa.list_(pa.int32()), "[1, 2]", [2, 1], id="the order of an array"),
]  # fmt: skip


def _row(text: str) -> dict[str, Any]:
    found = json.loads(f'{{"v": {text}}}', parse_int=Decimal, parse_float=Decimal)
    assert isinstance(found, dict)
    return found


def _are_equal(arrow_type: pa.DataType, text: str, held: object) -> bool:
    rows = pa.table({"v": pa.array([held], type=arrow_type), "more": [1]})
    return texts_of_json([_row(text)], rows.schema) == texts_of_table(rows, ["v"])


@pytest.mark.parametrize(("arrow_type", "text", "held"), SAME)
def test_the_same(arrow_type: pa.DataType, text: str, held: object) -> None:
    assert _are_equal(arrow_type, text, held)


@pytest.mark.parametrize(("arrow_type", "text", "held"), DIFFERENT)
def test_another(arrow_type: pa.DataType, text: str, held: object) -> None:
    assert not _are_equal(arrow_type, text, held)


def test_rows_are_counted() -> None:
    rows = pa.table({"v": [1, 1, 2]})
    found = texts_of_table(rows, ["v"])
    assert found - texts_of_json([_row("1"), _row("2")], rows.schema) == {'{"v": 1}': 1}


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        texts_of_table(pa.table({"v": [1]}), ["w"])
