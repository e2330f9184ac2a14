"""Splits rows by table partition and bucket, keeping their order inside each bucket.

| table | bucket of a row |
|---|---|
| bucket = n > 0 | bucket function over the bucket key (the primary key without partition columns, if not given) |
| append, bucket = -1 | 0 for every row; the total is recorded as -1 |

One group number per row, one stable sort of these small numbers (a radix sort), one gather per group. Rows that all
belong together are passed on as they are.

Source: table format §8.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.storage.codec.binary_row import distinct_rows
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.merge.take import take_rows
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import DataType
from freshet.storage.model.schema import TableSchema
from freshet.storage.write.records import AcceptedRows, Kinds

UNAWARE_BUCKET: Final = -1
"""Value of the option `bucket`, and of the total recorded, for append tables without buckets."""

SEPARATE_GROUPS_MAX: Final = 64
"""With more groups than this, groups are slices of one gather: cheaper, but none can be let go alone."""


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """Rows of one bucket, in input order."""

    partition: bytes
    bucket: int
    rows: pa.Table
    kinds: Kinds | None


class BucketRouter:
    """Routes rows of one table; holds nothing of them."""

    def __init__(self, schema: TableSchema, *, bucket: int, bucket_key: tuple[str, ...], function: str) -> None:
        if bucket < 1 and not (bucket == UNAWARE_BUCKET and not schema.has_primary_key):
            raise UnsupportedFeatureError(
                f"bucket={bucket} (dynamic or postponed buckets) is not supported yet for tables with a primary key; "
                "create the table with a fixed number, for example bucket=4"
            )
        self.total_buckets = bucket
        self._partition_keys = schema.partition_keys
        self._partition_types: tuple[DataType, ...] = schema.types_of(schema.partition_keys)
        self._bucket_key = bucket_key or schema.trimmed_primary_keys
        self._bucket_types: tuple[DataType, ...] = schema.types_of(self._bucket_key)
        self._function = function

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        """The groups of these rows."""
        rows, kinds = accepted.rows, accepted.kinds
        if not rows.num_rows:
            return
        partitions, codes = self._partitions(rows)
        buckets = self._buckets(rows)
        bucket_count = max(self.total_buckets, 1)
        groups = _groups(codes, buckets, bucket_count, len(partitions) * bucket_count)
        first = int(groups[0])
        if groups.min() == groups.max():
            yield RoutedRows(partitions[first // bucket_count], first % bucket_count, rows, kinds)
            return
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups)
        present = np.flatnonzero(counts)
        together = take_rows(rows, order, None, executor) if len(present) > SEPARATE_GROUPS_MAX else None
        start = 0
        for group in present.tolist():
            positions = order[start : start + int(counts[group])]
            if together is None:
                part = take_rows(rows, positions, None, executor)
            else:
                part = together.slice(start, len(positions))
            part_kinds = None if kinds is None else kinds[positions]
            yield RoutedRows(partitions[group // bucket_count], group % bucket_count, part, part_kinds)
            start += len(positions)

    def _partitions(self, rows: pa.Table) -> tuple[list[bytes], npt.NDArray[np.int64] | None]:
        if not self._partition_keys:
            return [EMPTY_ROW], None
        return distinct_rows([rows.column(name) for name in self._partition_keys], self._partition_types)

    def _buckets(self, rows: pa.Table) -> npt.NDArray[np.int32] | None:
        if self.total_buckets <= 1:
            return None
        columns = [rows.column(name) for name in self._bucket_key]
        return bucket_ids(columns, self._bucket_types, self.total_buckets, self._function)


def _groups(
    codes: npt.NDArray[np.int64] | None,
    buckets: npt.NDArray[np.int32] | None,
    bucket_count: int,
    group_count: int,
) -> npt.NDArray[np.integer]:
    """partition code * bucket count + bucket, as the narrowest number: 16 bits are sorted by radix."""
    kind = np.uint16 if group_count <= 1 << 16 else np.int64
    if codes is None:
        return np.zeros(1, kind) if buckets is None else buckets.astype(kind)
    if buckets is None:
        return codes.astype(kind)
    return (codes * bucket_count + buckets).astype(kind)
