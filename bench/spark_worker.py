"""W1 through Structured Streaming, one command a line: Parquet files as the source, one file a micro-batch.

    python -m bench.spark_worker freshet | floor | delta

| kind | what `foreachBatch` does |
|---|---|
| freshet | `table_sink` |
| floor | the same job (bucket hash, shuffle, rows into Python) with a task that only counts them; nothing is written |
| delta | Delta Lake `MERGE INTO` on the key, updates and inserts |

`write FOLDER` writes the same files as one frame: `freshet.write` (freshet), Delta Lake's append (delta), which merges
nothing. `small FOLDER BATCHES ROWS KEYS [option=value …]` measures the smallest batches; with kind floor it also gives
Spark's own floor (no job).
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from bench.cells import paimon_type
from bench.freshet_worker import serve
from bench.workloads import W1, WORKLOADS, Workload
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.spark.frame_write import write
from freshet.pipeline.spark.jars import ensure_jars
from freshet.pipeline.spark.routing import TaskPlan, route_rows
from freshet.pipeline.spark.session import create_session
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
}

_ROW_GROUP_ROWS = 50_000
"""With one row group a file, only one of two cores could scan it."""


class Worker:
    """One Spark session, `local[2]`, and the source files of a workload."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        settings = DELTA_SETTINGS if kind == "delta" else {"spark.sql.shuffle.partitions": "2"}
        jars = ensure_jars("delta") if kind == "delta" else []
        self.spark: SparkSession = create_session(
            f"bench-{kind}", master="local[2]", settings={**settings, "spark.driver.memory": "3g"}, jars=jars
        )
        self.workload: Workload = W1
        self.source = ""

    def make(self, name: str, factor: str, source: str) -> dict[str, object]:
        """Writes the rows of each commit as one Parquet file, unless they lie there already."""
        self.workload, self.source = WORKLOADS[name].scaled(float(factor)), source
        Path(source).mkdir(parents=True, exist_ok=True)
        for number in range(self.workload.commits):
            path = Path(source) / f"part-{number:03}.parquet"
            if not path.exists():
                rows = self.workload.table(number)
                pq.write_table(rows, path, compression="snappy", row_group_size=_ROW_GROUP_ROWS)
        return {"rows": self.workload.rows}

    def ingest(self, folder: str) -> dict[str, object]:
        """Streams all files, one a batch, and waits for the end."""
        reports: list[BatchReport] = []
        started = time.perf_counter()
        self._stream(self.source, folder, self._sink(folder, self.workload, reports))
        answer: dict[str, object] = {"seconds": time.perf_counter() - started}
        if reports:
            answer["where"] = _where(reports[1:] or reports)
        return answer

    def write(self, folder: str) -> dict[str, object]:
        """Writes all files as the rows of one batch frame, in one commit."""
        frame = self.spark.read.parquet(self.source)
        table = None if self.kind == "delta" else _create(folder, self.workload)
        started = time.perf_counter()
        if table is None:
            frame.write.format("delta").mode("append").save(f"{folder}/delta")
        else:
            write(frame, table)
        return {"seconds": time.perf_counter() - started}

    def small(self, folder: str, batches: str, rows: str, keys: str, *pairs: str) -> dict[str, object]:
        """Median milliseconds of a micro-batch of few rows, as Spark's progress reports it."""
        source = f"{folder}-source"
        Path(source).mkdir(parents=True)
        options = dict(pair.split("=", 1) for pair in pairs)
        small = Workload("small", int(batches) * int(rows), int(batches), 2, int(keys), W1.columns, options=options)
        for number in range(small.commits):
            pq.write_table(small.table(number), Path(source) / f"part-{number:03}.parquet")
        reports: list[BatchReport] = []
        answer: dict[str, object] = {}
        sinks = {self.kind: self._sink(folder, small, reports)}
        if self.kind == "floor":
            sinks["no job"] = lambda frame, batch_id: None
        for name, sink in sinks.items():
            answer[name] = self._stream(source, f"{folder}-{name.replace(' ', '-')}", sink)
        if reports:
            answer["where"] = _where(reports[5:])
        answer["seconds"] = 0.0
        return answer

    def read(self, folder: str) -> dict[str, object]:
        """Rows and the sum of keys of what was written, to compare with others."""
        if self.kind == "delta":
            row = self.spark.sql(f"SELECT count(*), sum(id) FROM delta.`{folder}/delta`").first()
            assert row is not None
            return {"rows": row[0], "checksum": row[1], "seconds": 0.0}
        rows = Catalog(folder).table("bench.t").scan(columns=["id"]).to_arrow()
        return {"rows": rows.num_rows, "checksum": sum(rows["id"].to_pylist()), "seconds": 0.0}

    def _stream(self, source: str, folder: str, sink: Callable[[DataFrame, int], None]) -> float:
        checkpoint = f"{folder}-checkpoint"
        frame = (
            self.spark.readStream.schema(self.spark.read.parquet(source).schema)
            .option("maxFilesPerTrigger", "1")
            .parquet(source)
        )
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        times = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
        shutil.rmtree(checkpoint, ignore_errors=True)
        return float(statistics.median(times[5:] or times))

    def _sink(self, folder: str, workload: Workload, reports: list[BatchReport]) -> Callable[[DataFrame, int], None]:
        if self.kind == "delta":
            return self._delta_sink(f"{folder}/delta")
        table = _create(folder, workload)
        if self.kind == "floor":
            return lambda frame, batch_id: _count_only(frame, table)
        return table_sink(folder, "bench.t", commit_user="bench", on_report=reports.append)

    def _delta_sink(self, location: str) -> Callable[[DataFrame, int], None]:
        self.spark.sql(f"CREATE TABLE delta.`{location}` (id BIGINT, v1 BIGINT, v2 DOUBLE, payload STRING) USING delta")

        def merge(frame: DataFrame, batch_id: int) -> None:
            # MERGE refuses two rows of one key; the last of each key would need an order, any does for the bench.
            frame.dropDuplicates(["id"]).createOrReplaceTempView("changes")
            frame.sparkSession.sql(
                f"MERGE INTO delta.`{location}` AS t USING changes AS s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        return merge


def _create(folder: str, workload: Workload) -> Table:
    return Catalog(folder).create_table(
        "bench.t",
        schema={name: paimon_type(kind) for name, kind in workload.columns.items()},
        primary_keys=[workload.key],
        options={"bucket": str(workload.buckets), **workload.options},
    )


def _count_only(frame: DataFrame, table: Table) -> None:
    tasks = TaskPlan(tasks_max=2, parallelism=2)
    routing = route_rows(frame, table.schema, table.options, tasks, is_rescaled=False)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

    spark = frame.sparkSession
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    placed = routing.distributed(frame)
    routing.crossing.map_in_arrow(placed, count, StructType().add("rows", LongType())).collect()


def _where(reports: list[BatchReport]) -> dict[str, Any]:
    """Median milliseconds per step: of the driver, and of the tasks (summed over tasks)."""
    driver = {name: statistics.median(r.times_ms.get(name, 0.0) for r in reports) for name in reports[0].times_ms}
    tasks = {
        f"task {name}": statistics.median(r.result.times_ms.get(name, 0.0) for r in reports)
        for name in reports[0].result.times_ms
    }
    return {name: round(value, 1) for name, value in {**driver, **tasks}.items()}


if __name__ == "__main__":
    serve(Worker(sys.argv[1]))
