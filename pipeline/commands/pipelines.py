"""Commands around pipeline files: run, check, jars, prepare. What needs Spark or Kafka is loaded when it is called."""

from __future__ import annotations

import threading
from typing import Annotated, Literal

import typer

from freshet.pipeline.commands.arguments import PipelineFiles
from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.preflight import problems_before_start, refuse_to_start, warnings_before_start
from freshet.pipeline.signals import when_asked_to_stop
from freshet.pipeline.spark.jars import SPARK_GROUP, ensure_jars


def run(
    files: PipelineFiles,
    progress: Annotated[
        Literal["text", "json"],
        typer.Option(help="What is printed of each batch: a line for people, or one JSON object."),
    ] = "text",
) -> None:
    """Run pipelines in one Spark session until they end or are asked to stop.

    SIGTERM or Ctrl-C let the batches that run finish; a second one stops at once.
    """
    configs = load_pipelines(files)
    _warn(configs)
    refuse_to_start(configs)
    stop = threading.Event()
    with when_asked_to_stop(stop.set):
        if _reads_kafka(configs) and not spark_part("brokers").wait_for_brokers(configs, say=complain, stop=stop):
            return
    spark_part("running").run_pipelines(configs, progress=progress)


def check(
    files: PipelineFiles,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Do not start Spark to analyse the expressions of select.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the Kafka brokers.")] = False,
) -> None:
    """Say what is wrong with pipeline files. Starts no pipeline and writes nothing."""
    configs = load_pipelines(files)
    _warn(configs)
    problems = [problem for config in configs for problem in problems_before_start(config)]
    if not offline and _reads_kafka(configs):
        problems += spark_part("brokers").broker_problems(configs)
    if not offline and _writes_logs(configs):
        problems += spark_part("brokers").log_problems(configs)
    if any(source.select for config in configs for source in config.sources):
        if no_spark:
            complain("the expressions of select were not analysed: that needs Spark (--no-spark)")
        else:
            problems += spark_part("running").analyse_select(configs)
    if problems:
        raise ConfigurationError(problems)
    for config in configs:
        say(f"{config.name}: ok, into {config.table.name}")


def jars() -> None:
    """Print the jars that Spark needs, as --jars takes them; they are fetched once per machine."""
    say(",".join(str(jar) for jar in ensure_jars(SPARK_GROUP)))


def prepare() -> None:
    """Make what this machine needs once, so that pipelines start sooner: the jars and an archive of Java's classes."""
    spark_part("preparing").prepare_machine(complain)


def _reads_kafka(configs: list[PipelineConfig]) -> bool:
    return any(source.kafka is not None for config in configs for source in config.sources)


def _writes_logs(configs: list[PipelineConfig]) -> bool:
    return any(
        {**config.table.options, **config.table.write_options}.get("log.system", "none").lower() != "none"
        for config in configs
    )


def _warn(configs: list[PipelineConfig]) -> None:
    for config in configs:
        for text in warnings_before_start(config):
            complain(f"{config.name}: warning: {text}")
