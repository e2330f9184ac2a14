"""Hand-made outcomes, as a decoder would give them: rows for a Spark frame or an Arrow table."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    COLUMN,
    DATA_PREFIX,
    HEAD_SCHEMA,
    KAFKA_PARTITION,
    KIND,
    OFFSET,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    SOURCE,
    SUB,
    TAG,
    TAG_DATA,
    TAG_DEAD,
    TAG_TALLY,
    TIMESTAMP,
    TOPIC,
    UNAVAILABLE,
    Tally,
)
from freshet.storage.codec.bucket_function import BucketFunctionType, bucket_ids
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.schema import TableSchema

MOMENT: Final = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)

Row = dict[str, Any]


def data(offset: int, *values: Any, kind: int = 0, sub: int = 0, unavailable: str | None = None) -> Row:
    """A row of the table, from Kafka partition `offset % 2`; `unavailable` are places such as "1,2"."""
    row = _row(offset, TAG_DATA) | {KIND: kind, SUB: sub, UNAVAILABLE: unavailable}
    row |= {RAW_KEY: b"key", RAW_VALUE: b"value"} if unavailable else {}
    return row | {f"{DATA_PREFIX}{place}": value for place, value in enumerate(values)}


def dead(offset: int, reason: str = "no number", column: str | None = "name") -> Row:
    """A dead letter."""
    return _row(offset, TAG_DEAD) | {
        SUB: 0, REASON: reason, COLUMN: column, RAW_KEY: b"key", RAW_VALUE: b"value",
    }  # fmt: skip


def tally(read: int, skipped: Mapping[str, int] | None = None, notes: Mapping[str, int] | None = None) -> Row:
    """What a decoder counted."""
    return {TAG: TAG_TALLY, RAW_VALUE: Tally(read, skipped or {}, notes or {}).encode()}


def outcome_schema(schema: TableSchema) -> pa.Schema:
    """The columns of outcomes of a table."""
    result = HEAD_SCHEMA
    for place, field in enumerate(schema.fields):
        result = result.append(pa.field(f"{DATA_PREFIX}{place}", carrier_arrow_type(field.type)))
    return result


def outcome_table(schema: TableSchema, rows: Sequence[Row], *, bucket_count: int = 0) -> pa.Table:
    """Outcomes in Arrow, with the buckets of the primary key where there are several; NULL for `bucket_count` 0."""
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=outcome_schema(schema))
    if not bucket_count or not rows:
        return table
    types = schema.types_of(schema.trimmed_primary_keys)
    keys = []
    for name, data_type in zip(schema.trimmed_primary_keys, types, strict=True):
        column = table.column(f"{DATA_PREFIX}{schema.column_names.index(name)}").combine_chunks()
        keys.append(column.cast(arrow_type(data_type)))
    buckets = bucket_ids(keys, types, bucket_count, BucketFunctionType.DEFAULT)
    is_data = [row[TAG] == TAG_DATA for row in rows]
    column = pa.array([int(bucket) if ok else None for bucket, ok in zip(buckets, is_data, strict=True)], pa.int32())
    return table.set_column(table.schema.get_field_index(BUCKET), HEAD_SCHEMA.field(BUCKET), column)


def outcome_frame(spark: SparkSession, schema: TableSchema, rows: Sequence[Row], *, bucket_count: int = 0) -> DataFrame:
    """The same as a frame."""
    table = outcome_table(schema, rows, bucket_count=bucket_count)
    spark_schema = from_arrow_schema(table.schema)
    records = [tuple(row[name] for name in table.column_names) for row in table.to_pylist()]
    return spark.createDataFrame(records, spark_schema)


def _row(offset: int, tag: int) -> Row:
    return {
        TAG: tag, SOURCE: 0, TOPIC: "orders", KAFKA_PARTITION: offset % 2, OFFSET: offset, TIMESTAMP: MOMENT,
    }  # fmt: skip
