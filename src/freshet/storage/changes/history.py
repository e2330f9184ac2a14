"""The history of a table as a reader of changes sees it: snapshots, and the changelogs that were kept longer.

    changelog-3 changelog-4 changelog-5 | snapshot-6 snapshot-7 snapshot-8
    expired, their changes are there    | there

Ids have no gap. Where a snapshot and its copy are both there (expiry is at work), they are the same.

A table that was rolled back uses ids a second time. A follower compares the snapshot it read last with the one that
has that id now, or had it last, as the history of commits says (`metadata.expired_snapshots`). Where Apache Paimon has
expired that one nothing tells the two apart.

Source: MERGING.md §6.5, §7.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from freshet.storage.exceptions import (
    CorruptDataError,
    InvalidRequestError,
    MissingFileError,
    NotFoundError,
    OvertakenError,
)
from freshet.storage.io.local_errors import memory_errors
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import TimeGiven, time_ms
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import CommitKind, Snapshot

_LOG: Final = logging.getLogger(__name__)


class ChangeHistory:
    """Reads from disk each time: what was there a moment ago may have expired."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or its copy among the changelogs; None when neither is there."""
        return self._store.snapshots.find(snapshot_id) or self._store.changelogs.find(snapshot_id)

    def get(self, snapshot_id: int) -> Snapshot:
        """A snapshot or its copy; `NotFoundError` says what is left."""
        found = self.find(snapshot_id)
        if found is None:
            raise NotFoundError(
                f"the changes of snapshot {snapshot_id} of {self._store.location} are not there: {self.left_text()}",
                table=self._store.location,
            )
        return found

    def still_there(self, snapshot_id: int) -> Snapshot:
        """A snapshot or its copy that was there before; `OvertakenError` when it has expired or was rolled back."""
        found = self.find(snapshot_id)
        if found is None:
            raise self._overtaken(snapshot_id, None)
        return found

    def first_rows(self, snapshot_id: int) -> Snapshot:
        """The snapshot whose rows a stream begins with; its copy among the changelogs has none.

        `NotFoundError` when it has expired, `OvertakenError` when it was rolled back.
        """
        try:
            return self._store.snapshots.fresh(snapshot_id)
        except NotFoundError:
            self._store.check_is_there()
            if self.latest_id() < snapshot_id:
                raise self._rolled_back(snapshot_id) from None
            raise NotFoundError(
                f"snapshot {snapshot_id} of {self._store.location}, with whose rows this stream begins, expired before "
                f"they were read to their end: {self.left_text()}. Begin anew, an engine with a new checkpoint and an "
                "empty target. With a consumer_id (option consumer-id) a stream keeps the snapshot it begins with; "
                "without one, set snapshot.time-retained to more than the first batches take, restarts included",
                table=self._store.location,
            ) from None

    def _overtaken(self, snapshot_id: int, error: Exception | None) -> OvertakenError:
        self._store.check_is_there()
        if self.latest_id() < snapshot_id:
            return self._rolled_back(snapshot_id)
        found = "" if error is None else f" ({error})"
        return OvertakenError(
            f"snapshot {snapshot_id} of {self._store.location} expired before its changes were read to their end"
            f"{found}: {self.left_text()}. {KEEP_LONGER}",
            table=self._store.location,
        )

    def _rolled_back(self, snapshot_id: int) -> OvertakenError:
        return OvertakenError(
            f"table {self._store.location} was rolled back to a snapshot before {snapshot_id}, which a reader of its "
            f"changes had come to: {self.left_text()}. What was derived from the changes since is no longer so; read "
            "the table again from a snapshot before the rollback, or in full",
            table=self._store.location,
        )

    def latest_id(self) -> int:
        """Id of the newest snapshot, 0 for a table without any; `NotFoundError` when the table was dropped."""
        latest = self._store.snapshots.latest_id()
        if latest is None:
            self._store.check_is_there()
        return latest or 0

    def earliest_id(self) -> int | None:
        """The oldest id whose changes can be read, or None for a table without snapshots."""
        snapshot_id = self._store.snapshots.earliest_id()
        kept = self._store.changelogs.list_ids()
        if snapshot_id is None or not kept:
            return snapshot_id
        # Only copies that join on to the snapshots: others are left over from a history that was rolled back.
        there, earliest = set(kept), snapshot_id
        while earliest - 1 in there:
            earliest -= 1
        return earliest

    def first_at_or_after(self, time_ms: int) -> int:
        """Id of the oldest change committed at or after a time; the next id to come when all are older."""
        low, high = self.earliest_id() or 1, self.latest_id() + 1
        while low < high:
            middle = (low + high) // 2
            if self.get(middle).time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def left_text(self) -> str:
        """What can be read, for messages."""
        earliest, latest = self.earliest_id(), self._store.snapshots.latest_id()
        if earliest is None or latest is None:
            return "the table has no snapshots"
        text = f"changes of snapshots {earliest} to {latest} are there"
        first = self._store.snapshots.earliest_id()
        return text if first is None or first == earliest else f"{text} (up to {first - 1} as changelogs only)"

    def check_not_replaced(self, snapshot: Snapshot) -> None:
        """Raises `OvertakenError` when another snapshot has taken this one's id, or its id is not given out yet."""
        found = self.find(snapshot.id)
        if found == snapshot:
            return
        if found is None and self.latest_id() >= snapshot.id:
            found = self.expired(snapshot.id)
            if found is None or found.delta_manifest_list == snapshot.delta_manifest_list:
                return
        raise self._rolled_back(snapshot.id)

    def expired(self, snapshot_id: int) -> Snapshot | None:
        """What is known of a snapshot that has expired; None where another program has removed it.

        A history that cannot be read tells nothing, as if there were none.
        """
        try:
            return self._store.history.newest(snapshot_id)
        except CorruptDataError as error:
            _LOG.warning("table %s: %s", self._store.location, error)
            return None

    @contextmanager
    def explained(self, snapshot: Snapshot) -> Iterator[None]:
        """Errors about missing files and memory while a snapshot's changes are read become errors that say why."""
        try:
            with memory_errors(self._store.location):
                yield
        except (MissingFileError, NotFoundError) as error:
            self._store.check_is_there()
            if self.find(snapshot.id) == snapshot and self._is_of_before(snapshot, error):
                raise OvertakenError(
                    f"snapshot {snapshot.id} of {self._store.location} took rows away whose files have expired with "
                    f"the snapshot before ({error}), so its changes cannot be told any more. {KEEP_LONGER}",
                    table=self._store.location,
                ) from error
            if snapshot in self._store.snapshots.tags.all().values():
                raise
            if self.find(snapshot.id) is None:
                raise self._overtaken(snapshot.id, error) from error
            self.check_not_replaced(snapshot)
            raise

    def _is_of_before(self, snapshot: Snapshot, error: MissingFileError | NotFoundError) -> bool:
        """Whether an overwrite is read whose snapshot before has expired: what it took away is of that one."""
        if snapshot.commit_kind is not CommitKind.OVERWRITE or self._store.snapshots.find(snapshot.id - 1) is not None:
            return False
        if not isinstance(error, MissingFileError):
            return True
        entries = delta_entries(self._store.manifests, snapshot)
        deleted = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
        return (error.path or "").rpartition("/")[2] in deleted


KEEP_LONGER = (
    "Changes that expired cannot be had any more: read the table in full and go on from there. To keep them for slow "
    "readers give each a consumer_id, or set snapshot.time-retained or changelog.time-retained to more than the "
    "longest pause of a reader"
)
"""What to do about changes that have expired."""


def change_range(
    history: ChangeHistory,
    *,
    from_snapshot: int | None = None,
    to_snapshot: int | None = None,
    from_timestamp: TimeGiven | None = None,
) -> range:
    """Ids of the snapshots whose changes a reader asks for, ascending.

    | asked | snapshots |
    |---|---|
    | nothing | from the oldest whose changes are there to the newest |
    | from a snapshot | that one and all after it |
    | from a timestamp | those committed at or after it (epoch milliseconds, or a datetime with a time zone) |
    | up to a snapshot | that one is the last |

    A range that begins before the oldest changes that are there is refused: what is missing would be missed in silence.
    The snapshot after the newest may be asked for, nothing comes then: so a reader may go on where it stopped.

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
