"""Looks for damage (`invariants`): in the newest snapshot of a table or in all, or in what a commit is about to make.

`check_table` reads what an operator wants to know from the disk, whatever is in memory: hints before the list of
snapshots, as a commit goes the other way; then the manifests, one at a time; then the buckets, as many together as have
`ENTRIES_MAX` entries, each with the list of its folder. Where something is damaged and the snapshot has expired
meanwhile, the next one is looked at instead. In an object store, commits are looked for that another program has
replaced (`lost_commits`).

`check_claim` looks at the buckets of one commit before its snapshot id is claimed. Tests run it before every claim
(`Env.checks_claims`); a program does not, for it reads the live files of appended buckets, which commits do without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from freshet.storage.codec.file_index import INDEX_SUFFIX
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.invariants import (
    RESTORE,
    BucketVersion,
    Damage,
    FileKind,
    bucket_damage,
    commits_are_kept,
    hints_are_not_ahead,
    identifiers_grow,
    ids_are_contiguous,
    recorded_files_are_there,
    records_add_up,
)
from freshet.storage.commit.lost_commits import replaced_commits
from freshet.storage.exceptions import CorruptDataError, NotFoundError, StorageError, UnknownOutcomeError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.io.registry import needs_coordination
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.retract_layers import deletes_with_values
from freshet.storage.metadata.live_files import changelog_entries, data_manifests, grouped_by_bucket
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.table_store import EXPIRED_MAX, TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import HASH_INDEX, BucketId, EntryKind, IndexEntry, ManifestEntry, ManifestFileMeta
from freshet.storage.model.shown import ROWS_MAX, Facts, Shown, facts_html, rows_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import packed_range

ENTRIES_MAX: Final = 20_000
"""Manifest entries held at a time, those of one manifest and of one bucket at least."""


@dataclass(slots=True, repr=False)
class TableCheck(Shown):
    """What was looked at, and the damage found: each once, at the newest snapshot that has it.

    `snapshot_id` is the newest one, None for a table without snapshots; the counts of buckets and files are its own.
    """

    snapshot_id: int | None = None
    snapshot_count: int = 0
    bucket_count: int = 0
    file_count: int = 0
    damage: list[Damage] = field(default_factory=list)
    deleted_values: int = 0
    """Deletes of the newest snapshot that hold values of the row that they removed (`deleted_values`)."""

    def _shown(self) -> Facts:
        yield from (("snapshot", self.snapshot_id), ("snapshots", self.snapshot_count), ("buckets", self.bucket_count))
        yield from (("files", self.file_count), ("damage", str(len(self.damage)) if self.damage else "none"))
        if self.deleted_values:
            yield "deletes with values", self.deleted_values

    def _html(self) -> str:
        rows = [(each.where, each.what, each.remedy) for each in self.damage[:ROWS_MAX]]
        left_out = f"the first {ROWS_MAX} of {len(self.damage):,}" if len(self.damage) > ROWS_MAX else None
        table = rows_html(("where", "damage", "what to do"), rows, left_out=left_out) if rows else ""
        return facts_html(type(self).__name__, self._shown(), table)


def check_table(store: TableStore, *, all_snapshots: bool = False) -> TableCheck:
    """Checks the newest snapshot, or all, and how they follow each other; finds damage of metadata and lost files, not
    what is wrong within a data file. Of data files it reads deletes alone, where these remove rows."""
    for _ in range(EXPIRED_MAX):
        check = _Checker(store).run(all_snapshots=all_snapshots)
        if not check.damage or check.snapshot_id is None or store.snapshots.exists(check.snapshot_id):
            break
    return check


def check_claim(store: TableStore, latest: Snapshot | None, snapshot: Snapshot, change: SnapshotChange) -> None:
    """Raises `AssertionError`, for that is a defect of this program, where the snapshot, which makes the change on top
    of the latest, would break what holds of its buckets, or names new files that are not there."""
    path = store.paths.snapshot(snapshot.id)
    found = list(identifiers_grow(path, latest, snapshot))
    live = store.live.of_buckets(latest, change.buckets)
    delta, moved = grouped_by_bucket(change.entries), _names(change.entries, EntryKind.DELETE)
    index = _of_buckets(store.manifests.read_index_manifest(snapshot.index_manifest))
    for bucket in change.buckets:
        before, entries = live.of_bucket(*bucket), delta.get(bucket, [])
        version = _version(store, snapshot, bucket, [*before, *entries], index.get(bucket, ()))
        if damage := bucket_damage(version):
            known = bucket_damage(_version(store, snapshot, bucket, before))
            found += [each for each in damage if each not in known]
        new = [each for each in entries if each.kind is EntryKind.ADD and each.file.file_name not in moved]
        found += _lost_files(store, snapshot, version.folder, new)
    if found:
        raise AssertionError(
            f"snapshot {snapshot.id} of table {store.location} was not committed, it would break "
            f"{found[0].invariant}: {found[0]}"
        )


class _Checker:
    """One look at a table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        env = store.env.without_cache()  # what is kept locally says nothing of the store
        self._manifests = ManifestStore(
            env, store.paths, store.options, store.partition_types, outside=store.manifests.outside, cache_entries=0
        )
        self._check = TableCheck()
        self._found = self._check.damage
        self._branched_at: int | None = None
        """The first snapshot of a branch."""

    def run(self, *, all_snapshots: bool) -> TableCheck:
        """What there is to say."""
        ids: Sequence[int] = ()
        with self._reads(self._found):
            ids = self._look_at_ids()
        for snapshot_id in reversed(ids if all_snapshots else ids[-1:]):
            found: list[Damage] = []
            with self._reads(found):
                self._look_at_snapshot(self._store.snapshots.fresh(snapshot_id), found)
            if snapshot_id != self._check.snapshot_id and not self._store.snapshots.exists(snapshot_id):
                continue  # expired while we looked
            self._add(found)
            self._check.snapshot_count += 1
        if self._store.claims.rules.looks_for_others or needs_coordination(self._store.location):
            self._add(self._replaced())
        return self._check

    @contextmanager
    def _reads(self, found: list[Damage]) -> Iterator[None]:
        """What cannot be read is damage."""
        try:
            yield
        except (CorruptDataError, NotFoundError, UnknownOutcomeError) as error:
            self._store.check_is_there()
            found.append(_unreadable(error, self._store.location))

    def _look_at_ids(self) -> Sequence[int]:
        snapshots, folder = self._store.snapshots, self._store.paths.snapshot_folder
        tags = {self._store.paths.tag(name): tag.id for name, tag in snapshots.tags.all().items()}
        named = snapshots.hints() | tags
        ids = snapshots.list_ids()
        if any(True for _ in ids_are_contiguous(folder, ids)):
            ids = snapshots.list_ids()  # expiry may have been at work
        self._check.snapshot_id = ids[-1] if ids else None
        self._branched_at = ids[0] if ids and self._store.paths.branch_name is not None else None
        self._found += ids_are_contiguous(folder, ids)
        self._found += hints_are_not_ahead(folder, ids, named)
        with self._reads(self._found):
            self._look_at_identifiers(ids)
        return ids

    def _look_at_identifiers(self, ids: Sequence[int]) -> None:
        for before, after in pairwise(ids):
            with suppress(NotFoundError):  # expired while we looked
                pair = map(self._store.snapshots.snapshot, (before, after))
                self._found += identifiers_grow(self._store.paths.snapshot(after), *pair)

    def _add(self, found: Iterable[Damage]) -> None:
        """Adds what was not found before."""
        known = {(each.invariant, each.where) for each in self._found}
        self._found += [each for each in found if (each.invariant, each.where) not in known]

    def _replaced(self) -> list[Damage]:
        found: list[Damage] = []
        with self._reads(found):
            for lost, instead in replaced_commits(self._store):
                path = self._store.paths.manifest(lost.manifest_list)
                found += commits_are_kept(path, lost.text, lost.rows_text, instead)
        return found

    def _look_at_snapshot(self, snapshot: Snapshot, found: list[Damage]) -> None:
        if snapshot.id == self._branched_at and self._has_no_changelog_any_more(snapshot):
            snapshot = replace(snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None)
        index = self._manifests.read_index_manifest(snapshot.index_manifest)
        manifests = data_manifests(self._manifests, snapshot)
        lost = self._lost_metadata(snapshot, manifests, index)
        found += lost
        if any(damage.where.startswith(f"{self._store.paths.manifest_folder}/") for damage in lost):
            return  # nothing can be said of the files
        totals: dict[bytes, int] = {}
        schema_ids = {snapshot.schema_id}
        row_count, vectors = 0, _of_buckets(index)
        for buckets in self._portions(manifests, vectors):
            for bucket, entries in self._entries_of(manifests, buckets).items():
                total = totals.get(bucket[0])
                version = _version(self._store, snapshot, bucket, entries, vectors.get(bucket, ()), total)
                found += bucket_damage(version)
                found += (lost := list(_lost_files(self._store, snapshot, version.folder, version.live)))
                if snapshot.id == self._check.snapshot_id and bucket[1] >= 0 and not lost:
                    files = [entry.file for entry in version.live]
                    self._check.deleted_values += count_deleted_values(self._store, bucket, files)
                if snapshot.id == self._check.snapshot_id:
                    self._check.bucket_count += bool(version.live)
                    self._check.file_count += len(version.live)
                row_count += sum(file.row_count for file in version.files)
                schema_ids.update(file.schema_id for file in version.files)
                for entry in version.live[:1] if bucket[1] >= 0 else ():
                    totals.setdefault(bucket[0], entry.total_buckets)
        found += records_add_up(self._store.paths.snapshot(snapshot.id), snapshot, row_count)
        lost_schemas = {self._store.paths.schema(each) for each in schema_ids - set(self._store.schemas.list_ids())}
        found += recorded_files_are_there(self._store.location, snapshot.id, dict.fromkeys(sorted(lost_schemas)), {})
        self._look_at_changelog(snapshot, found)

    def _has_no_changelog_any_more(self, snapshot: Snapshot) -> bool:
        """Whether a tag has it and its changelog is gone, which Apache Paimon removes with the snapshot of the tag."""
        name, store = snapshot.changelog_manifest_list, self._store
        if name is None or store.env.file_io.exists(store.paths.manifest(name)):
            return False
        return any(snapshot.is_same(tag) for tag in store.snapshots.tags.all().values())

    def _look_at_changelog(self, snapshot: Snapshot, found: list[Damage]) -> None:
        for bucket, entries in grouped_by_bucket(changelog_entries(self._manifests, snapshot)).items():
            found += _lost_files(self._store, snapshot, self._store.bucket_folder(*bucket), entries)

    def _lost_metadata(
        self, snapshot: Snapshot, manifests: Iterable[ManifestFileMeta], index: Iterable[IndexEntry]
    ) -> list[Damage]:
        paths, file_io = self._store.paths, self._store.env.file_io
        recorded: dict[str, int | None] = {paths.manifest(name): size for name, size in snapshot.manifest_lists}
        recorded |= {paths.manifest(meta.file_name): meta.file_size_bytes for meta in manifests}
        found = {status.path: status.size_bytes for status in file_io.entries(paths.manifest_folder)}
        listed = list(recorded_files_are_there(self._store.location, snapshot.id, recorded, found))
        hashes = FileKind.HASH_INDEX if snapshot.id == self._check.snapshot_id else FileKind.EARLIER_HASH_INDEX
        files: dict[FileKind, dict[str, int | None]] = {FileKind.READ: {}, hashes: {}}
        for entry in index:
            path = paths.index_file(entry.file.file_name, entry.file.external_path)
            kind = hashes if entry.file.index_type == HASH_INDEX else FileKind.READ
            files[kind][path] = entry.file.file_size_bytes
        there = _sizes_of(self._store, paths.index_folder, [path for of_kind in files.values() for path in of_kind])
        for kind, of_kind in files.items():
            listed += recorded_files_are_there(self._store.location, snapshot.id, of_kind, there, kind)
        return listed

    def _portions(
        self, manifests: Iterable[ManifestFileMeta], vectors: Mapping[BucketId, object]
    ) -> Iterator[frozenset[BucketId]]:
        """All buckets, as many together as have few entries; those of a partition after each other."""
        counts = Counter(vectors.keys())
        for meta in manifests:
            counts.update(entry.bucket_id for entry in self._manifests.read_manifest(meta))
        portion: list[BucketId] = []
        size = 0
        for bucket, count in sorted(counts.items()):
            if portion and size + count > ENTRIES_MAX:
                yield frozenset(portion)
                portion, size = [], 0
            portion.append(bucket)
            size += count
        if portion:
            yield frozenset(portion)

    def _entries_of(
        self, manifests: Iterable[ManifestFileMeta], buckets: frozenset[BucketId]
    ) -> Mapping[BucketId, list[ManifestEntry]]:
        entries: dict[BucketId, list[ManifestEntry]] = {bucket: [] for bucket in sorted(buckets)}
        partitions = {partition for partition, _ in buckets}
        for meta in manifests:
            if self._manifests.may_hold(meta, partitions):
                for entry in self._manifests.read_manifest_with(meta, partitions):
                    if entry.bucket_id in buckets:
                        entries[entry.bucket_id].append(entry)
        return entries


