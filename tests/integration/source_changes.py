"""A pipeline with one table whose source changes: new fields become columns, truncates empty the table.

Run by `test_source_changes` in a process of its own.
"""

from __future__ import annotations

import itertools
import json
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
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import AddColumn, Table
from tests.kit.kafka_broker import any_broker
from tests.kit.source_database import Row, SourceTable

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_NUMBERS = itertools.count()


class World:
    """A source table with its topic, and the pipeline that writes its rows."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.source = SourceTable(f"one{os.getpid()}x{next(_NUMBERS)}", "public", "t", {"id": "int", "n": "int"})
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        self.topics = [self.source.topic]
        self.format = "debezium-json"
        self.read = "python"
        self.keys = "on_unknown_field: add"
        self.options = "bucket: 2"
        self.more = ""
        self.said: list[str] = []
        broker.create_topic(self.source.topic, kafka_partitions=1)

    def send(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            self.producer.produce(self.source.topic, value, key=key)
        assert self.producer.flush(60) == 0

    def send_json(self, *rows: Any) -> None:
        self.send([(None, row if isinstance(row, bytes) else json.dumps(row).encode()) for row in rows])

    @property
    def file(self) -> Path:
        path = self.folder / "one.yaml"
        path.write_text(
            f"""
name: one
sources:
  - kafka: {{kafka.bootstrap.servers: '{self.broker.bootstrap_servers}', subscribe: '{",".join(self.topics)}',
             startingOffsets: earliest}}
    format: {self.format}
    read: {self.read}
    {self.keys}
