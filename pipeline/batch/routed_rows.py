"""Rows on their way from a frame to the tasks: which columns cross the shuffle, and in which order they came.

Two kinds of frame come in, one kind of row crosses:

| crosses as | plain frame (columns = the table's) | envelope frame (`transforms.envelope`) |
|---|---|---|
| `_bucket` int | bucket of the row | bucket; meaningless where `_tag` is not 0 |
| `_tag` tinyint | left out | 0 data, 1 dead letter, 2 skipped |
| `_kind` | `_ROW_KIND` of the frame, if it has one | row kind, tinyint |
| `_o0` … | Spark partition and position, one bigint | source, rank, topic, Kafka partition, offset, sub |
| `_timestamp`, `_reason`, `_column`, `_raw_…`, `_unavailable`, `_notes` | left out | as in the envelope |
| `_d0` … | the table's columns | the fields of `data` |

Position names keep the columns of a table from colliding with ours, and flat columns spare Arrow the copies of a
nested row. Everything here is built once per table schema and used for every micro-batch: a Spark column is a value
that belongs to no frame, and building one costs a call to the JVM per operator.

Source: design §1.5, §1.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from freshet.pipeline.batch.arrow_bridge import spark_type
from freshet.pipeline.batch.arrow_map import KeptColumns
from freshet.pipeline.batch.bucket_route import KeyColumn, bucket_column, epoch_micros, task_column, task_count
from freshet.pipeline.decode.carriers import is_nanos
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.sources import POSITION_BITS
from freshet.storage.codec.bucket_function import BucketFunctionType
from freshet.storage.model.data_type import DataField, ScalarType, TypeRoot
from freshet.storage.model.row_kind import ROW_KIND_COLUMN
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.core import CoreOptions

BUCKET: Final = "_bucket"
TAG: Final = "_tag"
KIND: Final = "_kind"
TIMESTAMP: Final = "_timestamp"
REASON: Final = "_reason"
COLUMN: Final = "_column"
RAW_KEY: Final = "_raw_key"
RAW_VALUE: Final = "_raw_value"
UNAVAILABLE: Final = "_unavailable"
NOTES: Final = "_notes"
ORDER_PREFIX: Final = "_o"
DATA_PREFIX: Final = "_d"

TAG_DATA: Final = 0
TAG_DEAD: Final = 1
TAG_SKIPPED: Final = 2

ENVELOPE_COLUMNS: Final = frozenset(
    {"tag", "row_kind", "reason", "column", "order", "raw_key", "raw_value", "unavailable", "notes", "data"}
)
ORDER_FIELDS: Final = ("source_index", "rank", "topic", "kafka_partition", "offset", "sub")
"""Fields of the envelope's `order`, the most significant first: `rank` is the modification time of a file, `sub` the
place within the record."""

SOURCE, RANK, TOPIC, KAFKA_PARTITION, OFFSET, SUB = (f"{ORDER_PREFIX}{place}" for place in range(len(ORDER_FIELDS)))

_INTEGERS: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)


@dataclass(frozen=True, slots=True)
class Routing:
    """How the rows of one frame go to the tasks. `task` is None where any task may take any row.

    `columns` are computed from the frame, `crossing` are the same by name, of the rows that cross.
    """

    columns: KeptColumns
    crossing: KeptColumns
    task: Column | None
    task_count: int

    def rows(self, frame: DataFrame) -> DataFrame:
        """The rows as they cross."""
        return self.columns.select(frame)

    def place(self, rows: DataFrame) -> DataFrame:
        """These rows, each in the Spark partition of its task."""
        return rows if self.task is None else rows.repartitionById(self.task_count, self.task)


def is_envelope(frame: DataFrame) -> bool:
    """True for a frame of `transforms.envelope`."""
    return set(frame.columns) == ENVELOPE_COLUMNS


def plan_routing(
    frame: DataFrame, schema: TableSchema, options: CoreOptions, *, shuffle_partitions: int, parallelism: int
) -> Routing:
    """Plans the way of this frame's rows; raises `InvalidRequestError` where its columns do not fit the table."""
    if is_envelope(frame):
        given = {field.name: F.col("data").getField(field.name) for field in schema.fields}
        head = _envelope_head(_struct_of(frame, "data"), schema)
    else:
        given = {name: F.col(_quoted(name)) for name in frame.columns}
        head = _plain_head(frame.schema, schema)
    data = _data_columns(given, _types_of(frame), schema)
    count = max(1, options.bucket)
    bucket = _bucket(data, schema, options)
    named = {BUCKET: bucket, **head}
    named |= {f"{DATA_PREFIX}{place}": data[field.name] for place, field in enumerate(schema.fields)}
    columns = KeptColumns([column.alias(name) for name, column in named.items()])
    crossing = KeptColumns([F.col(name) for name in named])
    if options.bucket <= 0:
        return Routing(columns, crossing, None, 1)
    tasks = task_count(
        bucket_count=count,
        is_partitioned=bool(schema.partition_keys),
        shuffle_partitions=shuffle_partitions,
        parallelism=parallelism,
    )
    places = {field.name: place for place, field in enumerate(schema.fields)}
    partition_columns = [F.col(f"{DATA_PREFIX}{places[name]}") for name in schema.partition_keys]
    task = task_column(partition_columns, F.col(BUCKET), tasks)
    if is_envelope(frame):
        # What is no row of the table needs no bucket: it goes by Kafka partition, which keeps its order.
        other = F.pmod(F.coalesce(F.col(KAFKA_PARTITION), F.lit(0)), F.lit(tasks))
        task = F.when(F.col(TAG) == TAG_DATA, task).otherwise(other)
    return Routing(columns, crossing, task, tasks)


