"""Rows whose large values (TOAST) neither a chunk nor the change has, read again by their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
import pyarrow as pa

from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_chunks import Bound
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.row_texts import NOT_SENT, row_at
from freshet.pipeline.postgres.table_form import TableForm
from freshet.pipeline.postgres.wire import NULL, TEXT

_WAITS: Final = b"SET LOCAL lock_timeout = '5s'"


class LostRowError(Exception):
    """A row that was not found again."""


def rows_again(
    session: psycopg.Connection[Any],
    table: CopiedTable,
    form: TableForm,
    data: bytes,
    positions: Sequence[int],
    keys: Sequence[Bound],
) -> list[bytes]:
    """The rows at some positions of messages, with the values that were not sent as the table has them now. Raises
    `LostRowError` where a row is not there any more, or its table has not these columns."""
    with session.transaction():
        session.execute(_WAITS)  # for who alters the table, and may wait for a snapshot of this batch
        found = pa.concat_tables([*ChunkReader(session, table).rows_of(keys), _none(table)]).to_pylist()
    now = {tuple(str(row[str(place)]) for place in table.key): row for row in found}
    named = {column.name: str(place) for place, column in enumerate(table.columns)}
    rows = []
    for position, key in zip(positions, keys, strict=True):
        row, again = row_at(data, position), now.get(key)
        parts = [len(row).to_bytes(2, "big")]
        for place, column in enumerate(form.relation.columns):
            value = row[place]
            if value is NOT_SENT:
                if column.name not in named:
                    raise LostRowError(f"its column {column.name} is not there any more")
                if again is None:
                    raise LostRowError(f"its row of the key {', '.join(key)} is not there any more")
                text = again[named[column.name]]
                value = None if text is None else text.encode()
            parts.append(bytes([NULL]) if value is None else _sent(value))
        rows.append(b"".join(parts))
    return rows


def _sent(value: object) -> bytes:
    assert isinstance(value, bytes)
    return bytes([TEXT]) + len(value).to_bytes(4, "big") + value


def _none(table: CopiedTable) -> pa.Table:
    return pa.schema([(str(place), pa.string()) for place in range(len(table.columns))]).empty_table()
