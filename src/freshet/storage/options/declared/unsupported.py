"""Options without effect here: those that ask for what is not supported, which are read to refuse it and for nothing
else, and those that have a meaning for other programs alone: a table may have them, and misspelt keys are not taken for
them.

Options that are read and refused for some values have these refusals where they are declared.

Source: Apache Paimon 2.0.0, options of the core and of its Flink and Spark connectors.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.options.option import (
    LATER,
    TEXT,
    Access,
    Applies,
    Option,
    Refusal,
    Status,
    is_none_of,
    is_set,
    is_true,
)

_LATEST: Final = "the table would be read at its latest snapshot"
_TRAVEL: Final = "leave the option out and give snapshot_id, tag or timestamp_ms to the scan"
_BETWEEN: Final = "leave the option out and call changes_between"
_REMOVE: Final = "remove the option"
_BRANCH_ROWS: Final = "the branch's rows would be missed"
_NO_BLOB: Final = "BLOB columns are not read"
_INDEX: Final = "the index would fall behind"
_CALLBACKS: Final = "the callbacks would not be called"


def _refused(
    key: str, access: Access, applies: Applies, reason: str, remedy: str = LATER, *, immutable: bool = False
) -> Option[str | None]:
    refusal = Refusal(access, applies, reason, remedy)
    return Option(key, TEXT, None, Status.REFUSED, immutable=immutable, refusals=(refusal,))


REFUSED: Final = (
    _refused("scan.snapshot-id", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.tag-name", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.timestamp", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.timestamp-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.watermark", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.version", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.creation-time-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.file-creation-time-millis", Access.READ, is_set, _LATEST, _TRAVEL),
    _refused("scan.bucket", Access.READ, is_set, "all buckets would be read", "leave the option out"),
    _refused("incremental-between", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-between-timestamp", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-between-tag-to-snapshot", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("incremental-to-auto-tag", Access.READ, is_set, _LATEST, _BETWEEN),
    _refused("scan.mode", Access.READ, is_none_of("default", "latest", "latest-full", "full"), _LATEST, _TRAVEL),
    _refused(
        "index-file-in-data-file-dir", Access.READ, is_true, "index files are sought in folder index", immutable=True
    ),
    _refused("scan.fallback-branch", Access.READ, is_set, "the branch's partitions would be missed"),
    _refused("scan.fallback-snapshot-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("scan.fallback-delta-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("scan.primary-branch", Access.READ, is_set, _BRANCH_ROWS),
    _refused("chain-table.enabled", Access.READ, is_true, "rows of the chained branches would be missed"),
    _refused(
        "data-evolution.enabled",
        Access.READ,
        is_true,
        "files that hold some columns only would be read as rows",
        immutable=True,
    ),
    _refused("pk-clustering-override", Access.READ, is_true, "files are not in key order", immutable=True),
    _refused("query-auth.enabled", Access.READ, is_true, "row and column permissions would be passed over"),
    _refused(
        "type",
        Access.READ,
        is_none_of("table", "materialized-table"),
        "it is not a table of the Paimon format",
        "read it with the engine it belongs to",
        immutable=True,
    ),
    _refused("blob-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("blob-descriptor-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("blob-view-field", Access.READ, is_set, _NO_BLOB, immutable=True),
    _refused("vector-field", Access.READ, is_set, "VECTOR columns are not read"),
    _refused("row-tracking.enabled", Access.WRITE, is_true, "rows would have no row id", immutable=True),
    _refused("data-file.external-paths", Access.WRITE, is_set, "files would lie in the table folder"),
    _refused("pk-vector.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-btree.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-bitmap.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("pk-full-text.index.columns", Access.WRITE, is_set, _INDEX),
    _refused("upsert-key", Access.WRITE, is_set, "rows would not be matched by the key"),
    _refused("commit.callbacks", Access.WRITE, is_set, _CALLBACKS, _REMOVE),
    _refused("tag.callbacks", Access.WRITE, is_set, _CALLBACKS, _REMOVE),
    _refused(
        "path",
        Access.CREATE,
        is_set,
        "a table lies in the folder of its database",
        "leave the option out, or choose another warehouse",
    ),
    _refused(
        "metadata.iceberg.storage",
        Access.CREATE,
        is_none_of("disabled"),
        "Freshet writes no Iceberg metadata",
        "leave the option out, or create the table with Apache Paimon",
    ),
    _refused("clustering.columns", Access.CREATE, is_set, "rows are not clustered", _REMOVE),
)
"""In the order in which they are looked at."""

MOVED_OUT: Final = {"primary-key": "primary_keys", "partition": "partition_keys"}
"""Options of the format that are arguments here."""


FORMAT_KEYS: Final = frozenset(
    """
    async-file-write auto-create batch-scan-mode blob-as-descriptor blob-compaction.enabled
    blob-view.resolve.enabled blob-write-null-on-fetch-failure blob-write-null-on-missing-file blob.copy-buffer-size
    blob.split-by-file-size blob.stored-descriptor-fields blob.target-file-size cache-page-size
    chain-table.chain-partition-keys chain-table.split.key-range-enabled chain-table.streaming.merge-snapshot
    clustering.history-partition.idle-to-full-sort clustering.history-partition.limit clustering.incremental
    clustering.incremental.mode clustering.incremental.optimize-write clustering.strategy
    commit.discard-duplicate-files compaction.delete-ratio-threshold compaction.file-num-limit
    compaction.skip-expired-partitions consumer-id consumer.mode cross-partition-upsert.bootstrap-parallelism
    data-evolution.compaction.rewrite-row-ids
    data-evolution.merge-into.file-pruning data-evolution.merge-into.source-persist
    data-evolution.reassign.skip-contiguous-row-count data-evolution.row-id-conflict-rewrite.max-size
    data-evolution.row-sidecar.enabled data-evolution.row-sidecar.max-selected-rows
    data-evolution.row-sidecar.max-selection-ratio data-file.external-paths.specific-fs
    data-file.external-paths.strategy data-file.external-paths.weights delete-file.thread-num
    delete.force-produce-changelog deletion-vector.index-file.target-size dynamic-bucket.assigner-parallelism
    file-operation.thread-num file-reader-async-threshold format-table.commit-hive-sync-url
    format-table.file.compression format-table.implementation format-table.partition-path-only-value
    format-table.scan.list-parallelism full-text-index.search-mode global-index.build.max-parallelism
    global-index.build.max-shard global-index.column-update-action global-index.enabled global-index.external-path
    global-index.row-count-per-shard global-index.search-mode global-index.thread-num incremental-between-scan-mode
    key-value.sequence_number.enabled local-kv-db.block-size local-merge-buffer-size local-sort.max-num-file-handles
    log.scan log.scan.timestamp-millis lookup.blob-as-descriptor lookup.cache-rows lookup.cache-spill-compression
    lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp lookup.cache.high-priority-pool-ratio
    lookup.continuous.discovery-interval lookup.hash-load-factor lookup.merge-buffer-size
    lookup.merge-records-threshold lookup.remote-file.enabled lookup.remote-file.level-threshold
    manifest-sort.enabled manifest-sort.max-rewrite-size manifest-sort.partition-field
    materialized-table.definition-query materialized-table.interval-freshness
    materialized-table.interval-freshness.time-unit materialized-table.logical-refresh-mode
    materialized-table.refresh-handler-bytes materialized-table.refresh-handler-description
    materialized-table.refresh-mode materialized-table.refresh-status metastore.partitioned-table
    metastore.tag-to-partition metastore.tag-to-partition.preview orc.write.batch-size overwrite-upgrade page-size
    parquet.enable.dictionary parquet.variant.shreddingSchema partition.end-input-to-done
    partition.idle-time-to-report-statistic
    partition.mark-done-action.custom.class partition.mark-done-action.http.params
    partition.mark-done-action.http.url partition.sink-strategy partition.timestamp-format.strict
    postpone.merge-on-read read.batch-size
    row-tracking.partition-group-on-commit scalar-index.search-mode scan.bounded.watermark
    scan.fallback-branch.read-fail-fast scan.ignore-corrupt-files scan.ignore-lost-files scan.manifest.parallelism
    scan.max-splits-per-task scan.plan-auto-tag-for-read.time-retained scan.plan-sort-partition
    sink.clustering.by-columns sink.clustering.strategy snapshot.expire.execution-mode
    snapshot.watermark-idle-timeout sort-compaction.local-sample.magnification sort-compaction.range-strategy
    sort-engine sort-spill-buffer-size sort-spill-threshold spill-compression spill-compression.zstd-level
    stream-scan-mode tag.create-success-file variant.inferShreddingSchema
    variant.shredding.adaptive.maxInferBufferRow variant.shredding.adaptive.retentionRatio
    variant.shredding.inferenceMode variant.shredding.maxInferBufferRow variant.shredding.maxSchemaDepth
    variant.shredding.maxSchemaWidth variant.shredding.minFieldCardinalityRatio variant.shreddingSchema
    vector-index.search-mode vector-search.distribute.enabled vector-search.lateral-join.batch-size
    vector.file.format vector.target-file-size visibility-callback.check-interval visibility-callback.enabled
    visibility-callback.timeout
    write-max-writers-to-spill write.batch-memory write.batch-size zorder.var-length-contribution
    """.split()  # noqa: SIM905
)
"""Options of the format, with former names of renamed options."""

ENGINE_KEYS: Final = frozenset(
    """
    log.scan.remove-normalize lookup.dynamic-partition streaming-read.shuffle-bucket-with-partition
    changelog-producer.compaction-interval changelog.precommit-compact.thread-num commit.custom-listeners
    compaction.bucket-distribution-strategy end-input.watermark filesystem.job-level-settings.enabled
    legacy-timestamp-mapping.enabled lookup.async lookup.async-thread-number lookup.bootstrap-parallelism
    lookup.cache lookup.dynamic-partition.refresh-interval lookup.dynamic-partition.refresh.async
    lookup.refresh.async lookup.refresh.async.pending-snapshot-count lookup.refresh.full-load-threshold
    lookup.refresh.time-periods-blacklist metadata.iceberg.compaction.max.file-num
    metadata.iceberg.compaction.min.file-num metadata.iceberg.database metadata.iceberg.delete-after-commit.enabled
    metadata.iceberg.format-version metadata.iceberg.glue.skip-archive metadata.iceberg.hadoop-conf-dir
    metadata.iceberg.hive-client-class metadata.iceberg.hive-conf-dir metadata.iceberg.hive-skip-update-stats
    metadata.iceberg.manifest-compression metadata.iceberg.manifest-legacy-version
    metadata.iceberg.previous-versions-max metadata.iceberg.storage-location metadata.iceberg.table
    metadata.iceberg.uri partition.idle-time-to-done partition.mark-done-action.mode
    partition.mark-done.recover-from-state partition.time-interval read.allow.fullScan read.changelog
    read.shuffle-bucket-with-partition read.stream.maxBytesPerTrigger read.stream.maxFilesPerTrigger
    read.stream.maxRowsPerTrigger read.stream.maxTriggerDelayMs read.stream.minRowsPerTrigger
    requiredSparkConfsCheck.enabled scan.bounded scan.dedicated-split-generation scan.infer-parallelism
    scan.infer-parallelism.max scan.max-snapshot.count scan.parallelism scan.partitions scan.remove-normalize
    scan.split-enumerator.batch-size scan.split-enumerator.mode scan.watermark.alignment.group
    scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval scan.watermark.emit.strategy
    scan.watermark.idle-timeout sink.clustering.sample-factor sink.clustering.sort-in-cluster sink.committer-cpu
    sink.committer-memory sink.committer-operator-chaining sink.coordinator-commit.enabled
    sink.cross-partition.managed-memory sink.key-only-deletes.enabled sink.managed.writer-buffer-memory
    sink.operator-uid.suffix sink.parallelism sink.savepoint.auto-tag sink.use-managed-memory-allocator
    sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-memory
    sink.writer-coordinator.cache-soft-values sink.writer-coordinator.enabled sink.writer-coordinator.page-size
    sink.writer-coordinator.prefetch-manifests sink.writer-cpu sink.writer-memory sink.writer-refresh-detectors
    source.checkpoint-align.enabled source.checkpoint-align.timeout source.operator-uid.suffix
    source.split.target-size-with-column-pruning unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle
    vector-search.lateral-join.parallelism write.data-evolution.update-conflict-retry.max-attempts
    write.data-evolution.update-conflict-retry.wait-ms write.merge-schema write.merge-schema.explicit-cast
    write.merge-schema.type-widening write.use-v2-write comment external is_managed_location location lock.enabled
    lock.type owner provider transient_lastDdlTime
    """.split()  # noqa: SIM905
)
"""Options of query engines, which keep them in the same place."""


KEY_PREFIXES: Final = (
    "fields.",
    "file-index.",
    "parquet.",
    "orc.",
    "avro.",
    "csv.",
    "json.",
    "commit.callback.",
    "tag.callback.",
    "hive.",
    "flink.",
    "spark.",
    "blob-descriptor.",
    "bitmap-index.",
    "btree-index.",
    "sorted-index.",
    "metadata.iceberg.rest.",
    "kafka.",
)
"""How families of options begin: per column, per index, per file format, for a client of the log."""
