"""Assigns keys to dynamic buckets for rows that other tasks write: a stage of an engine between two shuffles.

    assigner.learn(partitions, hashes)       for all rows of the task, as they come
    assigner.settle()                        new keys get their buckets, in the order of their hashes
    assigner.buckets(partitions, hashes)     for all rows again
    assigner.finish()                        the index files, in messages for the committer

The rows of a partition are shared by `count` assigners by the hash of the key (`bucket_assignment`), and one task may
be an assigner of many partitions. What it gives follows from the rows and the snapshot alone, not from the order in
which rows come: where an engine computes a task again, each key gets the bucket that it had.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.exceptions import NotFoundError, RetryableError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.write.bucket_assignment import AssignerShare
from freshet.storage.write.bucket_state import BucketStates, process_states
from freshet.storage.write.bucketing import partition_codes
from freshet.storage.write.dynamic_router import DynamicRouter
from freshet.storage.write.key_index import Int16Array, Int32Array

_Share = tuple[bytes, DynamicRouter, npt.NDArray[np.int64]]
"""A partition, who assigns its keys, and the positions of the rows."""


class KeyAssigner:
    """The assigner of one task, upon one snapshot; used by one thread. `close` it whatever happens."""

    def __init__(
        self, store: TableStore, base_snapshot_id: int | None, count: int, *, upon_nothing: bool = False
    ) -> None:
        """`upon_nothing`: the rows replace what is there. Raises `RetryableError` where the snapshot has expired: tasks
        that are computed again must see the same."""
        store.check_writable()
        self._store = store
        self._count = count
        self._routers: dict[int, DynamicRouter] = {}
        # An overwrite neither finds nor leaves what the process knows of the table.
        self._indexes = (BucketStates() if upon_nothing else process_states(store)).indexes
        self._base_id = base_snapshot_id = None if upon_nothing else base_snapshot_id
        try:
            self._base = None if base_snapshot_id is None else store.snapshots.snapshot(base_snapshot_id)
        except NotFoundError as error:
            raise self._expired() from error

    def learn(self, rows: pa.Table, hashes: Int32Array) -> None:
        """Takes the keys of rows, which need the columns of the partition only."""
        for partition, router, members in self._shares(rows, hashes):
            try:
                router.learn(partition, hashes[members])
            except NotFoundError as error:
                latest = self._store.snapshots.latest()
                if latest is None or latest.id == self._base_id:
                    raise
                raise self._expired() from error

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
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        for group, members in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            code, number = divmod(group, self._count)
            yield partitions[code], self._router(number), members

    def _router(self, number: int) -> DynamicRouter:
        if number not in self._routers:
            share = AssignerShare(number, self._count)
            self._routers[number] = DynamicRouter(self._store, self._base, self._indexes, share)
        return self._routers[number]

    def _expired(self) -> RetryableError:
        """Raises `NotFoundError` where the table was dropped or renamed, which takes all snapshots from its place."""
        self._store.check_is_there()
        return RetryableError(
            f"table {self._store.location}: snapshot {self._base_id}, which the batch was begun on, has expired; "
            "nothing was committed, run the batch again. Where this happens often, keep snapshots longer "
            "(snapshot.time-retained)"
        )
