"""Which bucket a row belongs to.

| `bucket-function.type` | bucket of n |
|---|---|
| default | abs(hash % n), the remainder truncated towards zero; hash = Murmur3 of the bucket key's binary row |
| mod | value modulo n, never negative; one INT or BIGINT column |
| hive | (h & 0x7fffffff) % n with h = 31 * h + field hash over the columns, starting with 0 |

Field hash of `hive`: BOOLEAN 0 or 1; TINYINT to INT the value; BIGINT low word xor high word; FLOAT and DOUBLE their
bits (-0.0 as 0, the DOUBLE's folded like a BIGINT); strings and bytes 31 * h + signed byte; DECIMAL 31 * h + scale
after trailing zeros are cut, h from the magnitude's 32-bit words, the sign last; DATE and TIME the stored number; null
0. TIMESTAMP has no hash and is refused.

Source: FORMAT.md §8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import unscaled
from freshet.storage.codec.binary_row_arrays import CHUNK_ROWS, conformed, row_hashes
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import DYNAMIC_BUCKET
from freshet.storage.options.core import CoreOptions

Int32Array = npt.NDArray[np.int32]
UInt32Array = npt.NDArray[np.uint32]

_MASK: Final = 0xFFFFFFFF
_SMALL_INTS: Final = frozenset(
    {TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME}
)


class BucketRule(Frozen):
    """What decides the bucket of a row: one rule for whoever decodes rows, for expressions of an engine, and for the
    writer. It gives each row a number:

    | table | number of a row |
    |---|---|
    | n buckets | its bucket |
    | dynamic buckets | the hash of its key without partition columns; an assigner has the bucket |
    | the same, and keys cross partitions | the hash of its whole key |
    | postponed buckets | the hash of its key; rows wait, those of a key with one writer |
    | none | 0 |
    """

    columns: tuple[str, ...]
    types: tuple[DataType, ...]
    count: int
    """Number of buckets; 1 where there are none, `DYNAMIC_BUCKET` where an assigner has them or rows wait for them."""
    function: str = "default"

    @classmethod
    def of(cls, schema: TableSchema, options: CoreOptions) -> BucketRule:
        """The rule of a table."""
        if options.has_dynamic_buckets or options.has_postponed_buckets:
            keys = schema.primary_keys if schema.keys_cross_partitions else schema.trimmed_primary_keys
            return cls(keys, schema.types_of(keys), DYNAMIC_BUCKET)
        columns = options.bucket_key or (schema.trimmed_primary_keys if schema.has_primary_key else ())
        count = max(1, options.bucket)
        return cls(columns, schema.types_of(columns), count, options.bucket_function_type)

    @property
    def is_assigned(self) -> bool:
        """True where the number of a row is not its bucket."""
        return self.count == DYNAMIC_BUCKET

    @property
    def is_constant(self) -> bool:
        """True where every row has the number 0."""
        return self.count == 1 or not self.columns

    def numbers(self, arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]]) -> Int32Array:
        """The number of each row; `arrays` are the columns of the rule in their order, at least one."""
        if self.is_assigned:
            return row_hashes(arrays, self.types)
        return bucket_ids(arrays, self.types, self.count, self.function)


class BucketFunctionType(StrEnum):
    """Values of `bucket-function.type`."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


def bucket_ids(
    arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]],
    types: Sequence[DataType],
    num_buckets: int,
    function: BucketFunctionType | str = BucketFunctionType.DEFAULT,
) -> Int32Array:
    """Bucket of each row; `arrays` are the bucket-key columns in order."""
    if num_buckets <= 0:
        raise InvalidRequestError(f"the bucket count must be positive, not {num_buckets}")
    match BucketFunctionType(function):
        case BucketFunctionType.DEFAULT:
            if num_buckets == 1:
                return np.zeros(len(arrays[0]), dtype=np.int32)
            hashes: Int32Array = row_hashes(arrays, types)
            return np.abs(np.fmod(hashes, np.int32(num_buckets)))
        case BucketFunctionType.MOD:
            check_bucket_function(BucketFunctionType.MOD, types)
            values = pc.fill_null(conformed(arrays[0], types[0]), 0).to_numpy(zero_copy_only=False)
            buckets: Int32Array = np.mod(values, num_buckets).astype(np.int32)
            return buckets
        case BucketFunctionType.HIVE:
            return _hive_buckets(arrays, types, num_buckets)


def check_bucket_function(function: BucketFunctionType | str, types: Sequence[DataType]) -> None:
    """Refuses bucket keys that the function cannot take."""
    if BucketFunctionType(function) is BucketFunctionType.MOD and (
        len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT)
    ):
        raise InvalidRequestError(
            "bucket-function.type=mod needs a bucket key of exactly one INT or BIGINT column",
            option="bucket-function.type",
        )
    for data_type in types if BucketFunctionType(function) is BucketFunctionType.HIVE else ():
        if data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            raise UnsupportedFeatureError(
                f"bucket-function.type=hive has no hash for {data_type}; use default", option="bucket-function.type"
            )


