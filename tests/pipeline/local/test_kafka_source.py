"""The Kafka source of the local engine: where it begins, what its batches are, what stops it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet.logstore.exceptions import LogTruncatedError
from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.topic_watch import EARLIEST, LATEST, Place
from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.identity.checkpoint_topics import claim_topics
from freshet.pipeline.local import kafka_source as module
from freshet.pipeline.local.kafka_source import KafkaSource, kafka_source

A, B = ("t", 0), ("t", 1)


class Topics:
    """What a `TopicWatch` would say of topics that are in memory."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options
        self.bounds: dict[Place, tuple[int, int]] = {}
        self.late: dict[Place, int] = {}
        self.asked: list[str] = []
        self.ids: dict[str, str] = {}

    def ask_ids(self, topics: set[str]) -> Callable[[], dict[str, str]]:
        self.asked.append(f"ids of {', '.join(sorted(topics))}")
        found = dict(self.ids)
        return lambda: {topic: found[topic] for topic in topics & found.keys()}

    def places(self, *, fresh: bool = False) -> frozenset[Place]:
        return frozenset(self.bounds)

    def ends(self, least: Mapping[Place, int], *, fresh: bool = False) -> dict[Place, int]:
        self.asked.append("fresh ends" if fresh else "ends")
        return {place: end for place, (_, end) in self.bounds.items()}

    def offsets(self, times: Mapping[Place, int]) -> dict[Place, int]:
        self.asked.append("offsets")
        special = {EARLIEST: 0, LATEST: 1}
        return {
            place: self.bounds[place][special[at]] if at in special else self.late.get(place, -1)
            for place, at in times.items()
            if place in self.bounds
        }

    def wait(self, starts: Mapping[Place, int], timeout_s: float) -> bool:
        self.asked.append("wait")
        return False

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics()

    def watch(*arguments: Any, **options: Any) -> Topics:
        made.arguments, made.options = arguments, options
        return made

    monkeypatch.setattr(module, "TopicWatch", watch)
    return made


def source(folder: Path, **options: str) -> KafkaSource:
    if not options.keys() & {"assign", "subscribePattern"}:
        options["subscribe"] = "t"
    config = {"kafka": {"kafka.bootstrap.servers": "h:1", **options}, "format": "json"}
    return kafka_source(SourceConfig.model_validate(config), LocalCheckpoint(folder), 0)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, '{"t":{"0":9,"1":4}}'),
        ({"startingOffsets": " Latest"}, '{"t":{"0":9,"1":4}}'),
        ({"STARTINGOFFSETS": "earliest"}, '{"t":{"0":2,"1":0}}'),
        ({"startingOffsets": '{"t": {"1": -1, "0": -2}}'}, '{"t":{"0":2,"1":4}}'),
        ({"startingOffsets": '{"t": {"1": 3, "0": 9}}'}, '{"t":{"0":9,"1":3}}'),
        ({"startingTimestamp": "77", "startingOffsets": "earliest"}, '{"t":{"0":5,"1":3}}'),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 7, "1": 8}}'}, '{"t":{"0":5,"1":3}}'),
    ],
)
def test_where_it_begins(tmp_path: Path, topics: Topics, options: dict[str, str], first: str) -> None:
    """And again, whatever has come since."""
    topics.bounds, topics.late = {A: (2, 9), B: (0, 4)}, {A: 5, B: 3}
    assert source(tmp_path, **options).first() == first
    assert (tmp_path / "sources/0/0").read_bytes() == b"\0v1\n" + first.encode()
    topics.bounds = {}
    assert source(tmp_path, startingOffsets="earliest").first() == first


def test_a_beginning_that_is_no_text(tmp_path: Path, topics: Topics) -> None:
    topics.bounds = {A: (2, 9)}
    source(tmp_path).first()
    (tmp_path / "sources/0/0").write_bytes(b"v1\n\xff")
    with pytest.raises(PipelineFailedError, match="sources/0/0 is empty or damaged.*no batch is below offsets, remove"):
        source(tmp_path).first()


