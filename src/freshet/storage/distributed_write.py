"""Writes the rows of one task into files, for a commit that another process makes (`table_engine`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.logs.writers import ChangeSink
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.write.bucketing import rows_by_bucket
from freshet.storage.write.compaction_limit import CompactionLimit
from freshet.storage.write.table_writer import TableWriter


class TaskWriter:
    """Writes the rows of one task into files; `TableEngine.task_writer` gives it, `close` it whatever happens."""

    def __init__(
        self, store: TableStore, *, base_snapshot_id: int | None, parallelism: int = 1, sink: ChangeSink | None = None
    ) -> None:
        self._store = store
        base = None if base_snapshot_id is None else store.snapshots.or_latest(base_snapshot_id)
        self._writer = TableWriter(store, base_snapshot=base, parallelism=parallelism, sink=sink)

    @property
    def base_snapshot_id(self) -> int | None:
        """The snapshot that the rows are written upon: the one asked for, or the latest where that has expired."""
        base = self._writer.base_snapshot
        return None if base is None else base.id

    @property
    def merge_metrics(self) -> MergeMetrics:
        """How many keys were merged, and for how many of them values were folded one by one."""
        return self._writer.merge_metrics

    @property
    def lookup_metrics(self) -> LookupMetrics:
        """How stored rows were looked up by key: in which way, and what became of the stores kept for it."""
        return self._writer.lookup_metrics

    @property
    def waited_buckets(self) -> int:
        """Buckets that the last commit had to compact whatever its limit, because they had too many runs."""
        return self._writer.waited_buckets

    def write(self, rows: pa.Table) -> int:
        """Takes rows of any bucket and returns how many were accepted, as `TableSession.write` does."""
        return self._writer.write(rows)

    def write_routed(self, rows: pa.Table, buckets: npt.NDArray[np.integer], *, bucket_count: int) -> int:
        """Takes rows whose buckets are known, one number a row, and returns how many were accepted.

        `bucket_count` is the number of buckets that they were computed for. Raises `InvalidRequestError` where a
        partition has another: its keys would stand in two buckets.
        """
        accepted = 0
        for partition, bucket, part in rows_by_bucket(rows, buckets, self._store.schema):
            accepted += self._writer.write_bucket(partition, bucket, part, bucket_count=bucket_count)
        return accepted

    def rebase(self) -> None:
        """Goes on upon the latest snapshot: rows are then numbered after what others have committed meanwhile."""
        self._writer.rebase(self._store.snapshots.latest())

    def prepare_commit(
        self, identifier: int | None = None, *, limit: CompactionLimit | None = None
    ) -> tuple[CommitMessage, ...]:
        """Makes files of all rows and returns the messages that name them.

        It compacts as the table's options ask; with a `limit`, as far as that lets it.
        """
        return tuple(self._writer.prepare_commit(identifier, limit=limit))

    def close(self) -> None:
        """Ends the writer and removes files that no message names."""
        self._writer.close()
