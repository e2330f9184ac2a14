"""The part of `freshet resume` and `freshet resync` that needs Spark."""

from __future__ import annotations

from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.running import needed_jars
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.running.runner import spark_settings
from freshet.pipeline.spark.session import session_of_a_command, submitted_settings
from freshet.pipeline.sync.resume import Resumed, held_back, resume_table

__all__ = ["held_back", "resume"]


def resume(config: SyncPipelineConfig, table: str, *, anew: bool) -> Resumed:
    """Brings a table up in a session of its own."""
    settings = spark_settings([config])
    jars = needed_jars([config], {**submitted_settings(), **settings})
    with session_of_a_command(f"{config.name} resume", settings=settings, jars=jars) as spark:
        return resume_table(spark, config, table, anew=anew, say=complain)
