"""Waiting for brokers, and saying so."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from freshet.logstore.kafka.cluster import ClusterAnswer
from freshet.pipeline.checks import kafka_reach
from freshet.pipeline.checks.kafka_reach import (
    Clusters,
    clusters,
    partition_counts,
    wait_for_brokers,
    watched_brokers,
)
from freshet.pipeline.config.model import SourceConfig
from freshet.pipeline.config.pipeline_file import PipelineConfig, parse_pipeline

TEXT = """\
name: orders
sources:
  - {kafka: {kafka.bootstrap.servers: "h:1", subscribe: a}, format: json}
  - {kafka: {kafka.bootstrap.servers: "h:1", subscribe: b}, format: json}
  - {files: {path: /in}, format: json}
table: {warehouse: /w, name: shop.orders, columns: {id: INT}}
checkpoint: /c
"""


@pytest.fixture
def config() -> PipelineConfig:
    found, problems = parse_pipeline(TEXT, "p.yaml", {})
    assert found is not None, problems
    return found


def answering(monkeypatch: pytest.MonkeyPatch, *failures: str | None) -> None:
    """The cluster answers so, one question after the other, and the last answer for ever."""
    left: Iterator[str | None] = iter(failures)

    class Cluster:
        def __init__(self, settings: object) -> None:
            del settings

        def ask(self, timeout_s: float) -> ClusterAnswer:
            return ClusterAnswer(failure=next(left, failures[-1]))

    monkeypatch.setattr(kafka_reach, "KafkaCluster", Cluster)


def test_each_cluster_counts_once(config: PipelineConfig) -> None:
    assert [brokers.servers for brokers in clusters([config, config])] == ["h:1"]


def test_waiting_is_said_once_and_its_end(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "refused", "refused", None)
    said: list[str] = []
    assert wait_for_brokers([config], say=said.append, stop=threading.Event(), pause_s=0)
    assert said == ["no broker answers at h:1 (refused); trying again until one does", "a broker answers at h:1"]


def test_a_client_is_kept_until_it_gets_no_answer(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, None, "gone", None)
    kept, (brokers,) = Clusters(), clusters([config])
    first = kept.of(brokers)
    assert [kept.ask(brokers).failure, kept.of(brokers) is first] == [None, True]
    assert [kept.ask(brokers).failure, kept.of(brokers) is first] == ["gone", False]


def test_who_waits_can_be_stopped(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "refused")
    stop = threading.Event()
    assert not wait_for_brokers([config], say=lambda text: stop.set(), stop=stop, pause_s=0)


def test_a_cluster_that_goes_away_and_comes_back_is_reported(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, None, "gone", "gone", None)
    said: list[str] = []
    back = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if "again" in text and text.startswith("a broker"):
            back.set()

    with watched_brokers([config], say=say, every_s=0.001):
        assert back.wait(300)
    assert said == [
        "no broker answers at h:1 any more (gone); trying again until one does",
        "a broker answers at h:1 again",
    ]


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("subscribe: b", 'subscribePattern: "^[ab]$"')])
def test_a_topic_that_was_created_again_while_a_pipeline_runs_is_reported(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, problems = parse_pipeline(text, "p.yaml", {})
    assert config is not None, problems
    answers = iter([{"a": "1"}, {"a": "1", "b": "7"}, {"b": "7"}])

    class Cluster:
        def __init__(self, settings: object) -> None:
            del settings

        def ask(self, timeout_s: float) -> ClusterAnswer:
            return ClusterAnswer(frozenset({"a", "b", "c", "ab"}))

        def topic_ids(self, names: set[str], timeout_s: float) -> dict[str, str]:
            assert names == {"a", "b"}
            return next(answers, {"a": "1", "b": "8"})

    monkeypatch.setattr(kafka_reach, "KafkaCluster", Cluster)
    reported: list[tuple[str, list[str]]] = []
    stopped = threading.Event()

    def on_renewed(found: PipelineConfig, topics: list[str]) -> None:
        reported.append((found.name, topics))
        stopped.set()

    with watched_brokers(
        [config], say=lambda _: None, every_s=0.001, topic_ids={"orders": {"a": "1"}}, on_renewed=on_renewed
    ):
        assert stopped.wait(300)
    assert reported[0] == ("orders", ["b"])


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        ({"subscribe": "a, b"}, {"a": 2, "b": 3}),
        ({"subscribePattern": "^[ab]$"}, {"a": 2, "b": 3}),
        ({"subscribePattern": "a"}, {"a": 2, "ab": 7}),  # a part of the name is enough
        ({"subscribePattern": "(?<x"}, {}),  # no pattern of Python
        ({"subscribe": "missing"}, {}),
        ({"assign": '{"b": [0, 1, 2]}'}, {"b": 3}),
    ],
)
def test_partitions_of_a_source_are_counted(
    subscription: dict[str, str], expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cluster:
        def __init__(self, settings: object) -> None:
            del settings

        def ask(self, timeout_s: float) -> ClusterAnswer:
            counts = {"a": 2, "b": 3, "ab": 7}
            return ClusterAnswer(frozenset(counts), counts)

    monkeypatch.setattr(kafka_reach, "KafkaCluster", Cluster)
    source = SourceConfig.model_validate(
        {"kafka": {"kafka.bootstrap.servers": "h:1", **subscription}, "format": "json"}
    )
    assert partition_counts(source) == expected


def test_files_have_no_partitions(config: PipelineConfig) -> None:
    assert partition_counts(config.sources[2]) == {}


def test_a_cluster_that_does_not_answer_has_no_known_partitions(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, "refused")
    assert partition_counts(config.sources[0]) == {}
