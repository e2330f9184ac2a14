"""Literals that a column cannot hold: every operator as in the wider type, also by pruning."""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.filters.column import col
from freshet.storage.filters.literal import Between, Equal, Literal, locate, timestamp_value
from tests.kit.filter_texts import compare
from tests.kit.hypothesis_profile import examples

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EPOCH = datetime.datetime(1970, 1, 1)


def answers(column: pa.Array, literal: Any) -> dict[str, list[Any]]:
    """By operator, the rows that a filter keeps."""
    table = pa.table({"c": column, "row": pa.array(range(len(column)), pa.int64())})
    found = {}
    for op, build in OPERATORS.items():
        bound = build(col("c"), literal).bind(table.schema)
        found[op] = table.filter(bound.to_arrow())["row"].to_pylist()
        if found[op]:
            assert bound.may_match({}, len(column))
    return found


def expected(values: list[Any], literal: Any) -> dict[str, list[int]]:
    return {op: [row for row, value in enumerate(values) if compare(op, value, literal)] for op in OPERATORS}


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("micros", [-1_000_001, -1, 0, 1, 999, 1000, 1001, 999_999, 1_000_000, 1_500_000])
def test_time_stamps_finer_than_the_column(unit: str, micros: int) -> None:
    ticks = [-2, -1, 0, 1, 2, 1000]
    column = pa.array(ticks, pa.timestamp(unit))
    literal = EPOCH + datetime.timedelta(microseconds=micros)
    assert answers(column, literal) == expected(column.to_pylist(), literal)


@pytest.mark.parametrize("micros", [0, 1, 999, 1000, 1001, 86_399_999_999])
def test_times_finer_than_the_column(micros: int) -> None:
    column = pa.array([0, 1, 2, 86_399_999], pa.time32("ms"))
    literal = (EPOCH + datetime.timedelta(microseconds=micros)).time()
    assert answers(column, literal) == expected(column.to_pylist(), literal)


def test_nanoseconds_by_text_and_by_scalar() -> None:
    column = pa.array([1_000_000_000, 1_000_000_001, 1_000_000_002], pa.timestamp("ns"))
    for literal in ("1970-01-01 00:00:01.000000001", pa.scalar(1_000_000_001, pa.timestamp("ns"))):
        assert answers(column, literal)["<"] == [0]
        assert answers(column, literal)["="] == [1]
    in_micros = column.cast(pa.timestamp("us"), safe=False)
    assert answers(in_micros, np.datetime64(1_000_000_001, "ns"))["<"] == [0, 1, 2]
    assert answers(in_micros, np.datetime64(1_000_000_001, "ns"))["="] == []


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.decimal128(5, 2), pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "literal",
    [
        0,
        1,
        300,
        -300,
        2**70,
        1.5,
        0.1,
        -0.0,
        1e300,
        math.inf,
        -math.inf,
        math.nan,
        Decimal("0.1"),
        Decimal("1.005"),
        Decimal("0e99999999"),
    ],
    ids=repr,
)
def test_numbers_of_another_type(kind: pa.DataType, literal: Any) -> None:
    numbers: list[Any] = [-100, 0, 1, 2, 100]
    if pa.types.is_floating(kind):
        numbers += [0.1, 1.5, math.inf, -math.inf, math.nan]
    if pa.types.is_decimal(kind):
        numbers += [Decimal("0.1"), Decimal("1.00"), Decimal("1.01"), Decimal("999.99")]
    column = pa.array([Decimal(str(n)) if pa.types.is_decimal(kind) else n for n in numbers], kind)
    assert answers(column, literal) == expected(column.to_pylist(), literal)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.decimal128(38, 2), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(
    ("literal", "below"),
    [
        (10**6000, 4), (-(10**6000), 0), (Decimal("1e99999999"), 4), (Decimal("-1e99999999"), 0),
        (Decimal("1." + "0" * 5000 + "1"), 3), (Decimal("-1." + "0" * 5000 + "1"), 0),
        (Decimal("1e-99999999"), 2), (Decimal("-1e-99999999"), 1),
    ],
    ids=["10^6000", "-10^6000", "1e99999999", "-1e99999999", "1.0…1", "-1.0…1", "1e-99999999", "-1e-99999999"],
)  # fmt: skip
def test_numbers_beyond_every_type(kind: pa.DataType, literal: Any, below: int) -> None:
    """`below` rows are less than it; of floats, which compare as doubles, it may be one of them."""
    column = pa.array([Decimal(n) if pa.types.is_decimal(kind) else n for n in (-1, 0, 1, 2)], kind)
    found = answers(column, literal)
    if not (pa.types.is_floating(kind) and -2 < literal < 2):
        assert found["="] == []
        assert found["<"] == found["<="] == list(range(below))
        assert found[">"] == list(range(below, 4))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("literal", [3.40282355e38, -3.40282355e38, 3.5e38, -3.5e38])
