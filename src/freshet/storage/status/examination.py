"""What the rules of `findings` decide over: a status, and what more is known of the table, from its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.cleaning.expiry_plan import Retention, expire_end
from freshet.storage.cleaning.orphan_files import LOOK_FILES_MAX, LOOK_FOLDERS_MAX, files_at_a_look, orphans_at_a_look
from freshet.storage.codec.commit_facts import parse_facts
from freshet.storage.commit.foreign_writers import ADOPTED_PROPERTY
from freshet.storage.commit.iceberg_lag import snapshots_behind
from freshet.storage.commit.last_commits import COMMITS_PROPERTY
from freshet.storage.commit.table_check import count_deleted_values
from freshet.storage.exceptions import NotFoundError, StorageError
from freshet.storage.files.data_file_paths import data_file_path
from freshet.storage.io.registry import needs_coordination
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.lookup.store_cache import StoreCache
from freshet.storage.maintenance.compaction_plan import levels_of
from freshet.storage.merge.overlaps import overlapping_levels
from freshet.storage.metadata.live_files import BucketFiles
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.status.observe import SNAPSHOTS_MAX, observed
from freshet.storage.status.table_status import HOUR_MS, TableDetail, TableStatus

DELETE_FILES_MAX: Final = 8
"""Files with deletes that are read."""
DELETE_FILE_BYTES_MAX: Final = 64 << 20
LOST_FILES_MAX: Final = 16
"""Files that are looked for one by one where no folder lists them."""


class BucketFacts(Frozen):
    """The live files of one bucket."""

    partition: str
    bucket: int
    total_buckets: int
    """Of its partition; not above 0 where there is no fixed number."""
    size_bytes: int
    files: int
    small_files: int
    """Those that are smaller than compaction leaves alone."""
    files_without_statistics: int
    overlapping_levels: int
    files_of_old_version: int
    """Those that do not say how many deletes they have."""
    unmerged_rows: int
    """Rows of a bucket whose files are not read as they are: versions of one key, or marked as deleted."""


class LookupRoom(Frozen):
    """The store of the largest file against the room for it on this machine."""

    needed_bytes: int
    room_bytes: int


class Examination(Frozen):
    """A table at a moment, as far as rules ask for it."""

    status: TableStatus
    detail: TableDetail
    options: CoreOptions
    buckets: tuple[BucketFacts, ...]
    held_snapshots: int
    """Snapshots that only consumers keep from expiring."""
    holder: str | None
    """The consumer that is furthest behind of those."""
    has_compactor: bool
    """Whether anybody compacted in the last hour, in as many commits of it as are looked at."""
    oldest_readable_id: int | None
    """The first snapshot whose changes are still there, in a snapshot or in a changelog that outlived it."""
    has_coordination: bool
    """Whether the writers exclude each other: by the store, or by the way that was chosen."""
    foreign_commits: int
    """Of the newest snapshots those of other programs, in a store where their commits can replace ours."""
    clock_off_ms: int
    """How far one of the newest snapshots is ahead of the one after it, or the newest of the clock here. Freshet makes
    no snapshot older than the one before it: of its writers this shows until the other clocks have caught up."""
    clock_writer: str
    """Who made the snapshot that is ahead."""
    rivals: tuple[str, ...]
    """The users whose commits of the last hour met others most often, two at most."""
    orphans: tuple[int, int]
    """Files that nothing names, and their bytes, as far as a bounded look finds them."""
    lost_files: tuple[str, ...]
    """Data files of the newest snapshot that are not there, of as many as are looked for."""
    deletes_with_values: int
    """In as many files as are read for it."""
    iceberg_behind: int
    """Snapshots after the newest that Iceberg's readers see; 0 of a table without metadata for them."""
    lookup_stores: LookupRoom | None
    """None where no lookups are made, or none of them by stores."""


