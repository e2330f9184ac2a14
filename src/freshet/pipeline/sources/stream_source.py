"""`spark.readStream.format("freshet")`: the changes of a table as a streaming frame, exactly once.

    spark.readStream.format("freshet").option("warehouse", …).option("table", "shop.orders")
         .option("scan.mode", "latest-full").load()              the columns, _ROW_KIND ('+I' '-U' '+U' '-D')

| option | meaning |
|---|---|
| `scan.mode` | what it begins with, as in `Table.stream`; it is what makes the frame a stream, so it must be given |
| `scan.snapshot-id`, `scan.timestamp-millis` | where `from-snapshot`, `from-snapshot-full`, `from-timestamp` begin |
| `log.read.isolation` | of a table with a log: `committed` (the default), `speculative`, or `none`: snapshots alone |
| `log.on-truncated`, `log.on-lake-only`, `kafka.*` | as in the table's options, for this query |
| `consumer-id` | what this query has not read yet does not expire; a query without its checkpoint goes on there |
| `with-snapshot-id` | `true`: a column `_SNAPSHOT_ID`; NULL in speculative rows whose snapshot is still to come |
| `upserts` | `true`: a keyed table without a changelog producer, as its rows were written |
| `maxFilesPerTrigger`, `maxBytesPerTrigger` | of data files, per batch |
| `maxOffsetsPerTrigger` | of the log, per batch |
| `maxRowsPerTrigger` | of both; of several limits the smallest counts |

The offset in Spark's checkpoint is a `StreamPosition`, or with a log a `LogPosition`: the whole state. That of the
first batch also says where it began (`change_batches`): it is the same batch however often it is planned. A snapshot
that is larger than a limit is read in several batches. Rows of one key come in their order: Spark partitions follow the
snapshots, and all changes of a bucket in a batch are in one partition.

Spark calls a reader in one Python process for planning, which keeps its connections, and pickles it for the processes
that read. A source without `SupportsTriggerAvailableNow` silently leaves rows when limits are given (Spark 4.2.1).

What happened between two points of a table's history (`incremental-between`) is a batch frame.

It has the columns of the table, `_ROW_KIND`, and with the option `with-snapshot-id` the column `_SNAPSHOT_ID`, by which
the changes of a key can be put into their order: the rows of a frame have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from freshet.pipeline.config.frame_options import PlannedStream
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.change_batches import FIRST, ChangeBatches
from freshet.pipeline.query.task.change_rows import read_group
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.changes.changelog import Changelog
from freshet.storage.model.data_type import DataField
from freshet.storage.table_engine import ChangeSplit, StreamLimit

_APPENDED: Final[dict[Any, spark.DataType]] = {pa.string(): spark.StringType(), pa.int64(): spark.LongType()}
"""Types of the columns that come with every change."""


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """What one task reads, in its order: a group of the stream."""

    group: Any


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query and reads their splits."""

    def __init__(self, stream: PlannedStream, limit: StreamLimit) -> None:
        self._batches = ChangeBatches(stream, limit)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The same for every query: the end of its first batch carries where the query begins."""
        return dict(FIRST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Anything but `ReadAllAvailable` makes Spark ask for a limited batch; the limits are our own."""
        limit = self._batches.limit
        return ReadAllAvailable() if limit.is_none else ReadMaxRows(limit.rows or 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Later commits are left to the next run."""
        self._batches.bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch. Spark asks when the batch up to `start` is done: the consumer moves on.

        Spark does not report the commit of the last batch of a run.
        """
        begin = self._batches.begin(start)
        self._batches.stream.handed_over(begin)
        return self._batches.latest(start, begin, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of what is committed, for Spark's progress."""
        latest: dict[str, Any] = self._batches.stream.latest().to_document()
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads: changes of a bucket together, in their order.

        After a restart Spark asks for the partitions between the last offset and itself: none.
        """
        return [ChangePartition(group) for group in self._batches.groups(start, end)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Rows of the splits, in the carriers that Spark takes."""
        if not isinstance(partition, ChangePartition):
            return
        stream = self._batches.stream
        yield from carried(read_group(stream, partition.group), stream.fields, _appended(stream))


def stream_struct(stream: PlannedStream) -> spark.StructType:
    """The schema of the frame."""
    return _struct_of(stream.fields, _appended(stream))


def _appended(stream: PlannedStream) -> list[pa.Field]:
    return [stream.schema.field(index) for index in range(len(stream.fields), len(stream.schema))]


@dataclass(frozen=True)
class _ChangeSplitPartition(InputPartition):
    """One split, as it travels to an executor."""

    split: ChangeSplit


class ChangeReader(DataSourceReader):
    """Plans the changes and reads their splits. Spark pickles it, and the changelog with it."""

    def __init__(self, changes: Changelog, *, with_snapshot_id: bool) -> None:
        self._changes = changes
        self._with_snapshot_id = with_snapshot_id

    def partitions(self) -> Sequence[InputPartition]:
        """One per split."""
        return [_ChangeSplitPartition(split) for split in self._changes.plan()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The changes of one split, in the carriers that Spark takes."""
        if not isinstance(partition, _ChangeSplitPartition):
            return
        batches = self._changes.read_split(partition.split)
        yield from carried(batches, self._changes.fields, _columns_of_changes(self._changes, self._with_snapshot_id))


def changes_struct(changes: Changelog, *, with_snapshot_id: bool) -> spark.StructType:
    """The schema of the frame."""
    return _struct_of(changes.fields, _columns_of_changes(changes, with_snapshot_id))


def _columns_of_changes(changes: Changelog, with_snapshot_id: bool) -> list[pa.Field]:
    """The columns that come with every change."""
    first = len(changes.fields)
    return [changes.schema.field(first + index).with_nullable(False) for index in range(1 + with_snapshot_id)]


def _struct_of(fields: Sequence[DataField], appended: Iterable[pa.Field]) -> spark.StructType:
    """The columns of a table in their carriers, and those that come with every change."""
    struct = spark_struct(fields)
    for field in appended:
        struct = struct.add(field.name, _APPENDED[field.type], nullable=field.nullable)
    return struct


def carried(
    batches: Iterable[pa.RecordBatch], fields: Sequence[DataField], appended: Sequence[pa.Field] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows of a table in the carriers that Spark takes, with the `appended` columns as they are, and no others."""
    own = [pa.field(f.name, carrier_arrow_type(f.type), f.type.nullable) for f in fields]
    target = pa.schema([*own, *appended])
    for batch in batches:
        arrays = [carry_array(column, field.type) for column, field in zip(batch.columns, fields, strict=False)]
        yield pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(fields) : len(target)]], schema=target)


def check_given(what: str, own: spark.StructType, given: spark.StructType) -> None:
    """Raises `InvalidRequestError` where a schema that a user gave is not that of the frame, which `what` names."""
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in own]:
        raise InvalidRequestError(
            f"{what} the columns {own.simpleString()}, not {given.simpleString()}: load the frame "
            "again, since the table was changed after it was loaded; where .schema(...) was given, leave it out, and "
            "choose columns with the option 'columns'"
        )
