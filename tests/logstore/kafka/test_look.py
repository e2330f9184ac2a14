"""A look at the records of a topic on a real broker: their sizes uncompressed, wherever large ones lie."""

from __future__ import annotations

import time
import uuid

import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.kafka.java_options import ClientSettings
from freshet.logstore.kafka.look import LOOK_S, PLACES, PLACES_MIN, look_at_records, places_of
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.logstore.protocol.client import OffsetBounds, TopicPartition
from tests.kit.sized_records import SizedRecords, produce_sized

SLOW = 20
"""How many times longer than it should take a look may take here: tests run in parallel."""


def test_places_are_the_newest_and_evenly_spread() -> None:
    assert places_of(OffsetBounds(100, 900)) == (892, 100, 200, 300, 400, 500, 600, 700, 800)
    assert places_of(OffsetBounds(7, 8)) == (7,)
    assert all(5 <= place < 9 for place in places_of(OffsetBounds(5, 9)))
    assert len(places_of(OffsetBounds(0, 1 << 40))) == PLACES + 1
    assert places_of(OffsetBounds(100, 900), PLACES_MIN) == (892, 100, 300, 500, 700)


@pytest.mark.kafka
def test_sizes_are_those_of_keys_and_values_uncompressed(
    kafka_broker: ForeignBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_S", "PLACE_S"):
        monkeypatch.setattr(f"freshet.logstore.kafka.look.{name}", SLOW * LOOK_S)
    settings = ClientSettings({"bootstrap.servers": kafka_broker.bootstrap_servers})
    topic, empty = (f"{name}-{uuid.uuid4()}" for name in ("sizes", "empty"))
    kafka_broker.create_topic(empty)
    parts = [SizedRecords(400, 1000, is_easy=False), SizedRecords(8, 100_000, is_easy=True, first=400)]
    produce_sized(kafka_broker, topic, parts)
    key = len("400")
    assert look_at_records(settings, {topic: 1, empty: 1}, {}) == RecordSizes(100_000 + key, 100_000 + key)
    produce_sized(kafka_broker, topic, [SizedRecords(100, 1000, is_easy=True, first=408)], is_new=False)
    assert look_at_records(settings, {topic: 1}, {TopicPartition(topic, 0): 408}) == RecordSizes(1003, 1003)
    assert look_at_records(settings, {topic: 1}, {TopicPartition(topic, 0): 508}) == NOTHING_SEEN
    assert look_at_records(settings, {empty: 1}, {}) == NOTHING_SEEN


def test_a_cluster_that_is_not_there_says_nothing() -> None:
    started = time.monotonic()
    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:9"})
    assert look_at_records(settings, {"t": 1}, {}) == NOTHING_SEEN
    assert time.monotonic() - started < SLOW * LOOK_S
