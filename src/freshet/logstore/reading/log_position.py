"""A position between snapshots and log, for an engine that keeps it as JSON: the whole state of a reader.

| | |
|---|---|
| the rows of a snapshot come next | `is_state`; the state is that of a reader that has read them |
| the changes after it | the state says what was shown |
| a snapshot was read in part | the first `taken` of its `of` pieces were taken |

Positions of a reader of snapshots alone (`StreamPosition`) are understood, so that such a query may go on with the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from freshet.logstore.reading.reader_state import ReaderState, state_from_json, state_to_json
from freshet.storage.exceptions import InvalidRequestError

_LOG: Final = "log"
"""Key of the state of the reader; positions of a reader of snapshots alone have none."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Everything before it was taken. `from_files`: the next snapshot is read from its files, whatever the log has, as
    the ones before it are gone or have no offsets of the log.

    `before_ms` is the commit time of the snapshot in the state, where it was there: it distinguishes a history from
    another one of the same ids. `of_ms` is that of the snapshot whose rows come next, or which was read in part.
    """

    state: ReaderState
    is_state: bool = False
    taken: int = 0
    of: int = 0
    from_files: bool = False
    before_ms: int | None = None
    of_ms: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The position for JSON."""
        return {
            _LOG: state_to_json(self.state),
            "is_state": self.is_state,
            "taken": self.taken,
            "of": self.of,
            "from_files": self.from_files,
            "before_ms": self.before_ms,
            "of_ms": self.of_ms,
        }

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""
        return self.state.snapshot_id + (not self.is_state)

    def reads_beyond(self, other: LogPosition) -> bool:
        """True where a reader that is at the same snapshot has read less of the log at the other one."""
        if (self.next_id, self.is_state, self.taken) != (other.next_id, other.is_state, other.taken):
            return False
        read = other.state.positions
        return any(offset > read.get(partition, offset) for partition, offset in self.state.positions.items())


def position_from(document: Mapping[str, Any]) -> LogPosition | int:
    """The inverse of `to_document`; the id of the next snapshot for a position between two snapshots alone.

    Raises `InvalidRequestError` for what is no position, or one within a snapshot.
    """
    try:
        if _LOG in document:
            kept = {name: value for name, value in document.items() if name != _LOG}
            return LogPosition(state_from_json(document[_LOG]), **kept)
        if document["is_state"] or document["taken"]:
            raise InvalidRequestError(
                f"the checkpoint is within snapshot {document['snapshot_id']}, which was read without the log: go "
                "on with log.read.isolation=none until that snapshot has been read",
                option="log.read.isolation",
            )
        return int(document["snapshot_id"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(f"{dict(document)!r} is no position in the changes of a table: {error!r}") from None
