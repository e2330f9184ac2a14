"""Freshet's main job in a session that stays warm, and its floor; one command a line.

run PIPELINE.yaml          the pipeline to its end, as `freshet run` does it, in this session
floor BOOTSTRAP TOPIC [N]  the smallest job of the same shape: Kafka source, rows counted in Python workers, a
                           shuffle of the counts, counted again; N records a batch
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from bench.freshet_worker import serve
from bench.measure import warm_ms
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark.arrow_bridge import KeptColumns
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import create_session

WARM_BATCHES: Final = 20
"""Batches of a run whose times count, the last ones; Spark remembers as many."""

_COUNT: Final = spark.StructType().add("rows", spark.LongType())
_RAW: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


class Worker:
    """One Spark session, two cores."""

    def __init__(self) -> None:
        self.spark = create_session("bench-cdc", master="local[2]", jars=ensure_jars(SPARK_GROUP))

    def run(self, path: str) -> dict[str, object]:
        """Seconds from the loading of the file to the end of the query, and what the batches reported."""
        reported: list[Progress] = []
        started = time.perf_counter()
        spark_runner(self.spark, load_pipelines([Path(path)]), on_progress=reported.append).run()
        batches = [(each.report.read_count, each.batch_ms) for each in reported[-WARM_BATCHES:]]
        return {"seconds": time.perf_counter() - started, "batch_ms": warm_ms(batches)}

    def floor(self, bootstrap: str, topic: str, batch_records: str = "") -> dict[str, object]:
        """Seconds of a query that only counts, and the median milliseconds of its batches."""
        total = 0

        def count(frame: DataFrame, _: int) -> None:
            nonlocal total
            counted = KeptColumns([F.col(name) for name in _RAW]).map_in_arrow(frame, _count, _COUNT)
            frame.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            rows = KeptColumns([F.col("rows")])
            summed = rows.map_in_arrow(counted.repartitionById(2, F.lit(0)), _sum, _COUNT)
            total += sum(row[0] for row in summed.collect())

        started = time.perf_counter()
        source = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        if batch_records:
            source = source.option("maxOffsetsPerTrigger", batch_records)
        frame = source.option("subscribe", topic).option("startingOffsets", "earliest").load().select(*_RAW)
        folder = tempfile.mkdtemp(prefix="freshet-bench-floor-")
        query = frame.writeStream.foreachBatch(count).option("checkpointLocation", folder)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        times = [progress["durationMs"]["triggerExecution"] for progress in running.recentProgress]
        shutil.rmtree(folder, ignore_errors=True)
        median = statistics.median(times[-WARM_BATCHES:])
        return {"seconds": time.perf_counter() - started, "rows": total, "batch_ms": median}


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


def _sum(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": pa.array([sum(sum(batch["rows"].to_pylist()) for batch in batches)], pa.int64())})


if __name__ == "__main__":
    serve(Worker())
