"""Makes what a table writer needs of its table: the rules for rows, the router, the writers of buckets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final

from freshet.storage.compact.rewriter import Rewriter
from freshet.storage.io.spill_file import Scratch
from freshet.storage.lookup.lookup_metrics import LookupMetrics
from freshet.storage.merge.engine import distinct_collects, lookup_merge_function, merge_function, row_order
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.merged_table import MergeMetrics
from freshet.storage.merge.retract_layers import RetractLayers
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.choices import MergeEngine
from freshet.storage.options.engine import engine_options
from freshet.storage.schema.record_expiry import time_column
from freshet.storage.write.append_bucket_writer import AppendBucketWriter
from freshet.storage.write.bucket_writer import BucketTools
from freshet.storage.write.bucketing import BucketCounts, BucketRouter, RowRouter
from freshet.storage.write.dynamic_router import DynamicRouter
from freshet.storage.write.key_value_bucket_writer import KeyValueBucketWriter
from freshet.storage.write.moving_router import MovingRouter
from freshet.storage.write.open_buckets import OpenBucket
from freshet.storage.write.partition_index import WarmIndexes
from freshet.storage.write.postponed_bucket_writer import PostponedBucketWriter, Staging
from freshet.storage.write.postponed_router import PostponedRouter, StagingRouter
from freshet.storage.write.records import RecordRules
from freshet.storage.write.retract_rules import RetractRules

MERGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows that a round of merging in compaction holds, a quarter of the write buffer at most."""


def record_rules(store: TableStore, *, are_moved: bool = False) -> RecordRules:
    """What may be written. `are_moved`: of rows whose keys were placed before (`key_mover`), which are all to be
    written: a row that moves deletes in the old partition, whatever the table ignores."""
    options = store.options
    return RecordRules(
        store.schema,
        table=store.location,
        rowkind_field=options.rowkind_field,
        ignore_delete=options.ignore_delete and not are_moved,
        ignore_update_before=options.ignore_update_before and not are_moved,
        sequence_field=options.sequence_field,
        deletes_by_key=_deletes_by_key(store),
        takes_whole_rows=options.takes_whole_rows,
        distinct=distinct_collects(store.schema, options),
        retract_rules=RetractRules.of(store.schema, options, store.location) if store.schema.has_primary_key else None,
    )


def key_rules(store: TableStore, columns: Collection[str]) -> RecordRules:
    """The same for these columns of rows alone: the key and the partition, of rows of any kind."""
    fields = tuple(field for field in store.schema.fields if field.name in columns)
    schema = replace(store.schema, fields=fields)
    return RecordRules(
        schema,
        table=store.location,
        deletes_by_key=_deletes_by_key(store),
        takes_whole_rows=store.options.takes_whole_rows,
    )


def row_router(
    store: TableStore, snapshot: Snapshot | None, warm: WarmIndexes, scratch: Scratch, staging: Staging | None
) -> RowRouter:
    """The router that the table's options ask for; `warm` are the indexes that the process keeps of the table;
    `staging` says who writes where rows are to wait for their bucket."""
    if store.moves_rows:
        return MovingRouter(store, snapshot)
    if store.options.has_dynamic_buckets:
        return DynamicRouter(store, snapshot, warm)
    if store.options.has_postponed_buckets:
        return StagingRouter(store) if staging is not None else PostponedRouter(store, snapshot, scratch.new_path)
    return BucketRouter(
        store.schema,
        counts=BucketCounts(store, snapshot),
        bucket_key=store.options.bucket_key,
        function=store.options.bucket_function_type,
    )


def bucket_writers(
    tools: BucketTools,
    scratch: Scratch,
    metrics: MergeMetrics,
    lookup_metrics: LookupMetrics,
    staging: Staging | None = None,
) -> OpenBucket:
    """The maker of bucket writers of a table; they share these tools."""
    if staging is not None:
        return partial(PostponedBucketWriter, tools, staging)
    if not tools.store.schema.has_primary_key:
        return partial(AppendBucketWriter, tools)
    return partial(KeyValueBucketWriter, tools, table_rewriter(tools.store, scratch, metrics, lookup_metrics))


def table_rewriter(
    store: TableStore, scratch: Scratch, metrics: MergeMetrics, lookup_metrics: LookupMetrics
) -> Rewriter:
    """The compaction of a primary-key table."""
    options, rule = store.options, store.retract_rule
    time_column(store.schema, options)  # of a table made elsewhere it may be none: reported at once
    return Rewriter(
        store=store,
        order=row_order(store.schema, options),
        function=merge_function(store.schema, options, metrics, table=store.location),
        lookup_function=lookup_merge_function(store.schema, options, metrics, table=store.location),
        comparator=KeyComparator(store.key_types),
        merge_bytes=min(MERGE_BYTES_MAX, options.write_buffer_size_bytes // 4),
        new_spill_path=scratch.new_path,
        layers=None if rule is None else RetractLayers(store.schema, rule, cuts=not options.sequence_snapshot_ordering),
        lookup_metrics=lookup_metrics,
    )


def _deletes_by_key(store: TableStore) -> bool:
    """Whether of a -D only the key matters: it removes the row, and no changelog repeats what it says."""
    if not store.schema.has_primary_key or store.options.changelog_producer.emits.at_flush:
        return False
    if store.options.merge_engine is MergeEngine.DEDUPLICATE:
        return True
    return engine_options(store.schema, store.options).remove_record_on_delete
