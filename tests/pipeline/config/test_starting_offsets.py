"""Where a source begins, against what its topics have."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.starting_offsets import assigned_problems, start_of, start_problems

BOUNDS = {("a", 0): (3, 10), ("a", 1): (0, 0)}


def problems(options: dict[str, str], matches: dict[tuple[str, int], int] | None = None, **more: bool) -> list[str]:
    start = start_of(options)
    assert start is not None
    return list(start_problems(start, BOUNDS, matches or {}, **{"takes_losses": False, **more}))


@pytest.mark.parametrize("text", ["earliest", "Latest", ""])
def test_a_word_is_always_right(text: str) -> None:
    assert start_of({"startingOffsets": text}) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": {"0": 3, "1": 0}}', None),
        ('{"a": {"0": 10, "1": -1}}', None),
        ('{"a": {"0": -2, "1": -1}}', None),
        ('{"a": {"0": 11, "1": 0}}', "offset 11 lies beyond the end of topic a partition 0, which has offsets 3 to 9"),
        ('{"a": {"0": 5, "1": 1}}', "topic a partition 1, which has no records (its next offset is 0)"),
        ('{"a": {"0": 2, "1": 0}}', "offset 2 of topic a partition 0 was deleted; there are offsets 3 to 9"),
        ('{"a": {"0": -3, "1": 0}}', "-3 is no offset of topic a partition 0"),
        ('{"a": {"0": 3}}', "lacks topic a partition 1; Spark wants all partitions"),
        ('{"a": {"0": 3, "1": 0, "2": 0}}', "names topic a partition 2, which is not there"),
        ('{"a": {"0": 3, "1": 0}, "b": {"0": 0}}', "names topic b, which the source does not read (a)"),
    ],
)
def test_offsets_are_there_and_complete(text: str, wanted: str | None) -> None:
    found = problems({"STARTINGOFFSETS": text})
    assert [wanted in each for each in found if wanted] == ([] if wanted is None else [True])
    assert wanted or not found


def test_deleted_offsets_are_right_where_losses_are_taken() -> None:
    assert not problems({"startingOffsets": '{"a": {"0": 2, "1": 0}}'}, takes_losses=True)


def test_times_have_to_be_matched_unless_the_end_will_do() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"a": {"0": 5, "1": 6}}', "startingOffsets": '{"b": {"0": 1}}'}
    start = start_of(by_time)
    assert start is not None and start.times(set(BOUNDS)) == {("a", 0): 5, ("a", 1): 6}
    assert not problems(by_time, {("a", 0): 4, ("a", 1): 0})
    (text,) = problems(by_time, {("a", 0): 4, ("a", 1): -1})
    assert text.startswith("no record of topic a partition 1 is as late") and "Strategy: latest" in text
    assert not problems({**by_time, "startingOffsetsByTimestampStrategy": "latest"}, {("a", 1): -1})
    assert problems({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, {("a", 0): 4})[0].startswith("lacks topic a")


def test_one_time_counts_for_all_partitions_and_before_the_others() -> None:
    options = {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'}
    start = start_of(options)
    assert start is not None and start.option == "startingTimestamp"
    assert start.times(set(BOUNDS)) == dict.fromkeys(BOUNDS, 7)
    assert not problems(options, dict.fromkeys(BOUNDS, 0))


def test_assigned_partitions_are_there() -> None:
    assert not list(assigned_problems({("a", 0)}, set(BOUNDS)))
    assert list(assigned_problems({("a", 0), ("a", 7), ("b", 0)}, set(BOUNDS))) == [
        "names topic a partition 7, topic b partition 0, which are not there"
    ]
