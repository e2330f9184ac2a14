"""Bitmap indexes of one column of a data file: which values it has, and in which rows each of them is.

    int8     version: 2; all integers are big endian
    int32    rows; int32 distinct values that are not NULL; int8 whether there are NULLs, then int32 offset, int32 length
    int32    number of blocks, and of each its first value and int32 offset among the blocks
    int32    length of all blocks
    blocks   int32 entries, and of each the value, int32 offset, int32 length; values in their order
    bitmaps  portable roaring bitmaps, that of NULL first

An offset of -1 - row means that one row alone, which has no bitmap. Version 1 has the entries, without lengths, in place
of number and blocks. Values are written as Java's DataOutput has them, text with its length in front.

Range bitmaps are read for their bounds alone: int32 length, int8 version 1, int32 rows, int32 distinct values, the
smallest and the largest one where there are any.

Source: FORMAT.md §11.
"""  # noqa: E501 - a layout

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.storage.codec.index_hashes import FLOATS, NUMBERS, TEXTS, TIMESTAMPS, numbers_of
from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.exceptions import CorruptDataError, UnsupportedFeatureError
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot

BLOCK_BYTES: Final = 16 * 1024
_VERSIONS: Final = (1, 2)
_WIDTHS: Final = {TypeRoot.TINYINT: "b", TypeRoot.SMALLINT: "h", TypeRoot.INT: "i", TypeRoot.DATE: "i"} | {
    TypeRoot.TIME: "i",
    TypeRoot.BIGINT: "q",
    TypeRoot.BOOLEAN: "?",
    TypeRoot.FLOAT: "f",
    TypeRoot.DOUBLE: "d",
}
_CHARACTERS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})


def can_have_bitmap(data_type: DataType) -> bool:
    """Whether the format has bitmap indexes for columns of the type."""
    roots = NUMBERS | TIMESTAMPS | _CHARACTERS | {TypeRoot.BOOLEAN}
    return isinstance(data_type, ScalarType) and data_type.root in roots


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """What an index says of the values of a column in a file; numbers and instants as `numbers_of` has them."""

    row_count: int
    has_nulls: bool | None = None
    """None where it does not say."""
    values: frozenset[Any] | None = None
    """All of them; None where it does not say."""
    bounds: tuple[Any, Any] | None = None
    """The smallest and the largest."""


def decode_bitmap_index(data: bytes, data_type: ScalarType) -> ColumnValues:
    """What a bitmap index says. Raises `CorruptDataError`, `UnsupportedFeatureError` for a later version."""
    reader = _Reader(data, data_type)
    try:
        (version,) = reader.unpack(">b")
        if version not in _VERSIONS:
            raise UnsupportedFeatureError(f"the bitmap index has version {version}; 1 and 2 are supported")
        rows, value_count, has_nulls = reader.unpack(">ii?")
        if has_nulls:
            reader.unpack(">i" if version == 1 else ">ii")
        if version == 1:
            values = [_first(reader.value(), reader.unpack(">i")) for _ in range(value_count)]
        else:
            (block_count,) = reader.unpack(">i")
            for _ in range(block_count):
                reader.value()
                reader.unpack(">i")
            reader.unpack(">i")
            values = []
            for _ in range(block_count):
                (entry_count,) = reader.unpack(">i")
                values += [_first(reader.value(), reader.unpack(">ii")) for _ in range(entry_count)]
    except struct.error as error:
        raise CorruptDataError(f"the bitmap index is cut short: {error}") from error
    return ColumnValues(rows, bool(has_nulls), frozenset(values))


def decode_range_bitmap(data: bytes, data_type: ScalarType) -> ColumnValues:
    """What the head of a range bitmap says."""
    reader = _Reader(data, data_type)
    try:
        _, version, rows, value_count = reader.unpack(">ibii")
        if version != 1:
            raise UnsupportedFeatureError(f"the range bitmap has version {version}; 1 is supported")
        if not value_count:
            return ColumnValues(rows, True, frozenset())
        return ColumnValues(rows, None, None, (reader.value(), reader.value()))
    except struct.error as error:
        raise CorruptDataError(f"the range bitmap is cut short: {error}") from error


