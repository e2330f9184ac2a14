"""Range-bitmap indexes: the rows of ranges of values. Values are numbered in their order; bit i of the number of each
row is in bitmap i.

    i32  length of the head: u8 version 1, i32 number of rows, i32 number of values, the lowest value and the highest
         (if there are values), i32 length of the dictionary
    dictionary
         i32 length of its head: u8 version 1, i32 number of chunks, i32 length of the offsets, i32 length of the chunks
         offsets: where each chunk begins among the chunks, i32
         chunks, each: u8 version 1, its first value, i32 the number of that, i32 where its values begin among all,
                       i32 number of values behind the first one, i32 length of their offsets (text), i32 length of the
                       values, i32 length of each (not text)
         values: of each chunk those behind its first one; of text, i32 offsets of the values stand before them
    bits
         i32 length of its head: u8 version 1, u8 number of bits, i32 length of the bitmap of rows that are not NULL,
         i32 length of the places, and for each bit i32 where its bitmap begins and i32 its length
         the bitmap of rows that are not NULL, then those of the bits

All big endian, bitmaps portable 32-bit roaring bitmaps. The values of a chunk behind its first one, and the offsets of
text, have up to `chunk-size` bytes each: 16 kb, but 0 for BOOLEAN, TINYINT and SMALLINT. An index without values
has 64 bits.

Source: RangeBitmap, ChunkedDictionary and BitSliceIndexBitmap of Apache Paimon 2.0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from freshet.storage.codec.index_keys import (
    I32,
    UNREADABLE,
    DistinctColumn,
    DistinctRows,
    Key,
    KeyForm,
    StoredKeys,
    read_key,
)
from freshet.storage.codec.roaring_bitmaps import Bitmap32, read_bitmap32, write_bitmap32
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.data_type import BYTES_ROOTS, DataType, TypeRoot

VERSION: Final = 1

_CHUNK_BYTES: Final = 16 * 1024
_UNCHUNKED: Final = (TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT)
_HEAD: Final = struct.Struct(">Bii")
_DICTIONARY_HEAD: Final = struct.Struct(">iBiii")
_CHUNK_TAIL: Final = struct.Struct(">iiiii")
_BITS_HEAD: Final = struct.Struct(">BBii")
_PLACE: Final = struct.Struct(">ii")
_BITS_OF_NO_VALUES: Final = 64


def can_have_range_bitmap(data_type: DataType) -> bool:
    """Whether the format has range bitmaps for columns of the type."""
    form = KeyForm.of(data_type)
    return form is not None and form.is_exact and form.kind.root not in BYTES_ROOTS


def default_chunk_bytes(form: KeyForm) -> int:
    """`chunk-size` where the options do not say it."""
    return 0 if form.kind.root in _UNCHUNKED else _CHUNK_BYTES


class RangeBitmapWriter:
    """Builds the index of one column of one file, in the order of its rows."""

    def __init__(self, form: KeyForm, chunk_bytes: int | None = None) -> None:
        self._form = form
        self._chunk_bytes = default_chunk_bytes(form) if chunk_bytes is None else chunk_bytes
        self._column = DistinctColumn(form)

    def add(self, values: pa.Array[Any]) -> None:
        """Some more rows."""
        self._column.add(values)

    def write(self) -> bytes:
        """The bytes of the index."""
        distinct = self._column.rows()
        stored = StoredKeys.of(self._form, distinct.keys)
        count = len(stored)
        dictionary = self._dictionary(stored)
        head = _HEAD.pack(VERSION, distinct.row_count, count)
        if count:
            head += stored.between(0, 1) + stored.between(count - 1, count)
        head += I32.pack(len(dictionary))
        return b"".join([I32.pack(len(head)), head, dictionary, _bits(distinct, count)])

    def _dictionary(self, stored: StoredKeys) -> bytes:
        offsets: list[int] = []
        chunks: list[bytes] = []
        values: list[bytes] = []
        chunk_end = value_end = start = 0
        while start < len(stored):
            stop = self._chunk_end(stored, start)
            content = stored.between(start + 1, stop)
            places = b""
            if self._form.is_bytes:
                own = stored.offsets[start + 1 : stop] - stored.offsets[start + 1] if stop > start + 1 else ()
                places = np.asarray(own, ">i4").tobytes()
                last = len(content)
                first = len(places)
            else:
                first, last = len(content), self._form.stored.itemsize
            tail = _CHUNK_TAIL.pack(start, value_end, stop - start - 1, first, last)
            chunk = bytes([VERSION]) + stored.between(start, start + 1) + tail
            offsets.append(chunk_end)
            chunks.append(chunk)
            values += [places, content]
            chunk_end += len(chunk)
            value_end += len(places) + len(content)
            start = stop
        head = _DICTIONARY_HEAD.pack(_DICTIONARY_HEAD.size - I32.size, VERSION, len(chunks), 4 * len(chunks), chunk_end)
        return b"".join([head, np.array(offsets, ">i4").tobytes(), *chunks, *values])

    def _chunk_end(self, stored: StoredKeys, start: int) -> int:
        """The first value behind the chunk that begins with this one."""
        ends = stored.offsets
        stop = int(np.searchsorted(ends, ends[start + 1] + self._chunk_bytes, "right")) - 1
        if self._form.is_bytes:
            stop = min(stop, start + 1 + self._chunk_bytes // I32.size)
        return max(stop, start + 1)


def _bits(distinct: DistinctRows, count: int) -> bytes:
    width = max(int(count - 1).bit_length(), 1) if count else _BITS_OF_NO_VALUES
    codes = np.repeat(np.arange(count), np.diff(distinct.bounds))
    in_order = np.argsort(distinct.rows, kind="stable")
    rows, codes = distinct.rows[in_order], codes[in_order]
    valid = write_bitmap32(Bitmap32(rows))
    bitmaps = [write_bitmap32(Bitmap32(rows[(codes >> bit) & 1 == 1])) for bit in range(width)]
    places, offset = [], 0
    for bitmap in bitmaps:
        places.append(_PLACE.pack(offset, len(bitmap)))
        offset += len(bitmap)
    head = _BITS_HEAD.pack(VERSION, width, len(valid), _PLACE.size * width) + b"".join(places)
    return b"".join([I32.pack(len(head)), head, valid, *bitmaps])


class RangeBitmap:
    """The rows of values and of ranges of them in one file."""

    def __init__(self, form: KeyForm, data: bytes) -> None:
        """`CorruptDataError` for bytes that are no such index."""
        self._form = form
        self._data = data
        try:
            (head_bytes,) = I32.unpack_from(data)
            version, self.row_count, self._value_count = _HEAD.unpack_from(data, I32.size)
            position = I32.size + _HEAD.size
            _check_version(version)
            self._ends: tuple[Key, Key] | None = None
            if self._value_count > 0:
                low, position = read_key(form, data, position)
                high, position = read_key(form, data, position)
                self._ends = low, high
            (dictionary_bytes,) = I32.unpack_from(data, position)
            self._read_dictionary(I32.size + head_bytes)
            self._read_bits(I32.size + head_bytes + dictionary_bytes)
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def _read_dictionary(self, start: int) -> None:
        head_bytes, version, self._chunk_count, offset_bytes, chunk_bytes = _DICTIONARY_HEAD.unpack_from(
            self._data, start
        )
        _check_version(version)
        offsets_start = start + I32.size + head_bytes
        self._chunk_offsets = np.frombuffer(self._data, ">i4", self._chunk_count, offsets_start)
        self._chunks_start = offsets_start + offset_bytes
        self._values_start = self._chunks_start + chunk_bytes

    def _read_bits(self, start: int) -> None:
        (head_bytes,) = I32.unpack_from(self._data, start)
        version, self._width, self._valid_bytes, _ = _BITS_HEAD.unpack_from(self._data, start + I32.size)
        _check_version(version)
        places = start + I32.size + _BITS_HEAD.size
        self._bit_places = np.frombuffer(self._data, ">i4", 2 * self._width, places).reshape(-1, 2)
        self._bitmaps_start = start + I32.size + head_bytes

    def rows_with(self, keys: Iterable[Key]) -> Bitmap32:
        """Rows that have one of the keys."""
        found = [rows for key in keys if (rows := self._equal(key))]
        return Bitmap32.union(*found) if found else Bitmap32()

    @cached_property
    def valid(self) -> Bitmap32:
        """Rows that are not NULL."""
        if self._ends is None:
            return Bitmap32()
        return self._bitmap(self._bitmaps_start, self._valid_bytes)

    @cached_property
    def nulls(self) -> Bitmap32:
        """Rows that are NULL."""
        return Bitmap32(range(self.row_count)) - self.valid

    def rows_above(self, key: Key, *, inclusive: bool) -> Bitmap32:
        """Rows whose keys are greater, or equal where that is `inclusive`."""
        if self._ends is None:
            return Bitmap32()
        low, high = self._ends
        if key < low or (inclusive and key == low):  # type: ignore[operator]
            return self.valid
        if key > high or (not inclusive and key == high):  # type: ignore[operator]
            return Bitmap32()
        code, is_there = self._find(key)
        return self._codes_from(code + (is_there and not inclusive))

    def rows_below(self, key: Key, *, inclusive: bool) -> Bitmap32:
        """Rows whose keys are smaller, or equal where that is `inclusive`."""
        return self.valid - self.rows_above(key, inclusive=not inclusive)

    def _equal(self, key: Key) -> Bitmap32:
        if self._ends is None or not self._ends[0] <= key <= self._ends[1]:  # type: ignore[operator]
            return Bitmap32()
        code, is_there = self._find(key)
        if not is_there:
            return Bitmap32()
        rows = self.valid
        for bit in range(self._width):
            rows = rows & self._bit(bit) if code >> bit & 1 else rows - self._bit(bit)
        return rows

    def _codes_from(self, code: int) -> Bitmap32:
        """Rows whose number is at least this: compared bit by bit, from the highest one."""
        if code >= self._value_count:
            return Bitmap32()
        greater, equal = Bitmap32(), self.valid
        for bit in reversed(range(self._width)):
            ones = equal & self._bit(bit)
            if code >> bit & 1:
                equal = ones
            else:
                greater |= ones
                equal = equal - ones
        return greater | equal

    def _bit(self, bit: int) -> Bitmap32:
        offset, length = self._bit_places[bit].tolist()
        return self._bitmap(self._bitmaps_start + self._valid_bytes + offset, length)

    def _bitmap(self, start: int, length: int) -> Bitmap32:
        try:
            if not 0 <= start <= start + length <= len(self._data):
                raise ValueError(f"a bitmap is said to lie at {start}, {length} bytes, of {len(self._data)}")
            rows = read_bitmap32(self._data[start : start + length])
        except UNREADABLE as error:
            raise self._damaged(error) from error
        if rows and rows.max() >= self.row_count:
            raise self._damaged(f"row {rows.max()} of {self.row_count}")
        return rows

    def _find(self, key: Key) -> tuple[int, bool]:
        """The number of the key or, where it is not there, of the next greater one."""
        try:
            chunk = self._last_not_above(key, self._chunk_count, lambda at: self._chunk(at)[0])
            if chunk < 0:
                return 0, False
            first, code, values, size, bytes_1, bytes_2 = self._chunk(chunk)
            if first == key:
                return code, True
            at = self._last_not_above(key, size, lambda at: self._value(values, at, bytes_1, bytes_2))
            if at < 0:
                return code + 1, False
            is_there = self._value(values, at, bytes_1, bytes_2) == key
        except UNREADABLE as error:
            raise self._damaged(error) from error
        return code + 1 + at + (not is_there), is_there

    @staticmethod
    def _last_not_above(key: Key, count: int, key_at: Any) -> int:
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if key_at(middle) <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _chunk(self, number: int) -> tuple[Key, int, int, int, int, int]:
        """First key, its number, and of the others: where they begin, how many, and the two lengths."""
        start = self._chunks_start + int(self._chunk_offsets[number])
        _check_version(self._data[start])
        key, position = read_key(self._form, self._data, start + 1)
        code, offset, size, bytes_1, bytes_2 = _CHUNK_TAIL.unpack_from(self._data, position)
        return key, code, self._values_start + offset, size, bytes_1, bytes_2

    def _value(self, start: int, number: int, bytes_1: int, bytes_2: int) -> Key:
        if self._form.is_bytes:
            (offset,) = I32.unpack_from(self._data, start + I32.size * number)
            return read_key(self._form, self._data, start + bytes_1 + offset)[0]
        return read_key(self._form, self._data, start + bytes_2 * number)[0]

    def _damaged(self, why: object) -> CorruptDataError:
        return CorruptDataError(f"the range-bitmap index ({len(self._data)} bytes) cannot be read: {why}")


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}; known is {VERSION}")
