"""Where rows of a table go whose rows may wait for their bucket (`bucket=-2`).

    StagingRouter      all rows wait, in the files of their partition
    PostponedRouter    rows go to the buckets of their partition; where it has none yet, they are kept until all rows of
                       the commit are known, which say how many it gets

A partition gets a bucket for each `postpone.target-row-num-per-bucket` rows, else for each
`postpone.target-size-per-bucket` bytes of rows, as they are in memory; rows that wait there are counted too.

Rows that are kept go to scratch disk when they are many.

Accepted rows that are kept for later.

    of a commit, until it is committed      where rows move between partitions
    of partitions without buckets           until all rows of the commit are known (`bucket=-2`)

What is written of a row that moves follows from where its key is. Where another writer has committed meanwhile, the
files of the commit cannot say any more what they were made of, so the rows are routed again from here.

They are on a scratch disk: rows in memory may be changed by whoever has given them. Used by one thread.

Source: MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.io.env import Env
from freshet.storage.io.spill_file import Scratch, SpillFile
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.write.bucketing import (
    BucketCounts,
    BucketRouter,
    RoutedRows,
    RowRouter,
    partition_codes,
    routed_rows,
)
from freshet.storage.write.records import AcceptedRows

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Rows of partitions without buckets that are kept in memory."""

_KIND_FIELD: Final = pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False)


class PostponedCounts(BucketCounts):
    """Numbers of buckets in a table whose rows may wait for their bucket (`bucket=-2`): files in real buckets say the
    number of their partition, for others it is chosen."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, chosen: Mapping[bytes, int]) -> None:
        super().__init__(store, snapshot)
        self.default = store.options.postpone_default_bucket_num
        self._chosen = dict(chosen)
        self._asked: set[bytes] = set()

    def of(self, partitions: Sequence[bytes]) -> list[int]:
        known = self.known(partitions)
        return [known.get(partition, self.default) for partition in partitions]

    def known(self, partitions: Collection[bytes]) -> dict[bytes, int]:
        """The numbers of those that have files in real buckets, or a chosen one."""
        asked = {partition for partition in partitions if partition not in self._asked}
        if asked and self._snapshot is not None:
            entries = live_entries(self._store.manifests, self._snapshot, partition=asked.__contains__)
            self._found.update({entry.partition: entry.total_buckets for entry in entries if entry.bucket >= 0})
        self._asked |= asked
        known = {**self._chosen, **self._found}
        return {partition: known[partition] for partition in partitions if partition in known}

    def choose(self, counts: Mapping[bytes, int]) -> None:
        """Numbers for partitions that have no files in real buckets, until they are forgotten."""
        self._chosen.update(counts)

    def forget_choices(self) -> None:
        """From now on files say the number."""
        self._chosen.clear()

    def differ(self) -> bool:
        return True

    def rebase(self, snapshot: Snapshot | None) -> None:
        super().rebase(snapshot)
        self._asked.clear()


class StagingRouter(RowRouter):
    """The router by which all rows wait for their bucket."""

    def __init__(self, store: TableStore) -> None:
        self._schema = store.schema

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        partitions, codes = partition_codes(accepted.rows, self._schema)
        totals = [POSTPONE_BUCKET] * len(partitions)
        for rows in routed_rows(accepted, partitions, codes, None, totals, executor):
            yield replace(rows, bucket=POSTPONE_BUCKET)

    def total_buckets(self, partition: bytes) -> int:
        return POSTPONE_BUCKET


@dataclass(slots=True)
class _Kept:
    """How much is kept of a partition."""

    row_count: int = 0
    size_bytes: int = 0


class PostponedRouter(BucketRouter):
    """The router by which rows go to the buckets that their partition has, or gets."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        self._store = store
        self._snapshot = snapshot
        self._postponed = PostponedCounts(store, snapshot, {})
        options = store.options
        super().__init__(
            store.schema,
            counts=self._postponed,
            bucket_key=options.bucket_key,
            function=options.bucket_function_type,
        )
        self._kept: dict[bytes, _Kept] = {}
        self._rows = KeptInput(store.env, KEPT_BYTES_MAX)

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        partitions, codes = partition_codes(accepted.rows, self._store.schema)
        known = self._postponed.known(partitions)
        without = [code for code, partition in enumerate(partitions) if partition not in known]
        if not without:
            yield from super().route(accepted, executor)
            return
        row_codes = np.zeros(accepted.rows.num_rows, np.int64) if codes is None else codes
        is_kept = np.isin(row_codes, without)
        self._keep(_chosen_rows(accepted, is_kept), partitions, row_codes[is_kept])
        if not is_kept.all():
            yield from super().route(_chosen_rows(accepted, ~is_kept), executor)

    def kept_rows(self) -> Iterator[AcceptedRows]:
        self._postponed.choose(self._chosen())
        self._kept = {}
        return self._rows.take()

    def prepare_commit(self) -> Sequence[CommitMessage]:
        self._postponed.forget_choices()
        return ()

    def rebase(self, snapshot: Snapshot | None) -> None:
        super().rebase(snapshot)
        self._snapshot = snapshot

    def abort(self) -> None:
        self._kept = {}
        self._rows.clear()
        self._postponed.forget_choices()

    def _keep(self, accepted: AcceptedRows, partitions: Sequence[bytes], codes: npt.NDArray[np.int64]) -> None:
        row_bytes = accepted.rows.nbytes / accepted.rows.num_rows
        for code, count in enumerate(np.bincount(codes).tolist()):
            if count:
                kept = self._kept.setdefault(partitions[code], _Kept())
                kept.row_count += count
                kept.size_bytes += round(count * row_bytes)
        self._rows.add(accepted)

    def _chosen(self) -> dict[bytes, int]:
        """Numbers of buckets for the partitions whose rows are kept."""
        if not self._kept:
            return {}
        waiting: dict[bytes, int] = {}
        entries = live_entries(
            self._store.manifests, self._snapshot, buckets={POSTPONE_BUCKET}, partition=self._kept.__contains__
        )
        for entry in entries:
            waiting[entry.partition] = waiting.get(entry.partition, 0) + entry.file.row_count
        return {
            partition: chosen_count(
                self._store.options, kept.row_count + waiting.get(partition, 0), kept.size_bytes / kept.row_count
            )
            for partition, kept in self._kept.items()
        }


