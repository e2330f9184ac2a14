"""A process that runs pipelines or streams of a golden archive, each to where it is stopped, and then kills itself.

    python -m tests.upgrade.stopped_program WORLD KAFKA pipelines
    python -m tests.upgrade.stopped_program WORLD KAFKA streams
    python -m tests.upgrade.stopped_program WORLD - files

Pipelines halt before or after the commit of their table, streams in their sink. When all of them have halted, SIGKILL
goes to the whole process group. `tests.upgrade.make` starts it, with the code of the head that the archive is of.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.running.spark_pipeline import spark_runner, spark_settings
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.logs.log_systems import TaskLog
from freshet.storage.model.commit_message import CommitMessage
from tests.upgrade.file_pipelines import FILE_PIPELINES
from tests.upgrade.shapes import Row
from tests.upgrade.streams import STREAMS, Pipeline, Stream, commit_orders, patiently, pipelines

TIMEOUT_S = 600.0


class Stops:
    """Counts the pipelines and streams that have halted where they are to be stopped."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._change = threading.Condition()

    def halt(self, name: str) -> NoReturn:
        """Never returns."""
        with self._change:
            self._names.add(name)
            self._change.notify_all()
        while True:
            signal.pause() if threading.current_thread() is threading.main_thread() else time.sleep(TIMEOUT_S)

    def has(self, name: str) -> bool:
        """True when it has halted."""
        with self._change:
            return name in self._names

    def wait_for(self, names: set[str]) -> None:
        """Returns when all of them have halted."""
        with self._change:
            if not self._change.wait_for(lambda: self._names == names, TIMEOUT_S):
                raise TimeoutError(f"not where they are to be stopped: {sorted(names ^ self._names)}")


def stop_commits(stops: Stops, all_pipelines: Sequence[Pipeline]) -> None:
    """Makes the driver halt at the commits of pipelines; patches what it calls."""
    commit = Committer.commit
    places = {f"/shop.db/{each.name}": each for each in all_pipelines}

    def halted(self: Committer, identifier: int, messages: Sequence[CommitMessage], **given: Any) -> CommitResult:
        found = [each for place, each in places.items() if self._store.location.endswith(place)]
        is_here = bool(found) and identifier == found[0].batch
        if is_here and found[0].point == "before-commit":
            stops.halt(found[0].name)
        result = commit(self, identifier, messages, **given)
        if is_here:
            stops.halt(found[0].name)
        return result

    Committer.commit = halted  # type: ignore[method-assign]


def begin_attempt(table: Table, identifier: int) -> None:
    """An attempt at a commit is in the log, and will never be committed."""
    driver, base = table.engine.log.open("orders-cdc"), table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=TaskLog(driver.identity, driver.epoch, 1))
    task.write([{"k": key, "v": f"never {key}", "_ROW_KIND": "+I"} for key in range(0, 30, 4)])
    task.prepare_commit(identifier)


def log_states(table: Table) -> dict[str, Any]:
    """Readers of the log in plain Python: what each has shown, and where it goes on."""
    found = {}
    for isolation, wait_s in (("committed", 0.0), ("speculative", 10.0)):
        stream = table.stream(isolation=isolation, max_wait_s=wait_s)
        shown = [row for batch in stream for row in batch.to_pylist()]
        found[isolation] = {"shown": shown, "state": stream.state}
        stream.close()
    return found


def main() -> None:
    """Brings everything to its place, and ends with SIGKILL."""
    world, kafka, part = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    stops = Stops()
    os.environ |= {"WORLD": str(world), "KAFKA": kafka}
    if part == "pipelines":
        run_pipelines(world, pipelines(kafka), stops)
    elif part == "files":
        there = {path.stem for path in (world / "pipelines").iterdir()}
        run_pipelines(world, [each for each in FILE_PIPELINES if each.name in there], stops)
    else:
        follow(create_session("golden", settings=SHORT_LIVED, master="local[2]"), world, stops)
    os.killpg(0, signal.SIGKILL)


def run_pipelines(world: Path, everything: Sequence[Pipeline], stops: Stops) -> None:
    """Pipelines, all in one process, until each halts at its commit; those that follow tables start in turn, as each
    has a Python process that Spark waits ten seconds for."""
    readers = [each.name for each in everything if each.follows is None]
    followers = [[each.name] for each in everything if each.follows is not None]
    configs = {each.name: load_pipelines([world / "pipelines" / f"{each.name}.yaml"])[0] for each in everything}
    settings = {**SHORT_LIVED, **spark_settings(list(configs.values()))}
    spark = create_session("golden", settings=settings, jars=ensure_jars(SPARK_GROUP), master="local[2]")
    stop_commits(stops, everything)
    halted: set[str] = set()
    for names in (readers, *followers):
        run = partial(run_until_stopped, spark, [configs[name] for name in names])
        threading.Thread(target=run, daemon=True).start()
        halted |= set(names)
        stops.wait_for(halted)


def run_until_stopped(spark: SparkSession, configs: Sequence[PipelineConfig]) -> None:
    """Runs pipelines, which halt in the middle; the process ends if they end."""
    try:
        patiently(lambda: spark_runner(spark, configs, say=lambda text: print(text, flush=True)).run())
    finally:
        os._exit(1)


def follow(spark: SparkSession, world: Path, stops: Stops) -> None:
    """Streams read a first time, then further until they end or halt."""
    tables = {each.table: Catalog(str(world / "warehouse")).table(f"shop.{each.table}") for each in STREAMS}
    for stream in STREAMS:
        if stream.stopped_inside != 0:
            stream.run(spark, world)
    for table in tables.values():
        commit_orders(table, (3, 4))
    begin_attempt(tables["orders_logged"], 5)
    (world / "log_states.json").write_text(json.dumps(log_states(tables["orders_logged"])))
    for stream in STREAMS:
        if stream.stopped_inside is None:
            stream.run(spark, world)
        else:
            stop_inside(spark, world, stream, stops)


def stop_inside(spark: SparkSession, world: Path, stream: Stream, stops: Stops) -> None:
    """The stream halts in its sink, in the batch it is stopped in."""
    keep = stream.keep(world)

    def sink(batch: int, rows: list[Row]) -> None:
        if batch == stream.stopped_inside:
            stops.halt(stream.name)
        keep(batch, rows)

    query = stream.start(spark, world, sink)
    while not stops.has(stream.name):
        if query.awaitTermination(timeout=0.1):
            raise RuntimeError(f"{stream.name} ended before batch {stream.stopped_inside}")


if __name__ == "__main__":
    main()
