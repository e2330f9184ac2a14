"""Commits what bucket writers hand over: the APPEND snapshot, then the COMPACT snapshot of the same identifier.

A crash between the two leaves the APPEND. The replay finds its identity and skips; the compaction is lost: orphan
cleaning removes its output files, and the files that it would have replaced are still live. The table holds the same
rows.

Rows are numbered above everything live in their bucket when the APPEND is claimed (`commit.conflict`), so that of two
writers of a key the one that commits last wins. Where others have committed as high numbers meanwhile, the files of
just those buckets are written again with larger ones; their compaction and its changelog are made again.

A compaction never fails a stream. Buckets whose inputs another commit compacted meanwhile are left out and returned as
`aborted_compactions`, and the writer restores those buckets before it compacts again; likewise all of them when the
COMPACT snapshot could not be made although the APPEND is there.

Snapshots do not expire here: whoever opens a committer hands in what follows a commit
(`maintenance.upkeep`).

Source: FORMAT.md §3, MERGING.md §1.4; identity: `commit.identity`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.commit.changes import append_change, check_log, compact_change
from freshet.storage.commit.commit_result import CommitCheck, CommitResult
from freshet.storage.commit.conflict import Conflict
from freshet.storage.commit.iceberg_lag import warn_of_lag
from freshet.storage.commit.identity import CommitIdentity, check_identifier, is_committed, snapshot_that_added
from freshet.storage.commit.last_commits import CommitTrace, LastCommits
from freshet.storage.commit.manifest_index import index_of
from freshet.storage.commit.next_snapshot import CommitRequest, GivenFacts
from freshet.storage.commit.packed_changelogs import packed_change
from freshet.storage.commit.round_change import GivenChange, IsReplaced, Replacement, RoundChange, RoundCheck
from freshet.storage.commit.snapshot_commit import SnapshotCommit, SnapshotOutcome
from freshet.storage.commit.table_view import VIEW_MS, TableView, look
from freshet.storage.exceptions import InvalidRequestError, RetryableError, StorageError
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.model.commit_message import COMMIT_MESSAGE_VERSION, CommitDigest, CommitMessage
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.table_log import LogIdentity, LogProgress

_LOG: Final = logging.getLogger(__name__)

REWRITES_MAX: Final = 10
"""How often the files of one commit are renumbered."""
HEADROOM_PER_ROW: Final = 1024
HEADROOM_FACTOR: Final = 8
"""Numbers left free below rows that were renumbered, for each of them the first time, and so many times more each
time after it: rows that others may commit meanwhile without overtaking them. More rows take longer to write."""


Renumber = Callable[[int, Sequence[CommitMessage], int, int], Sequence[CommitMessage]]
"""For a commit (its identifier), makes messages with the same rows, numbered above what is live at a snapshot (its id)
by a headroom. The files of the messages given stay."""

AfterCommit = Callable[[TableStore, Snapshot], None]
"""Called with the last snapshot of a commit before `commit` returns; it must not fail."""


class _Rewrites(Frozen):
    """The messages of a commit, and what it took to number their rows."""

    messages: Sequence[CommitMessage]
    count: int = 0
    size_bytes: int = 0


class Committer:
    """Commits of one commit user to one table. `query_id` distinguishes streaming queries of the same name."""

    def __init__(
        self,
        store: TableStore,
        commit_user: str,
        query_id: str | None = None,
        log: LogIdentity | None = None,
        renumber: Renumber | None = None,
        after_commit: AfterCommit | None = None,
        *,
        at_end: AfterCommit | None = None,
        checks_others: bool = True,
    ) -> None:
        """`log` is given by the one user who writes the log of the table. Without `renumber`, a commit whose rows
        others have overtaken with theirs is refused; without `after_commit`, no snapshots expire; `at_end` follows the
        last of a series of commits. A repair does not check whether other programs write the table."""
        if not commit_user.strip():
            raise InvalidRequestError("the commit user must not be blank; give the writer or the pipeline a name")
        store.check_writable()
        warn_of_lag(store)
        self._store = store
        self._commit_user = commit_user
        self._query_id = query_id
        self._log = log
        self._renumber = renumber
        self._after_commit = after_commit
        self._at_end = at_end
        self._last: Snapshot | None = None
        """The last one committed, which `at_end` is called with."""
        self._snapshot_commit = SnapshotCommit(store, commit_user, checks_others=checks_others)
        self._seen: TableView | None = None
        """The table as `has_committed` saw it last, for the commit that follows."""
        if store.claims.rules.looks_for_others:
            self._snapshot_commit.look(in_turn=False)  # refused before anything is written

    def log_progress(self) -> LogProgress | None:
        """Where the log of the table is; None before anything was logged.

        Raises `InvalidRequestError` where the log of this committer cannot go on there.
        """
        found = look(self._store).log
        if self._log is not None:
            check_log(found, self._log, table=self._store.location)
        return found

    def has_committed(
        self, identifier: int, *, digest: CommitDigest | None = None, in_turn: bool = False
    ) -> CommitCheck:
        """Applies the rules of `commit.identity`; raises where the outcome is foreign or unknown.

        `digest` says what the commit is made from; `DifferentInputError` when the identifier was committed from
        something else. `in_turn`: the commit follows at once, so other writers may have to be waited for
        (`commit_fairness`).
        """
        check_identifier(identifier)
        view = self._seen = self._snapshot_commit.look(in_turn=in_turn)
        identity = CommitIdentity(self._commit_user, identifier, self._query_id, digest)
        known = is_committed(view.last_commits, identity, table=self._store.location)
        return CommitCheck(known, view.last_commits.users.get(self._commit_user), view.latest)

    def check_last(self) -> None:
        """Raises `LostCommitError` where another program has replaced the last commit of this committer."""
        self._snapshot_commit.check_last()

    def last_commit(self) -> CommitTrace | None:
        """The last commit of this user, of whatever query; None where the table knows of none."""
        return look(self._store).last_commits.users.get(self._commit_user)

    def snapshot_with(self, messages: Sequence[CommitMessage], *, after_id: int) -> Snapshot | None:
        """The snapshot above `after_id` that made these messages visible, whatever number it has; None if none did."""
        entries = append_change(messages).entries or compact_change(messages).entries
        index = index_of(self._store.manifests)
        return self._store.at_latest(
            lambda latest: snapshot_that_added(self._store, index, entries, after_id=after_id, latest=latest)
        )

    def commit(
        self,
        identifier: int,
        messages: Sequence[CommitMessage],
        *,
        digest: CommitDigest | None = None,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
        force_empty: bool = True,
        base_id: int | None = None,
        carried: str | None = None,
        check: RoundCheck | None = None,
        begun_on: CommitCheck | None = None,
        batch: BatchFacts | None = None,
    ) -> CommitResult:
        """Makes the messages visible, once per identifier; with a digest, once per identifier and input.

        An empty commit is made as well unless `force_empty` is False: only a snapshot proves that a batch was there.
        Without it, a commit that holds nothing but compactions writes only the COMPACT snapshot and leaves no trace
        of its identity. `base_id` is the latest snapshot from before the first try to commit these messages, when
        this is not the first: `ConflictError` where that try took effect under another identifier. `carried` is a text
        that the table keeps for this user until it gives another (`last_commit`). `check` is asked by each round for
        the rows; what it raises ends the commit. With `begun_on`, what `has_committed` said when the work began,
        `RetryableError` where a rollback has taken commits of this user back since. `batch` is what the snapshot of the
        rows says of them, for people.
        """
        if begun_on is not None:
            check = _with_commits_of(self._store, self._commit_user, begun_on.last, check)
        _check_messages(identifier, messages)
        properties = properties or {}
        snapshots: list[Snapshot] = []
        view = self._take_seen()
        rewrites = _Rewrites(messages)
        if force_empty or not append_change(messages).is_empty:
            identity = CommitIdentity(self._commit_user, identifier, self._query_id, digest, carried=carried)
            outcome, rewrites = self._commit_rows(
                messages, identity, properties, watermark, base_id, view, check, batch
            )
            if outcome.already_committed or outcome.snapshot is None:
                return CommitResult((), already_committed=True)
            snapshots.append(outcome.snapshot)
            view = outcome.view
        return self._then_compact(identifier, rewrites, snapshots, view, properties, watermark)

    def replace(
        self,
        identifier: int,
        is_replaced: IsReplaced,
        messages: Sequence[CommitMessage],
        *,
        digest: CommitDigest | None = None,
        properties: Mapping[str, str] | None = None,
        force_empty: bool = True,
    ) -> CommitResult:
        """Puts the messages in the place of everything that lives in some partitions, as one OVERWRITE snapshot, once
        per identifier; what they compact follows in a COMPACT snapshot. No changelog is committed.

        The messages were made upon nothing (`base_snapshot_id=None`). Without `force_empty` no snapshot is made where
        nothing comes or goes. Raises `ConflictError` where they have files in a partition that is not replaced and do
        not fit there.
        """
        messages = [replace(message, changelog_files=(), compact_changelog_files=()) for message in messages]
        _check_messages(identifier, messages)
        change, compact = Replacement(is_replaced, messages), compact_change(messages)
        outcome = self._snapshot_commit.commit(
            CommitRequest(
                change,
                CommitIdentity(self._commit_user, identifier, self._query_id, digest),
                properties or {},
                None,
                self._log,
                is_followed=not compact.is_empty,
                needs_change=not force_empty,
            ),
            self._take_seen(),
        )
        if outcome.snapshot is None:
            return CommitResult((), already_committed=outcome.already_committed)
        return self._then_compact(
            identifier, _Rewrites(messages), [outcome.snapshot], outcome.view, properties or {}, None
        )

    def change(
        self,
        identifier: int,
        change: RoundChange,
        *,
        properties: Mapping[str, str] | None = None,
        known_commits: LastCommits | None = None,
        is_traced: bool = True,
    ) -> CommitResult:
        """Makes one snapshot of what `change` finds to be changed, none where that is nothing. `known_commits` are the
        last commits of all users as the table shall know them from then on. One that is not traced may be made again
        under its identifier."""
        request = CommitRequest(
            change,
            CommitIdentity(self._commit_user, identifier, self._query_id, is_traced=is_traced),
            properties or {},
            None,
            self._log,
            needs_change=True,
            known_commits=known_commits,
        )
        outcome = self._snapshot_commit.commit(request, self._take_seen())
        return self._ended([] if outcome.snapshot is None else [outcome.snapshot], outcome)

    def _then_compact(
        self,
        identifier: int,
        rewrites: _Rewrites,
        snapshots: list[Snapshot],
        view: TableView | None,
        properties: Mapping[str, str],
        watermark: int | None,
    ) -> CommitResult:
        """The compactions of messages whose rows are committed, if they had any: the second half of a commit."""
        aborted_compactions: tuple[Conflict, ...] = ()
        messages = rewrites.messages
        compact = compact_change(messages)
        if not compact.is_empty:
            self._store.env.reach(CrashPoint.COMMIT_BEFORE_COMPACT)
            packed = packed_change(self._store, compact)
            identity = CommitIdentity(self._commit_user, identifier, self._query_id, is_traced=False)
            request = CommitRequest(GivenChange(packed.change), identity, properties, watermark, self._log)
            outcome = self._commit_compaction(request, view, packed.change.buckets, has_rows=bool(snapshots))
            if outcome.snapshot is not None:
                packed.is_committed()
                snapshots.append(outcome.snapshot)
            elif outcome.is_certain:
                packed.is_refused()
            if outcome.snapshot is None and snapshots:
                self._snapshot_commit.hint.write(snapshots[-1])
            aborted_compactions = outcome.aborted_compactions
            if aborted_compactions and outcome.is_certain:
                lost = {conflict.bucket_id for conflict in aborted_compactions}
                discard_messages(self._store, [each.compaction for each in messages if each.bucket_id in lost])
        self._follow_up(snapshots)
        return CommitResult(
            tuple(snapshots),
            aborted_compactions=aborted_compactions,
            rewrite_count=rewrites.count,
            rewritten_bytes=rewrites.size_bytes,
            messages=tuple(messages),
        )

    def truncate(self, identifier: int, *, digest: CommitDigest | None = None) -> CommitResult:
        """Takes every row away, in an OVERWRITE snapshot of this identifier that leaves no trace of its identity: a
        `commit` of the same identifier follows. Nothing is done where that commit is there already, so that a program
        which comes late takes nothing away; nor where the table is empty."""
        check_identifier(identifier)
        identity = CommitIdentity(self._commit_user, identifier, self._query_id, digest, is_traced=False)
        emptied = Replacement(lambda _: True)
        request = CommitRequest(emptied, identity, {}, None, None, precedes=True, needs_change=True)
        outcome = self._snapshot_commit.commit(request, self._take_seen())
        return self._ended([] if outcome.snapshot is None else [outcome.snapshot], outcome)

    def _ended(self, snapshots: Sequence[Snapshot], outcome: SnapshotOutcome) -> CommitResult:
        self._follow_up(snapshots)
        return CommitResult(tuple(snapshots), already_committed=outcome.already_committed)

    def _follow_up(self, snapshots: Sequence[Snapshot]) -> None:
        if snapshots:
            self._last = snapshots[-1]
            if self._after_commit is not None:
                self._after_commit(self._store, snapshots[-1])

    def finish(self) -> None:
        """Ends a series of commits: gives the LATEST hint, which commits to a store leave out, to the background."""
        self._snapshot_commit.hint.finish()
        last, self._last = self._last, None
        if last is not None and self._at_end is not None:
            self._at_end(self._store, last)

    def _take_seen(self) -> TableView | None:
        """What `has_committed` has just seen of the table, where looking again costs a request to a store.

        It may be outdated: then the claim is lost, and the next round looks.
        """
        seen, self._seen = self._seen, None
        is_fresh = seen is not None and self._store.env.now_ms() - seen.seen_ms < VIEW_MS
        return seen if is_fresh and self._store.env.is_remote else None

    def _commit_rows(
        self,
        messages: Sequence[CommitMessage],
        identity: CommitIdentity,
        properties: Mapping[str, str],
        watermark: int | None,
        base_id: int | None,
        view: TableView | None,
        check: RoundCheck | None,
        batch: BatchFacts | None,
    ) -> tuple[SnapshotOutcome, _Rewrites]:
        """The APPEND snapshot, and the messages that it was made of in the end."""
        rewrites = _Rewrites(messages)
        while True:
            append, compact = append_change(rewrites.messages), compact_change(rewrites.messages)
            packed = packed_change(self._store, append)
            request = CommitRequest(
                GivenChange(packed.change, check),
                identity,
                properties,
                watermark,
                self._log,
                base_id,
                is_followed=not compact.is_empty,
                facts=GivenFacts(rewrites.count, rewrites.size_bytes, batch),
            )
            outcome = self._snapshot_commit.commit(request, view)
            view = None
            if outcome.snapshot is not None:
                packed.is_committed()
                return outcome, rewrites
            packed.is_refused()
            if not outcome.outnumbered:
                return outcome, rewrites
            rewrites = self._numbered_anew(identity.identifier, rewrites, outcome)

    def _numbered_anew(self, identifier: int, rewrites: _Rewrites, outcome: SnapshotOutcome) -> _Rewrites:
        """The messages with the rows of the outnumbered buckets above what is live now.

        Each rewrite leaves more room below it for what others commit meanwhile, so that a commit whose rewrites take
        longer than the commits of others comes to its end.
        """
        assert outcome.view is not None
        assert outcome.view.latest is not None
        lost = [message for message in rewrites.messages if _has_rows_of(message, outcome.outnumbered)]
        count = rewrites.count + 1
        counted = count - self._snapshot_commit.spared(count)
        if self._renumber is None or counted > REWRITES_MAX:
            raise RetryableError(
                f"table {self._store.location}: while the files of this commit were written, others committed rows of "
                f"the same sequence numbers ({len(lost)} buckets, {rewrites.count} rewrites); nothing was committed. "
                "Write the rows again, and with fewer committers to one bucket",
                table=self._store.location,
            )
        row_count = max(sum(file.row_count for file in message.new_files) for message in lost)
        headroom = row_count * HEADROOM_PER_ROW * HEADROOM_FACTOR ** min(max(counted - 1, 0), 8)
        made = self._renumber(identifier, lost, outcome.view.latest.id, headroom)
        kept = [message for message in rewrites.messages if not _has_rows_of(message, outcome.outnumbered)]
        if outcome.is_certain:
            spared = {file.file_name for each in made for file in (*each.new_files, *each.changelog_files)}
            discard_messages(self._store, lost, spared=spared)
        size_bytes = sum(file.file_size_bytes for message in made for file in message.new_files)
        return _Rewrites((*kept, *made), count, rewrites.size_bytes + size_bytes)

    def _commit_compaction(
        self, request: CommitRequest, view: TableView | None, buckets: Collection[BucketId], *, has_rows: bool
    ) -> SnapshotOutcome:
        """The COMPACT snapshot. Where rows were committed before it, it must not make the commit look failed.

        `view` is the table as the APPEND left it: looking again would cost three calls to learn the same.
        """
        try:
            return self._snapshot_commit.commit(request, view)
        except StorageError as error:
            if not has_rows:
                raise
            _LOG.warning("table %s: a compaction was given up: %s", self._store.location, error)
            aborted_compactions = tuple(Conflict(*bucket, str(error)) for bucket in sorted(buckets))
            return SnapshotOutcome(None, aborted_compactions=aborted_compactions, is_certain=False)


def _has_rows_of(message: CommitMessage, buckets: Collection[BucketId]) -> bool:
    """Whether the message has rows of one of the buckets; those of an assigner have none, and stay as they are."""
    return message.bucket_id in buckets and message.assigned_upon is None


def _with_commits_of(
    store: TableStore, commit_user: str, last: CommitTrace | None, other: RoundCheck | None
) -> RoundCheck:
    """Raises `RetryableError` upon a table that has lost the last commit of the user; else asks the other check. A
    commit there would hide the loss: it would be the last one of the user, and the next would follow it."""

    def check(view: TableView) -> None:
        found = view.last_commits.users.get(commit_user)
        if last is not None and (found is None or found.identifier < last.identifier):
            raise RetryableError(
                f"table {store.location} was rolled back to before commit {last.identifier} of user {commit_user!r} "
                "while its next commit was made; nothing was committed. Look again at what the table holds",
                table=store.location,
            )
        if other is not None:
            other(view)

    return check


def _check_messages(identifier: int, messages: Sequence[CommitMessage]) -> None:
    check_identifier(identifier)
    for message in messages:
        if message.version != COMMIT_MESSAGE_VERSION:
            raise InvalidRequestError(
                f"commit message of version {message.version}, this program understands {COMMIT_MESSAGE_VERSION}; "
                "driver and tasks must run the same version"
            )
