"""Which commits compact in full, and which buckets: `full-compaction.delta-commits`."""

from __future__ import annotations

from freshet.storage.compact.joint_changes import buckets_below
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions


def is_full_compaction_due(options: CoreOptions, identifier: int | None) -> bool:
    """True when `full-compaction.delta-commits` has the commit of this number, or one without a number, compact."""
    delta_commits = options.full_compaction_delta_commits
    if delta_commits is None or options.compacts_elsewhere:
        return False
    return identifier is None or identifier % delta_commits == 0


def behind_full_compaction(store: TableStore, snapshot: Snapshot | None) -> set[BucketId]:
    """Buckets of a keyed table that were written since their last full compaction: with files below the highest level.

    The files say it, so it is true for files of every writer, and after a crash.
    """
    if snapshot is None or not store.schema.has_primary_key:
        return set()
    return buckets_below(store, snapshot, store.options.num_levels - 1)
