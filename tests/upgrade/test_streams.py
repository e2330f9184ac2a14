"""Checkpoints and logs of an earlier head that was killed in the middle, on Spark: continued on either engine, nothing
lost, nothing doubled.

The archive is one world: its broker runs again on the broker's own files. What was still to come arrives before
anything is started again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.logstore.exceptions import LogLostError
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.runner import Runner
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.schema.change import SetOption
from tests.kit.dying_runs import engine_of
from tests.logstore.caught_up import CaughtUp
from tests.upgrade.archive import ENGINES_ARCHIVE, unpack
from tests.upgrade.either_engine import ENGINES
from tests.upgrade.shapes import Row, folded_changes, in_order
from tests.upgrade.streams import (
    BROKER_SETTINGS,
    RECORDS_PER_TRIGGER,
    SOURCES,
    STREAMS,
    Pipeline,
    Stream,
    commit_orders,
    patiently,
    pipelines,
    send,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = [each for each in pipelines("") if each.follows is None or each.batch > 0]
REFUSED = r"(?s)planned by an earlier version of Freshet and did not finish.*Start the query with a new checkpoint"
ON_SPARK = pytest.mark.parametrize("world", ENGINES[1:], indirect=True)
FOLLOWED = [each for each in STREAMS if each.stopped_inside != 0]


@dataclass(frozen=True)
class World:
    """The unpacked archive with its broker."""

    folder: Path
    kafka: str
    manifest: dict[str, Any]
    engine: str

    def table(self, name: str) -> Table:
        return Catalog(str(self.folder / "warehouse")).table(f"shop.{name}")

    def rows(self, name: str) -> list[Row]:
        return in_order(self.table(name).scan().to_arrow().to_pylist())

    @property
    def environment(self) -> dict[str, str]:
        return {"WORLD": str(self.folder), "KAFKA": self.kafka}

    def follow(self, spark: SparkSession, pipeline: Pipeline) -> None:
        """Runs a pipeline in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, text in self.environment.items():
                patch.setenv(name, text)
            configs = load_pipelines([self.folder / "pipelines" / f"{pipeline.name}.yaml"])
        patiently(lambda: Runner(engine_of(self.engine, spark), configs).run())

    def run(self, *names: str) -> subprocess.CompletedProcess[str]:
        """`freshet run`."""
        files = [str(self.folder / "pipelines" / f"{name}.yaml") for name in names]
        command = [sys.executable, "-m", "freshet", "run", *files, "--on", self.engine]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module", params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything as it was when it was killed, and what came since; what goes on is an engine."""
    folder = tmp_path_factory.mktemp("upgrade")
    unpack(ENGINES_ARCHIVE, folder, below="streams/kafka/")
    with KafkaBroker.start(folder / "streams" / "kafka", settings=BROKER_SETTINGS) as broker:
        kafka = broker.bootstrap_servers
        unpack(ENGINES_ARCHIVE, folder, kafka=kafka, below="streams/", but="streams/kafka/")
        _read_on_in_larger_batches(folder / "streams" / "pipelines")
        manifest = json.loads((folder / "streams" / "manifest.json").read_text())
        found = World(folder / "streams", kafka, manifest, request.param)
        send(kafka, manifest["rest"])
        for name in SOURCES:
            commit_orders(found.table(name), (5, 6))
        yield found


def _read_on_in_larger_batches(folder: Path) -> None:
    """The batch that was begun stays as it is; the others need not be as small."""
    for file in folder.glob("*.yaml"):
        limit = '"maxOffsetsPerTrigger": '
        file.write_text(file.read_text().replace(f"{limit}{RECORDS_PER_TRIGGER}", f"{limit}{2 * RECORDS_PER_TRIGGER}"))


@pytest.fixture(scope="module")
def continued(spark: SparkSession, world: World) -> World:
    """After all pipelines have run to the end: those of records by the command, those that follow tables in turn."""
    _log_as_arrow(world, "logged_sums")
    done = world.run(*(each.name for each in PIPELINES if each.follows is None))
    assert done.returncode == 0, done.stdout + done.stderr
    for pipeline in PIPELINES:
        if pipeline.follows is not None:
            world.follow(spark, pipeline)
    return world


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda each: each.name)
def test_a_pipeline_is_continued(continued: World, pipeline: Pipeline) -> None:
    rows = continued.rows(pipeline.name)
    if pipeline.follows is not None:
        assert rows == continued.rows(pipeline.follows)
    else:
        assert rows == continued.manifest["rows in the end"][pipeline.name]
        letters = continued.rows(f"{pipeline.name}_dead_letters")
        assert sorted(row["raw_value"].decode() for row in letters) == sorted(continued.manifest["broken"])
    table = continued.table(pipeline.name)
    ours = [each for each in table.snapshots() if each.commit_user == pipeline.name]
    batches = [each.commit_identifier for each in ours if each.commit_kind is CommitKind.APPEND]
    assert batches == list(range(len(batches))), "each batch is one commit"
    if pipeline.is_keyed:
        assert folded_changes(table.changelog().to_arrow().to_pylist(), pipeline.name) == rows


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_the_log_of_a_pipeline_tells_its_table(continued: World, isolation: str) -> None:
    """From the first record of then to the last of now, across the attempt that was never committed."""
    emitted = _emitted(continued.table("logged"), isolation, scan_mode="from-snapshot", from_snapshot=1)
    assert folded_changes(emitted, "logged") == continued.rows("logged")


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_a_log_of_json_is_read_from_a_snapshot_on(continued: World, isolation: str) -> None:
    """What was logged as JSON before its commit is refused; behind it is what was logged since."""
    table = continued.table("logged_sums")
    with pytest.raises(LogLostError, match=r"logged as JSON.*scan_mode='latest-full'"):
        _emitted(table, isolation, scan_mode="from-snapshot", from_snapshot=1)
    emitted = _emitted(table, isolation, scan_mode="from-snapshot-full", from_snapshot=continued.manifest["json until"])
    assert folded_changes(emitted, "logged_sums") == continued.rows("logged_sums")


