"""Compacts a table bucket by bucket, concurrently with its writers, and commits as it goes.

    first  rows that wait for their bucket go into buckets, a partition at a time (`postponed_compaction`)
    plan   latest snapshot -> one `BucketCompaction` for each bucket that has something to do (`compaction_plan`)
    run    compacts them, several at a time; a commit when their inputs reach `COMMIT_BYTES` or `COMMIT_BUCKETS`, and
           one for all where their changes belong together (`compact.joint_changes`)

What was committed stays when the rest fails, is interrupted or exceeds the budget. Commits are made under a user of
their own, never under a stream's. If another writer has compacted files of a bucket meanwhile, the commit drops the
compaction of that bucket and removes its new files.

A `BucketCompaction` is a value: another process may run it (`compact_bucket`) and hand its messages to the one that
commits.

Source: MERGING.md §8.1, §8.2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from freshet._frozen import Frozen
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.conflict import Conflict
from freshet.storage.compact.joint_changes import emits_jointly, emits_jointly_by_lookup, waiting_buckets
from freshet.storage.exceptions import ConflictError
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.maintenance.bucket_rescale import BucketRescale
from freshet.storage.maintenance.compaction_plan import BucketCompaction, plan_compaction, plan_repair
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_test, warn_of_none
from freshet.storage.maintenance.postponed_compaction import PostponedPartition, compact_postponed, plan_postponed
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_handle import TableHandle
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.display import ids_text, size_text
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.commit_compaction import behind_full_compaction, is_full_compaction_due
from freshet.storage.write.task_writer import TaskWriter

COMPACT_USER_PREFIX: Final = "freshet-compact-"
"""The user of a compaction is this and a random id."""

ATTEMPTS_MAX: Final = 3
"""How often the rows of a partition that wait are moved to its buckets where others commit to these all the time."""

COMMIT_BYTES: Final = 1024 * 1024 * 1024
COMMIT_BUCKETS: Final = 256
"""Work between two commits: what is lost at most when the compaction is interrupted."""


class CompactionWork(Protocol):
    """What one call compacts."""

    @property
    def bucket_id(self) -> BucketId: ...
    @property
    def input_bytes(self) -> int: ...


_W = TypeVar("_W", bound=CompactionWork)
_P = TypeVar("_P", BucketCompaction, PostponedPartition)

Piece = BucketCompaction | BucketRescale | PostponedPartition
"""What one process does by itself; a value that travels there."""


class CompactionBudget(Frozen):
    """What may be begun: bytes of inputs, and seconds since the start.

    A bucket that was begun is finished. The first is begun whatever its size, so that a table with one large bucket is
    compacted at all; after it, buckets larger than what is left of the bytes are passed over.
    """

    input_bytes: int | None = None
    seconds: float | None = None

    @property
    def is_spent(self) -> bool:
        """True where nothing is left of what was given."""
        return self.input_bytes == 0 or self.seconds == 0

    def less(self, input_bytes: int, spent_ms: int) -> CompactionBudget:
        """What is left of it."""
        return CompactionBudget(
            None if self.input_bytes is None else max(0, self.input_bytes - input_bytes),
            None if self.seconds is None else max(0.0, self.seconds - spent_ms / 1000),
        )


class Elsewhere(Frozen):
    """Where compactions and rescales do their work, if not in this process: `run` does at most `parallelism` pieces of
    it at the same time, and gives the messages of each (`TableEngine.run_piece`, in any process, makes them)."""

    run: Callable[[TableHandle, Sequence[Piece]], Sequence[Sequence[CommitMessage]]]
    parallelism: int


class CompactionProgress(Frozen):
    """How far a compaction is: buckets done, input bytes done and planned."""

    buckets_done: int
    bytes_done: int
    bytes_planned: int


@dataclass(frozen=True, slots=True, repr=False)
class CompactionResult(Shown):
    """`snapshots` in order; compactions that were dropped on conflict; `buckets_left` did not fit into the budget."""

    snapshots: tuple[Snapshot, ...] = ()
    aborted_compactions: tuple[Conflict, ...] = ()
    buckets_done: int = 0
    buckets_left: int = 0
    input_bytes: int = 0

    def _shown(self) -> Facts:
        yield ("snapshots", ids_text(each.id for each in self.snapshots) or "none")
        yield from (("buckets compacted", self.buckets_done), ("left", self.buckets_left))
        yield from (("dropped", self.buckets_aborted), ("read", self.input_bytes and size_text(self.input_bytes)))

    @property
    def buckets_aborted(self) -> int:
        """Number of buckets whose compaction was dropped."""
        return len({conflict.bucket_id for conflict in self.aborted_compactions})

    def then(self, later: CompactionResult) -> CompactionResult:
        """Both, one after the other."""
        return CompactionResult(
            (*self.snapshots, *later.snapshots),
            (*self.aborted_compactions, *later.aborted_compactions),
            self.buckets_done + later.buckets_done,
            self.buckets_left + later.buckets_left,
            self.input_bytes + later.input_bytes,
        )


ProgressCallback = Callable[[CompactionProgress], None]
"""Called at the start and after each bucket, by one thread at a time, not always the same."""


def compaction_user(store: TableStore) -> str:
    """A commit user of its own for a compaction (`commit.user-prefix`)."""
    prefix = store.options.commit_user_prefix
    return f"{COMPACT_USER_PREFIX if prefix is None else prefix + '_'}{store.env.new_uuid()}"


def compact_table(
    store: TableStore,
    *,
    full: bool,
    partition: PartitionChoice | None = None,
    budget: CompactionBudget | None = None,
    progress: ProgressCallback | None = None,
    elsewhere: Elsewhere | None = None,
) -> CompactionResult:
    """Does what there is to do, as `Table.compact` says."""
    warn_of_none(store, [partition], "nothing is compacted")
    if not store.options.has_postponed_buckets:
        works = plan_compaction(store, full=full, partition=partition)
        return run_compaction(store, works, budget=budget, progress=progress, elsewhere=elsewhere)
    budget, started_ms = budget or CompactionBudget(), store.env.now_ms()
    is_chosen = partition_test(store, partition)
    result = CompactionResult()
    for attempt in range(ATTEMPTS_MAX):
        works_waiting = plan_postponed(store, is_chosen, full=full)
        if not works_waiting or (attempt and not result.aborted_compactions):
            break
        lost = {conflict.partition for conflict in result.aborted_compactions}
        chosen = [work for work in works_waiting if not attempt or work.partition in lost]
        left = budget.less(result.input_bytes, store.env.now_ms() - started_ms)
        made = _run_postponed(store, chosen, left, progress, elsewhere)
        result = replace(result, aborted_compactions=()).then(made)
    works = plan_compaction(store, full=full, partition=partition)
    left = budget.less(result.input_bytes, store.env.now_ms() - started_ms)
    if left.is_spent:
        return result.then(CompactionResult(buckets_left=len(works)))
    return result.then(run_compaction(store, works, budget=left, progress=progress, elsewhere=elsewhere))


def _run_postponed(
    store: TableStore,
    works: Sequence[PostponedPartition],
    budget: CompactionBudget,
    progress: ProgressCallback | None,
    elsewhere: Elsewhere | None,
) -> CompactionResult:
    if not works:
        return CompactionResult()
    account = CompactionAccount(store, works, budget, progress)
    if elsewhere is not None:
        return account.committed(_batches(works), partial(_done_elsewhere, elsewhere, store.handle, account))

    def compact(batch: Sequence[PostponedPartition]) -> list[CommitMessage]:
        messages: list[CommitMessage] = []
        with undone_on_failure(lambda: discard_messages(store, messages)):
            for work in batch:
                if account.may_start(work.bucket_id):
                    messages += compact_postponed(store, work)
                    account.on_end(work.bucket_id)
        return messages

    return account.committed(_batches(works), compact)


def run_compaction(
    store: TableStore,
    works: Sequence[BucketCompaction],
    *,
    budget: CompactionBudget | None = None,
    progress: ProgressCallback | None = None,
    elsewhere: Elsewhere | None = None,
) -> CompactionResult:
    """Compacts within the budget, here or elsewhere, and commits. Work that is committed together is begun, and then
    finished, where anything of the budget is left."""
    if not works:
        return CompactionResult()
    upon = works[0].joint_upon
    if upon is not None and not (budget is not None and budget.is_spent):
        budget = None
    account = CompactionAccount(store, works, budget or CompactionBudget(), progress)
    batches = _batches(works) if upon is None else [works]
    if elsewhere is not None:
        return account.committed(batches, partial(_done_elsewhere, elsewhere, store.handle, account))
    with closing(TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=2)) as writer:

        def compact(batch: Sequence[BucketCompaction]) -> list[CommitMessage]:
            writer.rebase(_base(store, batch[0]))
            buckets = [work.bucket_id for work in batch]
            writer.compact_buckets(buckets, full=batch[0].full, may_start=account.may_start, on_end=account.on_end)
            _check_base(store, batch[0], writer)
            return writer.take_messages()

        return account.committed(batches, compact)


def _base(store: TableStore, work: BucketCompaction) -> Snapshot | None:
    """What a bucket is compacted upon."""
    return store.snapshots.latest() if work.joint_upon is None else store.snapshots.snapshot(work.joint_upon)


def _check_base(store: TableStore, work: BucketCompaction, writer: TaskWriter) -> None:
    """A writer goes on upon the latest snapshot where its own has expired."""
    if work.joint_upon not in (None, writer.base_snapshot_id):
        raise ConflictError(
            f"table {store.location}: snapshot {work.joint_upon}, upon which all buckets were to be compacted, expired "
            "meanwhile; nothing was committed. Keep snapshots for longer (snapshot.time-retained), and compact again",
            path=store.location,
        )


def _done_elsewhere(
    elsewhere: Elsewhere, table: TableHandle, account: CompactionAccount, batch: Sequence[_P]
) -> list[CommitMessage]:
    messages: list[CommitMessage] = []
    waiting = list(batch)
    while waiting:
        begun, waiting = waiting[: elsewhere.parallelism], waiting[elsewhere.parallelism :]
        begun = [work for work in begun if account.may_start(work.bucket_id)]
        if not begun:
            continue
        for work, made in zip(begun, elsewhere.run(table, begun), strict=True):
            messages += made
            account.on_end(work.bucket_id)
    return messages


def repair_levels(
    store: TableStore, *, partition: PartitionChoice | None = None, progress: ProgressCallback | None = None
) -> CompactionResult:
    """Merges levels whose files overlap (`merge.overlaps`), bucket by bucket; others stay as they are."""
    works = plan_repair(store, partition=partition)
    account = CompactionAccount(store, works, CompactionBudget(), progress)
    with closing(TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=2)) as writer:

        def repair(batch: Sequence[BucketCompaction]) -> list[CommitMessage]:
            writer.rebase(store.snapshots.latest())
            writer.repair_buckets([work.bucket_id for work in batch], account.on_end)
            return writer.take_messages()

        return account.committed(([work] for work in works), repair)


def compact_bucket(store: TableStore, work: BucketCompaction) -> list[CommitMessage]:
    """Compacts one bucket here; the messages are for the committer of the compaction.

    The bucket is planned again on the latest snapshot, unless all of the plan is compacted upon one: files that another
    writer has compacted since are left out.
    """
    with closing(TaskWriter(store, base_snapshot=_base(store, work), parallelism=1)) as writer:
        writer.compact_buckets([work.bucket_id], full=work.full)
        _check_base(store, work, writer)
        return writer.take_messages()


def complete_compaction(
    store: TableStore, identifier: int, messages: Sequence[CommitMessage], *, parallelism: int = 2
) -> list[CommitMessage]:
    """What a commit of several writers lacks where it compacts more than they write.

    Writers that share a commit compact the buckets that they write. Here the others follow that were written since
    their last full compaction, where `full-compaction.delta-commits` has this commit compact the table in full, and
    those whose changes belong with its own (`compact.joint_changes`). The messages belong to the same commit; none
    where nothing is due.
    """
    is_full = is_full_compaction_due(store.options, identifier)
    if is_full:
        behind = store.at_latest(lambda snapshot: behind_full_compaction(store, snapshot))
    elif emits_jointly_by_lookup(store) and not store.options.compacts_elsewhere:
        behind = store.at_latest(lambda snapshot: waiting_buckets(store, snapshot))
    else:
        return []
    others = sorted(behind - {message.bucket_id for message in messages})
    if not others:
        return []
    with closing(TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=parallelism)) as writer:
        try:
            writer.compact_buckets(others, full=is_full, reason=CompactionReason.FULL_BY_SCHEDULE)
        except ConflictError:
            if emits_jointly(store):
                raise
            return []  # the table was altered meanwhile: a commit in the new schema compacts it
        return writer.take_messages()


class CompactionAccount:
    """What was done of the work of one compaction, against the budget, and its commits; threads share it."""

    def __init__(
        self,
        store: TableStore,
        works: Sequence[CompactionWork],
        budget: CompactionBudget,
        progress: ProgressCallback | None,
    ) -> None:
        self._store = store
        self._bytes = {work.bucket_id: work.input_bytes for work in works}
        self._bytes_planned = sum(self._bytes.values())
        self._budget = budget
        self._progress = progress
        self._lock = threading.Lock()
        self._started_ms = store.env.now_ms()
        self._bytes_begun = 0
        self.is_exhausted = False
        self.buckets_done = 0
        self.bytes_done = 0
        self._report()

    def committed(
        self,
        batches: Iterable[Sequence[_W]],
        compact: Callable[[Sequence[_W]], Sequence[CommitMessage]],
    ) -> CompactionResult:
        """Compacts batch by batch, each with a commit, until the budget is used up."""
        committer = Committer(self._store, compaction_user(self._store), after_commit=upkeep_later)
        snapshots: list[Snapshot] = []
        aborted_compactions: list[Conflict] = []
        for identifier, batch in enumerate(batches):
            if self.is_exhausted:
                break
            result = committer.commit(identifier, compact(batch), force_empty=False)
            snapshots += result.snapshots
            aborted_compactions += result.aborted_compactions
        buckets_left = len(self._bytes) - self.buckets_done
        return CompactionResult(
            tuple(snapshots), tuple(aborted_compactions), self.buckets_done, buckets_left, self.bytes_done
        )

    def may_start(self, bucket: BucketId) -> bool:
        """Takes the bucket from the budget; False when too little is left."""
        with self._lock:
            limit, seconds = self._budget.input_bytes, self._budget.seconds
            if seconds is not None and self._store.env.now_ms() - self._started_ms >= seconds * 1000:
                self.is_exhausted = True
            has_room = limit is None or not self._bytes_begun or self._bytes_begun + self._bytes[bucket] <= limit
            if self.is_exhausted or not has_room:
                return False
            self._bytes_begun += self._bytes[bucket]
            return True

    def on_end(self, bucket: BucketId) -> None:
        """Counts a bucket that was compacted."""
        with self._lock:
            self.buckets_done += 1
            self.bytes_done += self._bytes[bucket]
            self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(CompactionProgress(self.buckets_done, self.bytes_done, self._bytes_planned))


def _batches(works: Sequence[_W]) -> Iterator[list[_W]]:
    """The work between two commits."""
    batch: list[_W] = []
    size = 0
    for work in works:
        if batch and (size + work.input_bytes > COMMIT_BYTES or len(batch) >= COMMIT_BUCKETS):
            yield batch
            batch, size = [], 0
        batch.append(work)
        size += work.input_bytes
    if batch:
        yield batch
