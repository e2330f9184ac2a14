"""Records that the Python workers read themselves, of a real broker: the same tables as with Spark's source.

Run by `test_own_sessions` in a process of its own: the session has the jars of Spark's Kafka source.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker, KafkaBroker
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.task.kafka_ranges import PASSED_OVER
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark import active_query, job
from freshet.pipeline.spark.column_way import ColumnWay
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.packed_way import PackedWay
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from tests.kit.kafka_broker import SecondBroker, create_replicated, leaders_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_NUMBERS = itertools.count()
Rows = dict[int, str]
KEYED = "primary_key: [id], options: {bucket: 2}"
KINDS = {
    "partitions": "primary_key: [v, id], partition_by: [v], options: {bucket: 2}",
    "dynamic": "primary_key: [id], options: {bucket: -1}",
    "dynamic, partitions": "primary_key: [v, id], partition_by: [v], options: {bucket: -1}",
    "moving": "primary_key: [id], partition_by: [v], options: {bucket: -1}",
    "postponed": "primary_key: [id], options: {bucket: -2}",
    "append": "options: {bucket: -1}",
    "append, buckets": "options: {bucket: 3, bucket-key: id}",
}


class Topic:
    """A topic, and what is sent to it."""

    def __init__(self, broker: ForeignBroker, kafka_partitions: int = 2, **config: str) -> None:
        self.broker, self.name = broker, f"direct-{os.getpid()}-{next(_NUMBERS)}"
        broker.create_topic(
            self.name,
            kafka_partitions=kafka_partitions,
            config={name.replace("_", "."): config[name] for name in config},
        )
        self.settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5}

    def send(self, *records: tuple[int, str], producer: Producer | None = None) -> None:
        own = producer or Producer(self.settings)
        for key, text in records:
            value = json.dumps({"id": key, "v": text}).encode()
            own.produce(self.name, value, key=str(key).encode(), partition=key % 2)
        assert own.flush(60) == 0

    def transaction(self, name: str) -> Producer:
        producer = Producer({**self.settings, "transactional.id": f"{self.name}-{name}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    def delete_before(self, partition: int, offset: int) -> None:
        admin = AdminClient(self.settings)
        place = TopicPartition(self.name, partition, offset)
        admin.delete_records([place])[place].result(60)


def run(
    spark: SparkSession,
    folder: Path,
    topic: Topic,
    read: str,
    table: str = KEYED,
    select: str = "{}",
    on_progress: Callable[[Progress], None] = lambda progress: None,
    **options: Any,
) -> list[Progress]:
    """One run of a pipeline to the end of the topic; `options` are those of the source."""
    kafka = {"kafka.bootstrap.servers": topic.broker.bootstrap_servers, "subscribe": topic.name, **options}
    kafka.setdefault("startingOffsets", "earliest")
    file = folder / f"{read}.yaml"
    file.write_text(
        f"""
name: {read}
sources:
  - kafka: {json.dumps(kafka)}
    format: json
    read: {read}
    select: {select}
table: {{warehouse: "{folder}/lake", name: db.{read}, columns: {{id: BIGINT, v: STRING}}, {table}}}
dead_letters: db.{read}_dead
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint-{read}"
"""
    )
    reported: list[Progress] = []

    def note(progress: Progress) -> None:
        reported.append(progress)
        on_progress(progress)

    spark_runner(spark, load_pipelines([file]), on_progress=note).run()
    return reported


def rows(folder: Path, read: str) -> Rows:
    found = Catalog(f"{folder}/lake").table(f"db.{read}").scan().to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in found}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = create_session("direct", settings=SHORT_LIVED, master="local[2]", jars=ensure_jars(SPARK_GROUP))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Ranges]:
    """The ranges that were read without Spark: a batch that was not would prove nothing."""
    found: list[Ranges] = []

    def noted(ranges: Ranges) -> Ranges:
        found.append(ranges)
        return ranges

    change_ranges(monkeypatch, noted)
    return found


def after_planning(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Does something between the plan of a batch and its job."""
    planned = job._planned_ranges

    def late(query: Any, *most: float) -> Ranges | None:
        ranges = planned(query, *most)
        do()
        return ranges

    monkeypatch.setattr(job, "_planned_ranges", late)


def change_ranges(monkeypatch: pytest.MonkeyPatch, change: Callable[[Ranges], Ranges]) -> None:
    """The workers read other ranges than the batch has."""
    for way in (PackedWay, ColumnWay):
        tasks = way.tasks_of_ranges

        def changed(self: Any, spark: Any, direct: Any, ranges: Ranges, tasks: Any = tasks) -> Any:
            return tasks(self, spark, direct, change(ranges))

        monkeypatch.setattr(way, "tasks_of_ranges", changed)


