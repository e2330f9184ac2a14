"""Transactions of Kafka, of a real broker: what was aborted is no row, whoever reads it, and what checkpoints of before
have planned is read as it was planned.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.planned_isolation import ISOLATION_FILE
from tests.integration.source_world import SyncWorld, TableWorld
from tests.kit.source_database import SourceTable

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

EVERY_KIND = pytest.mark.parametrize("kind", ["table, spark", "table, python", "sync, spark", "sync, python"])
BOTH_READERS = pytest.mark.parametrize("kind", ["table, spark", "sync, python"])
UNCOMMITTED = "read_uncommitted"


class Transaction(NamedTuple):
    """An open transaction, and the topic of its records."""

    producer: Producer
    topic: str

    def send(self, source: SourceTable, *keys: int) -> None:
        for key, value in source.upsert(*({"id": each, "n": each} for each in keys)):
            self.producer.produce(self.topic, value, key=key)
        assert self.producer.flush(60) == 0

    def abort(self) -> None:
        self.producer.abort_transaction(60)

    def commit(self) -> None:
        self.producer.commit_transaction(60)


class Pipeline:
    """A topic with one partition, and a pipeline of one of the kinds that reads it."""

    def __init__(self, kind: str, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        shape, self.read = kind.split(", ")
        self.isolation: str | None = None
        self.world: Any
        if shape == "sync":
            self.world = SyncWorld(spark, broker, folder)
            self.source = self.world.table("t", {"id": "int", "n": "int"}, kafka_partitions=1)
        else:
            self.world = TableWorld(spark, broker, folder)
            self.source = self.world.source
        self.world.read = self.read
        self.topic, self.folder = self.source.topic, folder

    @property
    def file(self) -> Path:
        file: Path = self.world.file
        own = "" if self.isolation is None else f", kafka.isolation.level: {self.isolation}"
        file.write_text(file.read_text().replace("startingOffsets: earliest", f"startingOffsets: earliest{own}"))
        return file

    def run(self) -> None:
        self.world.run(self.file)

    def send(self, *keys: int) -> None:
        self.world.send_to(self.topic, self.source.upsert(*({"id": each, "n": each} for each in keys)))

    def begin(self, name: str = "x") -> Transaction:
        own = {"transactional.id": f"{self.topic}-{name}", "log_level": 0}
        producer = Producer({"bootstrap.servers": self.world.broker.bootstrap_servers, **own})
        producer.init_transactions(60)
        producer.begin_transaction()
        return Transaction(producer, self.topic)

    def keys(self) -> set[int]:
        rows = self.world.rows("t") if isinstance(self.world, SyncWorld) else self.world.rows()
        return set(rows)

    def forget_isolation(self) -> None:
        """The checkpoint is as the head before has left it, whose files said nothing of isolation."""
        (self.folder / "c" / ISOLATION_FILE).unlink()
        self.isolation = None

    def fail_to_commit(self) -> None:
        """A run that plans a batch and dies before its rows are committed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableCommit, "commit", _dying)
            with pytest.raises(PipelineFailedError, match="the driver dies"):
                self.run()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A run beside the block, which begins when it has said that it waits; it has ended well behind it."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                self.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            while thread.is_alive() and not self.waited:
                time.sleep(0.05)
            yield
        finally:
            thread.join()
        assert not failures, failures

    @property
    def waited(self) -> list[str]:
        return [text for text in self.world.said if "waits for an open transaction since 2" in text]


def _dying(*arguments: Any) -> None:
    raise OSError("the driver dies")


@pytest.fixture
def pipeline(kind: str, kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path) -> Pipeline:
    return Pipeline(kind, kafka_spark, kafka_broker, tmp_path)


