"""Frames of `transforms.envelope` as frames of outcomes; goes away with the envelope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from freshet.pipeline.batch.arrow_map import KeptColumns
from freshet.pipeline.batch.bucket_expression import KeyColumn, bucket_column
from freshet.pipeline.batch.read_count import POSITION_BITS
from freshet.pipeline.batch.routing import bucket_keys
from freshet.pipeline.decode.carriers import carrier_arrow_type
from freshet.pipeline.decode.outcomes import (
    BUCKET,
    COLUMN,
    DATA_PREFIX,
    HEAD_SCHEMA,
    KAFKA_PARTITION,
    KIND,
    OFFSET,
    RANK,
    RAW_KEY,
    RAW_VALUE,
    REASON,
    SOURCE,
    SUB,
    TAG,
    TAG_TALLY,
    TIMESTAMP,
    TOPIC,
    UNAVAILABLE,
    Tally,
)
from freshet.storage.codec.bucket_function import BucketFunctionType
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions

TAG_SKIPPED: Final = 2
NOTES: Final = "_notes"
ENVELOPE_COLUMNS: Final = frozenset(
    {"tag", "row_kind", "reason", "column", "order", "raw_key", "raw_value", "unavailable", "notes", "data"}
)
_ORDER: Final = {
    SOURCE: "source_index", RANK: "rank", TOPIC: "topic", KAFKA_PARTITION: "kafka_partition", OFFSET: "offset",
    SUB: "sub", TIMESTAMP: "timestamp",
}  # fmt: skip


def is_envelope(frame: DataFrame) -> bool:
    """True for a frame of `transforms.envelope`."""
    return set(frame.columns) == ENVELOPE_COLUMNS


def envelope_outcomes(frame: DataFrame, schema: TableSchema, options: CoreOptions) -> DataFrame:
    """The same outcomes in flat columns."""
    order = F.col("order")
    head = {name: order.getField(field) for name, field in _ORDER.items()}
    position = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << POSITION_BITS) - 1).cast("bigint"))
    head[OFFSET] = F.when(head[KAFKA_PARTITION].isNull(), head[OFFSET].bitwiseOR(position)).otherwise(head[OFFSET])
    data = {field.name: F.col("data").getField(field.name) for field in schema.fields}
    keys = [KeyColumn(data[name], schema.by_name[name].type) for name in bucket_keys(schema, options)]
    is_hashed = options.bucket > 1 and keys
    function = BucketFunctionType(options.bucket_function_type)
    names = F.array(*[F.lit(name) for name in schema.column_names])
    places = F.transform(F.col("unavailable"), lambda name: F.array_position(names, name) - 1)
    columns = {
        BUCKET: bucket_column(keys, options.bucket, function) if is_hashed else F.lit(0),
        TAG: F.col("tag"), KIND: F.col("row_kind"), **head, REASON: F.col("reason"), COLUMN: F.col("column"),
        RAW_KEY: F.col("raw_key"), RAW_VALUE: F.col("raw_value"),
        UNAVAILABLE: F.when(F.size("unavailable") > 0, F.array_join(places, ",")),
        **{f"{DATA_PREFIX}{place}": data[field.name] for place, field in enumerate(schema.fields)},
        NOTES: F.col("notes"),
    }  # fmt: skip
    result = HEAD_SCHEMA
    for place, field in enumerate(schema.fields):
        result = result.append(pa.field(f"{DATA_PREFIX}{place}", carrier_arrow_type(field.type)))
    flat = frame.select(*[column.alias(name) for name, column in columns.items()])
    spark_schema: spark.StructType = from_arrow_schema(result)
    return KeptColumns([F.col(name) for name in columns]).map_in_arrow(flat, _Tallying(result), spark_schema)


class _Tallying:
    """Takes skipped rows and notes out and tells of them in a tally."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read, skipped, notes = 0, Counter[str](), Counter[str]()
        for batch in batches:
            firsts: Any = pc.equal(batch.column(SUB), 0)
            is_skipped: Any = pc.equal(batch.column(TAG), TAG_SKIPPED)
            read += pc.sum(firsts).as_py() or 0
            skipped.update(batch.column(REASON).filter(is_skipped).to_pylist())
            notes.update(pc.list_flatten(batch.column(NOTES)).to_pylist())
            kept = batch.filter(pc.invert(is_skipped)).drop_columns([NOTES])
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(kept.columns, self._schema, strict=True)],
                schema=self._schema,
            )
        row = {TAG: TAG_TALLY, RAW_VALUE: Tally(read, skipped, notes).encode()}
        yield pa.RecordBatch.from_pylist([row], schema=self._schema)
