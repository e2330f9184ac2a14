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

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
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
from freshet.storage.write.kept_input import KeptInput
from freshet.storage.write.records import AcceptedRows

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Rows of partitions without buckets that are kept in memory."""


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
