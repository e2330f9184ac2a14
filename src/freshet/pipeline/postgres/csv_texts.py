"""CSV of COPY as columns of texts: NULL is an empty field, and '' one in quotes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import csv

_BLOCK_BYTES: Final = 2**20
"""What the reader takes at a time: larger blocks leave the processor's cache."""


def csv_texts(lines: bytearray, columns: int) -> pa.Table:
    """The rows of some lines, whole ones, as string columns named by their places."""
    names = [str(index) for index in range(columns)]
    schema = pa.schema([(name, pa.string()) for name in names])
    if not lines:
        return schema.empty_table()
    try:
        return _read(lines, schema, _BLOCK_BYTES)
    except pa.ArrowInvalid:  # a row that is longer than a block
        return _read(lines, schema, len(lines) + 1)


def _read(lines: bytearray, schema: pa.Schema, block: int) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=block, column_names=schema.names),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    ).combine_chunks()
