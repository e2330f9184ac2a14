"""Sizes of fetches and polls, by the number of Kafka partitions."""

from __future__ import annotations

import pytest

from freshet.pipeline.spark.fetch_sizes import fetch_options

FETCH, POLL = "kafka.max.partition.fetch.bytes", "kafka.max.poll.records"
BUFFER = "kafka.receive.buffer.bytes"


@pytest.mark.parametrize(
    ("partitions", "fetched", "polled"), [(1, 8 << 20, 16384), (8, 8 << 20, 16384), (32, 2 << 20, 4096)]
)
def test_few_partitions_are_fetched_in_large_pieces(partitions: int, fetched: int, polled: int) -> None:
    assert fetch_options(partitions) == {FETCH: str(fetched), POLL: str(polled), BUFFER: "-1"}


@pytest.mark.parametrize("partitions", [None, 0, 64, 10_000])
def test_many_partitions_and_an_unknown_number_keep_the_sizes_of_the_client(partitions: int | None) -> None:
    assert fetch_options(partitions) == {}


def test_what_all_partitions_fetch_at_a_time_is_bounded() -> None:
    for partitions in range(1, 64):
        assert partitions * int(fetch_options(partitions)[FETCH]) <= 64 << 20
