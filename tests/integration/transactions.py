"""Transactions of Kafka, of a real broker: what was aborted is no row, whoever reads it, and what checkpoints of before
have planned is read as it was planned.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.planned_isolation import ISOLATION_FILE
from freshet.pipeline.query.driver.table_commit import TableCommit
from tests.integration.source_world import SyncWorld, TableWorld
from tests.kit.transactions import Transaction

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

EVERY_KIND = pytest.mark.parametrize("kind", ["table, spark", "table, python", "sync, spark", "sync, python"])
BOTH_READERS = pytest.mark.parametrize("kind", ["table, spark", "sync, python"])
UNCOMMITTED = "read_uncommitted"


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

    def begin(self, *keys: int) -> Transaction:
        """A transaction with records of these keys."""
        begun = Transaction(self.world.broker.bootstrap_servers, self.topic)
        self.send_in(begun, *keys)
        return begun

    def send_in(self, begun: Transaction, *keys: int) -> None:
        begun.send(self.source.upsert(*({"id": each, "n": each} for each in keys)))

    def ids(self) -> set[int]:
        """Those of the rows of the table."""
        return set(self.world.rows("t") if isinstance(self.world, SyncWorld) else self.world.rows())

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
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(self.run)
            while not run.done() and not self.waited:
                time.sleep(0.05)
            yield
            run.result()

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
    pipeline.begin(2).commit()
    pipeline.begin(1, 3).abort()
    pipeline.run()
    assert pipeline.ids() == {1, 2} and not pipeline.waited
    begun = pipeline.begin(4)
    pipeline.send(5)
    pipeline.run()
    assert pipeline.ids() == {1, 2}
    (text,) = pipeline.waited
    assert f": topic {pipeline.topic} partition 0, offsets 6 to 7. It ends when its producer commits" in text
    begun.commit()
    pipeline.run()
    assert pipeline.ids() == {1, 2, 4, 5} and len(pipeline.waited) == 1


@BOTH_READERS
def test_uncommitted_records_are_read_where_a_file_says_so(pipeline: Pipeline) -> None:
    pipeline.isolation = UNCOMMITTED
    begun = pipeline.begin(1)
    pipeline.run()
    assert pipeline.ids() == {1} and not pipeline.waited
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
    begun = pipeline.begin(2)
    if is_planned:
        pipeline.fail_to_commit()
    else:
        pipeline.run()
        assert pipeline.ids() == {1, 2}
    pipeline.forget_isolation()
    pipeline.send_in(begun, 3)
    pipeline.send(4)
    with pipeline.running():
        assert pipeline.waited
        getattr(begun, end)()
    assert pipeline.ids() == {1, 2, 4} | ({3} if end == "commit" else set())
    pipeline.begin(5).abort()
    pipeline.run()
    assert 5 not in pipeline.ids()


@BOTH_READERS
def test_a_batch_is_run_again_as_it_was_planned_however_often_the_file_changes(pipeline: Pipeline) -> None:
    pipeline.begin(1).abort()
    pipeline.send(2)
    pipeline.fail_to_commit()
    pipeline.isolation = UNCOMMITTED
    pipeline.fail_to_commit()
    begun = pipeline.begin(3)
    pipeline.run()
    assert pipeline.ids() == {2, 3}
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
    begun = pipeline.begin(2)
    pipeline.send(3)
    pipeline.run()
    damaged.rename(damaged.with_name(damaged.name.removesuffix(".away")))
    pipeline.isolation = None
    ending = threading.Timer(2, begun.abort)
    ending.start()
    pipeline.world.resume("lake.t")
    ending.join()
    assert pipeline.ids() == {1, 3}
