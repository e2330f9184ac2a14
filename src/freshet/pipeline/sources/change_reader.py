"""A batch frame of what happened between two points of a table's history (`incremental-between`).

It has the columns of the table, `_ROW_KIND`, and with the option `with-snapshot-id` the column `_SNAPSHOT_ID`, by which
the changes of a key can be put into their order: the rows of a frame have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.arrow_bridge import spark_struct
from freshet.storage.model.row_kind import ROW_KIND_COLUMN, SNAPSHOT_ID_COLUMN
from freshet.storage.table import Changelog
from freshet.storage.table_engine import ChangeSplit

_KIND: Final = spark.StructField(ROW_KIND_COLUMN, spark.StringType(), nullable=False)
_SNAPSHOT: Final = spark.StructField(SNAPSHOT_ID_COLUMN, spark.LongType(), nullable=False)


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
        fields = self._changes.fields
        count = len(fields) + 1 + self._with_snapshot_id
        appended = [self._changes.schema.field(index) for index in range(len(fields), count)]
        carried = [pa.field(f.name, carrier_arrow_type(f.type), f.type.nullable) for f in fields]
        target = pa.schema([*carried, *(field.with_nullable(False) for field in appended)])
        for batch in self._changes.read_split(partition.split):
            arrays = [carry_array(column, field.type) for column, field in zip(batch.columns, fields, strict=False)]
            yield pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(fields) : count]], schema=target)


def changes_struct(changes: Changelog, *, with_snapshot_id: bool) -> spark.StructType:
    """The schema of the frame."""
    return spark.StructType([*spark_struct(changes.fields), _KIND, *([_SNAPSHOT] if with_snapshot_id else [])])


def check_changes_schema(own: spark.StructType, given: spark.StructType) -> None:
    """Raises `InvalidRequestError` where a schema that a user gave is not that of the changes."""
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in own]:
        raise InvalidRequestError(
            f"these changes have the columns {own.simpleString()}, not {given.simpleString()}: load the frame "
            "again, since the table was changed after it was loaded; where .schema(...) was given, leave it out, and "
            "choose columns with the option 'columns'"
        )