def _version(
    store: TableStore,
    snapshot: Snapshot,
    bucket: BucketId,
    entries: Sequence[ManifestEntry],
    index: Sequence[IndexEntry] = (),
    total_buckets: int | None = None,
) -> BucketVersion:
    sort_key = KeyComparator(store.key_types).sort_key if store.schema.has_primary_key else None
    return BucketVersion(snapshot.id, store.bucket_folder(*bucket), bucket[1], entries, index, sort_key, total_buckets)


def _lost_files(
    store: TableStore, snapshot: Snapshot, folder: str, entries: Iterable[ManifestEntry]
) -> Iterator[Damage]:
    """The data files in one bucket, and their side-cars, that are not there as recorded."""
    recorded: dict[str, int | None] = {}
    indexes: dict[str, int | None] = {}
    for entry in entries:
        file, partition = entry.file, store.partition_path(entry.partition)
        for name in file.extra_files:
            of_kind = indexes if name.endswith(INDEX_SUFFIX) else recorded
            of_kind[store.paths.extra_file(partition, entry.bucket, name, file.external_path)] = None
        path = store.paths.data_file(partition, entry.bucket, file.file_name, file.external_path)
        recorded[path] = None if packed_range(file.file_name) is not None else file.file_size_bytes
    found = _sizes_of(store, folder, [*recorded, *indexes])
    yield from recorded_files_are_there(folder, snapshot.id, recorded, found)
    yield from recorded_files_are_there(folder, snapshot.id, indexes, found, FileKind.FILE_INDEX)