def test_a_time_that_no_record_has(tmp_path: Path, topics: Topics) -> None:
    topics.bounds, topics.late = {A: (2, 9), B: (0, 4)}, {A: 5}
    with pytest.raises(ConfigurationError, match="startingTimestamp: no record of topic t partition 1 is as late"):
        source(tmp_path, startingTimestamp="77").first()
    assert not (tmp_path / "sources").exists()
    latest = source(tmp_path, startingTimestamp="77", startingOffsetsByTimestampStrategy="latest")
    assert latest.first() == '{"t":{"0":5,"1":4}}'


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"t": {"0": 3}}', "lacks topic t partition 1"),
        ('{"t": {"0": 3, "1": 0, "2": 0}}', "names topic t partition 2, which is not there"),
        ('{"t": {"0": 10, "1": 0}}', "offset 10 lies beyond the end of topic t partition 0"),
        ('{"t": {"0": 1, "1": 0}}', "offset 1 of topic t partition 0 was deleted"),
    ],
)
def test_offsets_to_begin_at_that_cannot_be(tmp_path: Path, topics: Topics, given: str, text: str) -> None:
    topics.bounds = {A: (2, 9), B: (0, 4)}
    with pytest.raises(ConfigurationError, match=f"startingOffsets: {text}"):
        source(tmp_path, startingOffsets=given).first()
    assert not (tmp_path / "sources").exists()


def test_batches(tmp_path: Path, topics: Topics) -> None:
    topics.bounds = {A: (0, 30), B: (0, 10)}
    own = source(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="20", minPartitions="3")
    first = own.first()
    end = own.latest(first)
    assert end == '{"t":{"0":15,"1":5}}' and own.lag(end) == 20
    assert own.ranges(first, end) == [OffsetRange("t", 0, 0, 7), OffsetRange("t", 0, 7, 15), OffsetRange("t", 1, 0, 5)]
    last = own.latest(end)
    assert last == '{"t":{"0":30,"1":10}}' and own.lag(last) == 0
    spelled = '{"t": {"1": 10, "0": 30}}'
    assert own.latest(spelled) is spelled, "nothing new, whatever the order"
    own.done(last)


def test_a_partition_that_is_new(tmp_path: Path, topics: Topics) -> None:
    topics.bounds = {A: (0, 5)}
    own = source(tmp_path)
    start = own.first()
    topics.bounds[B] = (0, 3)
    end = own.latest(start)
    assert end == '{"t":{"0":5,"1":3}}' and own.ranges(start, end) == [OffsetRange("t", 1, 0, 3)]
    assert topics.asked.count("offsets") == 2
    topics.bounds[A] = (0, 6)
    assert own.ranges(end, own.latest(end) or "") == [OffsetRange("t", 0, 5, 6)]
    assert topics.asked.count("offsets") == 2, "no question where none is new"


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ({A: (0, 5)}, "topic t partition 1 is gone"),
        ({A: (0, 3), B: (0, 4)}, "topic t partition 0 was read up to offset 5 and ends at 3"),
        ({A: (0, 5), B: (0, 4), ("t", 2): (7, 9)}, "topic t partition 2 is new, and its first offset is 7"),
    ],
)
def test_what_is_lost_stops_it(
    tmp_path: Path, topics: Topics, caplog: pytest.LogCaptureFixture, then: dict[Place, tuple[int, int]], text: str
) -> None:
    topics.bounds = {A: (0, 5), B: (0, 4)}
    own = source(tmp_path)
    start = own.first()
    topics.bounds = then
    with pytest.raises(LogTruncatedError, match=f"{text}.* set failOnDataLoss: false"):
        own.latest(start)
    takes = source(tmp_path, failOnDataLoss="false")
    end = takes.latest(start)
    assert end is not None and text in caplog.text
    with pytest.raises(LogTruncatedError, match=text):
        own.ranges(start, end)
    assert [each.partition for each in takes.ranges(start, end)] == ([2] if ("t", 2) in then else [])


