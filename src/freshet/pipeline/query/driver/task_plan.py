"""How many tasks write a table, and how outcomes of it cross to them.

| buckets of the table | outcomes go | the bucket is computed by |
|---|---|---|
| fixed | to the task of (table partition, bucket) | the decoder |
| fixed, partitions with different numbers | to the task of the table partition | that task |
| dynamic | to an assigner by the share of their key, from there to the task of the bucket | the assigner |
| dynamic, one assigner for a partition | to the task of the table partition | that task |
| dynamic, rows move between partitions | to the task of the share, which has all rows of its keys, then as above | it |
| postponed | to the task of (table partition, hash of the key), with Spark's number of it (`wire.packed_rows`) | – |
| none, no key | nowhere: whoever decodes them writes them | – |
"""

from __future__ import annotations

from collections.abc import Sequence

from freshet._frozen import Frozen
from freshet.pipeline.decode.outcomes import DATA_PREFIX
from freshet.pipeline.query.wire.packed_rows import PackRule
from freshet.storage.model.schema import TableSchema
from freshet.storage.options import CoreOptions


class TaskPlan(Frozen):
    """What bounds the number of tasks of a batch."""

    tasks_max: int
    parallelism: int

    def count(self, schema: TableSchema, options: CoreOptions) -> int:
        """Tasks that write this table.

        Never more than `tasks_max`. An unpartitioned table has exactly its buckets to give away; in a partitioned one a
        batch may touch any number of (partition, bucket), so four tasks per core even out the load without hundreds of
        empty ones.
        """
        has_no_number = options.has_dynamic_buckets or options.has_postponed_buckets
        buckets = max(1, self.parallelism if has_no_number else options.bucket)
        wanted = 4 * max(1, self.parallelism) if schema.partition_keys else buckets
        return max(1, min(self.tasks_max, wanted))

    def assigners(self, schema: TableSchema, options: CoreOptions) -> tuple[int, int]:
        """Assigners of each partition of a table with dynamic buckets, and the tasks of a batch, a multiple of that.
        Where rows move between partitions: the shares of the keys, and the tasks that write."""
        count = self.count(schema, options)
        if options.dynamic_bucket_max_buckets > 0:
            count = min(count, options.dynamic_bucket_max_buckets)
        if schema.keys_cross_partitions:
            # Each share has an index of its own, and begins each partition with a bucket of its own.
            return min(options.dynamic_bucket_initial_buckets or self.parallelism, self.tasks_max), count
        assigners = min(options.dynamic_bucket_initial_buckets or count, count)
        return assigners, count // assigners * assigners


class PackPlan(Frozen):
    """How packed outcomes of one table go to its tasks.

    `rule` is that of whoever decodes them; where there are assigners, they pack what goes on by `onward`.
    `bucket_count` is that of `TableWork`. Where `is_shuffled` is False, the outcomes are written by the task that
    decodes them.
    """

    rule: PackRule
    bucket_count: int | None
    onward: PackRule | None = None
    moves_rows: bool = False
    is_shuffled: bool = True

    @property
    def task_count(self) -> int:
        """Tasks that write."""
        return (self.onward or self.rule).task_count


def pack_plan(
    decoded: TableSchema,
    options: CoreOptions,
    tasks: TaskPlan,
    *,
    is_rescaled: bool,
    columns: Sequence[str] | None = None,
) -> PackPlan:
    """The way of rows that were made for this schema and these options. `columns` are those that `_d0` … hold, by
    default all."""
    if options.bucket <= 0 and not options.has_primary_key:
        return PackPlan(PackRule((), False, 1), options.bucket, is_shuffled=False)
    indexes = {name: index for index, name in enumerate(columns or decoded.column_names)}
    partition = tuple(f"{DATA_PREFIX}{indexes[name]}" for name in decoded.partition_keys)
    if not options.has_dynamic_buckets:
        count = tasks.count(decoded, options)
        if options.has_postponed_buckets:
            return PackPlan(PackRule(partition, True, count, share_count=count, is_sparks=True), None)
        return PackPlan(PackRule(partition, not is_rescaled, count), None if is_rescaled else options.bucket)
    shares, count = tasks.assigners(decoded, options)
    onward = PackRule(partition, True, count)
    if decoded.keys_cross_partitions:
        return PackPlan(PackRule((), True, shares, share_count=shares), options.bucket, onward, moves_rows=True)
    if shares == 1 or is_rescaled:
        return PackPlan(PackRule(partition, False, count), None)
    return PackPlan(PackRule(partition, True, count, share_count=shares), options.bucket, onward)
