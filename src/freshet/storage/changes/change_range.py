"""Which snapshots a reader of changes asks for, checked against what is there.

| asked | snapshots |
|---|---|
| nothing | from the oldest whose changes are there to the newest |
| from a snapshot | that one and all after it |
| from a timestamp | those committed at or after it (epoch milliseconds, or a datetime with a time zone) |
| up to a snapshot | that one is the last |

A range that begins before the oldest changes that are there is refused: what is missing would be missed in silence. The
snapshot after the newest may be asked for, nothing comes then: so a reader may go on where it stopped.

Source: MERGING.md §6.5, §7.1.
"""

from __future__ import annotations

from typing import Any

from freshet.storage.changes.history import KEEP_LONGER, ChangeHistory
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.model.moment import TimeGiven, time_ms


def change_range(
    history: ChangeHistory,
    *,
    from_snapshot: int | None = None,
    to_snapshot: int | None = None,
    from_timestamp: TimeGiven | None = None,
) -> range:
    """Ids of the snapshots asked for, ascending.

    Raises `InvalidRequestError` for a call that makes no sense, `NotFoundError` for snapshots that are not there yet
    or no longer.
    """
    check_id("from_snapshot", from_snapshot)
    check_id("to_snapshot", to_snapshot)
    if from_snapshot is not None and to_snapshot is not None and from_snapshot > to_snapshot:
        raise InvalidRequestError(
            f"from_snapshot {from_snapshot} is after to_snapshot {to_snapshot}; both belong to what is read"
        )
    latest = history.latest_id()
    if to_snapshot is not None and to_snapshot > latest:
        raise NotFoundError(f"to_snapshot {to_snapshot} was not committed yet: {history.left_text()}")
    first = start_id(history, latest, from_snapshot, from_timestamp)
    return range(first, (latest if to_snapshot is None else to_snapshot) + 1)


def start_id(history: ChangeHistory, latest: int, from_snapshot: int | None, from_timestamp: TimeGiven | None) -> int:
    """Id of the first snapshot whose changes are asked for; the one after the latest when none are there yet."""
    if from_snapshot is not None and from_timestamp is not None:
        raise InvalidRequestError("from_snapshot and from_timestamp exclude each other; give one of them")
    earliest = history.earliest_id() or 1
    if from_timestamp is not None:
        asked = time_ms("from_timestamp", from_timestamp)
        first = history.first_at_or_after(asked)
        if first == earliest > 1 and asked < history.get(first).time_ms:
            raise NotFoundError(
                f"changes since from_timestamp {asked} may have expired: {history.left_text()}, the oldest of "
                f"{history.get(first).time_ms}. Give from_snapshot={earliest} to begin there. {KEEP_LONGER}"
            )
        return first
    if from_snapshot is None:
        return earliest
    if from_snapshot < earliest:
        raise NotFoundError(
            f"the changes of snapshot {from_snapshot} have expired: {history.left_text()}. Give "
            f"from_snapshot={earliest} to begin there. {KEEP_LONGER}"
        )
    if from_snapshot > latest + 1:
        raise NotFoundError(
            f"snapshot {from_snapshot} was not committed yet: {history.left_text()}. Begin at one that is there, or at "
            f"{latest + 1}, the next one; if it was there before, the table was rolled back or created anew"
        )
    return from_snapshot


def check_id(name: str, value: Any) -> None:
    """Refuses what cannot be the id of a snapshot."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidRequestError(f"{name} is the id of a snapshot, a whole number from 1 on, not {value!r}")
