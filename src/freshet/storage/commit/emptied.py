"""The change that empties a table: an OVERWRITE that takes away every live file, and adds none.

It is computed from the snapshot that each round builds on, so what others commit before the claim goes too. Index files
go with the files of their buckets (`index_changes`).

Source: FORMAT.md §3.6.
"""

from __future__ import annotations

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind, IndexEntry, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot


def emptying_change(store: TableStore, latest: Snapshot | None) -> SnapshotChange:
    """All files of the snapshot as deleted ones; empty where there are none."""
    if latest is None:
        return SnapshotChange(CommitKind.OVERWRITE)
    entries = tuple(
        ManifestEntry(EntryKind.DELETE, each.partition, each.bucket, each.total_buckets, each.file)
        for each in live_entries(store.manifests, latest)
    )
    index = tuple(
        IndexEntry(EntryKind.DELETE, each.partition, each.bucket, each.file)
        for each in store.manifests.read_index_manifest(latest.index_manifest)
    )
    return SnapshotChange(CommitKind.OVERWRITE, entries, index_entries=index)
