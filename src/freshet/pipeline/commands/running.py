"""The part of `freshet run` and `freshet check` that needs Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from freshet.pipeline.checks.local_engine import local_remarks
from freshet.pipeline.checks.preflight import checkpoint_problems
from freshet.pipeline.commands.command_run import needs_kafka, reporter_of, run_on
from freshet.pipeline.commands.failure_report import Refusals
from freshet.pipeline.commands.output import complain
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import spark_store_options
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.exceptions import ConfigurationError, Problem
from freshet.pipeline.identity.checkpoint_folder import as_folder
from freshet.pipeline.running.spark_pipeline import SparkJobs, SparkPipelines, opened_checkpoint, spark_settings
from freshet.pipeline.sources.select_check import has_expressions, select_problems, select_remarks
from freshet.pipeline.spark.jars import (
    S3A_ARTIFACT,
    S3A_GROUP,
    SPARK_GROUP,
    ensure_jars,
    fetched_jars,
    names_artifact,
    names_kafka_source,
)
from freshet.pipeline.spark.s3a import buckets, s3a_settings, use_store
from freshet.pipeline.spark.session import SessionRefusedError, session_of_a_command, submitted_settings

if TYPE_CHECKING:  # what is loaded where metrics are published
    from freshet.pipeline.running.run_totals import RunTotals


@contextmanager
def jobs(_: None, config: PipelineConfig, purpose: str) -> Iterator[SparkJobs]:
    """Jobs in a session of its own; `purpose` is in its name."""
    settings = spark_settings([config])
    jars = needed_jars([config], {**submitted_settings(), **settings})
    with session_of_a_command(f"{config.name} {purpose}", settings=settings, jars=jars) as spark:
        yield SparkJobs(spark)


def run_pipelines(
    _: None,
    configs: Sequence[PipelineConfig],
    *,
    progress: str,
    refusals: Refusals,
    restarts: int,
    totals: RunTotals | None,
) -> None:
    """Runs the pipelines in one session, as `command_run.run_on` does; `refusals` takes those that are refused before
    they start too."""
    reporter = reporter_of(configs, progress)
    settings = spark_settings(configs)
    jars: list[Path] | None = None
    while jars is None:
        try:
            jars = needed_jars(configs, {**submitted_settings(), **settings})
        except ConfigurationError as error:
            configs = refusals.left(configs, error.problems)
    with _session(configs, settings, jars) as spark:
        try:
            for config in configs:
                _reach_buckets(spark, config)
            configs = refusals.left(configs, _look_elsewhere(spark, configs))
            run_on(SparkPipelines(spark), configs, reporter, refusals=refusals, restarts=restarts, totals=totals)
        except ConfigurationError as error:
            if any(problem.path for problem in error.problems):
                raise
            raise ConfigurationError(select_problems(spark, configs) or error.problems) from error


def needed_jars(configs: Sequence[PipelineConfig], settings: Mapping[str, str]) -> list[Path]:
    """The jars that the session of these settings lacks. S3A's are not fetched by the way: they are large."""
    jars = ensure_jars(SPARK_GROUP) if needs_kafka(configs) and not names_kafka_source(settings) else []
    needing = [config for config in configs if buckets(_of_spark(config))]
    if not needing or names_artifact(settings, S3A_ARTIFACT):
        return jars
    fetched = fetched_jars(S3A_GROUP)
    if fetched is None:
        text = (
            f"Spark reaches {needing[0].checkpoint} with Hadoop's S3A, whose jars this machine does not have: fetch "
            "them once with freshet jars --s3 (690 MB), or name those you have under spark: as spark.jars; the "
            "checkpoint may also be a local folder of the driver"
        )
        raise ConfigurationError([needing[0].origin.placed(Problem(("checkpoint",), text))])
    return [*jars, *fetched]


def _reach_buckets(spark: SparkSession, config: PipelineConfig) -> None:
    """S3A reaches the buckets of a pipeline as its tables are reached."""
    for bucket in buckets(_of_spark(config)):
        options = spark_store_options(config, f"s3://{bucket}")
        use_store(spark, [bucket], s3a_settings(options, os.environ))


def _of_spark(config: PipelineConfig) -> list[str]:
    """What Spark itself reads and writes for a pipeline."""
    return [config.checkpoint, *(source.files.path for source in config.sources if source.files is not None)]


def _look_elsewhere(spark: SparkSession, configs: Sequence[PipelineConfig]) -> list[Problem]:
    """The checks of checkpoints that are not on a local disk: before Spark has started, they cannot be reached."""
    remote = [config for config in configs if as_folder(config.checkpoint) is None]
    folders = {config.name: opened_checkpoint(spark, config) for config in remote}
    problems = [each for config in remote for each in checkpoint_problems(config, folders[config.name])]
    if needs_kafka(remote):
        problems += spark_part("brokers").offset_problems(remote, say=complain, folders=folders)
    return problems


@contextmanager
def _session(
    configs: Sequence[PipelineConfig], settings: Mapping[str, str], jars: Sequence[Path]
) -> Iterator[SparkSession]:
    """The session of some pipelines; what keeps it from starting is a problem of the setting that it names."""
    with ExitStack() as stack:
        try:
            spark = stack.enter_context(session_of_a_command(configs[0].name, settings=settings, jars=jars))
        except SessionRefusedError as error:
            raise ConfigurationError([placed_in_file(configs, error)]) from error
        yield spark


def placed_in_file(configs: Sequence[PipelineConfig], error: SessionRefusedError) -> Problem:
    """The setting that the cause names, with its line; else the section of settings, if there is one."""
    written = [config for config in configs if config.spark]
    for config in written:
        for key, value in revealed(config.spark).items():
            if key in error.cause or (value and value in error.cause):
                text = config.without_secrets(f"{value!r}: {error}")
                return config.origin.placed(Problem(("spark", key), text))
    if not written:
        return Problem((), str(error))
    keys = ", ".join(key for config in written for key in config.spark)
    text = f"{written[0].without_secrets(str(error))} (set here: {keys})"
    return written[0].origin.placed(Problem(("spark",), text))


def analyse_select(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What Spark says about the expressions of `select`; starts a session only where there is one to analyse.

    Warns of expressions that fail for some values.
    """
    if not has_expressions(configs):
        for text in local_remarks(configs):
            complain(text)
        return []
    try:
        with session_of_a_command("freshet check", settings={"spark.sql.shuffle.partitions": "1"}) as spark:
            problems = select_problems(spark, configs)
            for text in [] if problems else select_remarks(spark, configs):
                complain(text)
            return problems
    except SessionRefusedError as error:
        return [Problem((), f"the expressions of select cannot be analysed: {error}")]
