"""The bucket that each row goes to: the interface, and the router of tables with a fixed number of buckets.

| table | bucket of a row |
|---|---|
| bucket = n > 0 | bucket function over the bucket key (the primary key without partition columns, if not given) |
| append, bucket = -1 | 0 for every row; the total is recorded as -1 |

The number of buckets belongs to the partition (`BucketCounts`):

    files of the partition    say it (`_TOTAL_BUCKETS` of their manifest entries), all of them the same number
    no files                  the option `bucket`; with `bucket=-2` it is chosen by the rows (`PostponedCounts`)

The two differ only where the option was changed and partitions were rewritten one by one since (a rescale, ours or
Apache Paimon's). While no schema up to that of the snapshot has another number, nothing is read; a partition that turns
out to be written with another number all the same (`note`) counts with that.

Rows are split with their order kept inside each bucket: one group number per row, one stable sort of these small
numbers (a radix sort), one gather per group. Rows that all belong together are passed on as they are.

Source: FORMAT.md §8; MERGING.md §8.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row_arrays import distinct_rows
from freshet.storage.codec.bucket_function import bucket_ids
from freshet.storage.exceptions import NotFoundError, UnsupportedFeatureError
from freshet.storage.merge.gather import take_rows
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.data_type import DataType
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import UNAWARE_BUCKET
from freshet.storage.options.core import CoreOptions

if TYPE_CHECKING:
    from freshet.storage.write.records import AcceptedRows, Kinds


class BucketCounts:
    """Numbers of buckets by partition, at one snapshot. Used by one thread."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        self.default = store.options.bucket
        self._store = store
        self._snapshot = snapshot
        self._found: dict[bytes, int] = {}
        self._may_differ = False
        self._looked_to = 0
        """Schemas below this id are known not to have another number, unless `_may_differ`."""

    def of(self, partitions: Sequence[bytes]) -> list[int]:
        """The number of each partition, in their order."""
        unknown = {partition for partition in partitions if partition not in self._found}
        if unknown and self._snapshot is not None and self._was_changed():
            entries = live_entries(self._store.manifests, self._snapshot, partition=unknown.__contains__)
            self._found.update(dict.fromkeys(unknown, self.default))
            self._found.update({entry.partition: entry.total_buckets for entry in entries})
        return [self._found.get(partition, self.default) for partition in partitions]

    def differ(self) -> bool:
        """True where the files of a partition were written with another number than the option says."""
        if self._snapshot is None or not self._was_changed():
            return False
        entries = live_entries(self._store.manifests, self._snapshot)
        return any(entry.total_buckets != self.default for entry in entries)

    def note(self, partition: bytes, total_buckets: int) -> None:
        """The partition was found to be written with this number."""
        self._found[partition] = total_buckets

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Forgets what belongs to another snapshot."""
        self._snapshot = snapshot
        self._found.clear()

    def _was_changed(self) -> bool:
        """A rescale makes a schema first, so that the snapshots of what it rewrites name that one or a later one."""
        newest = max(self._store.schema.id, 0 if self._snapshot is None else self._snapshot.schema_id)
        if self.default > 0 and not self._may_differ and self._looked_to <= newest:
            self._may_differ = any(
                self._option_at(number) != self.default
                for number in range(self._looked_to, newest + 1)
                if number != self._store.schema.id
            )
            self._looked_to = newest + 1
        return self._may_differ

    def _option_at(self, schema_id: int) -> int | None:
        try:
            return CoreOptions.bucket.of(self._store.schemas.schema(schema_id).options)
        except NotFoundError:
            return None


SEPARATE_GROUPS_MAX: Final = 64
"""With more groups than this, groups are slices of one gather: cheaper, but no group can be freed alone."""


class RoutedRows(Frozen):
    """Rows of one bucket, in input order; `total_buckets` is what commit messages record of its partition."""

    partition: bytes
    bucket: int
    total_buckets: int
    rows: pa.Table
    kinds: Kinds | None

    @property
    def bucket_id(self) -> BucketId:
        """The bucket."""
        return self.partition, self.bucket


class RowRouter:
    """What assigns rows to buckets. It may keep state, which is committed with the rows it has routed.

    Used by one thread at a time. Its life is that of the table writer: `route` … `kept_rows`, `prepare_commit`, again
    and again; `rebase` when the writer goes on upon another snapshot, `abort` when rows and messages since the last
    commit are given up.
    """

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        """The rows, bucket by bucket."""
        raise NotImplementedError

    def kept_rows(self) -> Iterator[AcceptedRows]:
        """Rows that `route` has kept back until all rows of a commit are known, now to be routed again."""
        return iter(())

    def total_buckets(self, partition: bytes) -> int:
        """What commit messages record for rows of this partition; not positive where buckets have no fixed number."""
        raise NotImplementedError

    def note(self, partition: bytes, total_buckets: int) -> None:
        """Takes note of the number that the files of the partition were found to be written with."""

    def prepare_commit(self) -> Sequence[CommitMessage]:
        """What the state of the router adds to the commit: index changes, no rows. Its files are written while those of
        the buckets are; nothing else is asked of the router meanwhile."""
        return ()

    def rebase(self, snapshot: Snapshot | None) -> None:
        """Continues on another snapshot, usually the one just committed."""

    def abort(self) -> None:
        """Forgets what was not committed, and removes its files."""


class BucketRouter(RowRouter):
    """The router of tables with a fixed number of buckets, or none; its only state is the counts it has asked."""

    def __init__(
        self, schema: TableSchema, *, counts: BucketCounts, bucket_key: tuple[str, ...], function: str
    ) -> None:
        if counts.default < 1 and not (counts.default == UNAWARE_BUCKET and not schema.has_primary_key):
            raise UnsupportedFeatureError(
                f"bucket={counts.default} (dynamic or postponed buckets) is not supported yet for tables with a "
                "primary key; create the table with a fixed number, for example bucket=4"
            )
        self._counts = counts
        self._schema = schema
        self._bucket_key = bucket_key or schema.trimmed_primary_keys
        self._bucket_types: tuple[DataType, ...] = schema.types_of(self._bucket_key)
        self._function = function

    @classmethod
    def of(cls, store: TableStore, counts: BucketCounts) -> BucketRouter:
        """The router that the options of a table ask for."""
        options = store.options
        return cls(store.schema, counts=counts, bucket_key=options.bucket_key, function=options.bucket_function_type)

    def total_buckets(self, partition: bytes) -> int:
        return self._counts.of([partition])[0]

    def note(self, partition: bytes, total_buckets: int) -> None:
        self._counts.note(partition, total_buckets)

    def rebase(self, snapshot: Snapshot | None) -> None:
        self._counts.rebase(snapshot)

    def route(self, accepted: AcceptedRows, executor: Executor | None = None) -> Iterator[RoutedRows]:
        if not accepted.rows.num_rows:
            return
        partitions, codes = partition_codes(accepted.rows, self._schema)
        totals = self._counts.of(partitions)
        buckets = self._buckets(accepted.rows, codes, np.array(totals))
        yield from routed_rows(accepted, partitions, codes, buckets, totals, executor)

    def _buckets(
        self, rows: pa.Table, codes: npt.NDArray[np.int64] | None, totals: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32] | None:
        distinct = np.unique(totals)
        if distinct[-1] <= 1:
            return None
        columns = [rows.column(name) for name in self._bucket_key]
        if codes is None or len(distinct) == 1:
            return bucket_ids(columns, self._bucket_types, int(distinct[-1]), self._function)
        buckets = np.zeros(rows.num_rows, np.int32)
        total_of_row = totals[codes]
        for total in distinct[distinct > 1].tolist():
            chosen = total_of_row == total
            buckets[chosen] = bucket_ids(columns, self._bucket_types, total, self._function)[chosen]
        return buckets


def routed_rows(
    accepted: AcceptedRows,
    partitions: Sequence[bytes],
    codes: npt.NDArray[np.int64] | None,
    buckets: npt.NDArray[np.integer] | None,
    totals: Sequence[int],
    executor: Executor | None = None,
) -> Iterator[RoutedRows]:
    """The rows of each bucket, in input order. `codes` is the place of the partition of each row among the partitions,
    None for the first; `buckets` the bucket of each row, None for 0; `totals` are recorded of the partitions."""
    kinds, bucket_count = accepted.kinds, 1 if buckets is None else int(buckets.max()) + 1
    groups = _group_numbers(codes, buckets, bucket_count, len(partitions) * bucket_count)
    for group, positions, part in split_rows(accepted.rows, groups, executor):
        code, bucket = divmod(group, bucket_count)
        part_kinds = kinds if kinds is None or positions is None else kinds[positions]
        yield RoutedRows(partitions[code], bucket, totals[code], part, part_kinds)


def partition_codes(rows: pa.Table, schema: TableSchema) -> tuple[list[bytes], npt.NDArray[np.int64] | None]:
    """The partitions there are, and which of them each row is in; None where there is one."""
    if not schema.partition_keys:
        return [EMPTY_ROW], None
    columns = [rows.column(name) for name in schema.partition_keys]
    return distinct_rows(columns, schema.types_of(schema.partition_keys))


def split_rows(
    rows: pa.Table, groups: npt.NDArray[np.integer], executor: Executor | None = None
) -> Iterator[tuple[int, npt.NDArray[np.int64] | None, pa.Table]]:
    """Each group number with the positions of its rows, None for all, and the rows, in input order."""
    if groups.min() == groups.max():
        yield int(groups[0]), None, rows
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
        yield group, positions, part
        start += len(positions)


def _group_numbers(
    codes: npt.NDArray[np.int64] | None,
    buckets: npt.NDArray[np.integer] | None,
    bucket_count: int,
    group_count: int,
) -> npt.NDArray[np.integer]:
    """partition code * bucket count + bucket, as the narrowest number: 16 bits are sorted by radix."""
    dtype = np.uint16 if group_count <= 1 << 16 else np.int64
    if codes is None:
        return np.zeros(1, dtype) if buckets is None else buckets.astype(dtype)
    if buckets is None:
        return codes.astype(dtype)
    return (codes * bucket_count + buckets).astype(dtype)