def examined(store: TableStore) -> Examination:
    """The table now. Raises `NotFoundError` where it was dropped meanwhile."""
    status = observed(store)
    assert status.detail is not None
    latest = store.snapshots.latest()
    newest = () if latest is None else _newest(store, latest)
    rules = store.claims.rules
    buckets, live = store.at_latest(partial(_buckets, store))
    has_coordination = rules.coordination is not None or not needs_coordination(store.location)
    held, holder = (0, None) if latest is None else _held(store, status.detail, latest)
    off_ms, writer = _clock_off(newest, status.observed_ms)
    found = files_at_a_look(store)
    return Examination(
        status=status,
        detail=status.detail,
        options=store.options,
        buckets=buckets,
        held_snapshots=held,
        holder=holder,
        has_compactor=any(
            each.commit_kind is CommitKind.COMPACT and each.time_ms >= status.observed_ms - HOUR_MS for each in newest
        ),
        oldest_readable_id=min([*store.snapshots.list_ids()[:1], *store.changelogs.list_ids()], default=None),
        has_coordination=has_coordination,
        foreign_commits=_foreign(newest) if rules.looks_for_others or not has_coordination else 0,
        clock_off_ms=off_ms,
        clock_writer=writer,
        rivals=_rivals(newest, status.observed_ms),
        orphans=orphans_at_a_look(store, found, {file.file_name for _, files in live for file in files}),
        lost_files=_lost(store, live, {each.name for each in found}),
        deletes_with_values=_deletes_with_values(store, live),
        iceberg_behind=0 if latest is None else snapshots_behind(store, latest),
        lookup_stores=_lookup_room(store, live),
    )


def _newest(store: TableStore, latest: Snapshot) -> Sequence[Snapshot]:
    ids = [each for each in store.snapshots.list_ids() if latest.id - SNAPSHOTS_MAX < each <= latest.id]
    found = [store.snapshots.known_or_find(each) for each in ids]
    return [each for each in found if each is not None]


def _foreign(newest: Sequence[Snapshot]) -> int:
    """Foreign snapshots; those before the table was adopted are known."""
    said = [each.properties or {} for each in newest]
    adopted = max((number for number, each in enumerate(said) if ADOPTED_PROPERTY in each), default=0)
    return sum(COMMITS_PROPERTY not in each for each in said[adopted:])


def _clock_off(newest: Sequence[Snapshot], now_ms: int) -> tuple[int, str]:
    later_ms = [*(each.time_ms for each in newest[1:]), now_ms]
    ahead = [(each.time_ms - later, each.commit_user) for each, later in zip(newest, later_ms, strict=False)]
    off_ms, writer = max(ahead, default=(0, ""))
    return max(0, off_ms), writer


def _held(store: TableStore, detail: TableDetail, latest: Snapshot) -> tuple[int, str | None]:
    options, earliest = store.options, detail.history.earliest_id
    consumers = (
        () if options.consumer_changelog_only else store.consumers.all(within_ms=options.consumer_expiration_time_ms)
    )
    if not consumers or earliest is None:
        return 0, None
    last = min(consumers, key=attrgetter("next_snapshot_id"))
    least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
    retention = Retention(
        least, None if most is None else max(least, most), options.snapshot_time_retained_ms, limit=None
    )
    free_end = expire_end(
        retention,
        earliest=earliest,
        latest=latest.id,
        now_ms=store.env.now_ms(),
        consumer_next=None,
        time_of=lambda snapshot_id: _time_of(store, snapshot_id),
    )
    return max(0, free_end - max(earliest, last.next_snapshot_id)), last.name


def _time_of(store: TableStore, snapshot_id: int) -> int | None:
    try:
        return store.snapshots.snapshot(snapshot_id).time_ms
    except NotFoundError:
        return None


def _rivals(newest: Sequence[Snapshot], now_ms: int) -> tuple[str, ...]:
    met: Counter[str] = Counter()
    for each in newest:
        facts = parse_facts(each.properties) if each.time_ms >= now_ms - HOUR_MS else None
        if facts is not None:
            met[each.commit_user] += facts.conflicts
    return tuple(user for user, conflicts in met.most_common(2) if conflicts)


