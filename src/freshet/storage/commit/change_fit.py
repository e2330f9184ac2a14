"""The part of a change that fits on the latest snapshot: `conflict` with what it looks at, index files, options that
were changed meanwhile, assignments of keys, strict mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.conflict import Conflict, LiveBuckets, bucket_count_conflicts, find_conflicts, looks_up
from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.exceptions import ConflictError, MisfitError, OutdatedAssignmentError
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.overlaps import overlap_error
from freshet.storage.metadata.hash_index_store import index_state
from freshet.storage.metadata.live_files import NO_FILES, LiveFiles, delta_entries, live_entries
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import PlacedUpon
from freshet.storage.model.manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    BucketId,
    EntryKind,
    IndexEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import UNAWARE_BUCKET, ChangelogProducer
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET

_ONE_OF_A_BUCKET: Final = frozenset({HASH_INDEX, DELETION_VECTORS_INDEX})

_KEY: Final = CoreOptions.commit_strict_mode_last_safe_snapshot.key


class ChangeFit:
    """The fit of changes to one table."""

    def __init__(self, store: TableStore, index: ManifestIndex) -> None:
        self._store = store
        self._index = index
        self._sort_key = KeyComparator(store.key_types).sort_key if store.schema.has_primary_key else None
        self._looks_up = looks_up(store.options)

    def part(
        self,
        change: SnapshotChange,
        latest: Snapshot | None,
        manifests: list[ManifestFileMeta],
        outnumbered: Collection[BucketId] = (),
    ) -> tuple[SnapshotChange, tuple[Conflict, ...]]:
        """The part of the change that fits on the snapshot of these manifests, and what keeps the rest from fitting.

        Of a compaction, buckets in conflict are left out, and those `outnumbered`: others have committed rows there as
        new as its own. Rows that waited for their buckets go to all buckets of a partition or to none, and changes of
        keys that move between partitions are emitted of all buckets or of none (`compact.joint_changes`). A conflict of
        any other change raises.
        """
        counts = self._bucket_counts(change, latest, manifests)
        live = self._live(change, latest)
        conflicts = find_conflicts(
            change,
            live.by_bucket,
            bucket_counts=counts,
            sort_key=self._sort_key,
            looks_up=self._looks_up,
            numbers_repeat=self._store.options.sequence_snapshot_ordering,
        )
        has_buckets = self._store.options.bucket != UNAWARE_BUCKET or self._store.schema.has_primary_key
        conflicts += find_index_conflicts(change, self._index_of(latest), live.by_bucket, has_buckets=has_buckets)
        if change.kind is CommitKind.COMPACT:
            conflicts += [Conflict(*bucket, "others have committed rows to it meanwhile") for bucket in outnumbered]
        if not conflicts:
            return change, ()
        self._refuse_damaged(conflicts)
        if change.kind is CommitKind.COMPACT:
            losers = frozenset(conflict.bucket_id for conflict in conflicts)
            if self._store.moves_rows and change.changelog_entries:
                conflicts += [
                    Conflict(*bucket, "another bucket has a conflict, and keys move between the two")
                    for bucket in sorted(change.buckets - losers)
                ]
            for bucket in sorted(_with_their_partition(change, losers) - losers):
                conflicts.append(Conflict(*bucket, "another bucket of the partition has a conflict"))
            return change.without(frozenset(conflict.bucket_id for conflict in conflicts)), tuple(conflicts)
        reasons = "; ".join(f"bucket {conflict.bucket}: {conflict.reason}" for conflict in conflicts[:5])
        raise MisfitError(
            f"table {self._store.location}: the change does not fit on the table as it is now ({reasons}); "
            "nothing was committed, read the table again and repeat the change"
        )

    def _bucket_counts(
        self, change: SnapshotChange, latest: Snapshot | None, manifests: list[ManifestFileMeta]
    ) -> dict[bytes, int]:
        """The number of buckets that the files say which the change leaves in partitions it adds files to."""
        counted = {entry.partition for entry in change.entries if entry.total_buckets > 0}
        if change.kind is CommitKind.OVERWRITE:
            counted = {entry.partition for entry in change.entries if entry.kind is EntryKind.ADD} & counted
            deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
            return {
                each.partition: each.total_buckets
                for each in self._entries(latest, counted)
                if each.identity not in deleted
            }
        counts = self._index.newest_bucket_counts(manifests, counted) if counted else {}
        if bucket_count_conflicts(change, counts):
            counts = {each.partition: each.total_buckets for each in self._entries(latest, counted)}
        return counts

    def _entries(self, latest: Snapshot | None, partitions: Collection[bytes]) -> list[ManifestEntry]:
        return live_entries(self._store.manifests, latest, partition=partitions.__contains__) if partitions else []

    def _refuse_damaged(self, conflicts: Sequence[Conflict]) -> None:
        for conflict in conflicts:
            if conflict.is_damage:
                raise overlap_error(self._store.bucket_folder(*conflict.bucket_id), conflict.reason)

    def _live(self, change: SnapshotChange, latest: Snapshot | None) -> LiveFiles:
        """Live files of the touched buckets; none for a plain append, which cannot conflict with any."""
        if change.kind is CommitKind.APPEND:
            return NO_FILES
        return self._store.live.of_buckets(latest, change.buckets | change.lookups.keys())

    def _index_of(self, latest: Snapshot | None) -> tuple[IndexEntry, ...]:
        return () if latest is None else self._store.manifests.read_index_manifest(latest.index_manifest)

    def next_index(self, change: SnapshotChange, latest: Snapshot | None) -> str | list[IndexEntry] | None:
        """The name of the latest index manifest where it stays true, else the index files of the next one."""
        index = self._index_of(latest)
        if not index and not change.index_entries:
            return None
        following = next_index(change, index, self._live(change, latest).by_bucket)
        return latest.index_manifest if latest is not None and following == list(index) else following


def _with_their_partition(change: SnapshotChange, losers: Collection[BucketId]) -> frozenset[BucketId]:
    """All buckets of the partitions from which rows that waited are taken, where one of them loses."""
    whole = {entry.partition for entry in change.entries if entry.bucket == POSTPONE_BUCKET}
    lost = {partition for partition, _ in losers} & whole
    return frozenset(bucket for bucket in change.buckets if bucket[0] in lost)


def find_index_conflicts(
    change: SnapshotChange, index: Sequence[IndexEntry], live: LiveBuckets, *, has_buckets: bool
) -> list[Conflict]:
    """Conflicts of the index files of the next snapshot, which are those of the latest, less what the change deletes,
    with what it adds: checks 1 to 4. `index` is what is live at the latest snapshot, `live` has the data files of
    touched buckets.

    An index manifest is never inherited without a look. What it says must be true of the files of the next snapshot:

    1. what the change deletes is live, what it adds is not;
    2. of HASH and DELETION_VECTORS a bucket has one file (append tables without buckets: vectors in several), so a
       change that adds one must delete the one there is: another commit may have written it since;
    3. a data file that is deleted takes its deletion vector along: an index file that marks it is deleted, or
       replaced, by the same change. Otherwise the vectors would be counted, and sought, for a file that is not there;
    4. vectors mark live files only, and those of a file are in one index file;
    5. where an overwrite leaves no file in a bucket, the index files of that bucket go with them.

    Everything here takes values and returns values. Source: FORMAT.md §3.4, §3.6, §4.3, §10.
    """
    if not index and not change.index_entries:
        return []
    names = {entry.file.file_name for entry in index}
    deleted = {entry.file.file_name for entry in change.index_entries if entry.kind is EntryKind.DELETE}
    conflicts = []
    for entry in change.index_entries:
        name = entry.file.file_name
        if entry.kind is EntryKind.DELETE and name not in names:
            conflicts.append(_conflict(entry, f"index file {name} is not live any more"))
        elif entry.kind is EntryKind.ADD and name in names:
            conflicts.append(_conflict(entry, f"index file {name} is live already"))
    kept = [entry for entry in index if entry.file.file_name not in deleted]
    added = [entry for entry in change.index_entries if entry.kind is EntryKind.ADD]
    if has_buckets:
        conflicts += _second_of_a_bucket(kept, added)
    return conflicts + _wrong_vectors(change, kept, added, live)


def next_index(change: SnapshotChange, index: Sequence[IndexEntry], live: LiveBuckets) -> list[IndexEntry]:
    """Index files that are live after the change, which has no conflicts."""
    deleted = {entry.file.file_name for entry in change.index_entries if entry.kind is EntryKind.DELETE}
    emptied = _emptied(change, live) if index else frozenset()
    kept = [
        entry
        for entry in index
        if entry.file.file_name not in deleted
        and not (entry.file.index_type in _ONE_OF_A_BUCKET and entry.bucket_id in emptied)
    ]
    return kept + [entry for entry in change.index_entries if entry.kind is EntryKind.ADD]


def _second_of_a_bucket(kept: Iterable[IndexEntry], added: Iterable[IndexEntry]) -> list[Conflict]:
    taken = {_identity(entry): entry for entry in kept if entry.file.index_type in _ONE_OF_A_BUCKET}
    conflicts = []
    for entry in added:
        other = taken.get(_identity(entry))
        if other is not None and entry.file.index_type in _ONE_OF_A_BUCKET:
            conflicts.append(
                _conflict(
                    entry,
                    f"{entry.file.index_type} index file {other.file.file_name} is live, "
                    f"{entry.file.file_name} does not replace it",
                )
            )
        taken[_identity(entry)] = entry
    return conflicts


def _wrong_vectors(
    change: SnapshotChange, kept: Iterable[IndexEntry], added: Iterable[IndexEntry], live: LiveBuckets
) -> list[Conflict]:
    # A change of level keeps the file, and its vector.
    stays = {entry.file.file_name for entry in change.entries if entry.kind is EntryKind.ADD}
    gone = {entry.file.file_name for entry in change.entries if entry.kind is EntryKind.DELETE} - stays
    emptied = _emptied(change, live)
    conflicts = [
        _conflict(entry, f"index file {entry.file.file_name} marks rows of {name}, which the change deletes")
        for entry in kept
        if entry.bucket_id not in emptied
        for name in sorted(entry.marked_files & gone)
    ]
    marked = {name: entry for entry in kept for name in entry.marked_files}
    for entry in added:
        if not entry.marked_files:
            continue
        conflicts += [
            _conflict(
                entry, f"index file {marked[name].file.file_name} marks rows of {name} too, and would not be replaced"
            )
            for name in sorted(entry.marked_files & marked.keys())
        ]
        marked |= dict.fromkeys(entry.marked_files, entry)
        there = {item.file.file_name for item in live.get(entry.bucket_id, {}).values()}
        conflicts += [
            _conflict(entry, f"index file {entry.file.file_name} marks rows of {name}, which is not live any more")
            for name in sorted(entry.marked_files - ((there | stays) - gone))
        ]
    return conflicts


def _emptied(change: SnapshotChange, live: LiveBuckets) -> frozenset[BucketId]:
    """Buckets that an overwrite leaves without a file."""
    if change.kind is not CommitKind.OVERWRITE:
        return frozenset()
    deleted = {entry.identity for entry in change.entries if entry.kind is EntryKind.DELETE}
    filled = {entry.bucket_id for entry in change.entries if entry.kind is EntryKind.ADD}
    touched = {entry.bucket_id for entry in change.entries if entry.kind is EntryKind.DELETE}
    return frozenset(bucket for bucket in touched - filled if not live.get(bucket, {}).keys() - deleted)


def _identity(entry: IndexEntry) -> tuple[bytes, int, str]:
    return entry.partition, entry.bucket, entry.file.index_type


def _conflict(entry: IndexEntry, reason: str) -> Conflict:
    return Conflict(entry.partition, entry.bucket, reason)


def refuse_other_meaning(store: TableStore, change: SnapshotChange, newest_schema_id: int) -> None:
    """Raises `ConflictError` for files of a writer that opened the table before an option that says what rows are there
    was changed: it merged them, and compacted others, as the table does not."""
    added = [entry.file.schema_id for entry in change.entries if entry.kind is EntryKind.ADD]
    written_by = max([store.schema.id, *added]) if change.kind is not CommitKind.APPEND else min(added, default=None)
    if written_by is None or written_by >= newest_schema_id:
        return
    from freshet.storage.metadata.schema_alteration import VECTORS, reinterpreted

    old, new = store.schemas.schema(written_by), store.schemas.schema(newest_schema_id)
    for key in sorted(reinterpreted(old, new)):
        if key == VECTORS or store.schema.has_primary_key:
            raise ConflictError(
                f"table {store.name}: {key} was changed while the files of this commit were written; nothing "
                "was committed. Open the table again and write them again; a pipeline does so when it is started again",
                table=store.name,
                option=key,
            )


def refuse_other_producer(store: TableStore, change: SnapshotChange, newest_schema_id: int) -> None:
    """The check for rows that were written for other options than the table has when they are committed. Raises
    `ConflictError` where the table below applies; reads schemas only where one is newer than the rows.

    Whoever writes rows tells their changes as the schema says that it has: `input` with the rows, the others later. The
    snapshot has the newest schema, and by that one readers look for them.

    | written for | committed at | their changes would be |
    |---|---|---|
    | none, lookup, full-compaction | input | never told |
    | input | lookup, full-compaction | told again by a compaction |

    Such a commit is refused; the same rows, written again, are told once. `Table.alter` refuses the change where rows
    are committed already (`metadata.schema_alteration`). What was written with deletion vectors is refused by a table
    without, and the reverse (`maintenance.vector_switch`): rows would show twice, or not.
    """
    if change.kind is not CommitKind.APPEND or not store.schema.has_primary_key:
        return
    written = {entry.file.schema_id for entry in change.entries if entry.kind is EntryKind.ADD and entry.bucket >= 0}
    older = written - {newest_schema_id}
    if not older:
        return
    new = store.at_schema(newest_schema_id).options.changelog_producer
    for schema_id in sorted(older):
        old = store.at_schema(schema_id).options.changelog_producer
        if new is not ChangelogProducer.NONE and old.emits.at_flush != new.emits.at_flush:
            raise ConflictError(
                f"table {store.name}: its changelog-producer was changed from {old} to {new} while the rows of this "
                "commit were written, and their changes would be told twice or never; nothing was committed. Open the "
                "table again and write them again; a pipeline does so when it is started again",
                table=store.name,
            )


def outdated_partitions(store: TableStore, change: SnapshotChange, latest: Snapshot | None) -> list[bytes]:
    """Partitions in which keys may not belong any more to the dynamic buckets and partitions that they were assigned
    to.

    An assigner gives a new key a bucket where the hash indexes of its partition do not name it. Another writer may have
    given the same key another bucket since: then the key would be in two, and be read twice. So before each claim the
    index files of each partition that rows were assigned in, of all its buckets, are compared with those that the
    assignment began with. Where one came, went or was replaced, the commit is refused.

    Where rows move between partitions, a key may be anywhere, and there are no index files: the commit is refused when
    any snapshot has added or removed rows since the one that the places of its keys were looked up at.

    Source: FORMAT.md §8.3.
    """
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


class StrictMode:
    """The check of one committer by `commit.strict-mode.last-safe-snapshot`, which gives up when others touched the
    same partitions since a snapshot; does nothing where the option is not set.

    | since the safe snapshot another user committed | to a partition of the change | the change may be |
    |---|---|---|
    | COMPACT or OVERWRITE | any bucket | nothing: it is given up |
    | APPEND | a real bucket | anything but an OVERWRITE |

    Snapshots that were looked at are safe from then on. Source: FORMAT.md §3.4.
    """

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
