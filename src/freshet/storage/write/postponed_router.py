"""Where rows of a table go whose rows may wait for their bucket (`bucket=-2`).

    StagingRouter      all rows wait, in the files of their partition
    PostponedRouter    rows go to the buckets of their partition; where it has none yet, they are kept until all rows of
                       the commit are known, which say how many it gets

A partition gets a bucket for each `postpone.target-row-num-per-bucket` rows, else for each
`postpone.target-size-per-bucket` bytes of rows, as they are in memory; rows that wait there are counted too.

Rows that are kept go to scratch disk when they are many.

Source: MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.io.spill_file import SpillFile
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.schema import VALUE_KIND_COLUMN
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import POSTPONE_BUCKET
from freshet.storage.write.bucketing import BucketRouter, PostponedCounts, RoutedRows, partition_codes, split_rows
from freshet.storage.write.records import AcceptedRows

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Rows of partitions without buckets that are kept in memory."""

_KIND_FIELD: Final = pa.field(VALUE_KIND_COLUMN, pa.int8(), nullable=False)


class StagingRouter:
    """The `RowRouter` by which all rows wait for their bucket."""

    def __init__(self, store: TableStore) -> None:
        self._schema = store.schema

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        rows, kinds = accepted.rows, accepted.kinds
        if not rows.num_rows:
            return
        partitions, codes = partition_codes(rows, self._schema)
        groups = np.zeros(1, np.int64) if codes is None else codes
        for code, positions, part in split_rows(rows, groups, executor):
            part_kinds = kinds if kinds is None or positions is None else kinds[positions]
            yield RoutedRows(partitions[code], POSTPONE_BUCKET, POSTPONE_BUCKET, part, part_kinds)

    def kept_rows(self) -> Iterator[AcceptedRows]:
        return iter(())

    def total_buckets(self, partition: bytes) -> int:
        return POSTPONE_BUCKET

    def note(self, partition: bytes, total_buckets: int) -> None:
        pass

    def prepare_commit(self) -> Sequence[CommitMessage]:
        return ()

    def rebase(self, snapshot: Snapshot | None) -> None:
        pass

    def abort(self) -> None:
        pass


@dataclass(slots=True)
class _Kept:
    """How much is kept of a partition."""

    row_count: int = 0
    size_bytes: int = 0


class PostponedRouter:
    """The `RowRouter` by which rows go to the buckets that their partition has, or gets."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None, new_spill_path: Callable[[], str]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._new_spill_path = new_spill_path
        self._counts = PostponedCounts(store, snapshot, {})
        self._inner = BucketRouter(
            store.schema,
            counts=self._counts,
            bucket_key=store.options.bucket_key,
            function=store.options.bucket_function_type,
        )
        self._kept: dict[bytes, _Kept] = {}
        self._chunks: list[pa.Table] = []
        self._chunk_bytes = 0
        self._spilled: list[SpillFile] = []

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        partitions, codes = partition_codes(accepted.rows, self._store.schema)
        known = self._counts.known(partitions)
        without = [code for code, partition in enumerate(partitions) if partition not in known]
        if not without:
            yield from self._inner.route(accepted, executor)
            return
        row_codes = np.zeros(accepted.rows.num_rows, np.int64) if codes is None else codes
        is_kept = np.isin(row_codes, without)
        self._keep(_chosen_rows(accepted, is_kept), partitions, row_codes[is_kept])
        if not is_kept.all():
            yield from self._inner.route(_chosen_rows(accepted, ~is_kept), executor)

    def kept_rows(self) -> Iterator[AcceptedRows]:
        self._counts.choose(self._chosen())
        return self._taken()

    def _taken(self) -> Iterator[AcceptedRows]:
        self._kept = {}
        spilled, chunks = self._spilled, self._chunks
        self._spilled, self._chunks, self._chunk_bytes = [], [], 0
        for file in spilled:
            for batch in file.read():
                yield _accepted(pa.Table.from_batches([batch]))
            file.remove()
        for chunk in chunks:
            yield _accepted(chunk)

    def total_buckets(self, partition: bytes) -> int:
        return self._counts.of([partition])[0]

    def note(self, partition: bytes, total_buckets: int) -> None:
        self._counts.note(partition, total_buckets)

    def prepare_commit(self) -> Sequence[CommitMessage]:
        self._counts.forget_choices()
        return ()

    def rebase(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self._counts.rebase(snapshot)

    def abort(self) -> None:
        for file in self._spilled:
            file.remove()
        self._kept, self._spilled, self._chunks, self._chunk_bytes = {}, [], [], 0
        self._counts.forget_choices()

    def _keep(self, accepted: AcceptedRows, partitions: Sequence[bytes], codes: npt.NDArray[np.int64]) -> None:
        rows, kinds = accepted.rows, accepted.kinds
        row_bytes = rows.nbytes / rows.num_rows
        for code, count in enumerate(np.bincount(codes).tolist()):
            if count:
                kept = self._kept.setdefault(partitions[code], _Kept())
                kept.row_count += count
                kept.size_bytes += round(count * row_bytes)
        kind_codes = np.zeros(rows.num_rows, np.int8) if kinds is None else kinds
        self._chunks.append(rows.append_column(_KIND_FIELD, pa.array(kind_codes)))
        self._chunk_bytes += rows.nbytes
        if self._chunk_bytes > KEPT_BYTES_MAX:
            self._spilled.append(SpillFile(self._new_spill_path(), self._chunks[0].schema, self._chunks))
            self._chunks, self._chunk_bytes = [], 0

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


def _accepted(stored: pa.Table) -> AcceptedRows:
    kinds = stored.column(VALUE_KIND_COLUMN).to_numpy()
    return AcceptedRows(stored.drop_columns([VALUE_KIND_COLUMN]), kinds)
