"""Runs a pipeline in a session of its own as if its topic held small records only; prints the polls after each batch.

python -m tests.integration.growing_records_program FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.checks.unread_records import UnreadRecords
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.running import spark_pipeline
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark import job
from freshet.pipeline.spark.active_query import ActiveQuery
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.job import follow_sizes
from freshet.pipeline.spark.session import SHORT_LIVED, create_session


def watched(query: ActiveQuery, sizes: RecordSizes) -> None:
    follow_sizes(query, sizes)
    print("polls", *(each["max.poll.records"] for each in query.kafka_parameters().values()), flush=True)


def main() -> None:
    spark_pipeline.unread_records = lambda *_: UnreadRecords(1, RecordSizes(200, 200))
    job.follow_sizes = watched
    spark = create_session("growing", settings=SHORT_LIVED, master="local[2]", jars=ensure_jars(SPARK_GROUP))
    spark_runner(spark, [load_pipeline(Path(sys.argv[1]), {})], say=lambda _: None).run()
    spark.stop()


if __name__ == "__main__":
    main()
