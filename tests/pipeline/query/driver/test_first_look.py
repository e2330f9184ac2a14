"""A first batch is looked at before it is read whole: pieces of each range."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.query.driver.direct_reads import LOOK_RECORDS, LOOK_SHARE, look_pieces
from freshet.pipeline.query.task.kafka_ranges import DirectClient


def _ranges(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange(f"t{number}", 0, 100, 100 + size) for number, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=120))
def test_a_look_is_of_each_range_and_far_less_than_the_batch(sizes: list[int]) -> None:
    ranges = _ranges(sizes)
    pieces = look_pieces(ranges)
    if pieces is None:
        assert sum(sizes) < LOOK_SHARE * max(3 * 64 * len(ranges), LOOK_RECORDS)
        return
    assert sum(each.end - each.start for each in pieces) * LOOK_SHARE <= sum(sizes)
    for each in ranges:
        own = [piece for piece in pieces if piece.topic == each.topic]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert all(before.end <= after.start for before, after in pairwise(own))


def test_a_small_batch_is_read_at_once() -> None:
    assert look_pieces(_ranges([1000] * 10)) is None
    assert look_pieces(_ranges([])) is None


def test_the_consumer_of_a_look_fetches_little_and_is_not_kept() -> None:
    client = DirectClient((("bootstrap.servers", "h:1"), ("queued.min.messages", "9")), 1.0, takes_losses=False)
    look = client.for_a_look()
    assert dict(look.settings)["bootstrap.servers"] == "h:1"
    assert dict(look.settings)["queued.min.messages"] == "1"
    assert client.is_kept
    assert not look.is_kept
