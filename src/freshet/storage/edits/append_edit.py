"""Edits of a table without a primary key: files are planned (`file_plan`), edited one by one (`bucket_edit`) and
committed in one snapshot, with the rows that the edit adds.

Where files go or rows are marked the snapshot is an OVERWRITE, where rows are only added an APPEND. A file that another
job has compacted or edited meanwhile makes the commit fail, and all is done again; the files of the attempt are
removed. Rows that others append meanwhile count as later, unless the plan says otherwise (`arrivals`).

Source: FORMAT.md §3.6, §10.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from freshet.storage.commit.committer import CommitResult, Committer, discard_messages
from freshet.storage.commit.round_change import Overwriting, RoundCheck
from freshet.storage.edits.bucket_edit import BucketEdit
from freshet.storage.edits.edit_commit import commit_edit
from freshet.storage.edits.edit_result import EditResult, result_of
from freshet.storage.edits.file_plan import FilePlan
from freshet.storage.edits.outdated_plan import OutdatedPlanError
from freshet.storage.exceptions import ConflictError, MissingFileError, NotFoundError, RetryableError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.shown_work import advance_work
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.scan.planner import plan_scan
from freshet.storage.write.task_writer import TaskWriter

ATTEMPTS_MAX: Final = 10
"""How often all is done again because another job has rewritten one of the files."""
PARALLELISM: Final = 2
"""Threads that write."""


def edit_files(
    store: TableStore, plan: FilePlan, *, dry_run: bool = False, given: Sequence[CommitMessage] | None = None
) -> EditResult:
    """Commits what a plan says; no snapshot where that is nothing.

    `given` are the files of an overwrite, made before (`added_files`), which are committed with it in an OVERWRITE.
    They are removed where the edit is given up for certain.
    """
    for _ in range(ATTEMPTS_MAX):
        latest = store.snapshots.latest()
        attempt = _Attempt(store, plan, dry_run)
        try:
            made = attempt.messages(latest)
        except (NotFoundError, MissingFileError):
            store.check_is_there()
            newer = store.snapshots.latest()
            if newer is None or latest is None or newer.id <= latest.id:
                raise
            continue  # files were compacted and have expired
        if dry_run or not (made or given):
            return EditResult(
                rows_deleted=attempt.rows_deleted,
                rows_updated=attempt.rows_updated,
                rows_inserted=attempt.rows_added,
                is_dry_run=dry_run,
            )
        store.env.reach(CrashPoint.EDIT_WRITTEN)
        check = plan.check(latest)
        try:
            committed = commit_edit(
                store,
                partial(_commit, made, given, check),
                partial(discard_messages, store, made),
                renumber=_plan_again,
            )
        except ConflictError:
            continue
        return result_of(
            store,
            committed,
            rows_deleted=attempt.rows_deleted,
            rows_updated=attempt.rows_updated,
            rows_inserted=attempt.rows_added,
        )
    if given and not store.env.is_remote:
        discard_messages(store, given)
    raise RetryableError(
        f"table {store.name}: another edit or compaction has rewritten files of this one, or added rows of it, each of "
        f"the {ATTEMPTS_MAX} times that it was made; nothing was committed. Stop the others for so long",
        table=store.name,
    )


def _commit(
    made: Sequence[CommitMessage],
    given: Sequence[CommitMessage] | None,
    check: RoundCheck | None,
    committer: Committer,
    number: int,
) -> CommitResult:
    if given is not None:
        return committer.change(number, Overwriting([*made, *given], check))
    return committer.commit(number, made, check=check)


def added_files(store: TableStore, snapshot: Snapshot | None) -> TaskWriter:
    """A writer of rows that an edit adds: it compacts nothing, for the edit may delete the same files."""
    write_only = store.with_options({"write-only": "true"})
    return TaskWriter(write_only, base_snapshot=snapshot, parallelism=PARALLELISM)


def _plan_again(*_: object) -> NoReturn:
    raise OutdatedPlanError("others have committed rows to the same buckets, numbered as those of this edit")


class _Attempt:
    """The edit upon one snapshot."""

    def __init__(self, store: TableStore, plan: FilePlan, dry_run: bool) -> None:
        self._store = store
        self._plan = plan
        self._dry_run = dry_run
        self._buckets: dict[BucketId, BucketEdit] = {}
        self._made: list[CommitMessage] = []
        self.rows_added = 0

    @property
    def rows_deleted(self) -> int:
        """Rows that go."""
        return sum(each.rows_deleted for each in self._buckets.values())

    @property
    def rows_updated(self) -> int:
        """Rows that get new values."""
        return sum(each.rows_updated for each in self._buckets.values())

    def messages(self, snapshot: Snapshot | None) -> list[CommitMessage]:
        """A message for each bucket that changes, and for each that gets rows; in a dry run none."""
        self._plan.begin()
        writer = added_files(self._store, snapshot)
        with undone_on_failure(self._discard):
            with undone_on_failure(writer.abort):
                self._edit(snapshot, writer)
                for rows in self._plan.added():
                    self.rows_added += rows.num_rows
                    if not self._dry_run:
                        writer.write(rows)
                self._made += writer.prepare_commit()
            writer.close()
            for bucket in self._buckets.values():
                if bucket.is_changed:
                    self._made.append(bucket.message())
                    bucket.new.clear()  # named by the message
            return self._made

    def _edit(self, snapshot: Snapshot | None, writer: TaskWriter) -> None:
        if snapshot is None:
            return
        store, buckets = self._store, self._buckets
        marking = store.manifests.marking_files(snapshot.index_manifest)
        splits = plan_scan(store, snapshot, self._plan.filter)
        for number, split in enumerate(splits, 1):
            bucket_id = (split.partition, split.bucket)
            if bucket_id not in buckets:
                vectors = BucketVectors(store.vectors, tuple(marking.get(bucket_id, ())))
                buckets[bucket_id] = BucketEdit(
                    store, bucket_id, split.total_buckets, vectors, self._plan, writer.write_stored, self._dry_run
                )
            for file in split.files:
                buckets[bucket_id].edit(file)
            advance_work(number, len(splits))

    def _discard(self) -> None:
        discard_messages(self._store, self._made)
        for bucket in self._buckets.values():
            bucket.discard()
