"""Routing: which columns of a frame cross the shuffle, and which task each row goes to.

Three words: a *record* is what a source holds, an *outcome* is what a decoder made of it, a *routed row* is what
crosses to a task. A frame of outcomes crosses as it is; the rows of any other frame are given the columns they need:

| crosses as | frame of outcomes (`decode.outcomes`) | any other frame (columns = the table's) |
|---|---|---|
| `_bucket` int | as it is: the decoder, or `with_buckets`, has set it | `BucketRule` as a Spark expression |
| `_kind` | as it is | `_ROW_KIND` of the frame, if it has one |
| `_position` | left out | Spark partition and position in it, one bigint: the input order |
| `_d0` … | as they are | the columns of the table, by index |
| all others | as they are | left out |

A table with dynamic buckets has a stage between: rows go to an assigner by the hash of their key, which puts the bucket
in its place, and then through a second shuffle, of the same job, to the task of the bucket (`AssignerTask`). Where a
partition has one assigner, that is the task which writes all of its buckets, and there is no stage between. Where rows
move between partitions there is one always (`MoverTask`): it gets all rows of its keys, of whatever partition.

Rows of a table with postponed buckets wait in files of the task that writes them, in the order in which that task wrote
them: all rows of a key go to the task of one number, batch after batch.

Position names keep the columns of a table from colliding with ours. Everything here is built once per schema and used
for every micro-batch: a Spark column is a value that belongs to no frame, and building one costs a call to the JVM per
operator. The plan of outcomes does not grow with the columns: their names are handed over once.

A column that the table got while a stream runs is not in its frame: the task writes NULL (`write_task`).

Source: pipeline/README.md, "Invariants".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import BUCKET, DATA_PREFIX, HEAD_SCHEMA, KIND, OFFSET, TAG, TAG_DATA
from freshet.pipeline.decode.planning import back_ticked
from freshet.pipeline.query.driver.schema_follow import check_names
from freshet.pipeline.query.driver.task_plan import TaskPlan
from freshet.pipeline.query.task.key_task import INDEX
from freshet.pipeline.query.wire.read_count import POSITION
from freshet.pipeline.spark.arrow_bridge import ArrowFunction, KeptColumns, spark_type
from freshet.pipeline.spark.bucket_expression import (
    KeyColumn,
    assigner_task_column,
    epoch_micros,
    number_column,
    task_column,
)
from freshet.pipeline.spark.column_fit import Fit, fit_of
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.model.data_type import DataField, ScalarType
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, RowKind
from freshet.storage.model.schema import TableSchema
from freshet.storage.options import CoreOptions

_OTHERS_BITS: Final = 10
"""Dead letters go to the tasks in runs of 1024 offsets: they stay in order, and no task gets all of them."""


class AssignerStage(Frozen):
    """How the rows of one frame go to assigners of dynamic buckets: `count` for each partition, on `task_count` tasks.
    `task` is the task of a row. Where rows move between partitions (`moves_rows`), `count` for the whole table, each of
    which is a task."""

    task: Column
    task_count: int
    count: int
    moves_rows: bool = False


class Routing(Frozen):
    """How the rows of one frame go to the tasks.

    `projection` gives the rows that cross, None where the frame has them already; `crossing` are their columns by name.
    `task` is None where any task may take any row. `columns` are the table's columns that `_d0` … hold. `bucket_count`
    is the number that the buckets of the rows were computed for; None where partitions have different numbers, or one
    assigner, and the task that gets all rows of a partition computes them, and where rows wait for their bucket.
    """

    projection: KeptColumns | None
    crossing: KeptColumns
    task: Column | None
    task_count: int
    columns: tuple[str, ...]
    bucket_count: int | None
    assigners: AssignerStage | None = None

    def distributed(self, frame: DataFrame, assign: ArrowFunction | None = None) -> DataFrame:
        """The rows of the frame as they cross, each in the Spark partition of its task; `assign` is the work of
        assigners, where there are any."""
        rows = frame if self.projection is None else self.projection.select(frame)
        if self.assigners is not None and assign is not None:
            rows = rows.repartitionById(self.assigners.task_count, self.assigners.task)
            # A report is NULL in all columns but one.
            shape = spark.StructType([spark.StructField(each.name, each.dataType) for each in rows.schema])
            rows = self.crossing.map_in_arrow(rows, assign, shape)
        return rows if self.task is None else rows.repartitionById(self.task_count, self.task)


def is_outcomes(names: Sequence[str]) -> bool:
    """True for the columns of a frame of outcomes."""
    return set(HEAD_SCHEMA.names) <= set(names)


def route_outcomes(
    names: Sequence[str], decoded: TableSchema, options: CoreOptions, tasks: TaskPlan, *, is_rescaled: bool
) -> Routing:
    """The way of a frame of outcomes with these columns; `decoded` is the schema whose columns `_d0` … are, `options`
    are those that the buckets were computed with."""
    crossing = KeptColumns([F.col(name) for name in names])
    if options.bucket <= 0 and not options.has_primary_key:
        return Routing(None, crossing, None, 1, decoded.column_names, options.bucket)
    assigners, count = _stages(tasks, decoded, options)
    moves_rows = options.has_dynamic_buckets and decoded.keys_cross_partitions
    # What is no row of the table needs no bucket; tallies have no offset.
    other = F.pmod(F.shiftright(F.coalesce(F.col(OFFSET), F.lit(0).cast("bigint")), _OTHERS_BITS), F.lit(count))
    is_whole = is_rescaled or (assigners == 1 and not moves_rows)
    bucket = F.lit(0) if is_whole else F.col(BUCKET)

    def way(task: Column) -> Column:
        return F.when(F.col(TAG) == TAG_DATA, task).otherwise(other.cast("int"))

    partition_columns = _partition_columns(decoded, decoded.column_names)
    if options.has_postponed_buckets:
        waiting = way(assigner_task_column(partition_columns, F.col(BUCKET), count, count))
        return Routing(None, crossing, waiting, count, decoded.column_names, None)
    stage = None
    if moves_rows:
        # Dead letters and tallies need not be spread between the shuffles.
        to_share = F.when(F.col(TAG) == TAG_DATA, _share(assigners)).otherwise(0)
        stage = AssignerStage(to_share, assigners, assigners, moves_rows=True)
    elif assigners > 1:
        to_assigner = assigner_task_column(partition_columns, F.col(BUCKET), assigners, count)
        stage = AssignerStage(way(to_assigner), count, assigners)
    task = way(task_column(partition_columns, bucket, count))
    return Routing(None, crossing, task, count, decoded.column_names, None if is_whole else options.bucket, stage)


def route_rows(
    frame: DataFrame, schema: TableSchema, options: CoreOptions, tasks: TaskPlan, *, is_rescaled: bool
) -> Routing:
    """The way of a frame that has the table's columns; raises `InvalidRequestError` where they do not fit the table."""
    given = frame.schema
    check_names(given.fieldNames(), schema)
    placing = {*schema.primary_keys, *schema.partition_keys, *options.bucket_key}
    fields = tuple(
        field
        for field in schema.fields
        if field.name in given.fieldNames() or (field.default_value is not None and field.name in placing)
    )
    data = {
        field.name: _carried(F.col(back_ticked(field.name)), given[field.name].dataType, field)
        if field.name in given.fieldNames()
        else F.lit(field.default_value).cast(spark_type(field.type))
        for field in fields
    }
    assigners, count = _stages(tasks, schema, options)
    moves_rows = options.has_dynamic_buckets and schema.keys_cross_partitions
    is_whole = is_rescaled or (assigners == 1 and not moves_rows)
    head = {BUCKET: F.lit(0) if is_whole else _bucket(data, schema, options)}
    if assigners > 1 or moves_rows:
        head[INDEX] = F.lit(None).cast("binary")
    if ROW_KIND_COLUMN in given.fieldNames():
        head[KIND] = F.col(ROW_KIND_COLUMN)
    elif moves_rows:
        head[KIND] = F.lit(int(RowKind.INSERT)).cast("tinyint")
    head[POSITION] = F.monotonically_increasing_id()
    named = head | {f"{DATA_PREFIX}{index}": data[field.name] for index, field in enumerate(fields)}
    projection = KeptColumns([column.alias(name) for name, column in named.items()])
    crossing = KeptColumns([F.col(name) for name in named])
    columns = tuple(field.name for field in fields)
    if options.bucket <= 0 and not options.has_primary_key:
        return Routing(projection, crossing, None, 1, columns, options.bucket)
    partition_columns = _partition_columns(schema, columns)
    if options.has_postponed_buckets:
        waiting = assigner_task_column(partition_columns, F.col(BUCKET), count, count)
        return Routing(projection, crossing, waiting, count, columns, None)
    task = task_column(partition_columns, F.col(BUCKET), count)
    stage = None
    if moves_rows:
        stage = AssignerStage(_share(assigners), assigners, assigners, moves_rows=True)
    elif assigners > 1:
        to_assigner = assigner_task_column(partition_columns, F.col(BUCKET), assigners, count)
        stage = AssignerStage(to_assigner, count, assigners)
    return Routing(projection, crossing, task, count, columns, None if is_whole else options.bucket, stage)


