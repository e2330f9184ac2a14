"""Rows of the log as readers get them: in the columns asked for, with pairs kept together.

A -U at the end of one range may have its +U at the beginning of the next: a filter looks at both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from freshet.logstore.reading.decide import RowRange
from freshet.logstore.reading.rows import LogRows
from freshet.storage.logs.readers import TableHistory
from freshet.storage.model.row_kind import RowKind


def projected_rows(
    rows: LogRows, history: TableHistory, ranges: Iterable[RowRange], snapshot_id: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges, one range after the other."""
    for schema_id, piece in _whole_pairs(rows, ranges):
        if piece.num_rows:
            projected = history.projected(schema_id, piece, snapshot_id)
            if projected.num_rows:
                yield projected


def _whole_pairs(rows: LogRows, ranges: Iterable[RowRange]) -> Iterator[tuple[int, pa.RecordBatch]]:
    held: tuple[int, pa.RecordBatch] | None = None
    for schema_id, piece in (piece for wanted in ranges for piece in rows.read(wanted)):
        if held is not None and held[0] == schema_id:
            [piece] = pa.Table.from_batches([held[1], piece]).combine_chunks().to_batches()
        elif held is not None:
            yield held
        held = None
        if piece.num_rows and piece.column(0)[-1].as_py() == RowKind.UPDATE_BEFORE:
            held = (schema_id, piece.slice(piece.num_rows - 1))
            piece = piece.slice(0, piece.num_rows - 1)
        yield schema_id, piece
    if held is not None:
        yield held