def bucket_keys(schema: TableSchema, options: CoreOptions) -> tuple[str, ...]:
    """The columns of the bucket key: the option, else the primary key without the partition columns."""
    return options.bucket_key or (schema.trimmed_primary_keys if schema.has_primary_key else ())


def _bucket(data: Mapping[str, Column], schema: TableSchema, options: CoreOptions) -> Column:
    names = bucket_keys(schema, options)
    if options.bucket <= 1 or not names:
        return F.lit(0)
    keys = [KeyColumn(data[name], schema.by_name[name].type) for name in names]
    return bucket_column(keys, options.bucket, BucketFunctionType(options.bucket_function_type))


def _envelope_head(data: spark.StructType, schema: TableSchema) -> dict[str, Column]:
    _check_names(data.fieldNames(), schema)
    order = F.col("order")
    # Lines of files have no Kafka partition; their place in the file lacks the position, see `sources`.
    position = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << POSITION_BITS) - 1).cast("bigint"))
    is_line = order.getField("kafka_partition").isNull()
    offset = order.getField("offset")
    return {
        TAG: F.col("tag"),
        KIND: F.col("row_kind"),
        **{f"{ORDER_PREFIX}{place}": order.getField(name) for place, name in enumerate(ORDER_FIELDS)},
        OFFSET: F.when(is_line, offset.bitwiseOR(position)).otherwise(offset),
        TIMESTAMP: order.getField("timestamp"),
        REASON: F.col("reason"),
        COLUMN: F.col("column"),
        RAW_KEY: F.col("raw_key"),
        RAW_VALUE: F.col("raw_value"),
        UNAVAILABLE: F.col("unavailable"),
        NOTES: F.col("notes"),
    }


def _plain_head(given: spark.StructType, schema: TableSchema) -> dict[str, Column]:
    _check_names(given.fieldNames(), schema)
    order = {f"{ORDER_PREFIX}0": F.monotonically_increasing_id()}
    return {KIND: F.col(ROW_KIND_COLUMN), **order} if ROW_KIND_COLUMN in given.fieldNames() else order


def _check_names(given: Sequence[str], schema: TableSchema) -> None:
    missing = [name for name in schema.column_names if name not in given]
    unknown = [name for name in given if name not in schema.by_name and name != ROW_KIND_COLUMN]
    if missing or unknown:
        found = [f"lacks {', '.join(missing)}"] if missing else []
        found += [f"has {', '.join(unknown)}, which the table does not"] if unknown else []
        raise InvalidRequestError(
            f"the frame {' and '.join(found)}; the table's columns are {', '.join(schema.column_names)}"
        )


def _struct_of(frame: DataFrame, name: str) -> spark.StructType:
    found = frame.schema[name].dataType
    assert isinstance(found, spark.StructType)
    return found


def _types_of(frame: DataFrame) -> Mapping[str, spark.DataType]:
    fields = _struct_of(frame, "data") if is_envelope(frame) else frame.schema
    return {field.name: field.dataType for field in fields}


def _data_columns(
    given: Mapping[str, Column], types: Mapping[str, spark.DataType], schema: TableSchema
) -> dict[str, Column]:
    """The table's columns in their carriers; the default of a column stands where it is NULL, as the writer has it."""
    columns = {}
    for field in schema.fields:
        column = _carried(given[field.name], types[field.name], field)
        if field.default_value is not None:
            column = F.coalesce(column, F.lit(field.default_value).cast(spark_type(field.type)))
        columns[field.name] = column
    return columns


def _carried(column: Column, found: spark.DataType, field: DataField) -> Column:
    """The column in the carrier of its table type, if that loses nothing but fractions finer than the table's."""
    wanted = spark_type(field.type)
    if _same(found, wanted):
        return column
    if is_nanos(field.type) and isinstance(found, spark.TimestampNTZType | spark.TimestampType):
        root = TypeRoot.TIMESTAMP_LTZ if isinstance(found, spark.TimestampType) else TypeRoot.TIMESTAMP
        if isinstance(field.type, ScalarType) and field.type.root is root:
            return epoch_micros(column, field.type) * F.lit(1000).cast("bigint")
    if _widens(found, wanted):
        return column.cast(wanted)
    raise InvalidRequestError(
        f"column {field.name!r} of the frame is {found.simpleString()}, the table's is {field.type}, which Spark "
        f"carries as {wanted.simpleString()}; cast it in the query"
    )


def _same(found: spark.DataType, wanted: spark.DataType) -> bool:
    """Equal but for nullability, which the task checks row by row, and for the length of texts."""
    match found, wanted:
        case spark.ArrayType(), spark.ArrayType():
            return _same(found.elementType, wanted.elementType)
        case spark.MapType(), spark.MapType():
            return _same(found.keyType, wanted.keyType) and _same(found.valueType, wanted.valueType)
        case spark.StructType(), spark.StructType():
            return found.names == wanted.names and all(
                _same(left.dataType, right.dataType) for left, right in zip(found, wanted, strict=True)
            )
        case spark.CharType() | spark.VarcharType(), spark.StringType():
            return True
        case _:
            return found == wanted


def _widens(found: spark.DataType, wanted: spark.DataType) -> bool:
    if isinstance(found, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return _INTEGERS.index(type(found)) < _INTEGERS.index(type(wanted))
    if isinstance(found, spark.FloatType) and isinstance(wanted, spark.DoubleType):
        return True
    if isinstance(found, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
    return isinstance(found, spark.NullType)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
