"""What `freshet run` does: one Spark session, all pipelines, until they end or are asked to stop."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.pipeline.commands.output import say
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.runner import Runner, spark_settings, stop_on_signals
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars
from freshet.pipeline.spark.session import create_session


def run_pipelines(configs: Sequence[PipelineConfig], *, progress: str) -> None:
    """Runs the pipelines; raises what made one of them fail."""
    del progress
    jars = ensure_jars(SPARK_GROUP) if _needs_kafka(configs) else []
    spark = create_session(configs[0].name, settings=spark_settings(configs), jars=jars)
    try:
        runner = Runner(spark, configs, say=say)
        with stop_on_signals(runner):
            runner.run()
    finally:
        spark.stop()


def _needs_kafka(configs: Sequence[PipelineConfig]) -> bool:
    return any(source.is_kafka for config in configs for source in config.sources)
