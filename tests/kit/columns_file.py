"""Arrow tables as plain buffers in a file, the way the judge's child process reads and writes them.

    one line of JSON {"rows": n, "buffers": [length or -1 where there is none, …]}, then the buffers one after another

First one byte a row with its kind (0 +I, 1 -U, 2 +U, 3 -D), then the columns' Arrow buffers depth first, as
`pa.Array.buffers()` lists them. Nothing is converted on either side, so nothing can be rounded or cut on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

ROW_KINDS = ("+I", "-U", "+U", "-D")


def write_columns(path: Path, table: pa.Table, kinds: np.ndarray | None = None) -> None:
    """Writes a table; `kinds` are row kind bytes, +I for every row by default."""
    if kinds is None:
        kinds = np.zeros(table.num_rows, dtype=np.int8)
    buffers: list[pa.Buffer | None] = [pa.py_buffer(kinds.astype(np.int8).tobytes())]
    for column in _without_offsets(table).columns:
        buffers.extend(column.buffers())
    lengths = [-1 if buffer is None else buffer.size for buffer in buffers]
    with path.open("wb") as out:
        out.write(orjson.dumps({"rows": table.num_rows, "buffers": lengths}) + b"\n")
        for buffer in buffers:
            if buffer is not None:
                out.write(buffer)


def read_columns(path: Path, schema: pa.Schema) -> tuple[pa.Table, np.ndarray]:
    """The table in a file, and its row kind bytes."""
    with path.open("rb") as source:
        header = orjson.loads(source.readline())
        buffers = iter([None if size < 0 else pa.py_buffer(source.read(size)) for size in header["buffers"]])
    kinds = np.frombuffer(next(buffers), dtype=np.int8)
    rows = header["rows"]
    arrays = [_array(field.type, rows, buffers) for field in schema]
    table = pa.Table.from_arrays(arrays, schema=schema) if arrays else pa.table({}).slice(0, rows)
    table.validate(full=True)
    return table, kinds


def _array(of: pa.DataType, length: int, buffers: Iterator[pa.Buffer | None]) -> pa.Array:
    validity = next(buffers)
    if pa.types.is_struct(of):
        children = [_array(of.field(index).type, length, buffers) for index in range(of.num_fields)]
        return pa.Array.from_buffers(of, length, [validity], children=children)
    if pa.types.is_list(of):
        offsets = next(buffers)
        child = _array(of.value_type, _last_offset(offsets, length), buffers)
        return pa.Array.from_buffers(of, length, [validity, offsets], children=[child])
    if pa.types.is_map(of):
        offsets = next(buffers)
        entries = _array(pa.struct([of.key_field, of.item_field]), _last_offset(offsets, length), buffers)
        return pa.Array.from_buffers(of, length, [validity, offsets], children=[entries])
    variable = pa.types.is_string(of) or pa.types.is_binary(of)
    return pa.Array.from_buffers(of, length, [validity, *(next(buffers) for _ in range(2 if variable else 1))])


def _last_offset(offsets: pa.Buffer | None, length: int) -> int:
    assert offsets is not None
    return int(np.frombuffer(offsets, dtype=np.int32)[length])


def _without_offsets(table: pa.Table) -> pa.RecordBatch:
    """One record batch whose arrays start at 0: a trip through Arrow's stream format cuts slices to size."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_batch(batches[0])
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()
