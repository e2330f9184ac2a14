"""Gives a table another fixed number of buckets, partition by partition, concurrently with its readers.

    1. the option `bucket` says the new number: partitions to come have it. Those that have files keep theirs
    2. of each partition with another number: what has changes to emit yet is compacted in full, which emits them
    3. its new buckets are written (`bucket_rescale`), and one OVERWRITE puts them in the place of all its files. It
       changes no row and says so (`RESCALED_PROPERTY`), so that no reader emits changes for it

Each step can be the last: in between, a table has partitions with different numbers of buckets, each of which is read,
written and compacted with its own; called again, a rescale goes on with the partitions that are left.

Whoever commits to a partition meanwhile makes the overwrite fail, for it would leave files of the old number: then the
partition is done again. A writer whose rows were routed to the old number is refused at its commit (`commit.conflict`).
Of two rescales to different numbers the later one goes on, the other stops.

Source: MERGING.md §8.1; FORMAT.md §8.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from freshet.storage.commit.committer import Committer, discard_messages
from freshet.storage.exceptions import ConflictError, NotFoundError
from freshet.storage.io.undo import undone_on_failure
from freshet.storage.maintenance.bucket_rescale import BucketRescale, rescale_buckets
from freshet.storage.maintenance.compaction_plan import plan_compaction
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_test, warn_of_none
from freshet.storage.maintenance.rescale_plan import (
    PartitionPlan,
    check_rescalable,
    emits_in_compactions,
    partitions_to_rescale,
    plan_partition,
)
from freshet.storage.maintenance.table_compaction import Elsewhere, run_compaction
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.schema_alteration import alter_table
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.display import ids_text, size_text
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import RESCALED_PROPERTY, Snapshot
from freshet.storage.schema.change import SetBucketCount

RESCALE_USER_PREFIX: Final = "freshet-rescale-"
ATTEMPTS_MAX: Final = 10
"""How often a partition is done again because others have committed to it meanwhile."""
PARALLELISM: Final = 2
"""Pieces of work that this process does at the same time."""
OPEN_BUCKETS_MAX: Final = 8
"""New buckets that are written in one pass over the old ones: each holds the rows of a chunk in memory."""


@dataclass(frozen=True, slots=True)
class RescaleProgress:
    """How far a rescale is: partitions and input bytes, done and planned."""

    partitions_done: int
    partitions_planned: int
    bytes_done: int
    bytes_planned: int


@dataclass(frozen=True, slots=True, repr=False)
class RescaleResult(Shown):
    """`snapshots` in order, also of compactions that emitted what was left to emit; `repeats` is how often partitions
    were done again because others had committed to them."""

    snapshots: tuple[Snapshot, ...] = ()
    partitions_done: int = 0
    input_bytes: int = 0
    repeats: int = 0

    def _shown(self) -> Facts:
        yield from (("snapshots", ids_text(each.id for each in self.snapshots)), ("partitions", self.partitions_done))
        yield from (("read", self.input_bytes and size_text(self.input_bytes)), ("done again", self.repeats))


RescaleCallback = Callable[[RescaleProgress], None]
"""Called at the start and as work is done, by one thread at a time."""


def rescale(
    store: TableStore,
    bucket: int,
    *,
    partition: PartitionChoice | None = None,
    progress: RescaleCallback | None = None,
    elsewhere: Elsewhere | None = None,
) -> RescaleResult:
    """Rescales the partitions that are meant and have another number of buckets; raises as `Table.rescale` says."""
    store = store.at_latest_schema()
    store.check_writable()
    check_rescalable(store, bucket)
    is_chosen = partition_test(store, partition)
    warn_of_none(store, [partition], "nothing is rescaled")
    if store.options.bucket != bucket:
        alter_table(store, [SetBucketCount(bucket)], allow_lossy=False)
        store = store.at_latest_schema()
    sizes = store.at_latest(partial(partitions_to_rescale, store, bucket))
    waiting = {name: size for name, size in sorted(sizes.items()) if is_chosen(name)}
    result = _Rescale(store, bucket, waiting, progress, elsewhere).run()
    store.env.finish_later()
    return result


class _Rescale:
    """One rescale of one table."""

    def __init__(
        self,
        store: TableStore,
        bucket: int,
        sizes: Mapping[bytes, int],
        progress: RescaleCallback | None,
        elsewhere: Elsewhere | None,
    ) -> None:
        """`sizes` are the bytes of the partitions to rescale."""
        self._store = store
        self._bucket = bucket
        self._waiting = deque(sizes)
        self._partition_count = len(sizes)
        self._bytes_planned = sum(sizes.values())
        self._progress = progress
        self._elsewhere = elsewhere
        self._user = f"{RESCALE_USER_PREFIX}{store.env.new_uuid()}"
        self._attempts: Counter[bytes] = Counter()
        self._snapshots: list[Snapshot] = []
        self._commit_count = self._partitions_done = self._bytes_done = self._bytes_written = 0

    def run(self) -> RescaleResult:
        """Rescales what is waiting, as many partitions at a time as it takes to keep all tasks busy."""
        self._report()
        while self._waiting:
            plans = self._next_plans()
            made = self._written(plans)
            with undone_on_failure(partial(self._discard, chain.from_iterable(made))):
                for plan in plans if made else ():
                    self._commit(plan, made.pop(0))
            self._bytes_written = 0
            self._report()
        repeats = sum(count - 1 for count in self._attempts.values())
        return RescaleResult(tuple(self._snapshots), self._partitions_done, self._bytes_done, repeats)

    def _next_plans(self) -> list[PartitionPlan]:
        plans: list[PartitionPlan] = []
        wanted = PARALLELISM if self._elsewhere is None else self._elsewhere.parallelism
        while self._waiting and sum(len(plan.works) for plan in plans) < wanted:
            name = self._waiting.popleft()
            self._refuse_endless(name)
            plan = self._plan(name)
            if plan is None:
                self._waiting.append(name)
            elif not plan.works:
                self._partitions_done += 1  # another rescale, or nothing is left of it
            else:
                plans.append(plan)
        return plans

    def _refuse_endless(self, name: bytes) -> None:
        self._attempts[name] += 1
        if self._attempts[name] > ATTEMPTS_MAX:
            raise ConflictError(
                f"partition {self._store.partition_path(name)} of {self._store.location}: others committed to it each "
                f"of the {ATTEMPTS_MAX} times that it was rescaled; {self._partitions_done} of {self._partition_count} "
                "partitions are done. Stop its writers for so long, and call again: it goes on with the others",
                path=self._store.location,
            )

    def _plan(self, name: bytes) -> PartitionPlan | None:
        """None where changes have come that must be emitted before."""
        self._store = self._store.at_latest_schema()
        if self._store.options.bucket != self._bucket:
            raise ConflictError(
                f"table {self._store.name} is to have {self._store.options.bucket} buckets since another program "
                f"rescales it; this rescale to {self._bucket} stops. {self._partitions_done} partitions were done",
                table=self._store.name,
            )
        store = self._store
        if emits_in_compactions(store):
            works = plan_compaction(store, full=True, partition=name)
            compacted = run_compaction(store, works, elsewhere=self._elsewhere)
            self._snapshots += compacted.snapshots
        buckets_max = OPEN_BUCKETS_MAX if self._elsewhere is None else 1
        return store.at_latest(partial(plan_partition, store, name, self._bucket, buckets_max))

    def _written(self, plans: Sequence[PartitionPlan]) -> list[list[CommitMessage]]:
        """The messages of each plan; none where the files of one were compacted away and have expired meanwhile."""
        made: list[Sequence[CommitMessage]] = []
        try:
            with undone_on_failure(partial(self._discard, chain.from_iterable(made))):
                self._write([work for plan in plans for work in plan.works], made)
        except NotFoundError:
            latest = self._store.snapshots.latest_id() or 0
            if all(plan.snapshot_id >= latest for plan in plans):
                raise
            self._waiting.extend(plan.partition for plan in plans)
            return []
        each = iter(made)
        return [[message for _ in plan.works for message in next(each)] for plan in plans]

    def _write(self, works: Sequence[BucketRescale], made: list[Sequence[CommitMessage]]) -> None:
        store, elsewhere = self._store, self._elsewhere
        if elsewhere is not None and elsewhere.rescale_buckets is not None:
            for start in range(0, len(works), elsewhere.parallelism):
                begun = works[start : start + elsewhere.parallelism]
                made += elsewhere.rescale_buckets(store.handle, begun)
                self._note_written(begun)
            return
        with ThreadPoolExecutor(PARALLELISM, "freshet-rescale") as pool:
            tasks = [pool.submit(rescale_buckets, store, work) for work in works]
            errors = []
            for task, work in zip(tasks, works, strict=True):
                error = task.exception()
                if error is None:
                    made.append(task.result())
                    self._note_written([work])
                else:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _note_written(self, works: Sequence[BucketRescale]) -> None:
        # The buckets of one modulus are written from the same files.
        self._bytes_written += sum(
            work.input_bytes * len(work.buckets) * work.modulus // work.new_count for work in works
        )
        self._report()

    def _commit(self, plan: PartitionPlan, messages: Sequence[CommitMessage]) -> None:
        """Puts the new files in the place of the old ones; on conflict the partition waits for another time."""
        committer = Committer(self._store, self._user, after_commit=upkeep_later)
        self._commit_count += 1
        try:
            result = committer.commit(
                self._commit_count - 1,
                (*plan.removed, *messages),
                properties={RESCALED_PROPERTY: str(self._bucket)},
            )
        except ConflictError:
            self._discard(messages)
            self._waiting.append(plan.partition)
            return
        self._snapshots += result.snapshots
        self._partitions_done += 1
        self._bytes_done += plan.input_bytes
        self._bytes_written = max(0, self._bytes_written - plan.input_bytes)

    def _discard(self, messages: Iterable[CommitMessage]) -> None:
        """Removes new files; at a store they are left to orphan cleaning, since what was sent may arrive yet."""
        if not self._store.env.is_remote:
            discard_messages(self._store, messages)

    def _report(self) -> None:
        if self._progress is not None:
            done = self._bytes_done + self._bytes_written
            planned = max(self._bytes_planned, done)
            self._progress(RescaleProgress(self._partitions_done, self._partition_count, done, planned))
