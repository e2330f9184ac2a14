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
first batch also says where it began (`first_offset`): it is the same batch however often it is planned. A snapshot that
is larger than a limit is read in several batches. Rows of one key come in their order: Spark partitions follow the
snapshots, and all changes of a bucket in a batch are in one partition.

Spark calls a reader in one Python process for planning, which keeps its connections, and pickles it for the processes
that read. A source without `SupportsTriggerAvailableNow` silently leaves rows when limits are given (Spark 4.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from freshet.pipeline.config.stream_options import PlannedStream
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sources.first_offset import FIRST, begin_of, end_offset, position_of
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.exceptions import OvertakenError
from freshet.storage.table_engine import StreamLimit

_APPENDED: Final[dict[Any, spark.DataType]] = {pa.string(): spark.StringType(), pa.int64(): spark.LongType()}
"""Types of the columns that come with every change."""


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """What one task reads, in its order: a group of the stream."""

    group: Any


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query and reads their splits."""

    def __init__(self, stream: PlannedStream, limit: StreamLimit) -> None:
        self._stream = stream
        self._limit = limit
        self._until: Any = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The same for every query: the end of its first batch carries where the query begins."""
        return dict(FIRST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Anything but `ReadAllAvailable` makes Spark ask for a limited batch; the limits are our own."""
        return ReadAllAvailable() if self._limit.is_none else ReadMaxRows(self._limit.rows or 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Later commits are left to the next run."""
        self._until = self._stream.bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch. Spark asks when the batch up to `start` is done: the consumer moves on.

        Spark does not report the commit of the last batch of a run.
        """
        begin = self._stream.first() if start == FIRST else self._stream.position(position_of(start))
        self._stream.handed_over(begin)
        allowed = StreamLimit() if isinstance(limit, ReadAllAvailable) else self._limit
        with _kept_in_checkpoint():
            end = self._stream.advance(begin, allowed, self._until)
        return end_offset(start, begin.to_document(), end.to_document())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of what is committed, for Spark's progress."""
        latest: dict[str, Any] = self._stream.latest().to_document()
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads: changes of a bucket together, in their order.

        After a restart Spark asks for the partitions between the last offset and itself: none.
        """
        if start == end:
            return []
        begin = self._stream.position(begin_of(start, end))
        with _kept_in_checkpoint():
            groups = self._stream.groups(begin, self._stream.position(position_of(end)))
        return [ChangePartition(group) for group in groups]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Rows of the splits, in the carriers that Spark takes."""
        if not isinstance(partition, ChangePartition):
            return
        fields = self._stream.fields
        target = pa.schema(
            [pa.field(f.name, carrier_arrow_type(f.type), f.type.nullable) for f in fields]
            + [self._stream.schema.field(index) for index in range(len(fields), len(self._stream.schema))]
        )
        with _kept_in_checkpoint():
            for batch in self._stream.read_group(partition.group):
                arrays = [carry_array(column, field.type) for column, field in zip(batch.columns, fields, strict=False)]
                yield pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(fields) :]], schema=target)


@contextmanager
def _kept_in_checkpoint() -> Iterator[None]:
    """A position that expiry or a rollback has removed stays in the checkpoint: a restart does not help."""
    try:
        yield
    except OvertakenError as error:
        raise InvalidRequestError(
            f"{error}. Starting the query again ends in the same error: it takes a new checkpoint, and an empty target "
            "where rows that come again would be wrong"
        ) from error


def stream_struct(stream: PlannedStream) -> spark.StructType:
    """The schema of the frame."""
    struct = spark_struct(stream.fields)
    for index in range(len(stream.fields), len(stream.schema)):
        field = stream.schema.field(index)
        struct = struct.add(field.name, _APPENDED[field.type], nullable=field.nullable)
    return struct


def check_stream_schema(stream: PlannedStream, given: spark.StructType) -> None:
    """Raises `InvalidRequestError` where a schema that a user gave is not that of the stream."""
    own = stream_struct(stream)
    if [(f.name, f.dataType) for f in given] != [(f.name, f.dataType) for f in own]:
        raise InvalidRequestError(
            f"this stream has the columns {own.simpleString()}, not {given.simpleString()}: load the frame "
            "again, since the table was changed after it was loaded; where .schema(...) was given, leave it out, and "
            "choose columns with the option 'columns'"
        )
