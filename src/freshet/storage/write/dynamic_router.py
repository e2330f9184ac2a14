"""The router of tables with dynamic buckets: a key stays in its bucket, a new key gets one (`partition_index`).

    route            looks the hashes of the keys up in the index of their partition, and assigns new ones
    prepare_commit   writes a new index file for each bucket that got keys: the old hashes, then the new ones
    rebase           gives the indexes of partitions without changes to the process, which keeps them warm

The index of a partition is read at the snapshot that the writer builds on, when rows first touch it. What was assigned
upon it holds only while no other commit changes the index of any bucket of the partition: a new key of ours may be
another writer's, in another bucket. So the messages say which index files were there (`assigned_upon`), and the
committer compares them before each claim (`commit.change_fit`).

A `KeyAssigner` assigns keys for rows that other tasks write: a stage of an engine between two shuffles.

    assigner.learn(partitions, hashes)       for all rows of the task, as they come
    assigner.settle()                        new keys get their buckets, in the order of their hashes
    assigner.buckets(partitions, hashes)     for all rows again
    assigner.finish()                        the index files, in messages for the committer

The rows of a partition are shared by `count` assigners by the hash of the key, and one task may be an assigner of many
partitions. What it gives follows from the rows and the snapshot alone, not from the order in which rows come: where an
engine computes a task again, each key gets the bucket that it had.

Source: FORMAT.md §8.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.codec.binary_row_arrays import row_hashes
from freshet.storage.exceptions import (
    ConflictError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
)
from freshet.storage.metadata.hash_index_store import REPAIR, LostIndexError, distinct, encode_hashes
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import DYNAMIC_BUCKET
from freshet.storage.write.bucket_state import BucketStates, process_states
from freshet.storage.write.bucketing import RoutedRows, RowRouter, partition_codes, routed_rows
from freshet.storage.write.partition_index import (
    SOLE_ASSIGNER,
    UNKNOWN,
    AssignerShare,
    AssignmentRule,
    Int16Array,
    Int32Array,
    KeyIndex,
    KnownFile,
    PartitionIndex,
    WarmIndexes,
    key_counts,
    members_of,
)
from freshet.storage.write.records import AcceptedRows

_BESIDE_ROWS_MIN: Final = 64 * 1024
"""The keys of fewer rows are hashed sooner than another thread would begin."""


class UnfixedRouter(RowRouter):
    """A router of a table whose partitions get more buckets as keys come."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def total_buckets(self, partition: bytes) -> int:
        return DYNAMIC_BUCKET

    def note(self, partition: bytes, total_buckets: int) -> None:
        path = self._store.partition_path(partition) or "the table"
        raise InvalidRequestError(
            f"{path} of {self._store.location} has files of {total_buckets} fixed buckets, and the option bucket is "
            f"{DYNAMIC_BUCKET}: keys of them would come into a second bucket; overwrite it with its own rows by Apache "
            "Paimon",
            path=self._store.location,
        )


