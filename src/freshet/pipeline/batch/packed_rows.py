"""Outcomes that cross the shuffle as one value for each block and task: Arrow's own bytes, which Spark only moves.

A row that crosses column by column is built by Spark from Arrow, written, read and put into Arrow again: its cost grows
with the columns. A packed value costs by bytes. It can be sent where the sender can say the task of each row without
Spark (`PackRule`): no assigners in between, no columns that Spark computes.

    packed value:  the columns whose values differ, as Arrow's bytes ─ the other ones as JSON ─ its length, 4 bytes

Of the fifteen columns in front of the table's, twelve have one value in most blocks (topic, partition, tag, …; all of
the last five are NULL): sent as one value each, a row of W9 crosses with 186 bytes instead of 243.

The task of a row is a function of (table partition, bucket) here too, but not the one of `routing`: all rows of a batch
cross in one way or the other. Dead letters and tallies are spread as there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql import types as spark

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.task_result import RESULT_SPARK_SCHEMA
from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, OFFSET, TAG, TAG_DATA
from freshet.pipeline.spark.arrow_map import ArrowFunction, KeptColumns

TASK: Final = "task"
PACKED: Final = "packed"
PACKED_SPARK_SCHEMA: Final = spark.StructType(
    [spark.StructField(TASK, spark.IntegerType()), spark.StructField(PACKED, spark.BinaryType())]
)
_ARROW_SCHEMA: Final = pa.schema([pa.field(TASK, pa.int32()), pa.field(PACKED, pa.binary())])
_LENGTH: Final = struct.Struct("<i")
_MAY_BE_CONSTANT: Final = frozenset(
    index for index, each in enumerate(HEAD_SCHEMA) if pa.types.is_integer(each.type) or pa.types.is_string(each.type)
)
_ROWS_MIN: Final = 8192
_BYTES_MIN: Final = 16 << 20
"""A batch is packed with so many rows or bytes. A hundred columns are decoded 1300 records at a time: packed like that,
the main job made 27 K records/s, and 30 K like this."""
_OTHERS_BITS: Final = 10
_STEP: Final = 31


@dataclass(frozen=True, slots=True)
class PackRule:
    """The task of each outcome. `partition_columns` are names of outcomes; `has_bucket` is False where one task gets
    all rows of a partition."""

    partition_columns: tuple[str, ...]
    has_bucket: bool
    task_count: int
    first_task: int = 0
    """Of bucket 0, so that small tables of a query do not all go to the same task."""

    def tasks(self, outcomes: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The task of each row, 0 up to `task_count` exclusive."""
        numbers = np.zeros(outcomes.num_rows, np.int64)
        if self.has_bucket:
            numbers += _int64(outcomes.column(BUCKET))
        for name in self.partition_columns:
            numbers = numbers * _STEP + _value_numbers(outcomes.column(name))
        others = _int64(outcomes.column(OFFSET)) >> _OTHERS_BITS
        is_data = np.asarray(pc.equal(outcomes.column(TAG), TAG_DATA))
        return np.where(is_data, numbers + self.first_task, others) % self.task_count

    def packed(self, outcomes: pa.RecordBatch) -> Iterator[tuple[int, pa.Buffer]]:
        """The rows of each task, in their order, as a packed value."""
        tasks = self.tasks(outcomes)
        present: Sequence[int] = np.unique(tasks).tolist()
        constants = _constants(outcomes)
        varying = outcomes.select([index for index in range(outcomes.num_columns) if index not in constants])
        for task in present:
            part = varying if len(present) == 1 else varying.take(pa.array(np.flatnonzero(tasks == task)))
            yield task, _packed_value(part, constants)


@dataclass(frozen=True, slots=True)
class Packing:
    """What gives outcomes, and packs them; a value that travels to the workers."""

    outcomes: ArrowFunction
    rule: PackRule

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `ArrowFunction`: rows of `PACKED_SPARK_SCHEMA`."""
        for outcomes in _not_small(self.outcomes(batches)):
            for task, packed in self.rule.packed(outcomes):
                columns = [pa.array([task], pa.int32()), value_of(packed)]
                yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """A task that takes outcomes of a schema, for rows that were packed; a value that travels to the workers."""

    task: ArrowFunction
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `ArrowFunction`."""
        return self.task(self._unpacked(batches))

    def _unpacked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column(PACKED):
                yield unpacked(value.as_buffer(), self.schema)