def both(spark: SparkSession, folder: Path, topic: Topic, taken: list[Ranges], **options: Any) -> Rows:
    """What both readers make of the topic, which must be the same."""
    run(spark, folder, topic, "spark", **options)
    assert not taken
    run(spark, folder, topic, "python", **options)
    assert taken
    found = rows(folder, "python")
    assert found == rows(folder, "spark")
    return found


def test_batches_with_limits_and_a_second_run(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges]
) -> None:
    topic = Topic(kafka_broker)
    topic.send(*((key, f"a{key}") for key in range(300)))
    both(spark, tmp_path, topic, taken, maxOffsetsPerTrigger="70", minPartitions="5")
    assert len(taken) >= 5, "batches"
    assert max(len(each) for ranges in taken for each in ranges.values()) > 2, "a partition in several tasks"
    topic.send(*((key, f"b{key}") for key in range(0, 300, 3)))
    taken.clear()
    found = both(spark, tmp_path, topic, taken)
    assert found == {key: f"{'a' if key % 3 else 'b'}{key}" for key in range(300)}


def test_ranges_are_those_that_spark_says_call_by_call(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(kafka_broker)
    topic.send(*((key, f"a{key}") for key in range(300)))
    compared: list[tuple[Any, Any]] = []
    by_text, by_calls = active_query._ranges, active_query._ranges_by_calls

    def both_ways(parts: Any) -> Any:
        calls = by_calls(parts)
        monkeypatch.setattr(active_query, "_ranges_by_calls", None)
        compared.append((by_text(parts), calls))
        monkeypatch.setattr(active_query, "_ranges_by_calls", by_calls)
        return calls

    monkeypatch.setattr(active_query, "_ranges", both_ways)
    run(spark, tmp_path, topic, "python", maxOffsetsPerTrigger="70", minPartitions="5")
    assert len(compared) >= 5 and all(text == calls and text for text, calls in compared)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges], isolation: str
) -> None:
    """Markers end the partitions, some of aborted transactions; one transaction is open."""
    topic = Topic(kafka_broker)
    topic.send((0, "plain"), (1, "plain"))
    committed = topic.transaction("committed")
    topic.send((2, "committed"), (3, "committed"), producer=committed)
    committed.commit_transaction(60)
    aborted = topic.transaction("aborted")
    topic.send((4, "aborted"), (5, "aborted"), (0, "aborted"), producer=aborted)
    aborted.abort_transaction(60)
    found = both(spark, tmp_path, topic, taken, **{"kafka.isolation.level": isolation})
    sees_all = isolation == "read_uncommitted"
    assert found.get(4) == ("aborted" if sees_all else None)
    assert found[0] == ("aborted" if sees_all else "plain") and found[3] == "committed"
    is_open = topic.transaction("open")
    topic.send((6, "open"), (7, "open"), producer=is_open)
    topic.send((8, "behind"), (9, "behind"))
    taken.clear()
    run(spark, tmp_path, topic, "spark", **{"kafka.isolation.level": isolation})
    run(spark, tmp_path, topic, "python", **{"kafka.isolation.level": isolation})
    assert rows(tmp_path, "python") == rows(tmp_path, "spark")
    assert (6 in rows(tmp_path, "python")) is sees_all
    is_open.abort_transaction(60)
    run(spark, tmp_path, topic, "spark", **{"kafka.isolation.level": isolation})
    run(spark, tmp_path, topic, "python", **{"kafka.isolation.level": isolation})
    found = rows(tmp_path, "python")
    assert found == rows(tmp_path, "spark") and found[8] == "behind"


def test_a_compacted_topic(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges]
) -> None:
    """Offsets have gaps, and the last ones of the older segments are gone."""
    config = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
    topic = Topic(kafka_broker, **config, max_compaction_lag_ms="100")
    for number in range(4):
        topic.send(*((key, f"{number}-{key}") for key in range(40)))
        time.sleep(0.3)
    topic.send((1000, "last"), (1001, "last"))
    found = both(spark, tmp_path, topic, taken, maxOffsetsPerTrigger="33")
    assert found == {key: f"3-{key}" for key in range(40)} | {1000: "last", 1001: "last"}


def test_large_records(spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges]) -> None:
    topic, chance = Topic(kafka_broker), random.Random(3)
    topic.send(*((key, chance.randbytes(50_000).hex()) for key in range(60)))
    assert len(both(spark, tmp_path, topic, taken)) == 60


