"""Casts of columns whose type has changed; the expected values are what Apache Paimon 2.0.0 gives."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.casts.casts import can_cast, cast_scalar
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ArrayType, DataField, MapType, RowType, ScalarType, parse_data_type


def cast(source: str, target: str, *values: Any) -> list[Any]:
    """Casts values and a NULL; temporal results come as ticks."""
    from_type, to_type = parse_data_type(source), parse_data_type(target)
    array = pa.array([*values, None], arrow_type(from_type))
    caster = cast_scalar(from_type, to_type)
    result = array if caster is None else caster(array)
    assert result.type == arrow_type(to_type)
    if pa.types.is_temporal(result.type):
        result = result.cast(pa.int32() if result.type.bit_width == 32 else pa.int64())
    *converted, null = result.to_pylist()
    assert null is None
    return list(converted)


D = Decimal
SECOND = 1_000_000
DAY = 86_400 * SECOND

CASES: list[tuple[str, str, dict[Any, Any]]] = [
    ("BIGINT", "INT", {1: 1, 2**32 + 7: 7, 2**31: -(2**31), -1: -1}),
    ("INT", "TINYINT", {127: 127, 128: -128, 300: 44, -129: 127}),
    ("DOUBLE", "INT", {1.9: 1, -1.9: -1, 3e9: 2**31 - 1, -3e9: -(2**31), math.nan: 0, math.inf: 2**31 - 1}),
    ("DOUBLE", "TINYINT", {299.9: 43, -129.4: 127, 3e9: -1}),
    ("DOUBLE", "BIGINT", {1e19: 2**63 - 1, -1e30: -(2**63), 9007199254740993.0: 9007199254740992}),
    ("DOUBLE", "FLOAT", {0.1: 0.10000000149011612, 1e300: math.inf}),
    ("BIGINT", "DOUBLE", {2**53 + 1: 9007199254740992.0}),
    ("BOOLEAN", "INT", {True: 1, False: 0}),
    ("BOOLEAN", "DECIMAL(3, 1)", {True: D("1.0")}),
    ("SMALLINT", "BOOLEAN", {0: False, 5: True, -1: True}),
    ("INT", "DECIMAL(4, 2)", {99: D("99.00"), 100: None, -100: None}),
    (
        "DOUBLE",
        "DECIMAL(5, 2)",
        {0.125: D("0.13"), -0.125: D("-0.13"), 999.994: D("999.99"), 999.995: None, 1e300: None},
    ),
    ("DOUBLE", "DECIMAL(38, 20)", {0.1: D("0.10000000000000000000"), 5e-324: D(0)}),
    ("DECIMAL(5, 2)", "DECIMAL(4, 1)", {D("1.25"): D("1.3"), D("-1.25"): D("-1.3"), D("1.24"): D("1.2")}),
    ("DECIMAL(5, 2)", "DECIMAL(3, 1)", {D("99.94"): D("99.9"), D("99.95"): None, D("100.00"): None}),
    ("DECIMAL(38, 0)", "DECIMAL(38, 10)", {D(10**28 - 1): D(10**28 - 1), D(10**28): None}),
    ("DECIMAL(38, 38)", "DECIMAL(38, 0)", {D("0.5"): D(1), D("-0.4"): D(0)}),
    ("DECIMAL(10, 2)", "INT", {D("12.99"): 12, D("-12.99"): -12}),
    ("DECIMAL(38, 2)", "TINYINT", {D("300.70"): 44, D(2**70): 0}),
    ("DECIMAL(10, 2)", "DOUBLE", {D("0.10"): 0.1}),
    ("DECIMAL(38, 10)", "FLOAT", {D("0.1000000000"): 0.10000000149011612}),
    ("INT", "TIMESTAMP(3)", {5: 5000, -1: -1000}),
    ("BIGINT", "TIMESTAMP(6) WITH LOCAL TIME ZONE", {5: 5 * SECOND}),
    ("TIMESTAMP(3)", "BIGINT", {5999: 5, -1500: -1}),
    ("DATE", "TIMESTAMP(6)", {datetime.date(1970, 1, 2): DAY, datetime.date(1969, 12, 31): -DAY}),
    ("TIME(3)", "TIMESTAMP(3)", {datetime.time(0, 0, 1): 1000}),
    ("TIMESTAMP(6)", "DATE", {DAY + 1: 1, -1: -1}),
    ("TIMESTAMP(6)", "TIME(3)", {DAY + 1_999: 1, -1: 86_399_999}),
    ("TIMESTAMP(9)", "TIMESTAMP(3)", {1_999_999: 1, -1: -1}),
    ("TIMESTAMP(6)", "TIMESTAMP(4)", {199: 100, -1: -100}),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", {1: 1000}),
    ("TIMESTAMP(3)", "TIMESTAMP(2)", {19: 10}),
    ("TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", {1: 1}),
    ("VARBINARY(5)", "BINARY(3)", {b"abcd": b"abc", b"a": b"a\0\0"}),
    ("BYTES", "VARBINARY(2)", {b"abcd": b"ab", b"a": b"a"}),
    # to text
    ("DOUBLE", "STRING", {1.0: "1.0", 1e7: "1.0E7", 9999999.0: "9999999.0", 1e-3: "0.001", 9.99e-4: "9.99E-4"}),
    ("DOUBLE", "STRING", {math.nan: "NaN", -math.inf: "-Infinity", -0.0: "-0.0", 123456.789: "123456.789"}),
    ("FLOAT", "STRING", {0.1: "0.1", 1e10: "1.0E10"}),
    ("DECIMAL(10, 7)", "STRING", {D("0.0000001"): "0.0000001", D("-1.5"): "-1.5000000"}),
    ("BOOLEAN", "STRING", {True: "true", False: "false"}),
    ("BIGINT", "VARCHAR(2)", {12345: "12"}),
    ("INT", "CHAR(4)", {7: "7   ", 12345: "1234"}),
    ("STRING", "VARCHAR(2)", {"é日本": "é日", "a": "a"}),
    ("STRING", "CHAR(2)", {"é日本": "é日", "a": "a "}),
    ("BYTES", "STRING", {"é".encode(): "é", b"\xff": "�"}),
    ("DATE", "STRING", {datetime.date(1, 1, 1): "0001-01-01"}),
    ("TIME(3)", "STRING", {datetime.time(12, 34, 56, 120_000): "12:34:56.12", datetime.time(0): "00:00:00.0"}),
    ("TIME(0)", "STRING", {datetime.time(1, 2, 3): "01:02:03"}),
    ("TIMESTAMP(0)", "STRING", {0: "1970-01-01 00:00:00"}),
    ("TIMESTAMP(2)", "STRING", {120: "1970-01-01 00:00:00.12"}),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "STRING", {-1: "1969-12-31 23:59:59.999999"}),
    # from text
    ("STRING", "BOOLEAN", {"T": True, "yes": True, "1": True, "n": False, "FALSE": False}),
    ("STRING", "INT", {"+7": 7, "-1.9": -1, ".": 0, "5.": 5, "2147483647": 2**31 - 1}),
    ("STRING", "DOUBLE", {" 1.5 ": 1.5, "1.5f": 1.5, "-Infinity": -math.inf, "1e3": 1000.0}),
    ("STRING", "DECIMAL(5, 2)", {"1.005": D("1.01"), "1e2": D("100.00"), "1000": None, "0." + "0" * 90 + "1": D(0)}),
    ("STRING", "DECIMAL(14, 4)", {"1e99999999": None, "0e99999999": D(0), "1e-99999999": D(0), "1e-9999999": D(0)}),
    ("STRING", "DECIMAL(14, 4)", {"9" * 5000: None, "5." + "0" * 5000: D(5), "1" + "0" * 5000 + "e-5000": D(1)}),
    ("STRING", "DATE", {"2024-02-29": 19782, "2024-2-9": 19762, "2024-02": 19754, "12": 12}),
    ("STRING", "TIME(3)", {"12:34:56.789": 45_296_789, "1:2": 3_720_000, "12:34:56.7895": 45_296_790}),
    ("STRING", "TIMESTAMP(3)", {"1970-01-02 00:00:00.1239": 86_400_123, "1970-1-2": 86_400_000, "17": 17}),
    ("STRING", "TIMESTAMP(6)", {"2023-02-30 00:00:00": 1_677_542_400 * SECOND, "1970-01-01 24:00:00": DAY}),
    ("STRING", "BINARY(2)", {"abc": b"ab", "a": b"a\0"}),
]


@pytest.mark.parametrize(
    ("source", "target", "values"), CASES, ids=[f"{s} to {t} {i}" for i, (s, t, _) in enumerate(CASES)]
)
def test_values(source: str, target: str, values: dict[Any, Any]) -> None:
    assert cast(source, target, *values) == list(values.values())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("BOOLEAN", "on"),
        ("INT", "2147483648"),
        ("INT", "+"),
        ("INT", ""),
        ("INT", "1e3"),
        ("TINYINT", "128"),
        ("DOUBLE", "x"),
        ("DECIMAL(5, 2)", " 5"),
        ("DECIMAL(5, 2)", "NaN"),
        ("DECIMAL(5, 2)", "1e" + "9" * 30),
        ("INT", "9" * 5000),
        ("DATE", "9" * 5000),
        ("TIME(3)", "9" * 5000),
        ("TIMESTAMP(3)", "9" * 5000),
        ("DATE", "2024-02-30"),
        ("DATE", ""),
        ("TIME(3)", "x"),
        ("TIMESTAMP(3)", "2024-02-29T12:34:56"),
        ("TIMESTAMP(2)", "17"),
    ],
)
def test_text_that_does_not_read_is_never_null(target: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="does not read as"):
        cast("STRING", target, text)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("INT", "BIGINT"),
        ("TINYINT", "INT"),
        ("VARCHAR(3)", "STRING"),
        ("BINARY(3)", "BYTES"),
        ("CHAR(3)", "VARCHAR(3)"),
    ],
)
def test_widening_keeps_values(source: str, target: str) -> None:
    assert can_cast(parse_data_type(source), parse_data_type(target), explicit=False) or source.startswith("BINARY")
    if arrow_type(parse_data_type(source)) == arrow_type(parse_data_type(target)):
        assert cast_scalar(parse_data_type(source), parse_data_type(target)) is None


@pytest.mark.parametrize(
    ("source", "target", "implicit", "explicit"),
    [
        ("INT", "BIGINT", True, True),
        ("BIGINT", "INT", False, True),
        ("INT", "DECIMAL(3, 0)", True, True),
        ("DECIMAL(3, 0)", "FLOAT", True, True),
        ("DOUBLE", "FLOAT", False, True),
        ("INT", "STRING", False, True),
        ("STRING", "INT", False, True),
        ("TIMESTAMP(6)", "DATE", True, True),
        ("TIMESTAMP(6)", "INT", False, True),
        ("TIMESTAMP(6)", "SMALLINT", False, False),
        ("DOUBLE", "BOOLEAN", False, False),
        ("DATE", "INT", False, False),
        ("DATE", "VARCHAR(10)", False, False),
        ("TIME(0)", "TIME(3)", False, False),
        ("INT", "BYTES", False, False),
        ("INT", "INT NOT NULL", False, True),
        ("INT NOT NULL", "INT", True, True),
    ],
)
def test_which_casts_there_are(source: str, target: str, implicit: bool, explicit: bool) -> None:
    pair = parse_data_type(source), parse_data_type(target)
    assert (can_cast(*pair, explicit=False), can_cast(*pair, explicit=True)) == (implicit, explicit)


def test_a_pair_without_a_cast_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError):
        cast_scalar(parse_data_type("DATE"), parse_data_type("INT"))


def test_nested_values_as_text() -> None:
    text = ScalarType(parse_data_type("STRING").root, length=2147483647)
    row = RowType((DataField(1, "a", parse_data_type("DOUBLE")), DataField(2, "b", parse_data_type("STRING"))))
    lists = pa.array([None, [1, None], [], [3]], pa.list_(pa.int32()))
    caster = cast_scalar(ArrayType(parse_data_type("INT")), text)
    assert caster is not None
    assert caster(lists).to_pylist() == [None, "[1, null]", "[]", "[3]"]
    assert caster(lists.slice(1)).to_pylist() == ["[1, null]", "[]", "[3]"]
    caster = cast_scalar(row, text)
    assert caster is not None
    structs = pa.array([{"a": 1.0, "b": None}, None], arrow_type(row))
    assert caster(structs).to_pylist() == ["{1.0, null}", None]
    of_maps = MapType(parse_data_type("STRING NOT NULL"), parse_data_type("INT"))
    caster = cast_scalar(of_maps, text)
    assert caster is not None
    maps = pa.array([[("a", 1), ("b", None)], [], None], arrow_type(of_maps))
    assert caster(maps).to_pylist() == ["{a -> 1, b -> null}", "{}", None]
