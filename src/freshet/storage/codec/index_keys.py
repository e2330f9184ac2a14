"""Values of columns as indexes know and store them: whole numbers in the order of the values, or bytes.

| type | key | stored as |
|---|---|---|
| TINYINT to BIGINT, DATE, TIME, BOOLEAN | the number; days; milliseconds; 0 or 1 | 1, 2, 4 or 8 bytes |
| DECIMAL(p ≤ 18, s) | the number of units | 8 bytes |
| TIMESTAMP, with and without a zone | p ≤ 3: milliseconds; else microseconds, what is finer is cut | 8 bytes |
| FLOAT, DOUBLE | the bits as a number that orders as the values do: -0.0 below 0.0, NaN above all | the bits |
| CHAR, VARCHAR | UTF-8 | i32 length, bytes |
| BINARY, VARBINARY | the bytes | only hashed |

Numbers are stored in their width, bytes behind their length, all big endian. A filter takes -0.0 and 0.0 for equal, an
index does not.

Source: FORMAT.md §11.
"""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.data_type import (
    BYTES_ROOTS,
    FLOAT_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataType,
    ScalarType,
    TypeRoot,
)

Int64Array = npt.NDArray[np.int64]
Key = int | bytes

_R = TypeRoot
_WIDTHS: Final = {
    _R.BOOLEAN: 1,
    _R.TINYINT: 1,
    _R.SMALLINT: 2,
    _R.INT: 4,
    _R.BIGINT: 8,
    _R.DECIMAL: 8,
    _R.FLOAT: 4,
    _R.DOUBLE: 8,
    _R.DATE: 4,
    _R.TIME: 4,
    _R.TIMESTAMP: 8,
    _R.TIMESTAMP_LTZ: 8,
}
_UNITS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1), "ns": (1, 1000)}
"""What a timestamp of a unit is multiplied with, and divided by."""
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_LONG_DECIMALS_MAX: Final = 18

UInt32Array = npt.NDArray[np.uint32]

I32: Final = struct.Struct(">i")

UNREADABLE: Final = (struct.error, ValueError, LookupError, OverflowError, InvalidRequestError)
"""What reading bytes that are no index raises."""


