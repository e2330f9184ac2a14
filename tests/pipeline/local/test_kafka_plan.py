"""What a batch of Kafka reads: tables of what Spark's rules give, and offsets as Spark writes them."""

from __future__ import annotations

import pytest

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.config.starting_offsets import places_of
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.local.kafka_plan import KafkaLimits, cut, is_too_little, limited, losses, planned_ranges
from freshet.pipeline.local.kafka_source import first_text, offsets_of_first, offsets_text

A, B, C = ("t", 0), ("t", 1), ("u", 0)


@pytest.mark.parametrize(
    ("most", "start", "ends", "firsts", "wanted"),
    [
        (10, {A: 0}, {A: 100}, {}, {A: 10}),
        (10, {A: 0}, {A: 7}, {}, {A: 7}),
        (10, {A: 0, B: 0}, {A: 30, B: 10}, {}, {A: 7, B: 2}),  # 7.5 and 2.5, each rounded down
        (10, {A: 0, B: 5}, {A: 1000, B: 6}, {}, {A: 9, B: 6}),  # a share below one is one
        (1, {A: 0, B: 0, C: 0}, {A: 5, B: 5, C: 5}, {}, {A: 1, B: 1, C: 1}),
        (10, {A: 3}, {A: 3, B: 40}, {B: 20}, {A: 3, B: 30}),  # a new partition from its first offset on
        (10, {A: 3}, {A: 3, B: 40}, {}, {A: 3, B: 40}),  # one that went again: for `losses`
        (10, {A: 50}, {A: 20}, {}, {A: 20}),  # as is one that ends before the beginning
        (10, {A: 50, B: 0}, {A: 20, B: 100}, {}, {A: 20, B: 10}),
        (10, {}, {}, {}, {}),
    ],
)
def test_each_partition_gives_its_share(
    most: int,
    start: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    firsts: dict[tuple[str, int], int],
    wanted: dict[tuple[str, int], int],
) -> None:
    assert limited(most, start, ends, firsts) == wanted


@pytest.mark.parametrize(
    ("start", "ends", "is_little"),
    [({A: 0}, {A: 9}, True), ({A: 0}, {A: 10}, False), ({A: 1, B: 0}, {A: 5, B: 5}, True), ({}, {A: 10}, False)],
)
def test_too_few_records(start: dict[tuple[str, int], int], ends: dict[tuple[str, int], int], is_little: bool) -> None:
    assert is_too_little(10, start, ends) is is_little


@pytest.mark.parametrize(
    ("sizes", "ranges_min", "range_max", "wanted"),
    [
        ([10, 10], None, None, [10, 10]),
        ([10, 10], 2, None, [10, 10]),
        ([10, 10], 4, None, [5, 5, 5, 5]),
        ([100, 1], 4, None, [33, 33, 34, 1]),  # the small one is left whole, three are the share of the other
        ([7], 3, None, [2, 2, 3]),
        ([2], 5, None, [1, 1]),  # none is empty
        ([10, 3], None, 4, [3, 3, 4, 3]),
        ([10], 5, 5, [1, 2, 2, 1, 2, 2]),  # of halves a share is rounded up
        ([10], 1, 5, [5, 5]),
        ([], 5, 5, []),
    ],
)
def test_ranges_are_cut(sizes: list[int], ranges_min: int | None, range_max: int | None, wanted: list[int]) -> None:
    ranges = [OffsetRange("t", number, 1000, 1000 + size) for number, size in enumerate(sizes)]
    found = cut(ranges, ranges_min, range_max)
    assert [each.end - each.start for each in found] == wanted
    assert [(place, at) for each in found for place in [each.partition] for at in range(each.start, each.end)] == [
        (each.partition, at) for each in ranges for at in range(each.start, each.end)
    ]


def test_ranges_of_two_offsets() -> None:
    start, ends = {A: 5, C: 9, B: 7}, {B: 7, A: 8, C: 3, ("u", 1): 4, ("u", 2): 6}
    assert planned_ranges(start, ends, {("u", 1): 1}, KafkaLimits()) == [
        OffsetRange("t", 0, 5, 8),
        OffsetRange("u", 1, 1, 4),
    ]


@pytest.mark.parametrize(
    ("start", "ends", "firsts", "text"),
    [
        ({A: 5}, {A: 5}, {}, None),
        ({A: 5}, {A: 9, B: 3}, {B: 0}, None),
        ({A: 5}, {A: 9, B: 3}, {}, "topic t partition 1 came and is gone again"),
        ({A: 5}, {A: 9, B: 3}, {B: 2}, "topic t partition 1 is new, and its first offset is 2, not 0"),
        ({A: 5, B: 0, C: 0}, {A: 9}, {}, "topic t partition 1, topic u partition 0 are gone"),
        ({A: 5}, {A: 3}, {}, "topic t partition 0 was read up to offset 5 and ends at 3"),
    ],
)
def test_what_is_lost(
    start: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    firsts: dict[tuple[str, int], int],
    text: str | None,
) -> None:
    found = list(losses(start, ends, firsts))
    assert [each.partition(": ")[0] for each in found] == ([] if text is None else [text])
    assert all(each.endswith("failOnDataLoss: false") for each in found)


def test_limits_of_options() -> None:
    assert KafkaLimits.of({}) == KafkaLimits(None, None, 900_000, None, None)
    given = {"maxoffsetspertrigger": "5", "minoffsetspertrigger": "2", "minpartitions": "3", "maxtriggerdelay": "30s"}
    assert KafkaLimits.of({**given, "maxrecordsperpartition": "9"}) == KafkaLimits(5, 2, 30_000, 3, 9)
    for text, delay_ms in {
        "2min": 120_000,
        "1h": 3_600_000,
        "500ms": 500,
        "70": 70,
        "3000us": 3,
        "1d": 86_400_000,
    }.items():
        assert KafkaLimits.of({"maxtriggerdelay": text}).delay_ms == delay_ms


def test_offsets_are_in_the_order_of_their_hashes() -> None:
    """As Spark has written these; tests/integration/test_kafka_as_spark.py compares more."""
    assert offsets_text({("t", 16): 1, ("t", 1): 2, ("t", 0): 3}) == '{"t":{"0":3,"16":1,"1":2}}'
    assert offsets_text({("t", number): 0 for number in reversed(range(3))}) == '{"t":{"0":0,"1":0,"2":0}}'
    for count in (11, 12, 23, 24, 100):  # as many buckets as partitions, and more
        numbers = list(places_of(offsets_text({("t", number): number for number in range(count)})))
        assert numbers == [("t", number) for number in range(count)]


def test_the_file_of_the_first_offsets() -> None:
    text = first_text('{"t":{"0":5}}')
    assert text == '\0v1\n{"t":{"0":5}}' and offsets_of_first(text, "here") == '{"t":{"0":5}}'
    for other in ('\0v2\n{"t":{"0":5}}', '{"t":{"0":5}}', ""):
        with pytest.raises(ConfigurationError, match="/c/sources/0/0 is of version"):
            offsets_of_first(other, "/c/sources/0/0")
