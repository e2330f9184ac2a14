"""A writer and its committer as one thing: write rows, commit them under an identifier, once.

    with table.writer("loader-1") as writer:
        writer.write(rows)
        writer.commit()                  or commit(7): a second commit of that number, in any process, is a replay

A number is for programs that can write the same rows again after a crash and do not know whether they had committed
them. A replay commits nothing, discards the rows written for it and is logged as a warning; a number that the snapshots
show to be passed over is refused.

A session goes on when the table is altered: rows written until then are committed in the columns they were written
with, and the first `write` after that commit takes the new schema.

Rows written and not committed are gone when the session ends: a block that is left normally with such rows raises, one
that is left by an exception discards them. Identifiers of one commit user must grow; the commit user belongs to one
program at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final

from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.identity import check_identifier
from freshet.storage.commit.last_commits import passed_over_text, replay_text, was_passed_over
from freshet.storage.exceptions import ConflictError, InvalidRequestError, OutdatedAssignmentError
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.logs.log_systems import ChangeSink, LogPublisher, TableLog
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.postponed_router import KeptInput

if TYPE_CHECKING:
    from freshet.storage.lookup.lookup_metrics import LookupMetrics
    from freshet.storage.write.task_writer import TaskWriter

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _PendingCommit:
    """Files that wait to be committed, with the number that belongs to them."""

    identifier: int
    is_automatic: bool
    """The number is our choice: where another program of this user was faster, the next one is as good."""
    messages: list[CommitMessage]
    base_id: int
    """Latest snapshot from before the first try; 0 for none."""
    was_tried: bool = False
    is_outdated: bool = False
    """The rows must be assigned to dynamic buckets again."""
    may_discard: bool = False
    """No snapshot can appear that names files of the last try."""


@answering_callers
class TableSession:
    """What `Table.writer` gives; not safe for use by several threads at once."""

    def __init__(
        self,
        store: TableStore,
        commit_user: str,
        *,
        parallelism: int,
        open_log: Callable[[str], TableLog] | None = None,
        publisher: LogPublisher | None = None,
    ) -> None:
        """`open_log` opens the log of the table for a user, where it has one; `publisher` publishes what is
        committed, where the table says so, and is closed with the session."""
        if not isinstance(commit_user, str) or not commit_user.isprintable():
            raise InvalidRequestError(
                f"the commit user is a name of printable characters such as 'loader-1', not {commit_user!r}"
            )
        store.schemas.check_same(store.schema)  # buckets of another table cannot be restored rightly
        self._store = store
        self._commit_user = commit_user
        self._publisher = publisher
        self._log = None if open_log is None else open_log(commit_user)
        for warning in self._log.warnings if self._log is not None else ():
            _LOG.warning("table %s: %s", store.location, warning)
        self._sink: ChangeSink | None = None
        self._committer = self._open_committer(store)
        self._parallelism = parallelism
        self._kept = KeptInput(store.env) if store.moves_rows else None
        self._writer = self._open_writer(store, store.snapshots.latest())
        self._has_rows = False
        self._row_count = 0
        """Rows accepted since the last commit."""
        self._is_closed = False
        self._has_committed = False
        self._pending: _PendingCommit | None = None

    def __repr__(self) -> str:
        rows = f"{self._row_count:,} rows not committed"
        return f"TableSession({self._store.name!r}, commit user {self._commit_user!r}, {rows})"

    @property
    def merge_metrics(self) -> MergeMetrics:
        """How many keys this session has merged, and for how many of them values were folded one by one."""
        return self._writer.merge_metrics

    @property
    def lookup_metrics(self) -> LookupMetrics:
        """How stored rows were looked up by key: in which way, and what became of the stores kept for it."""
        return self._writer.lookup_metrics

    def write(self, data: object) -> int:
        """Takes rows; an optional column `_ROW_KIND` says '+I', '-U', '+U' or '-D' (default '+I').

        `data` is a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame or anything else with the
        Arrow C stream interface, a list of dicts, or a dict of lists. A column that is missing is its default value,
        else NULL; a NOT NULL column must be there (of a -D, where the merge engine removes the row, only the key).

        Returns the rows accepted, which is less than given where the table ignores deletes. Raises
        `InvalidRequestError` before anything is taken when a column does not fit; if a later batch of a stream does
        not, the batches before it are taken already and the session goes on after `abort` only.
        """
        self._check_open()
        if self._pending is not None:
            raise InvalidRequestError(
                f"the last commit to {self._store.location} failed and waits for its next try: commit again, or abort, "
                "before writing more",
                path=self._store.location,
            )
        self._adopt_schema()
        if not self._has_rows and self._store.options.follows_early:
            self._writer.rebase(self._store.snapshots.latest())
        self._has_rows = True
        row_count = self._writer.write(data)
        self._row_count += row_count
        return row_count

    def compact(self, *, full: bool = False) -> None:
        """Compacts the buckets written by this session with the next commit."""
        self._check_open()
        if self._store.options.has_postponed_buckets:
            raise InvalidRequestError(
                f"{self._store.location} has bucket=-2: its writers leave compaction to Table.compact and "
                "`freshet compact`, which put rows that wait into buckets; commit, and call those",
                table=self._store.location,
            )
        self._writer.rebase(self._store.snapshots.latest())
        self._adopt_schema()
        base = self._writer.base_snapshot
        if base is not None and base.schema_id > self._store.schema.id:
            raise ConflictError(
                f"{self._store.location} was altered while rows of this writer wait for their commit: commit them, "
                "then compact",
                table=self._store.location,
            )
        self._writer.compact(full=full)

    def commit(self, identifier: int | None = None) -> CommitResult:
        """Makes everything written since the last commit visible, exactly once per identifier.

        Without an identifier the one after the last of this commit user is taken, or the next one if another program
        takes it meanwhile; a program that crashes and starts again must find out by itself which rows it had committed.
        A commit whose identifier was committed before, or lies before the last one, is a replay: nothing is committed,
        and a warning names the snapshot that has it. Where the snapshots that are there show that a number before the
        last one was never committed, rows under it raise `InvalidRequestError`, and can be committed under another
        number. When making the snapshot fails or is interrupted, the rows are still there and keep their number: commit
        again, without a number or with the same one, and they are in the table once whatever became of the first try.
        When writing the files of the rows fails (a full disk), they may be lost: further calls are refused until
        `abort`, then write them again.
        """
        self._check_open()
        pending = self._pending
        if pending is None:
            pending = self._prepare(identifier)
        elif identifier is not None and check_identifier(identifier) != pending.identifier:
            raise InvalidRequestError(
                f"the last commit to {self._store.location} failed as number {pending.identifier} and waits for its "
                f"next try; its rows may be in the table already, so they cannot be committed as {identifier}: commit "
                f"as {pending.identifier} or without a number, or abort",
                path=self._store.location,
            )
        if pending is not None and pending.is_outdated:
            self._reassign(pending)
        result = CommitResult((), already_committed=True) if pending is None else self._commit(pending)
        if result.already_committed:
            if pending is None or not self._is_ours(pending):
                number = check_identifier(identifier or 0) if pending is None else pending.identifier
                _LOG.warning(replay_text(self._store, self._commit_user, number, self._row_count))
            self._writer.abort()
        self._forget()
        if pending is not None:
            from freshet.storage.maintenance.upkeep import show_hidden_rows

            self._writer.contention.note(was_overtaken=result.rewrite_count > 0)
            result = show_hidden_rows(self._store, self._committer, pending.identifier, result)
        if result.snapshots:
            self._has_committed = True
            self._writer.rebase(result.snapshots[-1])
            if self._log is not None:
                last = result.snapshots[-1]
                self._log.committed(last.commit_identifier, last.id)
        if self._publisher is not None:
            self._publisher.publish()
        return result

    def _adopt_schema(self) -> None:
        """Goes on at the table's schema of the last commit, if it was altered since this session began.

        Files of a later schema are not compacted by a writer of an earlier one, so the session would never compact
        again. In a store, where a look costs a request, the last commit that counts is that which the session knows
        of: its next commit leaves the compaction, and the changes that it tells, to the one after.
        """
        if self._has_rows:
            return
        newest = None if self._store.env.is_remote else self._store.snapshots.latest()
        base = newest or self._writer.base_snapshot
        if base is None or base.schema_id <= self._store.schema.id:
            return
        store = self._store.at_schema(base.schema_id)
        metrics, lookups = self._writer.merge_metrics, self._writer.lookup_metrics
        self._writer.close()
        self._store, self._committer, self._writer = store, self._open_committer(store), self._open_writer(store, base)
        self._writer.merge_metrics.add(metrics.keys_merged, metrics.keys_in_python)
        self._writer.lookup_metrics.add(**lookups.counts())

    def _prepare(self, identifier: int | None) -> _PendingCommit | None:
        """Makes files of the rows for a commit of this number, or the next one; None when the number is used up."""
        wanted = 0 if identifier is None else check_identifier(identifier)
        check = self._committer.has_committed(wanted, in_turn=True)
        last = -1 if check.last is None else check.last.identifier
        if identifier is not None and check.is_committed:
            self._refuse_passed_over(wanted, max(last, 0))
            return None
        number = check_identifier(last + 1) if identifier is None else wanted
        base_id = 0 if check.latest is None else check.latest.id
        # What others have committed since is older than our rows: number ours after it.
        self._writer.rebase(check.latest)
        messages = self._writer.prepare_commit(number, covers_table=True)
        self._pending = _PendingCommit(number, identifier is None, messages, base_id)
        return self._pending

    def _refuse_passed_over(self, number: int, last: int) -> None:
        """Raises where rows would be taken for those of a commit that was never made.

        Where empty commits make no snapshot, a number without one may have been committed.
        """
        if self._row_count and self._commits_empty and was_passed_over(self._store, self._commit_user, number):
            raise InvalidRequestError(
                passed_over_text(self._store, self._commit_user, number, last, self._row_count),
                path=self._store.location,
            )

    def _reassign(self, pending: _PendingCommit) -> None:
        """Assigns the rows of a refused commit to dynamic buckets upon what is committed now."""
        before = pending.messages
        if self._kept is not None:
            self._place_again(pending, self._kept)
            return
        from freshet.storage.write.renumbering import reassigned

        pending.messages = self._store.at_latest(
            lambda latest: reassigned(
                self._store, before, latest, identifier=pending.identifier, parallelism=self._parallelism
            )
        )
        pending.is_outdated = False
        kept = {file.file_name for each in pending.messages for file in (*each.new_files, *each.changelog_files)}
        if pending.may_discard:
            discard_messages(self._store, before, spared=kept)

    def _place_again(self, pending: _PendingCommit, kept: KeptInput) -> None:
        """The same for a table whose rows move between partitions: what was written followed from where keys were."""
        before = pending.messages
        self._writer.abort()
        self._writer.rebase(self._store.snapshots.latest())
        for accepted in kept.read():
            self._writer.take(accepted)
        pending.messages = self._writer.prepare_commit(pending.identifier, covers_table=True)
        pending.is_outdated = False
        if pending.may_discard:
            discard_messages(self._store, before)

    def _commit(self, pending: _PendingCommit) -> CommitResult:
        """Commits under the number of the pending commit; a number that was chosen here may have to be chosen again."""
        base_id = pending.base_id if pending.was_tried else None
        pending.was_tried = True
        while True:
            try:
                result = self._committer.commit(
                    pending.identifier, pending.messages, base_id=base_id, force_empty=self._commits_empty
                )
            except OutdatedAssignmentError as error:
                pending.is_outdated, pending.may_discard = True, error.is_certain
                raise
            if not (result.already_committed and pending.is_automatic):
                return result
            # The number is used up: by an earlier try of ours whose end we did not see, or by another program.
            if self._is_ours(pending):
                return result
            if self._log is not None:
                raise ConflictError(
                    f"table {self._store.location}: another program has committed as {self._commit_user!r} under "
                    f"number {pending.identifier}, which is in the log with the changes of this one; nothing was "
                    "committed. A log has one writer: stop the other one, abort, and write the rows again"
                )
            last = self._committer.has_committed(pending.identifier).last
            assert last is not None, "another program has committed this number"
            pending.identifier = check_identifier(last.identifier + 1)

    @property
    def _commits_empty(self) -> bool:
        options = self._store.options
        return options.commit_force_create_snapshot or not options.snapshot_ignore_empty_commit

    def _is_ours(self, pending: _PendingCommit) -> bool:
        """True when a snapshot has the files of this commit: an earlier try took effect, and its end was not seen."""
        return self._committer.snapshot_with(pending.messages, after_id=pending.base_id) is not None

    def abort(self) -> None:
        """Gives up what was written since the last commit and removes its files.

        Files of a commit that failed stay, since its outcome may be unknown; orphan cleaning takes them otherwise.
        """
        self._writer.abort()
        self._forget()

    def _forget(self) -> None:
        self._pending, self._has_rows, self._row_count = None, False, 0
        if self._kept is not None:
            self._kept.clear()

    def close(self) -> None:
        """Ends the session; a warning reports uncommitted rows, which are gone. Waits for what commits left to do.

        Raises `LostCommitError` where another program has replaced the last commit (`commit.coordination`).
        """
        if (uncommitted := self._end()) is not None:
            _LOG.warning(uncommitted)
        self._committer.check_last()

    def _uncommitted(self) -> str | None:
        """What to say about rows that were written and are in no commit; None where there are none."""
        if self._is_closed or not (self._row_count or self._writer.is_broken):
            return None
        begin = f"table {self._store.location}: the writer of user {self._commit_user!r} ends, and"
        rows = "1 row" if self._row_count == 1 else f"{self._row_count} rows"
        if self._pending is not None:
            return (
                f"{begin} commit {self._pending.identifier} of {rows} failed and was not tried "
                "again: call commit() once more, or abort(), before the end of the block. Look whether the rows are in "
                "the table"
            )
        rows = rows if self._row_count else "rows of a write that failed"
        return (
            f"{begin} {rows} {'was' if self._row_count == 1 else 'were'} not committed, and discarded: commit() is "
            "missing before the end of the block, or abort() where the rows are not wanted"
        )

    def _end(self, *, leaves_tag: bool = True) -> str | None:
        """Ends it, and gives what to say about rows that were not committed."""
        uncommitted = self._uncommitted()
        self._is_closed = True
        self.abort()
        self._committer.finish()
        if self._log is not None:
            self._log.close()
        if self._publisher is not None:
            self._publisher.close()
        self._store.env.finish_later()
        if leaves_tag and self._has_committed:
            from freshet.storage.tags.automatic import leave_batch_tag

            self._has_committed = False
            leave_batch_tag(self._store)
        return uncommitted

    def __enter__(self) -> TableSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        uncommitted = self._end(leaves_tag=error is None)
        if error is not None:
            return
        if uncommitted is not None:
            raise InvalidRequestError(uncommitted, path=self._store.location)
        self._committer.check_last()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(
                f"this writer of {self._store.location} is closed; open another one", path=self._store.location
            )

    def _open_committer(self, store: TableStore) -> Committer:
        from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
        from freshet.storage.maintenance.upkeep import upkeep_later

        log = None if self._log is None else self._log.identity
        return Committer(
            store,
            self._commit_user,
            log=log,
            renumber=self._renumber,
            after_commit=upkeep_later,
            at_end=expire_partitions_at_end,
        )

    def _renumber(
        self, identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> Sequence[CommitMessage]:
        """Renumbers rows of the pending commit; from then on it is these files that wait."""
        from freshet.storage.write.renumbering import renumbered

        pending = self._pending
        assert pending is not None, "only a pending commit is committed"
        made = renumbered(
            self._store,
            messages,
            self._store.snapshots.or_latest(base_id),
            identifier=identifier,
            headroom=headroom,
            parallelism=self._parallelism,
            sink=self._sink,
        )
        lost = {message.bucket_id for message in messages}
        kept = [each for each in pending.messages if each.bucket_id not in lost or each.assigned_upon is not None]
        pending.messages = [*kept, *made]
        return made

    def _open_writer(self, store: TableStore, base: Snapshot | None) -> TaskWriter:
        from freshet.storage.write.task_writer import TaskWriter
        from freshet.storage.write.unmerged_bucket_writer import Staging

        self._sink = None if self._log is None else self._log.sink(store.schema.id)
        staging = Staging(self._commit_user) if store.options.makes_commits_wait else None
        return TaskWriter(
            store,
            base_snapshot=base,
            parallelism=self._parallelism,
            sink=self._sink,
            staging=staging,
            kept=self._kept,
        )
