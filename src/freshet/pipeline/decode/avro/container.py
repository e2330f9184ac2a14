"""Datums of one schema as columns of Arrow.

A datum does not say where it ends. So each is read as the first field of a record whose second one is a mark of eight
bytes, drawn when the process starts: a datum that is too short or too long for its schema leaves no mark where one must
be, and no part of its neighbours is taken for its own.

Measured, envelopes of `bench.avro_records` (290 bytes, one core), per datum: 1.0 µs so, of which 0.15 make the
container. fastavro takes 14 µs, one by one or of a container, cavro 5.8 µs, both into Python's objects. pyruhvro
takes 1.1 µs, but panics where a schema has bytes, so no decimals. avro-to-arrow takes what fastavro has decoded.
DataFusion has the same reader, and takes files alone.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._arrow_avro import ArrowAvro
from freshet.pipeline.decode.avro.writer_schema import WriterSchema

_MARK_BYTES: Final = 8
_MARK: Final = os.urandom(_MARK_BYTES)


class DatumColumns:
    """Reads datums of one schema."""

    def __init__(self, schema: WriterSchema) -> None:
        members = [
            {"name": "datum", "type": schema.physical},
            {"name": "mark", "type": {"type": "fixed", "name": "mark", "size": _MARK_BYTES}},
        ]
        self._records = ArrowAvro({"type": "record", "name": "marked", "fields": members})

    def read(self, datums: pa.Array) -> pa.Array | None:
        """A column of what a binary array of datums holds; None where one of them is no datum of the schema."""
        count = len(datums)
        marked = pc.binary_join_element_wise(datums, pa.scalar(_MARK, datums.type), pa.scalar(b"", datums.type))
        _, offsets, octets = marked.buffers()
        first, last = np.frombuffer(offsets, np.int32)[[marked.offset, marked.offset + count]].tolist()
        batch = self._records.read([memoryview(octets)[first:last]], count)
        if batch is None:
            return None
        datum, marks = batch.columns
        found = np.frombuffer(marks.buffers()[1], f"V{_MARK_BYTES}")[marks.offset : marks.offset + count]
        return datum if (found == np.frombuffer(_MARK, f"V{_MARK_BYTES}")).all() else None
