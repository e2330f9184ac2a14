"""Makes one change visible as the next snapshot: a claim of `snapshot-N` (`claim`), made again until it is won.

One round:

1. look at the table (`table_view`); if an earlier round ended without an answer, look whether its snapshot is there;
2. check the identity of the commit against the last commits that this snapshot has (a replay may have won meanwhile);
3. compute what changes upon it (`round_change`); check that no snapshot since the base has added these files, that new
   rows are numbered above what others have committed since (else the caller renumbers them), and conflicts: a
   compaction is dropped bucket by bucket, anything else raises;
4. write delta manifests, merge old manifests, write both manifest lists, build the snapshot;
5. claim `snapshot-N`. Won: write the LATEST hint (`LatestHint`). Lost: remove what only this round named (not on an
   object store, where a request that was lost on its way may arrive yet), wait, again.

| crash or error           | left behind                 | handled by                                             |
|--------------------------|-----------------------------|--------------------------------------------------------|
| before 5                 | manifests without snapshot  | orphan cleaning                                        |
| in 5, no answer          | perhaps the snapshot        | the next round by its uuid, the replay by its identity |
| after 5, before the hint | a hint that is too low      | every reader                                           |

The hint of an APPEND that a COMPACT follows is that of the COMPACT: between the two it is too low as after a crash.

An outcome that is not known deletes nothing. Data files are never deleted here. Source: FORMAT.md §3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import ClaimOutcome, LockTimeoutError
from freshet.storage.codec.commit_facts import FACTS_PROPERTY, facts_to_text, parse_facts
from freshet.storage.commit.change_fit import (
    ChangeFit,
    StrictMode,
    outdated_error,
    outdated_partitions,
    refuse_other_meaning,
    refuse_other_producer,
)
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.claim import SnapshotClaim
from freshet.storage.commit.commit_fairness import CommitFairness
from freshet.storage.commit.commit_files import CommitFiles, LatestHint, record_of
from freshet.storage.commit.conflict import Conflict, numbered_by_snapshot, outnumbered_buckets
from freshet.storage.commit.foreign_writers import ForeignWriters
from freshet.storage.commit.identity import CommitIdentity, is_committed, snapshot_that_added
from freshet.storage.commit.last_commits import FIRST_SNAPSHOT_ID
from freshet.storage.commit.manifest_index import index_of
from freshet.storage.commit.manifest_merge import ManifestMergeRule
from freshet.storage.commit.next_snapshot import CommitRequest, Met, commit_facts, next_snapshot
from freshet.storage.commit.table_view import TableView
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StorageError,
    UnknownOutcomeError,
)
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.live_files import data_manifests_at_once
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import ChangelogProducer

WAIT_FACTOR_MAX: Final = 0.2
"""Share by which jitter lengthens a wait after an error at most."""

CONTENDERS_MAX: Final = 8
"""A commit that has lost waits for up to this many times what a round takes."""

FAILURES_MAX: Final = 3
"""Errors of the disk before a claim that one commit tries to get over. A lock that could not be had is none of them."""

_FINAL: Final = (InvalidRequestError, ConflictError, CorruptDataError, UnknownOutcomeError)
"""Errors that another round cannot change; a `NotFoundError`, which is one of them, it sometimes can."""


class SnapshotOutcome(Frozen):
    """What became of one change. `snapshot` is None when nothing was written.

    `is_certain` is False when some claim ended without an answer, or was lost on an object store; then no file of the
    change may be removed.
    """

    snapshot: Snapshot | None
    view: TableView | None = None
    """The table as the snapshot left it, where this round made the snapshot."""
    already_committed: bool = False
    aborted_compactions: tuple[Conflict, ...] = ()
    is_certain: bool = True
    outnumbered: frozenset[BucketId] = frozenset()
    """Buckets whose new files must be renumbered, upon `view`, before anything is committed."""


@dataclass(slots=True)
class _Rounds:
    """What the rounds of one commit hand on to each other."""

    files: CommitFiles
    unanswered: dict[str, Snapshot | None] = field(default_factory=dict)
    """uuids of snapshots whose claim ended without an answer."""
    keeps_files: bool = False
    """A claim was lost on an object store."""
    base_id: int = FIRST_SNAPSHOT_ID - 1
    """Latest snapshot that the first unanswered claim was built on."""
    lost_count: int = 0
    """Claims that were lost."""
    failure_count: int = 0
    """Rounds that ended in an error."""
    missed_at_id: int = FIRST_SNAPSHOT_ID - 2
    """Latest snapshot when a round last failed because a file was not there."""
    started_ms: int = 0
    winners: list[str] = field(default_factory=list)
    """Users who won the claims that were lost."""
    checked_id: int | None = None
    """Snapshots up to this one are known not to have added the new files; None before the first check."""

    def note_winner(self, latest: Snapshot | None) -> None:
        """Who has committed since a claim was lost."""
        if latest is not None and len(self.winners) < self.lost_count:
            self.winners.append(latest.commit_user)

    @property
    def is_certain(self) -> bool:
        """True when no snapshot can appear that names files of this commit."""
        return not (self.unanswered or self.keeps_files)


class SnapshotCommit:
    """Commits changes to one table, one after the other."""

    def __init__(self, store: TableStore, commit_user: str, *, checks_others: bool = True) -> None:
        self._store = store
        self._index = index_of(store.manifests)
        self._fit = ChangeFit(store, self._index)
        self._claim = SnapshotClaim(store, self._index)
        self.hint = LatestHint(store)
        self._strict_mode = StrictMode(store, commit_user)
        self._neighbours = ForeignWriters(store, checks=checks_others)
        self._turns = CommitFairness(store, commit_user, self._neighbours)
        options = store.options
        self._merge_rule = ManifestMergeRule(
            target_size_bytes=options.manifest_target_file_size_bytes,
            full_threshold_bytes=options.manifest_full_compaction_threshold_bytes,
            min_count=options.manifest_merge_min_count,
        )

    def commit(self, request: CommitRequest, view: TableView | None = None) -> SnapshotOutcome:
        """Runs rounds until the change is visible, known to be visible, or refused.

        `view` is what the caller has just seen of the table, for the first round; without it, that round looks itself.
        """
        rounds = _Rounds(CommitFiles(self._store.manifests, self._merge_rule))
        started_ms = rounds.started_ms = self._store.env.now_ms()
        retry_count = 0
        while True:
            failure: StorageError | None = None
            round_started_ms = self._store.env.now_ms()
            try:
                seen, view = view or self.look(in_turn=True), None
                self._turns.note_seen(seen)
                rounds.note_winner(seen.latest)
                outcome = self._round(request, rounds, seen)
                if outcome is not None:
                    return outcome
            except StorageError as error:
                rounds.failure_count += 0 if isinstance(error, LockTimeoutError) else 1
                if not self._may_pass(error, rounds):
                    rounds.files.take_back()
                    raise
                failure = error
            except Exception:  # unexpected, but no snapshot names what was written
                rounds.files.take_back()
                raise
            if self._is_exhausted(retry_count - self.spared(rounds.lost_count), started_ms):
                won = self._look_once_more(request.identity, rounds)
                if won is not None:
                    return SnapshotOutcome(won)
                raise self._failure(request.identity, rounds, retry_count, failure) from failure
            self._store.env.sleep_s(self._wait_ms(retry_count, failure, round_started_ms) / 1000)
            retry_count += 1

    def look(self, *, in_turn: bool) -> TableView:
        """The table as it is now, before a commit; raises where other programs endanger it (`foreign_writers`).
        `in_turn`: once it is this writer's turn (`commit_fairness`)."""
        return self._turns.look() if in_turn else self._neighbours.look()

    def spared(self, count: int) -> int:
        """The tries that do not count, of so many lost ones of a commit (`commit_fairness`)."""
        return self._turns.spared(count)

    def check_last(self) -> None:
        """Whether the last commit is still there, at the end of a program."""
        self._neighbours.check_last()

    def _round(self, request: CommitRequest, rounds: _Rounds, view: TableView) -> SnapshotOutcome | None:
        """One round; None when the claim was lost."""
        store, identity, files, latest = self._store, request.identity, rounds.files, view.latest
        # 1. Did an unanswered claim of ours take effect?
        won = self._find_unanswered(latest, identity, rounds)
        if won is not None:
            return SnapshotOutcome(won)
        # 2. Identity, against the last commits that the snapshot carries on which this round builds.
        is_identified = identity.is_traced or request.precedes
        if is_identified and is_committed(view.last_commits, identity, table=store.location):
            files.take_back()
            return SnapshotOutcome(None, already_committed=True)
        # 3. What changes, upon what this round sees, and conflicts.
        change = request.change.upon(store, view)
        if request.needs_change and change.is_empty:
            files.take_back()
            return SnapshotOutcome(None, view)
        known = self._find_new_files(change, request.base_id, latest, rounds)
        if known is not None:
            return SnapshotOutcome(known)
        self._refuse_outdated(change, rounds, latest)
        outnumbered = outnumbered_buckets(store, change, latest)
        if outnumbered and change.kind is not CommitKind.COMPACT:
            # Every claim without an answer is decided by now: the table has gone on past its snapshot.
            files.take_back()
            return SnapshotOutcome(None, view, is_certain=rounds.is_certain, outnumbered=outnumbered)
        self._strict_mode.check(change, latest)
        refuse_other_producer(store, change, view.schema_id)
        refuse_other_meaning(store, change, view.schema_id)
        manifests = [] if latest is None else data_manifests_at_once(store.manifests, latest)
        fitting, aborted_compactions = self._fit.part(change, latest, manifests, outnumbered)
        if aborted_compactions and fitting.is_empty:
            files.take_back()
            return SnapshotOutcome(None, aborted_compactions=aborted_compactions, is_certain=rounds.is_certain)
        # 4. Everything the snapshot names, then the snapshot.
        if store.options.sequence_snapshot_ordering and not fitting.keeps_numbers:
            fitting = numbered_by_snapshot(fitting, view.latest_id + 1)
        is_recorded = store.claims.rules.looks_for_others
        record = record_of(request, fitting, latest, store.paths.branch_name) if is_recorded else None
        lists = files.write(fitting, manifests, self._fit.next_index(fitting, latest), record)
        said = self._said(request, rounds, fitting, latest, dropped_count=len(aborted_compactions))
        marked = replace(request, properties={**request.properties, **self._neighbours.properties(latest), **said})
        snapshot = next_snapshot(view, marked, fitting, lists, now_ms=store.env.now_ms(), uuid=store.env.new_uuid())
        if store.env.checks_claims:
            from freshet.storage.commit.table_check import check_claim

            check_claim(store, latest, snapshot, fitting)
        store.env.reach(CrashPoint.COMMIT_MANIFESTS_WRITTEN)
        # 5. The claim.
        if not self._take(snapshot, view, identity, rounds):
            self._lose(rounds)
            return None
        files.committed()
        self._neighbours.committed(snapshot, has_rows=identity.is_traced)
        if identity.is_traced:
            self._turns.note_won()
        store.env.reach(CrashPoint.COMMIT_SNAPSHOT_CREATED)
        self.hint.follow(latest, snapshot, is_followed=request.is_followed)
        store.live.advance(latest, snapshot, fitting.entries)
        following = view.after(snapshot, store.env.now_ms())
        return SnapshotOutcome(
            snapshot, following, aborted_compactions=aborted_compactions, is_certain=rounds.is_certain
        )

    def _said(
        self,
        request: CommitRequest,
        rounds: _Rounds,
        change: SnapshotChange,
        latest: Snapshot | None,
        *,
        dropped_count: int,
    ) -> dict[str, str]:
        """What the snapshot says of its commit, for people."""
        store = self._store
        tries = 1 + rounds.lost_count + rounds.failure_count
        duration_ms = store.env.now_ms() - rounds.started_ms
        met = Met(duration_ms, tries, rounds.lost_count, tuple(rounds.winners), dropped_count)
        makes_changelog = store.options.changelog_producer is not ChangelogProducer.NONE
        before = None if latest is None else parse_facts(latest.properties)
        live = (0, 0) if latest is None else None if before is None else before.live
        facts = commit_facts(change, met, request.facts, store.partition_path, live, makes_changelog=makes_changelog)
        if change.kind is CommitKind.COMPACT and latest is not None:
            is_of_rows = latest.commit_kind is not CommitKind.COMPACT
            rows_ms = latest.time_ms if is_of_rows else None if before is None else before.rows_ms
            facts = replace(facts, rows_ms=rows_ms)
        return {FACTS_PROPERTY: facts_to_text(facts)}

    def _refuse_outdated(self, change: SnapshotChange, rounds: _Rounds, latest: Snapshot | None) -> None:
        """Every claim without an answer is decided when this is asked."""
        outdated = outdated_partitions(self._store, change, latest)
        if outdated:
            rounds.files.take_back()
            raise outdated_error(self._store, outdated, is_certain=rounds.is_certain)

    def _find_new_files(
        self, change: SnapshotChange, base_id: int | None, latest: Snapshot | None, rounds: _Rounds
    ) -> Snapshot | None:
        """The snapshot that has the files of this commit already, where an unanswered claim of ours made it.

        Last commits have an APPEND; a compaction whose snapshot has expired is recognised by its files alone. Raises
        `ConflictError` when the files were committed before, under another number.
        """
        latest_id = FIRST_SNAPSHOT_ID - 1 if latest is None else latest.id
        checked_id = base_id if rounds.checked_id is None else rounds.checked_id
        rounds.checked_id = latest_id
        if checked_id is None:
            return None  # the first look of the first try: these files were in no snapshot before
        known = snapshot_that_added(self._store, self._index, change.entries, after_id=checked_id, latest=latest)
        if known is not None and not rounds.unanswered:
            raise ConflictError(
                f"table {self._store.location}: files of this commit are in the table already, since snapshot "
                f"{known.id} ({known.commit_identifier} of {known.commit_user!r}); nothing was committed again. An "
                "earlier try took effect: go on with what comes next",
                path=self._store.location,
            )
        return known

    def _lose(self, rounds: _Rounds) -> None:
        """A claim was lost. On an object store the files stay: what was sent may arrive after the answer."""
        self._turns.note_lost()
        rounds.lost_count += 1
        if self._store.env.file_io.folders is None:
            rounds.files.keep()
            rounds.keeps_files = True
        rounds.files.take_back_round()

    def _take(self, snapshot: Snapshot, view: TableView, identity: CommitIdentity, rounds: _Rounds) -> bool:
        """True when the id is ours, False when it is another's; raises where that is not known."""
        try:
            answer = self._claim.take(snapshot, identity, base=view.latest, seen_ms=view.seen_ms)
        except StorageError:
            raise  # nothing was created
        except Exception:
            rounds.files.keep()  # the snapshot may be there
            raise
        if answer.outcome is not ClaimOutcome.UNKNOWN:
            return answer.outcome is ClaimOutcome.WON
        if not rounds.unanswered:
            rounds.base_id = snapshot.id - 1
        assert snapshot.uuid is not None
        rounds.unanswered[snapshot.uuid] = view.latest
        rounds.files.keep()
        cause = answer.cause or "the store does not say whether it was created"
        raise RetryableError(f"the claim of snapshot {snapshot.id} ended without an answer: {cause}") from answer.cause

    def _find_unanswered(self, latest: Snapshot | None, identity: CommitIdentity, rounds: _Rounds) -> Snapshot | None:
        """The snapshot of an unanswered claim of ours, if it took effect."""
        if not rounds.unanswered or latest is None:
            return None
        for snapshot_id in range(latest.id, rounds.base_id, -1):
            try:
                snapshot = self._store.snapshots.snapshot(snapshot_id)
            except NotFoundError:
                continue  # expired meanwhile; if it was ours, the latest knows the commit
            if snapshot.uuid not in rounds.unanswered:
                continue
            if self._claim.holds(snapshot, identity, base=rounds.unanswered[snapshot.uuid]):
                self._neighbours.committed(snapshot, has_rows=identity.is_traced)
                self.hint.write(latest)
                return snapshot
        return None

    def _look_once_more(self, identity: CommitIdentity, rounds: _Rounds) -> Snapshot | None:
        """Before giving up: did the last claim take effect after all?"""
        if not rounds.unanswered:
            return None
        try:
            return self._find_unanswered(self._store.snapshots.latest(), identity, rounds)
        except StorageError:
            return None

    def _wait_ms(self, retry_count: int, failure: StorageError | None, round_started_ms: int) -> float:
        """Before the next round: longer and longer after errors, of the order of a round after a lost claim.

        After a first lost claim at once, then within the time of as many rounds as were lost. If the waits doubled each
        time, a writer that commits without a pause would leave no gap for this one. At a store writers go in turn
        instead.
        """
        options, jitter = self._store.options, self._store.env.jitter()
        doubled_ms: int = options.commit_min_retry_wait_ms * 2**retry_count
        if failure is not None:
            return min(doubled_ms, options.commit_max_retry_wait_ms) * (1 + WAIT_FACTOR_MAX * jitter)
        if self._store.env.is_remote and retry_count < options.commit_max_retries:
            return 0
        round_ms = max(1, self._store.env.now_ms() - round_started_ms)
        wait_ms: float = jitter * round_ms * min(retry_count, CONTENDERS_MAX)
        if retry_count >= options.commit_max_retries:
            wait_ms = max(wait_ms, options.commit_min_retry_wait_ms)
        return min(wait_ms, options.commit_max_retry_wait_ms)

    def _is_exhausted(self, retry_count: int, started_ms: int) -> bool:
        """True after `commit.max-retries`, and no sooner than their waits would end if they doubled each time."""
        options, spent_ms = self._store.options, self._store.env.now_ms() - started_ms
        if options.commit_timeout_ms is not None and spent_ms > options.commit_timeout_ms:
            return True
        waits = (options.commit_min_retry_wait_ms * 2**number for number in range(options.commit_max_retries))
        patience_ms = sum(min(wait_ms, options.commit_max_retry_wait_ms) for wait_ms in waits)
        return retry_count >= options.commit_max_retries and spent_ms >= patience_ms

    def _failure(
        self, identity: CommitIdentity, rounds: _Rounds, retry_count: int, failure: StorageError | None
    ) -> StorageError:
        """The error after the last round."""
        what = (
            f"table {self._store.location}: commit {identity.identifier} of {identity.commit_user!r} "
            f"was not made after {retry_count} retries"
        )
        if rounds.unanswered:
            return UnknownOutcomeError(
                f"{what}, and a claim ended without an answer ({failure}); data files were left in place. Commit the "
                "same identifier again: if it took effect, it is recognised"
            )
        rounds.files.take_back()
        if isinstance(failure, NotFoundError):
            return RetryableError(
                f"{what}: each snapshot that it looked at expired meanwhile ({failure}); keep more of them "
                "(snapshot.num-retained.min, snapshot.time-retained), or raise commit.max-retries"
            )
        if failure is None:
            return RetryableError(
                f"{what}: other writers were faster each time; write with fewer committers, or raise commit.max-retries"
            )
        return RetryableError(f"{what}: {failure}")

    def _may_pass(self, error: StorageError, rounds: _Rounds) -> bool:
        """True when another round may go better.

        A file that was not found has expired if others have committed since the last look; expiry leaves the latest
        snapshot alone, so a file missed twice at the same one is lost. A disk that fails gets a few rounds, for it may
        be full for good; but once a claim has no answer, only further rounds find out.
        """
        if rounds.unanswered:
            return not isinstance(error, _FINAL) or isinstance(error, NotFoundError)
        if isinstance(error, NotFoundError):
            missed_before, rounds.missed_at_id = rounds.missed_at_id, self._latest_id()
            return rounds.missed_at_id > missed_before
        return not isinstance(error, _FINAL) and rounds.failure_count <= FAILURES_MAX

    def _latest_id(self) -> int:
        """0 before the first snapshot, and where the table cannot be looked at."""
        try:
            return self._store.snapshots.latest_id() or FIRST_SNAPSHOT_ID - 1
        except StorageError:
            return FIRST_SNAPSHOT_ID - 1