def chosen_count(options: CoreOptions, row_count: int, row_bytes: float) -> int:
    """Buckets of a partition that has none yet and gets so many rows of so many bytes each in the mean."""
    target = options.postpone_target_row_num_per_bucket
    if target is not None:
        wanted = -(-row_count // target)
    else:
        wanted = ceil(row_count * row_bytes / options.postpone_target_size_per_bucket_bytes)
    return max(1, min(wanted, options.postpone_batch_write_fixed_bucket_max_parallelism))


def _chosen_rows(accepted: AcceptedRows, chosen: npt.NDArray[np.bool_]) -> AcceptedRows:
    kinds = None if accepted.kinds is None else accepted.kinds[chosen]
    return AcceptedRows(accepted.rows if chosen.all() else accepted.rows.filter(pa.array(chosen)), kinds)


class KeptInput:
    """Accepted rows, in order; `clear` it whatever happens."""

    def __init__(self, env: Env, memory_bytes: int = 0) -> None:
        """Up to `memory_bytes` are kept in memory."""
        self._scratch = Scratch(env)
        self._memory_bytes = memory_bytes
        self._files: list[SpillFile] = []
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0

    def add(self, accepted: AcceptedRows) -> None:
        """Keeps rows."""
        kinds = np.zeros(accepted.rows.num_rows, np.int8) if accepted.kinds is None else accepted.kinds
        self._chunks.append(accepted.rows.append_column(_KIND_FIELD, pa.array(kinds)))
        self._chunk_bytes += self._chunks[-1].nbytes
        if self._chunk_bytes > self._memory_bytes:
            self._files.append(SpillFile(self._scratch.new_path(), self._chunks[0].schema, self._chunks))
            self._chunks, self._chunk_bytes = [], 0

    def read(self) -> Iterator[AcceptedRows]:
        """All of them."""
        for file in list(self._files):
            yield from map(_accepted, file.read())
        yield from map(_accepted, list(self._chunks))

    def take(self) -> Iterator[AcceptedRows]:
        """All of them, which are forgotten as they are given."""
        files, self._files = self._files, []
        for file in files:
            yield from map(_accepted, file.read())
            file.remove()
        chunks, self._chunks, self._chunk_bytes = self._chunks, [], 0
        yield from map(_accepted, chunks)

    def clear(self) -> None:
        """Forgets them."""
        self._files, self._chunks, self._chunk_bytes = [], [], 0
        self._scratch.release()


def _accepted(stored: pa.Table | pa.RecordBatch) -> AcceptedRows:
    rows = pa.Table.from_batches([stored]) if isinstance(stored, pa.RecordBatch) else stored
    kinds = rows.column(VALUE_KIND_COLUMN).to_numpy()
    return AcceptedRows(rows.drop_columns([VALUE_KIND_COLUMN]), kinds if kinds.any() else None)
