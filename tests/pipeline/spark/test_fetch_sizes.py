"""Sizes of fetches and polls, by the number of Kafka partitions and the records seen."""

from __future__ import annotations

import pytest

from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.spark.fetch_sizes import fetch_options

FETCH, POLL = "kafka.max.partition.fetch.bytes", "kafka.max.poll.records"
BUFFER = "kafka.receive.buffer.bytes"
WAIT = {"kafka.fetch.max.wait.ms": "10"}
SMALL = RecordSizes(400, 700)


@pytest.mark.parametrize(
    ("partitions", "fetched", "polled"), [(1, 8 << 20, 16384), (8, 8 << 20, 16384), (32, 2 << 20, 5242)]
)
def test_few_partitions_are_fetched_in_large_pieces(partitions: int, fetched: int, polled: int) -> None:
    assert fetch_options(partitions, SMALL) == {FETCH: str(fetched), POLL: str(polled), BUFFER: "-1", **WAIT}


@pytest.mark.parametrize("partitions", [0, 64, 10_000])
def test_many_partitions_and_an_unknown_number_keep_the_sizes_of_the_client(partitions: int) -> None:
    assert fetch_options(partitions, SMALL) == WAIT


def test_a_poll_of_records_that_nobody_has_seen_is_that_of_the_client() -> None:
    assert POLL not in fetch_options(1, NOTHING_SEEN)
    assert fetch_options(0, NOTHING_SEEN) == WAIT


@pytest.mark.parametrize("partitions", [0, 1, 8, 32, 64, 10_000])
@pytest.mark.parametrize("size", [0, 100, 1000, 100_000, 5_000_000, 1 << 30])
def test_a_poll_holds_as_many_bytes_as_a_fetch_or_one_record(partitions: int, size: int) -> None:
    options = fetch_options(partitions, RecordSizes(size, max(1, size)))
    polled = int(options.get(POLL, 500))
    assert 1 <= polled <= 16384
    assert polled == 1 or polled * size <= int(options.get(FETCH, 1 << 20))


def test_what_all_partitions_fetch_at_a_time_is_bounded() -> None:
    for partitions in range(1, 64):
        assert partitions * int(fetch_options(partitions, SMALL)[FETCH]) <= 64 << 20
