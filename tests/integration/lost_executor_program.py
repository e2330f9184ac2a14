"""A micro-batch in executors of their own, one of which is killed when its map tasks are done: run by a test.

    python -m tests.integration.lost_executor_program FOLDER WAREHOUSE outcomes | rows | compaction | dynamic | moving

The first task that writes kills the executor it runs in, and with it the shuffle files of that executor's map tasks:
Spark computes those again. With `compaction` it does so when its first compaction has written its files, into a table
with a changelog that has all of the rows already. With `dynamic` there are batches before and after, of old and new
keys, into a table with dynamic buckets: what is lost is the work of its assigners, and they note in which process they
work; a task has ended by then, so that the job is run again as a whole. `moving` is the same with a table whose rows
move between partitions: keys come back with another partition in each batch, and stay where they were first. Prints
one JSON object: what the batch reported, and whether an executor was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

import freshet.pipeline.spark.column_way
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.task.batch_work import BatchWork
from freshet.pipeline.query.task.key_task import AssignerTask, MoverTask
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.query.wire.batch_pin import BatchPin, TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.spark.arrow_bridge import KeptColumns
from freshet.pipeline.spark.session import SHORT_LIVED, create_session
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.compact.rewriter import CompactedFiles, Rewriter
from freshet.storage.table import Table
from tests.kit.spark import inside_query
from tests.pipeline.query.outcome_rows import data, dead, outcome_schema, outcome_table, tally

RECORDS: Final = 2000
MAP_TASKS: Final = 4
DEAD_EACH: Final = 100
BUCKETS: Final = 4
LOOKUP: Final = {"changelog-producer": "lookup"}
DYNAMIC: Final = {
    "bucket": "-1",
    "dynamic-bucket.target-row-num": "100",
    "merge-engine": "aggregation",
    "fields.count.aggregate-function": "sum",
}
MOVING_PARTITIONS: Final = 3
DYNAMIC_BATCHES: Final = 8
KILLED_IN: Final = 3
NEW_KEYS: Final = 200
EXECUTORS: Final = 2


@dataclass(frozen=True, slots=True)
class KillingTask:
    """Kills its executor once: worker, daemon, JVM are parent and child. It travels as its class does, which no module
    has: a subclass of a struct would not."""

    work: KeptValue[BatchWork]
    marker: str = ""
    is_in_compaction: bool = False
    is_last: bool = False
    """Whether the driver has the result of the first task before the executor of another is killed."""

    killed_in: int = 0
    """The first batch whose tasks kill."""

    def _assigners(self, pin: BatchPin) -> list[int]:
        """The workers that were assigners of this batch: what they sent to the shuffle is lost with their executors."""
        noted = Path(self.marker).parent.glob(f"assigner-{pin.micro_batch_id}-*")
        return [int(path.name.rpartition("-")[2]) for path in noted]

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        if place.pin(0).micro_batch_id < self.killed_in:
            yield from WriteTask(self.work).run(batches, place)
            return
        if not self.is_in_compaction:
            context = TaskContext.get()
            assert context is not None
            ended = Path(f"{self.marker}-ended")
            if self.is_last and context.partitionId() == 0:
                yield from WriteTask(self.work).run(batches, place)
                ended.touch()
                return
            while self.is_last and not ended.exists():
                time.sleep(0.1)
            time.sleep(2 if self.is_last and not Path(self.marker).exists() else 0)  # its result is on its way
            kill_executor(self.marker, self._assigners(place.pin(0)) if self.is_last else ())
            yield from WriteTask(self.work).run(batches, place)
            return
        compact = Rewriter.compact

        def killing(*arguments: Any, **options: Any) -> CompactedFiles:
            result = compact(*arguments, **options)
            kill_executor(self.marker)
            return result

        Rewriter.compact = killing  # type: ignore[method-assign]
        try:
            yield from WriteTask(self.work).run(batches, place)
        finally:
            Rewriter.compact = compact  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class NotedAssigner(AssignerTask):
    """Notes which process was the assigner of which Spark partition, batch by batch."""

    folder: str = ""

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        note_assigner(self.folder, place.pin(0))
        yield from AssignerTask.run(self, batches, place)


@dataclass(frozen=True, slots=True)
class NotedMover(MoverTask):
    """The same of movers."""

    folder: str = ""

    def run(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Iterator[pa.RecordBatch]:
        note_assigner(self.folder, place.pin(0))
        yield from MoverTask.run(self, batches, place)


def note_assigner(folder: str, batch: BatchPin) -> None:
    """Leaves a file that says which process works on this Spark partition."""
    context = TaskContext.get()
    assert context is not None
    Path(folder, f"assigner-{batch.micro_batch_id}-{context.partitionId()}-{os.getpid()}").touch()


def kill_executor(marker: str, others: Iterable[int] = ()) -> None:
    """Kills the executor of this worker, and before it those of other workers, unless that was done before."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    own = _parent(os.getppid())  # the daemon of the worker is the child of the executor
    there = (worker for worker in others if Path(f"/proc/{worker}").exists())  # an idle one may have ended
    executors = [*{_parent(_parent(worker)) for worker in there} - {own}, own]
    assert all(b"java" in Path(f"/proc/{executor}/cmdline").read_bytes() for executor in executors)
    Path(f"{marker}-executors").write_text(str(len(executors)))
    for executor in executors:
        os.kill(executor, signal.SIGKILL)
    time.sleep(60)  # nothing of this task goes on: the daemon ends with its executor, and its workers with it


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    """Runs the batch."""
    folder, warehouse, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    is_assigned, moves = kind in ("dynamic", "moving"), kind == "moving"
    column = {"count": "BIGINT"} if is_assigned else {"name": "STRING"}
    options = {"bucket": str(BUCKETS), **(LOOKUP if kind == "compaction" else {})}
    if moves:
        column["part"] = "INT NOT NULL"
        options = DYNAMIC | {"cross-partition-upsert.index-dir": str(folder / "index")}
    table = Catalog(warehouse).create_table(
        "db.t",
        schema={"id": "BIGINT", **column},
        primary_keys=["id"],
        partition_keys=["part"] if moves else [],
        options=DYNAMIC if kind == "dynamic" else options,
    )
    if kind == "compaction":
        with table.writer("before") as writer:
            writer.write(pa.table({"id": list(range(RECORDS)), "name": ["before"] * RECORDS}))
            writer.commit(0)

    killing = partial(
        KillingTask,
        marker=str(folder / "killed"),
        is_in_compaction=kind == "compaction",
        is_last=is_assigned,
        killed_in=KILLED_IN if is_assigned else 0,
    )
    freshet.pipeline.spark.column_way.WriteTask = killing  # type: ignore[assignment, misc]
    freshet.pipeline.spark.column_way.AssignerTask = partial(NotedAssigner, folder=str(folder))  # type: ignore[assignment, misc]
    freshet.pipeline.spark.column_way.MoverTask = partial(NotedMover, folder=str(folder))  # type: ignore[assignment, misc]
    settings = {**SHORT_LIVED, "spark.sql.shuffle.partitions": str(BUCKETS), "spark.executor.memory": "512m"}
    spark = create_session("lost-executor", settings=settings, master=f"local-cluster[{EXECUTORS},1,1024]")
    reports: list[BatchReport] = []
    sink = table_sink(warehouse, "db.t", commit_user="stream", dead_letters="db.dead", on_report=reports.append)
    with inside_query(spark):
        if is_assigned:
            for batch in range(DYNAMIC_BATCHES):
                sink(_counted(spark, batch, moves=moves), batch)
        else:
            sink(_outcomes(spark, table) if kind == "outcomes" else _rows(spark), 0)
    result = reports[0].result
    print(
        json.dumps(
            {
                "read": reports[0].read_count,
                "applied": result.applied,
                "dead": dict(result.dead),
                "skipped": dict(result.skipped),
                "killed": (folder / "killed-executors").exists(),
            }
        ),
        flush=True,
    )
    work = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)  # Spark keeps the logs of executors in its own folder


