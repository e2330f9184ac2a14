"""The batches of a query that reads the changes of a table: where each ends, and what lies in it; of either engine.

An offset is the document of a position in the stream; that of the first batch also says where it began:
Spark keeps the end of each batch, not the beginning of the first.

It asks a source for its first offset each time that it plans the first batch: for the end, for the partitions, and
again after a restart, when the table has newer snapshots. What is computed then is another position. So the first
offset has no position, the end of the first batch carries where the batch began, and the start that Spark gives is
ignored:

| start of a batch | its end in the checkpoint | it begins |
|---|---|---|
| `FIRST` | has `begin` | there |
| `FIRST` | has none: an earlier version planned it | at a position that is not known; refused |
| the end of the batch before, with or without `begin` | has none | at that end |

Only the first batch of a query starts at `FIRST`: it is never in a checkpoint. Source: Spark's `MicroBatchExecution`
(`initialOffset` in `getStartOffset` and in `runBatch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from freshet.pipeline.config.frame_options import PlannedStream
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.task.change_rows import kept_in_checkpoint
from freshet.storage.table_engine import StreamLimit

Offset = Mapping[str, Any]

FIRST: Final[Mapping[str, Any]] = {"first": True}
"""The first offset, as Spark gets it."""

BEGIN: Final = "begin"
"""Key in the end of a batch that began with the query: the position where it began."""


class ChangeBatches:
    """The batches of one stream."""

    def __init__(self, stream: PlannedStream, limit: StreamLimit) -> None:
        self.stream = stream
        self.limit = limit
        self._until: Any = None

    def bound(self) -> None:
        """Later commits are left to the next run."""
        self._until = self.stream.bound()

    def begin(self, start: Offset) -> Any:
        """The position at an offset, the first one among them."""
        return self.stream.first() if start == FIRST else self.stream.position(position_of(start))

    def latest(self, start: Offset, begin: Any, *, is_limited: bool = True) -> dict[str, Any]:
        """The end of the batch that comes after `start`, whose position is `begin`; `start` where nothing is new."""
        with kept_in_checkpoint():
            end = self.stream.advance(begin, self.limit if is_limited else StreamLimit(), self._until)
        return end_offset(start, begin.to_document(), end.to_document())

    def groups(self, start: Offset, end: Offset) -> Sequence[Any]:
        """What lies between two offsets, in groups for one reader each."""
        if start == end:
            return []
        begin = self.stream.position(_begin_of(start, end))
        with kept_in_checkpoint():
            return self.stream.groups(begin, self.stream.position(position_of(end)))


def end_offset(start: Mapping[str, Any], begin: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The offset of a batch that goes from one position to another, the first of which Spark calls `start`.

    Where nothing is new it is the start, unchanged: Spark takes any other offset for a batch.
    """
    if start == FIRST:
        return {**end, BEGIN: dict(begin)}
    return dict(start if end == position_of(start) else end)


def position_of(offset: Mapping[str, Any]) -> dict[str, Any]:
    """The position in the changes of a table that an offset has."""
    return {key: value for key, value in offset.items() if key != BEGIN}


def _begin_of(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The position at which the batch between two offsets of Spark begins.

    Raises `InvalidRequestError` where a batch that began with the query does not say it.
    """
    if BEGIN in end:
        return dict(end[BEGIN])
    if start == FIRST:
        raise InvalidRequestError(
            "the first batch of this query was planned by an earlier version of Freshet and did not finish. Its "
            "checkpoint says where the batch ends and not where it begins, and the table may have moved on since: rows "
            "would be missing. Start the query with a new checkpoint, and into an empty target if some of the batch "
            "may have been written there"
        )
    return position_of(start)
