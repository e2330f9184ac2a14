"""Texts of partitions as times: with Java's patterns, and without one."""

from __future__ import annotations

import datetime

import pytest

from freshet.storage.codec.time_format import DAY_NS, lenient_time, time_format


def ns(text: str, *, days: int = 0, nanos: int = 0) -> int:
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return since // datetime.timedelta(microseconds=1) * 1000 + days * DAY_NS + nanos


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-01-01 20:08:08", ns("2023-01-01T20:08:08")),
        ("2023-1-1 20:08:08", ns("2023-01-01T20:08:08")),
        ("2023-01-01", ns("2023-01-01")),
        ("2023-1-1", ns("2023-01-01")),
        ("2023-1-1 1:2:3", ns("2023-01-01T01:02:03")),
        ("2023-01-01 20:08:08.5", ns("2023-01-01T20:08:08.500")),
        ("2023-01-01 20:08:08.123456789", ns("2023-01-01T20:08:08.123456", nanos=789)),
        ("2023-02-31", ns("2023-03-03")),
        ("2023-13-01", ns("2024-01-01")),
        ("2023-00-10", ns("2022-12-10")),
        ("2023-01-00", ns("2022-12-31")),
        ("2023-01-01 25:61:61", ns("2023-01-02T02:02:01")),
        ("1969-12-31", -DAY_NS),
        ("0001-01-01", ns("0001-01-01")),
        ("2000-02-29", ns("2000-02-29")),
        ("10000-01-01", ns("9999-12-31", days=1)),
        ("-1-12-31", ns("0001-01-01", days=-367)),
        ("999999999-12-31", 365_241_780_471 * DAY_NS),
        ("1000000000-01-01", None),
        ("20230101", None),
        ("2023-01", None),
        ("2023-01-01 20:08", None),
        ("2023-01-01T20:08:08", None),
        ("2023-01-01 ", None),
        ("2023-01-01\n", None),
        (" 2023-01-01", None),
        ("+2023-01-01", None),
        ("٢٠٢٣-01-01", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_without_a_format(text: str, expected: int | None) -> None:
    assert lenient_time(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyyMMdd", "20230101", ns("2023-01-01")),
        ("yyyyMMdd", "unknown", None),
        ("yyyyMMdd", "2023-01-01", None),
        ("yyyyMMdd", "202301011", None),
        ("uuuu-MM-dd", "2023-01-01", ns("2023-01-01")),
        ("yyyyMMddHH", "2023010120", ns("2023-01-01T20:00:00")),
        ("yyyyMMddHHmmss", "20230101200809", ns("2023-01-01T20:08:09")),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2023-01-01 20:08:09.050", ns("2023-01-01T20:08:09.050")),
        ("yyyy-MM-dd'T'HH:mm", "2023-01-01T20:08", ns("2023-01-01T20:08:00")),
        ("yyyy/M/d", "2023/1/31", ns("2023-01-31")),
        ("yyyy/M/d", "2023/11/1", ns("2023-11-01")),
        ("yyMMdd", "230101", ns("2023-01-01")),
        ("yyyy-MM-dd[ HH:mm]", "2023-01-01", ns("2023-01-01")),
        ("yyyy-MM-dd[ HH:mm]", "2023-01-01 20:08", ns("2023-01-01T20:08:00")),
        ("yyyy-MM-dd", "2023-02-31", ns("2023-02-28")),
        ("yyyy-MM-dd", "2024-02-30", ns("2024-02-29")),
        ("yyyy-MM-dd", "2023-04-31", ns("2023-04-30")),
        ("yyyy-MM-dd", "2023-02-32", None),
        ("yyyy-MM-dd", "2023-13-01", None),
        ("yyyy-MM-dd", "0000-01-01", None),
        ("yyyy-MM-dd HH:mm", "2023-01-01 24:00", ns("2023-01-02")),
        ("yyyy-MM-dd HH:mm", "2023-01-01 24:01", None),
        ("yyyy-MM-dd HH:mm", "2023-01-01 23:60", None),
        ("yyyyMM", "202301", None),
        ("HH:mm", "20:08", None),
        ("yyyy-MM-dd mm", "2023-01-01 30", ns("2023-01-01")),
        ("'d'yyyyMMdd", "d20230101", ns("2023-01-01")),
        ("yyyy''MMdd", "2023'0101", ns("2023-01-01")),
        ("yyyy.MM.dd", "2023x01x01", None),
        ("yyyyMMdd yyyy", "20230101 2023", ns("2023-01-01")),
        ("yyyyMMdd yyyy", "20230101 2024", None),
    ],
)
def test_with_a_pattern(pattern: str, text: str, expected: int | None) -> None:
    assert time_format(pattern).parse(text) == expected


@pytest.mark.parametrize("pattern", ["yyyy-MMM-dd", "EEE", "yyyy-MM-dd z", "hh a", "yyyy'", "]", "yyyy{", "SSSSSSSSSS"])
def test_patterns_that_are_not_understood(pattern: str) -> None:
    with pytest.raises(ValueError, match="has"):
        time_format(pattern)
