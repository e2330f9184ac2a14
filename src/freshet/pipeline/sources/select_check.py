"""Whether Spark can analyse the `select` of a pipeline's sources, asked with an empty frame: nothing is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, Problem, brief_reason
from freshet.pipeline.sources.record_frame import RECORD_SCHEMA, failures_of_select, record_frame
from freshet.pipeline.sources.table_frame import table_frame

_PLAIN: Final = re.compile(r"\s*(`[^`]+`|[A-Za-z_][A-Za-z0-9_]*)\s*")
_ENTRY: Final = re.compile(r"select\.([^:]+): (.*)", re.DOTALL)


def has_expressions(configs: Sequence[PipelineConfig]) -> bool:
    """True when some `select` holds more than names of fields, so that there is something for Spark to analyse."""
    texts = (text for config in configs for source in config.sources for text in source.select.values())
    return any(_PLAIN.fullmatch(text) is None for text in texts)


def select_problems(spark: SparkSession, configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What is wrong with the expressions of some pipelines; of each source the first one only."""
    problems = []
    for config in configs:
        for index, source in enumerate(config.sources):
            try:
                if source.table is not None:
                    table_frame(spark, source, source.table, config)
                else:
                    record_frame(spark, RECORD_SCHEMA.empty_table(), config, index)
            except (ConfigurationError, PySparkException) as error:
                problems.append(_placed(config, index, error))
    return problems


def select_remarks(spark: SparkSession, configs: Sequence[PipelineConfig]) -> list[str]:
    """Warnings of expressions that fail for some values: such records become dead letters."""
    return [
        f"{config.name}: warning: select.{column}: {' or '.join(failures)} makes a record a dead letter; where NULL is "
        "meant, write try_divide, try_add, try_cast or the like"
        for config in configs
        for index, source in enumerate(config.sources)
        if source.table is None
        for column, failures in failures_of_select(spark, config, index).items()
    ]


def _placed(config: PipelineConfig, index: int, error: Exception) -> Problem:
    text = str(error) if isinstance(error, ConfigurationError) else brief_reason(error)
    match = _ENTRY.fullmatch(text)
    if match is None:
        return config.origin.placed(Problem(("sources", index, "select"), text))
    return config.origin.placed(Problem(("sources", index, "select", match[1]), match[2]))
