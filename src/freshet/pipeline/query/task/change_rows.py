"""Rows of tables that are followed to packed rows of the table that is written, in a worker.

    groups of a stream ─ rows, numbered in their order ─ columns of the target in their carriers, bucket ─ packed

They cross with the columns `_bucket`, `_index` (where a stage looks at keys), `_kind`, `_position`, `_d0` …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.pipeline.config.frame_options import PlannedStream
from freshet.pipeline.decode.carriers import carrier_arrow_type, carry_array, is_nanos, restore_array
from freshet.pipeline.decode.outcomes import BUCKET, DATA_PREFIX, KIND
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.expressions.evaluation import ExpressionSql, evaluate
from freshet.pipeline.query.task.batch_work import BatchWork, work_of
from freshet.pipeline.query.task.key_task import INDEX
from freshet.pipeline.query.wire.batch_pin import TaskPlace
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.pipeline.query.wire.packed_rows import PackedValue, PackRule, not_small, packed_batches
from freshet.pipeline.query.wire.read_count import POSITION, POSITION_BITS
from freshet.storage.codec.bucket_function import BucketRule
from freshet.storage.exceptions import OvertakenError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import DataField
from freshet.storage.model.row_kind import ROW_KIND_COLUMN


class ComputedExpression(Frozen):
    """An expression of `select`; `reads` are the numbers of the columns that it reads, `reason` says what fails."""

    sql: ExpressionSql
    reads: tuple[int, ...]
    reason: str


class FilledColumn(Frozen):
    """A column of the target, and what fills it: a column that is read, by its number, an expression, the default of
    the column, or nothing."""

    field: DataField
    source: int | None = None
    computed: ComputedExpression | None = None
    has_default: bool = False


class RowPacker(Frozen):
    """The packer of one source whose rows are those of a table; `read` are the columns of that. Its batches have a
    position besides (`read_count.POSITION`), by which they are counted: there are no tallies."""

    read: tuple[DataField, ...]
    columns: tuple[FilledColumn, ...]
    rule: PackRule
    bucket: BucketRule | None
    """What gives a row its number; None where that is 0."""
    schema: pa.Schema
    """Of the rows as they cross."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PackedValue]:
        """`Packer.__call__`."""
        for batch in not_small(iter(batches)):
            for task, content in self.rule.packed(self._routed(batch)):
                yield task, 0, content

    def _routed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        data = self._data(batch)
        routed: dict[str, Any] = {f"{DATA_PREFIX}{index}": array for index, array in enumerate(data)}
        routed[BUCKET] = pa.array(self._numbers(data, batch.num_rows), pa.int32())
        routed[INDEX] = pa.nulls(batch.num_rows, pa.binary())
        routed[KIND], routed[POSITION] = batch.column(ROW_KIND_COLUMN), batch.column(POSITION)
        return pa.RecordBatch.from_arrays([routed[name] for name in self.schema.names], schema=self.schema)

    def _numbers(self, data: Sequence[Any], count: int) -> Any:
        if self.bucket is None or self.bucket.is_constant:
            return np.zeros(count, np.int32)
        indexes = {column.field.name: index for index, column in enumerate(self.columns)}
        arrays = [data[indexes[name]] for name in self.bucket.columns]
        return self.bucket.numbers([restore_array(*each) for each in zip(arrays, self.bucket.types, strict=True)])

    def _data(self, batch: pa.RecordBatch) -> list[Any]:
        found: list[Any] = []
        for column in self.columns:
            count, field = batch.num_rows, column.field
            if column.source is not None:
                array = self._column(batch, column.source)
            elif column.computed is not None:
                array = self._value(batch, field.name, column.computed)
            elif column.has_default:
                value = pa.array([field.default_value], pa.string()).cast(arrow_type(field.type))
                array = carry_array(value, field.type).take(pa.array(np.zeros(count, np.int64)))
            else:
                array = pa.nulls(count, carrier_arrow_type(field.type))
            found.append(fitted(array, field))
        return found

    def _column(self, batch: pa.RecordBatch, index: int) -> Any:
        """A column that is read, in its carrier."""
        array = batch.column(index)
        return carry_array(array, self.read[index].type) if index < len(self.read) else array

    def _value(self, batch: pa.RecordBatch, name: str, computed: ComputedExpression) -> Any:
        columns = {index: self._column(batch, index) for index in computed.reads}
        (found,) = evaluate(columns, batch.num_rows, [computed.sql])
        if found.failed is not None:
            raise InvalidRequestError(f"select.{name}: {computed.reason}; where NULL is meant, write try_cast or such")
        return found.values


def fitted(array: Any, field: DataField) -> Any:
    """A column in a carrier that `row_works` has found to fit, in that of the table's column."""
    if is_nanos(field.type) and pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("ns", array.type.tz)).cast(pa.int64())
    return carry_array(array, field.type)


def read_group(stream: PlannedStream, group: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a group of a stream, in their order."""
    with kept_in_checkpoint():
        yield from stream.read_group(group)


@contextmanager
def kept_in_checkpoint() -> Iterator[None]:
    """A position that expiry or a rollback has removed stays in the checkpoint: a restart does not help."""
    try:
        yield
    except OvertakenError as error:
        raise InvalidRequestError(
            f"{error}. Starting the query again ends in the same error: it takes a new checkpoint, and an empty target "
            "where rows that come again would be wrong"
        ) from error


class ChangesPiece(Frozen):
    """Some groups of a stream, one after the other: what one worker reads. `number` is none of another piece of the
    batch."""

    stream: KeptValue[PlannedStream]
    groups: tuple[Any, ...]
    number: int
    work: KeptValue[BatchWork]
    index: int
    """Of the source."""
    keeps_together: ClassVar[bool] = False

    def run(self, place: TaskPlace) -> Iterator[pa.RecordBatch]:
        """The rows, packed."""
        yield from packed_batches(work_of(place, self.work).packers[self.index](self._rows()))

    def _rows(self) -> Iterator[pa.RecordBatch]:
        position = self.number << POSITION_BITS
        for group in self.groups:
            for batch in read_group(self.stream.value, group):
                numbers = np.arange(position, position + batch.num_rows)
                yield batch.append_column(POSITION, pa.array(numbers))
                position += batch.num_rows
