"""How far the copy of a database is: a part of the offset of its source.

    {"tables": [["public", "orders"], …], "progress": {"public.orders": {"chunks": […], …}}, "until": "0/16B3748"}

A stream begins where its slot does, which is before the first chunk; so it brings changes that chunks have already.
Which ones their snapshots say, up to `until`: whatever a snapshot of a chunk holds lies before it in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freshet.pipeline.postgres.copied_chunks import Chunk, CopyProgress
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.transactions import TransactionSnapshot

TableName = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True)
class CopyState:
    """The tables that are copied, in this order; see the module."""

    tables: tuple[TableName, ...]
    progress: Mapping[TableName, CopyProgress] = field(default_factory=dict)
    until: int | None = None

    @property
    def left(self) -> tuple[TableName, ...]:
        """The tables of which something is still to come."""
        return tuple(each for each in self.tables if not self.of(each).is_whole)

    @property
    def is_whole(self) -> bool:
        """Whether all is copied."""
        return not self.left

    @property
    def is_begun_anew(self) -> bool:
        """Whether nothing of it has been planned: a batch ends so where a resync takes the rows away."""
        return bool(self.tables) and not self.progress

    def of(self, table: TableName) -> CopyProgress:
        """How far a table is."""
        return self.progress.get(table, CopyProgress())

    def with_chunk(self, table: TableName, chunk: Chunk) -> CopyState:
        """The same with the next chunk of a table."""
        return replace(self, progress={**self.progress, table: self.of(table).with_chunk(chunk)})

    def since(self, before: CopyState) -> dict[TableName, tuple[Chunk, ...]]:
        """The chunks that an earlier state does not have."""
        found = {table: self.of(table).chunks[len(before.of(table).chunks) :] for table in self.tables}
        return {table: chunks for table, chunks in found.items() if chunks}

    def read_in(self, snapshots: Mapping[TableName, TransactionSnapshot], before: CopyState) -> CopyState:
        """The same where the chunks of these tables since an earlier state were read in other snapshots."""
        progress = dict(self.progress)
        for table, snapshot in snapshots.items():
            known = len(before.of(table).chunks)
            chunks = self.of(table).chunks
            moved = tuple(replace(each, snapshot=snapshot) for each in chunks[known:])
            progress[table] = replace(self.of(table), chunks=(*chunks[:known], *moved))
        return replace(self, progress=progress)

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {
            "tables": self.tables,
            "progress": [[*table, each.to_document()] for table, each in self.progress.items()],
            "until": None if self.until is None else lsn_text(self.until),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> CopyState:
        """The inverse of `to_document`."""
        until = document["until"]
        return cls(
            tuple((schema, name) for schema, name in document["tables"]),
            {(schema, name): CopyProgress.of(each) for schema, name, each in document["progress"]},
            None if until is None else lsn_of(until),
        )