def test_too_few_records_are_waited_for_without_spinning(
    tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1_000_000.0]
    slept: list[float] = []
    monkeypatch.setattr(module.time, "time_ns", lambda: int(now_s[0] * 1e9))
    monkeypatch.setattr(module.time, "sleep", slept.append)
    topics.bounds = {A: (0, 5)}
    own = source(tmp_path, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    first = own.latest(own.first())
    assert first == '{"t":{"0":5}}', "the first batch is due"
    topics.bounds = {A: (0, 14)}
    assert own.latest(first) is first
    assert own.wait(first, 0.1) and own.wait(first, 5) and slept == [0.1, 0.2] and "wait" not in topics.asked
    topics.bounds = {A: (0, 15)}
    assert (second := own.latest(first)) == '{"t":{"0":15}}'
    topics.bounds = {A: (0, 16)}
    assert own.latest(second) is second
    now_s[0] += 30
    assert own.latest(second) == '{"t":{"0":16}}'
    assert not own.wait('{"t":{"0":16}}', 0.1) and topics.asked[-1] == "wait"


def test_available_now_has_one_end(tmp_path: Path, topics: Topics) -> None:
    topics.bounds = {A: (0, 5)}
    own = source(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    start = own.first()
    own.bound()
    second = own.latest(start)
    topics.bounds = {A: (0, 50)}
    assert own.latest(second) == '{"t":{"0":5}}' and own.latest('{"t":{"0":5}}') == '{"t":{"0":5}}'
    assert topics.asked.count("fresh ends") == 1 and "ends" not in topics.asked


def test_nothing_matches_a_pattern_yet(tmp_path: Path, topics: Topics) -> None:
    own = source(tmp_path, subscribePattern=" shop[.].* ")
    assert topics.arguments[1] == re.compile("shop[.].*")
    assert own.first() == "{}" and own.latest("{}") == "{}"
    started_s = time.monotonic()
    assert not own.wait("{}", 0.01) and time.monotonic() - started_s >= 0.01


def test_options_of_the_client(tmp_path: Path, topics: Topics) -> None:
    options = {
        "fetchOffset.numRetries": "7",
        "fetchOffset.retryIntervalMs": "250",
        "kafkaConsumer.pollTimeoutMs": "9000",
    }
    own = source(tmp_path, assign='{"t": [0, 3]}', **options)
    settings, names, assigned = topics.arguments
    assert settings == {"bootstrap.servers": "h:1", "isolation.level": "read_committed"}
    assert (names, assigned) == ({"t"}, {("t", 0), ("t", 3)})
    assert topics.options == {"attempts": 7, "pause_s": 0.25}
    assert own.client.stays and own.client.timeout_s == 9 and own.client.for_several(50) == own.client
    own.close()
    assert topics.asked == ["close"]


def test_a_pattern_of_java_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="subscribePattern .* is a regular expression of Java's alone"):
        source(tmp_path, subscribePattern=r"\p{Lower}+")


@pytest.mark.parametrize("is_long", [False, True])
def test_a_topic_that_is_made_again_is_refused_before_what_was_read_is_committed(
    tmp_path: Path, topics: Topics, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """Asked beside the read, and again behind one that is long."""
    claim_topics(str(tmp_path), {"t": "1"})
    of = source(tmp_path)
    topics.ids = {"t": "1"}
    of.refuse_renewed()
    for _ in range(2):
        assert of.ranges('{"t":{"0":3}}', '{"t":{"0":4}}')
        of.refuse_renewed()
    of.refuse_renewed()
    assert not of.ranges('{"t":{"0":4}}', '{"t":{"0":4}}')
    assert topics.asked == ["ids of t"] * 2, "once for a batch that reads"
    if is_long:
        monkeypatch.setattr(module, "_LONG_S", -1)
        of.ranges('{"t":{"0":4}}', '{"t":{"0":5}}')
    topics.ids = {"t": "2"}
    if not is_long:
        of.ranges('{"t":{"0":4}}', '{"t":{"0":5}}')
    with pytest.raises(InvalidRequestError, match=r"while it ran topic t was deleted and created again .*topics.json"):
        of.refuse_renewed()
    topics.ids = {}
    of.ranges('{"t":{"0":4}}', '{"t":{"0":5}}')
    of.refuse_renewed()
