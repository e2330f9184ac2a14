"""Partition folders: every cell of the table in FORMAT.md §1.2, and what several columns make together."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.partition_path import check_partition_types, partition_path, partition_text
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import parse_data_type

MICROS = 1_700_000_000_123_456
DAY = datetime.date(2023, 11, 14)

# (type, value, text with legacy names, text without)
TEXTS: list[tuple[str, Any, str, str]] = [
    ("BOOLEAN", True, "true", "true"),
    ("BOOLEAN", False, "false", "false"),
    ("TINYINT", -5, "-5", "-5"),
    ("BIGINT", 10**12, "1000000000000", "1000000000000"),
    ("FLOAT", 1.5, "1.5", "1.5"),
    ("FLOAT", 0.1, "0.1", "0.1"),
    ("DOUBLE", 0.001, "0.001", "0.001"),
    ("DOUBLE", 0.00099, "9.9E-4", "9.9E-4"),
    ("DOUBLE", 9999999.0, "9999999.0", "9999999.0"),
    ("DOUBLE", 1.0e7, "1.0E7", "1.0E7"),
    ("DOUBLE", 1.1e-5, "1.1E-5", "1.1E-5"),
    ("DOUBLE", -0.0, "-0.0", "-0.0"),
    ("DOUBLE", float("nan"), "NaN", "NaN"),
    ("DOUBLE", float("inf"), "Infinity", "Infinity"),
    ("DOUBLE", float("-inf"), "-Infinity", "-Infinity"),
    ("DECIMAL(10, 2)", Decimal("1.50"), "1.50", "1.50"),
    ("DECIMAL(10, 8)", Decimal("0E-8"), "0.00000000", "0.00000000"),
    ("DATE", DAY, "19675", "2023-11-14"),
    ("TIME(3)", 3661123, "3661123", "01:01:01.123"),
    ("TIME(3)", 0, "0", "00:00:00.0"),
    ("TIME(0)", 3661123, "3661123", "01:01:01"),
    ("TIME(2)", 3661120, "3661120", "01:01:01.12"),
    ("TIMESTAMP(6)", MICROS, "2023-11-14T22:13:20.123456", "2023-11-14 22:13:20.123456"),
    ("TIMESTAMP(3)", 1_700_000_000_000, "2023-11-14T22:13:20", "2023-11-14 22:13:20.000"),
    ("TIMESTAMP(0)", 1_699_999_980, "2023-11-14T22:13", "2023-11-14 22:13:00"),
    ("TIMESTAMP(9)", -1, "1969-12-31T23:59:59.999999999", "1969-12-31 23:59:59.999999999"),
    ("STRING", "a b", "a b", "a b"),
    ("CHAR(5)", "ab", "ab", "ab"),
]


@pytest.mark.parametrize(("text", "value", "legacy", "modern"), TEXTS)
def test_text_of_a_value(text: str, value: Any, legacy: str, modern: str) -> None:
    data_type = parse_data_type(text)
    assert partition_text(value, data_type) == legacy
    assert partition_text(value, data_type, legacy=False) == modern


@pytest.mark.parametrize("blank", [None, "", " ", "\t\n\v\f\r\x1c\x1d\x1e\x1f", "\u2003", "\u3000", "\u2028", "\u2029"])
def test_null_and_blank_share_the_default_folder(blank: str | None) -> None:
    assert partition_text(blank, parse_data_type("STRING")) == "__DEFAULT_PARTITION__"
    assert partition_text(blank, parse_data_type("STRING"), "_none_") == "_none_"


@pytest.mark.parametrize("char", ["\x85", "\xa0", "\u2007", "\u202f", "\u200b", "\ufeff"])
def test_what_is_no_blank_here_although_it_looks_so(char: str) -> None:
    assert partition_text(char, parse_data_type("STRING")) == char


def test_local_time_zone_timestamps_are_utc_with_legacy_names_and_refused_without() -> None:
    data_type = parse_data_type("TIMESTAMP(3) WITH LOCAL TIME ZONE")
    assert partition_text(1_700_000_000_123, data_type) == "2023-11-14T22:13:20.123"
    with pytest.raises(UnsupportedFeatureError, match=r"time zone.*legacy-name=true"):
        partition_text(1_700_000_000_123, data_type, legacy=False)
    check_partition_types(["p"], [data_type], legacy=True)
    with pytest.raises(UnsupportedFeatureError, match="partition column p"):
        check_partition_types(["p"], [data_type], legacy=False)


def test_the_path_of_several_columns_is_escaped_part_by_part() -> None:
    types = (parse_data_type("STRING"), parse_data_type("INT"), parse_data_type("TIMESTAMP(0)"))
    row = encode_row(["a/b=c", None, 1_699_999_980], types)
    assert partition_path(row, ("dt", "h:m", "ts"), types) == (
        "dt=a%2Fb%3Dc/h%3Am=__DEFAULT_PARTITION__/ts=2023-11-14T22%3A13"
    )


def test_an_unpartitioned_table_has_an_empty_path() -> None:
    assert partition_path(EMPTY_ROW, (), ()) == ""