class DynamicRouter(UnfixedRouter):
    """The router of a keyed table with `bucket=-1`, or of one of several assigners of such a table."""

    def __init__(
        self, store: TableStore, snapshot: Snapshot | None, warm: WarmIndexes, share: AssignerShare = SOLE_ASSIGNER
    ) -> None:
        super().__init__(store)
        options = store.options
        limit = options.dynamic_bucket_max_buckets
        self._snapshot = snapshot
        self._warm = warm
        self._share = share
        self._rule = AssignmentRule(options.dynamic_bucket_target_row_num, limit if limit > 0 else None, share)
        self._keys = store.schema.trimmed_primary_keys
        self._partitions: dict[bytes, _PartitionAssigner] = {}

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        rows = accepted.rows
        if not rows.num_rows:
            return
        partitions, codes = partition_codes(rows, self._store.schema)
        buckets = self.assign(self._hashes(rows, partitions, executor), partitions, codes)
        totals = [DYNAMIC_BUCKET] * len(partitions)
        yield from routed_rows(accepted, partitions, codes, buckets, totals, executor)

    def _hashes(self, rows: pa.Table, partitions: Collection[bytes], executor: Executor | None) -> Int32Array:
        """The hash of each key, computed while the indexes of the partitions take over what was committed."""
        compute = partial(row_hashes, [rows.column(name) for name in self._keys], self._store.key_types)
        if executor is None or rows.num_rows < _BESIDE_ROWS_MIN:
            return compute()
        coming = executor.submit(compute)
        self._open(partitions)
        return coming.result()

    def assign(
        self, hashes: Int32Array, partitions: Sequence[bytes], codes: npt.NDArray[np.int64] | None
    ) -> Int16Array:
        """The bucket of each row by the hash of its key; `codes` is the position of its partition, None for one."""
        self._open(partitions)
        if codes is None:
            return self._partitions[partitions[0]].assign(hashes)
        buckets = np.empty(len(hashes), np.int16)
        for code, members in members_of(codes):
            buckets[members] = self._partitions[partitions[code]].assign(hashes[members])
        return buckets

    def learn(self, partition: bytes, hashes: Int32Array) -> None:
        """Notes keys of a partition, for `settle`."""
        self._open([partition])
        self._partitions[partition].learn(hashes)

    def settle(self) -> None:
        """Gives the new keys among those noted their buckets."""
        for assigner in self._partitions.values():
            assigner.settle()

    def prepare_commit(self) -> Sequence[CommitMessage]:
        return [message for partition in sorted(self._partitions) for message in self._partitions[partition].prepare()]

    def rebase(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        # One with changes keeps the index that it has assigned upon: if that is outdated, its commit is refused.
        for partition in [each for each, assigner in self._partitions.items() if not assigner.has_changes]:
            self._give_back(partition)

    def abort(self) -> None:
        for partition in list(self._partitions):
            self._give_back(partition)

    def _give_back(self, partition: bytes) -> None:
        self._warm.put((partition, self._share), self._partitions.pop(partition).index)

    def _open(self, partitions: Collection[bytes]) -> None:
        missing = [partition for partition in partitions if partition not in self._partitions]
        if not missing:
            return
        files = self._store.hash_indexes.files(self._snapshot)
        indexes = {partition: self._warm.take((partition, self._share)) for partition in missing}
        self._check_indexed([partition for partition, index in indexes.items() if index is None])
        for partition, warm in indexes.items():
            index = warm or PartitionIndex(self._share)
            index.sync(files.get(partition, {}), self._store.hash_indexes.read)
            self._partitions[partition] = _PartitionAssigner(self._store, partition, self._rule, index)

    def _check_indexed(self, partitions: Sequence[bytes]) -> None:
        """Raises `CorruptDataError` where a bucket has rows and no index: its keys would come into another one."""
        if not partitions or self._snapshot is None:
            return
        files = self._store.hash_indexes.files(self._snapshot)
        for entry in live_entries(self._store.manifests, self._snapshot, partition=frozenset(partitions).__contains__):
            if entry.bucket not in files.get(entry.partition, {}):
                raise CorruptDataError(
                    f"the bucket has rows and no hash index, so its keys would come into a second bucket; {REPAIR}",
                    path=self._store.bucket_folder(*entry.bucket_id),
                )


class _PartitionAssigner:
    """Assigns the keys of one partition."""

    def __init__(self, store: TableStore, partition: bytes, rule: AssignmentRule, index: PartitionIndex) -> None:
        self.index = index
        self._store = store
        self._partition = partition
        self._rule = rule
        self._new = KeyIndex()
        self._counts = key_counts(index.files)
        self._learned: list[Int32Array] = []
        self._touched: int | None = None
        """A bucket that got rows since the last messages."""

    @property
    def has_changes(self) -> bool:
        """True when rows were assigned that no message knows of."""
        return self._touched is not None or bool(self._learned)

    def learn(self, hashes: Int32Array) -> None:
        """Notes hashes whose buckets will be asked for."""
        asked = distinct(hashes)
        new = asked[self.index.find(asked) == UNKNOWN]
        if len(new):
            self._learned.append(new)

    def settle(self) -> None:
        """Gives those noted their buckets."""
        learned, self._learned = self._learned, []
        if learned:
            self.assign(np.concatenate(learned))

    def assign(self, hashes: Int32Array) -> Int16Array:
        """The bucket of each hash, at least one."""
        order = np.argsort(hashes)
        buckets = np.empty(len(hashes), np.int16)
        buckets[order] = self._assign(hashes[order])
        self._touched = int(buckets[0])
        return buckets

    def _assign(self, hashes: Int32Array) -> Int16Array:
        """The same of hashes in ascending order."""
        buckets = self.index.find(hashes)
        missing = np.flatnonzero(buckets == UNKNOWN)
        if len(missing):
            found = self._new.find(hashes[missing])
            unknown = np.flatnonzero(found == UNKNOWN)
            found[unknown] = self._added(hashes[missing[unknown]])
            buckets[missing] = found
        return buckets

    def _added(self, hashes: Int32Array) -> Int16Array:
        """Buckets of new hashes, in ascending order; equal ones get the same."""
        if not len(hashes):
            return np.zeros(0, np.int16)
        is_first = np.ones(len(hashes), np.bool_)
        np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
        new = hashes[is_first]
        given = self._rule.assign(new, self._counts)
        self._new.extend(new, given)
        counts = np.bincount(given)
        for bucket in np.flatnonzero(counts).tolist():
            self._counts[bucket] = self._counts.get(bucket, 0) + int(counts[bucket])
        buckets: Int16Array = given[np.cumsum(is_first) - 1]
        return buckets

    def prepare(self) -> Iterator[CommitMessage]:
        """The index files of buckets that got keys."""
        if self._touched is None:
            return
        touched, self._touched = self._touched, None
        self.index.settle()
        state, before = self.index.state, self.index.files
        written: dict[int, KnownFile] = {}
        for bucket, hashes in self._new.by_bucket():
            old = before.get(bucket)
            start, checksum = (b"", 0) if old is None else self._bytes(bucket, old)
            added = encode_hashes(hashes)
            written[bucket] = KnownFile.of(self._store.hash_indexes.write(start + added), added, checksum)
        self.index.expect(self._new, written)
        self._new = KeyIndex()
        for bucket, file in written.items():
            gone = () if bucket not in before else (before[bucket].meta,)
            message = CommitMessage(self._partition, bucket, DYNAMIC_BUCKET, assigned_upon=state)
            yield replace(message, new_index_files=(file.meta,), deleted_index_files=gone)
        if not written:
            yield CommitMessage(self._partition, touched, DYNAMIC_BUCKET, assigned_upon=state)

    def _bytes(self, bucket: int, file: KnownFile) -> tuple[bytes, int]:
        """The bytes of an index file, and their checksum."""
        try:
            return self._store.hash_indexes.read(file.meta), file.checksum
        except LostIndexError as error:
            if self._rule.share == SOLE_ASSIGNER:
                known = encode_hashes(self.index.hashes_of(bucket))
                return known, zlib.crc32(known)
            latest = self._store.hash_indexes.files(self._store.snapshots.latest()).get(self._partition, {})
            if bucket in latest and latest[bucket].file_name == file.meta.file_name:
                raise
            raise ConflictError(
                f"table {self._store.location}: another writer has added keys to bucket {bucket} since this batch "
                "began; nothing was committed, run it again"
            ) from error


_Share = tuple[bytes, DynamicRouter, npt.NDArray[np.int64]]
"""A partition, who assigns its keys, and the positions of the rows."""


class KeyAssigner:
    """The assigner of one task, upon one snapshot; used by one thread. `close` it whatever happens."""

    def __init__(
        self, store: TableStore, base_snapshot_id: int | None, count: int, *, upon_nothing: bool = False
    ) -> None:
        """`upon_nothing`: the rows replace what is there. Raises `RetryableError` where the snapshot has expired: tasks
        that are computed again must see the same."""
        self._store = store
        self._count = count
        self._routers: dict[int, DynamicRouter] = {}
        # An overwrite neither finds nor leaves what the process knows of the table.
        self._indexes = (BucketStates() if upon_nothing else process_states(store)).indexes
        self._base_id = base_snapshot_id = None if upon_nothing else base_snapshot_id
        self._base = base_of_batch(store, base_snapshot_id)

    def learn(self, rows: pa.Table, hashes: Int32Array) -> None:
        """Takes the keys of rows, which need the columns of the partition only."""
        for partition, router, members in self._shares(rows, hashes):
            with explained_expiry(self._store, self._base_id, NotFoundError):
                router.learn(partition, hashes[members])

    def settle(self) -> None:
        """Gives the new ones among them their buckets."""
        for router in self._routers.values():
            router.settle()

    def buckets(self, rows: pa.Table, hashes: Int32Array) -> Int16Array:
        """The bucket of each row."""
        buckets = np.empty(len(hashes), np.int16)
        for partition, router, members in self._shares(rows, hashes):
            buckets[members] = router.assign(hashes[members], [partition], None)
        return buckets

    def finish(self) -> list[CommitMessage]:
        """Index changes of all partitions that rows are in, no rows."""
        return [message for router in self._routers.values() for message in router.prepare_commit()]

    def close(self) -> None:
        """Leaves the indexes to the process."""
        for router in self._routers.values():
            router.abort()

    def _shares(self, rows: pa.Table, hashes: Int32Array) -> Iterator[_Share]:
        if not len(hashes):
            return
        partitions, codes = partition_codes(rows, self._store.schema)
        numbers = np.abs(np.fmod(hashes, np.int32(self._count))).astype(np.int64)
        groups = numbers if codes is None else codes * self._count + numbers
        for group, members in members_of(groups):
            code, number = divmod(group, self._count)
            yield partitions[code], self._router(number), members

    def _router(self, number: int) -> DynamicRouter:
        if number not in self._routers:
            share = AssignerShare(number, self._count)
            self._routers[number] = DynamicRouter(self._store, self._base, self._indexes, share)
        return self._routers[number]


def base_of_batch(store: TableStore, base_id: int | None) -> Snapshot | None:
    """The snapshot that a batch was begun on, for one of its tasks to write upon.

    Raises `RetryableError` where it has expired: tasks that are computed again must see the same.
    """
    store.check_writable()
    try:
        return None if base_id is None else store.snapshots.snapshot(base_id)
    except NotFoundError as error:
        raise _expired(store, base_id) from error


@contextmanager
def explained_expiry(store: TableStore, base_id: int | None, *missing: type[Exception]) -> Iterator[None]:
    """While a task reads the snapshot its batch was begun on: where that has expired by now, which these errors may
    mean, a `RetryableError` says so."""
    try:
        yield
    except missing as error:
        latest = store.snapshots.latest()
        if latest is None or latest.id == base_id:
            raise
        raise _expired(store, base_id) from error


def _expired(store: TableStore, base_id: int | None) -> RetryableError:
    """Raises `NotFoundError` where the table was dropped or renamed, which takes all snapshots from its place."""
    store.check_is_there()
    return RetryableError(
        f"table {store.location}: snapshot {base_id}, which the batch was begun on, has expired; nothing was "
        "committed, run the batch again. Where this happens often, keep snapshots longer (snapshot.time-retained)"
    )
