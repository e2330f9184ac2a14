"""Options that have a meaning for other programs and none here: a table may have them, and misspelt keys are not taken
for them.

Source: Apache Paimon 2.0.0, options of the core and of its Flink and Spark connectors.
"""

from __future__ import annotations

from typing import Final

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
"""Of the format, with former names of renamed options."""

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
"""Of query engines, which keep them in the same place."""


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
