"""Background compaction of a table that streams of this process write: in units of one bucket, each with its commit.

    in each batch    with background.batch(budget_ms) as limit:             batches of several streams at the same time
                         … base snapshot, tasks that get the limit, commit …
                     background.note(buckets that were written)
    in one thread    while unit := background.next_unit():
                         messages = engine.run_background_unit(unit)        anywhere, for as long as it takes
                         background.commit(unit, messages)
                         background.release(unit)                           whatever happened
    of many tables   with alone_together(those that have something due):    between two batches, for all of them
                         units = [background.take() …]
                     …
                     with alone_together(those that have a unit): background.put(unit, messages) …

A unit takes files that no batch touches while it runs, so neither undoes the work of the other:

| table | a batch compacts | a unit takes |
|---|---|---|
| commits compact level 0 | level 0, with level 1 where that is taken | runs from level 2 on |
| other keyed tables | what back-pressure demands | what the picking rule asks for |
| append tables | nothing | what the picking rule asks for |

Within the limit's time a batch of a keyed table does what the picking rule asks for itself, but in no bucket of a unit.
Level 0 that a crash left behind, between the two snapshots of a commit, is a unit's as well.

Batches and what a unit does to the table take turns: a unit is chosen and committed between batches, never between the
base snapshot of a batch and its commit, in which a lookup of the batch could miss the files that the unit replaced.
Against writers of other processes the conflict check of the commit decides: then the unit is dropped.

Of the producers only those that make the changelog in compactions concern a unit. With lookup, a unit of upper levels
changes nothing that a reader of the table sees, and emits nothing; one of a level 0 left behind emits the changes of
these files, and nobody else has. With full-compaction a unit that writes the top level emits what it changes there. If
a unit is lost, fails or is dropped, its changelog files go with it: its inputs stay live, and their changes are emitted
by the next compaction. The files of a unit and their changelog are in one snapshot, all or nothing.

Source: MERGING.md §3.2, §4.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Final
from weakref import WeakValueDictionary

from freshet._frozen import Frozen
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.compact.bucket_plan import pick_rules, plan_append
from freshet.storage.compact.joint_changes import below_highest, emits_jointly_by_lookup, emits_jointly_in_full
from freshet.storage.compact.picker import CompactionUnit, pick_upper
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.maintenance.compaction_plan import due_unit, levels_of
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_facts import CompactionReason
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta, FileId
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import LookupCompact
from freshet.storage.options.core import CoreOptions
from freshet.storage.write.commit_compaction import CompactionLimit
from freshet.storage.write.task_writer import TaskWriter

LEFT_BEHIND_MS: Final = 60_000
"""Level-0 files of this age that a commit should have compacted were left behind by a crash."""

NUM_LEVELS_MIN: Final = 5
"""With fewer, too few levels are left between those of the batches and the highest."""


class BackgroundUnit(Frozen):
    """Files of one bucket to compact together, by (name, level); a value that travels to where it is run."""

    partition: bytes
    bucket: int
    inputs: frozenset[FileId]
    output_level: int
    input_bytes: int
    reason: CompactionReason = CompactionReason.FORCED

    @property
    def bucket_id(self) -> BucketId:
        """The bucket to compact."""
        return self.partition, self.bucket


class Turns:
    """A lock that many share or one holds alone; a thread that waits to be alone goes before later ones that share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting = 0
        self._is_alone = False
        self.busy: set[BucketId] = set()
        """Buckets of the units that run."""

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Inside, nobody is alone."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_alone or self._waiting))
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, nobody else is."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not (self._is_alone or self._sharing))
                self._is_alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


_turns_lock = threading.Lock()
_turns: WeakValueDictionary[str, Turns] = WeakValueDictionary()


