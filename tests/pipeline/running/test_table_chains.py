"""Pipelines chained from table to table with row kinds, over a real broker: each change once, also after a kill."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.sources.select_check import select_problems
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import RetryableError
from tests.kit.quick import some_now
from tests.logstore.logged_tables import SCHEMA, held, on_broker, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[3]
_NUMBERS = itertools.count()

PIPELINE = """\
name: {target}
sources:
  - table: {{warehouse: "{folder}", name: db.{source}, isolation: {isolation}, consumer-id: {target},
             maxFilesPerTrigger: 1, maxOffsetsPerTrigger: 1}}
table:
  warehouse: "{folder}"
  name: db.{target}
  columns: {{k: BIGINT, v: STRING}}
  primary_key: [k]
  options: {{bucket: 2, changelog-producer: lookup}}
trigger: {trigger}
checkpoint: "{folder}/checkpoint-{target}"
"""


@pytest.fixture
def table(kafka_broker: ForeignBroker, tmp_path: Path) -> Table:
    options = on_broker(kafka_broker)
    return Catalog(str(tmp_path)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options=options)


def pipeline(folder: Path, source: str, target: str, isolation: str, trigger: str = "{available_now: true}") -> Path:
    path = folder / f"{target}.yaml"
    path.write_text(PIPELINE.format(folder=folder, source=source, target=target, isolation=isolation, trigger=trigger))
    return path


def run(spark: SparkSession, *paths: Path) -> None:
    for path in paths:
        spark_runner(spark, [load_pipeline(path)], on_progress=lambda progress: None).run()


def folded(table: Table) -> dict[int, str]:
    """What its changelog adds up to; each change must fit on those before it."""
    found: dict[int, str] = {}
    for row in table.changelog().to_arrow().to_pylist():
        if row["_ROW_KIND"] in ("-U", "-D"):
            assert found.pop(row["k"]) == row["v"]
        else:
            assert row["k"] not in found
            found[row["k"]] = row["v"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("isolation", some_now(["speculative", "committed"]))
def test_tables_follow_each_other(spark: SparkSession, table: Table, tmp_path: Path, isolation: str) -> None:
    first = pipeline(tmp_path, "t", "copy", isolation)
    second = pipeline(tmp_path, "copy", "copyofcopy", "none")
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    for texts in ([], ["+I 1 d | -D 2 b | +I 4 e", "+I 1 f"]):
        write(table, *texts)
        run(spark, first, second)
        for name in ("db.copy", "db.copyofcopy"):
            copy = Catalog(str(tmp_path)).table(name)
            assert held(copy) == folded(copy) == held(table)
    snapshots = len(Catalog(str(tmp_path)).table("db.copy").snapshots())
    run(spark, first)
    assert len(Catalog(str(tmp_path)).table("db.copy").snapshots()) == snapshots
    assert "copy" in table.consumers()
    assert not Catalog(str(tmp_path)).has_table("db.copy_dead_letters")


@pytest.mark.slow
def test_rows_are_chosen_and_columns_computed(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    path = pipeline(tmp_path, "t", "copy", "committed")
    text = path.read_text().replace("isolation: committed", "filter: k > 1, isolation: committed")
    text = text.replace("table:\n  warehouse", "    select: {k: k, v: upper(v), w: length(v)}\ntable:\n  warehouse", 1)
    path.write_text(text.replace("v: STRING}", "v: STRING, w: INT, x: INT}"))
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    run(spark, path)
    write(table, "+I 1 d | -D 2 b | +I 3 ee")
    run(spark, path)
    rows_there = Catalog(str(tmp_path)).table("db.copy").scan().to_arrow().to_pylist()
    assert rows_there == [{"k": 3, "v": "EE", "w": 2, "x": None}]
    path.write_text(path.read_text().replace("upper(v)", "upper(nothing)"))
    [problem] = select_problems(spark, [load_pipeline(path)])
    assert "sources.0.select.v" in str(problem) and "nothing" in str(problem)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_a_batch_whose_commit_failed_is_written_once(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    path = pipeline(tmp_path, "t", "copy", "committed")
    write(table, "+I 1 a | +I 2 b")
    if not is_first:
        run(spark, path)
    write(table, "+I 1 c | -D 2 b", "+I 1 d")
    commit = Committer.commit

    def failing(self: Committer, *arguments: object, **named: object) -> object:
        raise RetryableError("the disk is full")

    monkeypatch.setattr(Committer, "commit", failing)
    with pytest.raises(PipelineFailedError, match="the disk is full"):
        run(spark, path)
    monkeypatch.setattr(Committer, "commit", commit)
    write(table, "+I 5 z")
    run(spark, path)
    copy = Catalog(str(tmp_path)).table("db.copy")
    assert held(copy) == folded(copy) == held(table) == {1: "d", 5: "z"}


@pytest.mark.slow
@pytest.mark.parametrize(("isolation", "is_made_anew"), [("none", True), ("committed", False)])
def test_a_source_whose_changes_are_gone_asks_for_no_other_try(
    spark: SparkSession, table: Table, tmp_path: Path, isolation: str, *, is_made_anew: bool
) -> None:
    """Not 75, with which a supervisor would start the pipeline again for ever."""
    path = pipeline(tmp_path, "t", "copy", isolation)
    path.write_text(path.read_text().replace("consumer-id: copy,", ""))
    write(table, "+I 1 a", "+I 1 b")
    run(spark, path)
    if is_made_anew:
        Catalog(str(tmp_path)).drop_table("db.t")
        table = Catalog(str(tmp_path)).create_table(
            "db.t", schema=SCHEMA, primary_keys=["k"], options={"bucket": "2", "changelog-producer": "lookup"}
        )
        path.write_text(path.read_text().replace("isolation: none,", ""))
    write(table, *(f"+I 1 c{number}" for number in range(5)))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    with pytest.raises(PipelineFailedError, match="new checkpoint") as failed:
        run(spark, path)
    assert (failed.value.kind, failed.value.exit_code) == (ErrorKind.INVALID_REQUEST, 65)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_killed_pipeline_goes_on_where_it_stood(table: Table, tmp_path: Path) -> None:
    path = pipeline(tmp_path, "t", "copy", "committed", "{processing_time: 0 s}")
    numbers = itertools.count()
    write(table, " | ".join(f"+I {key} a{key}" for key in range(50)))
    for _ in range(3):
        with running(path) as process:
            before = seen = snapshot_count(tmp_path)
            deadline = time.monotonic() + 600
            while seen <= before + 4:
                # A few for the pipeline to begin with, then one for each of its own: it is not left far behind while it
                # starts, however long that takes.
                for _ in range(3 if seen == before else 1):
                    write(table, " | ".join(f"+I {next(numbers) % 70} b{next(numbers)}" for _ in range(10)))
                while (now := snapshot_count(tmp_path)) == seen:
                    assert process.poll() is None and time.monotonic() < deadline, "the pipeline made no progress"
                    time.sleep(0.05)
                seen = now
            process.send_signal(signal.SIGKILL)
    done = pipeline(tmp_path, "t", "copy", "committed")
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", "--progress", "json", str(done)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert all(json.loads(line) for line in ran.stdout.splitlines())
    copy = Catalog(str(tmp_path)).table("db.copy")
    assert held(copy) == folded(copy) == held(table)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_pipeline_killed_in_its_first_batch_loses_nothing(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    write(table, " | ".join(f"+I {key} a{key}" for key in range(500)))
    for number in range(10):
        target = f"copy{number}"
        with running(pipeline(tmp_path, "t", target, "committed", "{processing_time: 0 s}")) as process:
            deadline = time.monotonic() + 600
            checkpoint = tmp_path / f"checkpoint-{target}"
            while not (checkpoint / "offsets" / "0").exists():
                assert process.poll() is None and time.monotonic() < deadline, "the pipeline planned nothing"
                time.sleep(0.001)
        if not (checkpoint / "commits" / "0").exists():
            break
    else:
        pytest.fail("ten first batches were done before they could be killed")
    write(table, "+I 1 b | +I 1000 c")
    run(spark, pipeline(tmp_path, "t", target, "committed"))
    copy = Catalog(str(tmp_path)).table(f"db.{target}")
    assert held(copy) == folded(copy) == held(table)


@contextmanager
def running(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline in a process of its own, and in the end its JVM dead as well."""
    command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def snapshot_count(folder: Path) -> int:
    catalog = Catalog(str(folder))
    latest = catalog.table("db.copy").latest_snapshot() if catalog.has_table("db.copy") else None
    return 0 if latest is None else latest.id