class KeyForm(Frozen):
    """How the values of one type become keys."""

    kind: ScalarType

    @staticmethod
    def of(kind: DataType) -> KeyForm | None:
        """None for a type that no index takes."""
        if not isinstance(kind, ScalarType):
            return None
        if kind.root is _R.DECIMAL and (kind.precision or 0) > _LONG_DECIMALS_MAX:
            return None
        return KeyForm(kind)

    @property
    def is_bytes(self) -> bool:
        """Whether keys are bytes, not numbers."""
        return self.kind.root in TEXT_ROOTS or self.kind.root in BYTES_ROOTS

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind.root in FLOAT_ROOTS

    @property
    def is_exact(self) -> bool:
        """Whether different values have different keys."""
        return self.kind.root not in TIMESTAMP_ROOTS or (self.kind.precision or 0) <= 6

    @property
    def stored(self) -> np.dtype[Any]:
        """How a number is stored."""
        return np.dtype(f">i{_WIDTHS[self.kind.root]}")

    def keys(self, values: pa.Array[Any]) -> Int64Array | pa.Array[Any]:
        """Keys of values without NULLs; of bytes and text an Arrow array of binary."""
        if self.is_bytes:
            return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
        root = self.kind.root
        if self.is_float:
            return ordered_bits(values.to_numpy(zero_copy_only=False))
        if root is _R.BOOLEAN:
            values = values.cast(pa.int8())
        elif root is _R.DECIMAL:
            return _unscaled(values)
        elif root in (_R.DATE, _R.TIME):
            values = values.view(pa.int32())
        elif root in TIMESTAMP_ROOTS:
            factor, divisor = _UNITS[values.type.unit]
            return values.view(pa.int64()).to_numpy(zero_copy_only=False) * factor // divisor
        return values.to_numpy(zero_copy_only=False).astype(np.int64)

    def literal_keys(self, literal: Any, arrow: pa.DataType) -> tuple[Key, ...]:
        """Keys of the values that equal a literal of a filter, lowest first; the literal is as `filters` has it, of a
        column of the Arrow type."""
        root = self.kind.root
        if isinstance(literal, str):
            return (literal.encode(),)
        if isinstance(literal, bytes):
            return (literal,)
        if self.is_float:
            size = np.float32 if root is _R.FLOAT else np.float64
            same = (-0.0, 0.0) if literal == 0 else (literal,)
            return tuple(int(key) for key in ordered_bits(np.array(same, size)))
        if isinstance(literal, datetime.date):
            return (literal.toordinal() - _EPOCH_DAY,)
        if isinstance(literal, Decimal):
            return (int(literal.scaleb(self.kind.scale or 0)),)
        if root in TIMESTAMP_ROOTS:
            factor, divisor = _UNITS[arrow.unit]
            return (literal * factor // divisor,)
        return (int(literal),)

    def encode(self, keys: Int64Array) -> npt.NDArray[Any]:
        """Numbers as they are stored."""
        return (_turned(keys, self._float_bits) if self.is_float else keys).astype(self.stored)

    def decode(self, stored: npt.NDArray[Any]) -> Int64Array:
        """The keys in an array of stored numbers."""
        numbers = stored.astype(np.int64)
        return _turned(numbers, self._float_bits) if self.is_float else numbers

    def hashed(self, keys: Int64Array) -> Int64Array:
        """The numbers that are hashed: of floating-point numbers their bits."""
        return _turned(keys, self._float_bits) if self.is_float else keys

    @property
    def _float_bits(self) -> int:
        return 8 * self.stored.itemsize


def ordered_bits(values: npt.NDArray[Any]) -> Int64Array:
    """Floating-point numbers as whole numbers in the same order; every NaN is the same."""
    clean = np.where(np.isnan(values), values.dtype.type(math.nan), values)
    bits = clean.view(np.int32 if values.dtype.itemsize == 4 else np.int64).astype(np.int64)
    return _turned(bits, 8 * values.dtype.itemsize)


def _turned(bits: Int64Array, width: int) -> Int64Array:
    """Negative numbers have their magnitude in reverse order; its own inverse."""
    return np.where(bits < 0, bits ^ np.int64((1 << (width - 1)) - 1), bits)


def _unscaled(values: pa.Array[Any]) -> Int64Array:
    """The units of decimals of at most 18 digits: the low half of their 16 bytes."""
    buffer = values.buffers()[1]
    halves = np.frombuffer(buffer, np.int64, 2 * len(values), 16 * values.offset)
    return halves[::2].copy()


def bytes_of(keys: pa.Array[Any]) -> tuple[npt.NDArray[np.uint8], Int64Array]:
    """The data of an Arrow array of binary without NULLs, and where its values begin in it, with the end."""
    _, offsets, data = keys.buffers()
    places = np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return content[places[0] : places[-1]], places - places[0]


class DistinctRows(NamedTuple):
    """`rows` are positions in the file, those of a key together, the keys in their order; `bounds` says where the rows
    of each key begin, with the end."""

    row_count: int
    keys: Int64Array | pa.Array[Any]
    bounds: Int64Array
    rows: UInt32Array
    nulls: UInt32Array


class DistinctColumn:
    """The distinct values of a column while a file is written, and the rows of each; it takes the values in the order
    of the rows.

    Columns are kept as dictionaries, chunk by chunk: a column of few values takes 4 bytes a row until the file is
    closed.
    """

    def __init__(self, form: KeyForm) -> None:
        self._form = form
        self._chunks: list[pa.Array[Any]] = []

    def add(self, values: pa.Array[Any]) -> None:
        """Some more rows."""
        self._chunks.append(self._keyed(values).dictionary_encode())

    def rows(self) -> DistinctRows:
        """What was added."""
        key_type = pa.binary() if self._form.is_bytes else pa.int64()
        chunks = self._chunks or [pa.array([], key_type).dictionary_encode()]
        merged = pa.chunked_array(chunks).unify_dictionaries()
        keys, ranks = self._ranked(merged.chunk(0).dictionary)
        codes = pa.chunked_array([chunk.indices for chunk in merged.chunks]).combine_chunks()
        is_null = codes.is_null().to_numpy(zero_copy_only=False)
        plain = ranks[codes.drop_null().to_numpy(zero_copy_only=False)]
        order = np.argsort(plain, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(plain, minlength=len(keys)))]).astype(np.int64)
        valid, nulls = (np.flatnonzero(flags).astype(np.uint32) for flags in (~is_null, is_null))
        return DistinctRows(len(codes), keys, bounds, valid[order], nulls)

    def _keyed(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """The keys of the values, NULL where those are; of numbers, so that -0.0 and 0.0 are different."""
        keys = self._form.keys(values.drop_null()) if values.null_count else self._form.keys(values)
        if not isinstance(keys, np.ndarray):
            return values if pa.types.is_binary(values.type) else values.cast(pa.binary())
        if not values.null_count:
            return pa.array(keys)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        spread = np.zeros(len(values), np.int64)
        spread[~is_null] = keys
        return pa.array(spread, mask=is_null)

    def _ranked(self, keys: pa.Array[Any]) -> tuple[Int64Array | pa.Array[Any], npt.NDArray[np.int64]]:
        """Distinct keys in order, and the rank of each among them."""
        order = pc.sort_indices(keys)
        ranks = np.empty(len(order), np.int64)
        ranks[order.to_numpy()] = np.arange(len(order))
        ordered = keys.take(order)
        return ordered if self._form.is_bytes else ordered.to_numpy(), ranks


class StoredKeys:
    """Keys of one form, in order, as one string of bytes, and where each begins in it."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: Int64Array) -> None:
        """`offsets` are those of the keys and the end of the last one."""
        self._data = data
        self.offsets = offsets

    @classmethod
    def of(cls, form: KeyForm, keys: Int64Array | pa.Array[Any]) -> StoredKeys:
        """These keys."""
        if isinstance(keys, np.ndarray):
            data = form.encode(keys).view(np.uint8)
            return cls(data, np.arange(len(keys) + 1, dtype=np.int64) * form.stored.itemsize)
        content, places = bytes_of(keys)
        offsets = places + np.arange(len(keys) + 1) * I32.size
        data = np.empty(len(content) + len(keys) * I32.size, np.uint8)
        is_length = np.zeros(len(data), np.bool_)
        for byte in range(I32.size):
            is_length[offsets[:-1] + byte] = True
        data[is_length] = np.diff(places).astype(">i4").view(np.uint8)
        data[~is_length] = content
        return cls(data, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def with_tails(self, tails: npt.NDArray[np.uint8]) -> StoredKeys:
        """The same, each key with its row of `tails` behind it."""
        count, width = tails.shape
        offsets = self.offsets + np.arange(count + 1) * width
        data = np.empty(len(self._data) + tails.size, np.uint8)
        is_tail = np.zeros(len(data), np.bool_)
        for byte in range(width):
            is_tail[offsets[1:] - width + byte] = True
        data[is_tail] = tails.reshape(-1)
        data[~is_tail] = self._data
        return StoredKeys(data, offsets)

    def between(self, start: int, end: int) -> bytes:
        """The bytes of the keys from `start` on, before `end`."""
        return self._data[self.offsets[start] : self.offsets[end]].tobytes()


def read_key(form: KeyForm, data: bytes, position: int) -> tuple[Key, int]:
    """The key that begins there, and where it ends. `ValueError` and `struct.error` for a key that is not whole."""
    if not form.is_bytes:
        end = position + form.stored.itemsize
        return int(form.decode(np.frombuffer(data, form.stored, 1, position))[0]), end
    (length,) = I32.unpack_from(data, position)
    start = position + I32.size
    if length < 0 or start + length > len(data):
        raise ValueError(f"{length} bytes of a key at {start}, of {len(data)}")
    return data[start : start + length], start + length
