"""Compaction rounds of a stream on the driver: units in a thread, errors, a clean end. The thread plays Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, SetOption, Table, table_sink
from freshet.pipeline.batch import background_rounds
from freshet.pipeline.batch.background_rounds import ONE_CORE, BackgroundReport, BackgroundRounds
from freshet.pipeline.config.model import CompactionConfig
from tests.kit.spark import inside_query

OPTIONS = {"bucket": "1", "changelog-producer": "lookup"}
BATCHES_MAX = 200
"""By then a unit was reported, on any machine: fourteen are enough where a unit lasts no longer than some batches."""


class PlayedSpark:
    """A session whose jobs run where they are asked for; `before` is called with each."""

    def __init__(self, cores: int = 2) -> None:
        self.sparkContext = self
        self.defaultParallelism = cores
        self.before: Callable[[], None] = lambda: None
        self.properties: dict[str, str] = {}
        self.cancelled: list[str] = []

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802 - Spark's name
        self.properties["group"] = group

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        self.cancelled.append(group)

    def parallelize(self, items: list[Any], slices: int) -> PlayedSpark:
        assert slices == 1
        self.items = items
        return self

    def map(self, task: Callable[[Any], Any]) -> PlayedSpark:
        self.task = task
        return self

    def collect(self) -> list[Any]:
        self.before()
        return [self.task(item) for item in self.items]

    @property
    def session(self) -> SparkSession:
        return cast(SparkSession, self)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(str(tmp_path)).create_table(
        "db.t", schema={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
    )


@pytest.fixture
def played() -> PlayedSpark:
    return PlayedSpark()


@pytest.fixture
def rounds(table: Table) -> Iterator[BackgroundRounds]:
    made = BackgroundRounds(table, "stream", budget_ms=0)
    yield made
    made.close()


def batch(table: Table, rounds: BackgroundRounds, number: int, played: PlayedSpark) -> None:
    with rounds.batch(table) as limit:
        base = table.latest_snapshot()
        writer = table.engine.task_writer(base_snapshot_id=None if base is None else base.id)
        writer.write(pa.table({"k": [number, number + 1], "v": [str(number)] * 2}))
        messages = writer.prepare_commit(number, limit=limit)
        writer.close()
        table.engine.committer("stream").commit(number, messages)
    rounds.after_batch(played.session, [(message.partition, message.bucket) for message in messages])


def wait_for(rounds: BackgroundRounds, is_there: Callable[[BackgroundReport], bool]) -> BackgroundReport:
    pause = threading.Event()
    for _ in range(15_000):
        report = rounds.report()
        if is_there(report):
            return report
        pause.wait(0.02)
    raise AssertionError("the rounds did not get there")


def test_units_run_in_the_background_and_are_reported_once(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark
) -> None:
    for number in range(4):
        batch(table, rounds, number, played)
    report = wait_for(rounds, lambda report: report.units > 0)
    assert report.input_bytes > 0
    assert report.failure is None
    rounds.close()
    later = rounds.report()
    made = [snapshot for snapshot in table.snapshots() if snapshot.commit_user == "stream-compact"]
    assert {snapshot.commit_kind for snapshot in made} == {"COMPACT"}
    assert report.units + later.units == len(made), "one or more, by how far the batches were when the first began"
    assert played.properties["spark.scheduler.pool"] == "freshet-compaction"
    assert rounds.report().units == 0
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [0, 1, 2, 3, 4]


def test_an_error_is_reported_and_batches_compact_until_a_unit_succeeds(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_rounds, "RETRY_S", 0.05)
    broken, written = threading.Event(), threading.Event()
    broken.set()

    def fail() -> None:
        assert written.wait(300), "a batch after the error would leave nothing to do"
        if broken.is_set():
            raise OSError("No space left on device")

    played.before = fail
    for number in range(4):
        batch(table, rounds, number, played)
    written.set()
    report = wait_for(rounds, lambda report: report.failure is not None)
    assert "No space left on device" in (report.failure or "")
    with rounds.batch(table) as limit:
        assert limit is None, "the batch compacts as it would without rounds"
    broken.clear()
    assert wait_for(rounds, lambda report: report.failure is None)
    with rounds.batch(table) as limit:
        assert limit is not None


def test_close_waits_for_the_unit_that_runs(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_rounds, "STOP_WAIT_S", 300.0)
    started, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        goes_on.wait(300)

    played.before = wait
    for number in range(4):
        batch(table, rounds, number, played)
    assert started.wait(300)
    closing = threading.Thread(target=rounds.close)
    closing.start()
    assert rounds._stop.wait(300)
    assert closing.is_alive()
    goes_on.set()
    closing.join(300)
    assert not closing.is_alive()
    assert rounds.report().units == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "freshet-compaction-stream"]
    assert played.cancelled == []


def test_close_cancels_a_unit_that_takes_too_long(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_rounds, "STOP_WAIT_S", 0.05)
    started = threading.Event()

    def wait() -> None:
        started.set()
        pause = threading.Event()
        while not played.cancelled:
            pause.wait(0.01)
        raise OSError("job cancelled")

    played.before = wait
    for number in range(4):
        batch(table, rounds, number, played)
    assert started.wait(300)
    before = table.latest_snapshot()
    rounds.close()
    assert played.cancelled == [played.properties["group"]]
    assert rounds.report().units == 0
    assert table.latest_snapshot() == before
    assert rounds.report().failure is None, "nothing failed: it was stopped"


def test_one_core_leaves_the_compaction_to_the_batches(table: Table, rounds: BackgroundRounds) -> None:
    batch(table, rounds, 0, PlayedSpark(cores=1))
    assert rounds.report().failure == ONE_CORE
    with rounds.batch(table) as limit:
        assert limit is None


def test_the_thread_ends_when_nothing_is_due(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_rounds, "IDLE_S", 0.02)
    batch(table, rounds, 0, played)
    (thread,) = [each for each in threading.enumerate() if each.name == "freshet-compaction-stream"] or [None]
    if thread is not None:
        thread.join(300)
        assert not thread.is_alive()
    for number in range(1, 4):
        batch(table, rounds, number, played)
    assert wait_for(rounds, lambda report: report.units >= 1)


def test_an_altered_table_is_followed(table: Table, rounds: BackgroundRounds, played: PlayedSpark) -> None:
    batch(table, rounds, 0, played)
    newer = table.alter(SetOption("num-levels", "7"))
    for number in range(1, 5):
        batch(newer, rounds, number, played)
    assert wait_for(rounds, lambda report: report.units >= 1)


def test_a_table_that_is_altered_so_that_it_cannot_be(
    table: Table, rounds: BackgroundRounds, played: PlayedSpark
) -> None:
    batch(table, rounds, 0, played)
    newer = table.alter(SetOption("num-levels", "4"))
    for number in range(1, 5):
        batch(newer, rounds, number, played)
    report = wait_for(rounds, lambda report: report.failure is not None)
    assert "4 levels" in (report.failure or "")
    assert report.units == 0
    with rounds.batch(newer) as limit:
        assert limit is None


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "kind", ["fixed", pytest.param("dynamic", marks=pytest.mark.slow), pytest.param("moving", marks=pytest.mark.slow)]
)
def test_units_are_tasks_of_the_application(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """Also where keys are assigned, and where each batch moves its rows into another partition."""
    options = {**OPTIONS, "bucket": "2" if kind == "fixed" else "-1", "dynamic-bucket.target-row-num": "30"}
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING"},
        primary_keys=["k"],
        partition_keys=["p"] if kind == "moving" else [],
        options={**options, "cross-partition-upsert.index-dir": str(tmp_path / "index")},
    )
    held: dict[int, tuple[str, str]] = {}
    reports: list[Any] = []
    sink = table_sink(
        str(tmp_path), "db.t", commit_user="s", compaction=CompactionConfig(background=True, batch_budget="0"),
        on_report=reports.append,
    )  # fmt: skip
    try:
        for number in range(BATCHES_MAX):
            rows = [(key, "abc"[(key + number) % 3], f"{key}-{number}") for key in range(number, number + 40)]
            with inside_query(spark):
                sink(spark.createDataFrame(rows, "k int, p string, v string"), number)
            held |= {key: (p, v) for key, p, v in rows}
            if number >= 13 and sum(report.background.units for report in reports) >= 1:
                break
    finally:
        sink.close()
    snapshots = table.snapshots()
    assert {snapshot.commit_user for snapshot in snapshots} == {"s", "s-compact"}
    assert all(report.background.failure is None for report in reports), reports[-1].background
    assert sum(report.background.units for report in reports) >= 1
    found = table.scan().to_arrow().to_pylist()
    assert len(found) == len(held) and {row["k"]: (row["p"], row["v"]) for row in found} == held
    assert not table.check().damage
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("freshet-compaction")]
