"""When records were made: bounds of columns and of polls, of which only some records are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.logstore.kafka.polled_records import TIMES_LOOKED_AT, PolledRecords
from freshet.pipeline.decode.outcomes import EventTimes, Tally, event_times, joined_times
from freshet.pipeline.decode.record_block import KafkaBlock
from freshet.pipeline.query.wire.read_count import ReadCount

US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("times_us", "expected"),
    [
        ([], None),
        ([None], None),
        ([-1000], None),
        ([5_000, None, 2_000], (2, 5)),
        ([-1000, 7_000], (0, 7)),
    ],
)
def test_bounds_of_a_column(times_us: list[int | None], expected: tuple[int, int] | None) -> None:
    assert event_times(pa.array(times_us, pa.int64()).cast(US)) == expected


def test_bounds_of_both() -> None:
    one, other = EventTimes(3, 9), EventTimes(1, 4)
    assert joined_times(one, other) == (1, 9)
    assert joined_times(None, other) == joined_times(other, None) == other
    assert joined_times(None, None) is None


@dataclass
class _Message:
    time_ms: int
    asked: list[int] = field(default_factory=list)

    def timestamp(self) -> tuple[int, int]:
        self.asked.append(self.time_ms)
        return 1, self.time_ms


def test_of_a_poll_some_are_asked_the_first_and_the_last_among_them() -> None:
    asked: list[int] = []
    messages: Any = [_Message(time_ms, asked) for time_ms in range(1_000, 11_000)]
    records = PolledRecords(messages, np.zeros(len(messages), np.int64))
    assert records.time_bounds() == (1_000, 10_999)
    assert len(asked) <= TIMES_LOOKED_AT + 2
    none: Any = [_Message(-1)]
    assert PolledRecords(none, np.zeros(1, np.int64)).time_bounds() is None
    assert PolledRecords([], np.zeros(0, np.int64)).time_bounds() is None


def _block(topic: str, times: EventTimes | None) -> KafkaBlock:
    def refused() -> pa.Array:
        raise AssertionError("each record is asked")

    return KafkaBlock(
        [(topic, 0)], None, [None], [b"x"], np.ones(1, np.int64), np.zeros(1, np.int64), refused, lambda at: [],
        times=lambda: times,
    )  # fmt: skip


def test_blocks_that_are_joined() -> None:
    blocks = [_block("a", EventTimes(5, 6)), _block("b", None), _block("c", EventTimes(1, 2))]
    assert KafkaBlock.joined(blocks).times() == (1, 6)


def test_they_travel_with_the_counts() -> None:
    counts = ReadCount()
    for times in (EventTimes(5, 6), None, EventTimes(1, 2)):
        counts.add_tally(Tally.decode(Tally(1, times=times).encode()))
    assert ReadCount.from_document(counts.to_document()).times == (1, 6)