def test_numbers_at_the_end_of_a_float(literal: float) -> None:
    column = pa.array([-3.4028234663852886e38, 0.0, 3.4028234663852886e38, math.inf, -math.inf], pa.float32())
    assert answers(column, literal) == expected(column.to_pylist(), literal)


@settings(max_examples=examples(100), deadline=None)
@given(
    value=st.integers(-(2**63), 2**63 - 1),
    steps=st.integers(-2, 2),
    offset=st.integers(-3, 3),
)
def test_large_integers_compare_with_floats_as_doubles(value: int, steps: int, offset: int) -> None:
    """As SQL casts the column: several BIGINTs may equal one DOUBLE."""
    number = float(value)
    for _ in range(abs(steps)):
        number = math.nextafter(number, math.inf if steps > 0 else -math.inf)
    values = [v for v in {value, value + offset, int(number), int(number) + offset} if -(2**63) <= v < 2**63]
    assert answers(pa.array(values, pa.int64()), number) == expected(values, number)


@settings(max_examples=examples(100), deadline=None)
@given(unscaled=st.integers(-(10**20), 10**20), steps=st.integers(-1, 1), offset=st.integers(-3, 3))
def test_long_decimals_compare_with_floats_as_doubles(unscaled: int, steps: int, offset: int) -> None:
    values = [Decimal(unscaled + step).scaleb(-15) for step in (0, offset)]
    number = float(values[0])
    number = math.nextafter(number, number + steps) if steps else number
    assert answers(pa.array(values, pa.decimal128(25, 15)), number) == expected(values, number)


def test_dates_and_time_stamps() -> None:
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    for literal in (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12), datetime.datetime(2024, 1, 3)):
        assert answers(pa.array(days), literal) == expected(days, literal)
    moments = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 1)]
    for day in days:
        assert answers(pa.array(moments), day) == expected(moments, day)
        assert answers(pa.array(moments, pa.timestamp("us", "UTC")), day) == expected(moments, day)
    assert answers(pa.array(days), datetime.datetime(9999, 12, 31, 12))["<"] == [0, 1]
    # The last literal day is not the last day of a column: 2932896 is 9999-12-31.
    beyond = pa.array([2932896, 2932897], pa.int32()).cast(pa.date32())
    assert answers(beyond, datetime.datetime(9999, 12, 31, 12))[">"] == [1]


def test_what_no_value_can_be_is_pruned_without_statistics() -> None:
    schema = pa.schema([("c", pa.int8())])
    assert not (col("c") > 300).bind(schema).may_match({}, 10)
    assert not (col("c") == 1.5).bind(schema).may_match({}, 10)
    assert not col("c").is_in([1.5, 300]).bind(schema).may_match({}, 10)
    assert (col("c") < 300).bind(schema).may_match({}, 10)


def test_in_lists_keep_what_can_match() -> None:
    column = pa.array([1, 2, None, 2**53 + 1], pa.int64())
    table = pa.table({"c": column})
    kept = table.filter(col("c").is_in([1.5, 2, 2.0**53]).bind(table.schema).to_arrow())
    assert kept["c"].to_pylist() == [2, 2**53 + 1]


def test_places() -> None:
    def at(value: int) -> Literal:
        return Literal(value, pa.int8())

    assert locate(5, pa.int8()) == Equal(at(5), at(5))
    assert locate(5.5, pa.int8()) == Between(at(5))
    assert locate(-129, pa.int8()) == Between(None)
    assert locate(128, pa.int8()) == Between(at(127), is_above_all=True)
    with pytest.raises(ValueError, match="write a number"):
        locate("5", pa.int8())
    with pytest.raises(ValueError, match="only be compared with NULL"):
        locate(5, pa.list_(pa.int8()))


@pytest.mark.parametrize(
    ("text", "nanos", "has_zone"),
    [
        ("1970-01-02", 86_400 * 10**9, None),
        ("1970-01-01 00:00:01", 10**9, None),
        ("1970-01-01T00:01", 60 * 10**9, None),
        (" 1970-01-01 00:00:00.000000001 ", 1, None),
        ("1970-01-01 01:00:00+01:00", 0, True),
        ("1970-01-01 00:00:00.5 Z", 5 * 10**8, True),
        ("1969-12-31 23:59:59.75UTC", -25 * 10**7, True),
    ],
)
def test_time_stamp_texts(text: str, nanos: int, has_zone: bool | None) -> None:
    found = timestamp_value(text)
    assert (found.nanos, found.has_zone) == (nanos, has_zone)
    assert locate(found, pa.timestamp("ns", "UTC")) == locate(text, pa.timestamp("ns", "UTC"))
