"""The buckets that a table writer has open, all upon one snapshot.

A bucket is opened when rows first touch it, from what the process knows of it at the snapshot (`BucketStates`).
`rebase` goes on upon another snapshot: buckets without changes are closed, the others get their state at it.
Where the snapshot has expired before a bucket could be read, all go on upon the latest.

Used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.write.bucket_assignment import BUCKETS_MAX
from freshet.storage.write.bucket_state import BucketState, BucketStates
from freshet.storage.write.bucket_writer import BucketWriter
from freshet.storage.write.bucketing import RoutedRows, RowRouter
from freshet.storage.write.records import AcceptedRows

OpenBucket = Callable[[bytes, int, int, BucketState], BucketWriter]
"""Makes the writer of (partition, bucket, total buckets of the partition, state)."""

T = TypeVar("T")


class OpenBuckets:
    """Bucket writers of one table at one schema."""

    def __init__(
        self,
        store: TableStore,
        snapshot: Snapshot | None,
        router: RowRouter,
        states: BucketStates,
        open_bucket: OpenBucket,
    ) -> None:
        self._store = store
        self._router = router
        self._states = states
        self._open_bucket = open_bucket
        self.snapshot = snapshot
        """The snapshot that the writers build on."""
        self.writers: dict[BucketId, BucketWriter] = {}
        self.touched: set[BucketId] = set()
        """Every bucket that was ever open."""

    def routed(self, piece: AcceptedRows, executor: Executor | None) -> list[RoutedRows]:
        """The rows by bucket, with a writer open for each; routed again where a partition has another count of buckets
        than was known.
        """
        while True:
            groups = self.at_base(lambda: list(self._router.route(piece, executor)))
            if self._open({group.bucket_id: group.total_buckets for group in groups}):
                return groups

    def checked_total(self, partition: bytes, bucket: int, bucket_count: int | None) -> int:
        """How many buckets the partition has, for rows whose bucket was computed elsewhere, with `bucket_count` of
        them where that is known.

        Raises `ConflictError` where the partition has another number, `InvalidRequestError` for a bucket that it does
        not have.
        """
        total = self.at_base(lambda: self._router.total_buckets(partition))
        if bucket_count is not None and max(1, total) != max(1, bucket_count):
            raise ConflictError(
                f"{self._name_of(partition)} has {total} buckets, and rows for it were routed to {bucket_count}: it "
                "was rescaled while they were on their way. Start the stream again; nothing of them was written",
                path=self._store.location,
            )
        if self._store.options.has_dynamic_buckets and 0 <= bucket < BUCKETS_MAX:
            return total
        if not 0 <= bucket < max(1, total):
            raise InvalidRequestError(
                f"{self._name_of(partition)} has buckets 0 to {max(1, total) - 1}, not {bucket}; route the rows again",
                path=self._store.location,
            )
        return total

    def named(self, partition: bytes, bucket: int, total_buckets: int) -> BucketWriter:
        """The writer of one bucket of a partition with so many."""
        if not self._open({(partition, bucket): total_buckets}):
            self._check_total(partition, total_buckets, self._router.total_buckets(partition))
        return self.writers[partition, bucket]

    def opened(self, buckets: Sequence[BucketId]) -> list[BucketWriter]:
        """Writers of buckets that rows or files put there: their partitions have the count that the files say."""
        for bucket_id, state in self._missing_states(buckets).items():
            self._add(bucket_id, state.total_buckets or self._router.total_buckets(bucket_id[0]), state)
        return [self.writers[bucket_id] for bucket_id in buckets]

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Goes on upon the snapshot, or upon the latest where it has expired."""
        self._store.retry_on_newer(snapshot, self._rebase)

    def at_base(self, read: Callable[[], T]) -> T:
        """What `read` makes of the snapshot; where that has expired, all go on upon the latest, and it reads again."""

        def read_at(snapshot: Snapshot | None) -> T:
            if snapshot != self.snapshot:
                self.rebase(snapshot)
            return read()

        return self._store.retry_on_newer(self.snapshot, read_at)

    def abort(self) -> None:
        """Gives up the rows and files that no message names."""
        writers, self.writers = self.writers, {}
        for writer in writers.values():
            writer.abort()
        self._router.abort()

    def _rebase(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self._router.rebase(snapshot)
        # Buckets without changes are opened again when they are needed: that costs less than to keep them.
        self.writers = {bucket_id: writer for bucket_id, writer in self.writers.items() if writer.has_changes}
        for bucket_id, state in self._states.at(self._store, snapshot, self.writers.keys()).items():
            self._check_total(bucket_id[0], self._router.total_buckets(bucket_id[0]), state.total_buckets)
            self.writers[bucket_id].rebase(state)

    def _open(self, totals: dict[BucketId, int]) -> bool:
        """Opens the writers that are missing; False, and nothing opened, when a partition was not routed rightly."""
        states = self._missing_states(totals)
        counts = {
            bucket_id[0]: found for bucket_id, state in states.items() if (found := state.total_buckets) is not None
        }
        wrong = {
            partition
            for partition, bucket in states
            if counts.get(partition, totals[partition, bucket]) != totals[partition, bucket]
        }
        for partition in wrong:
            if all(taken != partition for taken, _ in self.writers):
                self._router.note(partition, counts[partition])
            self._check_total(partition, self._router.total_buckets(partition), counts[partition])
        if wrong:
            return False
        for bucket_id, state in states.items():
            self._add(bucket_id, totals[bucket_id], state)
        return True

    def _missing_states(self, buckets: Collection[BucketId]) -> dict[BucketId, BucketState]:
        """The states of those buckets that have no writer."""

        def states() -> dict[BucketId, BucketState]:
            missing = [bucket_id for bucket_id in buckets if bucket_id not in self.writers]
            return self._states.at(self._store, self.snapshot, missing) if missing else {}

        return self.at_base(states)

    def _add(self, bucket_id: BucketId, total_buckets: int, state: BucketState) -> None:
        self.writers[bucket_id] = self._open_bucket(*bucket_id, total_buckets, state)
        self.touched.add(bucket_id)

    def _check_total(self, partition: bytes, total: int, found: int | None) -> None:
        """Raises `ConflictError` when rows were routed for another number of buckets than the files have."""
        if found is not None and found != total:
            chosen = self._store.options.has_postponed_buckets
            what = "another writer gave it that number" if chosen else "it was rescaled"
            raise ConflictError(
                f"{self._name_of(partition)} was written with {found} buckets, rows for it were routed to {total}: "
                f"{what} meanwhile. Nothing of them was committed; start the stream again, or abort and write "
                "them again",
                path=self._store.location,
            )

    def _name_of(self, partition: bytes) -> str:
        path = self._store.partition_path(partition)
        return f"partition {path} of {self._store.location}" if path else self._store.location
