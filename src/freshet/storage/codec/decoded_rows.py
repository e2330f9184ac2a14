"""Many serialized binary rows at once, as Arrow arrays: statistics, keys and partitions of all files of a table.

Rows of one arity have their null bits and 8-byte slots at the same places, so a column is gathered from all rows by
index arithmetic; a text lies in its slot or behind the slots, `binary_row` has the layout. Columns whose values are
not fixed in this way (nested types, DECIMAL of more than 18 digits) are decoded row by row, where any row has a value.

100,000 rows of five columns take 0.05 s, one row after the other 0.7 s.

Source: FORMAT.md §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.codec.binary_row import decode_row, null_area_bytes, ticks_per_second
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arrow_types import arrow_type
from freshet.storage.model.data_type import BYTES_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, ScalarType, TypeRoot

_ARITY_BYTES: Final = 4
_COMPACT_DECIMAL_MAX: Final = 18
"""Digits of a DECIMAL whose unscaled value is in its slot."""

_FIXED: Final = {
    TypeRoot.TINYINT: "<i1",
    TypeRoot.SMALLINT: "<i2",
    TypeRoot.INT: "<i4",
    TypeRoot.DATE: "<i4",
    TypeRoot.TIME: "<i4",
    TypeRoot.BIGINT: "<i8",
    TypeRoot.FLOAT: "<f4",
    TypeRoot.DOUBLE: "<f8",
}

_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]


def arity_of(row: bytes) -> int:
    """How many fields a serialized row has."""
    return int.from_bytes(row[:_ARITY_BYTES], "big")


def decode_rows(rows: Sequence[bytes], types: Sequence[DataType]) -> list[pa.Array[Any]]:
    """A column for each type, in their order; none for rows without fields.

    Raises `InvalidRequestError` as `decode_row` does, for rows of another arity and for bytes that are broken.
    """
    if not types:
        return []
    if not rows:
        return [pa.array([], arrow_type(kind)) for kind in types]
    whole = _Rows(rows, types)
    return [whole.column(index) for index in range(len(types))]


class _Rows:
    """Serialized rows, one behind the other."""

    def __init__(self, rows: Sequence[bytes], types: Sequence[DataType]) -> None:
        self._rows, self._types = rows, types
        self._slots_at = null_area_bytes(len(types))
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self._data: _Bytes = np.frombuffer(b"".join(rows), np.uint8)
        self._ends = np.cumsum(lengths)
        self._bodies = self._ends - lengths + _ARITY_BYTES
        prefix = len(types).to_bytes(_ARITY_BYTES, "big")
        fixed_bytes = _ARITY_BYTES + self._slots_at + 8 * len(types)
        if int(lengths.min()) < fixed_bytes or not all(row.startswith(prefix) for row in rows):
            for row in rows:
                decode_row(row, types)  # the first that is broken says so

    def column(self, index: int) -> pa.Array[Any]:
        """The values of one field."""
        kind = self._types[index]
        bit = 8 + index
        nulls = (self._data[self._bodies + (bit >> 3)] >> (bit & 7) & 1).astype(np.bool_)
        if nulls.all():
            return pa.nulls(len(nulls), arrow_type(kind))
        slots = self._bodies + self._slots_at + 8 * index
        if not isinstance(kind, ScalarType) or _is_wide_decimal(kind):
            return pa.array([decode_row(row, self._types)[index] for row in self._rows], arrow_type(kind))
        if kind.root in TEXT_ROOTS or kind.root in BYTES_ROOTS:
            return self._texts(slots, nulls, arrow_type(kind))
        if kind.root in TIMESTAMP_ROOTS:
            return pa.array(self._ticks(slots, nulls, kind.precision or 0), pa.int64(), mask=nulls).cast(
                arrow_type(kind)
            )
        words = self._bytes_at(slots, 8)
        if kind.root is TypeRoot.DECIMAL:
            return _decimals(words.view("<i8")[:, 0], nulls, arrow_type(kind))
        if kind.root is TypeRoot.BOOLEAN:
            return pa.array(words[:, 0] != 0, pa.bool_(), mask=nulls)
        values = np.ascontiguousarray(words.view(_FIXED[kind.root])[:, 0])
        return pa.array(values, mask=nulls).cast(arrow_type(kind))

    def _ticks(self, slots: _Longs, nulls: npt.NDArray[np.bool_], precision: int) -> _Longs:
        per_second = ticks_per_second(precision)
        words = self._longs_at(slots)
        if precision <= 3:
            return words // (1000 // per_second)
        at = np.where(nulls, slots, self._bodies + (words >> 32))
        self._check_within(at, np.full(len(at), 8, np.int64))
        nanos = words & 0xFFFFFFFF
        return self._longs_at(at) * (per_second // 1000) + nanos // (1_000_000_000 // per_second)

    def _texts(self, slots: _Longs, nulls: npt.NDArray[np.bool_], target: pa.DataType) -> pa.Array[Any]:
        marks = self._data[slots + 7].astype(np.int64)
        words = self._longs_at(slots)
        is_inline = (marks & 0x80) != 0
        lengths = np.where(nulls, 0, np.where(is_inline, marks & 0x7F, words & 0xFFFFFFFF))
        begins = np.where(is_inline | nulls, slots, self._bodies + (words >> 32))
        self._check_within(begins, lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        taken = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        buffers = [
            pa.array(~nulls).buffers()[1],
            pa.py_buffer(offsets.astype(np.int64)),
            pa.py_buffer(self._data[taken]),
        ]
        is_text = pa.types.is_string(target)
        whole: pa.Array[Any] = pa.Array.from_buffers(
            pa.large_string() if is_text else pa.large_binary(), len(nulls), buffers
        )
        try:
            whole.validate(full=True)  # bytes that are no text
            return whole.cast(target)
        except pa.ArrowInvalid as error:
            raise InvalidRequestError(f"binary rows hold a text that cannot be read: {error}") from error

    def _bytes_at(self, at: _Longs, count: int) -> _Bytes:
        found: _Bytes = self._data[at[:, None] + np.arange(count)]
        return found

    def _longs_at(self, at: _Longs) -> _Longs:
        found: _Longs = self._bytes_at(at, 8).view("<i8")[:, 0]
        return found

    def _check_within(self, begins: _Longs, lengths: _Longs) -> None:
        if bool(((begins < self._bodies) | (begins + lengths > self._ends)).any()):
            raise InvalidRequestError("a binary row is broken: a value of it lies behind its end")


def _is_wide_decimal(kind: ScalarType) -> bool:
    return kind.root is TypeRoot.DECIMAL and (kind.precision or 0) > _COMPACT_DECIMAL_MAX


def _decimals(unscaled: _Longs, nulls: npt.NDArray[np.bool_], target: pa.DataType) -> pa.Array[Any]:
    halves = np.stack([unscaled, unscaled >> 63], axis=1)
    return pa.Array.from_buffers(target, len(nulls), [pa.array(~nulls).buffers()[1], pa.py_buffer(halves)])
