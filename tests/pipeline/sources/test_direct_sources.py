"""Which batches the Python workers read themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from freshet.logstore.kafka.range_reader import OffsetRange
from freshet.pipeline.sources.direct_frame import RECORDS_MIN, DirectSources
from tests.pipeline.records import pipeline_of

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
    assert DirectSources(pipeline_of({"id": "BIGINT"}, read=read), ()).takes(ranges) is expected
