"""Many tables by one query, of a real broker. Run by `test_sync` in a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError, PipelineFailedError
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.pipeline.sync.resume import resume_table
from freshet.pipeline.sync.routing_report import routed_tables, warnings_of_renames
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.kafka_broker import any_broker
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.source_database import Row, SourceTable, schema_change
from tests.pipeline.avro_records import (
    AvroTopic,
    avro_change,
    decimal,
    envelope_of,
    optional,
    record_of,
    schema_change_record,
)

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
        self.format = "debezium-json"
        self.source = ""
        self.rules = f"[{{from: '{self.db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]"
        self.more = ""

    def table(
        self, name: str, columns: dict[str, str], *, with_schema: bool = True, kafka_partitions: int = 2
    ) -> SourceTable:
        found = SourceTable(self.db, "public", name, columns, with_schema=with_schema)
        self.tables[name] = found
        self.broker.create_topic(found.topic, kafka_partitions=kafka_partitions)
        return found

    def send(
        self, table: SourceTable, records: Sequence[tuple[bytes | None, bytes | None]], topic: str | None = None
    ) -> None:
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
    kafka: {{kafka.bootstrap.servers: '{self.broker.bootstrap_servers}', subscribePattern: '{self.db}([.].*)?',
             startingOffsets: earliest, kafka.metadata.max.age.ms: 500}}
    format: {self.format}
    read: {self.read}
    {self.source}
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


@pytest.mark.parametrize("dies_at", ["lake.b", "lake.c", "ledger"])
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


def test_a_table_that_is_dropped_is_set_apart_and_the_others_go_on(world: World) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    Catalog(str(world.folder / "w")).drop_table("lake.a")
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 2, "n": 2}))
    (progress,) = world.run()
    assert any("lake.a is set apart from batch 1" in text for text in progress.report.table_events)
    world.assert_equal("b")
    row = world.ledger()["lake.a"]
    assert (row["state"], row["since_batch"]) == ("apart", 1)
    assert progress.report.result.skipped == {f"held back, its table is set apart: {world.tables['a'].topic}": 1}
    world.send(world.tables["a"], world.tables["a"].upsert({"id": 3, "n": 3}))
    world.run()  # by a new run too
    assert not Catalog(str(world.folder / "w")).has_table("lake.a")
    assert world.ledger()["lake.a"] == row


def test_a_table_that_was_restored_from_a_backup_stops_the_query(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    backup = world.folder / "backup"
    shutil.copytree(world.folder / "w/lake.db/a", backup)
    world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    shutil.rmtree(world.folder / "w/lake.db/a")
    shutil.copytree(backup, world.folder / "w/lake.db/a")
    world.send(table, table.upsert({"id": 3, "n": 3}))
    with pytest.raises(PipelineFailedError, match="lake.a does not hold batch 1"):
        world.run()


def test_a_lost_ledger_is_refused(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    Catalog(str(world.folder / "w")).drop_table("lake._freshet_ledger_shop")
    with pytest.raises(ConfigurationError, match="ledger"):
        world.run()


def test_what_is_new_is_refused_where_tables_are_frozen(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.more = "  schema_evolution: freeze"
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    table.add_column("more", "text")
    world.send(table, table.upsert({"id": 2, "n": 2, "more": "x"}))
    with pytest.raises(PipelineFailedError, match="new more STRING, and schema_evolution is freeze"):
        world.run()
    world.more = "  schema_evolution: ignore"
    (progress,) = world.run()
    assert progress.report.result.notes == {"unknown field more": 1}
    assert world.rows("a") == {1: {"id": 1, "n": 1}, 2: {"id": 2, "n": 2}}


def test_types_are_guessed_where_records_bring_none(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int", "t": "text"}, with_schema=False)
    world.send(table, table.upsert({"id": 1, "n": 1, "t": "x"}))
    with pytest.raises(PipelineFailedError, match="bring no schema .* set schema: infer"):
        world.run()
    world.more = "  schema: infer"
    world.run()
    table.add_column("flag", "int")
    world.send(table, table.upsert({"id": 2, "n": 2, "t": None, "flag": True}))
    world.run()
    world.assert_equal()
    schema = Catalog(str(world.folder / "w")).table("lake.a").schema
    assert [str(field.type) for field in schema.fields] == ["BIGINT NOT NULL", "BIGINT", "STRING", "BOOLEAN"]


def test_shards_go_into_one_table_where_that_is_said(world: World) -> None:
    one, two = (world.table(f"orders_{number}", {"id": "int", "n": "int"}) for number in (1, 2))
    world.rules = f"[{{from: '{world.db}.public.(.*)_(\\d+)', to: 'lake.$1', options: {{bucket: 2}}}}]"
    world.send(one, one.upsert({"id": 1, "n": 1}))
    world.send(two, two.upsert({"id": 2, "n": 2}))
    with pytest.raises(PipelineFailedError, match="both go to table lake.orders"):
        world.run()
    world.rules = world.rules.replace("options", "merge: true, options")
    world.run()
    assert world.rows("orders") == {**one.rows, **two.rows}


def test_metadata_and_computed_columns_partition_a_table(world: World) -> None:
    table = world.table("a", {"id": "int", "created": "timestamp"})
    keys = "primary_key: [dt, id], partition_by: [dt], options: {bucket: 1}"
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.a, {keys}}}]"
    world.more = (
        "  metadata_columns: {_table: table, _op_ts: op_ts, _op: op, _offset: offset}\n"
        "  computed_columns: {dt: \"date_format(created, 'yyyy-MM-dd')\"}"
    )
    day = 86_400_000_000
    world.send(table, table.upsert({"id": 1, "created": 20_000 * day}, {"id": 2, "created": 20_001 * day}))
    world.send(table, table.upsert({"id": 2, "created": 20_002 * day}))
    world.run()
    found = world.rows("a")
    moment = datetime(2024, 10, 4, tzinfo=UTC).replace(tzinfo=None)
    assert found[1]["created"] == moment
    assert {key: (row["dt"], row["_table"], row["_op"]) for key, row in found.items()} == {
        1: ("2024-10-04", "a", "c"), 2: ("2024-10-06", "a", "u"),
    }  # fmt: skip
    assert found[2]["_op_ts"] == datetime.fromtimestamp(1_700_000_000_003 / 1000, UTC)


def test_records_that_are_no_changes_are_counted_or_dead_letters(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.rules = f"[{{exclude: '.*[.]tmp_.*'}}, {{from: '{world.db}.public.(a|tmp_b)', to: 'lake.$1'}}]"
    excluded, other = world.table("tmp_b", {"id": "int"}), world.table("c", {"id": "int"})
    world.send(table, table.upsert(*({"id": i, "n": i} for i in range(3))))
    world.send(table, [(b"{}", b"no json"), (b"{}", None), (b"{}", b'{"ts_ms":1}'), (b"{}", b'{"op":"c","after":{}}')])
    world.send(table, [(b"{}", json.dumps({"status": "BEGIN", "id": "1"}).encode())])
    world.send(excluded, excluded.upsert({"id": 1}))
    world.send(other, other.upsert({"id": 1}))
    (progress,) = world.run()
    result = progress.report.result
    assert result.skipped == {
        "tombstone": 1, "heartbeat": 1, "transaction": 1, f"excluded by a rule: {excluded.topic}": 1,
        f"no rule takes its table: {other.topic}": 1,
    }  # fmt: skip
    assert (result.applied, result.dead_count, result.read_count) == (3, 2, 10)
    world.assert_equal("a")
    assert Catalog(str(world.folder / "w")).table("lake.dead_letters").scan().to_arrow().num_rows == 2


def test_a_table_that_was_dropped_is_read_anew(world: World) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    catalog = Catalog(str(world.folder / "w"))
    catalog.drop_table("lake.a")
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    with pytest.raises(InvalidRequestError, match="freshet resync FILE --table lake.a"):
        resume_table(world.spark, config, "lake.a", anew=False)
    done = resume_table(world.spark, config, "lake.a", anew=True)
    assert (done.batch, done.row_count, done.dead_count) == (1, 21, 0)
    world.assert_equal()
    assert world.ledger()["lake.a"]["state"] == "resumed"
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 3, "n": 3}))
        world.send(table, table.delete(4))
    world.run()
    world.assert_equal()
    assert world.ledger()["lake.a"]["state"] == "active"


def test_a_damaged_table_is_set_apart_and_brought_up_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    follow = TableCommit.follow_schema

    def damaged(self: TableCommit, *, is_planned: bool) -> None:
        if self.table.name == "lake.a":
            raise CorruptDataError("a manifest is damaged")
        follow(self, is_planned=is_planned)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damaged)
        for number in range(2, 5):
            for table in world.tables.values():
                world.send(table, table.upsert({"id": number, "n": number}))
            world.run()
    assert world.rows("a")[3]["n"] == 1
    world.assert_equal("b")
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    a = world.tables["a"]
    a.add_column("more", "text")
    world.send(a, a.upsert({"id": 9, "n": 9, "more": "x"}))  # not in a batch yet
    done = resume_table(world.spark, config, "lake.a", anew=False)
    assert (done.batch, done.row_count) == (3, 3)
    with pytest.raises(InvalidRequestError, match="is not set apart"):
        resume_table(world.spark, config, "lake.a", anew=False)
    world.run()
    world.assert_equal()
    users = [each.commit_user for each in Catalog(str(world.folder / "w")).table("lake.a").snapshots()]
    assert set(users) == {"shop"}


def test_a_table_that_was_resumed_while_its_pipeline_ran_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    follow = TableCommit.follow_schema

    def damaged(self: TableCommit, *, is_planned: bool) -> None:
        if self.table.name == "lake.a":
            raise CorruptDataError("a manifest is damaged")
        follow(self, is_planned=is_planned)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damaged)
        world.send(table, table.upsert({"id": 2, "n": 2}))
        world.run()
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    commit, resumed = TableCommit.commit, []

    def resuming(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.b" and not resumed:  # between the start of a batch and its end
            resumed.append(resume_table(world.spark, config, "lake.a", anew=False))
        return commit(self, *arguments)

    monkeypatch.setattr(TableCommit, "commit", resuming)
    world.send(table, table.upsert({"id": 3, "n": 3}))
    world.send(other, other.upsert({"id": 3, "n": 3}))
    world.run()
    assert resumed
    world.send(table, table.upsert({"id": 4, "n": 4}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    resume_table(world.spark, config, "lake.a", anew=False)
    world.send(table, table.upsert({"id": 5, "n": 5}))
    world.run()
    world.assert_equal()


def test_a_driver_that_was_declared_dead_commits_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    for table in world.tables.values():
        table.add_column("more", "text")
        world.send(table, table.upsert(*({"id": i, "n": 2, "more": "x"} for i in range(5))))
    commit, others = TableCommit.commit, []

    def overtaken(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.b" and not others:
            world.send(world.tables["c"], world.tables["c"].upsert({"id": 7, "n": 7, "more": "later"}))
            others.append(run_other_driver(world))
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others[0].returncode == 0, others[0].stderr[-2000:]
    world.assert_equal()
    catalog = Catalog(str(world.folder / "w"))
    for name in world.tables:
        snapshots = [each for each in catalog.table(f"lake.{name}").snapshots() if each.commit_user == "shop"]
        appended = [each.commit_identifier for each in snapshots if each.commit_kind is CommitKind.APPEND]
        assert sorted(set(appended)) == sorted(appended), name


def test_what_a_table_has_of_the_batch_that_it_was_set_apart_in_is_not_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    options = "{bucket: 2, merge-engine: aggregation, fields.n.aggregate-function: sum}"
    world.rules = f"[{{from: '{world.db}.public.(.*)', to: 'lake.$1', options: {options}}}]"
    world.send(a, a.upsert({"id": 1, "n": 1}))
    world.send(b, b.upsert({"id": 1, "n": 1}))
    world.run()
    world.send(a, SourceTable(world.db, "public", "a", a.columns).upsert({"id": 1, "n": 10}))
    commit, follow = TableCommit.commit, TableCommit.follow_schema

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if "ledger" in self.table.name:
            raise OSError("the driver dies")
        return commit(self, *arguments)

    def damaged(self: TableCommit, *, is_planned: bool) -> None:
        if self.table.name == "lake.a":
            raise CorruptDataError("a manifest is damaged")
        follow(self, is_planned=is_planned)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    assert world.rows("a")[1]["n"] == 11
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damaged)
        world.run()
        world.send(a, SourceTable(world.db, "public", "a", a.columns).upsert({"id": 1, "n": 100}))
        world.run()
    assert (world.ledger()["lake.a"]["state"], world.ledger()["lake.a"]["since_batch"]) == ("apart", 1)
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    resume_table(world.spark, config, "lake.a", anew=False)
    assert world.rows("a")[1]["n"] == 111


@pytest.mark.parametrize("read", ["spark", "python"])
def test_records_in_avro(world: World, read: str) -> None:
    with SchemaRegistry() as registry:
        world.read, world.format, world.source = read, "debezium-avro", f"schema_registry: {{url: '{registry.url}'}}"
        tables = [SourceTable(world.db, "public", name, {"id": "bigint", "n": "bigint"}) for name in ("a", "b")]
        world.tables = {table.name: table for table in tables}
        for table in tables:
            world.broker.create_topic(table.topic, kafka_partitions=2)

        def send(table: SourceTable, row: Row, schema: Any) -> None:
            values = AvroTopic(registry, envelope_of(schema), f"{table.topic}-value")
            keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), f"{table.topic}-key")
            op = "u" if row["id"] in table.rows else "c"
            table.rows[row["id"]] = row
            datum = avro_change(op, None, row, db=table.db, schema="public", table=table.name)
            world.send(table, [(keys.value({"id": row["id"]}), values.value(datum))])

        plain = {"id": "long", "n": optional("long")}
        for table in tables:
            for number in range(5):
                send(table, {"id": number, "n": number}, plain)
        world.run()
        world.assert_equal()
        tables[0].add_column("total", "text")
        send(tables[0], {"id": 1, "n": 7, "total": Decimal("1.50")}, {**plain, "total": optional(decimal(2, 9))})
        send(tables[1], {"id": 1, "n": 8}, plain)
        (progress,) = world.run()
        world.assert_equal()
        assert any("new total DECIMAL(9, 2)" in text for text in progress.report.table_events)


# --- what an operator found ------------------------------------------------------------------------------------------


def test_a_ledger_belongs_to_one_pipeline(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    other = world.folder / "other.yaml"
    text = world.file.read_text().replace("name: shop", "name: other").replace("/c\n", "/c2\n")
    other.write_text(
        text.replace("'lake.$1'", "'lake.x_$1'").replace("sync:", "sync:\n  ledger: lake._freshet_ledger_shop")
    )
    with pytest.raises(PipelineFailedError, match="is the ledger of another pipeline"):
        Runner(world.spark, load_pipelines([other]), say=lambda text: None).run()
    world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    world.assert_equal()
    assert not Catalog(str(world.folder / "w")).has_table("lake.x_a")


def test_a_source_table_does_not_go_into_the_dead_letters(world: World) -> None:
    table = world.table("dead_letters", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    with pytest.raises(PipelineFailedError, match="is the table of the dead letters of this pipeline"):
        world.run()
    assert "id" not in Catalog(str(world.folder / "w")).table("lake.dead_letters").schema.by_name


def test_another_source_for_a_table_that_is_there_stops_the_query(world: World) -> None:
    a, b = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.x, options: {{bucket: 2}}}}]"
    world.send(a, a.upsert({"id": 1, "n": 1}))
    world.send(b, b.upsert({"id": 1, "n": 7}))
    world.run()
    world.rules = world.rules.replace("public.a", "public.b")
    world.send(b, b.upsert({"id": 2, "n": 7}))
    with pytest.raises(PipelineFailedError, match="which the ledger says has the rows of"):
        world.run()
    assert world.rows("x") == a.rows
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    resume_table(world.spark, config, "lake.x", anew=True)
    world.run()
    assert world.rows("x") == b.rows


def test_a_table_that_cannot_be_created_stops_the_query(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.rules = f"[{{from: '{world.db}.public.a', to: lake.a, options: {{bucket: 2, merge-engine: first-row,"
    world.rules += " sequence.field: n}}]"
    world.send(table, table.upsert({"id": 1, "n": 1}))
    with pytest.raises(PipelineFailedError, match=r"lake.a for .* cannot be created as rule 0 of sync.tables says"):
        world.run()
    world.rules = world.rules.replace("merge-engine: first-row, sequence.field: n", "")
    world.run()
    world.assert_equal()


def test_decimals_of_two_scales_become_one_that_takes_both(world: World) -> None:
    table = world.table("a", {"id": "int", "n": "decimal(9, 2)"})
    world.send(table, table.upsert({"id": 1, "n": "1.25"}))
    world.run()
    table.columns["n"] = "decimal(9, 4)"
    world.send(table, table.upsert({"id": 2, "n": "1.2345"}))
    world.run()
    schema = Catalog(str(world.folder / "w")).table("lake.a").schema
    assert str(schema.by_name["n"].type) == "DECIMAL(11, 4)"
    assert {key: row["n"] for key, row in world.rows("a").items()} == {1: Decimal("1.2500"), 2: Decimal("1.2345")}


# --- renamed columns --------------------------------------------------------------------------------------------------


def renamed_tables(world: World, *names: str) -> list[SourceTable]:
    """Tables whose schema change topic is subscribed, each with some rows."""
    world.more = "  schema_evolution: evolve"
    world.broker.create_topic(world.db, kafka_partitions=1)
    found = [world.table(name, {"id": "int", "n": "int", "t": "text"}) for name in names]
    for table in found:
        world.send(table, table.upsert(*({"id": i, "n": i, "t": f"{i}"} for i in range(20))))
    world.run()
    return found


def columns_of(world: World, name: str) -> list[tuple[int, str]]:
    schema = Catalog(str(world.folder / "w")).table(f"lake.{name}").schema
    return [(field.id, field.name) for field in schema.fields]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_column_is_renamed_in_the_middle_of_a_batch(world: World, read: str) -> None:
    world.read = read
    (a,) = renamed_tables(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 100, "t": "before"}, {"id": 50, "n": 50, "t": "before"}))
    world.send(a, a.delete(2))
    world.send(a, [a.rename_columns({"n": "amount"})], world.db)
    world.send(a, a.upsert({"id": 1, "amount": 101, "t": "after"}, {"id": 51, "amount": 51, "t": "after"}))
    world.send(a, a.delete(3))
    (progress,) = world.run()
    world.assert_equal()
    assert columns_of(world, "a") == [(0, "id"), (1, "amount"), (2, "t")]
    assert progress.report.result.skipped == {"schema change": 1, "tombstone": 2}
    assert progress.report.table_events == ("table lake.a follows its source: column n is amount now",)
    assert progress.report.read_count == progress.report.result.record_count
    world.send(a, a.upsert({"id": 52, "amount": 52, "t": "later"}))
    (progress,) = world.run()
    world.assert_equal()
    assert not progress.report.table_events


def test_a_rename_is_known_before_its_name_comes_and_old_records_come_after_it(world: World) -> None:
    (a,) = renamed_tables(world, "a")
    late = a.upsert({"id": 7, "n": 700, "t": "late"}, {"id": 60, "n": 60, "t": "late"})
    world.send(a, [a.rename_columns({"n": "amount"})], world.db)
    world.run()
    assert columns_of(world, "a") == [(0, "id"), (1, "amount"), (2, "t")]
    a.rename_columns({})
    world.send(a, a.upsert({"id": 8, "amount": 800, "t": "after"}))
    world.run()
    world.send(a, late)
    world.run()
    world.assert_equal()
    a.add_column("n", "text")  # the name is used again, for another column
    world.send(a, [a.schema_change("ALTER TABLE a ADD COLUMN n TEXT")], world.db)
    world.send(a, a.upsert({"id": 9, "amount": 9, "t": "x", "n": "new"}))
    world.run()
    world.assert_equal()
    assert columns_of(world, "a") == [(0, "id"), (1, "amount"), (2, "t"), (3, "n")]


def test_the_key_is_renamed(world: World) -> None:
    (a,) = renamed_tables(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 100, "t": "before"}))
    world.send(a, a.delete(2))
    world.send(a, [a.rename_columns({"id": "number"}, "ALTER TABLE a CHANGE id number INT")], world.db)
    world.send(a, a.upsert({"number": 1, "n": 101, "t": "after"}, {"number": 50, "n": 50, "t": "after"}))
    world.send(a, a.delete(3))
    world.run()
    world.assert_equal()
    assert Catalog(str(world.folder / "w")).table("lake.a").schema.primary_keys == ("number",)


def test_chains_and_swaps_of_names_in_one_batch(world: World) -> None:
    (a,) = renamed_tables(world, "a")
    for number, names in enumerate(
        ({"n": "x"}, {"x": "y"}, {"y": "t", "t": "y"}, {"t": "z"}, {"y": "t"}, {"z": "y"}, {"y": "z"}), 100
    ):
        one, other = list(a.columns)[1:]
        world.send(a, a.upsert({"id": number, one: number, other: "x"}, {"id": 1, one: number, other: "one"}))
        world.send(a, [a.rename_columns(names)], world.db)
    one, other = list(a.columns)[1:]
    world.send(a, a.upsert({"id": 2, one: 2, other: "two"}))
    world.run()
    world.assert_equal()
    assert columns_of(world, "a") == [(0, "id"), (1, "z"), (2, "t")]


@pytest.mark.parametrize("dies_at", ["alter before", "alter behind", "lake.a", "ledger"])
def test_a_rename_is_followed_whenever_the_driver_dies(
    world: World, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = renamed_tables(world, "a", "b")
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100, "t": "before"}))
        world.send(table, [table.rename_columns({"n": "t", "t": "n"})], world.db)
        world.send(table, table.upsert({"id": 2, "t": 200, "n": "after"}))
    commit, alter, died = TableCommit.commit, Table.alter, []

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == dies_at or (dies_at == "ledger" and "ledger" in self.table.name):
            raise OSError("the driver dies")
        return commit(self, *arguments)

    def dying_alter(self: Table, *changes: Any) -> Any:
        if dies_at == "alter before" and self.name == "lake.a":
            raise OSError("the driver dies")
        found = alter(self, *changes)
        if dies_at == "alter behind" and self.name == "lake.a" and not died:
            died.append(self.name)
            raise OSError("the driver dies")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        patch.setattr(Table, "alter", dying_alter)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()
    assert columns_of(world, "a") == columns_of(world, "b") == [(0, "id"), (1, "t"), (2, "n")]


def test_a_rename_is_followed_once_by_two_drivers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = renamed_tables(world, "a", "b")
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100, "t": "before"}))
        world.send(table, [table.rename_columns({"n": "t", "t": "n"})], world.db)
        world.send(table, table.upsert({"id": 2, "t": 200, "n": "after"}))
    alter, others = Table.alter, []

    def overtaken(self: Table, *changes: Any) -> Any:
        if self.name == "lake.b" and not others:
            others.append(run_other_driver(world))
        return alter(self, *changes)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "alter", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others[0].returncode == 0, others[0].stderr[-2000:]
    world.run()
    world.assert_equal()
    assert columns_of(world, "a") == columns_of(world, "b") == [(0, "id"), (1, "t"), (2, "n")]


def test_a_table_that_is_resumed_or_read_anew_has_the_new_names(world: World) -> None:
    a, b = renamed_tables(world, "a", "b")
    name = damaged_manifest(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 9, "t": "x"}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    for table in (a, b):
        world.send(table, [table.rename_columns({"n": "amount"})], world.db)
        world.send(table, table.upsert({"id": 2, "amount": 9, "t": "x"}))
    world.run()
    world.assert_equal("b")
    name.rename(name.with_suffix(""))
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    resume_table(world.spark, config, "lake.a", anew=False)
    world.assert_equal()
    assert columns_of(world, "a") == [(0, "id"), (1, "amount"), (2, "t")]
    world.send(a, a.upsert({"id": 3, "amount": 9, "t": "y"}))
    world.run()
    world.assert_equal()
    resume_table(world.spark, config, "lake.a", anew=True)
    world.send(a, [a.rename_columns({"amount": "n"})], world.db)
    world.send(a, a.upsert({"id": 4, "n": 9, "t": "y"}))
    world.run()
    world.assert_equal()
    assert columns_of(world, "a") == [(0, "id"), (1, "n"), (2, "t")]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_column_is_renamed_in_avro(world: World, read: str) -> None:
    with SchemaRegistry() as registry:
        world.read, world.format, world.source = read, "debezium-avro", f"schema_registry: {{url: '{registry.url}'}}"
        world.more = "  schema_evolution: evolve"
        table = world.tables["a"] = SourceTable(world.db, "public", "a", {"id": "bigint", "n": "bigint"})
        world.broker.create_topic(table.topic, kafka_partitions=2)
        world.broker.create_topic(world.db, kafka_partitions=1)
        keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), f"{table.topic}-key")
        statements = AvroTopic(registry, schema_change_record(), f"{world.db}-value")

        def send(*rows: Row) -> None:
            fields = {"id": "long", **{name: optional("long") for name in list(table.columns)[1:]}}
            values = AvroTopic(registry, envelope_of(fields), f"{table.topic}-value")
            for row in rows:
                table.rows[row["id"]] = row
                datum = avro_change("c", None, row, db=table.db, schema="public", table=table.name)
                world.send(table, [(keys.value({"id": row["id"]}), values.value(datum))])

        send(*({"id": number, "n": number} for number in range(10)))
        world.run()
        send({"id": 1, "n": 100})
        table.rename_columns({"n": "amount"})
        statement = schema_change(table, "ALTER TABLE `a` CHANGE `n` `amount` BIGINT")
        world.send(table, [(None, statements.value(statement))], world.db)
        send({"id": 2, "amount": 200})
        (progress,) = world.run()
        world.assert_equal()
        assert columns_of(world, "a") == [(0, "id"), (1, "amount")]
        assert progress.report.result.skipped == {"schema change": 1}


def test_a_rename_that_came_too_late_and_an_earlier_ledger(world: World) -> None:
    a, b = renamed_tables(world, "a", "b")
    assert "renames" not in Catalog(str(world.folder / "w")).table("lake._freshet_ledger_shop").schema.by_name
    statement = a.rename_columns({"n": "amount"})
    world.send(a, a.upsert({"id": 1, "amount": 1, "t": "x"}))
    world.run()
    world.send(a, [statement], world.db)
    world.send(b, [b.rename_columns({"n": "amount"})], world.db)
    world.send(b, b.upsert({"id": 1, "amount": 1, "t": "x"}))
    (progress,) = world.run()
    (event,) = (text for text in progress.report.table_events if "lake.a" in text)
    assert event == (
        f"table lake.a: column n is not renamed to amount ({world.db} partition 0 offset 0): it came too late, the "
        "table has a column amount already; both stay"
    )
    world.assert_equal("b")
    assert columns_of(world, "a") == [(0, "id"), (1, "n"), (2, "t"), (3, "amount")]
    assert columns_of(world, "b") == [(0, "id"), (1, "amount"), (2, "t")]
    world.more = "  schema_evolution: lenient"  # and what is known stays in the ledger
    world.send(b, b.upsert({"id": 3, "amount": 3, "t": "x"}))
    world.run()
    world.assert_equal("b")
    assert "amount" in world.ledger()["lake.b"]["renames"]


def test_check_says_where_renames_are_not_followed(world: World) -> None:
    renamed_tables(world, "a")
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    assert list(warnings_of_renames(config)) == []
    topics = {each.source: each.text for each in routed_tables(config) or ()}
    assert topics[f"topic {world.db}"] == "schema changes: renamed columns are read there"
    text = world.file.read_text().replace(f"'{world.db}([.].*)?'", f"'{world.db}[.].*'")
    world.file.with_name("other.yaml").write_text(text)
    (config,) = load_pipelines([world.file.with_name("other.yaml")])
    assert isinstance(config, SyncPipelineConfig)
    (said,) = warnings_of_renames(config)
    assert f"the schema change topic {world.db} is not among the topics that are read" in said


# --- truncates --------------------------------------------------------------------------------------------------------


def two_tables(world: World) -> tuple[SourceTable, SourceTable]:
    world.source = "on_truncate: apply"
    found = [world.table(name, {"id": "int", "n": "int"}, kafka_partitions=1) for name in ("a", "b")]
    for table in found:
        world.send(table, table.upsert(*({"id": i, "n": i} for i in range(40))))
    world.run()
    return found[0], found[1]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_truncate_is_applied_in_order_with_its_batch(world: World, read: str) -> None:
    world.read = read
    a, b = two_tables(world)
    for table in (a, b):  # one batch: rows, a truncate, rows, a truncate, rows
        world.send(table, table.upsert({"id": 1, "n": 100}, {"id": 90, "n": 1}))
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 5, "n": 5}, {"id": 6, "n": 6}))
    world.send(a, a.delete(6))
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 7, "n": 7}, {"id": 1, "n": 2}))
    (progress,) = world.run()
    world.assert_equal()
    assert sorted(world.rows("a")) == [1, 7]
    assert progress.report.result.skipped == {"truncate": 2, "tombstone": 1, "before a truncate": 5}
    (event,) = (text for text in progress.report.table_events if "emptied" in text)
    assert event.startswith(f"table lake.a was emptied: its source was truncated ({a.topic} partition 0 offset 4")
    table = Catalog(str(world.folder / "w")).table("lake.a")
    assert [each.commit_kind for each in table.snapshots()][-2:] == [CommitKind.OVERWRITE, CommitKind.APPEND]
    world.send(a, a.upsert({"id": 7, "n": 8}, {"id": 8, "n": 8}))
    world.run()
    world.assert_equal()
    world.send(a, a.truncate())  # and nothing behind it
    world.run()
    world.assert_equal()
    assert not world.rows("a")
    assert world.ledger()["lake.a"]["batch"] == 3


@pytest.mark.parametrize("dies_at", ["a behind", "b"])
def test_a_truncate_is_applied_once_whenever_the_driver_dies(
    world: World, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two_tables(world)
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100}, {"id": 90, "n": 1}))
        world.send(table, table.truncate())
        world.send(table, table.upsert({"id": 2, "n": 2}))
    commit, truncate = TableCommit.commit, TableCommit.truncate

    def dying_commit(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == f"lake.{dies_at}":
            raise OSError("the driver dies")
        return commit(self, *arguments)

    def dying_truncate(self: TableCommit, *arguments: Any) -> Any:
        truncate(self, *arguments)
        if self.table.name == "lake.a" and dies_at == "a behind":
            raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying_commit)
        patch.setattr(TableCommit, "truncate", dying_truncate)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()


def test_a_driver_that_was_declared_dead_takes_nothing_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = two_tables(world)
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 2, "n": 2}))
    truncate, others = TableCommit.truncate, []

    def overtaken(self: TableCommit, *arguments: Any) -> Any:
        others.append(run_other_driver(world))
        assert world.rows("a") == a.rows
        return truncate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "truncate", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others[0].returncode == 0, others[0].stderr[-2000:]
    world.assert_equal()


def run_other_driver(world: World) -> subprocess.CompletedProcess[str]:
    """Another driver runs the pipeline to its end while one hangs in a batch."""
    shutil.copytree(world.folder / "c", world.folder / "c2")
    other = world.folder / "other.yaml"
    other.write_text(world.file.read_text().replace(f"{world.folder}/c\n", f"{world.folder}/c2\n"))
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(other)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_truncate_in_a_topic_of_several_partitions_stops_the_query(world: World) -> None:
    world.source = "on_truncate: apply"
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert(*({"id": i, "n": i} for i in range(10))))
    world.run()
    before = dict(table.rows)
    world.send(table, table.truncate())
    with pytest.raises(PipelineFailedError, match="has 2 partitions, and what others hold has no order with it"):
        world.run()
    assert world.rows("a") == before


def test_resume_applies_the_truncates_that_were_held_back(world: World) -> None:
    a, b = two_tables(world)
    name = damaged_manifest(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 9}))
    world.send(b, b.upsert({"id": 1, "n": 9}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 2, "n": 9}))
    world.send(b, b.upsert({"id": 2, "n": 9}))
    world.run()
    name.rename(name.with_suffix(""))
    (config,) = load_pipelines([world.file])
    assert isinstance(config, SyncPipelineConfig)
    resume_table(world.spark, config, "lake.a", anew=False)
    world.assert_equal()
    world.send(a, a.upsert({"id": 3, "n": 9}))
    world.run()
    world.assert_equal()


def damaged_manifest(world: World, name: str) -> Path:
    """Takes the newest snapshot's manifest list away; gives where it lies now."""
    table = Catalog(str(world.folder / "w")).table(f"lake.{name}")
    latest = table.latest_snapshot()
    assert latest is not None
    path = world.folder / f"w/lake.db/{name}/manifest/{latest.delta_manifest_list}"
    return path.rename(path.with_name(path.name + ".away"))
