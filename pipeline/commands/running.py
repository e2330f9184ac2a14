"""The part of `freshet run` and `freshet check` that needs Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, Problem
from freshet.pipeline.progress_report import ProgressReporter
from freshet.pipeline.runner import Runner, spark_settings, stop_on_signals
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars, names_kafka_source
from freshet.pipeline.spark.select_check import has_expressions, select_problems
from freshet.pipeline.spark.session import session_of_a_command, submitted_settings


def run_pipelines(configs: Sequence[PipelineConfig], *, progress: str) -> None:
    """Runs the pipelines in one session; raises what made one of them fail."""
    remark = say if progress == "text" else complain
    reporter = ProgressReporter(
        say,
        remark,
        dead_letter_tables={config.name: config.dead_letter_table for config in configs},
        as_json=progress == "json",
    )
    settings = spark_settings(configs)
    own = names_kafka_source({**submitted_settings(), **settings}) or not _needs_kafka(configs)
    jars = [] if own else ensure_jars(SPARK_GROUP)
    with session_of_a_command(configs[0].name, settings=settings, jars=jars) as spark:
        try:
            runner = Runner(
                spark,
                configs,
                on_progress=reporter.take,
                on_idle=reporter.idle,
                say=remark,
                topic_ids=spark_part("brokers").topic_ids(configs, say=complain) if _needs_kafka(configs) else None,
            )
            with stop_on_signals(runner), _watched_brokers(configs):
                runner.run()
        except ConfigurationError as error:
            if any(problem.path for problem in error.problems):
                raise
            raise ConfigurationError(select_problems(spark, configs) or error.problems) from error


def analyse_select(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What Spark says about the expressions of `select`; starts a session only where there is one to analyse."""
    if not has_expressions(configs):
        return []
    with session_of_a_command("freshet check", settings={"spark.sql.shuffle.partitions": "1"}) as spark:
        return select_problems(spark, configs)


def _watched_brokers(configs: Sequence[PipelineConfig]) -> AbstractContextManager[object]:
    """Pipelines that read files alone need no Kafka client."""
    if not _needs_kafka(configs):
        return nullcontext()
    watching: AbstractContextManager[object] = spark_part("brokers").watched_brokers(configs, say=complain)
    return watching


def _needs_kafka(configs: Sequence[PipelineConfig]) -> bool:
    return any(source.is_kafka for config in configs for source in config.sources)
