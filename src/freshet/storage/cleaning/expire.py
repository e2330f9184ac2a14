"""Takes away old snapshots, and the files that only they name.

A round plans first, then deletes in this order:

1. what the snapshots say of their commits goes into the history (`metadata.expired_snapshots`); copies of those whose
   changelog stays; snapshot files, oldest first, and the EARLIEST hint: from here on
   no reader can ask for what follows;
2. data files that the deltas of (begin, end] deleted, and changelog files of [begin, end), bucket by bucket, with the
   folders that became empty (`snapshot.clean-empty-directories`);
3. manifests, lists, index files and statistics that only expired snapshots name.

Between 1 and 2 the tags are looked at again: whoever makes a tag looks for its snapshot afterwards (`tags.changes`).
So either sees the other, and what a tag names that came meanwhile stays. After them the other lines are: a branch may
have been made of such a tag, and the tag be gone.

Each folder is one request. A round after a commit costs a process that has made one before seven calls to see what is
kept, one for the hint, and the deletions.

So a snapshot that can be seen can be read, and a crash leaves nothing but orphans. If a snapshot of the line that
expires or a tag of it cannot be read, nothing is deleted at all. `cleaning.expiry_plan` says what is kept.

**Changelogs that outlive their snapshots** (`changelog.num-retained.*`, `changelog.time-retained`): before a snapshot
file goes its copy is written to changelog/, and what its changes need stays: changelog files with their manifests; of a
table without a changelog producer the data files that appends wrote, and all manifests. `ChangelogExpiry` takes them
away when their time has come, and when the options do not ask for them any more: then, of the rounds after commits,
those that let snapshots expire look for them.

Source: FORMAT.md §12, §12.1 (there snapshot files go last).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.cleaning.expire_changelogs import ChangelogExpiry, Expired, changelog_retention
from freshet.storage.cleaning.expiry_plan import ExpiryPlan, ExpiryPlanner, Retention, check_whole, expire_end
from freshet.storage.cleaning.named_files import (
    delete_data,
    delete_metadata,
    named_index_of,
    named_lately,
    not_deleted,
    without_names,
)
from freshet.storage.cleaning.partition_expiry import expire_partitions_after_commit
from freshet.storage.exceptions import MissingFileError, NotFoundError, StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.expired_snapshots import JOIN_EVERY
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import ids_text, size_text, time_text
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import CommitKind, Snapshot

_LOG: Final = logging.getLogger(__name__)


class Holder(Frozen):
    """A consumer without which more snapshots would have expired: from the one on that it wants next."""

    consumer: str
    next_snapshot_id: int
    moved_ms: int
    """When it read on the last time (epoch milliseconds)."""
    snapshot_count: int
    data_bytes: int
    """Data and changelog files that would have gone, those of later consumers among them."""

    def __str__(self) -> str:
        what = "1 snapshot" if self.snapshot_count == 1 else f"{self.snapshot_count:,} snapshots"
        size, since = size_text(self.data_bytes), time_text(self.moved_ms)
        return f"consumer {self.consumer!r} at snapshot {self.next_snapshot_id} since {since} ({what}, {size})"


@dataclass(frozen=True, slots=True, repr=False)
class ExpireResult(Shown):
    """Ids that expired, or would (`is_dry_run`), and how many files went with them (or failed to)."""

    snapshot_ids: tuple[int, ...] = ()
    data_file_count: int = 0
    metadata_file_count: int = 0
    failed_delete_count: int = 0
    changelog_ids: tuple[int, ...] = ()
    """Changelogs that had outlived their snapshots and expired now."""
    held_by: tuple[Holder, ...] = ()
    """Consumers without which more snapshots would have expired; the one that is furthest behind first. Known of expiry
    that was asked for, not of that after commits."""
    is_dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("snapshots", ids_text(self.snapshot_ids) or "none"), ("data files", self.data_file_count))
        yield from (("metadata files", self.metadata_file_count), ("not deleted", self.failed_delete_count))
        yield from (("changelogs", ids_text(self.changelog_ids)), ("only tried", self.is_dry_run))
        yield ("held back by", ", ".join(map(str, self.held_by)))


def expire_snapshots(
    store: TableStore,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    time_retained_ms: int | None = None,
    limit: int | None = None,
    is_dry_run: bool = False,
) -> ExpireResult:
    """Expires what the arguments allow; those left out come from the options of the table, the limit is unbounded.

    `time_retained_ms` is an age: snapshots whose successor is younger stay, unless there are more than `retain_max`.
    A dry run counts files that an interrupted round has removed as if they were there, twice those that a changelog
    names which goes too, and leaves out changelogs that this round would keep.
    """
    store.claims.check_writable()
    store.check_is_there()
    check_whole(retain_max, retain_min, time_retained_ms, limit)
    options = store.options
    if retain_min is None:
        retain_min = options.snapshot_num_retained_min
        if retain_max is not None:
            retain_min = min(retain_min, retain_max)
    if retain_max is None:
        retain_max = options.snapshot_num_retained_max
        if retain_max is not None:
            retain_max = max(retain_max, retain_min)
    if time_retained_ms is None:
        time_retained_ms = options.snapshot_time_retained_ms
    retention = Retention(retain_min, retain_max, time_retained_ms, limit)
    return _Expiry(store, is_dry_run=is_dry_run).run(retention)


def expire_after_commit(store: TableStore, latest: Snapshot) -> ExpireResult:
    """The bounded round after a commit, by the options of the table; `latest` is the snapshot of that commit."""
    options = store.options
    retention = Retention(
        options.snapshot_num_retained_min,
        options.snapshot_num_retained_max,
        options.snapshot_time_retained_ms,
        options.snapshot_expire_limit,
    )
    return _Expiry(store).run(retention, latest)


def expire_later(
    store: TableStore, latest: Snapshot, before: Callable[[TableStore, Snapshot], object] | None = None
) -> None:
    """Expires partitions, then snapshots, in the background, not where the table is write-only, and with `bucket=-2`
    only after compactions. Failures are logged: the commit is there. `before` is done before; where it fails nothing
    expires."""
    is_compaction = latest.commit_kind is CommitKind.COMPACT
    if store.options.write_only or (store.options.has_postponed_buckets and not is_compaction):
        return

    def expire() -> None:
        try:
            if before is not None:
                before(store, latest)
            expire_after_commit(store, expire_partitions_after_commit(store, latest))
        except StorageError as error:
            _LOG.warning("table %s: snapshots were not expired: %s", store.location, error)

    store.env.run_later(store.location, expire)


class _Expiry:
    """One round."""

    def __init__(self, store: TableStore, *, is_dry_run: bool = False) -> None:
        self._store = store
        self._is_dry_run = is_dry_run
        index = named_index_of(store.manifests)
        self._planner = ExpiryPlanner(store, index)
        self._changelogs = ChangelogExpiry(store, index, self._min_next, is_dry_run=is_dry_run)
        self._has_copies = True
        """Whether there may be changelogs that were kept, of a table whose options keep none."""

    def run(self, retention: Retention, latest: Snapshot | None = None) -> ExpireResult:
        """One round, planned again where tags or snapshots that it looked at were removed meanwhile."""
        seen = None
        while True:
            try:
                return self._run_once(retention, latest)
            except (NotFoundError, MissingFileError):
                there = self._store.snapshots.earliest_id(), self._store.snapshots.tags.all()
                if there == seen:
                    raise
                seen = there

    def _run_once(self, retention: Retention, latest: Snapshot | None) -> ExpireResult:
        store, is_asked = self._store, latest is None
        if store.options.consumer_expiration_time_ms is not None and not self._is_dry_run:
            store.consumers.expire(store.options.consumer_expiration_time_ms)
        latest = latest or store.snapshots.latest()
        earliest = store.snapshots.earliest()
        if latest is None or earliest is None:
            return ExpireResult(is_dry_run=self._is_dry_run)
        consumer_next = self._consumer_next()
        end = self._end(retention, earliest, latest, consumer_next)
        free_end = self._end(retention, earliest, latest, None) if is_asked else end
        held_by = self._holders(max(end, earliest.id), free_end, latest)
        gone = Expired()
        if not self._keeps_changelogs and (is_asked or end > earliest.id):
            copies = store.changelogs.list_ids()
            gone = self._changelogs.release(copies, retention.limit, latest)
            self._has_copies = len(gone.ids) < len(copies)
        expired = self._expire_snapshots(earliest, end, latest)
        if self._keeps_changelogs:
            gone = self._changelogs.expire(changelog_retention(store, retention.limit), latest)
        data, metadata = (*expired.data, *gone.data), (*expired.metadata, *gone.metadata)
        return ExpireResult(
            expired.ids,
            data_file_count=sum(each.deleted_count for each in data),
            metadata_file_count=sum(each.deleted_count for each in metadata),
            failed_delete_count=sum(each.failed_count for each in (*data, *metadata)),
            changelog_ids=gone.ids,
            held_by=held_by,
            is_dry_run=self._is_dry_run,
        )

    @property
    def _keeps_changelogs(self) -> bool:
        return self._store.options.changelog_is_decoupled

    def _end(self, retention: Retention, earliest: Snapshot, latest: Snapshot, consumer_next: int | None) -> int:
        return expire_end(
            retention,
            earliest=earliest.id,
            latest=latest.id,
            now_ms=self._store.env.now_ms(),
            consumer_next=consumer_next,
            time_of=self._time_of,
        )

    def _expire_snapshots(self, earliest: Snapshot, end: int, latest: Snapshot) -> Expired:
        store = self._store
        if end <= earliest.id:
            if not self._is_dry_run and not store.env.file_io.exists(store.paths.earliest_hint):
                store.snapshots.write_earliest_hint(earliest.id, is_oldest=True)
            return Expired()
        plan = self._planner.plan(earliest.id, end, latest, has_copies=self._has_copies)
        if self._is_dry_run:
            return Expired.planned(plan.snapshot_ids, plan.data_paths, plan.metadata_paths)
        if plan.late_ids:
            self._remove_late_claims(plan)
        if plan.end is None:
            return Expired()
        store.env.reach(CrashPoint.EXPIRE_PLANNED)
        return self._run(plan, plan.end)

    def _consumer_next(self) -> int | None:
        options = self._store.options
        wanted = None if options.consumer_changelog_only else self._min_next()
        # What an overwrite took away is read of the state before it.
        return wanted - 1 if wanted is not None and options.streaming_read_overwrite else wanted

    def _holders(self, end: int, free_end: int, latest: Snapshot) -> tuple[Holder, ...]:
        """Consumers that want something of [end, free_end), which would have expired without them."""
        if end >= free_end:
            return ()
        before = 1 if self._store.options.streaming_read_overwrite else 0
        sizes = self._planner.plan(end, free_end, latest, has_copies=self._has_copies).data_bytes
        holders = []
        for each in self._store.consumers.all(within_ms=self._within_ms):
            first = max(end, each.next_snapshot_id - before)
            held_bytes = sum(size for last, size in sizes if last >= first)
            if first < free_end:
                count = free_end - first
                holders.append(Holder(each.name, each.next_snapshot_id, each.moved_ms, count, held_bytes))
        return tuple(sorted(holders, key=lambda each: (each.next_snapshot_id, each.consumer)))

    def _min_next(self) -> int | None:
        return self._store.consumers.min_next(within_ms=self._within_ms)

    @property
    def _within_ms(self) -> int | None:
        """A dry run passes over the consumers that a round would remove."""
        return self._store.options.consumer_expiration_time_ms if self._is_dry_run else None

    def _time_of(self, snapshot_id: int) -> int | None:
        snapshot = self._planner.find(snapshot_id)
        return None if snapshot is None else snapshot.time_ms

    def _remove_late_claims(self, plan: ExpiryPlan) -> None:
        store = self._store
        store.removal.delete_all([store.paths.snapshot(snapshot_id) for snapshot_id in plan.late_ids])
        for snapshot_id in plan.late_ids:
            store.snapshots.forget(snapshot_id)

    def _keep_history(self, expired: Sequence[Snapshot]) -> None:
        """Where it fails the snapshots go all the same: on a disk that is full nothing else makes room."""
        store, retained_ms = self._store, self._store.options.history_retained_ms
        if not expired or not retained_ms:
            return
        try:
            store.history.keep(expired)
            store.env.reach(CrashPoint.EXPIRE_HISTORY_KEPT)
            if expired[0].id // JOIN_EVERY != (expired[-1].id + 1) // JOIN_EVERY:
                store.history.tidy(retained_ms)
        except StorageError as error:
            _LOG.warning("table %s: the history of its commits was not kept: %s", store.location, error)

    def _run(self, plan: ExpiryPlan, end: int) -> Expired:
        store = self._store
        self._keep_history(plan.expired)
        for snapshot in plan.copies:
            store.changelogs.keep(snapshot)
        if plan.copies:
            store.changelogs.write_latest_hint(plan.copies[-1].id)
            store.env.reach(CrashPoint.EXPIRE_CHANGELOGS_KEPT)
        # Oldest first, and none after one that stays: the ids that are left must have no gap.
        expired = [store.paths.snapshot(snapshot_id) for snapshot_id in plan.snapshot_ids]
        gone = store.removal.delete_all(expired, in_turn=True)
        for snapshot_id in plan.snapshot_ids:
            store.snapshots.forget(snapshot_id)
        if gone.failed_count:  # a reader may still open what they name
            ids = f"{plan.snapshot_ids[0]} to {plan.snapshot_ids[-1]}"
            raise not_deleted(f"snapshots {ids}", gone, store.paths.snapshot_folder)
        store.snapshots.write_earliest_hint(end, is_oldest=True)
        store.env.reach(CrashPoint.EXPIRE_SNAPSHOTS_REMOVED)
        late = named_lately(store, plan.outside, end=end)
        data = delete_data(store, without_names(plan.data_paths, late))
        store.env.reach(CrashPoint.EXPIRE_DATA_REMOVED)
        metadata = delete_metadata(store, *without_names([plan.metadata_paths], late))
        # What is in memory of them stays until it is pushed out: a writer of this process may build on what expired.
        return Expired(plan.snapshot_ids, tuple(data), tuple(metadata))