def _rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, RECORDS, 1, MAP_TASKS).select("id", F.concat(F.lit("n"), "id").alias("name"))


def _counted(spark: SparkSession, batch: int, *, moves: bool) -> DataFrame:
    """Keys of which most are in the batch before, then with the partition before this one."""
    start = batch * NEW_KEYS
    columns = [F.col("id"), F.lit(1).cast("bigint").alias("count")]
    if moves:
        columns.append(((F.col("id") + batch) % MOVING_PARTITIONS).cast("int").alias("part"))
    return spark.range(start, start + RECORDS, 1, MAP_TASKS).select(*columns)


def _outcomes(spark: SparkSession, table: Table) -> DataFrame:
    """Every map task decodes its ids: some are dead letters, one is skipped, a tally ends it."""
    schema = table.schema

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = [number for batch in batches for number in batch.column(0).to_pylist()]
        rows = [data(number, number, f"n{number}") for number in ids[DEAD_EACH:-1]]
        rows += [dead(number) for number in ids[:DEAD_EACH]]
        rows.append(tally(len(ids), {"tombstone": 1}))
        yield from outcome_table(schema, rows, bucket_count=BUCKETS).to_batches()

    frame = spark.range(0, RECORDS, 1, MAP_TASKS)
    return KeptColumns([F.col("id")]).map_in_arrow(frame, decode, from_arrow_schema(outcome_schema(schema)))


if __name__ == "__main__":
    main()