table: {{warehouse: "{self.folder}/w", name: db.t, columns: {{id: INT, n: INT}}, primary_key: [id],
         options: {{{self.options}}}}}
{self.more}
dead_letters: db.dead
trigger: {{available_now: true}}
checkpoint: "{self.folder}/c"
"""
        )
        return path

    def run(self) -> list[Progress]:
        progress: list[Progress] = []
        Runner(self.spark, load_pipelines([self.file]), on_progress=progress.append, say=self.said.append).run()
        return progress

    @property
    def table(self) -> Table:
        return Catalog(str(self.folder / "w")).table("db.t")

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.table.scan().to_arrow().to_pylist()}

    def types(self) -> dict[str, str]:
        return {each.name: str(each.type) for each in self.table.schema.fields}


@pytest.fixture(scope="module")
def broker() -> Iterator[ForeignBroker]:
    with any_broker() as found:
        yield found


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"}
    session = create_session("changes", settings=settings, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    yield session
    session.stop()


@pytest.fixture
def world(spark: SparkSession, broker: ForeignBroker, tmp_path: Path) -> World:
    return World(spark, broker, tmp_path)


# --- new fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["spark", "python"])
def test_new_fields_become_columns_of_the_types_that_the_schema_says(world: World, read: str) -> None:
    world.read = read
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(20))))
    world.run()
    world.source.add_column("born", "date")
    world.source.add_column("note", "text")
    rows = ({"id": i, "n": 2 * i, "born": None, "note": f"späť {i}"} for i in range(5))
    world.send(world.source.upsert(*rows))
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert world.types() == {"id": "INT NOT NULL", "n": "INT", "born": "DATE", "note": "STRING"}
    (event,) = progress.report.table_events
    assert event.startswith("table db.t follows its source: new born DATE, note STRING (")
    assert sum(event in text for text in world.said) == 1
    world.source.add_column("total", "double")
    world.send(world.source.upsert({"id": 3, "n": 0, "born": None, "note": None, "total": 0.5}))
    world.run()  # by a new run, whose file says nothing of the columns
    assert world.rows() == world.source.rows
    assert len([each for each in world.table.snapshots() if each.commit_kind is CommitKind.APPEND]) == 3


def test_types_of_plain_records_are_guessed(world: World) -> None:
    world.format = "json"
    world.send_json({"id": 1, "n": 1})
    world.run()
    world.send_json(
        {"id": 2, "n": 2, "whole": 7, "yes": True, "text": "a", "part": 1.5, "empty": None},
        {"id": 3, "n": 3, "whole": "no number", "a`b": 1, "_ROW_ID": 2, "": 3},
    )
    (progress,) = world.run()
    assert world.types() == {
        "id": "INT NOT NULL", "n": "INT", "whole": "STRING", "yes": "BOOLEAN", "text": "STRING", "part": "STRING",
    }  # fmt: skip
    assert world.rows()[2] == {"id": 2, "n": 2, "whole": "7", "yes": True, "text": "a", "part": "1.5"}
    notes = progress.report.result.notes
    assert {"unknown field empty", "unknown field a`b", "unknown field _ROW_ID"} <= notes.keys()


def test_a_column_that_another_program_adds_is_filled(world: World) -> None:
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.table.alter(AddColumn("note", "STRING"))
    world.source.add_column("note", "text")
    world.send(world.source.upsert({"id": 2, "n": 2, "note": "x"}))
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert not progress.report.table_events


def test_a_driver_that_dies_between_the_columns_and_the_batch_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.source.add_column("note", "text")
    world.send(world.source.upsert({"id": 2, "n": 2, "note": "x"}))
    alter = Table.alter

    def dying(self: Table, *changes: Any, **more: Any) -> Any:
        alter(self, *changes, **more)
        raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "alter", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    assert world.rows() == world.source.rows


def test_too_many_new_fields_stop_the_run_and_nothing_is_written(world: World) -> None:
    world.format = "json"
    world.send_json({"id": 1, "n": 1, **{f"c{number}": number for number in range(101)}})
    with pytest.raises(PipelineFailedError, match="bring 101 new fields at once"):
        world.run()
    assert world.table.latest_snapshot() is None


# --- truncates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "options"),
    [
        ("spark", "bucket: 2"),
        ("python", "bucket: 2, changelog-producer: lookup"),
        ("python", "bucket: -1"),
        ("python", "bucket: -2"),
        ("python", "bucket: 1, deletion-vectors.enabled: true"),
        ("python", "bucket: 1, merge-engine: aggregation, fields.n.aggregate-function: sum"),
    ],
)
def test_a_truncate_is_applied_in_order(world: World, read: str, options: str) -> None:
    world.read, world.options, world.keys = read, options, "on_truncate: apply"
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(30))))
    world.run()
    world.send(world.source.upsert({"id": 1, "n": 1000}, {"id": 40, "n": 1}))
    world.send(world.source.truncate())
    world.send(world.source.upsert({"id": 1, "n": 1}, {"id": 2, "n": 2}))
    (progress,) = world.run()
    if "bucket: -2" in options:
        world.table.compact()
    assert world.rows() == world.source.rows
    assert progress.report.result.skipped == {"truncate": 1, "before a truncate": 2}
    world.send(world.source.upsert({"id": 3, "n": 3}))
    world.run()
    if "bucket: -2" in options:
        world.table.compact()
    assert world.rows() == world.source.rows


def test_a_truncate_where_several_topics_are_read_stops_the_run(world: World) -> None:
    world.keys = "on_truncate: apply"
    world.topics.append(world.source.topic + ".more")
    world.broker.create_topic(world.topics[1], kafka_partitions=1)
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.send(world.source.truncate())
    with pytest.raises(PipelineFailedError, match="2 topics are read, and what others hold has no order"):
        world.run()
    assert sorted(world.rows()) == [1]


def test_a_driver_that_dies_behind_the_truncate_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.keys = "on_truncate: apply"
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(30))))
    world.run()
    world.send(world.source.truncate())
    world.send(world.source.upsert({"id": 1, "n": 1}))
    truncate = TableCommit.truncate

    def dying(self: TableCommit, *arguments: Any) -> None:
        truncate(self, *arguments)
        raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "truncate", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    assert world.rows() == world.source.rows
