"""How far the copy of a table is, and which changes the rows that it brought have already.

The keys of a table are cut into ranges, in the order of its key. Each chunk is read in one snapshot, and is in the
checkpoint with its range and the text of that snapshot.

| a change of a key | is |
|---|---|
| in a chunk whose snapshot holds its transaction | dropped: the row has it |
| in a chunk whose snapshot does not | applied |
| that no chunk has brought yet | dropped, and its transaction noted: the chunk's snapshot has to hold it |

A snapshot that holds a transaction once holds it for ever, so what is noted is forgotten as soon as one has it. The
commit that hangs (a synchronous standby is away) is the case for which it is noted at all: the stream has it, and
snapshots do not, until it is let go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from freshet._frozen import Frozen
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.postgres.transactions import Ids, TransactionSnapshot

Bound = tuple[str, ...]
"""The texts of the columns of a key."""
Places = npt.NDArray[np.int64]
"""The number of the chunk that a key belongs to; that of no chunk: what is not copied yet."""


class Chunk(Frozen):
    """The rows whose key is above `after` (None: from the first on) and not above `until` (None: to the last), as
    `snapshot` has them."""

    after: Bound | None
    until: Bound | None
    snapshot: TransactionSnapshot

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {"after": self.after, "until": self.until, "snapshot": str(self.snapshot)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Chunk:
        """The inverse of `to_document`."""
        after, until = (None if each is None else tuple(each) for each in (document["after"], document["until"]))
        return cls(after, until, TransactionSnapshot.parse(document["snapshot"]))


class CopyProgress(Frozen):
    """The chunks of a table that are in the lake, in the order of their keys without a gap, and the transactions that
    the next one has to hold."""

    chunks: tuple[Chunk, ...] = ()
    awaited: tuple[int, ...] = ()

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
        """The same with the chunk that comes next. Raises `ValueError` for any other, and for a chunk whose snapshot
        lacks a transaction that is awaited: its changes are lost."""
        if self.is_whole or chunk.after != self.after:
            raise ValueError(f"the next chunk begins after {self.after}, and this one after {chunk.after}")
        if not self.may_be_read_in(chunk.snapshot):
            raise ValueError(f"snapshot {chunk.snapshot} does not hold {self.awaited}, whose changes were dropped")
        awaited = () if chunk.until is None else self.awaited
        return CopyProgress((*self.chunks, chunk), awaited)

    def may_be_read_in(self, snapshot: TransactionSnapshot) -> bool:
        """Whether the next chunk may be read in this snapshot; another one has to be taken, later, where it may not."""
        return bool(snapshot.holds(np.array(self.awaited, np.int64)).all())

    def applied(self, places: Places, transactions: Ids) -> tuple[Mask, CopyProgress]:
        """Which of some changes count, by the places of their keys and their transactions' ids; the others are
        dropped. The progress has noted what the next chunk has to hold."""
        counts = np.zeros(len(places), bool)
        order = np.argsort(places, kind="stable")
        numbers, starts = np.unique(places[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
            if number < len(self.chunks):
                counts[rows] = ~self.chunks[number].snapshot.holds(transactions[rows])
        noted = np.unique(transactions[places >= len(self.chunks)]).tolist()
        return counts, replace(self, awaited=tuple(sorted({*self.awaited, *noted}))) if noted else self

    def seen(self, snapshot: TransactionSnapshot) -> CopyProgress:
        """The same without the transactions that a snapshot holds. Only where no chunk is to come that was read in an
        earlier one: every later one holds them too."""
        awaited = np.array(self.awaited, np.int64)
        return replace(self, awaited=tuple(awaited[~snapshot.holds(awaited)].tolist()))

    def to_document(self) -> dict[str, Any]:
        """The form that JSON takes."""
        return {"chunks": [each.to_document() for each in self.chunks], "awaited": self.awaited}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CopyProgress:
        """The inverse of `to_document`."""
        return cls(tuple(map(Chunk.of, document["chunks"])), tuple(document["awaited"]))
