"""Whether Spark can analyse the `select` of a pipeline's sources, asked with an empty frame: nothing is read.

Expressions that the decoder computes need no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from freshet.pipeline.checks.local_engine import is_computed, placed_entry, remark
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.planning import plan_decoding, spark_expressions
from freshet.pipeline.exceptions import ConfigurationError, Problem, brief_reason
from freshet.pipeline.sources.outcome_frame import decoded_frame, expression_failures
from freshet.pipeline.sources.record_frame import no_records, table_frame


def has_expressions(configs: Sequence[PipelineConfig]) -> bool:
    """True when some `select` has more than names of fields and what the decoder computes, or `expect` more than that:
    Spark analyses it."""
    return any(
        (is_computed(source) or config.table.expect) and not _is_local(config, index)
        for config in configs
        for index, source in enumerate(config.sources)
    )


def _is_local(config: PipelineConfig, index: int) -> bool:
    """Whether a decoder computes all expressions of a source; False where that cannot be known without Spark."""
    source = config.sources[index]
    if source.table is not None or spark_expressions(source):
        return False
    try:
        return not plan_decoding(config, index).needs_spark
    except ConfigurationError:
        return False


def select_problems(spark: SparkSession, configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What is wrong with the expressions of some pipelines; of each source the first one only."""
    problems = []
    for config in configs:
        for index, source in enumerate(config.sources):
            try:
                if source.table is not None:
                    table_frame(spark, source, source.table, config)
                else:
                    decoded_frame(no_records(spark), config, index)
            except (ConfigurationError, PySparkException) as error:
                problems.append(_placed(config, index, error))
    return problems


def select_remarks(spark: SparkSession, configs: Sequence[PipelineConfig]) -> list[str]:
    """Warnings of expressions that fail for some values: such records become dead letters."""
    return [
        remark(config, column, failures)
        for config in configs
        for index, source in enumerate(config.sources)
        if source.table is None
        for column, failures in expression_failures(no_records(spark), config, index).items()
    ]


def _placed(config: PipelineConfig, index: int, error: Exception) -> Problem:
    return placed_entry(config, index, str(error) if isinstance(error, ConfigurationError) else brief_reason(error))
