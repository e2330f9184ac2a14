"""Do keys still belong to the dynamic buckets that they were assigned to?

An assigner gives a new key a bucket where the hash indexes of its partition do not name it. Another writer may have
given the same key another bucket since: then the key would be in two, and be read twice. So before each claim the index
files of each partition that rows were assigned in, of all its buckets, are compared with those that the assignment
began with. Where one came, went or was replaced, the commit is refused.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

from collections.abc import Collection

from freshet.storage.codec.hash_index import index_state
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import OutdatedAssignmentError
from freshet.storage.metadata.hash_index_store import HashIndexStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot


def outdated_partitions(indexes: HashIndexStore, change: SnapshotChange, latest: Snapshot | None) -> list[bytes]:
    """Partitions whose hash indexes are not those that rows of the change were assigned upon."""
    if not change.assigned_upon:
        return []
    by_partition = indexes.files(latest)
    return [
        partition
        for partition, states in sorted(change.assigned_upon.items())
        if states != {index_state(file.file_name for file in by_partition.get(partition, {}).values())}
    ]


def outdated_error(store: TableStore, partitions: Collection[bytes], *, is_certain: bool) -> OutdatedAssignmentError:
    """The error of a commit that is refused."""
    paths = [store.partition_path(partition) for partition in partitions]
    where = f"table {store.location}" + (f", partitions {', '.join(paths[:3])}" if paths[0] else "")
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return OutdatedAssignmentError(
        f"{where}{more}: another writer has added keys to dynamic buckets (bucket=-1) since the rows of this commit "
        "were assigned to theirs, so a new key might be in two; nothing was committed. A query that is started again "
        "runs the batch again; a writer assigns its rows anew at the next commit(). Let one program at a time add keys",
        table=store.name,
        is_certain=is_certain,
    )
