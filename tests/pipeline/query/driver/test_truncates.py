"""Truncates of a batch: which one counts, what comes before it, and where there is no order."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from freshet.pipeline.decode.outcomes import OFFSET, TOPIC, Tally, TruncatedAt
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.query.driver.targets import last_truncates, refuse_unordered
from freshet.pipeline.query.task.write_task import is_kept

HERE = TruncatedAt(0, "t", 0, 5)


def ends(**partitions: int) -> list[str]:
    return [json.dumps({topic: {str(each): 9 for each in range(count)} for topic, count in partitions.items()})]


def test_the_last_one_of_each_table_counts() -> None:
    found = [HERE, TruncatedAt(1, "u", 0, 9), HERE._replace(offset=11), HERE._replace(offset=10)]
    assert last_truncates(found) == {0: TruncatedAt(0, "t", 0, 11), 1: TruncatedAt(1, "u", 0, 9)}
    assert last_truncates([]) == {}


def test_rows_from_before_it_in_its_topic_go() -> None:
    outcomes = pa.RecordBatch.from_pydict(
        {TOPIC: ["t", "t", "t", "u", None], OFFSET: pa.array([4, 5, 6, 1, None], pa.int64())}
    )
    assert is_kept(outcomes, HERE).to_pylist() == [False, True, True, True, True]


@pytest.mark.parametrize("is_alone", [True, False])
def test_one_partition_has_an_order(is_alone: bool) -> None:
    refuse_unordered({0: HERE}, ends(t=1), is_alone=is_alone)
    refuse_unordered({}, ends(t=7, u=1), is_alone=is_alone)


def test_other_partitions_have_none() -> None:
    with pytest.raises(StoppedByRecordError, match="t partition 0 offset 5: topic t has 3 partitions"):
        refuse_unordered({0: HERE}, ends(t=3), is_alone=False)


def test_other_topics_count_where_one_table_takes_all() -> None:
    refuse_unordered({0: HERE}, ends(t=1, u=4), is_alone=False)
    with pytest.raises(StoppedByRecordError, match="2 topics are read"):
        refuse_unordered({0: HERE}, ends(t=1, u=1), is_alone=True)


def test_a_tally_carries_them() -> None:
    tally = Tally(3, truncated=(HERE, HERE._replace(table_index=4)))
    assert Tally.decode(tally.encode()) == tally
