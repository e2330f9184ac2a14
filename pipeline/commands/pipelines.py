"""Commands around pipeline files: run, check, jars. What needs Spark is loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Literal

import typer

from freshet.pipeline.batch.table_setup import check_table
from freshet.pipeline.commands.arguments import PipelineFiles
from freshet.pipeline.commands.output import complain, say
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipelines, warnings
from freshet.pipeline.exceptions import EXIT_INVALID, InvalidRequestError
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
    _spark_part("running").run_pipelines(configs, progress=progress)


def check(files: PipelineFiles) -> None:
    """Say what is wrong with pipeline files. Starts no pipeline and writes nothing."""
    configs = load_pipelines(files)
    _warn(configs)
    wrong = [(config, text) for config in configs for text in check_table(config.table)]
    for config, text in wrong:
        complain(f"{config.name}: table {config.table.name}: {text}")
    if wrong:
        raise typer.Exit(EXIT_INVALID)
    for config in configs:
        say(f"{config.name}: ok, into {config.table.name}")


def jars() -> None:
    """Print the jars that Spark needs, as --jars takes them; they are fetched once per machine."""
    say(",".join(str(jar) for jar in ensure_jars(SPARK_GROUP)))


def _warn(configs: list[PipelineConfig]) -> None:
    for config in configs:
        for text in warnings(config):
            complain(f"{config.name}: warning: {text}")


def _spark_part(name: str) -> Any:
    """A module beside this one that imports Spark: tables can be looked at where Spark is not installed."""
    try:
        return import_module(f"freshet.pipeline.commands.{name}")
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise InvalidRequestError(
            "this command needs Spark, which is not installed here; install it with: pip install 'pyspark>=4.2.1,<4.3'"
        ) from error
