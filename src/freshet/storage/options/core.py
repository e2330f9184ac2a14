"""Table options: Apache Paimon's keys, each with its type, unit and default, in one frozen value.

Options that change what is written or read stand first, then those that only change performance. A value is what the
user typed, a string; how sizes and durations are spelled is in `options.values`. Which options ask for something
that is not supported is decided in `freshet.storage.options.supported`, not here.

    CoreOptions.parse(options, has_primary_key=…)          a new table: unknown keys are refused with the nearest one
    CoreOptions.parse(options, has_primary_key=…, strict=False)   a table of somebody else: unknown keys are tolerated

Source: FORMAT.md §15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.keys import is_known_key, nearest_key
from freshet.storage.options.values import (
    INT_MAX,
    LONG_MAX,
    parse_bool,
    parse_duration_ms,
    parse_int,
    parse_long,
    parse_map,
    parse_names,
    parse_size_bytes,
    split_names,
)
from freshet.storage.paths import DEFAULT_PARTITION_NAME

KEYED_TARGET_FILE_SIZE_BYTES: Final = 128 * 1024 * 1024
APPEND_TARGET_FILE_SIZE_BYTES: Final = 256 * 1024 * 1024
DYNAMIC_BUCKET: Final = -1
"""`bucket=-1`: dynamic buckets of a keyed table, no buckets of an append table."""

UNAWARE_BUCKET: Final = -1
"""Value of the option `bucket`, and of the total recorded, for append tables without buckets."""

_FALLBACK_KEYS: Final = {
    "deduplicate.ignore-delete": "ignore-delete",
    "first-row.ignore-delete": "ignore-delete",
    "partial-update.ignore-delete": "ignore-delete",
    "write.compaction-skip": "write-only",
    "snapshot.expire.clean-empty-directories": "snapshot.clean-empty-directories",
    "changelog-producer.lookup-wait": "lookup-wait",
    "changelog.precommit-compact": "precommit-compact",
}

E = TypeVar("E", bound=StrEnum)


class MergeEngine(StrEnum):
    """How rows of one key become one row."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATE = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(StrEnum):
    """Where changelog files come from."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class SortOrder(StrEnum):
    """Direction of the sequence fields."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(StrEnum):
    """When level 0 of a table that needs lookup moves up: with every compaction, or now and then."""

    RADICAL = "radical"
    GENTLE = "gentle"


class LogSystem(StrEnum):
    """Where changes are logged before their commit."""

    NONE = "none"
    KAFKA = "kafka"


class LogChangelogMode(StrEnum):
    """Which rows the log has: every kind, or no rows before an update."""

    AUTO = "auto"
    ALL = "all"
    UPSERT = "upsert"


class LogConsistency(StrEnum):
    """What consumers that know nothing of snapshots are promised."""

    EVENTUAL = "eventual"
    TRANSACTIONAL = "transactional"


class OnLakeOnly(StrEnum):
    """What a reader of the log does about a commit that was not logged."""

    FAIL = "fail"
    APPLY = "apply"
    SKIP = "skip"


class OnTruncated(StrEnum):
    """What a reader of the log does when retention has taken what it needs."""

    FAIL = "fail"
    HOP = "hop"


