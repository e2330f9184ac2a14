"""Tag files as Apache Paimon 2.0.0 writes them, byte for byte where it shows."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import orjson
import pytest

from freshet.storage.codec.metadata_json import decode_tag, encode_snapshot, encode_tag
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.tag import Tag
from tests.kit.hand_made import bare_snapshot

SNAPSHOT = bare_snapshot(7)


def with_fields(**fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(encode_snapshot(SNAPSHOT)), **fields})


@pytest.mark.parametrize(
    ("created", "retained", "fields", "seconds"),
    [
        (datetime(2026, 3, 1, 9, 5), timedelta(days=1), [2026, 3, 1, 9, 5], "86400.000000000"),
        (datetime(2026, 3, 1, 9, 5, 7), timedelta(hours=1.5), [2026, 3, 1, 9, 5, 7], "5400.000000000"),
        (
            datetime(2026, 3, 1, 9, 5, 0, 250_000),
            timedelta(milliseconds=1500),
            [2026, 3, 1, 9, 5, 0, 250_000_000],
            "1.500000000",
        ),
    ],
)
def test_a_retention_is_an_array_and_a_decimal_number(
    created: datetime, retained: timedelta, fields: list[int], seconds: str
) -> None:
    tag = Tag("t", SNAPSHOT, created, retained)
    data = encode_tag(tag)
    assert json.loads(data)["tagCreateTime"] == fields
    assert f'"tagTimeRetained": {seconds}'.encode() in data
    assert decode_tag("t", data, "p") == tag


def test_a_tag_without_a_retention_is_a_snapshot_file() -> None:
    assert encode_tag(Tag("t", SNAPSHOT)) == encode_snapshot(SNAPSHOT)
    assert decode_tag("t", encode_snapshot(SNAPSHOT), "p") == Tag("t", SNAPSHOT)


@pytest.mark.parametrize(
    ("time", "seconds", "expected"),
    [
        ([2026, 3, 1, 9, 5, 7, 123_456_789], 60, datetime(2026, 3, 1, 9, 5, 7, 123_456)),
        ("2026-03-01T09:05:07", 60.0, datetime(2026, 3, 1, 9, 5, 7)),
    ],
)
def test_what_other_programs_write_is_read(time: object, seconds: object, expected: datetime) -> None:
    tag = decode_tag("t", with_fields(tagCreateTime=time, tagTimeRetained=seconds), "p")
    assert (tag.created, tag.retained) == (expected, timedelta(minutes=1))
    assert tag.retained_until == expected + timedelta(minutes=1)


@pytest.mark.parametrize(("time", "seconds"), [([2026, 13, 1], 60), ("soon", 60), ([2026, 3, 1], "a day"), (1, 60)])
def test_a_retention_that_cannot_be_read_is_named(time: object, seconds: object) -> None:
    with pytest.raises(CorruptDataError, match="the tag's retention cannot be read"):
        decode_tag("t", with_fields(tagCreateTime=time, tagTimeRetained=seconds), "p")


def test_a_retention_beyond_the_calendar_is_forever() -> None:
    tag = Tag("t", SNAPSHOT, datetime(2026, 3, 1), timedelta(days=900_000_000))
    assert tag.retained_until == datetime.max
