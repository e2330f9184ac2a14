"""What the writers of a process know of a bucket from one commit to the next.

    BucketState      one bucket at one snapshot: its files, by the index of live files, and its deletion vectors
    BucketMemory     what is known of a bucket besides its files and follows it from state to state
    BucketStates     the states of one table, and what this process remembers of its buckets

Source: MERGING.md §1.1, §1.4.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.compact.picker import GentlePatience
from freshet.storage.files.file_columns import SmallFiles
from freshet.storage.io.env import Env
from freshet.storage.metadata.live_files import BucketFiles
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import BucketId, IndexFileMeta
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.commit_compaction import CompactionSpeed
from freshet.storage.write.partition_index import warm_indexes

BUCKETS_MAX: Final = 20_000
"""Buckets of one table that a process remembers; those that were asked for longest ago are forgotten."""

TABLES_MAX: Final = 256
"""Tables of which one process remembers buckets; as many as a worker keeps open. With fewer than a query has of them,
which take turns, all are forgotten before each comes again, and with them the rows of small files that a compaction
would take from memory."""

_NO_FILES: Final[BucketFiles] = MappingProxyType({})


@dataclass(slots=True)
class BucketMemory:
    """What the bucket's files do not say. Used by one thread at a time, the one that works on the bucket.

    `last_full_ms` is when this process last picked a full compaction; `patience` counts idle picks of gentle lookup.
    """

    patience: GentlePatience | None = None
    last_full_ms: int | None = None

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


class BucketStates:
    """The buckets of one table, how fast this process compacts them, what it has written last, and the hash indexes of
    its partitions. May be shared by threads."""

    def __init__(self) -> None:
        self.speed = CompactionSpeed()
        self.small_files = SmallFiles()
        self.indexes = warm_indexes()
        self._lock = threading.Lock()
        self._memories: OrderedDict[BucketId, BucketMemory] = OrderedDict()

    def at(
        self, store: TableStore, snapshot: Snapshot | None, buckets: Collection[BucketId]
    ) -> dict[BucketId, BucketState]:
        """The states of these buckets at a snapshot; buckets without files have a state too.

        Raises `UnsupportedFeatureError` where rows are marked as deleted and the table's options know nothing of it,
        `NotFoundError` when the snapshot has expired and is not known.
        """
        indexes = vector_files(store, snapshot)
        live = store.live.of_buckets(snapshot, buckets).by_bucket
        with self._lock:
            memories = {bucket: self._memory_of(bucket) for bucket in buckets}
            while len(self._memories) > BUCKETS_MAX:
                self._memories.popitem(last=False)
        return {
            bucket: BucketState(live.get(bucket, _NO_FILES), memory, indexes.get(bucket, ()))
            for bucket, memory in memories.items()
        }

    def _memory_of(self, bucket: BucketId) -> BucketMemory:
        memory = self._memories.setdefault(bucket, BucketMemory())
        self._memories.move_to_end(bucket)
        return memory


def vector_files(store: TableStore, snapshot: Snapshot | None) -> Mapping[BucketId, tuple[IndexFileMeta, ...]]:
    """The index files with deletion vectors, bucket by bucket.

    Raises `UnsupportedFeatureError` where rows are marked as deleted and the table's options know nothing of it.
    """
    if snapshot is None:
        return {}
    if not store.options.deletion_vectors_enabled:
        store.manifests.refuse_deletion_vectors(snapshot.index_manifest)
        return {}
    return store.manifests.vector_files(snapshot.index_manifest)


class _ProcessStates:
    """All tables that this process has written, by environment and folder."""

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
    """What this process remembers of a table, whatever schema and options the store has.

    A forked process starts with nothing: a lock of its parent may be held by a thread that it does not have.
    """
    global _process_states
    if _process_states.process_id != os.getpid():
        _process_states = _ProcessStates()
    return _process_states.of_table(store)