@dataclass(frozen=True, slots=True)
class PackedTasks:
    """Where packed outcomes of a schema go: the rule for who packs them, and the task that takes them, by the pins of a
    batch."""

    rule: PackRule
    task: Callable[[Mapping[int, BatchPin]], ArrowFunction]
    schema: pa.Schema

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin]) -> tuple[DataFrame, int]:
        """A frame of `PACKED_SPARK_SCHEMA` followed by the work of its tasks, and how many there are at most."""
        distributed = frame.repartitionById(self.rule.task_count, F.col(TASK))
        crossing = KeptColumns([F.col(TASK), F.col(PACKED)])
        taken = Unpacking(self.task(pins), self.schema)
        return crossing.map_in_arrow(distributed, taken, RESULT_SPARK_SCHEMA), self.rule.task_count


def _not_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, small batches joined: whoever takes rows from a batch pays for each of its columns."""
    kept: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if not kept and batch.num_rows >= _ROWS_MIN:
            yield batch
            continue
        kept.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _ROWS_MIN or size >= _BYTES_MIN:
            yield pa.concat_batches(kept)
            kept, count, size = [], 0, 0
    if kept:
        yield pa.concat_batches(kept)


def unpacked(packed: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a packed value; `schema` is that of the outcomes."""
    end = packed.size - _LENGTH.size
    (length,) = _LENGTH.unpack(packed.slice(end).to_pybytes())
    count, *pairs = json.loads(packed.slice(end - length, length).to_pybytes())
    constants: dict[int, Any] = dict(pairs)
    varying = ipc.read_record_batch(packed.slice(0, end - length), _varying_schema(schema, frozenset(constants)))
    left = iter(varying.columns)
    columns = [
        _repeated(constants[index], each.type, count) if index in constants else next(left)
        for index, each in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _packed_value(varying: pa.RecordBatch, constants: Mapping[int, Any]) -> pa.Buffer:
    rest = json.dumps([varying.num_rows, *constants.items()]).encode()
    return pa.py_buffer(b"".join((varying.serialize(), rest, _LENGTH.pack(len(rest)))))


def _constants(outcomes: pa.RecordBatch) -> dict[int, Any]:
    """The columns, by index, that have one value in all rows: NULL, or in front of the table's a number or a text."""
    count = outcomes.num_rows
    found: dict[int, Any] = {}
    for index, column in enumerate(outcomes.columns):
        if column.null_count == count:
            found[index] = None
        elif index in _MAY_BE_CONSTANT and not column.null_count:
            first = column[0]
            if column[count - 1] == first and pc.all(pc.equal(column, first)).as_py():
                found[index] = first.as_py()
    if len(found) == outcomes.num_columns:  # a batch says by a column how many rows it has
        del found[min(found)]
    return found


@lru_cache(1024)
def _varying_schema(schema: pa.Schema, constants: frozenset[int]) -> pa.Schema:
    return pa.schema([each for index, each in enumerate(schema) if index not in constants])


def _repeated(value: Any, data_type: pa.DataType, count: int) -> Any:
    return pa.nulls(count, data_type) if value is None else pa.repeat(pa.scalar(value, data_type), count)


def value_of(content: pa.Buffer) -> Any:
    """One value, not copied."""
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])


def _int64(column: Any) -> npt.NDArray[np.int64]:
    filled: Any = pc.fill_null(column, 0)
    numbers: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _value_numbers(column: Any) -> npt.NDArray[np.int64]:
    """A number for each value, the same in every process."""
    encoded = column.dictionary_encode()
    numbers = [zlib.crc32(repr(value).encode()) for value in encoded.dictionary.to_pylist()]
    return np.array([*numbers, 0], np.int64)[_codes(encoded.indices, len(numbers))]


def _codes(indices: Any, of_null: int) -> npt.NDArray[np.int64]:
    filled: Any = pc.fill_null(indices, of_null)
    codes: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
