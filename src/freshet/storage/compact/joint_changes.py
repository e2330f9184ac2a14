"""Compactions that belong into one snapshot, because a key can leave one of their buckets and come into another.

Where rows move between partitions, the changes of a key lie in two buckets. Were these compacted in two snapshots, the
+I of the new partition could come before the -D of the old one, and who follows the changes by key would lose the row.
So all buckets whose changes wait to be emitted are compacted upon one snapshot and committed together, or none is:

| `changelog-producer` | changes wait in | these rounds are joint |
|---|---|---|
| `full-compaction` | files below the highest level | those to the highest level; others stay below it |
| `lookup` | files of level 0 | all that take level 0 |

A conflict of one bucket drops such a commit whole (`commit.change_fit`). Paimon 2.0.0 compacts bucket by bucket.
"""

from __future__ import annotations

from freshet.storage.compact.picker import CompactionUnit, kept_apart
from freshet.storage.merge.sorted_runs import Levels
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot


def emits_jointly(store: TableStore) -> bool:
    """Whether changes that compactions of this table emit must come from all its buckets at once."""
    return store.moves_rows and store.options.changelog_producer.emits.in_compactions


def emits_jointly_in_full(store: TableStore) -> bool:
    """The same, of compactions to the highest level alone."""
    return emits_jointly(store) and store.options.changelog_producer.emits.only_at_highest_level


def emits_jointly_by_lookup(store: TableStore) -> bool:
    """The same, of compactions of level 0."""
    return emits_jointly(store) and store.options.changelog_producer.emits.by_lookup


def waiting_buckets(store: TableStore, snapshot: Snapshot | None) -> set[BucketId]:
    """Buckets with changes that a joint compaction has yet to emit."""
    if snapshot is None or not emits_jointly(store):
        return set()
    emitted_from = store.options.num_levels - 1 if emits_jointly_in_full(store) else 1
    return buckets_below(store, snapshot, emitted_from)


def buckets_below(store: TableStore, snapshot: Snapshot, level: int) -> set[BucketId]:
    """Buckets with files below the level."""
    live = store.live.at(snapshot).by_bucket
    return {
        bucket
        for bucket, files in live.items()
        if bucket[1] >= 0 and any(entry.file.level < level for entry in files.values())
    }


def below_highest(store: TableStore, levels: Levels, unit: CompactionUnit | None) -> CompactionUnit | None:
    """The part of a unit that is compacted without emitting changes: what is below the highest level, to the level
    below it; None where nothing is to be done there."""
    if unit is None or unit.output_level < levels.max_level:
        return unit
    files = tuple(file for file in unit.files if file.level < levels.max_level)
    if not files or (len(files) == 1 and files[0].level == levels.max_level - 1):
        return None
    below = CompactionUnit(levels.max_level - 1, files, reason=unit.reason)
    apart = kept_apart(below, levels, store.retract_rule, runs_max=store.options.stop_trigger)
    return apart if apart is not None and apart.output_level < levels.max_level else None
