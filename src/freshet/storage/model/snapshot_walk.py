"""Goes from snapshot to snapshot, for a reader of changes that keeps its position: pure but for the steps it is given.

| at a position | the next step | then |
|---|---|---|
| the rows of a snapshot come next | its rows | its changes are behind the reader |
| there is a next snapshot | its changes, in pieces; maybe none | the position after it |
| there is none yet | None | the reader stays |

What lies between two positions is a function of the two and of the snapshots, so it can be planned again; a snapshot
that was read in part goes on after the pieces that were taken. A history that is not the one the position was taken in
is refused, as is a plan of another number of pieces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from freshet.storage.exceptions import InvalidRequestError, OvertakenError
from freshet.storage.model.stream_step import Budget, Piece


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
_Piece = TypeVar("_Piece", bound=Piece)


@dataclass(frozen=True, slots=True)
class SnapshotStep(Generic[_Position, _Piece]):
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
    """Of one reader; `table` is what messages call the table."""

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
