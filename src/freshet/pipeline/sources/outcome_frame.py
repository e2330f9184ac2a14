"""From a source to outcomes: Spark reads, a decoder in its Python workers makes rows of the table, in flat columns.

    records of `sources` ─ flat raw columns ─ mapInArrow(RecordDecoder) ─ (`select`) ─ outcomes (`decode.outcomes`)

The frame has exactly the columns of `decode.outcomes`, so frames of several sources are united by position.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.batch.routing import with_buckets
from freshet.pipeline.checks.unread_records import NOTHING_KNOWN, UnreadRecords
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcome_batches import other_columns, scope_columns
from freshet.pipeline.decode.outcomes import DATA_PREFIX, HEAD_SCHEMA
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.planning import plan_decoding, spark_expressions
from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS
from freshet.pipeline.sources.raw_frame import read_stream
from freshet.pipeline.sources.select.projection import read_references, select_columns, select_failures
from freshet.pipeline.spark.arrow_bridge import spark_type
from freshet.pipeline.spark.arrow_map import KeptColumns

_SPARK_TYPES: Final[dict[Any, spark_types.DataType]] = {
    pa.int8(): spark_types.ByteType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
    pa.string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.timestamp("us", "UTC"): spark_types.TimestampType(),
}
_HEADERS: Final = spark_types.ArrayType(
    spark_types.StructType(
        [
            spark_types.StructField("key", spark_types.StringType()),
            spark_types.StructField("value", spark_types.BinaryType()),
        ]
    )
)


def outcome_frame(
    spark: SparkSession, config: PipelineConfig, source_index: int, unread: UnreadRecords = NOTHING_KNOWN
) -> DataFrame:
    """The outcomes of one source as a streaming frame; `unread` says what it has to read.

    Raises `ConfigurationError` naming the entry of `select` that is wrong.
    """
    return decoded_frame(read_stream(spark, config.sources[source_index], unread), config, source_index)


def lone_decoder(config: PipelineConfig) -> RecordDecoder | None:
    """The decoder that gives all outcomes of a pipeline as they are; None where there are several sources, or Spark
    computes columns."""
    if len(config.sources) != 1 or spark_expressions(config.sources[0]):
        return None
    return RecordDecoder(plan_decoding(config, 0))


def decoded_frame(records: DataFrame, config: PipelineConfig, source_index: int) -> DataFrame:
    """The outcomes of a frame of `sources`, streaming or not."""
    rows, plan = _decoded_rows(records, config, source_index)
    return selected_rows(rows, plan, config)


def selected_rows(rows: DataFrame, plan: DecodePlan, config: PipelineConfig) -> DataFrame:
    """What a decoder gave, with the columns that `select` computes."""
    if not plan.expressions:
        return rows
    selected = select_columns(rows, plan)
    if plan.bucket is not None:
        return selected
    return with_buckets(selected, config.table.table_schema, config.table.core_options)


def expression_failures(records: DataFrame, config: PipelineConfig, source_index: int) -> dict[str, tuple[str, ...]]:
    """What may go wrong while Spark computes the columns of `select`, by column; such records become dead letters."""
    rows, plan = _decoded_rows(records, config, source_index)
    return select_failures(rows, plan) if plan.expressions else {}


def _decoded_rows(records: DataFrame, config: PipelineConfig, source_index: int) -> tuple[DataFrame, DecodePlan]:
    references = read_references(records.sparkSession, spark_expressions(config.sources[source_index]))
    plan = plan_decoding(config, source_index, references)
    taken = (*FLAT_COLUMNS, HEADERS) if plan.reads_headers else FLAT_COLUMNS
    columns = KeptColumns([F.col(name) for name in taken])
    return columns.map_in_arrow(columns.select(records), RecordDecoder(plan), outcome_struct(plan)), plan


def outcome_struct(plan: DecodePlan) -> spark_types.StructType:
    """The columns of a decoder's batches in Spark's types."""
    head = [spark_types.StructField(each.name, _SPARK_TYPES[each.type]) for each in HEAD_SCHEMA]
    data = [
        spark_types.StructField(f"{DATA_PREFIX}{index}", spark_type(column.field.type))
        for index, column in enumerate(plan.columns)
    ]
    scope = [
        spark_types.StructField(name, _HEADERS if each.type is None else spark_type(each.type))
        for name, each in scope_columns(plan).items()
    ]
    whole = spark_types.StructType([*head, *data, *scope])
    others = [spark_types.StructField(name, whole[of].dataType) for name, of in other_columns(plan).items()]
    return spark_types.StructType([*whole, *others])