def test_leaders_that_move_while_a_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Two brokers, each the leader of a partition; one of them dies while a batch is read. Spark's source, which takes
    87 s where this takes 19, gives the same table."""
    with KafkaBroker.start() as first, SecondBroker.start(first=first) as second:
        topic = Topic.__new__(Topic)
        topic.broker, topic.name = first, f"direct-{os.getpid()}-moves"
        servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        topic.settings = {"bootstrap.servers": servers, "linger.ms": 5, "acks": "all"}
        create_replicated(first, topic.name, [1, 2])
        topic.send(*((key, f"a{key}") for key in range(40_000)))
        reported: list[Progress] = []
        dying = threading.Timer(0.1, second.kill)

        def note(progress: Progress) -> None:
            reported.append(progress)
            if len(reported) == 2:
                dying.start()

        options = {"maxOffsetsPerTrigger": "5000", "kafka.bootstrap.servers": servers}
        run(spark, tmp_path, topic, "python", on_progress=note, **options)
        dying.join()
        assert len(reported) >= 8
        assert leaders_of(first, topic.name) == [1, 1]
        assert rows(tmp_path, "python") == {key: f"a{key}" for key in range(40_000)}


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        ("python", "topic NAME partition 0 offsets 0 to 50: offset 0 is not in Kafka, which has 20 to 50: "),
        ("spark", "topic NAME partition 0 offsets 0 to 50 are not in Kafka any more: "),
    ],
    ids=["python", "spark"],
)
def test_records_that_are_deleted_while_a_query_stands_still(
    spark: SparkSession,
    kafka_broker: ForeignBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: str,
    wanted: str,
) -> None:
    """Spark finds them there when it plans; when the tasks read they are gone."""
    topic = Topic(kafka_broker)
    topic.send(*((key, "a") for key in range(100)))

    after_planning(monkeypatch, lambda: topic.delete_before(0, 20))
    with pytest.raises(
        PipelineFailedError, match=wanted.replace("NAME", topic.name) + "records were deleted by"
    ) as said:
        run(spark, tmp_path, topic, read)
    assert "go on without it, set failOnDataLoss: false" in str(said.value) and "\n" not in str(said.value)
    assert said.value.exit_code == 65
    assert rows(tmp_path, read) == {}
    monkeypatch.undo()
    topic.send((200, "b"), (201, "b"))
    lost = Topic(kafka_broker)
    lost.send(*((key, "a") for key in range(100)))
    after_planning(monkeypatch, lambda: lost.delete_before(0, 20))
    (tmp_path / "lossy").mkdir()
    reported = run(spark, tmp_path / "lossy", lost, read, failOnDataLoss="false")
    assert set(rows(tmp_path / "lossy", read)) == {key for key in range(100) if key % 2 or key >= 40}
    if read == "python":
        assert sum(each.report.result.notes.get(PASSED_OVER, 0) for each in reported) == 20


def test_a_task_that_stops_too_early_commits_nothing(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(kafka_broker)
    topic.send(*((key, "a") for key in range(10)))
    change_ranges(monkeypatch, lambda ranges: {index: of[:1] for index, of in ranges.items()})
    with pytest.raises(PipelineFailedError, match="the task that read them came to offset 0; nothing was committed"):
        run(spark, tmp_path, topic, "python")
    assert rows(tmp_path, "python") == {}


def test_small_batches_are_left_to_spark(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges]
) -> None:
    topic = Topic(kafka_broker)
    topic.send((1, "a"))
    run(spark, tmp_path, topic, "auto")
    assert not taken and rows(tmp_path, "auto") == {1: "a"}
    topic.send(*((key, "b") for key in range(20_000)))
    run(spark, tmp_path, topic, "auto")
    assert taken and len(rows(tmp_path, "auto")) == 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_table(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges], kind: str
) -> None:
    """Two batches each, some records of which are dead letters."""
    topic = Topic(kafka_broker)
    for _ in range(2):
        topic.send(*((key, "abc"[key % 3]) for key in range(40)))
        producer = Producer(topic.settings)
        for text in (b"no JSON", b'{"id": "x", "v": "a"}'):
            producer.produce(topic.name, text, partition=0)
        assert producer.flush(60) == 0
        for read in ("spark", "python"):
            reported = run(spark, tmp_path, topic, read, KINDS[kind])
            assert sum(each.report.result.dead_count for each in reported) == 2
    assert taken
    tables = {read: Catalog(f"{tmp_path}/lake").table(f"db.{read}") for read in ("spark", "python")}
    for table in tables.values():
        table.compact(full=True)
    found = {read: sorted(map(repr, table.scan().to_arrow().to_pylist())) for read, table in tables.items()}
    assert found["python"] == found["spark"] and len(found["spark"]) == (80 if "append" in kind else 40)
    counts = [Catalog(f"{tmp_path}/lake").table(f"db.{read}_dead").scan().count() for read in tables]
    assert counts == [4, 4]


def test_columns_that_spark_computes(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, taken: list[Ranges]
) -> None:
    topic = Topic(kafka_broker)
    topic.send(*((key, "a") for key in range(40)))
    for read in ("spark", "python"):
        run(spark, tmp_path, topic, read, select='{id: id + 1000, v: "concat(v, _topic)"}')
    assert taken and rows(tmp_path, "python") == rows(tmp_path, "spark")
    assert rows(tmp_path, "python")[1000] == f"a{topic.name}"