def _hive_buckets(
    arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType], num_buckets: int
) -> Int32Array:
    check_bucket_function(BucketFunctionType.HIVE, types)
    columns = [conformed(array, data_type) for array, data_type in zip(arrays, types, strict=True)]
    buckets = np.zeros(len(columns[0]), dtype=np.int32)
    for start in range(0, len(buckets), CHUNK_ROWS):
        state = np.zeros(min(CHUNK_ROWS, len(buckets) - start), dtype=np.uint32)
        for column, data_type in zip(columns, types, strict=True):
            state = state * np.uint32(31) + _hive_hashes(column.slice(start, CHUNK_ROWS), data_type)
        buckets[start : start + CHUNK_ROWS] = (state & np.uint32(0x7FFFFFFF)) % np.uint32(num_buckets)
    return buckets


def _hive_hashes(array: Any, data_type: DataType) -> UInt32Array:
    assert isinstance(data_type, ScalarType)
    root = data_type.root
    if root in _SMALL_INTS:
        plain = array.cast(pa.int8() if root is TypeRoot.BOOLEAN else pa.int32())
        numbers: Int32Array = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False).astype(np.int32)
        return numbers.view(np.uint32)
    if root is TypeRoot.BIGINT:
        return _folded(pc.fill_null(array, 0).to_numpy(zero_copy_only=False).view(np.uint64))
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        # Adding 0.0 turns -0.0 into 0.0; every NaN has the one canonical pattern.
        values: npt.NDArray[Any] = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        return values.view(np.uint32) if root is TypeRoot.FLOAT else _folded(values.view(np.uint64))
    if root is TypeRoot.DECIMAL:
        return _decimal_hashes(array, data_type)
    return _text_hashes(array)


def _folded(values: npt.NDArray[np.uint64]) -> UInt32Array:
    return (values ^ (values >> np.uint64(32))).astype(np.uint32)


def _text_hashes(array: Any) -> UInt32Array:
    """Sum of signed byte * 31 ** (bytes behind it), modulo 2 ** 32; 0 for nulls and empty values."""
    _, offset_buffer, data_buffer = array.buffers()
    ends = np.frombuffer(offset_buffer, dtype=np.int32, count=array.offset + len(array) + 1)[array.offset :]
    lengths = np.diff(ends)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    hashes = np.zeros(len(array), dtype=np.uint32)
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return hashes
    starts, sizes = ends[:-1][filled].astype(np.int64), lengths[filled].astype(np.int64)
    # Position of each byte within its value, for the values that have bytes, back to back.
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), sizes.cumsum()[:-1]])
    within = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(firsts, sizes)
    powers = np.full(int(sizes.max()), 31, dtype=np.uint32)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    data = np.frombuffer(data_buffer, dtype=np.int8)
    terms = data[np.repeat(starts, sizes) + within].astype(np.int32).view(np.uint32)
    terms *= powers[np.repeat(sizes, sizes) - 1 - within]
    hashes[filled] = np.add.reduceat(terms, firsts, dtype=np.uint32)
    return hashes


def _decimal_hashes(array: Any, data_type: ScalarType) -> UInt32Array:
    if (data_type.precision or 0) > 18:
        # Numbers of more than 64 bits have no machine arithmetic; each distinct one is hashed once.
        encoded = pc.dictionary_encode(array)
        scale = data_type.scale or 0
        distinct = [_decimal_hash(unscaled(value, data_type), scale) for value in encoded.dictionary.to_pylist()]
        hashes = np.array([*distinct, 0], dtype=np.uint32)
        codes: npt.NDArray[Any] = pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)
        return np.take(hashes, codes)
    words = np.frombuffer(array.buffers()[1], dtype=np.int64, count=2 * (array.offset + len(array)))
    numbers = words[2 * array.offset :: 2].copy()
    if array.null_count:
        numbers[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    scales = np.full(len(numbers), data_type.scale or 0, dtype=np.uint32)
    for _ in range(data_type.scale or 0):
        trimmed = (numbers % 10 == 0) & (numbers != 0) & (scales > 0)
        if not trimmed.any():
            break
        numbers[trimmed] //= 10
        scales[trimmed] -= 1
    magnitude = np.abs(numbers).view(np.uint64)
    state = (magnitude >> np.uint64(32)).astype(np.uint32) * np.uint32(31) + magnitude.astype(np.uint32)
    state = np.where(numbers < 0, -state, state) * np.uint32(31) + scales
    return np.where(numbers == 0, np.uint32(0), state)


def _decimal_hash(number: int, scale: int) -> int:
    if number == 0:
        return 0
    while scale > 0 and number % 10 == 0:
        number //= 10
        scale -= 1
    magnitude, state = abs(number), 0
    size = (magnitude.bit_length() + 31) // 32 * 4
    for word in _big_endian_words(magnitude, size):
        state = (31 * state + word) & _MASK
    if number < 0:
        state = -state & _MASK
    return (31 * state + scale) & _MASK


def _big_endian_words(magnitude: int, size: int) -> list[int]:
    piece = magnitude.to_bytes(size, "big")
    return [int.from_bytes(piece[start : start + 4], "big") for start in range(0, size, 4)]
