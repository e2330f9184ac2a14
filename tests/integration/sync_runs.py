"""Many tables by one query, of a real broker. Run by `test_sync` in a process of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from tests.kit.kafka_broker import any_broker
from tests.kit.source_database import Row, SourceTable

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_NUMBERS = itertools.count()


class World:
    """A database in a warehouse of its own, and the pipeline between the two."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.db = f"db{os.getpid()}x{next(_NUMBERS)}"
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        self.tables: dict[str, SourceTable] = {}
        self.progress: list[Progress] = []
        self.read = "spark"
        self.rules = f"[{{from: '{self.db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]"
        self.more = ""

    def table(self, name: str, columns: dict[str, str], *, with_schema: bool = True) -> SourceTable:
        found = SourceTable(self.db, "public", name, columns, with_schema=with_schema)
        self.tables[name] = found
        self.broker.create_topic(found.topic, kafka_partitions=2)
        return found

    def send(self, table: SourceTable, records: Sequence[tuple[bytes, bytes | None]], topic: str | None = None) -> None:
        for key, value in records:
            self.producer.produce(topic or table.topic, value, key=key)
        assert self.producer.flush(60) == 0

    @property
    def file(self) -> Path:
        path = self.folder / "shop.yaml"
        path.write_text(
            f"""
name: shop
sync:
  source:
    kafka: {{kafka.bootstrap.servers: '{self.broker.bootstrap_servers}', subscribePattern: '{self.db}[.].*',
             startingOffsets: earliest, kafka.metadata.max.age.ms: 500}}
    format: debezium-json
    read: {self.read}
  tables: {self.rules}
{self.more}
warehouse: {self.folder / "w"}
checkpoint: {self.folder / "c"}
dead_letters: lake.dead_letters
trigger: {{available_now: true}}
"""
        )
        return path

    def run(self) -> list[Progress]:
        """One run to the end of what is there; gives its batches."""
        self.progress.clear()
        Runner(self.spark, load_pipelines([self.file]), on_progress=self.progress.append, say=lambda text: None).run()
        return list(self.progress)

    def rows(self, name: str) -> dict[Any, Row]:
        found = Catalog(str(self.folder / "w")).table(f"lake.{name}").scan().to_arrow().to_pylist()
        key = self.tables[name].key if name in self.tables else "id"
        assert len({row[key] for row in found}) == len(found)
        return {row[key]: row for row in found}

    def assert_equal(self, *names: str) -> None:
        for name in names or self.tables:
            assert self.rows(name) == self.tables[name].rows, name

    def ledger(self) -> dict[str, Row]:
        table = Catalog(str(self.folder / "w")).table("lake._freshet_ledger_shop")
        return {row["table_name"]: row for row in table.scan().to_arrow().to_pylist()}


@pytest.fixture(scope="module")
def broker() -> Iterator[ForeignBroker]:
    with any_broker() as found:
        yield found


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = create_session(
        "sync", settings={**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"}, jars=ensure_jars(SPARK_GROUP),
        master="local[2]",
    )  # fmt: skip
    yield session
    session.stop()


@pytest.fixture
def world(spark: SparkSession, broker: ForeignBroker, tmp_path: Path) -> World:
    return World(spark, broker, tmp_path)


@pytest.mark.parametrize("read", ["spark", "python"])
def test_tables_are_created_and_follow_their_sources(world: World, read: str) -> None:
    world.read = read
    orders = world.table("orders", {"id": "int", "total": "double", "created": "timestamp"})
    people = world.table("people", {"id": "bigint", "name": "text", "born": "date"})
    world.send(orders, orders.upsert(*({"id": i, "total": i / 2, "created": None} for i in range(50))))
    world.send(people, people.upsert({"id": 1, "name": "Ada", "born": None}))
    first = world.run()
    world.assert_equal()
    assert [row["batch"] for row in world.ledger().values()] == [0, 0, 0]
    assert any("is created" in text for text in first[0].report.table_events)

    orders.add_column("note", "text")
    items = world.table("items", {"id": "int", "n": "int"})
    world.send(orders, orders.upsert({"id": 1, "total": 9.5, "created": None, "note": "späť"}))
    world.send(orders, orders.delete(2, 3))
    world.send(items, items.upsert({"id": 7, "n": 1}))
    people.columns["id"] = "bigint"
    (second,) = world.run()
    world.assert_equal()
    ledger = world.ledger()
    assert (ledger["lake.orders"]["batch"], ledger["lake.people"]["batch"], ledger[""]["batch"]) == (1, 0, 1)
    assert second.report.read_count == second.report.result.record_count == 1 + 4 + 1


def test_types_widen_and_never_narrow(world: World) -> None:
    numbers = world.table("numbers", {"id": "int", "n": "int"})
    world.send(numbers, numbers.upsert({"id": 1, "n": 1}))
    world.run()
    numbers.columns["n"] = "bigint"
    world.send(numbers, numbers.upsert({"id": 2, "n": 1 << 40}))
    world.run()
    numbers.columns["n"] = "int"
    world.send(numbers, numbers.upsert({"id": 3, "n": 3}))
    world.run()
    world.assert_equal()
    schema = Catalog(str(world.folder / "w")).table("lake.numbers").schema
    assert [str(field.type) for field in schema.fields] == ["INT NOT NULL", "BIGINT"]


@pytest.mark.parametrize("dies_at", ["lake.a", "lake.b", "lake.c", "ledger"])
def test_a_batch_that_was_begun_is_finished(world: World, dies_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    for table in world.tables.values():
        world.send(table, table.upsert(*({"id": i, "n": 2} for i in range(10))))
        world.send(table, table.delete(15))
    commit = TableCommit.commit

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == dies_at or (dies_at == "ledger" and "ledger" in self.table.name):
            raise OSError("the driver dies")
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()
    catalog = Catalog(str(world.folder / "w"))
    for name in world.tables:
        users = [
            each.commit_identifier for each in catalog.table(f"lake.{name}").snapshots() if each.commit_user == "shop"
        ]
        assert sorted(set(users)) == [0, 1], name
