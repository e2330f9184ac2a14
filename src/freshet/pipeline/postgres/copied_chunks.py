"""How far the copy of a table is, and which changes the rows that it brought have already.

The keys of a table are cut into ranges, in the order of its key. Each chunk is read in one snapshot, and is in the
checkpoint with its range and the text of that snapshot. Changes come beside the chunks, and are read no further than
to the first transaction that the snapshot of the newest chunk does not hold:

| a change of a key | is |
|---|---|
| in a chunk whose snapshot holds its transaction | dropped: the row has it |
| in a chunk whose snapshot does not | applied |
| that no chunk has brought yet | dropped: the snapshot of a chunk that comes holds it |

A snapshot that holds a transaction once holds it for ever, and so does every later one. The commit that hangs (a
synchronous standby is away) is the case for which the stream waits: it is in the log, and snapshots do not hold it,
until it is let go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
