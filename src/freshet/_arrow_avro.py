"""Avro records as columns of Arrow: an object container of one block is made around them in memory, for arrow-avro.

    header with the schema │ count, size │ record │ record │ … │ sync

A container does not say where a record ends, and of damaged ones arrow-avro does not return where octets are left
behind the last. So the block claims one record more than it has, and one batch of as many as it has is read; whoever
has to know that no octet is left puts a mark of his own behind the records, or behind each.

arrow-avro (Apache Arrow's own reader, in Rust) comes with polars-avro, of the extra `avro`; its batches are taken as
they are, without a frame of polars around them, which would cost as much again. The schema must use no record twice, as
polars' own reader asks too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from io import BytesIO
from types import TracebackType
from typing import Final

import pyarrow as pa
from polars_avro import AvroError, AvroSpecError
from polars_avro._avro_rs import AvroSource

AvroSchema = dict[str, object]
"""A record, as JSON has it."""

_SYNC: Final = os.urandom(16)
_UNREAD: Final = (AvroError, AvroSpecError, StopIteration, ValueError, OSError)


class ArrowAvro:
    """Reads records of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        properties = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": b"null"}
        pairs = b"".join(_sized(key) + _sized(value) for key, value in properties.items())
        self._header = b"Obj\x01" + _long(len(properties)) + pairs + _long(0) + _SYNC

    def read(self, records: Sequence[bytes | memoryview], count: int) -> pa.RecordBatch | None:
        """The first `count` records of these bytes; None where they are not there."""
        size = sum(map(len, records))
        block = _long(count + 1) + _long(size)
        source = _Stream(BytesIO(b"".join([self._header, block, *records, _SYNC])))
        try:
            # Both are kept until here: what is freed while an error is raised hides the error.
            reader = AvroSource([source.opened], False, False)
            batches = reader.batch_iter(count, None)
            batch = pa.record_batch(next(batches))
        except _UNREAD:
            return None
        return batch if batch.num_rows == count else None


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


def _sized(octets: bytes) -> bytes:
    return _long(len(octets)) + octets


def _long(number: int) -> bytes:
    """A whole number that is not negative, as Avro writes it."""
    left, octets = number << 1, bytearray()
    while left > 127:
        octets.append(left & 127 | 128)
        left >>= 7
    octets.append(left)
    return bytes(octets)