def _sizes_of(store: TableStore, folder: str, paths: Collection[str]) -> dict[str, int]:
    """Sizes of those files that are there, most of them in the folder."""
    if not paths:
        return {}
    found = {status.path: status.size_bytes for status in store.env.file_io.entries(folder)}
    for path in paths:
        if path.rpartition("/")[0] != folder:
            with suppress(NotFoundError):
                found[path] = store.env.file_io.size(path)
    return found


def _of_buckets(index: Iterable[IndexEntry]) -> dict[BucketId, list[IndexEntry]]:
    """Index files with deletion vectors, by bucket."""
    found: dict[BucketId, list[IndexEntry]] = {}
    for entry in index:
        if entry.marked_files:
            found.setdefault(entry.bucket_id, []).append(entry)
    return found


def _names(entries: Iterable[ManifestEntry], kind: EntryKind) -> set[str]:
    return {entry.file.file_name for entry in entries if entry.kind is kind}


def _unreadable(error: StorageError, location: str) -> Damage:
    """A metadata file that cannot be read says itself what is wrong."""
    return Damage("metadata_is_readable", error.path or location, str(error), RESTORE.format("the file"))


def count_deleted_values(store: TableStore, bucket: BucketId, files: Iterable[DataFileMeta]) -> int:
    """The number of rows of kind -D in these files that hold values of the row that they removed, in tables where
    deletes remove rows; only files with retracts are read, and of these only what is asked.

    Builds of Freshet before November 2026 wrote them so, and Apache Paimon does. A later row of the key goes on from
    these values, in the merge of both. A full compaction removes such rows; it cannot know of values that have come
    back before.
    """
    rule, found = store.retract_rule, 0
    if rule is None or not rule.removes_rows:
        return 0
    columns = rule.blank_columns
    for file in files:
        if not file.is_delete_free:
            for rows in DataFileRead(store, *bucket, file, columns, system_columns=True).batches():
                found += deletes_with_values(pa.Table.from_batches([rows]), rule, store.schema)
    return found
