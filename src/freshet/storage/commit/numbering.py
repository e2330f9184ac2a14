"""Are the rows of an append still numbered above everything live in their buckets?

Of two rows of a key the one with the larger sequence number is the later one. A writer numbers its rows when it flushes
them, above the files of the snapshot that it then looked at; what others commit between that and its own claim may be
numbered as high or higher, and its rows, committed last, would not be seen. So before each claim:

    smallest new number > largest number of what was added to the bucket since the snapshot that it was numbered upon

| snapshots since then | what is read |
|---|---|
| none | nothing |
| some, all there | their deltas |
| some expired | the live files of the buckets |

With `sequence.snapshot-ordering` numbers of writers do not matter: the files that a commit brings get the id of its
snapshot instead, in their entries, and are read with that; what compactions write has it in its rows
(`numbered_by_snapshot`, `files.data_file_reader`).

Source: MERGING.md §1, §1.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.exceptions import NotFoundError
from freshet.storage.metadata.live_files import delta_manifests_at_once, entries_of
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import FileSource
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot


def outnumbered_buckets(store: TableStore, change: SnapshotChange, latest: Snapshot | None) -> frozenset[BucketId]:
    """Buckets in which rows that were committed meanwhile have the number of a new row, or a larger one."""
    if latest is None:
        return frozenset()
    waiting = {bucket: at for bucket, at in change.numbered_at.items() if at < latest.id}
    if not waiting:
        return frozenset()
    largest = _largest_added(store, waiting, latest)
    smallest: dict[BucketId, int] = {}
    for entry in change.entries:
        if entry.kind is EntryKind.ADD and entry.bucket_id in largest:
            number = entry.file.min_sequence_number
            smallest[entry.bucket_id] = min(smallest.get(entry.bucket_id, number), number)
    return frozenset(bucket for bucket, number in smallest.items() if number <= largest[bucket])


def numbered_by_snapshot(change: SnapshotChange, snapshot_id: int) -> SnapshotChange:
    """The change with its new rows numbered by the snapshot that is to be; compactions keep the numbers of rows, and
    so does what a rescale writes."""
    if change.kind is CommitKind.COMPACT:
        return change
    entries = tuple(
        replace(
            entry,
            file=replace(entry.file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id),
        )
        if entry.kind is EntryKind.ADD and entry.file.file_source is not FileSource.COMPACT
        else entry
        for entry in change.entries
    )
    return replace(change, entries=entries)


def _largest_added(store: TableStore, waiting: Mapping[BucketId, int], latest: Snapshot) -> dict[BucketId, int]:
    """Of each bucket that got rows since its snapshot: the largest number of them, or a larger one that lives."""
    largest: dict[BucketId, int] = {}
    try:
        ids = range(min(waiting.values()) + 1, latest.id + 1)
        followed = [latest if each == latest.id else store.snapshots.snapshot(each) for each in ids]
        # Rows that were compacted keep their numbers; those that had waited for their bucket get them there.
        if not store.options.has_postponed_buckets:
            followed = [snapshot for snapshot in followed if snapshot.commit_kind is not CommitKind.COMPACT]
        since = [{bucket for bucket, at in waiting.items() if at < snapshot.id} for snapshot in followed]
        for buckets, delta in zip(since, _deltas(store, followed, since), strict=True):
            _note(largest, (entry for entry in delta if entry.bucket_id in buckets))
    except NotFoundError:
        live = store.live.of_buckets(latest, waiting.keys()).by_bucket
        for bucket in waiting:
            _note(largest, live.get(bucket, {}).values())
    return largest


def _deltas(
    store: TableStore, snapshots: Sequence[Snapshot], buckets: Sequence[Collection[BucketId]]
) -> list[list[ManifestEntry]]:
    """Of each commit, what it changed in its buckets, and maybe in others."""
    manifests = [
        [manifest for manifest in of_commit if _may_hold(store, manifest, wanted)]
        for of_commit, wanted in zip(delta_manifests_at_once(store.manifests, snapshots), buckets, strict=True)
    ]
    with store.manifests.ahead(manifest for of_commit in manifests for manifest in of_commit):
        return [entries_of(store.manifests, of_commit) for of_commit in manifests]


def _may_hold(store: TableStore, manifest: ManifestFileMeta, buckets: Collection[BucketId]) -> bool:
    low, high = manifest.min_bucket, manifest.max_bucket
    if low is not None and high is not None and not any(low <= bucket <= high for _, bucket in buckets):
        return False
    return store.manifests.may_hold(manifest, {partition for partition, _ in buckets})


def _note(largest: dict[BucketId, int], entries: Iterable[ManifestEntry]) -> None:
    for entry in entries:
        if entry.kind is EntryKind.ADD:
            number = entry.file.max_sequence_number
            largest[entry.bucket_id] = max(largest.get(entry.bucket_id, number), number)
