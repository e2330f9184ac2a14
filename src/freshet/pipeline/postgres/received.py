"""What was received of a stream and is not in the lake yet: whole transactions, by the positions at which they end.

No connection, no thread. What comes of a transaction that is larger than `KEPT_MAX` goes to a file: it is one batch,
however large it is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from freshet._frozen import Frozen
from freshet.pipeline.postgres.change_records import transactions_of, weights_of
from freshet.pipeline.postgres.spilled_messages import SpilledMessages, TransactionFile, runs_of
from freshet.pipeline.postgres.transactions import TransactionSnapshot
from freshet.pipeline.postgres.wire import COMMIT, Messages, Positions, Relation, numbers, relations_in

KEPT_MAX: Final = 64 << 20
"""Bytes of one transaction that are held in memory."""
_COMMIT_END: Final = 10
"""Where `C` has its end_lsn."""


class Segment(Frozen):
    """Messages that came together. `commits` are those that end a transaction, by their places; `ends` their positions,
    `sizes` and `weights` the bytes and the numbers of records up to each, from the start of the segment."""

    content: Messages | SpilledMessages
    count: int
    size_bytes: int
    commits: Positions
    ends: Positions
    sizes: Positions
    weights: Positions
    total: int
    relations: tuple[Relation, ...]

    @classmethod
    def of(cls, messages: Messages, spill: TransactionFile | None = None) -> Segment:
        """What messages are; in a file where one is given."""
        weights = np.cumsum(weights_of(messages))
        commits = np.flatnonzero(messages.kinds == COMMIT)
        sizes = messages.starts[commits]
        ends = numbers(messages.octets, sizes + _COMMIT_END, 8)
        total = int(weights[-1]) if len(weights) else 0
        content = messages if spill is None else spill.put(messages)
        relations = tuple(relation for _, relation in relations_in(messages))
        count, size = len(messages.starts), len(messages.data)
        return cls(content, count, size, commits, ends, sizes, weights[commits], total, relations)

    @property
    def messages(self) -> Messages:
        """What came, read again where it is in a file."""
        return self.content.read() if isinstance(self.content, SpilledMessages) else self.content

    def cut(self, first: int, last: int) -> Segment:
        """The messages of these places."""
        return self if (first, last) == (0, self.count) else Segment.of(self.messages.cut(first, last))


class MessageSpan(Frozen):
    """Messages in their order, those of a large transaction in files, and the numbers of records that they take."""

    parts: tuple[Messages | SpilledMessages, ...]
    weight: int
    relations: tuple[Relation, ...] = ()


class End(Frozen):
    """Where a batch may end: a position, and the numbers of records and bytes from the start on."""

    lsn: int
    weight: int
    size_bytes: int


class Received:
    """The transactions behind `start`, the last one of them perhaps in part."""

    def __init__(self, start: int, spill: TransactionFile | None = None) -> None:
        """`spill` takes what is more than `KEPT_MAX` of one transaction; without one all is held in memory."""
        self._spill = spill
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
        is_large = self.size_bytes >= KEPT_MAX and not self.has_whole
        segment = Segment.of(messages, self._spill if is_large else None)
        self._segments.append(segment)
        self.size_bytes += segment.size_bytes
        if len(segment.ends):
            self.end = int(segment.ends[-1])
        is_whole = len(segment.commits) and int(segment.commits[-1]) == len(messages.starts) - 1
        self._has_part = not is_whole

    def forget_part(self) -> None:
        """Lets go what has come of a transaction that has not ended: it comes again from the start."""
        while self._segments and not len(self._segments[-1].commits):
            self._segments.pop()
        if self._segments:
            segment = self._segments.pop()
            self._segments.append(segment.cut(0, int(segment.commits[-1]) + 1))
        self._has_part = False
        self._let_go()

    def end_within(self, size_max: int) -> End | None:
        """Where a batch ends that has whole transactions of about so many bytes, at least one; None where there is
        none."""
        weight = size = 0
        found: End | None = None
        for segment in self._segments:
            sizes = segment.sizes + size
            taken = int(np.searchsorted(sizes, size_max, side="right"))
            if found is None and not taken and len(sizes):
                taken = 1
            if taken:
                place = taken - 1
                found = End(int(segment.ends[place]), weight + int(segment.weights[place]), int(sizes[place]))
            if taken < len(sizes):
                return found
            weight += segment.total
            size += segment.size_bytes
            if size >= size_max and found is not None:
                return found
        return found

    def up_to(self, end: int) -> MessageSpan | None:
        """The messages from the start to this position; None where no transaction ends there."""
        parts, relations, weight = list[Messages | SpilledMessages](), list[Relation](), 0
        for segment in self._segments:
            place = int(np.searchsorted(segment.ends, end))
            if place < len(segment.ends):
                if int(segment.ends[place]) != end:
                    return None
                cut = segment.cut(0, int(segment.commits[place]) + 1)
                relations += cut.relations
                return MessageSpan((*parts, cut.content), weight + int(segment.weights[place]), tuple(relations))
            parts.append(segment.content)
            relations += segment.relations
            weight += segment.total
        return None

    def drop(self, end: int) -> list[Relation]:
        """Lets go what ends here or before, which is in the lake; gives its relations, which are not sent again."""
        held = [number for number, each in enumerate(self._segments) if len(each.ends) and int(each.ends[0]) <= end]
        self.start = max(self.start, end)
        dropped = [self._segments.popleft() for _ in range(held[-1] if held else 0)]
        if held:
            segment = self._segments.popleft()
            cut = int(segment.commits[int(np.searchsorted(segment.ends, end, side="right")) - 1]) + 1
            dropped.append(segment.cut(0, cut))
            if cut < segment.count:
                self._segments.appendleft(segment.cut(cut, segment.count))
        self._let_go()
        return [relation for each in dropped for relation in each.relations]

    def close(self) -> None:
        """Removes its file."""
        if self._spill is not None:
            self._spill.close()

    def _let_go(self) -> None:
        self.size_bytes = sum(each.size_bytes for each in self._segments)
        if self._spill is not None and not any(isinstance(each.content, SpilledMessages) for each in self._segments):
            self._spill.close()


def end_held(span: MessageSpan, snapshot: TransactionSnapshot) -> End | None:
    """Where whole transactions end that a snapshot holds, of which the first may be one that it does not: None."""
    ids, ends, weights, sizes = list[int](), list[int](), list[int](), list[int]()
    weight = size = 0
    for _, messages in runs_of(span.parts):
        segment = Segment.of(messages)
        ids += [each.xid for each in transactions_of(messages)]
        ends += segment.ends.tolist()
        weights += (segment.weights + weight).tolist()
        sizes += (segment.sizes + size).tolist()
        weight, size = weight + segment.total, size + segment.size_bytes
    missing = np.flatnonzero(~snapshot.holds(np.array(ids, np.int64)))
    place = (int(missing[0]) if len(missing) else len(ends)) - 1
    return None if place < 0 else End(ends[place], weights[place], sizes[place])
