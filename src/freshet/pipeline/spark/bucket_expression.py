"""Routing: which bucket a row belongs to and which Spark task writes that bucket, as Spark column expressions.

The bucket of a row is `abs(hash % buckets)`, the hash being Murmur3 (seed 42, 32 bits) over the body of the BinaryRow
of the bucket key. Spark's own `hash()` of one binary is the same function for binaries of whole words, so the body is
built as a binary column and hashed without leaving the JVM:

    body    = null area (8 bytes, bit 8 + i is set when field i is NULL) ++ one 8-byte slot per field ++ tails
    short   = up to 7 bytes of text or binary lie in the slot, whose last byte is 0x80 + length
    long    = slot (tail offset << 32) + length, the bytes in the tail, padded with zeros to whole words
    wide    = TIMESTAMP(p > 3): slot (tail offset << 32) + nanoseconds of the millisecond, 8-byte tail of milliseconds;
              the NULL of it keeps its tail (zeros) and its offset

Numbers become little-endian bytes by `substring` of a table of the 256 bytes. Measured on 2 M rows, two cores: 0.16 s
for a BIGINT key and 0.14 s for a 15-byte text key, where hex / reverse / unhex takes 0.27 s. A pass of its own
through Arrow and numpy is estimated at 1 s, from the cost of `mapInArrow` alone; it was not
measured. Keys that Spark cannot turn into bytes (FLOAT, DOUBLE, DECIMAL over 18 digits), more than 56
key columns and the `hive` function take that pass: an Arrow function over the key columns alone.

A bucket goes to task `mod(hash(partition columns) + bucket, task count)`: a function of (table partition, bucket)
alone, so no bucket is ever split between two tasks. The buckets of one table partition lie on different tasks as long
as there are enough of them.

Source: FORMAT.md §5 (BinaryRow), §8.1 (bucket functions).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet._frozen import Frozen
from freshet.pipeline.decode.carriers import restore_array
from freshet.storage.codec.bucket_function import BucketFunctionType, BucketRule
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

_BYTES: Final = bytearray(range(256))
_ZEROS: Final = bytearray(8)
_SHORT_MAX: Final = 7
"""Longest text or binary that lies within its slot."""

_KEYS_MAX: Final = 56
"""Fields that one 8-byte null area holds."""

_INT_WIDTHS: Final = {
    TypeRoot.BOOLEAN: 1,
    TypeRoot.TINYINT: 1,
    TypeRoot.SMALLINT: 2,
    TypeRoot.INT: 4,
    TypeRoot.DATE: 4,
    TypeRoot.TIME: 4,
    TypeRoot.BIGINT: 8,
}
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMES: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_DECIMAL_SLOT_DIGITS_MAX: Final = 18
_MICROS_PER_DAY: Final = 86_400_000_000


class KeyColumn(Frozen):
    """One column of a bucket key: Spark's column (in its carrier type) and the table's type of it."""

    column: Column
    type: DataType


def bucket_column(keys: Sequence[KeyColumn], bucket_count: int, function: BucketFunctionType) -> Column:
    """The bucket of a row, INT, 0 up to `bucket_count` exclusive; `keys` in the order of the bucket key."""
    match function:
        case BucketFunctionType.MOD:
            return F.pmod(keys[0].column.cast("bigint"), F.lit(bucket_count)).cast("int")
        case BucketFunctionType.DEFAULT if len(keys) <= _KEYS_MAX and all(is_native(key.type) for key in keys):
            return F.abs(F.hash(body_column(keys)) % F.lit(bucket_count)).cast("int")
        case _:
            return _arrow_bucket(keys, bucket_count, function)


def number_column(keys: Sequence[KeyColumn], rule: BucketRule) -> Column:
    """The number that the rule gives a row, INT; `keys` are its columns in their order."""
    if not rule.is_assigned:
        return bucket_column(keys, rule.count, BucketFunctionType(rule.function))
    if len(keys) <= _KEYS_MAX and all(is_native(key.type) for key in keys):
        return F.hash(body_column(keys))
    return _arrow_numbers(keys, rule)


def assigner_task_column(
    partition_columns: Sequence[Column], key_hash: Column, assigner_count: int, task_count: int
) -> Column:
    """The task that assigns the keys of a row: each partition has so many assigners, on as many tasks."""
    return task_column(partition_columns, F.abs(key_hash % F.lit(assigner_count)), task_count)


def task_column(partition_columns: Sequence[Column], bucket: Column, task_count: int) -> Column:
    """The task (Spark partition) that writes the bucket of a row, INT, 0 up to `task_count` exclusive."""
    start = bucket.cast("bigint")
    if partition_columns:
        start = start + F.hash(*partition_columns).cast("bigint")
    return F.pmod(start, F.lit(task_count)).cast("int")


def is_native(data_type: DataType) -> bool:
    """True when the slot of this type can be built by Spark's own expressions."""
    if not isinstance(data_type, ScalarType):
        return False
    if data_type.root is TypeRoot.DECIMAL:
        return (data_type.precision or 0) <= _DECIMAL_SLOT_DIGITS_MAX
    return data_type.root in _INT_WIDTHS or data_type.root in _TEXTS or data_type.root in _TIMES


