"""Were the new files of a commit added before? A data file has a random name, so it is added by one commit only.

The identity of a commit is its number. Where the number is not to be trusted (a program did not see the end of its
last try and comes with another number, or took one that another program of the same user has used meanwhile), the
files tell: they stand in the delta of some snapshot after the one that the commit was begun on, or they do not.

Snapshots that expired meanwhile are looked for in the base of the latest one, where their entries stay until
compaction and the merging of manifests have both passed over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import Snapshot


def snapshot_that_added(
    store: TableStore,
    index: ManifestIndex,
    entries: Sequence[ManifestEntry],
    *,
    after_id: int,
    latest: Snapshot | None,
) -> Snapshot | None:
    """The first snapshot with an id above `after_id` whose delta adds one of the files; None when there is none.

    Where that snapshot has expired, the latest one stands for it.
    """
    added = [entry for entry in entries if entry.kind is EntryKind.ADD]
    if latest is None or not added:
        return None
    identities = {entry.identity for entry in added}
    has_expired = False
    for snapshot_id in range(after_id + 1, latest.id + 1):
        try:
            snapshot = latest if snapshot_id == latest.id else store.snapshots.snapshot(snapshot_id)
            delta = delta_entries(store.manifests, snapshot)
        except NotFoundError:
            has_expired = True
            continue
        if any(entry.kind is EntryKind.ADD and entry.identity in identities for entry in delta):
            return snapshot
    return latest if has_expired and index.is_in_base(latest, added[0]) else None