def with_buckets(outcomes: DataFrame, decoded: TableSchema, options: CoreOptions) -> DataFrame:
    """A frame of outcomes whose buckets Spark computes: for sources where `select` feeds the bucket key."""
    data = {field.name: F.col(f"{DATA_PREFIX}{index}") for index, field in enumerate(decoded.fields)}
    bucket = F.when(F.col(TAG) == TAG_DATA, _bucket(data, decoded, options))
    return outcomes.withColumn(BUCKET, bucket)


def _stages(tasks: TaskPlan, schema: TableSchema, options: CoreOptions) -> tuple[int, int]:
    """Assigners of each partition, 0 where there are no dynamic buckets, and the number of tasks."""
    return tasks.assigners(schema, options) if options.has_dynamic_buckets else (0, tasks.count(schema, options))


def _share(count: int) -> Column:
    """The share of the keys that a row belongs to (`KeyShare`), by the hash in `_bucket`."""
    return F.abs(F.col(BUCKET) % F.lit(count)).cast("int")


def _partition_columns(schema: TableSchema, columns: Sequence[str]) -> list[Column]:
    indexes = {name: index for index, name in enumerate(columns)}
    return [F.col(f"{DATA_PREFIX}{indexes[name]}") for name in schema.partition_keys]


def _bucket(data: Mapping[str, Column], schema: TableSchema, options: CoreOptions) -> Column:
    rule = BucketRule.of(schema, options)
    if rule.is_constant:
        return F.lit(0)
    return number_column([KeyColumn(data[name], schema.by_name[name].type) for name in rule.columns], rule)


def _carried(column: Column, found: spark.DataType, field: DataField) -> Column:
    """The column in the carrier of its table type, if that loses nothing but fractions finer than the table's."""
    match fit_of(found, field):
        case Fit.SAME:
            return column
        case Fit.MICROS_AS_NANOS:
            assert isinstance(field.type, ScalarType)
            return epoch_micros(column, field.type) * F.lit(1000).cast("bigint")
        case Fit.WIDENS:
            return column.cast(spark_type(field.type))
