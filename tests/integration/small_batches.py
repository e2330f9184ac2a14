"""Small batches that one task reads, decodes and writes: the same tables as by two stages, of a real broker.

Run by `test_own_sessions` in a process of its own: the session has the jars of Spark's Kafka source.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark import job
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.pipeline.spark.single_stage import RECORDS_MAX
from tests.integration.direct_reads import KEYED, KINDS, Topic, after_planning
from tests.pipeline.records import change

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

WAYS = ("one", "two")
ALL_KINDS = {
    "keyed": KEYED,
    "one bucket": "primary_key: [id], options: {bucket: 1, changelog-producer: lookup}",
    "many buckets": "primary_key: [id], options: {bucket: 16}",
    **KINDS,
}
IN_SEVERAL_TASKS = {"dynamic", "dynamic, partitions", "moving", "postponed"}
SOURCE = """
  - kafka: {kafka}
    format: {format}
    read: {read}
    {rest}
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = create_session("small", settings=SHORT_LIVED, master="local[2]", jars=ensure_jars(SPARK_GROUP))
    yield session
    session.stop()


class Pipelines:
    """Two pipelines of the same topics: one's small batches are one task, the other's two stages."""

    def __init__(self, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._spark, self._patch, self.folder = spark, patch, folder
        self._small = job.is_small
        self.source: dict[str, Any] = {"format": "json", "read": "auto", "rest": ""}
        self.table = KEYED
        self.columns = "{id: BIGINT, v: STRING}"

    def by(self, way: str) -> None:
        """Batches go this way from now on."""
        self._patch.setattr(job, "is_small", self._small if way == "one" else lambda *_: False)

    def run(self, name: str, *topics: Topic, way: str | None = None, **options: Any) -> list[Progress]:
        """One run of a pipeline to the end of its topics."""
        self.by(way or name)
        sources = ""
        for topic in topics:
            kafka = {"kafka.bootstrap.servers": topic.broker.bootstrap_servers, "subscribe": topic.name, **options}
            sources += SOURCE.format(kafka=json.dumps({"startingOffsets": "earliest", **kafka}), **self.source)
        file = self.folder / f"{name}.yaml"
        file.write_text(
            f"""
name: {name}
sources:{sources}
table: {{warehouse: "{self.folder}/lake", name: db.{name}, columns: {self.columns}, {self.table}}}
dead_letters: db.{name}_dead
trigger: {{available_now: true}}
checkpoint: "{self.folder}/checkpoint-{name}"
"""
        )
        reported: list[Progress] = []
        spark_runner(self._spark, load_pipelines([file]), on_progress=reported.append).run()
        return reported

    def rows(self, name: str) -> list[str]:
        """Of the table, as texts in order; those of postponed buckets are placed first."""
        table = Catalog(f"{self.folder}/lake").table(f"db.{name}")
        table.compact(full=True)
        return sorted(map(repr, table.scan().to_arrow().to_pylist()))

    def dead(self, name: str) -> list[tuple[Any, ...]]:
        rows = Catalog(f"{self.folder}/lake").table(f"db.{name}_dead").scan().to_arrow().to_pylist()
        return sorted((row["kafka_partition"], row["log_offset"], row["raw_value"], row["reason"]) for row in rows)

    def same_rows(self) -> list[str]:
        """The rows of both tables, which are the same, as their dead letters are."""
        found = self.rows("one")
        assert found == self.rows("two")
        assert self.dead("one") == self.dead("two")
        return found


@pytest.fixture
def pipelines(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    return Pipelines(spark, tmp_path, monkeypatch)


def task_counts(reported: list[Progress]) -> list[int]:
    return [each.report.task_count for each in reported]


def counted(reported: list[Progress]) -> list[tuple[Any, ...]]:
    """What batches say of their records."""
    results = [(each.report.micro_batch_id, each.report.result) for each in reported]
    return [(number, r.read_count, r.applied, r.dead, r.skipped, r.first_dead, r.row_count) for number, r in results]


def send_round(topic: Topic, number: int) -> None:
    """Rows, keys that come several times and in both partitions, and records that become dead letters."""
    topic.send(*((key, "abc"[(key + number) % 3]) for key in range(40)))
    producer = Producer(topic.settings)
    for partition, value in itertools.product((1, 0), ({"id": 7, "v": "c"}, {"id": 8, "v": "b"}, {"id": 7, "v": "a"})):
        producer.produce(topic.name, json.dumps(value).encode(), partition=partition)
    for text in (b"no JSON", b'{"id": "x", "v": "a"}'):
        producer.produce(topic.name, text, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_each_kind_of_table(pipelines: Pipelines, kafka_broker: ForeignBroker, kind: str) -> None:
    topic = Topic(kafka_broker)
    pipelines.table = ALL_KINDS[kind]
    for number in range(2):
        send_round(topic, number)
        one, two = (pipelines.run(way, topic) for way in WAYS)
        assert counted(one) == counted(two)
        assert sum(each.report.result.dead_count for each in one) == 2
        if kind not in IN_SEVERAL_TASKS:
            assert task_counts(one) == [1]
            assert sum(map(len, (each.report.snapshot_ids for each in one))) >= 1
    found = pipelines.same_rows()
    if "append" not in kind and "partition_by" not in ALL_KINDS[kind]:
        assert len(found) == 40


@pytest.mark.parametrize("rest", ['select: {id: id + 1000, v: "concat(v, _topic)"}', "select: {id: id, v: v}"])
def test_columns_that_are_selected(pipelines: Pipelines, kafka_broker: ForeignBroker, rest: str) -> None:
    topic = Topic(kafka_broker)
    send_round(topic, 0)
    pipelines.source["rest"] = rest
    one, two = (pipelines.run(way, topic) for way in WAYS)
    assert task_counts(one) == [1] and task_counts(two) == [2]
    assert counted(one) == counted(two)
    assert len(pipelines.same_rows()) == 40


@pytest.mark.parametrize("read", ["auto", "spark"])
def test_two_sources(pipelines: Pipelines, kafka_broker: ForeignBroker, read: str) -> None:
    """Both have records, then one of them, then the other."""
    topics = [Topic(kafka_broker), Topic(kafka_broker)]
    pipelines.source["read"] = read
    for number, sent in enumerate([topics, topics[:1], topics[1:]]):
        for topic in sent:
            send_round(topic, number)
        one, two = (pipelines.run(way, *topics) for way in WAYS)
        assert task_counts(one) == [1] and counted(one) == counted(two)
    assert len(pipelines.same_rows()) == 40


def test_batches_that_grow_and_shrink_again(pipelines: Pipelines, kafka_broker: ForeignBroker) -> None:
    topic = Topic(kafka_broker)
    sizes = [100, RECORDS_MAX + 500, 100]
    for number, size in enumerate(sizes):
        topic.send(*((key, f"{number}") for key in range(size)))
        assert task_counts(pipelines.run("one", topic)) == [1 if size == 100 else 2]
    pipelines.run("two", topic)
    assert len(pipelines.same_rows()) == RECORDS_MAX + 500


class CrashError(Exception):
    """The driver is gone."""


@pytest.mark.parametrize("point", ["before the rows are committed", "before Spark's checkpoint"])
@pytest.mark.parametrize(("begun", "ended"), [("one", "two"), ("two", "one"), ("one", "one")])
def test_a_batch_is_finished_the_other_way(
    pipelines: Pipelines,
    kafka_broker: ForeignBroker,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    begun: str,
    ended: str,
) -> None:
    """What is replayed was begun by another number of tasks; its dead letters are committed already."""
    topic = Topic(kafka_broker)
    for name in WAYS:
        send_round(topic, 0)
        pipelines.run(name, topic)
    send_round(topic, 1)
    pipelines.run("two", topic)
    commit = TableCommit.commit

    def crashing(table: TableCommit, *arguments: Any) -> Any:
        if point == "before Spark's checkpoint":
            commit(table, *arguments)
        raise CrashError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", crashing)
        with pytest.raises(PipelineFailedError, match="power cut"):
            pipelines.run("one", topic, way=begun)
    replayed = pipelines.run("one", topic, way=ended)
    is_done = point == "before Spark's checkpoint"
    assert [each.report.is_replay for each in replayed][:1] == [is_done]
    if not is_done:
        assert task_counts(replayed) == [1 if ended == "one" else 2]
    assert len(pipelines.same_rows()) == 40


def test_a_commit_that_spark_forgot(pipelines: Pipelines, kafka_broker: ForeignBroker) -> None:
    """The table has the batch, the checkpoint has not: nothing is run again."""
    topic = Topic(kafka_broker)
    send_round(topic, 0)
    pipelines.run("one", topic)
    before = pipelines.rows("one")
    shutil.rmtree(pipelines.folder / "checkpoint-one" / "commits")
    assert [each.report.is_replay for each in pipelines.run("one", topic)] == [True]
    assert pipelines.rows("one") == before and len(pipelines.dead("one")) == 2


def test_truncates(pipelines: Pipelines, kafka_broker: ForeignBroker) -> None:
    """The job of the batch runs twice, the second time upon an empty table."""
    topic = Topic(kafka_broker, kafka_partitions=1)
    pipelines.source |= {"format": "debezium-json", "rest": "on_truncate: apply"}

    def send(*records: bytes | None) -> None:
        producer = Producer(topic.settings)
        for record in records:
            producer.produce(topic.name, record, partition=0)
        assert producer.flush(60) == 0

    def row(key: int) -> bytes:
        return json.dumps(change("c", None, {"id": key, "v": "a"})).encode()

    send(*(row(key) for key in range(10)))
    for way in WAYS:
        pipelines.run(way, topic)
    send(row(20), json.dumps(change("t", None, None)).encode(), row(21), row(22))
    one, two = (pipelines.run(way, topic) for way in WAYS)
    assert task_counts(one) == [1] and counted(one) == counted(two)
    assert pipelines.same_rows() == ["{'id': 21, 'v': 'a'}", "{'id': 22, 'v': 'a'}"]


def test_too_many_dead_letters(pipelines: Pipelines, kafka_broker: ForeignBroker) -> None:
    """The limit holds: nothing is committed."""
    topic = Topic(kafka_broker)
    send_round(topic, 0)
    pipelines.table = f"{KEYED}}}\nmax_dead_letters: {{count: 1"
    with pytest.raises(PipelineFailedError, match="dead letters"):
        pipelines.run("one", topic)
    assert not pipelines.rows("one") and not pipelines.dead("one")


def test_records_that_are_gone(
    pipelines: Pipelines, kafka_broker: ForeignBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`failOnDataLoss` is Spark's here as well."""
    for fails, message in (("true", "failOnDataLoss"), ("false", None)):
        topic = Topic(kafka_broker)
        topic.send(*((key, "a") for key in range(100)))
        pipelines.folder = pipelines.folder / fails
        pipelines.folder.mkdir()
        with monkeypatch.context() as patch:
            after_planning(patch, lambda topic=topic: topic.delete_before(0, 20))  # type: ignore[misc]
            if message is not None:
                with pytest.raises(PipelineFailedError, match=message):
                    pipelines.run("one", topic, failOnDataLoss=fails)
                assert not pipelines.rows("one")
                continue
            assert task_counts(pipelines.run("one", topic, failOnDataLoss=fails)) == [1]
        assert len(pipelines.rows("one")) == 80
