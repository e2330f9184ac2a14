"""Makes one change visible as the next snapshot: an exclusive create of `snapshot-N`, tried again until it is won.

One round:

1. read the latest snapshot; if an earlier round ended without an answer, look whether its snapshot is there;
2. ask the identity of the commit against the history that this snapshot carries (a replay may have won meanwhile);
3. check conflicts; a compaction gives way bucket by bucket, anything else raises;
4. write delta manifests, merge old manifests, write both manifest lists, build the snapshot;
5. create `snapshot-N` exclusively. Won: write the LATEST hint. Lost: remove what only this round named, wait, again.

| crash or error           | left behind                 | who deals with it                                      |
|--------------------------|-----------------------------|--------------------------------------------------------|
| before 5                 | manifests that nobody names | orphan cleaning                                        |
| in 5, no answer          | perhaps the snapshot        | the next round by its uuid, the replay by its identity |
| after 5, before the hint | a hint that is too low      | every reader                                           |

An outcome that is not known deletes nothing. Data files are never deleted here. Source: table format §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from storage.commit.changes import SnapshotChange
from storage.commit.conflict import Conflict, SortKey, bucket_count_conflicts, find_conflicts
from storage.commit.identity import (
    COMMITS_PROPERTY,
    FIRST_SNAPSHOT_ID,
    CommitHistory,
    CommitTrace,
    history_of,
    history_to_text,
    is_committed,
)
from storage.commit.manifest_index import index_of
from storage.commit.manifest_merge import MergeRule
from storage.commit.manifest_rewrite import MergedManifests, merge_manifests
from storage.env import CrashPoint
from storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StorageError,
    UnknownOutcomeError,
)
from storage.files.manifest_scan import NO_FILES, data_manifests
from storage.model.manifest import ManifestFileMeta
from storage.model.snapshot import CommitKind, Snapshot
from storage.table_store import TableStore

WAIT_FACTOR_MAX: Final = 0.2
"""Share by which jitter lengthens a wait at most."""


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """Who commits. A commit that is not traced is never taken for a replay (compactions beside a stream)."""

    commit_user: str
    identifier: int
    query_id: str | None = None
    is_traced: bool = True


@dataclass(frozen=True, slots=True)
class SnapshotOutcome:
    """What became of one change. `snapshot` is None when nothing was written.

    `is_certain` is False when some claim ended without an answer; then no file of the change may be removed.
    """

    snapshot: Snapshot | None
    already_committed: bool = False
    given_way: tuple[Conflict, ...] = ()
    is_certain: bool = True


@dataclass(slots=True)
class _Rounds:
    """What the rounds of one commit hand on to each other."""

    unanswered: set[str] = field(default_factory=set)
    """uuids of snapshots whose claim ended without an answer."""
    base_id: int = FIRST_SNAPSHOT_ID - 1
    """Latest snapshot that the first unanswered claim was built on."""
    delta: tuple[SnapshotChange, list[ManifestFileMeta], list[ManifestFileMeta]] | None = None
    """Change, delta manifests and changelog manifests written for it."""
    merged: MergedManifests | None = None


class SnapshotCommit:
    """Commits changes to one table, one after the other."""

    def __init__(self, store: TableStore, sort_key: SortKey | None) -> None:
        """`sort_key` orders serialized keys; None for append-only tables."""
        self._store = store
        self._sort_key = sort_key
        self._index = index_of(store.manifests)
        options = store.options
        self._merge_rule = MergeRule(
            target_size_bytes=options.manifest_target_file_size_bytes,
            full_threshold_bytes=options.manifest_full_compaction_threshold_bytes,
            min_count=options.manifest_merge_min_count,
        )

    def latest(self) -> Snapshot | None:
        """The latest snapshot, read from disk: a table that was rolled back uses an id a second time."""
        return self._store.snapshots.latest()

    def history(self, latest: Snapshot | None) -> CommitHistory:
        """The commits of all users as the latest snapshot knows them."""
        return history_of(self._newest_first(latest))

    def commit(
        self,
        change: SnapshotChange,
        identity: CommitIdentity,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> SnapshotOutcome:
        """Runs rounds until the change is visible, known to be visible, or refused."""
        env = self._store.env
        options = self._store.options
        rounds = _Rounds()
        started_ms = env.now_ms()
        retry_count = 0
        while True:
            try:
                outcome = self._round(change, identity, rounds, properties or {}, watermark)
                if outcome is not None:
                    return outcome
                failure: StorageError | None = None
            except (ConflictError, CorruptDataError, UnknownOutcomeError):
                self._remove_written(rounds)
                raise
            except InvalidRequestError as error:
                # A file that was not found may have been expired while we looked at an old snapshot: look once more.
                if not isinstance(error, NotFoundError) or (retry_count > 0 and not rounds.unanswered):
                    self._remove_written(rounds)
                    raise
                failure = error
            except StorageError as error:
                failure = error
            timed_out = options.commit_timeout_ms is not None and env.now_ms() - started_ms > options.commit_timeout_ms
            if retry_count >= options.commit_max_retries or timed_out:
                won = self._look_once_more(rounds)
                if won is not None:
                    return SnapshotOutcome(won)
                raise self._exhausted(identity, rounds, retry_count, failure) from failure
            self._wait(retry_count)
            retry_count += 1

    def _round(
        self,
        change: SnapshotChange,
        identity: CommitIdentity,
        rounds: _Rounds,
        properties: Mapping[str, str],
        watermark: int | None,
    ) -> SnapshotOutcome | None:
        """One round; None when the claim was lost."""
        store = self._store
        # 1. Where do we stand, and did an unanswered claim of ours take effect?
        latest = self.latest()
        won = self._find_unanswered(latest, rounds)
        if won is not None:
            return SnapshotOutcome(won)
        # 2. Identity, against the history of the snapshot that this round builds on.
        history = self.history(latest)
        if identity.is_traced and is_committed(
            history, identity.commit_user, identity.identifier, identity.query_id, table=store.paths.location
        ):
            self._remove_written(rounds)
            return SnapshotOutcome(None, already_committed=True)
        # 3. Conflicts.
        manifests = [] if latest is None else data_manifests(store.manifests, latest)
        fitting, given_way = self._fit(change, latest, manifests)
        if given_way and fitting.is_empty:
            self._remove_written(rounds)
            return SnapshotOutcome(None, given_way=given_way, is_certain=not rounds.unanswered)
        # 4. Everything the snapshot names, then the snapshot.
        written: list[str] = []
        try:
            snapshot = self._build(
                fitting, identity, latest, manifests, history, rounds, properties, watermark, written
            )
        except StorageError:
            self._remove(written)
            raise
        store.env.reach(CrashPoint.COMMIT_MANIFESTS_WRITTEN)
        # 5. The claim.
        try:
            is_won = store.snapshots.try_commit(snapshot)
        except StorageError as error:
            if isinstance(error, InvalidRequestError):
                self._remove(written)
                raise
            if not rounds.unanswered:
                rounds.base_id = 0 if latest is None else latest.id
            assert snapshot.uuid is not None
            rounds.unanswered.add(snapshot.uuid)
            raise RetryableError(f"the claim of snapshot {snapshot.id} ended without an answer: {error}") from error
        if not is_won:
            self._remove(written)
            return None
        store.env.reach(CrashPoint.COMMIT_SNAPSHOT_CREATED)
        self._write_latest_hint(snapshot.id)
        return SnapshotOutcome(snapshot, given_way=given_way, is_certain=not rounds.unanswered)

    def _fit(
        self, change: SnapshotChange, latest: Snapshot | None, manifests: list[ManifestFileMeta]
    ) -> tuple[SnapshotChange, tuple[Conflict, ...]]:
        """The part of the change that fits. Only compactions give way; for other kinds a conflict raises."""
        counts: dict[bytes, int] = {}
        counted = {entry.partition for entry in change.entries if entry.total_buckets > 0}
        if counted and change.kind is not CommitKind.OVERWRITE:
            counts = self._index.newest_bucket_counts(manifests, counted)
            if bucket_count_conflicts(change, counts):
                counts = {entry.partition: entry.total_buckets for entry in self._store.live.at(latest).entries()}
        live = NO_FILES if change.kind is CommitKind.APPEND else self._store.live.at(latest)
        conflicts = find_conflicts(change, live.by_bucket, bucket_counts=counts, sort_key=self._sort_key)
        if not conflicts:
            return change, ()
        if change.kind is CommitKind.COMPACT:
            losers = frozenset((conflict.partition, conflict.bucket) for conflict in conflicts)
            return change.without(losers), tuple(conflicts)
        reasons = "; ".join(f"bucket {conflict.bucket}: {conflict.reason}" for conflict in conflicts[:5])
        raise ConflictError(
            f"table {self._store.paths.location}: the change does not fit on the table as it is now ({reasons}); "
            "nothing was committed, read the table again and repeat the change"
        )

    def _build(
        self,
        change: SnapshotChange,
        identity: CommitIdentity,
        latest: Snapshot | None,
        manifests: list[ManifestFileMeta],
        history: CommitHistory,
        rounds: _Rounds,
        properties: Mapping[str, str],
        watermark: int | None,
        written: list[str],
    ) -> Snapshot:
        """Writes manifests and lists; `written` gets the names that only this round uses."""
        store = self._store
        delta, changelog = self._delta_manifests(change, rounds)
        base_name, base_size = store.manifests.write_manifest_list(self._merged(manifests, rounds))
        written.append(base_name)
        delta_name, delta_size = store.manifests.write_manifest_list(delta)
        written.append(delta_name)
        changelog_name: str | None = None
        changelog_size: int | None = None
        if changelog:
            changelog_name, changelog_size = store.manifests.write_manifest_list(changelog)
            written.append(changelog_name)
        time_ms = store.env.now_ms() if latest is None else max(store.env.now_ms(), latest.time_ms)
        if identity.is_traced:
            trace = CommitTrace(identity.identifier, identity.query_id, time_ms)
            history = history.with_commit(identity.commit_user, trace)
        schema = store.schemas.latest()
        schema_id = store.schema.id if schema is None else schema.id
        return Snapshot(
            id=FIRST_SNAPSHOT_ID if latest is None else latest.id + 1,
            uuid=store.env.new_uuid(),
            schema_id=schema_id,
            base_manifest_list=base_name,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_name,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=changelog_name,
            changelog_manifest_list_size=changelog_size,
            changelog_record_count=(
                sum(entry.file.row_count for entry in change.changelog_entries) if changelog else None
            ),
            index_manifest=None if latest is None else latest.index_manifest,
            commit_user=identity.commit_user,
            commit_identifier=identity.identifier,
            commit_kind=change.kind,
            time_ms=time_ms,
            total_record_count=(0 if latest is None else latest.total_record_count) + change.row_count,
            delta_record_count=change.row_count,
            watermark=_max_watermark(watermark, latest),
            # Statistics hold as long as the schema does (table format §3.1).
            statistics=latest.statistics if latest is not None and latest.schema_id == schema_id else None,
            properties=MappingProxyType({**properties, COMMITS_PROPERTY: history_to_text(history)}),
            next_row_id=0 if latest is None else latest.next_row_id or 0,
        )

    def _delta_manifests(
        self, change: SnapshotChange, rounds: _Rounds
    ) -> tuple[list[ManifestFileMeta], list[ManifestFileMeta]]:
        """Manifests of the change; kept over the rounds, since they do not depend on what they are built on."""
        if rounds.delta is not None:
            if rounds.delta[0] == change:
                return rounds.delta[1], rounds.delta[2]
            self._remove_metas([*rounds.delta[1], *rounds.delta[2]], rounds)
        store = self._store.manifests
        delta = store.write_manifests(change.entries) if change.entries else []
        changelog = store.write_manifests(change.changelog_entries) if change.changelog_entries else []
        rounds.delta = (change, delta, changelog)
        return delta, changelog

    def _merged(self, manifests: list[ManifestFileMeta], rounds: _Rounds) -> list[ManifestFileMeta]:
        """The manifests of the new base list. A merge is tried once per commit and reused as far as it still fits."""
        if rounds.merged is None:
            rounds.merged = merge_manifests(self._store.manifests, manifests, self._merge_rule)
            return list(rounds.merged.outputs)
        applied = rounds.merged.applied_to(manifests)
        if applied is not None:
            return applied
        self._remove_metas(rounds.merged.written, rounds)
        rounds.merged = MergedManifests((), (), ())
        return manifests

    def _find_unanswered(self, latest: Snapshot | None, rounds: _Rounds) -> Snapshot | None:
        """The snapshot of an unanswered claim of ours, if it took effect."""
        if not rounds.unanswered or latest is None:
            return None
        for snapshot_id in range(latest.id, rounds.base_id, -1):
            snapshot = latest if snapshot_id == latest.id else self._store.snapshots.snapshot(snapshot_id)
            if snapshot.uuid in rounds.unanswered:
                self._write_latest_hint(latest.id)
                return snapshot
        return None

    def _look_once_more(self, rounds: _Rounds) -> Snapshot | None:
        """Before giving up: did the last claim take effect after all?"""
        if not rounds.unanswered:
            return None
        try:
            return self._find_unanswered(self.latest(), rounds)
        except StorageError:
            return None

    def _newest_first(self, latest: Snapshot | None) -> Iterator[Snapshot]:
        if latest is None:
            return
        yield latest
        for snapshot_id in range(latest.id - 1, FIRST_SNAPSHOT_ID - 1, -1):
            try:
                yield self._store.snapshots.snapshot(snapshot_id)
            except NotFoundError:
                # Expired: what lies before is not known.
                return

    def _write_latest_hint(self, snapshot_id: int) -> None:
        """Best effort: readers heal a hint that is missing or too low."""
        try:
            self._store.snapshots.write_latest_hint(snapshot_id)
        except StorageError:
            return

    def _remove_written(self, rounds: _Rounds) -> None:
        """Removes the delta and merged manifests of a commit that will not be made."""
        if rounds.delta is not None:
            self._remove_metas([*rounds.delta[1], *rounds.delta[2]], rounds)
        if rounds.merged is not None:
            self._remove_metas(rounds.merged.written, rounds)

    def _remove_metas(self, metas: Iterable[ManifestFileMeta], rounds: _Rounds) -> None:
        if not rounds.unanswered:
            self._remove([meta.file_name for meta in metas])

    def _remove(self, names: list[str]) -> None:
        """Best effort: what stays behind is named by nobody and falls to orphan cleaning."""
        for name in names:
            try:
                self._store.manifests.delete(name)
            except StorageError:
                return

    def _wait(self, retry_count: int) -> None:
        options = self._store.options
        wait_ms = min(options.commit_min_retry_wait_ms * 2**retry_count, options.commit_max_retry_wait_ms)
        self._store.env.sleep_s(wait_ms / 1000 * (1 + WAIT_FACTOR_MAX * self._store.env.jitter()))

    def _exhausted(
        self, identity: CommitIdentity, rounds: _Rounds, retry_count: int, failure: StorageError | None
    ) -> StorageError:
        """The error after the last round."""
        what = (
            f"table {self._store.paths.location}: commit {identity.identifier} of {identity.commit_user!r} "
            f"was not made after {retry_count} retries"
        )
        if rounds.unanswered:
            return UnknownOutcomeError(
                f"{what}, and a claim ended without an answer ({failure}); data files were left in place. Commit the "
                "same identifier again: if it took effect, it is recognised"
            )
        self._remove_written(rounds)
        if failure is None:
            return RetryableError(
                f"{what}: other writers were faster each time; write with fewer committers, or raise commit.max-retries"
            )
        if isinstance(failure, NotFoundError):
            return failure
        return RetryableError(f"{what}: {failure}")


def _max_watermark(watermark: int | None, latest: Snapshot | None) -> int | None:
    known = [value for value in (watermark, None if latest is None else latest.watermark) if value is not None]
    return max(known, default=None)