class BackgroundCompaction:
    """Compacts a table between the batches of one process. One thread takes units, any may write batches."""

    def __init__(self, store: TableStore, commit_user: str) -> None:
        """`commit_user` is the name of these commits alone, the same from run to run.

        Raises `InvalidRequestError` where the compactions of this table must stay in its batches, and says why.
        """
        reason = why_not_in_background(store.options)
        if reason is not None:
            raise InvalidRequestError(
                f"table {store.location} cannot be compacted in the background of its streams: {reason}; its batches "
                "compact it",
                path=store.location,
            )
        with _turns_lock:
            self._turns = _turns.setdefault(store.location, Turns())
        self._lock = threading.Lock()
        self._noted: dict[BucketId, None] = {}
        self._due: dict[BucketId, int] = {}
        """Buckets in which a unit was due when they were looked at, and its bytes."""
        self._knows_table = False
        self._store = store
        self._committer = Committer(store, commit_user, after_commit=upkeep_later)

    @property
    def location(self) -> str:
        """The turns of the table. Who takes the turns of several tables takes them in the order of their locations:
        else two streams of the same tables would wait for each other for ever."""
        return self._store.location

    @contextmanager
    def batch(self, budget_ms: int) -> Iterator[CompactionLimit]:
        """Belongs around a batch, from the choice of its base snapshot to its commit; its writers keep the limit."""
        with self._turns.shared():
            yield CompactionLimit(budget_ms, frozenset(self._turns.busy))

    def note(self, buckets: Iterable[BucketId]) -> None:
        """Files were added to these buckets."""
        with self._lock:
            self._noted.update(dict.fromkeys(buckets))

    def next_unit(self) -> BackgroundUnit | None:
        """The next unit, of buckets that were noted, at first of all of the table; None when nothing is due.

        The caller must `release` it.
        """
        while self.due_bytes():
            with self._turns.alone():
                unit = self.take()
            if unit is not None:
                return unit
        return None

    def commit(self, unit: BackgroundUnit, messages: Sequence[CommitMessage]) -> CommitResult:
        """Makes a unit visible; where it does not fit any more it is dropped, and its files are removed."""
        with self._turns.alone():
            return self.put(unit, messages)

    def due_bytes(self) -> int:
        """What is to be compacted in the buckets that were noted, at first in all of the table."""
        for bucket in self._take_noted():
            try:
                unit = self._plan(bucket)
            except BaseException:
                self.note([bucket])
                raise
            if unit is None:
                self._due.pop(bucket, None)
            else:
                self._due[bucket] = unit.input_bytes
        return sum(self._due.values())

    def take(self) -> BackgroundUnit | None:
        """Inside `alone_together`: the largest unit that is due still. The caller must `release` it."""
        while self._due:
            bucket = max(self._due, key=self._due.__getitem__)
            unit = self._plan(bucket)
            del self._due[bucket]
            if unit is not None:
                self._turns.busy.add(bucket)
                return unit
        return None

    def put(self, unit: BackgroundUnit, messages: Sequence[CommitMessage]) -> CommitResult:
        """Inside `alone_together`: as `commit`."""
        latest = self._store.snapshots.latest()
        identifier = 0 if latest is None else latest.id
        result = self._committer.commit(identifier, messages, force_empty=False)
        self.note([unit.bucket_id])
        return result

    def release(self, unit: BackgroundUnit) -> None:
        """The unit is over, in whatever way."""
        self._turns.busy.discard(unit.bucket_id)

    def _take_noted(self) -> Iterator[BucketId]:
        """The buckets that were noted, each once; at first all of the table."""
        if not self._knows_table:
            buckets = list(self._store.at_latest(self._store.live.at).by_bucket)
            self._knows_table = True
            self.note(buckets)
        while True:
            with self._lock:
                bucket = next(iter(self._noted), None)
                if bucket is None:
                    return
                del self._noted[bucket]
            yield bucket

    def _plan(self, bucket: BucketId) -> BackgroundUnit | None:
        unit = self._store.at_latest(lambda snapshot: self._unit_of(bucket, snapshot))
        if unit is None:
            return None
        inputs = frozenset(file.file_id for file in unit.files)
        return BackgroundUnit(*bucket, inputs, unit.output_level, unit.input_bytes, unit.reason)

    def _unit_of(self, bucket: BucketId, snapshot: Snapshot | None) -> CompactionUnit | None:
        entries = self._store.live.of_buckets(snapshot, [bucket]).of_bucket(*bucket)
        options, files = self._store.options, [entry.file for entry in entries]
        if not files or (snapshot is not None and snapshot.schema_id > self._store.schema.id):
            return None
        if not self._store.schema.has_primary_key:
            units = plan_append(files, options, has_buckets=entries[0].total_buckets > 0, full=False)
            return CompactionUnit(0, units[0], reason=CompactionReason.SMALL_FILES) if units else None
        levels = levels_of(self._store, files)
        now_ms = self._store.env.creation_time_ms()
        is_emptied = options.commits_empty_level_0 and not _has_left_behind(files, now_ms)
        if is_emptied or emits_jointly_by_lookup(self._store):
            return pick_upper(levels, pick_rules(options, now_ms))
        due = due_unit(self._store, levels)
        return below_highest(self._store, levels, due) if emits_jointly_in_full(self._store) else due


@contextmanager
def alone_together(compactions: Iterable[BackgroundCompaction]) -> Iterator[None]:
    """Inside, no batch of these tables runs, each of which is given once."""
    with ExitStack() as turns:
        for each in sorted(compactions, key=lambda each: each.location):
            turns.enter_context(each._turns.alone())
        yield


def run_background_unit(store: TableStore, unit: BackgroundUnit) -> list[CommitMessage]:
    """Compacts a unit; no messages where its files are gone. They are for `BackgroundCompaction.commit`."""
    with closing(TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=1)) as writer:
        writer.compact_files(unit.bucket_id, unit.inputs, unit.output_level, unit.reason)
        return writer.take_messages()


def why_not_in_background(options: CoreOptions) -> str | None:
    """Why compactions of a table stay in its batches; None where they may run in the background."""
    if options.has_postponed_buckets:
        return "bucket=-2 leaves all compaction to `freshet compact`, which puts rows that wait into buckets"
    if options.write_only:
        return "the table is write-only: another program compacts it"
    if options.commit_force_compact:
        return "commit.force-compact=true has each commit do what is due"
    if not options.commits_empty_level_0:
        return None
    if options.deletion_vectors_enabled:
        return "each commit changes the deletion vectors that a unit in the background would build on"
    if options.lookup_compact is LookupCompact.GENTLE:
        return "lookup-compact=gentle puts compactions off already"
    if options.num_levels < NUM_LEVELS_MIN:
        return f"it has {options.num_levels} levels, and {NUM_LEVELS_MIN} are needed (num-levels)"
    return None


def _has_left_behind(files: Iterable[DataFileMeta], now_ms: int) -> bool:
    times = [file.creation_time_ms for file in files if file.level == 0]
    return any(at is not None and now_ms - at > LEFT_BEHIND_MS for at in times)
