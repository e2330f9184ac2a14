"""The batches of a query that reads the changes of a table: where each ends, and what lies in it; of either engine.

An offset is the document of a position in the stream; that of the first batch also says where it began
(`first_offset`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freshet.pipeline.config.stream_options import PlannedStream
from freshet.pipeline.query.driver.first_offset import FIRST, begin_of, end_offset, position_of
from freshet.pipeline.query.task.change_rows import kept_in_checkpoint
from freshet.storage.table_engine import StreamLimit

Offset = Mapping[str, Any]


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
        begin = self.stream.position(begin_of(start, end))
        with kept_in_checkpoint():
            return self.stream.groups(begin, self.stream.position(position_of(end)))
