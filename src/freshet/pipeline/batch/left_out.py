"""Columns that a table has, that the pipeline file leaves out, and of whose name records carry a field.

The column was added for that field, with `freshet alter`, and the file does not name it: it is NULL in all rows of the
pipeline. That is known because decoders count unknown fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet.pipeline.decode.careful import UNKNOWN_NOTE, shown_name
from freshet.storage.model.schema import TableSchema


def left_out_columns(table: TableSchema, decoded: TableSchema) -> tuple[str, ...]:
    """Columns of the table that records were not decoded for."""
    return tuple(name for name in table.column_names if name not in decoded.by_name)


def carried_columns(columns: Sequence[str], notes: Mapping[str, int]) -> tuple[str, ...]:
    """Those of the columns whose name a field of some record has, by the notes of the decoder."""
    return tuple(name for name in columns if UNKNOWN_NOTE + shown_name(name) in notes)


def left_out_text(column: str) -> str:
    """What is wrong, and what to add to the pipeline file."""
    return (
        f"records carry a field {column}, and the table has a column of that name, which this pipeline file leaves "
        f"out: it is NULL in the rows of this pipeline. {remedy_text(column)} Rows that are written already stay NULL"
    )


def remedy_text(column: str, written_type: str = "<its type>") -> str:
    """What to add to a pipeline file, so that it fills a column."""
    return (
        f"Add {column}: {written_type} to table.columns of the file, {column}: <field> to `select` of the source if it "
        "has one, and start it again."
    )