class SequenceInitMode(StrEnum):
    """Where a writer takes its first sequence number from."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"


def _enum(enum: type[E]) -> Callable[[object], E]:
    def parse(value: object) -> E:
        try:
            return enum(str(value).lower())
        except ValueError:
            raise ValueError(f"expected one of {', '.join(enum)}") from None

    return parse


def _text(parse: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


SizeBytes = Annotated[int, _text(parse_size_bytes)]
DurationMs = Annotated[int, _text(parse_duration_ms)]
Int = Annotated[int, _text(parse_int)]
Long = Annotated[int, _text(parse_long)]
Flag = Annotated[bool, _text(parse_bool)]
Names = Annotated[tuple[str, ...], _text(parse_names)]
ColumnNames = Annotated[tuple[str, ...], _text(split_names)]
Pairs = Annotated[tuple[tuple[str, str], ...], _text(lambda text: tuple(parse_map(text).items()))]
Ratio = Annotated[float, _text(float)]


class CoreOptions(BaseModel):
    """The options of one table. Aliases are the keys in schema files."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=False)

    has_primary_key: bool = Field(default=True, alias=" has-primary-key")
    given: Annotated[Mapping[str, str], Field(alias=" given", repr=False)] = {}

    # --- buckets -----------------------------------------------------------------------------------------------------
    bucket: Int = Field(default=DYNAMIC_BUCKET, alias="bucket")
    """Buckets of each table partition; every row of a key lies in one bucket, which one task writes. More buckets write
    faster and make smaller files. Keyed tables need a number; -1 is an append table without buckets. Cannot change
    once the table has data."""
    bucket_key: Annotated[tuple[str, ...], _text(lambda text: tuple(text.split(",")))] = Field(
        default=(), alias="bucket-key"
    )
    """Columns whose hash decides the bucket; for keyed tables a part of the primary key, which is the default. Names
    are not trimmed: that is how the format reads them."""
    bucket_function_type: Annotated[str, _text(str.lower)] = Field(default="default", alias="bucket-function.type")
    """Hash of the bucket key: `default`, `mod` (one INT or BIGINT column) or `hive`. Another function would look for
    rows in other buckets, so it never changes."""
    bucket_append_ordered: Flag = Field(default=True, alias="bucket-append-ordered")
    """Sequence numbers of a bucketed append table continue from the bucket's maximum, so that rows keep the order in
    which they came."""

    # --- files -------------------------------------------------------------------------------------------------------
    file_format: Annotated[str, _text(str.lower)] = Field(default="parquet", alias="file.format")
    """Format of data files. Only `parquet` is read and written here."""
    file_format_per_level: Pairs = Field(default=(), alias="file.format.per.level")
    """Format by level, as `0:parquet,5:parquet`; other formats than Parquet are refused."""
    file_compression: Annotated[str, _text(str.lower)] = Field(default="zstd", alias="file.compression")
    """Codec of data files: `zstd`, `snappy`, `gzip`, `lz4` or `none`."""
    file_compression_per_level: Pairs = Field(default=(), alias="file.compression.per.level")
    """Codec by level, as `0:lz4,5:zstd`. A fast codec at level 0 makes commits quicker; files of level 0 are rewritten
    soon."""
    file_compression_zstd_level: Int = Field(default=1, alias="file.compression.zstd-level")
    """Level of zstd; higher levels make smaller files and slower commits."""
    file_block_size_bytes: SizeBytes | None = Field(default=None, alias="file.block-size", gt=0)
    """Bytes of the rows of a Parquet row group, as they are in memory; 16 MB unless set. Smaller groups let filters
    skip more and compress less; a writer holds a group of each open file, and a reader a few."""
    data_file_prefix: str = Field(default="data-", alias="data-file.prefix")
    """How names of data files begin."""
    data_file_path_directory: str | None = Field(default=None, alias="data-file.path-directory")
    """Folder below the table's in which partitions and buckets lie. Never changes once the table has a snapshot."""
    changelog_file_prefix: str = Field(default="changelog-", alias="changelog-file.prefix")
    """How names of changelog files begin."""
    changelog_file_format_given: str | None = Field(default=None, alias="changelog-file.format")
    """Format of changelog files, by default that of data files; only `parquet` is supported."""
    changelog_file_compression_given: str | None = Field(default=None, alias="changelog-file.compression")
    """Codec of changelog files, by default that of data files at the same level."""
    changelog_file_stats_mode_given: str | None = Field(default=None, alias="changelog-file.stats-mode")
    """Statistics kept of changelog files, by default those of data files at the same level. `none` makes their
    manifests small; changelogs are read whole anyway."""
    file_suffix_include_compression: Flag = Field(default=False, alias="file.suffix.include.compression")
    """Names the codec in the file name (`.zst.parquet`)."""
    thin_mode: Flag = Field(default=False, alias="data-file.thin-mode")
    """Leaves the `_KEY_` columns out of data files, which hold the same values as columns anyway. Smaller files; tools
    that read files by themselves may expect the columns."""
    target_file_size_given_bytes: SizeBytes | None = Field(default=None, alias="target-file-size")
    """Size at which a data file is closed; 128 MB for keyed tables, 256 MB for append tables. Larger files are cheaper
    to plan and dearer to rewrite."""
    target_file_row_num: Long = Field(default=LONG_MAX, alias="target-file-row-num", gt=0)
    """Rows at which a data file is closed when it is written; compaction goes by size only."""
    partition_default_name: str = Field(default=DEFAULT_PARTITION_NAME, alias="partition.default-name")
    """Folder of rows whose partition value is NULL or blank. A change makes earlier files of such partitions
    unreadable."""
    partition_legacy_name: Flag = Field(default=True, alias="partition.legacy-name")
    """Writes dates in partition folders as days since 1970 and timestamps in ISO form, as Paimon does by default. A
    change makes earlier partitions unreadable."""

    # --- statistics --------------------------------------------------------------------------------------------------
    metadata_stats_mode: str = Field(default="truncate(16)", alias="metadata.stats-mode")
    """Statistics kept per column: `none`, `counts`, `truncate(n)` or `full`. Filters skip files by them; more
    statistics make larger manifests."""
    metadata_stats_mode_per_level: Pairs = Field(default=(), alias="metadata.stats-mode.per.level")
    """Statistics mode by level, as `0:none`."""
    stats_dense_store: Flag = Field(default=True, alias="metadata.stats-dense-store")
    """Leaves columns without statistics out of manifest entries."""
    stats_keep_first_n_columns: Int = Field(default=-1, alias="metadata.stats-keep-first-n-columns")
    """Keeps statistics of the first n columns only; -1 keeps them of all. Worth setting for very wide tables."""

    # --- manifests ---------------------------------------------------------------------------------------------------
    manifest_format: Annotated[str, _text(str.lower)] = Field(default="avro", alias="manifest.format")
    """Format of manifests; only `avro` is supported."""
    manifest_compression: Annotated[str, _text(str.lower)] = Field(default="zstd", alias="manifest.compression")
    """Codec of manifests: `zstd`, `snappy`, `deflate` or `none`."""
    manifest_target_file_size_bytes: SizeBytes = Field(default=8 * 1024 * 1024, alias="manifest.target-file-size")
    """Size to which small manifests are merged."""
    manifest_full_compaction_threshold_bytes: SizeBytes = Field(
        default=16 * 1024 * 1024, alias="manifest.full-compaction-threshold-size"
    )
    """Size of manifests with deletions, or too small, at which all of them are rewritten. Larger values rewrite more
    rarely and make more to read."""
    manifest_merge_min_count: Int = Field(default=30, alias="manifest.merge-min-count")
    """Small manifests at the end of the list that are worth merging. Lower values make commits slower and plans faster.
    """
    manifest_delete_file_drop_stats: Flag = Field(default=False, alias="manifest.delete-file-drop-stats")
    """Leaves the statistics of columns out of the entries of deleted files, for smaller manifests. Releases of Paimon
    from before the option existed may miss them."""

    # --- merging -----------------------------------------------------------------------------------------------------
    merge_engine: Annotated[MergeEngine, _text(_enum(MergeEngine))] = Field(
        default=MergeEngine.DEDUPLICATE, alias="merge-engine"
    )
    """How rows of one key become one row: `deduplicate` keeps the latest, `partial-update` the latest value of each
    column, `aggregation` folds each column by its function, `first-row` keeps the first. Never changes once the
    table has a snapshot."""
    changelog_producer: Annotated[ChangelogProducer, _text(_enum(ChangelogProducer))] = Field(
        default=ChangelogProducer.NONE, alias="changelog-producer"
    )
    """Where changelog files come from: `none` keeps none; `input` keeps the rows as they were written, so the input
    must bring -U and -D itself; `lookup` finds the row before in every compaction of level 0, so each commit is
    followed by its changelog; `full-compaction` compares with the last full compaction, later and cheaper."""
    changelog_row_deduplicate: Flag = Field(default=False, alias="changelog-producer.row-deduplicate")
    """Leaves updates out of the changelog that change nothing (`lookup`, `full-compaction`)."""
    changelog_row_deduplicate_ignore_fields: ColumnNames | None = Field(
        default=None, alias="changelog-producer.row-deduplicate-ignore-fields"
    )
    """Columns that do not count as a change, such as the time of an update."""
    ignore_delete: Flag = Field(default=False, alias="ignore-delete")
    """Drops -D and -U rows before the write buffer. Deletions are then lost for good."""
    ignore_update_before: Flag = Field(default=False, alias="ignore-update-before")
    """Drops -U rows before the write buffer."""
    partial_update_remove_record_on_delete: Flag = Field(default=False, alias="partial-update.remove-record-on-delete")
    """A -D removes the row; without it, and without sequence groups, a delete is an error."""
    partial_update_remove_record_on_sequence_group: ColumnNames | None = Field(
        default=None, alias="partial-update.remove-record-on-sequence-group"
    )
    """Ordering columns of sequence groups: a -D that does not come late for such a group removes the row."""
    aggregation_remove_record_on_delete: Flag = Field(default=False, alias="aggregation.remove-record-on-delete")
    """A -D removes the row instead of being retracted column by column."""
    rowkind_field: str | None = Field(default=None, alias="rowkind.field")
    """Column whose text (`+I`, `-U`, `+U`, `-D`) is the kind of a row; NULL is an error."""
    sequence_field: Names = Field(default=(), alias="sequence.field")
    """Columns that decide which of two changes of one key is later, instead of the order of arrival. A NULL is earlier
    than every value. A late change loses, a late delete as well."""
    sequence_field_sort_order: Annotated[SortOrder, _text(_enum(SortOrder))] = Field(
        default=SortOrder.ASCENDING, alias="sequence.field.sort-order"
    )
    """`descending` lets the smaller value win."""
    sequence_snapshot_ordering: Flag = Field(default=False, alias="sequence.snapshot-ordering")
    """Orders changes by the snapshot that brought them; not supported here."""
    sequence_number_init_mode: Annotated[SequenceInitMode, _text(_enum(SequenceInitMode))] = Field(
        default=SequenceInitMode.SCAN, alias="write.sequence-number-init-mode"
    )
    """Where a writer takes its first sequence number from; only `scan` is supported."""
    deletion_vectors_enabled: Flag = Field(default=False, alias="deletion-vectors.enabled")
    """Marks deleted rows in index files, so that reads need not merge: rows show once they were compacted."""
    deletion_vectors_merge_on_read: Flag = Field(default=False, alias="deletion-vectors.merge-on-read")
    """Reads rows of level 0 too, before they are compacted, and merges. Slower reads of newer rows."""
    deletion_vectors_bitmap64: Flag = Field(default=False, alias="deletion-vectors.bitmap64")
    """Writes deletion vectors with 64-bit positions; both kinds are always read. Not every reader knows them."""
    force_lookup: Flag = Field(default=False, alias="force-lookup")
    """Looks up the stored row at every compaction of level 0, as the lookup changelog does, without a changelog.
    Commits take longer, reads get whole rows."""
    streaming_read_overwrite: Flag = Field(default=False, alias="streaming-read-overwrite")
    """Readers of a keyed table's changes see an overwrite too: all rows it took away, then all it added. Otherwise they
    pass over it."""
    streaming_read_append_overwrite: Flag = Field(default=False, alias="streaming-read-append-overwrite")
    """Readers of an append table's changes see the rows that an overwrite added. Otherwise they pass over it."""
    full_compaction_delta_commits_given: Int | None = Field(default=None, alias="full-compaction.delta-commits", gt=0)
    """Compacts in full, at every n-th commit, all buckets of the table that were written since the last time. 1 with
    `changelog-producer=full-compaction` if nothing else is said. Higher values write less and tell changes later."""

    # --- snapshots ---------------------------------------------------------------------------------------------------
    snapshot_num_retained_min: Int = Field(default=10, alias="snapshot.num-retained.min", gt=0)
    """Snapshots that expiry always keeps."""
    snapshot_num_retained_max: Int = Field(default=INT_MAX, alias="snapshot.num-retained.max", gt=0)
    """Snapshots that expiry keeps at most, however young. Readers of older ones fail."""
    snapshot_time_retained_ms: DurationMs = Field(default=3_600_000, alias="snapshot.time-retained")
    """Age at which a snapshot may expire. Must be longer than the longest read and the longest pause of a streaming
    reader without a consumer id."""
    snapshot_expire_limit: Int = Field(default=50, alias="snapshot.expire.limit", gt=0)
    """Snapshots that one expiry removes at most, so that a commit is never kept waiting for long."""
    snapshot_clean_empty_directories: Flag = Field(default=False, alias="snapshot.clean-empty-directories")
    """Expiry removes folders that have become empty. Costs a listing per folder."""
    snapshot_ignore_empty_commit: Flag | None = Field(default=None, alias="snapshot.ignore-empty-commit")
    """`true`: `Table.writer` makes no snapshot of a commit without files, and a later commit of its number counts. The
    batches of a stream are committed in any case: only a snapshot proves that one was there."""
    changelog_num_retained_min: Int | None = Field(default=None, alias="changelog.num-retained.min", gt=0)
    """Snapshots whose changelog expiry always keeps, the last ones; as for snapshots unless set. More than those are
    kept as changelogs that outlive their snapshots, for readers of changes."""
    changelog_num_retained_max: Int | None = Field(default=None, alias="changelog.num-retained.max", gt=0)
    """Snapshots whose changelog is kept at most, however young; as for snapshots unless set."""
    changelog_time_retained_ms: DurationMs | None = Field(default=None, alias="changelog.time-retained")
    """Age at which the changelog of a snapshot may expire; as for snapshots unless set."""
    consumer_changelog_only: Flag = Field(default=False, alias="consumer.changelog-only")
    """Consumers hold back the expiry of changelogs, not of snapshots."""
    consumer_expiration_time_ms: DurationMs | None = Field(default=None, alias="consumer.expiration-time")
    """Age at which the file of a consumer that reads no more is removed, so that it holds back nothing any longer."""
    consumer_ignore_progress: Flag = Field(default=False, alias="consumer.ignore-progress")
    """A consumer starts as the scan mode says, not where it stopped; its progress is written nevertheless."""

    # --- commit ------------------------------------------------------------------------------------------------------
    commit_user_prefix: str | None = Field(default=None, alias="commit.user-prefix")
    """How made-up commit users begin, those of compactions that nobody named: `<prefix>_<uuid>` instead of
    `freshet-compact-<uuid>`."""
    commit_max_retries: Int = Field(default=10, alias="commit.max-retries", ge=0)
    """How often a commit that lost the race for a snapshot id tries again, at least; and no less long than these
    retries would take if their waits doubled each time (10 s by default)."""
    commit_min_retry_wait_ms: DurationMs = Field(default=10, alias="commit.min-retry-wait")
    """Wait before the first retry after an error, doubled each time. After a lost race it is of the order of a commit's
    time."""
    commit_max_retry_wait_ms: DurationMs = Field(default=10_000, alias="commit.max-retry-wait")
    """Longest wait between two retries."""
    commit_timeout_ms: DurationMs | None = Field(default=None, alias="commit.timeout")
    """Time after which a commit gives up."""
    commit_force_compact: Flag = Field(default=False, alias="commit.force-compact")
    """Each commit does all of the compaction that is due before it ends: no larger rounds run beside a stream, and
    `lookup-wait=false` does not count."""
    commit_force_create_snapshot: Flag = Field(default=False, alias="commit.force-create-snapshot")
    """Makes a snapshot even of a commit without files. Freshet does so anyway; it counts before
    `snapshot.ignore-empty-commit`."""
    write_only: Flag = Field(default=False, alias="write-only")
    """Writers neither compact nor expire. Somebody else must (`freshet compact`), else reads get slower with every
    commit."""

    # --- schema changes ----------------------------------------------------------------------------------------------
    null_to_not_null_disabled: Flag = Field(default=True, alias="alter-column-null-to-not-null.disabled")
    """Refuses to make a nullable column NOT NULL, which old rows may break."""
    explicit_type_casting_disabled: Flag = Field(default=False, alias="disable-explicit-type-casting")
    """Allows only changes of type that cannot lose a value."""
    add_column_before_partition: Flag = Field(default=False, alias="add-column-before-partition")
    """Puts a new column before the first partition column where its place is not said, instead of last."""

    # --- log -------------------------------------------------------------------------------------------------------
    log_system: Annotated[LogSystem, _text(_enum(LogSystem))] = Field(default=LogSystem.NONE, alias="log.system")
    """`kafka` appends every change to a topic before it is committed, so that readers need not wait. Where the brokers
    are and what the topic is called: `kafka.bootstrap.servers`, `kafka.topic` (one that is empty or the
    log's own already: any other is refused); other `kafka.*` go to the client."""
    log_changelog_mode: Annotated[LogChangelogMode, _text(_enum(LogChangelogMode))] = Field(
        default=LogChangelogMode.AUTO, alias="log.changelog-mode"
    )
    """`all` logs -U rows too, `upsert` does not; `auto` is `all` for append tables and where `changelog-producer` is
    lookup or input (or full-compaction, with `log.consistency=transactional`), else `upsert`. Speculative readers need
    `all`."""
    log_consistency: Annotated[LogConsistency, _text(_enum(LogConsistency))] = Field(
        default=LogConsistency.EVENTUAL, alias="log.consistency"
    )
    """`eventual` logs before the commit, and the snapshots say which records count: for readers of Freshet.
    `transactional` publishes after the commit, a Kafka transaction for each snapshot, for consumers with
    `isolation.level=read_committed` that know nothing of Freshet; it needs `log.format` json or debezium-json."""
    log_format: Annotated[str, _text(str.lower)] = Field(default="arrow", alias="log.format")
    """Format of the values in the log: `arrow`, batches of rows; `json` and `debezium-json`, a record for each change,
    for consumers that know nothing of Freshet."""
    log_key_format: Annotated[str | None, _text(str.lower)] = Field(default=None, alias="log.key.format")
    """Format of message keys, which are the primary key: `json`; records of `log.format=arrow` have none."""
    log_ignore_delete: Flag = Field(default=False, alias="log.ignore-delete")
    """Leaves -U and -D out of the log and logs +U as +I. Such a log does not follow deletes, and has no speculative
    readers."""
    log_on_lake_only: Annotated[OnLakeOnly, _text(_enum(OnLakeOnly))] = Field(
        default=OnLakeOnly.APPLY, alias="log.on-lake-only"
    )
    """What a reader of the log does about a commit that was not logged and changed rows (a compaction job that told
    changes, an overwrite, another program): `apply` reads its changes from the files, `fail`, `skip`."""
    log_on_truncated: Annotated[OnTruncated, _text(_enum(OnTruncated))] = Field(
        default=OnTruncated.FAIL, alias="log.on-truncated"
    )
    """What a reader of the log does when retention has taken what it needs: `fail`, or `hop` (reads the changes of
    those snapshots from the files)."""

    # --- performance: writing ----------------------------------------------------------------------------------------
    write_buffer_size_bytes: SizeBytes = Field(default=256 * 1024 * 1024, alias="write-buffer-size", gt=0)
    """Memory for rows of all buckets of a writer until they are sorted and written. Larger buffers make fewer, larger
    files; a Spark task needs this much and some 300 MB more."""
    write_buffer_spillable: Flag = Field(default=True, alias="write-buffer-spillable")
    """Lets a full buffer put sorted runs on local disk instead of writing a level-0 file each time."""
    write_buffer_for_append: Flag = Field(default=False, alias="write-buffer-for-append")
    """Has no effect here: rows of append tables are always buffered within `write-buffer-size`."""
    write_buffer_spill_max_disk_size_bytes: SizeBytes = Field(
        default=LONG_MAX, alias="write-buffer-spill.max-disk-size"
    )
    """Bytes of sorted runs on disk at which the buffer is flushed."""

    # --- performance: compaction -------------------------------------------------------------------------------------
    compaction_trigger: Int = Field(default=5, alias="num-sorted-run.compaction-trigger", gt=0)
    """Sorted runs of a bucket at which compaction looks for work. Lower values make reads faster and writes amplify
    more."""
    stop_trigger_given: Int | None = Field(default=None, alias="num-sorted-run.stop-trigger", gt=0)
    """Sorted runs at which writing waits for compaction; three above the compaction trigger unless set, and never below
    it."""
    num_levels_given: Int | None = Field(default=None, alias="num-levels", gt=1)
    """Levels of a bucket, level 0 included; one more than the compaction trigger unless set."""
    compaction_max_size_amplification_percent: Int = Field(
        default=200, alias="compaction.max-size-amplification-percent"
    )
    """Size of all runs but the last, in percent of the last, at which everything is compacted. Lower values save disk
    and rewrite more."""
    compaction_size_ratio: Int = Field(default=1, alias="compaction.size-ratio")
    """Percent by which the next run may be larger than those picked so far."""
    compaction_force_up_level_0: Flag = Field(default=False, alias="compaction.force-up-level-0")
    """Every compaction takes all of level 0."""
    compaction_optimization_interval_ms: DurationMs | None = Field(
        default=None, alias="compaction.optimization-interval"
    )
    """Compacts in full at least this often, for readers of the last level alone."""
    compaction_total_size_threshold_bytes: SizeBytes | None = Field(
        default=None, alias="compaction.total-size-threshold"
    )
    """Buckets below this size are compacted in full each time."""
    compaction_incremental_size_threshold_bytes: SizeBytes | None = Field(
        default=None, alias="compaction.incremental-size-threshold"
    )
    """Compacts in full when the runs above the last level exceed this size."""
    compaction_offpeak_start_hour: Int = Field(default=-1, alias="compaction.offpeak.start.hour")
    """Hour of the day at which off-peak time begins; -1 for never."""
    compaction_offpeak_end_hour: Int = Field(default=-1, alias="compaction.offpeak.end.hour")
    """Hour of the day at which off-peak time ends; -1 for never."""
    compaction_offpeak_ratio: Int = Field(default=0, alias="compaction.offpeak-ratio")
    """`compaction.size-ratio` in off-peak time."""
    lookup_compact: Annotated[LookupCompact, _text(_enum(LookupCompact))] = Field(
        default=LookupCompact.RADICAL, alias="lookup-compact"
    )
    """`radical` moves level 0 up with every compaction of a table that needs lookup, `gentle` now and then."""
    lookup_compact_max_interval_given: Int | None = Field(default=None, alias="lookup-compact.max-interval")
    """Rounds without a compaction after which a gentle table moves level 0 up; twice the compaction trigger unless set.
    """
    lookup_wait: Flag = Field(default=True, alias="lookup-wait")
    """Commits of a table that needs lookup wait until nothing is left at level 0."""
    precommit_compact: Flag = Field(default=False, alias="precommit-compact")
    """The small changelog files of a commit are packed into one a partition, as the Flink sink of Paimon does. Flink
    and Freshet read them; other engines with Paimon do not.
    """
    precommit_compact_buffer_bytes: SizeBytes = Field(
        default=128 * 1024 * 1024, alias="changelog.precommit-compact.buffer-size"
    )
    """Changelog files from this size on are not packed with others."""
    lookup_cache_dir: str | None = Field(default=None, alias="lookup.cache-dir")
    """Folder on a local disk for the stores in which rows are looked up by key; an option of Freshet. All processes of
    a user on one machine share them, and a restart finds them again. If not given: `freshet-lookup-<user id>` in the
    folder for temporary files of each machine."""
    lookup_cache_max_disk_size_bytes: SizeBytes = Field(default=LONG_MAX, alias="lookup.cache-max-disk-size")
    """Bytes of all stores below the folder at which those used longest ago are removed; 0 for no stores at all. A store
    takes four to five times the bytes of its data file."""
    lookup_cache_file_retention_ms: DurationMs = Field(default=3_600_000, alias="lookup.cache-file-retention")
    """Stores not used for so long are removed when another one is made."""
    lookup_cache_max_memory_size_bytes: SizeBytes = Field(
        default=256 * 1024 * 1024, alias="lookup.cache-max-memory-size"
    )
    """A quarter of it, 64 MB at most, is what making a store holds twice. Asking stores takes none: they are mapped,
    and the system's page cache holds what is used."""
    compaction_min_file_num: Int = Field(default=5, alias="compaction.min.file-num", gt=0)
    """Small files of an append bucket at which they are put together."""
    compaction_small_file_ratio: Ratio = Field(default=0.7, alias="compaction.small-file-ratio")
    """Files below this share of the target size are small: compaction rewrites them instead of only moving them up."""
    compaction_force_rewrite_all_files: Flag = Field(default=False, alias="compaction.force-rewrite-all-files")
    """A full compaction rewrites large files too."""

    # --- performance: reading ----------------------------------------------------------------------------------------
    split_target_size_bytes: SizeBytes = Field(default=128 * 1024 * 1024, alias="source.split.target-size", gt=0)
    """Bytes that one reading task gets."""
    split_open_file_cost_bytes: SizeBytes = Field(default=4 * 1024 * 1024, alias="source.split.open-file-cost")
    """Bytes that every file counts for at least when splits are packed."""
    continuous_discovery_interval_ms: DurationMs = Field(default=10_000, alias="continuous.discovery-interval", gt=0)
    """How long a reader of changes waits before it looks for the next snapshot again."""
    streaming_read_delay_ms: DurationMs = Field(default=0, alias="streaming.read.snapshot.delay")
    """Age at which a snapshot is given to readers of changes that follow the table."""
    file_index_read_enabled: Flag = Field(default=True, alias="file-index.read.enabled")
    """Has no effect here: indexes of files (bloom filters, bitmaps) are neither read nor written; files are skipped by
    their statistics."""

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        has_primary_key: bool,
        schema_version: int = 3,
        strict: bool = True,
    ) -> CoreOptions:
        """Reads the options of a table.

        `strict` refuses unknown keys, for options that a user typed here; the options of a table of
        somebody else are read with `strict=False`. Raises `InvalidRequestError` that names the option.
        """
        if strict:
            _refuse_unknown_keys(options)
        effective = dict(options)
        for old, new in _FALLBACK_KEYS.items():
            if old in options:
                effective.setdefault(new, options[old])
        if schema_version < 3:
            effective.setdefault("file.format", "orc")
        try:
            return cls.model_validate({**effective, " has-primary-key": has_primary_key, " given": dict(options)})
        except ValidationError as error:
            raise _option_error(error, effective) from error

    @property
    def target_file_size_bytes(self) -> int:
        """Size at which a file is closed: 128 MB for keyed tables, 256 MB for append tables, unless it is set."""
        default = KEYED_TARGET_FILE_SIZE_BYTES if self.has_primary_key else APPEND_TARGET_FILE_SIZE_BYTES
        return self.target_file_size_given_bytes or default

    @property
    def compaction_file_size_bytes(self) -> int:
        """Files smaller than this are small: compaction rewrites them rather than leaving them as they are."""
        return int(self.target_file_size_bytes * self.compaction_small_file_ratio)

    @property
    def num_levels(self) -> int:
        """Levels, level 0 included; more if files stand above."""
        return self.num_levels_given or self.compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """Sorted runs at which writing waits for compaction; never below the compaction trigger."""
        given = self.stop_trigger_given
        return max(self.compaction_trigger + 3 if given is None else given, self.compaction_trigger)

    @property
    def needs_lookup(self) -> bool:
        """True when level 0 holds changes and the lowest level above holds the whole rows: MERGING.md §0, §2.7."""
        return self.has_primary_key and (
            self.merge_engine is MergeEngine.FIRST_ROW
            or self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.force_lookup
        )

    @property
    def commits_empty_level_0(self) -> bool:
        """True when a commit waits until what it wrote was compacted together with the rows it replaces."""
        return self.needs_lookup and (self.lookup_wait or self.commit_force_compact)

    @property
    def numbers_rows(self) -> bool:
        """True when of two rows of a bucket the one with the larger sequence number is the later one."""
        return self.has_primary_key or (self.bucket > 0 and self.bucket_append_ordered)

    @property
    def hides_level_0(self) -> bool:
        """True when rows show only once they were compacted: until then it is unknown which rows they replace."""
        if not self.has_primary_key:
            return False
        has_vectors = self.deletion_vectors_enabled and not self.deletion_vectors_merge_on_read
        return self.merge_engine is MergeEngine.FIRST_ROW or has_vectors

    @property
    def full_compaction_delta_commits(self) -> int | None:
        """Commits from one full compaction to the next; None if nobody asked for any."""
        if self.full_compaction_delta_commits_given is not None:
            return self.full_compaction_delta_commits_given
        return 1 if self.changelog_producer is ChangelogProducer.FULL_COMPACTION else None

    @property
    def lookup_compact_max_interval(self) -> int:
        """Rounds without a compaction after which a gentle table moves level 0 up; never below the trigger."""
        given = self.lookup_compact_max_interval_given
        return max(self.compaction_trigger, 2 * self.compaction_trigger if given is None else given)

    @property
    def sequence_descending(self) -> bool:
        """True when the smaller sequence value wins."""
        return self.sequence_field_sort_order is SortOrder.DESCENDING

    @property
    def logs_before_images(self) -> bool:
        """True when the log has the rows before updates too (`log.changelog-mode`, `log.ignore-delete`)."""
        if self.has_primary_key and self.log_ignore_delete:
            return False
        if self.log_changelog_mode is not LogChangelogMode.AUTO:
            return self.log_changelog_mode is LogChangelogMode.ALL
        producer = self.changelog_producer
        return (
            not self.has_primary_key
            or producer in (ChangelogProducer.LOOKUP, ChangelogProducer.INPUT)
            or (producer is ChangelogProducer.FULL_COMPACTION and self.publishes_changes)
        )

    @property
    def logs_changes(self) -> bool:
        """True when changes are logged before their commit."""
        return self.log_system is not LogSystem.NONE and self.log_consistency is LogConsistency.EVENTUAL

    @property
    def publishes_changes(self) -> bool:
        """True when committed changes are published to a log after their commit."""
        return self.log_system is not LogSystem.NONE and self.log_consistency is LogConsistency.TRANSACTIONAL

    @property
    def changelog_is_decoupled(self) -> bool:
        """True when changelogs are to outlive their snapshots."""
        return (
            (self.changelog_num_retained_min or 0) > self.snapshot_num_retained_min
            or (self.changelog_num_retained_max or 0) > self.snapshot_num_retained_max
            or (self.changelog_time_retained_ms or 0) > self.snapshot_time_retained_ms
        )

    def format_at_level(self, level: int) -> str:
        """File format of a level."""
        return dict(self.file_format_per_level).get(str(level), self.file_format).lower()

    def compression_at_level(self, level: int) -> str:
        """Compression codec of a level."""
        return dict(self.file_compression_per_level).get(str(level), self.file_compression).lower()

    def changelog_format_at_level(self, level: int) -> str:
        """File format of changelog files."""
        return (self.changelog_file_format_given or self.format_at_level(level)).lower()

    def changelog_compression_at_level(self, level: int) -> str:
        """Compression codec of changelog files."""
        return (self.changelog_file_compression_given or self.compression_at_level(level)).lower()

    def changelog_stats_mode_at_level(self, level: int) -> str:
        """Statistics mode of columns of changelog files that have none of their own."""
        return self.changelog_file_stats_mode_given or self.stats_mode_at_level(level)

    def stats_mode_at_level(self, level: int) -> str:
        """Statistics mode of columns that have none of their own."""
        return dict(self.metadata_stats_mode_per_level).get(str(level), self.metadata_stats_mode)

    def field_option(self, column: str, name: str) -> str | None:
        """Value of `fields.<column>.<name>`."""
        return self.given.get(f"fields.{column}.{name}")


def _refuse_unknown_keys(options: Mapping[str, str]) -> None:
    for key in options:
        if not is_known_key(key):
            near = nearest_key(key)
            hint = f"did you mean {near}?" if near else "options are spelled as in Apache Paimon, such as merge-engine"
            raise InvalidRequestError(f"unknown option {key!r}; {hint}", option=key)


def _option_error(error: ValidationError, options: Mapping[str, str]) -> InvalidRequestError:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    reason = first["msg"].removeprefix("Value error, ")
    return InvalidRequestError(f"option {key} = {options.get(key)!r} cannot be used: {reason}", option=key)
