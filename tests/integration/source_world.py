"""A database in a broker's topics, and a pipeline that a test runs to the end of them as often as it likes.

`TableWorld` has a pipeline with one table, `SyncWorld` one with a table for each of the source.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from freshet import Catalog
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.running.spark_pipeline import SparkJobs
from freshet.pipeline.sync.resume import Resumed, resume_table
from freshet.storage.table import Table
from tests.kit.dying_runs import engine_of
from tests.kit.source_database import Row, SourceTable

_NUMBERS = itertools.count()


@cache
def _producer(bootstrap_servers: str) -> Producer:
    """One for all tests: each keeps threads and connections as long as the process lives."""
    return Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})


class World:
    """A database of a name of its own, a warehouse and a pipeline between the two."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.db = f"db{os.getpid()}x{next(_NUMBERS)}"
        self.read = "auto"
        self.format = "debezium-json"
        self.more = ""
        """Other lines of the file."""
        self.said: list[str] = []
        """What its runs have said."""
        self.catalog = Catalog(str(folder / "w"))

    @property
    def text(self) -> str:
        """What its file says."""
        raise NotImplementedError

    @property
    def file(self) -> Path:
        path = self.folder / "pipeline.yaml"
        path.write_text(self.text)
        return path

    def send_to(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None]],
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        producer = _producer(self.broker.bootstrap_servers)
        for key, value in records:
            producer.produce(topic, value, key=key, headers=list((headers or {}).items()))
        assert producer.flush(60) == 0

    def send_to_partition(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        producer = _producer(self.broker.bootstrap_servers)
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    def run(
        self, file: Path | None = None, *, accepted_loss: tuple[int, int] | None = None, on: str = "spark"
    ) -> list[Progress]:
        """One run on an engine to the end of what is there; gives its batches."""
        progress: list[Progress] = []
        configs = load_pipelines([file or self.file])
        if accepted_loss is not None:
            configs = [config.accepting_loss(*accepted_loss) for config in configs]
        engine = engine_of(on, self.spark)
        Runner(engine, configs, on_progress=progress.append, say=self.said.append).run()
        return progress


class TableWorld(World):
    """A source table with its topic, and the pipeline that writes its rows."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        super().__init__(spark, broker, folder)
        self.source = SourceTable(self.db, "public", "t", {"id": "int", "n": "int"})
        self.topics = [self.source.topic]
        self.read = "python"
        self.keys = "on_unknown_field: add"
        self.layout = "primary_key: [id]"
        self.options = "bucket: 2"
        broker.create_topic(self.source.topic, kafka_partitions=1)

    def send(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        self.send_to(self.source.topic, records)

    def send_json(self, *rows: Any) -> None:
        self.send([(None, row if isinstance(row, bytes) else json.dumps(row).encode()) for row in rows])

    @property
    def text(self) -> str:
        return f"""
name: one
sources:
  - kafka: {{kafka.bootstrap.servers: '{self.broker.bootstrap_servers}', subscribe: '{",".join(self.topics)}',
             startingOffsets: earliest}}
    format: {self.format}
    read: {self.read}
    {self.keys}
table: {{warehouse: "{self.folder}/w", name: db.t, columns: {{id: INT, n: INT}}, {self.layout},
         options: {{{self.options}}}}}
{self.more}
dead_letters: db.dead
trigger: {{available_now: true}}
checkpoint: "{self.folder}/c"
"""

    @property
    def table(self) -> Table:
        return self.catalog.table("db.t")

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.table.scan().to_arrow().to_pylist()}

    def types(self) -> dict[str, str]:
        return {each.name: str(each.type) for each in self.table.schema.fields}


class SyncWorld(World):
    """Source tables that come with their topics, and the pipeline that has a table for each."""

    def __init__(self, spark: SparkSession, broker: ForeignBroker, folder: Path) -> None:
        super().__init__(spark, broker, folder)
        self.tables: dict[str, SourceTable] = {}
        self.source = ""
        """Other lines of its source."""
        self.rules = f"[{{from: '{self.db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]"

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
        self.send_to(topic or table.topic, records)

    @property
    def text(self) -> str:
        return f"""
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

    @property
    def config(self) -> SyncPipelineConfig:
        (config,) = load_pipelines([self.file])
        assert isinstance(config, SyncPipelineConfig)
        return config

    def file_of_another_driver(self) -> Path:
        """The pipeline once more, as it is now, for one that runs it while another driver hangs in a batch."""
        shutil.copytree(self.folder / "c", self.folder / "c2")
        path = self.folder / "other.yaml"
        path.write_text(self.text.replace(f"{self.folder}/c\n", f"{self.folder}/c2\n"))
        return path

    def resume(self, name: str, *, anew: bool = False) -> Resumed:
        """Brings a table up that was set apart."""
        return resume_table(SparkJobs(self.spark), self.config, name, anew=anew)

    def target(self, name: str) -> Table:
        return self.catalog.table(f"lake.{name}")

    def columns(self, name: str) -> list[tuple[int, str]]:
        """The columns of a target, with their ids."""
        return [(field.id, field.name) for field in self.target(name).schema.fields]

    def types(self, name: str) -> list[str]:
        return [str(field.type) for field in self.target(name).schema.fields]

    def rows(self, name: str) -> dict[Any, Row]:
        found = self.target(name).scan().to_arrow().to_pylist()
        key = self.tables[name].key if name in self.tables else "id"
        assert len({row[key] for row in found}) == len(found)
        return {row[key]: row for row in found}

    def assert_equal(self, *names: str) -> None:
        for name in names or self.tables:
            assert self.rows(name) == self.tables[name].rows, name

    def ledger(self) -> dict[str, Row]:
        return {row["table_name"]: row for row in self.target("_freshet_ledger_shop").scan().to_arrow().to_pylist()}

    def take_manifest_list(self, name: str) -> Path:
        """Takes the newest snapshot's manifest list of a target away, so that it is damaged; gives where it lies."""
        latest = self.target(name).latest_snapshot()
        assert latest is not None
        path = self.folder / f"w/lake.db/{name}/manifest/{latest.delta_manifest_list}"
        return path.rename(path.with_name(path.name + ".away"))