@EVERY_KIND
def test_records_of_aborted_transactions_are_no_rows(pipeline: Pipeline) -> None:
    """Nor do they, or what ends a transaction, have a run wait where they are the last of a topic; one that ends before
    an open transaction says so."""
    pipeline.send(1)
    committed, aborted, begun = pipeline.begin("a"), pipeline.begin("b"), pipeline.begin("c")
    committed.send(pipeline.source, 2)
    committed.commit()
    aborted.send(pipeline.source, 1, 3)
    aborted.abort()
    pipeline.run()
    assert pipeline.keys() == {1, 2} and not pipeline.waited
    begun.send(pipeline.source, 4)
    pipeline.send(5)
    pipeline.run()
    assert pipeline.keys() == {1, 2}
    (text,) = pipeline.waited
    assert f": topic {pipeline.topic} partition 0, offsets 6 to 7. It ends when its producer commits" in text
    begun.commit()
    pipeline.run()
    assert pipeline.keys() == {1, 2, 4, 5} and len(pipeline.waited) == 1


@BOTH_READERS
def test_uncommitted_records_are_read_where_a_file_says_so(pipeline: Pipeline) -> None:
    pipeline.isolation = UNCOMMITTED
    begun = pipeline.begin()
    begun.send(pipeline.source, 1)
    pipeline.run()
    assert pipeline.keys() == {1} and not pipeline.waited
    begun.abort()


@pytest.mark.parametrize(
    ("kind", "is_planned", "end"),
    [
        ("table, spark", True, "abort"),
        ("table, python", True, "abort"),
        ("sync, spark", True, "abort"),
        ("sync, python", True, "abort"),
        ("table, spark", False, "abort"),
        ("sync, python", False, "commit"),
    ],
)
def test_a_checkpoint_of_before_that_ends_inside_a_transaction_is_continued(
    pipeline: Pipeline, is_planned: bool, end: str
) -> None:
    """Its batches are read as they were planned, and what follows once the transaction has ended."""
    pipeline.isolation = UNCOMMITTED
    pipeline.send(1)
    pipeline.run()
    begun = pipeline.begin()
    begun.send(pipeline.source, 2)
    if is_planned:
        pipeline.fail_to_commit()
    else:
        pipeline.run()
        assert pipeline.keys() == {1, 2}
    pipeline.forget_isolation()
    begun.send(pipeline.source, 3)
    pipeline.send(4)
    with pipeline.running():
        assert pipeline.waited
        getattr(begun, end)()
    assert pipeline.keys() == {1, 2, 4} | ({3} if end == "commit" else set())
    aborted = pipeline.begin()
    aborted.send(pipeline.source, 5)
    aborted.abort()
    pipeline.run()
    assert 5 not in pipeline.keys()


@BOTH_READERS
def test_a_batch_is_run_again_as_it_was_planned_however_often_the_file_changes(pipeline: Pipeline) -> None:
    begun = pipeline.begin()
    begun.send(pipeline.source, 1)
    begun.abort()
    pipeline.send(2)
    pipeline.fail_to_commit()
    pipeline.isolation = UNCOMMITTED
    pipeline.fail_to_commit()
    begun = pipeline.begin()
    begun.send(pipeline.source, 3)
    pipeline.run()
    assert pipeline.keys() == {2, 3}
    begun.abort()


def test_a_table_that_was_set_apart_is_brought_up_without_what_was_aborted(
    kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path
) -> None:
    """Its records lie before the end of a batch that was planned inside a transaction."""
    pipeline = Pipeline("sync, python", kafka_spark, kafka_broker, tmp_path)
    pipeline.isolation = UNCOMMITTED
    pipeline.send(1)
    pipeline.run()
    damaged = pipeline.world.take_manifest_list("t")
    begun = pipeline.begin()
    begun.send(pipeline.source, 2)
    pipeline.send(3)
    pipeline.run()
    damaged.rename(damaged.with_name(damaged.name.removesuffix(".away")))
    pipeline.isolation = None
    ending = threading.Timer(2, begun.abort)
    ending.start()
    pipeline.world.resume("lake.t")
    ending.join()
    assert pipeline.keys() == {1, 3}
