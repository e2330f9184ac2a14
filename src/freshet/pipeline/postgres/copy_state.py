"""How far the copy of a database is, and which changes the rows that it brought have already: a part of the offset of
its source.

    {"tables": [["public", "orders"], …], "progress": [["public", "orders", {"chunks": […], …}], …]}

The keys of a table are cut into ranges, in the order of its key. Each chunk is read in one snapshot, and is in the
checkpoint with its range and the text of that snapshot. Changes come beside the chunks, and are read no further than
to the first transaction that the snapshot of the newest chunk does not hold:

| a change of a key | is |
|---|---|
| in a chunk whose snapshot holds its transaction | dropped: the row has it |
| in a chunk whose snapshot does not | applied |
| that no chunk has brought yet | dropped: the snapshot of a chunk that comes holds it |

A snapshot that holds a transaction once holds it for ever, and so does every later one. Whatever a snapshot of a chunk
holds lies before `until` in the log. The commit that hangs (a synchronous standby is away) is the case for which the
stream waits: it is in the log, and snapshots do not hold it, until it is let go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshet._frozen import Frozen
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text
from freshet.pipeline.postgres.transactions import Ids, TransactionSnapshot

Bound = tuple[str, ...]
"""The texts of the columns of a key; of a table without one, a page."""
Places = npt.NDArray[np.int64]
"""The number of the chunk that a key belongs to; that of no chunk: what is not copied yet."""
TableName = tuple[str, str]
"""Schema and table."""


class Chunk(Frozen):
    """The rows whose key is above `after` (None: from the first on) and not above `until` (None: to the last), as
    `snapshot` has them. All that it holds lies before `lsn` in the log."""

    after: Bound | None
    until: Bound | None
    snapshot: TransactionSnapshot
    lsn: int = 0

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {"after": self.after, "until": self.until, "snapshot": str(self.snapshot), "lsn": lsn_text(self.lsn)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Chunk:
        """The inverse of `to_document`."""
        after, until = (None if each is None else tuple(each) for each in (document["after"], document["until"]))
        return cls(after, until, TransactionSnapshot.parse(document["snapshot"]), lsn_of(document["lsn"]))


class CopyProgress(Frozen):
    """The chunks of a table that are in the lake, in the order of their keys without a gap. The first one stands for
    `merged` others too. `key` says what the key was when the copy began (`CopiedTable.key_text`)."""

    chunks: tuple[Chunk, ...] = ()
    merged: int = 0
    key: str = ""

    @property
    def count(self) -> int:
        """How many chunks there were."""
        return self.merged + len(self.chunks)

    @property
    def is_whole(self) -> bool:
        """Whether all of the table is copied."""
        return bool(self.chunks) and self.chunks[-1].until is None

    @property
    def after(self) -> Bound | None:
        """Where the next chunk begins; None: with the first row."""
        return self.chunks[-1].until if self.chunks else None

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The last keys of the chunks, without that of the last chunk of all."""
        return tuple(each.until for each in self.chunks if each.until is not None)

    def with_chunk(self, chunk: Chunk) -> CopyProgress:
        """The same with the chunk that comes next. Raises `ValueError` for any other."""
        if self.is_whole or chunk.after != self.after:
            raise ValueError(f"the next chunk begins after {self.after}, and this one after {chunk.after}")
        return replace(self, chunks=(*self.chunks, chunk))

    def first(self, count: int) -> CopyProgress:
        """The same when there were so many chunks, at least those that are one now."""
        return replace(self, chunks=self.chunks[: count - self.merged], merged=self.merged if count else 0)

    def since(self, count: int) -> tuple[Chunk, ...]:
        """The chunks that have come since there were so many."""
        return self.chunks[count - self.merged :]

    def passed(self, lsn: int) -> CopyProgress:
        """The same where the stream is at a position: the first chunks that can hold nothing behind it are one."""
        passed = next((place for place, each in enumerate(self.chunks) if each.lsn > lsn), len(self.chunks))
        if passed < 2:
            return self
        last = self.chunks[passed - 1]
        one = Chunk(None, last.until, last.snapshot, max(each.lsn for each in self.chunks[:passed]))
        return replace(self, chunks=(one, *self.chunks[passed:]), merged=self.merged + passed - 1)

    def counting(self, places: Places, transactions: Ids, lsns: Places) -> Mask:
        """Which of some changes count, by the places of their keys, the ids of their transactions and where these were
        committed; the others are dropped."""
        counts = np.zeros(len(places), bool)
        order = np.argsort(places, kind="stable")
        numbers, starts = np.unique(places[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            if number < len(self.chunks):
                chunk = self.chunks[number]
                counts[rows] = (lsns[rows] >= chunk.lsn) | ~chunk.snapshot.holds(transactions[rows])
        return counts

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {"chunks": [each.to_document() for each in self.chunks], "merged": self.merged, "key": self.key}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CopyProgress:
        """The inverse of `to_document`."""
        return cls(tuple(map(Chunk.of, document["chunks"])), document["merged"], document.get("key", ""))


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
