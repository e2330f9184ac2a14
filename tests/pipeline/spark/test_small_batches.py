"""Which batches one task takes."""

from __future__ import annotations

import pytest

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import NOTHING_SEEN, RecordSizes
from freshet.pipeline.spark.single_stage import BYTES_MAX, RANGES_MAX, RECORDS_MAX, is_small


def ranges(count: int, records: int) -> list[OffsetRange]:
    return [OffsetRange("t", partition, 7, 7 + records) for partition in range(count)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ({0: ranges(2, 80)}, True),
        ({0: ranges(1, RECORDS_MAX)}, True),
        ({0: ranges(1, RECORDS_MAX + 1)}, False),
        ({0: ranges(1, RECORDS_MAX // 2), 1: ranges(1, RECORDS_MAX // 2 + 1)}, False),
        ({0: ranges(RANGES_MAX, 1)}, True),
        ({0: ranges(RANGES_MAX, 1), 1: ranges(1, 1)}, False),
    ],
)
def test_few_records_of_few_ranges(of: dict[int, list[OffsetRange]], expected: bool) -> None:
    assert is_small(of, NOTHING_SEEN) is expected


def test_few_bytes() -> None:
    mean = BYTES_MAX // 100
    assert is_small({0: ranges(1, 100)}, RecordSizes(mean, mean))
    assert not is_small({0: ranges(1, 101)}, RecordSizes(mean, mean))
    assert is_small({0: ranges(1, 10)}, RecordSizes(mean, 100 * mean)), "the mean counts"
