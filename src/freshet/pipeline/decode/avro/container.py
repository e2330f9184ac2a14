"""Datums of one schema as columns of Arrow: an object container is made around them in memory and given to arrow-avro.

    header with the physical schema │ count, size │ datum, mark │ datum, mark │ … │ sync

A container does not say where a datum ends. So each is read as the first field of a record whose second one is a mark
of eight bytes, drawn when the process starts: a datum that is too short or too long for its schema leaves no mark
where one must be, and no part of its neighbours is taken for its own. The block claims one datum more than it has,
and one batch of as many as it has is read: arrow-avro does not return from a block that has octets behind its last
datum.

arrow-avro (Apache Arrow's own reader, in Rust) comes with polars-avro; its batches are taken as they are, without a
frame of polars around them, which would cost as much again.

Measured, envelopes of `bench.avro_records` (290 bytes, one core), per datum: 1.0 µs so, of which 0.15 make the
container. fastavro takes 14 µs, one by one or of a container, cavro 5.8 µs, both into Python's objects. pyruhvro
takes 1.1 µs, but panics where a schema has bytes, so no decimals. avro-to-arrow takes what fastavro has decoded.
DataFusion has the same reader, and takes files alone; polars' own refuses a record that is used twice, which an
envelope's is.
"""

from __future__ import annotations

import json
import os
from io import BytesIO
from types import TracebackType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from polars_avro import AvroError, AvroSpecError
from polars_avro._avro_rs import AvroSource

from freshet.pipeline.decode.avro.writer_schema import WriterSchema

_MARK_BYTES: Final = 8
_MARK: Final = os.urandom(_MARK_BYTES)
_SYNC: Final = os.urandom(16)
_UNREAD: Final = (AvroError, AvroSpecError, StopIteration, ValueError, OSError)


class DatumColumns:
    """Reads datums of one schema."""

    def __init__(self, schema: WriterSchema) -> None:
        members = [
            {"name": "datum", "type": schema.physical},
            {"name": "mark", "type": {"type": "fixed", "name": "mark", "size": _MARK_BYTES}},
        ]
        text = json.dumps({"type": "record", "name": "marked", "fields": members})
        header = {b"avro.schema": text.encode(), b"avro.codec": b"null"}
        pairs = b"".join(_bytes(key) + _bytes(value) for key, value in header.items())
        self._header = b"Obj\x01" + _long(len(header)) + pairs + _long(0) + _SYNC

    def read(self, datums: Any) -> Any | None:
        """A column of what a binary array of datums holds; None where one of them is no datum of the schema."""
        count = len(datums)
        marked = pc.binary_join_element_wise(datums, pa.scalar(_MARK, datums.type), pa.scalar(b"", datums.type))
        _, offsets, octets = marked.buffers()
        first, last = np.frombuffer(offsets, np.int32)[[marked.offset, marked.offset + count]].tolist()
        body = memoryview(octets)[first:last]
        block = _long(count + 1) + _long(len(body))
        source = _Stream(BytesIO(b"".join([self._header, block, body, _SYNC])))
        try:
            # Both are kept until here: what is freed while an error is raised hides the error.
            reader = AvroSource([source.opened], False, False)
            batches = reader.batch_iter(count, None)
            batch = pa.record_batch(next(batches))
        except _UNREAD:
            return None
        if batch.num_rows != count:
            return None
        datum, marks = batch.columns
        found = np.frombuffer(marks.buffers()[1], f"V{_MARK_BYTES}")[marks.offset : marks.offset + count]
        return datum if (found == np.frombuffer(_MARK, f"V{_MARK_BYTES}")).all() else None


class _Stream:
    """A buffer as the reader opens it; it does so once for each scan."""

    def __init__(self, buffer: BytesIO) -> None:
        self._buffer = buffer

    def opened(self) -> _Stream:
        """Itself: the reader enters what it has opened."""
        return self

    def __enter__(self) -> BytesIO:
        self._buffer.seek(0)
        return self._buffer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _long(number: int) -> bytes:
    """A whole number that is not negative, as Avro writes it."""
    left, octets = number << 1, bytearray()
    while left > 127:
        octets.append(left & 127 | 128)
        left >>= 7
    octets.append(left)
    return bytes(octets)
