"""Which partitions expire: by their values, by their files, in which order, and which are never judged."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from freshet.storage.cleaning.partition_expiry import Partition, PartitionRule, batches, newest_files, partition_rule
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.sql_type import parse_sql_type
from freshet.storage.options.core import CoreOptions

DAY_MS = 86_400_000


def at(text: str) -> int:
    """Milliseconds of a moment of the wall clock."""
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp() * 1000)


def rule(columns: dict[str, str], **options: str) -> PartitionRule:
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    core = CoreOptions.parse(given, has_primary_key=False)
    return partition_rule(tuple(columns), tuple(map(parse_sql_type, columns.values())), core)


def expires(columns: dict[str, str], values: tuple[Any, ...], before: str, **options: str) -> bool | None:
    """None where the time of the partition is not known."""
    choice = rule(columns, **options).choose([Partition(b"p", values, 0)], at(before), 100)
    return None if choice.unclear else bool(choice.expired)


@pytest.mark.parametrize(
    ("columns", "values", "options", "time"),
    [
        ({"dt": "STRING"}, ("2023-01-01",), {}, "2023-01-01T00:00:00"),
        ({"dt": "STRING", "other": "INT"}, ("2023-01-01 10:00:00", 7), {}, "2023-01-01T10:00:00"),
        ({"dt": "STRING"}, ("20230101",), {"partition__timestamp_formatter": "yyyyMMdd"}, "2023-01-01T00:00:00"),
        ({"dt": "INT"}, (20230101,), {"partition__timestamp_formatter": "yyyyMMdd"}, "2023-01-01T00:00:00"),
        ({"dt": "DATE"}, (datetime.date(2023, 1, 1),), {}, "2023-01-01T00:00:00"),
        ({"dt": "DATE"}, (datetime.date(2023, 1, 1),), {"partition__timestamp_formatter": "yyyyMMdd"}, "2023-01-01"),
        ({"ts": "TIMESTAMP(3)"}, (at("2023-01-01T10:00:00"),), {}, "2023-01-01T10:00:00"),
        ({"ts": "TIMESTAMP(6)"}, (at("2023-01-01T10:00:00") * 1000,), {}, "2023-01-01T10:00:00"),
        (
            {"year": "STRING", "month": "STRING", "day": "STRING"},
            ("2023", "1", "01"),
            {"partition__timestamp_pattern": "$year-$month-$day 00:00:00"},
            "2023-01-01T00:00:00",
        ),
        (
            {"year": "INT", "month": "INT", "day": "INT", "hour": "INT"},
            (2023, 1, 1, 5),
            {"partition__timestamp_pattern": "$year-$month-$day $hour:00:00"},
            "2023-01-01T05:00:00",
        ),
        (
            {"other": "STRING", "dt": "STRING"},
            ("x", "2023-01-01"),
            {"partition__timestamp_pattern": "$dt"},
            "2023-01-01",
        ),
        (
            {"dt": "DATE", "hour": "INT"},
            (datetime.date(2023, 1, 1), 5),
            {"partition__timestamp_pattern": "$dt $hour:00:00"},
            "2023-01-01T05:00:00",
        ),
    ],
)
def test_the_time_of_values(
    columns: dict[str, str], values: tuple[Any, ...], options: dict[str, str], time: str
) -> None:
    later = (datetime.datetime.fromisoformat(time) + datetime.timedelta(milliseconds=1)).isoformat()
    assert expires(columns, values, time, **options) is False, "not before it is older"
    assert expires(columns, values, later, **options) is True


@pytest.mark.parametrize(
    ("columns", "values", "options"),
    [
        ({"dt": "STRING"}, (None,), {}),
        ({"dt": "DATE"}, (None,), {}),
        ({"dt": "STRING"}, ("unknown",), {}),
        ({"dt": "STRING"}, (" ",), {}),
        ({"dt": "INT"}, (20230101,), {}),
        ({"dt": "STRING"}, ("2023-01-01",), {"partition__timestamp_formatter": "yyyyMMdd"}),
        ({"dt": "STRING", "x": "STRING"}, ("2023-01-01", None), {"partition__timestamp_pattern": "$dt"}),
        ({"d": "STRING", "dt": "STRING"}, ("x", "2023-01-01"), {"partition__timestamp_pattern": "$dt"}),
        ({"dt": "STRING"}, ("2023-01-01",), {"partition__timestamp_pattern": "$DT"}),
    ],
)
def test_values_that_say_no_time_stay(
    columns: dict[str, str], values: tuple[Any, ...], options: dict[str, str]
) -> None:
    assert expires(columns, values, "2100-01-01", **options) is None


def test_a_null_that_is_not_asked_for_does_not_matter() -> None:
    assert expires({"dt": "STRING", "x": "STRING"}, ("2023-01-01", None), "2100-01-01") is True


def test_update_time_is_that_of_the_newest_file() -> None:
    by_files = rule({"dt": "STRING"}, partition__expiration_strategy="update-time")
    times = {b"a": at("2023-01-01"), b"b": at("2023-01-02"), b"c": None}
    partitions = [Partition(row, ("no time",), time_ms) for row, time_ms in times.items()]
    choice = by_files.choose(partitions, at("2023-01-02"), 100)
    assert [each.row for each in choice.expired] == [b"a"]
    assert [each.row for each in choice.unclear] == [b"c"]
    assert newest_files([(b"a", 1), (b"a", 3), (b"a", 2), (b"b", None), (b"b", 1)]) == {b"a": 3, b"b": None}


def test_the_first_in_the_order_of_their_texts_expire_first() -> None:
    days = rule({"dt": "STRING", "n": "INT"})
    values = [("2023-01-02", 1), ("2023-01-01", 10), ("2023-01-01", 2), ("2022-12-31", None)]
    partitions = [Partition(str(number).encode(), each, 0) for number, each in enumerate(values)]
    choice = days.choose(partitions, at("2024-01-01"), 3)
    assert [days.text_of(each) for each in choice.expired] == [
        "2022-12-31,__DEFAULT_PARTITION__",
        "2023-01-01,10",
        "2023-01-01,2",
    ]
    assert [len(each) for each in batches(choice.expired, 2)] == [2, 1]
    assert [len(each) for each in batches(choice.expired, None)] == [3]


@pytest.mark.parametrize(
    "options",
    [{"partition__expiration_strategy": "custom"}, {"partition__timestamp_formatter": "EEE"}],
)
def test_what_is_not_known_here(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match=r"option partition\."):
        rule({"dt": "STRING"}, **options)
