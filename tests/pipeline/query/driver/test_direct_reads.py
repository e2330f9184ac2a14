"""Which batches the Python workers read themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.query.driver.direct_reads import RECORDS_MIN, DirectReads

FEW, MANY = OffsetRange("t", 0, 0, 1), OffsetRange("t", 0, 0, RECORDS_MIN)


@pytest.mark.parametrize(
    ("read", "ranges", "expected"),
    [
        ("python", {0: [FEW]}, True),
        ("python", {0: [MANY]}, True),
        ("auto", {0: [FEW]}, False),
        ("auto", {0: [MANY]}, True),
        # The first batch of an empty topic, or of one that begins with an open transaction.
        ("python", {0: []}, False),
        ("python", {0: [], 1: [FEW]}, True),
        ("python", {}, False),
    ],
)
def test_workers_read_a_batch(read: str, ranges: Mapping[int, Sequence[OffsetRange]], expected: bool) -> None:
    assert DirectReads((), takes_small=read == "python").takes(ranges) is expected
