"""Stretches of records: joined where they touch, replaced where they do not or become too large."""

from __future__ import annotations

import pytest

from freshet.logstore.protocol.client import Fetched, StoredRecord, TopicPartition
from freshet.logstore.reading.tail import RecentRecords
from tests.kit.log_story import Story, table_of

PLACE = TopicPartition("t", 0)


def fetched(*offsets: int, end: int) -> Fetched:
    return Fetched(tuple(StoredRecord(offset, b"", b"0123456789") for offset in offsets), end)


def offsets(recent: RecentRecords, position: int) -> list[int] | None:
    found = recent.at(PLACE, position)
    return None if found is None else [record.offset for record in found.records] + [-found.next_offset]


def test_stretches_are_joined_with_their_gaps() -> None:
    recent = RecentRecords()
    assert offsets(recent, 3) is None
    recent.add(PLACE, 3, fetched(4, 6, end=8))
    recent.add(PLACE, 8, fetched(8, end=10))
    assert offsets(recent, 3) == [4, 6, 8, -10] and offsets(recent, 5) == [6, 8, -10] and offsets(recent, 9) == [-10]
    assert offsets(recent, 2) is None and offsets(recent, 10) is None
    recent.add(PLACE, 20, fetched(20, end=21))
    assert offsets(recent, 3) is None and offsets(recent, 20) == [20, -21]


def test_a_stretch_that_becomes_too_large_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.reading.tail.RANGE_BYTES_MAX", 25)
    recent = RecentRecords()
    recent.add(PLACE, 0, fetched(0, 1, end=2))
    recent.add(PLACE, 2, fetched(2, end=3))
    assert offsets(recent, 0) is None and offsets(recent, 2) == [2, -3]


def test_buckets_of_one_partition_are_fetched_once() -> None:
    story = Story()
    partitions = [b"%03d" % number for number in range(20)]
    story.writer.writer.begin(1, 0)
    for number, partition in enumerate(partitions):
        story.writer.writer.log(partition, 0, table_of(f"+I {10 + number} x"))
    story.commit(1, story.writer.writer.finish())
    before = story.log_.fetches
    assert story.comm() == " | ".join(f"+I {10 + number} x" for number in range(20))
    assert story.log_.fetches - before == 1


def test_records_without_values_count_by_their_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.reading.tail.RANGE_BYTES_MAX", 2_000)
    recent = RecentRecords()
    for offset in range(10):
        recent.add(PLACE, offset, Fetched((StoredRecord(offset, bytes(900), b""),), offset + 1))
    assert offsets(recent, 9) == [9, -10] and offsets(recent, 0) is None


def test_all_partitions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.logstore.reading.tail.BYTES_MAX", 2_100)
    recent = RecentRecords()
    places = [TopicPartition("t", number) for number in range(5)]
    for offset in range(3):
        for place in places[:2] if offset else places:
            recent.add(place, offset, Fetched((StoredRecord(offset, b"", bytes(100)),), offset + 1))
    held = {place.partition: recent.at(place, 0) for place in places}
    assert [number for number, found in held.items() if found is not None] == [0, 1, 4]
    recent.add(places[2], 0, Fetched((StoredRecord(0, b"", bytes(5_000)),), 1))
    assert [recent.at(place, 0) is not None for place in places] == [False, False, True, False, False]
