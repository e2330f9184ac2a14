"""Rows as one value each, encoded and decoded column by column.

    row number         UINT64 LE, its position in the data file
    for each column    a byte, 1 unless NULL; then a value of fixed width, or the length of its part, UINT32 LE
    parts              of the other columns, one after the other

A part has, for the values of its column in the row, and so on for the children: a byte each for NULL; numbers in their
width; lengths as UINT32 LE, then text or the elements; the fields of a ROW one after the other. The columns of a row
are not in it: the store knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from freshet._frozen import Frozen
from freshet.storage.lookup.lookup_store import BrokenStoreError
from freshet.storage.merge.sort_words import Positions
from freshet.storage.model.nested_arrays import Nested, assembled, child_fields
from freshet.storage.model.value_bits import bitmap, text_parts, valid_flags

Bytes = npt.NDArray[np.uint8]

_NUMBER_BYTES: Final = 8
_LENGTH_BYTES: Final = 4


def encode_rows(rows: pa.RecordBatch, first_row: int) -> pa.Array[Any]:
    """One LARGE_BINARY for each row."""
    count = rows.num_rows
    everywhere = np.arange(count + 1, dtype=np.int64)
    header = [_matrix(np.arange(first_row, first_row + count, dtype=np.uint64), count)]
    parts: list[pa.Array[Any]] = []
    for array in rows.columns:
        header.append(_matrix(_valid(array), count))
        width = _width(array.type)
        if width is not None:
            header.append(_matrix(_fixed_bytes(array), count))
            continue
        sections = _sections(array, everywhere)
        lengths = sum((np.diff(offsets) for _, offsets in sections), np.zeros(count, np.int64))
        header.append(_matrix(lengths.astype(np.uint32), count))
        parts += [_binary(data, offsets) for data, offsets in sections]
    fixed = np.ascontiguousarray(np.hstack(header))
    values = [_binary(fixed.reshape(-1), everywhere * fixed.shape[1]), *parts]
    return pc.binary_join_element_wise(*values, pa.scalar(b"", pa.large_binary())) if parts else values[0]


def decode_rows(values: pa.Array[Any], schema: pa.Schema, columns: Sequence[str]) -> tuple[pa.Table, Positions]:
    """These columns of rows of a schema, and the row numbers. Raises `BrokenStoreError`."""
    count = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + count + 1]
    data = values.buffers()[2]
    content = _Content(np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8), offsets[1:])
    starts = offsets[:-1].astype(np.int64)
    numbers = content.take(starts, np.full(count, _NUMBER_BYTES)).view(np.uint64).astype(np.int64)
    at = _NUMBER_BYTES
    part_starts = starts + _NUMBER_BYTES + sum(1 + (_width(field.type) or _LENGTH_BYTES) for field in schema)
    wanted = frozenset(columns)
    found: dict[str, pa.Array[Any]] = {}
    for field in schema:
        width = _width(field.type)
        if field.name in wanted:
            valid = content.take(starts + at, np.full(count, 1)).view(np.bool_)
            if width is not None:
                found[field.name] = _from_fixed(field.type, content.take(starts + at + 1, np.full(count, width)), valid)
        if width is None:
            lengths = content.take(starts + at + 1, np.full(count, _LENGTH_BYTES)).view(np.uint32).astype(np.int64)
            if field.name in wanted:
                found[field.name] = _Cursor(content, part_starts.copy()).array(field.type, np.ones(count, np.int64))
            part_starts = part_starts + lengths
        at += 1 + (width or _LENGTH_BYTES)
    picked = pa.schema([schema.field(name) for name in columns])
    return pa.table([found[name] for name in columns], schema=picked), numbers


class _Content(Frozen):
    """The bytes of all rows, and where each row ends."""

    data: Bytes
    ends: Positions

    def take(self, starts: Positions, lengths: Positions) -> Bytes:
        """What each row has from a position on, one after the other."""
        if len(starts) and ((starts < 0) | (lengths < 0) | (starts + lengths > self.ends)).any():
            raise BrokenStoreError("a row in it is too short")
        before = np.cumsum(lengths) - lengths
        return self.data[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))]


class _Cursor(Frozen):
    """Reads the parts of a column; `starts` moves on."""

    content: _Content
    starts: Positions

    def array(self, kind: pa.DataType, counts: Positions) -> pa.Array[Any]:
        """So many values of each row."""
        valid = self._next(counts).view(np.bool_)
        width = _width(kind)
        if width is not None:
            return _from_fixed(kind, self._next(counts * width), valid)
        if pt.is_struct(kind):
            children = [self.array(field.type, counts) for field in kind]
            return assembled(kind, len(valid), bitmap(valid), None, children)
        lengths = self._next(counts * _LENGTH_BYTES).view(np.uint32).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(lengths)])
        bounds = np.concatenate([[0], np.cumsum(counts)])
        of_rows = np.diff(sums[bounds])
        if int(sums[-1]) >= 1 << 31:
            raise BrokenStoreError("a column of the rows found is larger than 2 GB")
        offsets = sums.astype(np.int32)
        if not pt.is_nested(kind):
            buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(self._next(of_rows))]
            return pa.Array.from_buffers(kind, len(valid), buffers)
        children = [self.array(field.type, of_rows) for field in child_fields(kind)]
        return assembled(kind, len(valid), bitmap(valid), offsets, children)

    def _next(self, lengths: Positions) -> Bytes:
        taken = self.content.take(self.starts, lengths)
        self.starts[:] += lengths
        return taken


def _sections(array: pa.Array[Any], bounds: Positions) -> list[tuple[Bytes, Positions]]:
    """Bytes, and where those of each row begin, in the order of `_Cursor`; row i has values from bounds[i] on."""
    flags = (_valid(array), bounds)
    width = _width(array.type)
    if width is not None:
        return [flags, (_fixed_bytes(array), bounds * width)]
    if pt.is_string(array.type) or pt.is_binary(array.type):
        offsets, data = text_parts(array)
        first = offsets.astype(np.int64)
        if array.null_count and (np.diff(first)[~_valid(array).view(np.bool_)] != 0).any():
            return _sections(array.take(pa.array(np.arange(len(array)))), bounds)
        lengths = np.diff(first).astype(np.uint32).view(np.uint8)
        return [flags, (lengths, bounds * _LENGTH_BYTES), (data[first[0] : first[-1]], (first - first[0])[bounds])]
    nested = Nested.of(array)
    if nested.offsets is None:
        return [flags, *(section for child in nested.children for section in _sections(child, bounds))]
    lengths = np.diff(nested.offsets).astype(np.uint32).view(np.uint8)
    inner = nested.offsets.astype(np.int64)[bounds]
    below = [section for child in nested.children for section in _sections(child, inner)]
    return [flags, (lengths, bounds * _LENGTH_BYTES), *below]


def _width(kind: pa.DataType) -> int | None:
    if pt.is_boolean(kind):
        return 1
    return None if pt.is_nested(kind) or pt.is_string(kind) or pt.is_binary(kind) else kind.bit_width // 8


def _valid(array: pa.Array[Any]) -> Bytes:
    return valid_flags(array).astype(np.bool_).view(np.uint8)


def _fixed_bytes(array: pa.Array[Any]) -> Bytes:
    if pt.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if not len(array):
        return np.zeros(0, np.uint8)
    width, start = array.type.bit_width // 8, array.offset
    return np.frombuffer(array.buffers()[1], np.uint8)[start * width : (start + len(array)) * width]


def _from_fixed(kind: pa.DataType, data: Bytes, valid: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    if pt.is_boolean(kind):
        data = np.frombuffer(bitmap(data.view(np.bool_)), np.uint8)
    return pa.Array.from_buffers(kind, len(valid), [bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))])


def _matrix(values: npt.NDArray[Any], count: int) -> Bytes:
    data = np.ascontiguousarray(values).view(np.uint8)
    return data.reshape(count, len(data) // max(1, count))


def _binary(data: Bytes, offsets: Positions) -> pa.Array[Any]:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
