"""Fields that records carry and that do not reach a column of (nearly) their name. Decoders count them by name.

| the table has | why the field is not read |
|---|---|
| a column of that name | it was added for the field, by ALTER TABLE, and the pipeline file does not name it |
| a column whose name differs in the case of its letters alone | a table has one of the two |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshet.pipeline.decode.careful import UNKNOWN_NOTE, shown_name
from freshet.storage.model.schema import TableSchema


def unread_columns(table: TableSchema, decoded: TableSchema) -> tuple[str, ...]:
    """Columns of the table that records were not decoded for."""
    return tuple(name for name in table.column_names if name not in decoded.by_name)


def carried_columns(columns: Sequence[str], notes: Mapping[str, int]) -> tuple[str, ...]:
    """The columns whose name a field of some record has, by the notes of the decoder."""
    return tuple(name for name in columns if UNKNOWN_NOTE + shown_name(name) in notes)


def case_variants(columns: Sequence[str], notes: Mapping[str, int]) -> dict[str, str]:
    """Fields of the notes whose name, but for the case of its letters, is that of a column; with the column."""
    spelled = {shown_name(name).lower(): name for name in columns}
    fields = (note.removeprefix(UNKNOWN_NOTE) for note in notes if note.startswith(UNKNOWN_NOTE))
    found = {name: spelled.get(name.lower()) for name in fields}
    return {name: column for name, column in found.items() if column is not None and shown_name(column) != name}


def case_variant_text(table: str, name: str, column: str) -> str:
    """Why the field is not read, and what to do."""
    return (
        f"field {name!r} cannot be a column of {table} beside {column}: they differ in upper and lower case only. It "
        f"is counted as unknown and left out. If it is meant for that column, rename it at the source, or read it with "
        f"on_unknown_field: ignore and `select` ({column}: {name})"
    )


def unread_column_text(column: str) -> str:
    """What is wrong, and what to add to the pipeline file."""
    return (
        f"records carry a field {column}, and the table has a column of that name, which this pipeline file leaves "
        f"out: it is NULL in the rows of this pipeline. {remedy_text(column)} Rows that are written already stay NULL"
    )


def remedy_text(column: str) -> str:
    """What to add to a pipeline file, so that it fills a column."""
    return (
        f"Add {column}: <its type> to table.columns of the file, {column}: <field> to `select` of the source if it "
        "has one, and start it again."
    )
