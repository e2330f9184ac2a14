"""The LATEST hint that a commit leaves, so that readers that come anew need not list the snapshots.

| store | written |
|---|---|
| a disk | with each commit |
| an object store | after the return, by the first commit of each second, and at the end of a series |

A store takes one write a second to one object (Google Cloud Storage), and from all writers of a table together. Which
commit is the first of a second is in the snapshots themselves, whose times never go back: so it is one of all writers,
and none of them asks another. Readers heal a hint that is missing or too low, but one that is too high says that a
snapshot was lost: so on a disk it is taken back where the table was dropped, and maybe made again, before it came.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot

INTERVAL_MS: Final = 1000


class LatestHint:
    """The hint of one table, as one committer writes it."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._left_out: Snapshot | None = None
        """The last snapshot of ours, where the hint does not name it."""
        self._is_due = False

    def follow(self, before: Snapshot | None, snapshot: Snapshot, *, is_followed: bool) -> None:
        """After a commit on top of `before`; where another follows at once, the hint is left to that."""
        self._is_due |= before is None or before.time_ms // INTERVAL_MS < snapshot.time_ms // INTERVAL_MS
        self._left_out = snapshot
        if not is_followed and (self._is_due or not self._store.env.is_remote):
            self.write(snapshot)

    def write(self, snapshot: Snapshot) -> None:
        """Best effort; at a store in the background."""
        self._left_out, self._is_due = None, False
        store = self._store

        def write() -> None:
            file_io, paths = store.env.file_io, store.paths
            with suppress(StorageError):
                store.snapshots.write_latest_hint(snapshot.id)
                if not store.env.is_remote and not file_io.exists(paths.snapshot(snapshot.id)):
                    store.removal.delete(paths.latest_hint)

        if store.env.is_remote:
            store.env.run_later(f"hint of {store.location}", write)
        else:
            write()

    def finish(self) -> None:
        """Writes what was left out."""
        if self._left_out is not None:
            self.write(self._left_out)
