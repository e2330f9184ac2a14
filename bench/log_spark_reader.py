"""The Spark source as a reader of the table of `log_latency_bench`; SIGTERM ends it, and it writes what it saw.

    python -m bench.log_spark_reader ISOLATION WAREHOUSE OUT

A row counts as seen when the function of `foreachBatch` has it. The trigger is as fast as possible.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame

from bench.log_reader import end_on_sigterm
from bench.seen_rows import SEEN_COLUMNS, SeenRows
from freshet import register
from freshet.pipeline.spark.session import SHORT_LIVED, create_session


def main(isolation: str, warehouse: str, out: str) -> None:
    """Reads until SIGTERM."""
    end_on_sigterm()
    seen = SeenRows()

    def take(frame: DataFrame, batch: int) -> None:
        rows = frame.toArrow()
        if rows.num_rows:
            seen.add(rows)
        if batch == 1:
            print("reading", flush=True)

    spark = create_session("log-reader", master="local[2]", settings=SHORT_LIVED)
    register(spark)
    source = spark.readStream.format("freshet").option("warehouse", warehouse).option("table", "bench.t")
    source = source.option("scan.mode", "latest").option("columns", ",".join(SEEN_COLUMNS))
    frame = source.option("log.read.isolation", isolation).load()
    with tempfile.TemporaryDirectory(prefix="freshet-bench-reader-") as checkpoint:
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        with suppress(KeyboardInterrupt):
            query.awaitTermination()
        query.stop()
    spark.stop()
    seen.write(Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
