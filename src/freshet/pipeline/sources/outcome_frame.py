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

from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.outcome_batches import other_columns, outcome_schema, scope_columns
from freshet.pipeline.decode.outcomes import DATA_PREFIX, HEAD_SCHEMA
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.planning import local_failures, plan_decoding, spark_expressions
from freshet.pipeline.decode.raw_records import FLAT_COLUMNS, HEADERS
from freshet.pipeline.query.driver.direct_reads import DirectReads
from freshet.pipeline.query.task.batch_work import BatchWork, TablePacker, UnpackWork
from freshet.pipeline.query.task.kafka_ranges import RangeWork
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.pipeline.query.wire.ranges import Ranges
from freshet.pipeline.sources.select.projection import read_references, select_columns, select_failures
from freshet.pipeline.spark.arrow_bridge import KeptColumns, spark_type
from freshet.pipeline.spark.engine import InTask
from freshet.pipeline.spark.routing import with_buckets

SPARK_TYPES: Final[dict[Any, spark_types.DataType]] = {
    pa.int8(): spark_types.ByteType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
    pa.string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.timestamp("us", "UTC"): spark_types.TimestampType(),
}
HEADERS_TYPE: Final = spark_types.ArrayType(
    spark_types.StructType(
        [
            spark_types.StructField("key", spark_types.StringType()),
            spark_types.StructField("value", spark_types.BinaryType()),
        ]
    )
)


def outcomes_of_ranges(spark: SparkSession, direct: DirectReads, ranges: Ranges, config: PipelineConfig) -> DataFrame:
    """The outcomes of the records of ranges that the workers read."""
    whole: DataFrame | None = None
    for index, of in sorted(ranges.items()):
        if not of:
            continue
        references = read_references(spark, spark_expressions(config.sources[index]))
        plan = plan_decoding(config, index, references)
        groups = tuple((number,) for number in range(len(of)))
        work = KeptValue(BatchWork({index: TablePacker(plan, PackRule((), False, 1))}, {}))
        reads = RangeWork(direct.clients[index], tuple(of), groups, work, index)
        numbers = spark.range(0, len(groups), 1, len(groups))
        rows = KeptColumns([F.col("id")]).map_in_arrow(
            numbers, InTask((reads, UnpackWork(outcome_schema(plan)))), outcome_struct(plan)
        )
        frame = selected_rows(rows, plan, config)
        whole = frame if whole is None else whole.unionByName(frame)
    assert whole is not None, "a batch without records is Spark's"
    return whole


def decoded_frame(records: DataFrame, config: PipelineConfig, source_index: int) -> DataFrame:
    """The outcomes of a frame of `sources`, streaming or not."""
    rows, plan = _decoded_rows(records, config, source_index)
    return selected_rows(rows, plan, config)


def selected_rows(rows: DataFrame, plan: DecodePlan, config: PipelineConfig) -> DataFrame:
    """What a decoder gave, with the columns that `select` computes."""
    if not plan.needs_spark:
        return rows
    selected = select_columns(rows, plan)
    if plan.bucket is not None:
        return selected
    return with_buckets(selected, config.table.table_schema, config.table.core_options)


def expression_failures(records: DataFrame, config: PipelineConfig, source_index: int) -> dict[str, tuple[str, ...]]:
    """What may go wrong while the columns of `select` are computed, by column; such records become dead letters."""
    rows, plan = _decoded_rows(records, config, source_index)
    return local_failures(plan) | (select_failures(rows, plan) if plan.needs_spark else {})


def _decoded_rows(records: DataFrame, config: PipelineConfig, source_index: int) -> tuple[DataFrame, DecodePlan]:
    references = read_references(records.sparkSession, spark_expressions(config.sources[source_index]))
    plan = plan_decoding(config, source_index, references)
    taken = (*FLAT_COLUMNS, HEADERS) if plan.reads_headers else FLAT_COLUMNS
    columns = KeptColumns([F.col(name) for name in taken])
    return columns.map_in_arrow(columns.select(records), RecordDecoder(plan), outcome_struct(plan)), plan


def outcome_struct(plan: DecodePlan) -> spark_types.StructType:
    """The columns of a decoder's batches in Spark's types."""
    head = [spark_types.StructField(each.name, SPARK_TYPES[each.type]) for each in HEAD_SCHEMA]
    data = [
        spark_types.StructField(f"{DATA_PREFIX}{index}", spark_type(column.field.type))
        for index, column in enumerate(plan.columns)
    ]
    scope = [
        spark_types.StructField(name, HEADERS_TYPE if each.type is None else spark_type(each.type))
        for name, each in scope_columns(plan).items()
    ]
    whole = spark_types.StructType([*head, *data, *scope])
    others = [spark_types.StructField(name, whole[of].dataType) for name, of in other_columns(plan).items()]
    return spark_types.StructType([*whole, *others])
