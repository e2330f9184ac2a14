"""A batch frame of what happened between two points of a table's history (`incremental-between`).

It has the columns of the table, `_ROW_KIND`, and with the option `with-snapshot-id` the column `_SNAPSHOT_ID`, by which
the changes of a key can be put into their order: the rows of a frame have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.changes.changelog import Changelog
from freshet.storage.model.data_type import DataField
from freshet.storage.table_engine import ChangeSplit

_APPENDED: Final[dict[Any, spark.DataType]] = {pa.string(): spark.StringType(), pa.int64(): spark.LongType()}
"""Types of the columns that come with every change."""


@dataclass(frozen=True)
class ChangeSplitPartition(InputPartition):
    """One split, as it travels to an executor."""

    split: ChangeSplit


class ChangeReader(DataSourceReader):
    """Plans the changes and reads their splits. Spark pickles it, and the changelog with it."""

    def __init__(self, changes: Changelog, *, with_snapshot_id: bool) -> None:
        self._changes = changes
        self._with_snapshot_id = with_snapshot_id

    def partitions(self) -> Sequence[InputPartition]:
        """One per split."""
        return [ChangeSplitPartition(split) for split in self._changes.plan()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The changes of one split, in the carriers that Spark takes."""
        if not isinstance(partition, ChangeSplitPartition):
            return
        batches = self._changes.read_split(partition.split)
        yield from carried(batches, self._changes.fields, _appended(self._changes, self._with_snapshot_id))


def changes_struct(changes: Changelog, *, with_snapshot_id: bool) -> spark.StructType:
    """The schema of the frame."""
    return struct_of(changes.fields, _appended(changes, with_snapshot_id))


def _appended(changes: Changelog, with_snapshot_id: bool) -> list[pa.Field]:
    """The columns that come with every change."""
    first = len(changes.fields)
    return [changes.schema.field(first + index).with_nullable(False) for index in range(1 + with_snapshot_id)]


def struct_of(fields: Sequence[DataField], appended: Iterable[pa.Field]) -> spark.StructType:
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
