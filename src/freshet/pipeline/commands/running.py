"""The part of `freshet run` and `freshet check` that needs Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from freshet.pipeline.checks.preflight import checkpoint_problems
from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.commands.refusals import Refusals
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import spark_store_options
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError, Problem
from freshet.pipeline.identity.checkpoint_folder import as_folder
from freshet.pipeline.identity.checkpoint_topics import renewal_text
from freshet.pipeline.running.progress_report import ProgressReporter
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner, spark_settings, stop_on_signals
from freshet.pipeline.running.running_pipeline import opened_checkpoint
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


def run_pipelines(configs: Sequence[PipelineConfig], *, progress: str, refusals: Refusals, restarts: int = 0) -> None:
    """Runs the pipelines in one session; raises what made one of them fail.

    One that fails of what may pass is started again, `restarts` times in a row. `refusals` says whether the others live
    when it is given up, and takes those that are refused before they start.
    """
    remark = say if progress == "text" else complain
    reporter = ProgressReporter(
        say,
        remark,
        dead_letter_tables={config.name: config.dead_letter_table for config in configs},
        as_json=progress == "json",
    )
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
            topic_ids = spark_part("brokers").topic_ids(configs, say=complain) if _needs_kafka(configs) else {}
            runner = Runner(
                spark,
                configs,
                on_progress=reporter.take,
                on_idle=reporter.idle,
                on_state=reporter.state,
                say=remark,
                topic_ids=topic_ids,
                restarts=RestartRule(restarts),
                keep_going=refusals.keeps_going,
            )
            with stop_on_signals(runner), _watched_brokers(configs, runner, topic_ids):
                runner.run()
        except ConfigurationError as error:
            if any(problem.path for problem in error.problems):
                raise
            raise ConfigurationError(select_problems(spark, configs) or error.problems) from error


def needed_jars(configs: Sequence[PipelineConfig], settings: Mapping[str, str]) -> list[Path]:
    """The jars that the session of these settings lacks. S3A's are not fetched by the way: they are large."""
    jars = ensure_jars(SPARK_GROUP) if _needs_kafka(configs) and not names_kafka_source(settings) else []
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
    if _needs_kafka(remote):
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
        return []
    try:
        with session_of_a_command("freshet check", settings={"spark.sql.shuffle.partitions": "1"}) as spark:
            problems = select_problems(spark, configs)
            for text in [] if problems else select_remarks(spark, configs):
                complain(text)
            return problems
    except SessionRefusedError as error:
        return [Problem((), f"the expressions of select cannot be analysed: {error}")]


def _watched_brokers(
    configs: Sequence[PipelineConfig], runner: Runner, topic_ids: Mapping[str, Mapping[str, str]]
) -> AbstractContextManager[object]:
    """Pipelines that read files alone need no Kafka client."""
    if not _needs_kafka(configs):
        return nullcontext()

    def stop(config: PipelineConfig, topics: Sequence[str]) -> None:
        text = f"while it ran {renewal_text(config.checkpoint, topics)}"
        runner.fail(PipelineFailedError(text, pipeline=config.name, kind=ErrorKind.INVALID_REQUEST))

    watching: AbstractContextManager[object] = spark_part("brokers").watched_brokers(
        configs,
        say=complain,
        topic_ids=topic_ids,
        on_renewed=stop,
        on_answer=spark_part("brokers").WatchedTransactions(configs, runner.checkpoint_of, complain).look,
    )
    return watching


def _needs_kafka(configs: Sequence[PipelineConfig]) -> bool:
    return any(source.is_kafka for config in configs for source in config.sources)
