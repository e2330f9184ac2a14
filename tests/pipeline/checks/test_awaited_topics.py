"""Waiting for topics, and saying so."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from freshet.logstore.kafka.cluster import ClusterAnswer
from freshet.pipeline.checks import kafka_reach
from freshet.pipeline.checks.kafka_reach import wait_for_topics
from freshet.pipeline.config.pipeline_file import PipelineConfig, parse_pipeline
from freshet.storage.exceptions import RetryableError

TEXT = """\
name: orders
sources:
  - {kafka: {kafka.bootstrap.servers: "h:1", subscribe: "a,b"}, format: json}
  - {kafka: {kafka.bootstrap.servers: "h:1", subscribePattern: "z.*"}, format: json}
table: {warehouse: /w, name: shop.orders, columns: {id: INT}}
checkpoint: /c
"""


@pytest.fixture
def config() -> PipelineConfig:
    found, problems = parse_pipeline(TEXT, "p.yaml", {})
    assert found is not None, problems
    return found


class Seconds:
    """A clock that goes on by one second with each question."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def answering(monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
    """The topics of the cluster, one answer after the other, and the last for ever."""
    left: Iterator[str] = iter(topics)

    class Cluster:
        def __init__(self, settings: object) -> None:
            del settings

        def ask(self, timeout_s: float) -> ClusterAnswer:
            return ClusterAnswer(frozenset(next(left, topics[-1])))

    monkeypatch.setattr(kafka_reach, "KafkaCluster", Cluster)


def test_topics_that_are_there_are_not_waited_for(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "abc")
    said: list[str] = []
    assert wait_for_topics([config], wait_s=0, say=said.append, stop=threading.Event()) and not said


def test_waiting_is_reported_every_ten_seconds_and_its_end(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, *["a"] * 13, "ab")
    said: list[str] = []
    assert wait_for_topics([config], wait_s=300, say=said.append, stop=threading.Event(), look_s=0, clock=Seconds())
    assert said[0] == "there is no topic b at h:1 (orders); waiting for it, 299 s at most"
    assert 1 < len(said) - 1 < 5 and said[-1] == "all topics are there"


def test_a_long_enough_wait_ends_with_what_to_do(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "")
    with pytest.raises(
        RetryableError, match=r"no topic a at h:1 \(orders\), b at h:1 \(orders\) after 20 s; nothing was"
    ):
        wait_for_topics([config], wait_s=20, say=str, stop=threading.Event(), look_s=0, clock=Seconds())
    with pytest.raises(RetryableError, match=r"b at h:1 \(orders\); nothing was started"):
        wait_for_topics([config], wait_s=0, say=str, stop=threading.Event())


def test_who_waits_can_be_stopped(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "a")
    stop = threading.Event()
    assert not wait_for_topics([config], wait_s=300, say=lambda text: stop.set(), stop=stop)
