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
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import gcd
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.commit.committer import Committer
from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from freshet.storage.files.data_file_paths import discard_messages
from freshet.storage.io.removal import undone_on_failure
from freshet.storage.maintenance.bucket_rescale import BucketRescale, OldBucket, rescale_buckets
from freshet.storage.maintenance.compaction_plan import levels_of, plan_compaction
from freshet.storage.maintenance.partition_choice import PartitionChoice, partition_test, warn_of_none
from freshet.storage.maintenance.table_compaction import Elsewhere, run_compaction
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.merge.overlaps import overlap_error, overlapping_levels
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.schema_alteration import alter_table
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.display import ids_text, size_text
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import RESCALED_PROPERTY, Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET, LogSystem
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.schema.change import SetBucketCount
from freshet.storage.write.bucket_state import vector_files

RESCALE_USER_PREFIX: Final = "freshet-rescale-"
ATTEMPTS_MAX: Final = 10
"""How often a partition is done again because others have committed to it meanwhile."""
PARALLELISM: Final = 2
"""Pieces of work that this process does at the same time."""
OPEN_BUCKETS_MAX: Final = 8
"""New buckets that are written in one pass over the old ones: each holds the rows of a chunk in memory."""


class RescaleProgress(Frozen):
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
    _check_rescalable(store, bucket)
    is_chosen = partition_test(store, partition)
    warn_of_none(store, [partition], "nothing is rescaled")
    if store.options.bucket != bucket:
        alter_table(store, [SetBucketCount(bucket)], allow_lossy=False)
        store = store.at_latest_schema()
    sizes = store.at_latest(partial(_partitions_to_rescale, store, bucket))
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
        self._started_ms = store.env.now_ms()
        self._commit_count = self._partitions_done = self._bytes_done = self._bytes_written = 0

    def run(self) -> RescaleResult:
        """Rescales what is waiting, as many partitions at a time as it takes to keep all tasks busy."""
        self._report()
        while self._waiting:
            plans = self._next_plans()
            self._started_ms = self._store.env.now_ms()
            made = self._written(plans)
            with undone_on_failure(partial(self._discard, chain.from_iterable(made))):
                for plan in plans if made else ():
                    self._commit(plan, made.pop(0))
            self._bytes_written = 0
            self._report()
        repeats = sum(count - 1 for count in self._attempts.values())
        return RescaleResult(tuple(self._snapshots), self._partitions_done, self._bytes_done, repeats)

    def _next_plans(self) -> list[_PartitionPlan]:
        plans: list[_PartitionPlan] = []
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

    def _plan(self, name: bytes) -> _PartitionPlan | None:
        """None where changes have come that must be emitted before."""
        self._store = self._store.at_latest_schema()
        if self._store.options.bucket != self._bucket:
            raise ConflictError(
                f"table {self._store.name} is to have {self._store.options.bucket} buckets since another program "
                f"rescales it; this rescale to {self._bucket} stops. {self._partitions_done} partitions were done",
                table=self._store.name,
            )
        store = self._store
        if _emits_in_compactions(store):
            works = plan_compaction(store, full=True, partition=name)
            compacted = run_compaction(store, works, elsewhere=self._elsewhere)
            self._snapshots += compacted.snapshots
        buckets_max = OPEN_BUCKETS_MAX if self._elsewhere is None else 1
        return store.at_latest(partial(_plan_partition, store, name, self._bucket, buckets_max))

    def _written(self, plans: Sequence[_PartitionPlan]) -> list[list[CommitMessage]]:
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
        if elsewhere is not None:
            for start in range(0, len(works), elsewhere.parallelism):
                begun = works[start : start + elsewhere.parallelism]
                made += elsewhere.run(store.handle, begun)
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

    def _commit(self, plan: _PartitionPlan, messages: Sequence[CommitMessage]) -> None:
        """Puts the new files in the place of the old ones; on conflict the partition waits for another time."""
        old = tuple(file for message in plan.removed for file in message.deleted_files)
        new = CompactedFiles(old, tuple(file for message in messages for file in message.new_files))
        facts = replace(
            new.facts(CompactionReason.RESCALE, self._store.env.now_ms() - self._started_ms, to_level=None),
            bucket_count=len(plan.removed),
        )
        removed = (replace(plan.removed[0], compactions=(facts,)), *plan.removed[1:])
        committer = Committer(self._store, self._user, after_commit=upkeep_later)
        self._commit_count += 1
        try:
            result = committer.commit(
                self._commit_count - 1,
                (*removed, *messages),
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


class _PartitionPlan(Frozen):
    """What is written of a partition, and what it takes the place of."""

    partition: bytes
    works: tuple[BucketRescale, ...]
    removed: tuple[CommitMessage, ...]

    snapshot_id: int = 0
    """The snapshot whose files they are."""

    @property
    def input_bytes(self) -> int:
        """Bytes of the files that go."""
        return sum(file.file_size_bytes for message in self.removed for file in message.deleted_files)


def _check_rescalable(store: TableStore, bucket: int) -> None:
    """Raises where the table cannot be rescaled to that number."""
    now, copied = store.options.bucket, "create another table with that option and copy the rows"
    where = f"table {store.name} cannot be rescaled from bucket={now} to {bucket}"
    if isinstance(bucket, bool) or not isinstance(bucket, int) or (bucket < 1 and bucket not in (-1, -2)):
        raise InvalidRequestError(f"bucket={bucket!r}: give the number of buckets, from 1 on", option="bucket")
    if CoreOptions.log_system.of(store.schema.options) is not LogSystem.NONE:
        raise UnsupportedFeatureError(
            f"{where}: it has a log (log.system), whose topic has a partition for each bucket. Stop its writer, take "
            "the log away (ALTER TABLE … UNSET TBLPROPERTIES ('log.system')), rescale, and give it a log again with "
            "another kafka.topic",
            table=store.name,
            option="log.system",
        )
    if now == bucket and bucket > 0:
        return
    if now == DYNAMIC_BUCKET and store.schema.has_primary_key:
        raise InvalidRequestError(
            f"{where}: an index assigns its keys to buckets, and their number grows with the keys. For a fixed number "
            f"{copied}",
            table=store.name,
            option="bucket",
        )
    if store.options.has_postponed_buckets:
        raise InvalidRequestError(
            f"{where}: rows wait, and a compaction gives each partition its number of buckets "
            "(postpone.default-bucket-num, postpone.target-row-num-per-bucket), which stays. For another number in a "
            f"partition take the rescale of Apache Paimon on Flink; for a fixed number everywhere {copied}",
            table=store.name,
            option="bucket",
        )
    if now < 1:
        raise InvalidRequestError(
            f"{where}: its rows are in no fixed buckets; {copied}", table=store.name, option="bucket"
        )
    if bucket == POSTPONE_BUCKET:
        raise InvalidRequestError(
            f"{where}: its rows are in buckets already, and none waits for one; {copied}",
            table=store.name,
            option="bucket",
        )
    if bucket < 1:
        raise InvalidRequestError(
            f"{where}: no index knows the buckets of its keys; {copied}", table=store.name, option="bucket"
        )


def _partitions_to_rescale(store: TableStore, bucket: int, snapshot: Snapshot | None) -> dict[bytes, int]:
    """Bytes of the partitions that have another number of buckets."""
    found: dict[bytes, int] = {}
    for (name, _), entries in store.live.at(snapshot).by_bucket.items():
        files = [entry.file for entry in entries.values() if entry.total_buckets != bucket]
        if files:
            found[name] = found.get(name, 0) + sum(file.file_size_bytes for file in files)
    return found


def _emits_in_compactions(store: TableStore) -> bool:
    """Whether files of level 0 hold changes that readers do not know yet."""
    return store.options.needs_lookup or store.options.changelog_producer.emits.in_compactions


def _is_emitted(store: TableStore, file: DataFileMeta) -> bool:
    if store.options.changelog_producer.emits.only_at_highest_level:
        return file.level == store.options.num_levels - 1
    return file.level > 0 or not _emits_in_compactions(store)


def _plan_partition(
    store: TableStore, name: bytes, count: int, buckets_max: int, snapshot: Snapshot | None
) -> _PartitionPlan | None:
    """The work of a partition, at most so many new buckets in a piece: nothing where it has that number already, None
    where a compaction must come first."""
    entries = live_entries(store.manifests, snapshot, partition=name.__eq__)
    if all(entry.total_buckets == count for entry in entries):
        return _PartitionPlan(name, (), ())
    if not all(_is_emitted(store, entry.file) for entry in entries):
        return None
    old_count = _count_of(store, name, entries)
    files: dict[int, list[DataFileMeta]] = {}
    for entry in entries:
        files.setdefault(entry.bucket, []).append(entry.file)
    marks = vector_files(store, snapshot)
    olds = {bucket: OldBucket(bucket, tuple(each), marks.get((name, bucket), ())) for bucket, each in files.items()}
    for bucket, each in files.items() if store.schema.has_primary_key else ():
        for reason in overlapping_levels(levels_of(store, each)).values():
            raise overlap_error(store.bucket_folder(name, bucket), reason)
    modulus = gcd(old_count, count)
    works = []
    for remainder in range(modulus):
        inputs = tuple(old for bucket, old in sorted(olds.items()) if bucket % modulus == remainder)
        targets = range(remainder, count, modulus)
        for start in range(0, len(targets) if inputs else 0, buckets_max):
            works.append(BucketRescale(name, tuple(targets[start : start + buckets_max]), count, old_count, inputs))
    removed = [
        CommitMessage(name, old.bucket, old_count, deleted_files=old.files, deleted_index_files=old.index_files)
        for old in olds.values()
    ]
    return _PartitionPlan(name, tuple(works), tuple(removed), 0 if snapshot is None else snapshot.id)


def _count_of(store: TableStore, name: bytes, entries: Sequence[ManifestEntry]) -> int:
    """The number of buckets that all files of the partition were written with."""
    counts = sorted({entry.total_buckets for entry in entries})
    path = store.partition_path(name)
    where = f"partition {path} of {store.location}" if path else store.location
    if len(counts) > 1:
        raise CorruptDataError(
            f"{where} has files of {' and of '.join(map(str, counts))} buckets, so that keys may be in two of them: a "
            "program committed rows that it had routed before the partition was rescaled. Overwrite the partition with "
            "its own rows, read once, by Apache Paimon; stop such programs before a rescale",
            path=store.location,
        )
    if counts[0] < 1:
        raise InvalidRequestError(
            f"{where} was written with bucket={counts[0]}, its rows are in no fixed buckets; overwrite it with its own "
            "rows by Apache Paimon",
            path=store.location,
        )
    return counts[0]
