"""Batches of a table gathered into larger parts: joins, expressions, routing and files cost the same for few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

PART_ROWS: Final = 1_000_000
PART_BYTES: Final = 32 * 1024 * 1024


def in_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in their order, none of the parts empty."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PART_ROWS or size >= PART_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)
