"""Which bucket a row belongs to.

| `bucket-function.type` | bucket of n |
|---|---|
| default | abs(hash % n), the remainder truncated towards zero; hash = Murmur3 of the bucket key's binary row |
| mod | value modulo n, never negative; one INT or BIGINT column |
| hive | (h & 0x7fffffff) % n with h = 31 * h + field hash over the columns, starting with 0 |

Field hash of `hive`: BOOLEAN 0 or 1; TINYINT to INT the value; BIGINT low word xor high word; FLOAT and DOUBLE their
bits (-0.0 as 0, the DOUBLE's folded like a BIGINT); strings and bytes 31 * h + signed byte; DECIMAL 31 * h + scale after
trailing zeros are cut, h from the magnitude's 32-bit words, sign last; null 0. DATE, TIME and TIMESTAMP are the stored
number where it is a number; TIMESTAMP has none and is refused.

Source: table format §8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.codec.binary_row_arrays import row_hashes
from storage.codec.binary_row_values import unscaled
from storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from storage.model.data_type import DataType, ScalarType, TypeRoot

Int32Array = npt.NDArray[np.int32]

_MASK: Final = 0xFFFFFFFF
_SMALL_INTS: Final = frozenset(
    {TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.DATE, TypeRoot.TIME}
)


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
            return np.abs(np.fmod(row_hashes(arrays, types), np.int32(num_buckets)))
        case BucketFunctionType.MOD:
            check_bucket_function(BucketFunctionType.MOD, types)
            values = pc.fill_null(_single(arrays[0]), 0).to_numpy(zero_copy_only=False)
            return np.mod(values, num_buckets).astype(np.int32)
        case BucketFunctionType.HIVE:
            return _hive_buckets(arrays, types, num_buckets)


def check_bucket_function(function: BucketFunctionType | str, types: Sequence[DataType]) -> None:
    """Refuses bucket keys that the function cannot take."""
    if BucketFunctionType(function) is BucketFunctionType.MOD and (
        len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT)
    ):
        raise InvalidRequestError("bucket-function.type=mod needs a bucket key of exactly one INT or BIGINT column")
    for data_type in types if BucketFunctionType(function) is BucketFunctionType.HIVE else ():
        if data_type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            raise UnsupportedFeatureError(f"bucket-function.type=hive has no hash for {data_type}; use default")


def _hive_buckets(
    arrays: Sequence[pa.Array[Any] | pa.ChunkedArray[Any]], types: Sequence[DataType], num_buckets: int
) -> Int32Array:
    check_bucket_function(BucketFunctionType.HIVE, types)
    state = np.zeros(len(arrays[0]), dtype=np.uint32)
    for array, data_type in zip(arrays, types, strict=True):
        state = state * np.uint32(31) + _hive_hashes(_single(array), data_type)
    return ((state & np.uint32(0x7FFFFFFF)) % np.uint32(num_buckets)).astype(np.int32)


def _hive_hashes(array: pa.Array[Any], data_type: DataType) -> npt.NDArray[np.uint32]:
    assert isinstance(data_type, ScalarType)
    root = data_type.root
    if root in _SMALL_INTS:
        plain = array.cast(pa.int8() if root is TypeRoot.BOOLEAN else pa.int32())
        return pc.fill_null(plain, 0).to_numpy(zero_copy_only=False).astype(np.int32).view(np.uint32)
    if root is TypeRoot.BIGINT:
        return _folded(pc.fill_null(array, 0).to_numpy(zero_copy_only=False).view(np.uint64))
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        # Adding 0.0 turns -0.0 into 0.0; every NaN has the one canonical pattern.
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        return values.view(np.uint32) if root is TypeRoot.FLOAT else _folded(values.view(np.uint64))
    encoded = pc.dictionary_encode(array)
    hashes = np.array([_hive_scalar(value, data_type) for value in encoded.dictionary.to_pylist()] + [0], np.uint32)
    return hashes[pc.fill_null(encoded.indices, len(hashes) - 1).to_numpy(zero_copy_only=False)]


def _folded(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    return (values ^ (values >> np.uint64(32))).astype(np.uint32)


def _hive_scalar(value: Any, data_type: ScalarType) -> int:
    if isinstance(value, Decimal):
        return _decimal_hash(unscaled(value, data_type), data_type.scale or 0)
    state = 0
    for byte in value.encode() if isinstance(value, str) else value:
        state = (state * 31 + (byte - 256 if byte > 127 else byte)) & _MASK
    return state


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


def _single(array: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
