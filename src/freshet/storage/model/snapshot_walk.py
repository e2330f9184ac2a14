"""Goes from snapshot to snapshot, for a reader of changes that keeps its position: pure but for the steps it is given.

| at a position | the next step | then |
|---|---|---|
| the rows of a snapshot come next | its rows | its changes are behind the reader |
| there is a next snapshot | its changes, in pieces; maybe none | the position after it |
| there is none yet | None | the reader stays |

What lies between two positions is a function of the two and of the snapshots, so it can be planned again; a snapshot
that was read in part goes on after the pieces that were taken. A history that is not the one the position was taken in
is refused, as is a plan of another number of pieces. A `StreamLimit` says how much a step takes at most, `by_bucket`
which of its changes may be read side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError, OvertakenError


class StepSize(NamedTuple):
    """What a piece of a stream costs. Rows of the log count as rows and by the offsets they lie in, not as files. A
    snapshot counts when all of its changes are taken, if there are any."""

    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    offsets: int = 0
    snapshots: int = 0

    def plus(self, other: StepSize) -> StepSize:
        """Both together."""
        return StepSize(*(one + more for one, more in zip(self, other, strict=True)))


class StreamLimit(Frozen):
    """How much one step takes at most: files, their bytes, rows, offsets of a log; the smallest wins, None is no limit.

    A step takes one piece at least, however large. With `snapshots` it ends after so many that have changes, and at
    each look at the log that shows something: for readers who hand everything out as soon as it is there.
    """

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    offsets: int | None = None
    snapshots: int | None = None

    @property
    def is_none(self) -> bool:
        """True where nothing is limited."""
        return self == StreamLimit()

    def allows(self, size: StepSize) -> bool:
        """True for a size within the limit."""
        limits = (self.files, self.size_bytes, self.rows, self.offsets, self.snapshots)
        return all(limit is None or given <= limit for given, limit in zip(size, limits, strict=True))


@dataclass(slots=True)
class Budget:
    """What one step may still take."""

    limit: StreamLimit
    used: StepSize = StepSize()  # noqa: RUF009 - a frozen value
    has_pieces: bool = False

    def takes(self, size: StepSize) -> bool:
        """Takes something, unless that would be too much; the first thing is always taken."""
        more = self.used.plus(size)
        if self.has_pieces and not self.limit.allows(more):
            return False
        self.used, self.has_pieces = more, True
        return True

    def is_full_after(self, piece_count: int) -> bool:
        """Counts a snapshot of which all pieces were taken; True where the step may have no more snapshots."""
        self.used = self.used.plus(StepSize(snapshots=min(1, piece_count)))
        return self.limit.snapshots is not None and self.used.snapshots >= self.limit.snapshots

    def left(self, limit: int | None, used: int) -> int | None:
        """How much of one limit is left; one at least where nothing was taken."""
        return None if limit is None else max(limit - used, 0 if self.has_pieces else 1)


class StepPiece(Protocol):
    """Changes of one bucket that one snapshot made, or that lie in a log."""

    @property
    def partition(self) -> bytes: ...
    @property
    def bucket(self) -> int: ...
    @property
    def total_buckets(self) -> int: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def size(self) -> StepSize: ...


_P = TypeVar("_P", bound="StepPiece")


def by_bucket(pieces: Iterable[_P], state_id: int | None, *, moves_rows: bool = False) -> list[list[_P]]:
    """The pieces of a step, a group for each reader, in their order: those of a bucket together; those of the rows of a
    snapshot, `state_id`, one by one, as the keys of each are its own. What one group has of a key comes before what a
    later one has. With `moves_rows` a key may be in any bucket, and all but the rows of the snapshot are one group.

    Changes of one bucket stay together, as each key is in one bucket. That holds until a partition is rewritten into
    another number of buckets. From there on a key may be in another bucket, so what comes after is read after
    everything before. Where rows move between partitions a key may be in any bucket at any time, and all changes stay
    together.
    """
    section = 0
    counts: dict[bytes, int] = {}
    groups: dict[object, list[_P]] = {}
    for index, piece in enumerate(pieces):
        if counts.setdefault(piece.partition, piece.total_buckets) != piece.total_buckets:
            section += 1
            counts[piece.partition] = piece.total_buckets
        is_of_state = state_id is not None and piece.snapshot_id == state_id
        place = () if moves_rows else (section, piece.partition, piece.bucket)
        key = index if is_of_state else place
        groups.setdefault(key, []).append(piece)
    return list(groups.values())


class Position(Protocol):
    """Where a reader is: before the rows (`is_state`) or the changes of snapshot `next_id`, of which the first
    `taken` of `of` pieces were taken.

    `before_ms` is the commit time of the snapshot before, `of_ms` that of the snapshot whose rows come next, or which
    was read in part; None where it is not known.
    """

    @property
    def next_id(self) -> int: ...
    @property
    def is_state(self) -> bool: ...
    @property
    def taken(self) -> int: ...
    @property
    def of(self) -> int: ...
    @property
    def before_ms(self) -> int | None: ...
    @property
    def of_ms(self) -> int | None: ...


_Position = TypeVar("_Position", bound=Position)
_Piece = TypeVar("_Piece", bound=StepPiece)


class SnapshotStep(Frozen, Generic[_Position, _Piece]):
    """What one snapshot gives, and the position after it. Without pieces it has no changes that can match.

    `from_files`: of a reader of a log, whose pieces are others than those of the log.
    """

    pieces: tuple[_Piece, ...]
    after: _Position
    from_files: bool = False

    @property
    def time_ms(self) -> int | None:
        """When it was committed."""
        return self.after.before_ms


class SnapshotWalk(ABC, Generic[_Position, _Piece]):
    """The walk of one reader; `table` is what messages call the table."""

    def __init__(self, table: str) -> None:
        self.table = table

    @abstractmethod
    def planned(self, position: _Position) -> SnapshotStep[_Position, _Piece] | None:
        """What the next snapshot gives; the same for the same position."""

    @abstractmethod
    def within(self, position: _Position, step: SnapshotStep[_Position, _Piece], taken: int) -> _Position:
        """After the first pieces of a step, one at least."""

    @abstractmethod
    def left_text(self) -> str:
        """What is left of the history, for messages; raises where the table was dropped."""

    def step(self, position: _Position) -> SnapshotStep[_Position, _Piece] | None:
        """What the next snapshot gives; None while it is not there."""
        step = self.planned(position)
        if step is None:
            return None
        if position.of_ms not in (None, step.time_ms):
            raise self.other_history(position.next_id, "has read in part" if position.taken else "begins with")
        if position.taken and position.of != len(step.pieces):
            raise InvalidRequestError(
                f"snapshot {position.next_id} of table {self.table} was read in {position.of} splits, of which "
                f"{position.taken} were taken, and now it has {len(step.pieces)}: options that cut splits "
                "(source.split.*) or the filter were changed. Put them back until this snapshot has been read",
                table=self.table,
            )
        return step

    def past_snapshots(self, position: _Position, budget: Budget, until_id: int | None) -> tuple[_Position, bool]:
        """Behind the snapshots that are there, to the changes of `until_id` at most; True where the budget ends it."""
        while until_id is None or position.is_state or position.next_id < until_id:
            step = self.step(position)
            if step is None:
                break
            for taken in range(position.taken, len(step.pieces)):
                if not budget.takes(step.pieces[taken].size):
                    return self.within(position, step, taken) if taken else position, True
            position = step.after
            if budget.is_full_after(len(step.pieces)):
                return position, True
        return position, False

    def whole_between(self, start: _Position, end: _Position) -> tuple[list[_Piece], _Position]:
        """The pieces from one position up to the snapshot of the other, and the position there.

        Raises `InvalidRequestError` where the first lies beyond the other, `OvertakenError` where the history is not
        the one that they were taken in.
        """
        if _place(start) > _place(end):
            raise self.not_of_one_reader(start, end)
        found: list[_Piece] = []
        position = start
        while _place(position)[:2] < _place(end)[:2]:
            step = self.step(position)
            if step is None:
                raise OvertakenError(
                    f"the changes of table {self.table} up to snapshot {end.next_id} were there before and are not "
                    f"now: {self.left_text()}. If it was rolled back, read it again in full, with a new checkpoint",
                    table=self.table,
                )
            found += step.pieces[position.taken :]
            position = step.after
        if None not in (position.before_ms, end.before_ms) and position.before_ms != end.before_ms:
            raise self.other_history(end.next_id - 1, "has read")
        return found, position

    def part(self, position: _Position, end: _Position) -> tuple[_Piece, ...]:
        """The pieces of a snapshot of which the second position has taken some."""
        step = self.step(end) if end.taken > position.taken else None
        return () if step is None else step.pieces[position.taken : end.taken]

    def not_of_one_reader(self, start: _Position, end: _Position) -> InvalidRequestError:
        """For a start that lies beyond its end."""
        return InvalidRequestError(
            f"changes of table {self.table} are asked for from snapshot {start.next_id} on and up to {end.next_id}, "
            "which lies before it. These are not two positions of one reader: its checkpoint was put together from "
            "several, or changed. Begin with a new checkpoint",
            table=self.table,
        )

    def other_history(self, snapshot_id: int, what: str) -> OvertakenError:
        """For a snapshot that is another one of its id."""
        return OvertakenError(
            f"snapshot {snapshot_id} of table {self.table} is not the one that this stream {what}: the table was "
            f"rolled back or created anew; {self.left_text()}. Read the table again in full, with a new checkpoint",
            table=self.table,
        )


def _place(position: Position) -> tuple[int, bool, int]:
    """Grows from each position to those after it."""
    return position.next_id, not position.is_state, position.taken