def body_column(keys: Sequence[KeyColumn]) -> Column:
    """The body of the BinaryRow of these columns (without the arity prefix), BINARY."""
    slots: list[Column] = []
    tails: list[Column] = []
    offset = F.lit(8 + 8 * len(keys))
    for key in keys:
        slot, tail, tail_size = _parts(key, offset)
        slots.append(slot)
        if tail is not None:
            tails.append(tail)
            offset = offset + tail_size
    return F.concat(_null_area(keys), *slots, *tails)


def little_endian(number: Column, width: int) -> Column:
    """The lowest `width` bytes of an INT or BIGINT column, lowest first, BINARY."""
    table = F.lit(_BYTES)
    parts = [
        F.substring(table, F.shiftrightunsigned(number, 8 * index).bitwiseAND(F.lit(255)).cast("int") + 1, 1)
        for index in range(width)
    ]
    return F.concat(*parts) if width > 1 else parts[0]


def _null_area(keys: Sequence[KeyColumn]) -> Column:
    bits = [
        F.when(key.column.isNull(), F.lit(1 << (8 + index)).cast("bigint")).otherwise(F.lit(0).cast("bigint"))
        for index, key in enumerate(keys)
        if key.type.nullable
    ]
    if not bits:
        return F.lit(_ZEROS)
    return little_endian(reduce(lambda left, right: left.bitwiseOR(right), bits), 8)


def _parts(key: KeyColumn, offset: Column) -> tuple[Column, Column | None, Column]:
    """Slot, tail and size of the tail of one field; a NULL of a nullable field is the zero slot without a tail."""
    assert isinstance(key.type, ScalarType)
    root = key.type.root
    if root in _TEXTS:
        return _text_parts(key, offset)
    if root in _TIMES and (key.type.precision or 0) > 3:
        return _wide_time_parts(key, offset)
    if root in _TIMES:
        slot = little_endian(_epoch_millis(key.column, key.type), 8)
    elif root is TypeRoot.DECIMAL:
        unscaled = key.column * F.lit(10 ** (key.type.scale or 0)).cast(f"decimal({(key.type.scale or 0) + 1},0)")
        slot = little_endian(unscaled.cast("bigint"), 8)
    else:
        width = _INT_WIDTHS[root]
        number = (
            F.unix_date(key.column) if root is TypeRoot.DATE else key.column.cast("bigint" if width == 8 else "int")
        )
        slot = little_endian(number, width)
        if width < 8:
            slot = F.concat(slot, F.lit(_ZEROS[width:]))
    return _or_zeros(key, slot), None, F.lit(0)