def test_what_is_published_is_each_change_once(continued: World) -> None:
    changes = []
    for record in _published(continued.kafka, "log-published", 2):
        if record["before"] is not None:
            changes.append({**record["before"], "_ROW_KIND": "-U"})
        if record["after"] is not None:
            changes.append({**record["after"], "_ROW_KIND": "+U"})
    assert folded_changes(changes, "published") == continued.rows("published")


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_a_reader_of_the_log_goes_on(world: World, isolation: str) -> None:
    """The speculative one has returned an attempt that was never committed, and retracts it."""
    then = world.manifest["log states"][isolation]
    assert any(str(row["v"]).startswith("never") for row in then["shown"]) == (isolation == "speculative")
    emitted = _emitted(world.table("orders_logged"), isolation, log_state=then["state"])
    assert folded_changes([*then["shown"], *emitted], isolation) == world.rows("orders_logged")


@ON_SPARK
@pytest.mark.parametrize("stream", FOLLOWED, ids=lambda each: each.name)
def test_a_stream_is_continued(spark: SparkSession, world: World, stream: Stream) -> None:
    before = len(stream.kept(world.folder))
    stream.run(spark, world.folder)
    kept = stream.kept(world.folder)
    assert len(kept) > before > 0
    assert folded_changes(kept, stream.name) == world.rows(stream.table)


@ON_SPARK
@pytest.mark.parametrize("stream", [each for each in STREAMS if each.stopped_inside == 0], ids=lambda each: each.name)
def test_a_stream_killed_inside_its_first_batch_is_refused(spark: SparkSession, world: World, stream: Stream) -> None:
    """Where that batch began is not known any more."""
    with pytest.raises(StreamingQueryException, match=REFUSED):
        stream.run(spark, world.folder)
    assert stream.kept(world.folder) == []


def test_a_pipeline_killed_inside_its_first_batch_of_a_table_is_refused(spark: SparkSession, world: World) -> None:
    (pipeline,) = [each for each in pipelines("") if each not in PIPELINES]
    with pytest.raises(PipelineFailedError, match=REFUSED):
        world.follow(spark, pipeline)
    assert world.rows(pipeline.name) == []


def _log_as_arrow(world: World, name: str) -> None:
    """A pipeline that logged as JSON before the commit is refused, until its file and its table are changed."""
    file = world.folder / "pipelines" / f"{name}.yaml"
    table = world.table(name)
    world.manifest["json until"] = table.snapshots()[-1].id
    for remedy in (
        lambda: file.write_text(file.read_text().replace(',\n   "log.format": "debezium-json"', "")),
        lambda: table.alter(SetOption("log.format", "arrow")),
    ):
        done = world.run(name)
        assert done.returncode == 2 and "log.format=debezium-json is for consumers" in done.stdout + done.stderr
        remedy()
    assert table.snapshots()[-1].id == world.manifest["json until"], "nothing was written"


def _emitted(table: Table, isolation: str, **start: Any) -> list[Row]:
    """The changes that a reader of the log in plain Python gets, up to the end of the log."""
    reader = CaughtUp(table, isolation, **start)
    found = [row for batch in reader.batches() for row in batch.to_pylist()]
    reader.close()
    return found


def _published(kafka: str, topic: str, partition_count: int) -> list[Row]:
    """What a consumer that knows nothing of Freshet reads with `read_committed`, to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "somebody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(partition_count)]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=300)[1] for place in places}
    consumer.assign(places)
    found, left = [], set(ends)
    while left:
        message = consumer.poll(300)
        assert message is not None, "no end of the partition within 300 s"
        problem = message.error()
        if problem is None:
            found.append(json.loads(message.value()))
        else:
            assert problem.code() == KafkaError._PARTITION_EOF, problem
            if message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
    consumer.close()
    return found
