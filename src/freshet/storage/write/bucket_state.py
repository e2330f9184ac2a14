"""What a process knows of the buckets it works on, from one commit to the next.

    BucketState      one bucket at one snapshot: its files, how many buckets its partition has
    BucketMemory     what is known of a bucket beside its files and follows it from state to state
    BucketStates     the buckets of one table that this process touched, all at one snapshot

A state is a function of its snapshot. `BucketStates.at` gives the states at the snapshot that the caller builds on:

| the snapshot asked for              | what happens |
|-------------------------------------|--------------|
| the one known                       | known buckets as they are |
| later, at most `STEPS_MAX` commits  | the deltas of these commits are applied; the known one must stand unchanged |
| anything else: far, rolled back, expired | all is forgotten |
| earlier, while the known one stands | read for the caller alone, nothing is kept |

What is not known is read from the manifests that may hold it; of a table with few files all buckets are read at once,
because each look into the manifests costs as much. So a process may come back to a bucket after others have
worked on it, or never: nothing has to be told to it. Buckets that were not asked for longest are let go when the files
of all buckets together are more than `FILES_MAX`; what their memory holds goes with them.

Source: MERGING.md §1.1, §1.4.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.compact.picker import GentlePatience
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.merge.sorted_runs import KeyOrder, Levels, build_levels
from freshet.storage.metadata.live_files import (
    STEPS_MAX,
    BucketFiles,
    data_manifests,
    delta_entries,
    files_after,
    files_by_bucket,
    grouped_by_bucket,
    live_entries,
)
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, IndexFileMeta, ManifestEntry
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.compaction_limit import CompactionSpeed

FILES_MAX: Final = 100_000
"""Files of all known buckets of one table. The entries themselves are shared with the manifests in memory."""

SMALL_ENTRIES_MAX: Final = 20_000
"""Manifest entries of a table that is read whole: some 20 ms."""

TABLES_MAX: Final = 32
"""Tables of which one process knows buckets."""

_NO_FILES: Final[BucketFiles] = MappingProxyType({})


@dataclass(slots=True)
class BucketMemory:
    """What the bucket's files do not tell. Belongs to whoever works on the bucket: one thread at a time.

    `last_full_ms` is when this process last picked a full compaction; `patience` counts idle picks of gentle lookup.
    """

    patience: GentlePatience | None = None
    last_full_ms: int | None = None
    levels: tuple[BucketFiles, Levels] | None = None

    def patience_of(self, interval: int) -> GentlePatience:
        """The patience of this bucket, a new one for another interval."""
        if self.patience is None or self.patience.interval != interval:
            self.patience = GentlePatience(interval)
        return self.patience


@dataclass(frozen=True, slots=True)
class BucketState:
    """Live files of one bucket at one snapshot, and the index files that hold its deletion vectors."""

    files: BucketFiles = field(default_factory=lambda: _NO_FILES)
    memory: BucketMemory = field(default_factory=BucketMemory, compare=False)
    index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def data_files(self) -> list[DataFileMeta]:
        """The files without their place."""
        return [entry.file for entry in self.files.values()]

    @property
    def total_buckets(self) -> int | None:
        """Number of buckets that the partition was written with; None for a bucket without files."""
        return next((entry.total_buckets for entry in self.files.values()), None)

    @property
    def next_sequence(self) -> int:
        """The sequence number after the largest of the files."""
        return max((entry.file.max_sequence_number for entry in self.files.values()), default=-1) + 1

    def levels(self, num_levels: int, key_order: KeyOrder) -> Levels:
        """The files as an LSM tree."""
        known = self.memory.levels
        if known is not None and known[0] is self.files and known[1].num_levels >= num_levels:
            return known[1]
        levels = build_levels(self.data_files, num_levels, key_order)
        self.memory.levels = (self.files, levels)
        return levels

    def after(self, delta: Sequence[ManifestEntry]) -> BucketState:
        """The bucket once a commit with these entries, all of this bucket, has followed."""
        return BucketState(files_after(self.files, delta), self.memory)


class BucketStates:
    """The buckets of one table, as one process knows them. May be shared by threads."""

    def __init__(self, files_max: int = FILES_MAX) -> None:
        self._files_max = files_max
        self.speed = CompactionSpeed()
        self._lock = threading.Lock()
        self._base: Snapshot | None = None
        self._known: OrderedDict[BucketId, BucketState] = OrderedDict()
        self._is_complete = False
        self._file_count = 0

    @property
    def known(self) -> frozenset[BucketId]:
        """Buckets held at the moment."""
        with self._lock:
            return frozenset(self._known)

    def at(
        self, store: TableStore, snapshot: Snapshot | None, buckets: Collection[BucketId]
    ) -> dict[BucketId, BucketState]:
        """The states of these buckets at a snapshot; buckets without files have a state too.

        Raises `UnsupportedFeatureError` where rows are marked as deleted and the table's options know nothing of it,
        `NotFoundError` when the snapshot has expired and is not known.
        """
        if snapshot is None:
            return {bucket: BucketState() for bucket in buckets}
        indexes = _vector_files(store, snapshot)
        with self._lock:
            if not self._advance(store, snapshot):
                return _with_indexes(_read_states(store, snapshot, buckets), indexes)
            self._learn(store, snapshot, [bucket for bucket in buckets if bucket not in self._known])
            states = {}
            for bucket in buckets:
                self._known.move_to_end(bucket)
                states[bucket] = self._known[bucket]
            self._let_go()
        return _with_indexes(states, indexes)

    def _learn(self, store: TableStore, snapshot: Snapshot, missing: Sequence[BucketId]) -> None:
        """Reads buckets that are not known, or all of them; a bucket without files is known as such."""
        if missing and not self._is_complete:
            is_small = _entry_count(store, snapshot) <= min(SMALL_ENTRIES_MAX, self._files_max)
            read = _read_states(store, snapshot, None if is_small else missing)
            self._is_complete = is_small  # only now: after a failed read, a bucket would be taken for empty
            for bucket, state in read.items():
                if bucket not in self._known:
                    self._known[bucket] = state
                    self._file_count += len(state.files)
        for bucket in missing:
            self._known.setdefault(bucket, BucketState())

    def _advance(self, store: TableStore, snapshot: Snapshot) -> bool:
        """Brings what is known to the snapshot; False when it is earlier than what is known, which stays."""
        base = self._base
        if base == snapshot:
            return True
        if base is not None and self._known:
            stands = _still_stands(store, base)
            if stands and snapshot.id < base.id:
                return False
            if stands and base.id < snapshot.id <= base.id + STEPS_MAX and self._step(store, base, snapshot):
                self._base = snapshot
                return True
        self._known.clear()
        self._is_complete = False
        self._file_count = 0
        self._base = snapshot
        return True

    def _step(self, store: TableStore, base: Snapshot, snapshot: Snapshot) -> bool:
        """Applies the deltas after `base` up to `snapshot`; False, and nothing changed, when one has expired."""
        changes: list[dict[BucketId, list[ManifestEntry]]] = []
        try:
            for snapshot_id in range(base.id + 1, snapshot.id + 1):
                step = snapshot if snapshot_id == snapshot.id else store.snapshots.fresh(snapshot_id)
                changes.append(grouped_by_bucket(delta_entries(store.manifests, step)))
        except NotFoundError:
            return False
        for by_bucket in changes:
            for bucket, entries in by_bucket.items():
                state = self._known.get(bucket, BucketState() if self._is_complete else None)
                if state is not None:
                    self._known[bucket] = after = state.after(entries)
                    self._file_count += len(after.files) - len(state.files)
        return True

    def _let_go(self) -> None:
        while self._file_count > self._files_max and len(self._known) > 1:
            _, state = self._known.popitem(last=False)
            self._is_complete = False
            self._file_count -= len(state.files)


def _vector_files(store: TableStore, snapshot: Snapshot) -> dict[BucketId, tuple[IndexFileMeta, ...]]:
    if not (store.schema.has_primary_key and store.options.deletion_vectors_enabled):
        store.manifests.refuse_deletion_vectors(snapshot.index_manifest)
        return {}
    return store.manifests.vector_files(snapshot.index_manifest)


def _with_indexes(
    states: dict[BucketId, BucketState], indexes: Mapping[BucketId, tuple[IndexFileMeta, ...]]
) -> dict[BucketId, BucketState]:
    """What is known from commit to commit are files; index files are those of the snapshot."""
    if not indexes:
        return states
    return {bucket: replace(state, index_files=indexes.get(bucket, ())) for bucket, state in states.items()}


def _still_stands(store: TableStore, snapshot: Snapshot) -> bool:
    """False when the snapshot has expired, or is another one by now: the table was rolled back or made anew."""
    try:
        return store.snapshots.fresh(snapshot.id) == snapshot
    except NotFoundError:
        return False


def _entry_count(store: TableStore, snapshot: Snapshot) -> int:
    manifests = data_manifests(store.manifests, snapshot)
    return sum(manifest.num_added_files + manifest.num_deleted_files for manifest in manifests)


def _read_states(
    store: TableStore, snapshot: Snapshot, buckets: Collection[BucketId] | None
) -> dict[BucketId, BucketState]:
    """The states of these buckets; None: of all that have files."""
    found = files_by_bucket(live_entries(store.manifests, snapshot, bucket_ids=buckets))
    return {bucket: BucketState() for bucket in buckets or ()} | {b: BucketState(files) for b, files in found.items()}


class _ProcessStates:
    """The states of all tables that this process has opened, by environment and folder."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._lock = threading.Lock()
        self._tables: WeakKeyDictionary[Env, OrderedDict[str, BucketStates]] = WeakKeyDictionary()

    def of_table(self, store: TableStore) -> BucketStates:
        with self._lock:
            tables = self._tables.setdefault(store.env, OrderedDict())
            states = tables.setdefault(store.location, BucketStates())
            tables.move_to_end(store.location)
            while len(tables) > TABLES_MAX:
                tables.popitem(last=False)
            return states


_process_states = _ProcessStates()

RestoreBuckets = Callable[[Snapshot | None, Collection[BucketId]], dict[BucketId, BucketState]]
"""States of buckets at a snapshot."""


def process_states(store: TableStore) -> BucketStates:
    """The states that this process keeps of a table, whatever schema and options the store has.

    A table that was dropped and made anew in the same folder is noticed by its snapshots. A forked process starts with
    none: a lock of its parent may be held by a thread that it does not have.
    """
    global _process_states
    if _process_states.process_id != os.getpid():
        _process_states = _ProcessStates()
    return _process_states.of_table(store)
