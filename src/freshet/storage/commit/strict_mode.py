"""`commit.strict-mode.last-safe-snapshot`: gives up when others touched the same partitions since a snapshot.

| since the safe snapshot another user committed | to a partition of the change | the change may be |
|---|---|---|
| COMPACT or OVERWRITE | any bucket | nothing: it is given up |
| APPEND | a real bucket | anything but an OVERWRITE |

Snapshots that were looked at are safe from then on. Source: FORMAT.md §3.4.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import ConflictError
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.core import CoreOptions

_KEY: Final = CoreOptions.commit_strict_mode_last_safe_snapshot.key


class StrictMode:
    """The check of one committer; does nothing where the option is not set."""

    def __init__(self, store: TableStore, commit_user: str) -> None:
        self._store = store
        self._commit_user = commit_user
        self._safe_id = store.options.commit_strict_mode_last_safe_snapshot

    def check(self, change: SnapshotChange, latest: Snapshot | None) -> None:
        """Raises `ConflictError` when another user has committed to the partitions of the change."""
        if self._safe_id is None or latest is None:
            return
        partitions = {entry.partition for entry in change.entries}
        for snapshot_id in range(self._safe_id + 1, latest.id + 1):
            snapshot = self._store.snapshots.snapshot(snapshot_id)
            if snapshot.commit_user != self._commit_user and self._collides(snapshot, change.kind, partitions):
                raise ConflictError(
                    f"table {self._store.location}: snapshot {snapshot_id} ({snapshot.commit_kind} by "
                    f"{snapshot.commit_user!r}) touched a partition of this commit, and {_KEY} is set; "
                    "nothing was committed, look at what it did and start again from there"
                )
        self._safe_id = max(self._safe_id, latest.id)

    def _collides(self, snapshot: Snapshot, kind: CommitKind, partitions: set[bytes]) -> bool:
        if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.OVERWRITE):
            least_bucket = None
        elif snapshot.commit_kind is CommitKind.APPEND and kind is CommitKind.OVERWRITE:
            least_bucket = 0
        else:
            return False
        return any(
            entry.partition in partitions and (least_bucket is None or entry.bucket >= least_bucket)
            for entry in delta_entries(self._store.manifests, snapshot)
        )
