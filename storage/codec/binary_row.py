"""The binary row: how keys, partitions and statistics are written in metadata, and what buckets are computed from.

One face for two workers: `binary_row_values` encodes and decodes one row of Python values (its docstring has the
layout), `binary_row_arrays` does Arrow columns.

Source: FORMAT.md §5.
"""

from __future__ import annotations

from freshet.storage.codec.binary_row_arrays import EncodedRows, distinct_rows, encode_rows, row_hashes
from freshet.storage.codec.binary_row_values import decode_row, encode_row, row_body

__all__ = ["EncodedRows", "decode_row", "distinct_rows", "encode_row", "encode_rows", "row_body", "row_hashes"]