Live = Sequence[tuple[BucketId, Sequence[DataFileMeta]]]


def _buckets(store: TableStore, snapshot: Snapshot | None) -> tuple[tuple[BucketFacts, ...], Live]:
    if snapshot is None:
        return (), ()
    marking = store.manifests.marking_files(snapshot.index_manifest)
    live = store.live.at(snapshot).by_bucket
    facts = tuple(
        _bucket(store, store.partition_path(place[0]), place[1], entries, is_marked=place in marking)
        for place, entries in live.items()
    )
    return facts, [(place, [entry.file for entry in entries.values()]) for place, entries in live.items()]


def _bucket(store: TableStore, partition: str, bucket: int, entries: BucketFiles, *, is_marked: bool) -> BucketFacts:
    files = [entry.file for entry in entries.values()]
    is_tree = store.schema.has_primary_key and bucket >= 0
    levels = levels_of(store, files) if is_tree else None
    is_merged = levels is None or (
        levels.run_count <= 1 and not is_marked and all(file.is_delete_free for file in files)
    )
    return BucketFacts(
        partition=partition,
        bucket=bucket,
        total_buckets=next(iter(entries.values())).total_buckets,
        size_bytes=sum(file.file_size_bytes for file in files),
        files=len(files),
        small_files=sum(file.file_size_bytes < store.options.compaction_file_size_bytes for file in files),
        files_without_statistics=sum(map(_lacks_statistics, files)),
        overlapping_levels=0 if levels is None else len(overlapping_levels(levels)),
        files_of_old_version=sum(file.delete_row_count is None for file in files) if is_tree else 0,
        unmerged_rows=0 if is_merged else sum(file.row_count for file in files),
    )


def _lost(store: TableStore, live: Live, found_names: Collection[str]) -> tuple[str, ...]:
    """Lost files: those that were not listed are looked for one by one, as they may lie elsewhere, or have been removed
    meanwhile by who compacted and let the snapshot expire."""
    if len(live) > LOOK_FOLDERS_MAX or len(found_names) >= LOOK_FILES_MAX:
        return ()
    files = [(place, file) for place, files in live for file in files if file.file_name not in found_names]
    paths = {file.file_name: data_file_path(store, *place, file) for place, file in files[:LOST_FILES_MAX]}
    lost = {name: path for name, path in paths.items() if not store.env.file_io.exists(path)}
    if not lost:
        return ()
    _, live_now = store.at_latest(partial(_buckets, store))
    names_now = {file.file_name for _, files in live_now for file in files}
    return tuple(path for name, path in lost.items() if name in names_now)


def _lacks_statistics(file: DataFileMeta) -> bool:
    return file.row_count > 0 and file.value_stats_cols == ()


def _deletes_with_values(store: TableStore, live: Live) -> int:
    """Deletes with values, in the smallest files that have deletes: that rows come back shows in any of them."""
    if store.retract_rule is None or not store.retract_rule.removes_rows:
        return 0
    files = [(file.file_size_bytes, place, file) for place, files in live for file in files if file.delete_row_count]
    smallest = sorted(files, key=itemgetter(0))[:DELETE_FILES_MAX]
    return sum(
        count_deleted_values(store, place, [file])
        for size_bytes, place, file in smallest
        if size_bytes <= DELETE_FILE_BYTES_MAX
    )


def _lookup_room(store: TableStore, live: Live) -> LookupRoom | None:
    if not store.options.needs_lookup:
        return None
    files = [(file.file_size_bytes, place, file) for place, files in live for file in files if file.level > 0]
    if not files:
        return None
    _, (partition, bucket), file = max(files, key=itemgetter(0))
    try:
        room = StoreCache(store, partition, bucket, LookupMetrics()).room_for(file)
    except StorageError:
        return None  # the folder of another machine
    return None if room is None else LookupRoom(*room)
