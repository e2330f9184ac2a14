"""Options that choose a snapshot or changes."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from freshet.pipeline.config.frame_options import (
    ChangesBetween,
    Travel,
    between_of,
    check_travel,
    stream_options,
    travel_of,
)
from freshet.pipeline.exceptions import InvalidRequestError

TAGS = {"eom", "3", "t,1"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, Travel()),
        ({"scan.snapshot-id": "7"}, Travel(snapshot_id=7)),
        ({"scan.tag-name": "eom"}, Travel(tag="eom")),
        ({"scan.timestamp-millis": "-5"}, Travel(timestamp_ms=-5)),
        ({"scan.timestamp": "1970-01-01 00:00:01.500Z"}, Travel(timestamp_ms=1500)),
        ({"scan.timestamp": "1969-12-31T23:59:59+00:00"}, Travel(timestamp_ms=-1000)),
        ({"scan.timestamp": "1764230400000"}, Travel(timestamp_ms=1764230400000)),
        ({"scan.version": "3"}, Travel(tag="3")),
        ({"scan.version": "4"}, Travel(snapshot_id=4)),
    ],
)
def test_snapshots(options: dict[str, str], wanted: Travel) -> None:
    check_travel(options)
    assert travel_of(options, lambda: TAGS) == wanted
    assert between_of(options, lambda: TAGS) is None


def test_a_time_without_a_zone_is_local() -> None:
    wanted = round(time.mktime((2026, 11, 27, 8, 0, 0, 0, 0, -1)) * 1000)
    assert travel_of({"scan.timestamp": "2026-11-27 08:00:00"}, set).timestamp_ms == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"incremental-between": "3,7"}, ChangesBetween(3, 7, "auto")),
        ({"incremental-between": " eom , 3 "}, ChangesBetween("eom", "3", "auto")),
        ({"incremental-between": "3,3", "incremental-between-scan-mode": "diff"}, ChangesBetween("3", "3", "diff")),
        (
            {"incremental-between-timestamp": "0,1970-01-01 00:00:02Z"},
            ChangesBetween(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "auto"),
        ),
    ],
)
def test_changes(options: dict[str, str], wanted: ChangesBetween) -> None:
    check_travel(options)
    assert between_of(options, lambda: TAGS) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan.snapshot-id": "1", "scan.version": "1"}, "at most one"),
        ({"scan.tag-name": "a", "incremental-between": "1,2"}, "at most one"),
        ({"incremental-between-scan-mode": "diff"}, "give incremental-between"),
        ({"incremental-between": "1"}, "a start, which is not part of it, and an end"),
        ({"incremental-between": "1,2,3"}, "a start"),
        ({"incremental-between": "eom,7"}, "tags of the table: 3, eom, t,1"),
        ({"incremental-between-timestamp": "yesterday,today"}, "is a time such as"),
        ({"scan.timestamp": "noon"}, "is a time such as"),
        ({"scan.version": "watermark-7"}, "not looked up by watermark"),
        ({"scan.version": "-4"}, "a tag or the id of a snapshot"),
    ],
)
def test_what_makes_no_sense(options: dict[str, str], message: str) -> None:
    def read() -> None:
        check_travel(options)
        travel_of(options, lambda: TAGS)
        between_of(options, lambda: TAGS)

    with pytest.raises(InvalidRequestError, match=message):
        read()


def test_streams_have_none_of_those_of_batch_frames() -> None:
    with pytest.raises(InvalidRequestError, match=r"incremental-between is one of frames that are no streams"):
        stream_options({"scan.mode": "latest", "incremental-between": "1,2"})