def _text_parts(key: KeyColumn, offset: Column) -> tuple[Column, Column | None, Column]:
    octets = key.column.cast("binary")
    length = F.octet_length(octets)
    padding = F.substring(F.lit(_ZEROS), F.lit(1), (F.lit(0) - length).bitwiseAND(F.lit(7)))
    fits = length <= _SHORT_MAX
    short = F.concat(octets, F.substring(F.lit(_ZEROS), F.lit(1), _SHORT_MAX - length), little_endian(length + 128, 1))
    slot = F.when(fits, short).otherwise(F.concat(little_endian(length, 4), little_endian(offset, 4)))
    tail = F.when(fits, F.lit(bytearray())).otherwise(F.concat(octets, padding))
    tail_size = F.when(fits, F.lit(0)).otherwise((length + 7).bitwiseAND(F.lit(-8)))
    if key.type.nullable:
        tail = F.coalesce(tail, F.lit(bytearray()))
        tail_size = F.coalesce(tail_size, F.lit(0))
    return _or_zeros(key, slot), tail, tail_size


def _wide_time_parts(key: KeyColumn, offset: Column) -> tuple[Column, Column | None, Column]:
    assert isinstance(key.type, ScalarType)
    nanos = _nanos_of_milli(key.column, key.type)
    millis = _epoch_millis(key.column, key.type)
    if key.type.nullable:
        nanos = F.coalesce(nanos, F.lit(0))
        millis = F.coalesce(millis, F.lit(0).cast("bigint"))
    slot = F.concat(little_endian(nanos, 4), little_endian(offset, 4))
    return slot, little_endian(millis, 8), F.lit(8)


def _or_zeros(key: KeyColumn, slot: Column) -> Column:
    return F.coalesce(slot, F.lit(_ZEROS)) if key.type.nullable else slot


def _epoch_millis(column: Column, data_type: ScalarType) -> Column:
    """Milliseconds since 1970, rounded down; whole seconds for precision 0."""
    precision = data_type.precision or 0
    if precision > 6:
        return _divide_down(column, 1_000_000)
    micros = epoch_micros(column, data_type)
    return _divide_down(micros, 1_000) if precision else _divide_down(micros, 1_000_000) * F.lit(1_000).cast("bigint")


def _nanos_of_milli(column: Column, data_type: ScalarType) -> Column:
    if (data_type.precision or 0) > 6:
        return F.pmod(column, F.lit(1_000_000).cast("bigint")).cast("int")
    return F.pmod(epoch_micros(column, data_type), F.lit(1_000).cast("bigint")).cast("int") * F.lit(1_000)


def epoch_micros(column: Column, data_type: ScalarType) -> Column:
    """Microseconds since 1970. TIMESTAMP without zone is taken apart, because casts of it go by the session's zone."""
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        return F.unix_micros(column)
    day = F.unix_date(column.cast("date")).cast("bigint") * F.lit(_MICROS_PER_DAY).cast("bigint")
    second = F.hour(column) * F.lit(3600) + F.minute(column) * F.lit(60)
    fraction = (F.extract(F.lit("SECOND"), column) * F.lit(1_000_000)).cast("bigint")
    return day + second.cast("bigint") * F.lit(1_000_000).cast("bigint") + fraction


def _divide_down(number: Column, divisor: int) -> Column:
    parts = F.lit(divisor).cast("bigint")
    return F.call_function("div", number - F.pmod(number, parts), parts)


def _arrow_bucket(keys: Sequence[KeyColumn], bucket_count: int, function: BucketFunctionType) -> Column:
    return _arrow_numbers(keys, BucketRule((), tuple(key.type for key in keys), bucket_count, function))


def _arrow_numbers(keys: Sequence[KeyColumn], rule: BucketRule) -> Column:
    def numbers(*arrays: pa.Array) -> pa.Array:
        restored = [restore_array(array, data_type) for array, data_type in zip(arrays, rule.types, strict=True)]
        return pa.array(rule.numbers(restored), pa.int32())

    return F.arrow_udf(numbers, "int")(*[key.column for key in keys])  # type: ignore[call-overload, no-any-return]