class BitmapIndexBuilder:
    """The bitmap index of a column of a file that is written."""

    def __init__(self, data_type: ScalarType) -> None:
        self._type = data_type
        self._rows = 0
        self._positions: dict[Any, list[npt.NDArray[np.uint32]]] = {}

    def add(self, values: pa.Array[Any]) -> None:
        """The next rows; NULL is a value too."""
        if not len(values):
            return
        encoded = values.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        named = _plain(encoded.dictionary, self._type)
        order = np.argsort(codes, kind="stable")
        found, starts = np.unique(codes[order], return_index=True)
        for code, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            value = None if code < 0 else named[code]
            self._positions.setdefault(value, []).append((rows + self._rows).astype(np.uint32))
        self._rows += len(values)

    def encode(self) -> bytes:
        """The bytes of the index."""
        positions = {value: np.concatenate(parts) for value, parts in self._positions.items()}
        nulls = positions.pop(None, None)
        bitmaps: list[bytes] = []
        body = 0

        def place(rows: npt.NDArray[np.uint32], length_of_one: int) -> tuple[int, int]:
            nonlocal body
            if len(rows) == 1:
                return -1 - int(rows[0]), length_of_one
            bitmap = Bitmap32(rows)
            bitmap.run_optimize()
            bitmaps.append(bitmap.serialize())
            body += len(bitmaps[-1])
            return body - len(bitmaps[-1]), len(bitmaps[-1])

        head = struct.pack(">bii?", 2, self._rows, len(positions), nulls is not None)
        if nulls is not None:
            head += struct.pack(">ii", *place(nulls, len(Bitmap32(nulls[:1]).serialize())))
        blocks: list[tuple[bytes, list[bytes]]] = []
        room = 0
        for value in sorted(positions):
            written = self._written(value)
            entry = written + struct.pack(">ii", *place(positions[value], -1))
            if room < len(entry):
                blocks.append((written, []))
                room = BLOCK_BYTES - 4
            blocks[-1][1].append(entry)
            room -= len(entry)
        encoded = [struct.pack(">i", len(entries)) + b"".join(entries) for _, entries in blocks]
        starts = np.cumsum([0, *map(len, encoded)]).tolist()
        head += struct.pack(">i", len(blocks))
        for (first, _), start in zip(blocks, starts[:-1], strict=True):
            head += first + struct.pack(">i", start)
        return head + struct.pack(">i", starts[-1]) + b"".join(encoded) + b"".join(bitmaps)

    def _written(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return struct.pack(">i", len(value)) + value
        return struct.pack(f">{_WIDTHS.get(self._type.root, 'q')}", value)


def plain_value(scalar: pa.Scalar[Any], data_type: ScalarType) -> Any:
    """A value as `ColumnValues` has it."""
    return _plain(
        pa.array([scalar.as_py()], scalar.type)
        if not pa.types.is_timestamp(scalar.type)
        else pa.array([scalar.value], pa.int64()).cast(scalar.type),
        data_type,
    )[0]


def _plain(values: pa.Array[Any], data_type: ScalarType) -> list[Any]:
    if data_type.root in TEXTS:
        plain: list[Any] = values.cast(pa.binary()).to_pylist()
    elif data_type.root is TypeRoot.BOOLEAN or data_type.root in FLOATS:
        plain = values.to_pylist()
    else:
        plain = numbers_of(values, data_type).tolist()
    return plain


def _first(value: Any, _: Sequence[int]) -> Any:
    return value


class _Reader:
    def __init__(self, data: bytes, data_type: ScalarType) -> None:
        self._data = data
        self._position = 0
        self.value: Callable[[], Any] = self._text
        if data_type.root not in TEXTS:
            layout = f">{_WIDTHS.get(data_type.root, 'q')}"
            self.value = lambda: self.unpack(layout)[0]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def _text(self) -> bytes:
        (length,) = self.unpack(">i")
        text = self._data[self._position : self._position + length]
        if length < 0 or len(text) < length:
            raise CorruptDataError("the index is cut short")
        self._position += length
        return text
