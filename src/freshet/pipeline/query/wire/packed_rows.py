"""Outcomes that cross to the tasks as one value for each block, task and table: Arrow's bytes, which are only moved.

A row that crosses column by column is built by Spark from Arrow, written, read and put into Arrow again: its cost grows
with the columns. A packed value costs by bytes. It can be sent where no column is computed by Spark (`PackRule`).

    packed value:  the columns whose values differ, as Arrow's bytes ─ the other ones as JSON ─ its length, 4 bytes

Of the fifteen columns in front of the table's, twelve have one value in most blocks (topic, partition, tag, …; all of
the last five are NULL): sent as one value each, a row of W9 crosses with 186 bytes instead of 243.

The task of a row is a function of (table partition, bucket), and with dynamic buckets first one of (table partition,
share of the keys), for the stage that assigns buckets. Dead letters and tallies are spread. Rows of tables that are
followed are packed in the same way: no decoder has made them, and they have neither tag nor offset.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, OFFSET, TAG, TAG_DATA
from freshet.pipeline.query.wire.spark_hash import spark_hashes

TASK: Final = "task"
TABLE: Final = "table"
PACKED: Final = "packed"
PACKED_SCHEMA: Final = pa.schema([(TASK, pa.int32()), (TABLE, pa.int32()), (PACKED, pa.binary())])
PackedValue = tuple[int, int, pa.Buffer]
"""The task that it goes to, the table that its rows are of, the rows."""
_LENGTH: Final = struct.Struct("<i")
_MAY_BE_CONSTANT: Final = frozenset(
    each.name for each in HEAD_SCHEMA if pa.types.is_integer(each.type) or pa.types.is_string(each.type)
)
_ROWS_MIN: Final = 8192
_BYTES_MIN: Final = 16 << 20
"""A batch is packed with so many rows or bytes. A hundred columns are decoded 1300 records at a time: packed like that,
the main job made 27 K records/s, and 30 K like this."""
_OTHERS_BITS: Final = 10
_STEP: Final = 31


class PackRule(Frozen):
    """The task of each outcome. `partition_columns` are names of outcomes; `has_bucket` is False where one task gets
    all rows of a partition."""

    partition_columns: tuple[str, ...]
    has_bucket: bool
    task_count: int
    first_task: int = 0
    """Of bucket 0, so that small tables of a query do not all go to the same task."""
    share_count: int = 0
    """Where buckets are dynamic, `_bucket` is the hash of the key, and so many shares of the keys are told apart."""
    is_sparks: bool = False
    """The number of the task is the one that Spark's `hash` gives: it names the files of rows that wait."""

    def tasks(self, outcomes: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The task of each row, 0 up to `task_count` exclusive."""
        numbers = np.zeros(outcomes.num_rows, np.int64)
        if self.is_sparks and self.partition_columns:
            numbers = spark_hashes([outcomes.column(name) for name in self.partition_columns])
        else:
            for name in self.partition_columns:
                numbers = numbers * _STEP + _value_numbers(outcomes.column(name))
        if self.has_bucket:  # added: the shares of one partition are on different tasks
            buckets = _int64(outcomes.column(BUCKET))
            numbers += np.abs(np.fmod(buckets, self.share_count)) if self.share_count else buckets
        if TAG not in outcomes.schema.names:  # rows that no decoder has made
            return (numbers + self.first_task) % self.task_count
        others = _int64(outcomes.column(OFFSET)) >> _OTHERS_BITS
        is_data = np.asarray(pc.equal(outcomes.column(TAG), TAG_DATA))
        return np.where(is_data, numbers + self.first_task, others) % self.task_count

    def packed(self, outcomes: pa.RecordBatch) -> Iterator[tuple[int, pa.Buffer]]:
        """The rows of each task, in their order."""
        tasks = self.tasks(outcomes)
        present: Sequence[int] = np.unique(tasks).tolist()
        constants = _constants(outcomes)
        varying = outcomes.select([index for index in range(outcomes.num_columns) if index not in constants])
        for task in present:
            part = varying if len(present) == 1 else varying.take(pa.array(np.flatnonzero(tasks == task)))
            yield task, _packed_value(part, constants)


def not_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def packed_batches(values: Iterable[PackedValue]) -> Iterator[pa.RecordBatch]:
    """Packed values as batches of `PACKED_SCHEMA`, one row each."""
    for task, table, content in values:
        columns: list[Any] = [pa.array([task], pa.int32()), pa.array([table], pa.int32()), value_of(content)]
        yield pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def unpacked_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The inverse, of values that are all of one table."""
    for batch in batches:
        for value in batch.column(PACKED):
            yield unpacked(value.as_buffer(), schema)


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
    for index, (name, column) in enumerate(zip(outcomes.schema.names, outcomes.columns, strict=True)):
        if column.null_count == count:
            found[index] = None
        elif name in _MAY_BE_CONSTANT and not column.null_count:
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
