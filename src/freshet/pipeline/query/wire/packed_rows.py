"""Outcomes that cross to the tasks as one value for each block, task and table: Arrow's bytes, which are only moved.

A row that crosses column by column is built by Spark from Arrow, written, read and put into Arrow again: its cost grows
with the columns. A packed value costs by bytes. It can be sent where no column is computed by Spark (`PackRule`).

    packed value:  the columns whose values differ, as Arrow's bytes ─ the other ones as JSON ─ its length, 4 bytes

Of the fifteen columns in front of the table's, twelve have one value in most blocks (topic, partition, tag, …; all of
the last five are NULL): sent as one value each, a row of W9 crosses with 186 bytes instead of 243.

The task of a row is a function of (table partition, bucket), and with dynamic buckets first one of (table partition,
share of the keys), for the stage that assigns buckets. Dead letters and tallies are spread. Rows of tables that are
followed are packed in the same way: no decoder has made them, and they have neither tag nor offset.

Spark's `hash` of some columns, in Arrow: Murmur3 with 32 bits, from column to column with the hash so far as seed.

The task in whose files rows wait for their bucket (`bucket=-2`) is a part of the names of these files, and Apache
Paimon keeps the order of one task alone. So it is the same number whoever computes it, in earlier versions too.

| column | hashed |
|---|---|
| BOOLEAN, whole numbers up to 32 bits, DATE, FLOAT | 4 bytes |
| 64 bits: BIGINT, times, DOUBLE, DECIMAL of up to 18 digits (unscaled) | 8 bytes |
| text, binary, larger DECIMAL (two's complement, big-endian) | words of 4 bytes, then each byte left, with its sign |
| NULL | nothing: the hash so far stays |
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import BUCKET, HEAD_SCHEMA, OFFSET, TAG, TAG_DATA

TASK: Final = "task"
TABLE: Final = "table"
PACKED: Final = "packed"
PACKED_SCHEMA: Final = pa.schema([(TASK, pa.int32()), (TABLE, pa.int32()), (PACKED, pa.binary())])
PackedValue = tuple[int, int, pa.Buffer | pa.RecordBatch]
"""The task that it goes to, the table that its rows are of, the rows; as they are where they do not cross."""
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

_Int64Array = npt.NDArray[np.int64]

_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF
_SLOT_DIGITS: Final = 18


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
    """Packed values as batches of `PACKED_SCHEMA`, one row each; rows that do not cross as they are."""
    for task, table, content in values:
        if isinstance(content, pa.RecordBatch):
            yield content
            continue
        columns: list[Any] = [pa.array([task], pa.int32()), pa.array([table], pa.int32()), value_of(content)]
        yield pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def whole_tables(batches: Iterable[pa.RecordBatch], parted: Collection[int]) -> Iterator[pa.RecordBatch]:
    """The same values, those of a table for the task of its number; but for tables that are `parted`."""
    for batch in batches:
        table = batch.column(TABLE)
        yield batch if table[0].as_py() in parted else batch.set_column(0, TASK, table)


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


def spark_hashes(columns: Sequence[Any]) -> _Int64Array:
    """The hash of each row over its columns, which have the types of carriers; few of their values are distinct."""
    count = len(columns[0])
    hashes = np.full(count, _SEED, np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        hashed = _hashing(column.type)
        values = [*map(hashed, encoded.dictionary.to_pylist()), None]
        codes = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs, places = np.unique(np.stack((hashes, codes)), axis=1, return_inverse=True)
        mixed = [_mixed(values[code], seed) for seed, code in pairs.T.tolist()]
        hashes = np.array(mixed, np.int64)[places.reshape(-1)]
    return np.where(hashes > _MASK >> 1, hashes - _MASK - 1, hashes)


def _hashing(kind: pa.DataType) -> Callable[[Any], bytes]:
    """The bytes of a value that are hashed."""
    if pt.is_boolean(kind) or pt.is_integer(kind):
        width = 8 if kind == pa.int64() else 4
        return lambda value: int(value).to_bytes(width, "little", signed=True)
    if pt.is_date32(kind):
        return lambda value: pa.scalar(value, kind).value.to_bytes(4, "little", signed=True)
    if pt.is_timestamp(kind):
        return lambda value: pa.scalar(value, kind).value.to_bytes(8, "little", signed=True)
    if pt.is_floating(kind):
        # Adding 0.0 makes 0.0 of -0.0; there is one NaN.
        form = "<f" if kind == pa.float32() else "<d"
        return lambda value: struct.pack(form, float("nan") if value != value else value + 0.0)
    if pt.is_decimal(kind):
        return lambda value: _decimal_bytes(value, kind)
    return lambda value: value.encode() if isinstance(value, str) else bytes(value)


def _decimal_bytes(value: Decimal, kind: Any) -> bytes:
    unscaled = int(f"{value:f}".replace(".", ""))
    if kind.precision <= _SLOT_DIGITS:
        return unscaled.to_bytes(8, "little", signed=True)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _mixed(octets: bytes | None, seed: int) -> int:
    """The hash that follows another one."""
    if octets is None:
        return seed
    whole = len(octets) & -4
    words = [
        *struct.unpack(f"<{whole // 4}I", octets[:whole]),
        *struct.unpack(f"{len(octets) - whole}b", octets[whole:]),
    ]
    for word in words:
        part = _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
        seed = (_rotated(seed ^ part, 13) * 5 + 0xE6546B64) & _MASK
    seed ^= len(octets)
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & _MASK
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & _MASK
    return seed ^ seed >> 16


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _MASK
