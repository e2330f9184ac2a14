"""What was received of a stream and is not in the lake yet: whole transactions, by the positions at which they end.

Pure: no connection, no thread. Messages are numbered from the first that this process has received on.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from freshet._frozen import Frozen
from freshet.pipeline.postgres.change_records import transactions_of, weights_of
from freshet.pipeline.postgres.transactions import TransactionSnapshot
from freshet.pipeline.postgres.wire import COMMIT, Messages, Positions, numbers

_COMMIT_END: Final = 10
"""Where `C` has its end_lsn."""


class Segment(Frozen):
    """Messages that came together. `commits` are those that end a transaction, by their places; `ends` their positions,
    `weights` the numbers of records up to each, from the start of the segment."""

    messages: Messages
    commits: Positions
    ends: Positions
    weights: Positions
    total: int

    @classmethod
    def of(cls, messages: Messages) -> Segment:
        """What messages are."""
        weights = np.cumsum(weights_of(messages))
        commits = np.flatnonzero(messages.kinds == COMMIT)
        ends = numbers(messages.octets, messages.starts[commits] + _COMMIT_END, 8)
        total = int(weights[-1]) if len(weights) else 0
        return cls(messages, commits, ends, weights[commits], total)

    def cut(self, first: int, last: int) -> Segment:
        """The messages of these places."""
        return Segment.of(self.messages.cut(first, last))


class End(Frozen):
    """Where a batch may end: a position, and the numbers of records and bytes from the start on."""

    lsn: int
    weight: int
    size_bytes: int


class Received:
    """The transactions behind `start`, the last one of them perhaps in part."""

    def __init__(self, start: int) -> None:
        self.start = start
        """Everything before it is in the lake, or planned by an earlier batch that is."""
        self._segments: deque[Segment] = deque()
        self.size_bytes = 0
        self.end = start
        """Where the last whole transaction ends."""
        self._has_part = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is here, not even a part of a transaction."""
        return not self._segments

    @property
    def has_part(self) -> bool:
        """Whether a transaction is here in part."""
        return self._has_part

    @property
    def has_whole(self) -> bool:
        """Whether a transaction is here to its end."""
        return self.end > self.start

    def add(self, messages: Messages) -> None:
        """Messages that follow those that are here."""
        if not len(messages.starts):
            return
        segment = Segment.of(messages)
        self._segments.append(segment)
        self.size_bytes += len(messages.data)
        if len(segment.ends):
            self.end = int(segment.ends[-1])
        is_whole = len(segment.commits) and int(segment.commits[-1]) == len(messages.starts) - 1
        self._has_part = not is_whole

    def forget_part(self) -> None:
        """Lets go what has come of a transaction that has not ended: it comes again from the start."""
        while self._segments and not len(self._segments[-1].commits):
            self.size_bytes -= len(self._segments.pop().messages.data)
        if self._segments:
            segment = self._segments.pop()
            kept = segment.cut(0, int(segment.commits[-1]) + 1)
            self.size_bytes -= len(segment.messages.data) - len(kept.messages.data)
            self._segments.append(kept)
        self._has_part = False

    def end_within(self, size_max: int) -> End | None:
        """Where a batch ends that has whole transactions of about so many bytes, at least one; None where there is
        none."""
        weight = size = 0
        found: End | None = None
        for segment in self._segments:
            sizes = segment.messages.starts[segment.commits] + size
            taken = int(np.searchsorted(sizes, size_max, side="right"))
            if found is None and not taken and len(sizes):
                taken = 1
            if taken:
                place = taken - 1
                found = End(int(segment.ends[place]), weight + int(segment.weights[place]), int(sizes[place]))
            if taken < len(sizes):
                return found
            weight += segment.total
            size += len(segment.messages.data)
            if size >= size_max and found is not None:
                return found
        return found

    def up_to(self, end: int) -> Messages | None:
        """The messages from the start to this position; None where no transaction ends there."""
        parts = []
        for segment in self._segments:
            place = int(np.searchsorted(segment.ends, end))
            if place < len(segment.ends):
                if int(segment.ends[place]) != end:
                    return None
                parts.append(segment.messages.cut(0, int(segment.commits[place]) + 1))
                return Messages.joined(parts)
            parts.append(segment.messages)
        return None

    def drop(self, end: int) -> list[Messages]:
        """Lets go what ends here or before, which is in the lake; gives it, so that relations are not forgotten."""
        held = [number for number, each in enumerate(self._segments) if len(each.ends) and int(each.ends[0]) <= end]
        self.start = max(self.start, end)
        if not held:
            return []
        dropped = [self._segments.popleft().messages for _ in range(held[-1])]
        segment = self._segments.popleft()
        place = int(np.searchsorted(segment.ends, end, side="right"))
        cut = int(segment.commits[place - 1]) + 1
        dropped.append(segment.messages.cut(0, cut))
        if cut < len(segment.messages.starts):
            self._segments.appendleft(segment.cut(cut, len(segment.messages.starts)))
        self.size_bytes = sum(len(each.messages.data) for each in self._segments)
        return dropped


def end_held(messages: Messages, snapshot: TransactionSnapshot) -> End | None:
    """Where whole transactions end that a snapshot holds, of which the first may be one that it does not: None."""
    ids = np.array([each.xid for each in transactions_of(messages)], np.int64)
    segment = Segment.of(messages)
    missing = np.flatnonzero(~snapshot.holds(ids))
    place = (int(missing[0]) if len(missing) else len(segment.ends)) - 1
    if place < 0:
        return None
    size = int(messages.starts[segment.commits[place]])
    return End(int(segment.ends[place]), int(segment.weights[place]), size)
