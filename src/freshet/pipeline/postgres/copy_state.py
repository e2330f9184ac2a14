"""How far the copy of a database is: a part of the offset of its source.

    {"tables": [["public", "orders"], …], "progress": [["public", "orders", {"chunks": […], …}], …]}

A stream brings changes that chunks have already. Which ones their snapshots say, up to `until`: whatever a snapshot of
a chunk holds lies before it in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freshet.pipeline.postgres.copied_chunks import Chunk, CopyProgress

TableName = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True)
class CopyState:
    """The tables that are copied, in this order; see the module."""

    tables: tuple[TableName, ...]
    progress: Mapping[TableName, CopyProgress] = field(default_factory=dict)

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

    @property
    def until(self) -> int | None:
        """The position behind which no chunk holds anything; None where chunks are still to come."""
        lsns = [chunk.lsn for each in self.progress.values() for chunk in each.chunks]
        return max(lsns, default=0) if self.is_whole else None

    def of(self, table: TableName) -> CopyProgress:
        """How far a table is."""
        return self.progress.get(table, CopyProgress())

    def with_tables(self, tables: tuple[TableName, ...]) -> CopyState:
        """The same with more tables to copy."""
        return replace(self, tables=(*self.tables, *tables))

    def without(self, tables: Collection[TableName]) -> CopyState:
        """The same where these are not copied, or not any further."""
        progress = {table: each for table, each in self.progress.items() if table not in tables}
        return replace(self, tables=tuple(each for each in self.tables if each not in tables), progress=progress)

    def with_chunk(self, table: TableName, chunk: Chunk, key: str = "") -> CopyState:
        """The same with the next chunk of a table that has this key."""
        progress = replace(self.of(table).with_chunk(chunk), key=key)
        return replace(self, progress={**self.progress, table: progress})

    def since(self, before: CopyState | None) -> dict[TableName, tuple[Chunk, ...]]:
        """The chunks that an earlier state does not have."""
        found = {table: self.of(table).since(0 if before is None else before.of(table).count) for table in self.tables}
        return {table: chunks for table, chunks in found.items() if chunks}

    def at(self, before: CopyState | None) -> CopyState:
        """The same tables, with the chunks that an earlier state had."""
        counts = {table: 0 if before is None else before.of(table).count for table in self.tables}
        return replace(self, progress={table: self.of(table).first(count) for table, count in counts.items()})

    def passed(self, lsn: int) -> CopyState:
        """The same where the stream is at a position (`CopyProgress.passed`)."""
        return replace(self, progress={table: each.passed(lsn) for table, each in self.progress.items()})

    def read_in(self, table: TableName, count: int, read: Chunk) -> CopyState:
        """The same where the chunks of a table since there were so many were read in another snapshot, that of
        `read`."""
        progress = self.of(table)
        moved = (replace(each, snapshot=read.snapshot, lsn=read.lsn) for each in progress.since(count))
        chunks = (*progress.first(count).chunks, *moved)
        return replace(self, progress={**self.progress, table: replace(progress, chunks=chunks)})

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {
            "tables": self.tables,
            "progress": [[*table, each.to_document()] for table, each in self.progress.items()],
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> CopyState:
        """The inverse of `to_document`."""
        return cls(
            tuple((schema, name) for schema, name in document["tables"]),
            {(schema, name): CopyProgress.of(each) for schema, name, each in document["progress"]},
        )
