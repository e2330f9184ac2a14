"""Do keys still belong to the dynamic buckets and partitions that they were assigned to?

An assigner gives a new key a bucket where the hash indexes of its partition do not name it. Another writer may have
given the same key another bucket since: then the key would be in two, and be read twice. So before each claim the index
files of each partition that rows were assigned in, of all its buckets, are compared with those that the assignment
began with. Where one came, went or was replaced, the commit is refused.

Where rows move between partitions, a key may be anywhere, and there are no index files: the commit is refused when any
snapshot has added or removed rows since the one that the places of its keys were looked up at.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

from collections.abc import Collection

from freshet.storage.codec.hash_index import index_state
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import OutdatedAssignmentError
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import PlacedUpon
from freshet.storage.model.snapshot import CommitKind, Snapshot


def outdated_partitions(store: TableStore, change: SnapshotChange, latest: Snapshot | None) -> list[bytes]:
    """Partitions in which keys may belong elsewhere by now."""
    if not change.assigned_upon:
        return []
    if store.moves_rows:
        texts = {text for states in change.assigned_upon.values() for text in states}
        is_outdated = any(not _is_unchanged(store.snapshots, PlacedUpon.parsed(text), latest) for text in texts)
        return sorted(change.assigned_upon) if is_outdated else []
    by_partition = store.hash_indexes.files(latest)
    return [
        partition
        for partition, states in sorted(change.assigned_upon.items())
        if states != {index_state(file.file_name for file in by_partition.get(partition, {}).values())}
    ]


def _is_unchanged(snapshots: SnapshotStore, upon: PlacedUpon, latest: Snapshot | None) -> bool:
    """Whether all rows there are were there at that snapshot, and the other way round."""
    latest_id = 0 if latest is None else latest.id
    if upon.snapshot_id > latest_id:
        return False
    if upon.snapshot_id:
        base = snapshots.find(upon.snapshot_id)
        if base is None or base.uuid != upon.uuid:
            return False
    since = [snapshots.find(number) for number in range(upon.snapshot_id + 1, latest_id + 1)]
    return all(each is not None and each.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE) for each in since)


def outdated_error(store: TableStore, partitions: Collection[bytes], *, is_certain: bool) -> OutdatedAssignmentError:
    """The error of a commit that is refused."""
    paths = [store.partition_path(partition) for partition in partitions]
    where = f"table {store.location}" + (f", partitions {', '.join(paths[:3])}" if paths[0] else "")
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    if store.moves_rows:
        return OutdatedAssignmentError(
            f"table {store.location}: another writer has committed rows since the keys of this commit were looked up, "
            "and each of them may be in another partition now; nothing was committed. A query that is started again "
            "runs the batch again; a writer places its rows anew at the next commit(). Let one program at a time write "
            "a table whose rows move between partitions",
            table=store.name,
            is_certain=is_certain,
        )
    return OutdatedAssignmentError(
        f"{where}{more}: another writer has added keys to dynamic buckets (bucket=-1) since the rows of this commit "
        "were assigned to theirs, so a new key might be in two; nothing was committed. A query that is started again "
        "runs the batch again; a writer assigns its rows anew at the next commit(). Let one program at a time add keys",
        table=store.name,
        is_certain=is_certain,
    )
