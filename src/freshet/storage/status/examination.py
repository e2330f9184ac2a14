"""What the rules of `findings` decide over: a status, and what more is known of the table, from its files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from freshet._frozen import Frozen
from freshet.storage.cleaning.expiry_plan import Retention, expire_end
from freshet.storage.commit.foreign_writers import ADOPTED_PROPERTY
from freshet.storage.commit.last_commits import COMMITS_PROPERTY
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.registry import needs_coordination
from freshet.storage.maintenance.compaction_plan import levels_of
from freshet.storage.merge.overlaps import overlapping_levels
from freshet.storage.metadata.live_files import BucketFiles
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.status.batches import HOUR_MS
from freshet.storage.status.observe import SNAPSHOTS_MAX, observed
from freshet.storage.status.table_status import TableDetail, TableStatus


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
    unmerged_rows: int
    """Rows of a bucket whose files are not read as they are: versions of one key, or marked as deleted."""


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


def examined(store: TableStore) -> Examination:
    """The table now. Raises `NotFoundError` where it was dropped meanwhile."""
    status = observed(store)
    assert status.detail is not None
    latest = store.snapshots.latest()
    newest = () if latest is None else _newest(store, latest)
    rules = store.claims.rules
    has_coordination = rules.coordination is not None or not needs_coordination(store.location)
    held, holder = (0, None) if latest is None else _held(store, status.detail, latest)
    off_ms, writer = _clock_off(newest, status.observed_ms)
    return Examination(
        status=status,
        detail=status.detail,
        options=store.options,
        buckets=store.at_latest(partial(_buckets, store)),
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
    )


def _newest(store: TableStore, latest: Snapshot) -> Sequence[Snapshot]:
    ids = [each for each in store.snapshots.list_ids() if latest.id - SNAPSHOTS_MAX < each <= latest.id]
    found = [store.snapshots.known_or_find(each) for each in ids]
    return [each for each in found if each is not None]


def _foreign(newest: Sequence[Snapshot]) -> int:
    """Those before the table was adopted are known."""
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


def _buckets(store: TableStore, snapshot: Snapshot | None) -> tuple[BucketFacts, ...]:
    if snapshot is None:
        return ()
    marking = store.manifests.marking_files(snapshot.index_manifest)
    return tuple(
        _bucket(store, store.partition_path(partition), bucket, entries, is_marked=(partition, bucket) in marking)
        for (partition, bucket), entries in store.live.at(snapshot).by_bucket.items()
    )


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
        unmerged_rows=0 if is_merged else sum(file.row_count for file in files),
    )


def _lacks_statistics(file: DataFileMeta) -> bool:
    return file.row_count > 0 and file.value_stats_cols == ()
