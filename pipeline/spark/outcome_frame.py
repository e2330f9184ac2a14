"""From a source to outcomes: Spark reads, a decoder in its Python workers makes rows of the table, in flat columns.

    records of `sources` ─ flat raw columns ─ mapInArrow(RecordDecoder) ─ outcomes (`decode.outcomes`)

The frame has exactly the columns of `decode.outcomes`, so frames of several sources are united by position.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark_types

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.batch.arrow_map import KeptColumns
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcomes import DATA_PREFIX
from freshet.pipeline.decode.plan import DecodePlan, plan_decoding
from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS
from freshet.pipeline.spark.sources import read_stream
from freshet.storage.model.schema import TableSchema

_HEAD: Final = (
    "_bucket INT, _tag TINYINT, _kind TINYINT, _source INT, _rank BIGINT, _topic STRING, _kafka_partition INT, "
    "_offset BIGINT, _sub INT, _timestamp TIMESTAMP, _reason STRING, _column STRING, _raw_key BINARY, "
    "_raw_value BINARY, _unavailable STRING"
)
"""`decode.outcomes.HEAD_SCHEMA` in Spark's types."""


def outcome_frame(
    spark: SparkSession, source: SourceConfig, source_index: int, config: PipelineConfig, table_schema: TableSchema
) -> DataFrame:
    """The outcomes of one source as a streaming frame.

    Raises `ConfigurationError` naming the entry of `select` that is wrong.
    """
    return decoded_frame(read_stream(spark, source), source, source_index, config, table_schema)


def decoded_frame(
    records: DataFrame, source: SourceConfig, source_index: int, config: PipelineConfig, table_schema: TableSchema
) -> DataFrame:
    """The outcomes of a frame of `sources`, streaming or not."""
    plan = plan_decoding(config, source, source_index, table_schema)
    taken = (*FLAT_COLUMNS, HEADERS) if plan.reads_headers else FLAT_COLUMNS
    columns = KeptColumns([F.col(name) for name in taken])
    return columns.map_in_arrow(columns.select(records), RecordDecoder(plan), outcome_struct(plan))


def outcome_struct(plan: DecodePlan) -> spark_types.StructType:
    """The columns of a decoder's batches in Spark's types."""
    head = spark_types.StructType.fromDDL(_HEAD)
    assert isinstance(head, spark_types.StructType)
    data = [
        spark_types.StructField(f"{DATA_PREFIX}{place}", spark_type(column.field.type))
        for place, column in enumerate(plan.columns)
    ]
    return spark_types.StructType([*head.fields, *data])
