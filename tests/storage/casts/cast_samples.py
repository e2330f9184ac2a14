"""Values of each type that distinguish casts: limits, signs, fractions, odd text."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import ScalarType, TypeRoot, parse_data_type

_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 1e7, 9999999.0, 123456.789, 1e-3, 9.99e-4, 1e10, 3.7e9, -3e9, 1e19, -1e30]
_FLOATS += [math.inf, -math.inf, math.nan, 1.25e-5, 299.9, -129.4, 65536.5]
_DATES = [datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(1, 1, 1)]
_DATES += [datetime.date(9999, 12, 31)]
_MICROS = [0, 1, 123_456, 1_700_000_000_123_456, 1_700_000_000_100_000, 1_700_000_000_000_000, 86_399_999_999]


def samples(text: str) -> pa.Array[Any]:
    """Sample values of a type, a NULL among them."""
    data_type = parse_data_type(text)
    assert isinstance(data_type, ScalarType)
    return pa.array([*_values(data_type), None], arrow_type(data_type))


def _values(of: ScalarType) -> list[Any]:
    match of.root:
        case TypeRoot.BOOLEAN:
            return [True, False]
        case TypeRoot.TINYINT | TypeRoot.SMALLINT | TypeRoot.INT | TypeRoot.BIGINT:
            bits = arrow_type(of).bit_width
            near = [0, 1, -1, 42, -100, 127, 128, 300, -32769, 70_000, 2_200_000_000, -(10**15), 2**53 + 1]
            limits = [2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
            return [value for value in near if limits[1] <= value <= limits[0]] + limits
        case TypeRoot.FLOAT:
            return [*_FLOATS, 3.4028234663852886e38, 1.401298464324817e-45]
        case TypeRoot.DOUBLE:
            return [*_FLOATS, 1.7976931348623157e308, 5e-324, 0.30000000000000004, 1e21, 123456789012345680.0]
        case TypeRoot.DECIMAL:
            return _decimals(of)
        case TypeRoot.DATE:
            return list(_DATES)
        case TypeRoot.TIME:
            return [0, 1, 1000, 45_296_000, 45_296_120, 45_296_123, 45_296_005, 86_399_999]
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return [_ticks(micros, of.precision or 0) for micros in _MICROS]
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return [b"abc", b"", "é日本".encode(), b"a longer value of bytes"][: 4 if (of.length or 0) > 20 else 1]
        case _:
            return ["abc", "", "é日本語です", "a longer text than most"]


def _decimals(of: ScalarType) -> list[Decimal]:
    scale, whole = of.scale or 0, (of.precision or 0) - (of.scale or 0)
    unit = Decimal(1).scaleb(-scale)
    values = [Decimal(0), unit, -unit, Decimal(10) ** whole - unit, unit - Decimal(10) ** whole, 5 * unit, -15 * unit]
    values += [Decimal("1.5"), Decimal("-2.5"), Decimal("0.05"), Decimal("12.345"), Decimal("300.7")]
    return [value for value in values if abs(value) < Decimal(10) ** whole and value == value.quantize(unit)]


def _ticks(micros: int, precision: int) -> int:
    cut = micros // 10 ** max(0, 6 - precision) * 10 ** max(0, 6 - precision)
    return {0: cut // 1_000_000, 1: cut // 1000, 2: cut // 1000, 3: cut // 1000, 4: cut, 5: cut, 6: cut}.get(
        precision, cut * 1000 + (789 if precision == 9 else 700)
    )


NUMBER_TEXTS = ["0", "1", "-1", "+7", "127", "128", "-32769", "1.9", "-1.9", "70000", "2147483648", "1e3", "12.345"]
NUMBER_TEXTS += ["9223372036854775807", "9223372036854775808", "", " 5", "5 ", "abc", "+", "-", ".", "5.", ".5", "1.5f"]
NUMBER_TEXTS += ["NaN", "Infinity", "-0.0", "1E-7", "123456789012345678901234567890.5", "0.000000000000000000000000005"]
BOOLEAN_TEXTS = ["t", "TRUE", "y", "Yes", "1", "f", "False", "n", "NO", "0", "on", "", "2"]
DATE_TEXTS = ["2024-02-29", "1969-12-31", "2024-1-5", "2024-02-30", "2024", "19000", "2024-03", "2024-01-02 11:12:13"]
DATE_TEXTS += ["", "abc", "9999-12-31", " 2024-01-02", "2024-01-02T00:00:00", "0001-01-01", "2024-06-31"]
TIME_TEXTS = ["12:34:56", "12:34:56.789", "12:34:56.7891", "1:2:3", "12:34", "12", "3600000", "", "x", "12:34:56.5"]
TIME_TEXTS += ["12:34:56.78950", "23:59:59.999"]
TIMESTAMP_TEXTS = ["2024-02-29 12:34:56.123456789", "2024-02-29 12:34:56", "2024-02-29", "1969-12-31 23:59:59.5"]
TIMESTAMP_TEXTS += ["2024-1-5 1:2:3", "2024-1-5 1:2:3.12", "1700000000", "", "abc", "2024-02-30 00:00:00"]
TIMESTAMP_TEXTS += ["2024-02-29T12:34:56", "2024-02-29 24:00:00", "0001-01-01 00:00:00", "2024-02-29 12:34"]
