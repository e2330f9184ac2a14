"""The options of a table: where rows lie and how files are written."""

from __future__ import annotations

from typing import Final

from freshet.storage.options.choices import ALL_CODECS, DYNAMIC_BUCKET, FILE_FORMATS
from freshet.storage.options.option import (
    DURATION,
    FILE_PREFIX,
    FLAG,
    FOLDER,
    INT,
    LEVELS,
    LOCAL_FOLDER,
    LONG,
    MB,
    RAW_NAMES,
    SIZE,
    TEXT,
    WORD,
    Access,
    Option,
    Refusal,
    Status,
    has_level_not_of,
    is_none_of,
)
from freshet.storage.options.values import LONG_MAX
from freshet.storage.paths import DEFAULT_PARTITION_NAME

_NO_CODEC: Final = ("Paimon does not read it, or it cannot be written here", f"use one of {', '.join(ALL_CODECS)}")
_NO_FORMAT: Final = (f"data files of {', '.join(FILE_FORMATS)} are read", f"use one of {', '.join(FILE_FORMATS)}")


class BucketOptions:
    """Buckets."""

    bucket = Option("bucket", INT, DYNAMIC_BUCKET)
    """Buckets of each table partition; every row of a key lies in one bucket, which one task writes. More buckets write
    faster and make smaller files. With -1, the default, a keyed table has dynamic buckets: a partition gets another one
    when those it has are full, and an index says where each key is; one program at a time may add keys. An append
    table has no buckets then. With -2 rows of streams wait, unseen by batch readers, until a compaction puts them into
    buckets, of which it chooses a number for each partition. Cannot change once the table has data."""
    dynamic_bucket_target_row_num = Option("dynamic-bucket.target-row-num", LONG, 2_000_000, above=0)
    """Keys of a dynamic bucket before a partition gets another one."""
    dynamic_bucket_initial_buckets = Option("dynamic-bucket.initial-buckets", INT, None, above=0, immutable=True)
    """Tasks of a Spark job that share the new keys of a partition: it begins with so many dynamic buckets."""
    dynamic_bucket_max_buckets = Option("dynamic-bucket.max-buckets", INT, -1, above=-2)
    """Most dynamic buckets of a partition, each of which has its own count; beyond that they grow over the target. -1
    is 32,767, which is all that the format has. Without effect where rows move between partitions, as in Paimon."""
    postpone_default_bucket_num = Option("postpone.default-bucket-num", INT, 1, above=0)
    """With `bucket=-2`: buckets that a compaction gives a partition which has none, unless a target says."""
    postpone_target_row_num_per_bucket = Option("postpone.target-row-num-per-bucket", LONG, None, above=0)
    """With `bucket=-2`: a partition without buckets gets one for each so many rows that wait or are written."""
    postpone_target_size_per_bucket_bytes = Option("postpone.target-size-per-bucket", SIZE, 1024 * MB, above=0)
    """The same by bytes of the rows in memory, where `postpone.target-row-num-per-bucket` is not set."""
    postpone_batch_write_fixed_bucket = Option("postpone.batch-write-fixed-bucket", FLAG, True)
    """With `bucket=-2`: commits of `Table.writer` go to buckets at once; otherwise they wait for a compaction, as those
    of Spark batches do in any case."""
    postpone_batch_write_fixed_bucket_max_parallelism = Option(
        "postpone.batch-write-fixed-bucket.max-parallelism", INT, 2048, above=0
    )
    """Most buckets that such a commit gives a partition."""
    cross_partition_upsert_index_ttl_ms = Option("cross-partition-upsert.index-ttl", DURATION, None)
    """For tables whose rows move between partitions (`bucket=-1`, a primary key without all partition columns): a key
    that was not written for so long counts as new, and may then be in two partitions. The index stays smaller."""
    cross_partition_upsert_index_dir = Option("cross-partition-upsert.index-dir", LOCAL_FOLDER, None)
    """Folder on a local disk below which `freshet-place-index-<user id>` is made, for the index of their keys; an
    option of Freshet. All writers of a user on one machine share it, and a restart finds it again. If not given: the
    folder for temporary files of each machine. What the table itself says counts only where the machine allows it:
    `FRESHET_LOCAL_DIRS`, [there](../explanation/security.md#folders-on-this-machine)."""
    cross_partition_upsert_lose_row_kind = Option("cross-partition-upsert.lose-row-kind", FLAG, False)
    """`partial-update` and `aggregation`: a row that is written to the partition where its key is, which is not its
    own, becomes a +I whatever it was, a delete too, as Apache Paimon 2.0.0 has it; an option of Freshet. If not set,
    it keeps its kind."""
    bucket_key = Option("bucket-key", RAW_NAMES, (), immutable=True)
    """Columns whose hash decides the bucket; for keyed tables a part of the primary key, which is the default. Names
    are not trimmed: that is how the format reads them."""
    bucket_function_type = Option("bucket-function.type", WORD, "default", immutable=True)
    """Hash of the bucket key: `default`, `mod` (one INT or BIGINT column) or `hive`. Another function would look for
    rows in other buckets, so it never changes."""
    bucket_append_ordered = Option("bucket-append-ordered", FLAG, True)
    """Sequence numbers of a bucketed append table continue from the bucket's maximum, so that rows keep the order in
    which they came."""


class FileOptions:
    """Files."""

    file_format = Option(
        "file.format",
        WORD,
        "parquet",
        refusals=(Refusal(Access.READ, is_none_of(*FILE_FORMATS), *_NO_FORMAT),),
    )
    """Format of data files: `parquet`, `orc` or `avro`."""
    file_format_per_level = Option(
        "file.format.per.level",
        LEVELS,
        (),
        refusals=(Refusal(Access.READ, has_level_not_of(*FILE_FORMATS), *_NO_FORMAT),),
    )
    """Format by level, as `0:avro,5:parquet`: level 0 written fast, the rows that stay in columns."""
    file_compression = Option(
        "file.compression", WORD, "zstd", refusals=(Refusal(Access.WRITE, is_none_of(*ALL_CODECS), *_NO_CODEC),)
    )
    """Codec of data files: `zstd` or `snappy`; also `gzip`, `lz4` and `none` (Parquet), `zlib`, `lz4` and `none` (ORC),
    `deflate`, `bzip2` and `null` (Avro)."""
    file_compression_per_level = Option(
        "file.compression.per.level",
        LEVELS,
        (),
        refusals=(Refusal(Access.WRITE, has_level_not_of(*ALL_CODECS), *_NO_CODEC),),
    )
    """Codec by level, as `0:lz4,5:zstd`. A fast codec at level 0 makes commits quicker; files of level 0 are rewritten
    soon."""
    file_compression_zstd_level = Option("file.compression.zstd-level", INT, 1)
    """Level of zstd; higher levels make smaller files and slower commits. ORC files
    have one level only."""
    file_block_size_bytes = Option("file.block-size", SIZE, None, above=0)
    """Bytes of the rows of a row group (a stripe of ORC), as they are in memory; 16 MB unless set. Smaller ones let
    filters skip more and compress less; a writer holds one of each open file, and a reader a few."""
    data_file_prefix = Option("data-file.prefix", FILE_PREFIX, "data-")
    """How names of data files begin."""
    data_file_path_directory = Option("data-file.path-directory", FOLDER, None, immutable=True)
    """Folder below the table's in which partitions and buckets lie. Never changes once the table has a snapshot."""
    changelog_file_prefix = Option("changelog-file.prefix", FILE_PREFIX, "changelog-")
    """How names of changelog files begin."""
    changelog_file_format_given = Option(
        "changelog-file.format",
        TEXT,
        None,
        refusals=(
            Refusal(
                Access.WRITE,
                is_none_of(*FILE_FORMATS),
                f"changelog files of {', '.join(FILE_FORMATS)} are written",
                f"use one of {', '.join(FILE_FORMATS)}",
            ),
        ),
    )
    """Format of changelog files, by default that of data files."""
    changelog_file_compression_given = Option(
        "changelog-file.compression", TEXT, None, refusals=(Refusal(Access.WRITE, is_none_of(*ALL_CODECS), *_NO_CODEC),)
    )
    """Codec of changelog files, by default that of data files at the same level."""
    changelog_file_stats_mode_given = Option("changelog-file.stats-mode", TEXT, None)
    """Statistics kept of changelog files, by default those of data files at the same level. `none` makes their
    manifests small; changelogs are read whole anyway."""
    file_suffix_include_compression = Option("file.suffix.include.compression", FLAG, False)
    """Names the codec in the file name (`.zst.parquet`)."""
    thin_mode = Option("data-file.thin-mode", FLAG, False)
    """Leaves the `_KEY_` columns out of data files, which hold the same values as columns anyway. Smaller files; tools
    that read files by themselves may expect the columns."""
    target_file_size_given_bytes = Option("target-file-size", SIZE, None)
    """Size at which a data file is closed; 128 MB for keyed tables, 256 MB for append tables. Larger files are cheaper
    to plan and dearer to rewrite."""
    target_file_row_num = Option("target-file-row-num", LONG, LONG_MAX, above=0)
    """Rows at which a data file is closed when it is written; compaction goes by size only."""
    partition_default_name = Option("partition.default-name", TEXT, DEFAULT_PARTITION_NAME, immutable=True)
    """Folder of rows whose partition value is NULL or blank. Never changes once the table has a snapshot."""
    partition_legacy_name = Option("partition.legacy-name", FLAG, True, immutable=True)
    """Writes dates in partition folders as days since 1970 and timestamps in ISO form, as Paimon does by default. Never
    changes once the table has a snapshot."""


class StatisticsOptions:
    """Statistics."""

    metadata_stats_mode = Option("metadata.stats-mode", TEXT, "truncate(16)")
    """Statistics kept per column: `none`, `counts`, `truncate(n)` or `full`. Filters skip files by them; more
    statistics make larger manifests."""
    metadata_stats_mode_per_level = Option("metadata.stats-mode.per.level", LEVELS, ())
    """Statistics mode by level, as `0:none`."""
    stats_dense_store = Option("metadata.stats-dense-store", FLAG, True)
    """Leaves columns without statistics out of manifest entries."""
    stats_keep_first_n_columns = Option("metadata.stats-keep-first-n-columns", INT, -1)
    """Keeps statistics of the first n columns only; -1 keeps them of all. Worth setting for very wide tables."""


class ManifestOptions:
    """Manifests."""

    manifest_format = Option(
        "manifest.format",
        WORD,
        "avro",
        status=Status.REFUSED,
        refusals=(
            Refusal(Access.READ, is_none_of("avro"), "only Avro manifests are read", "use manifest.format=avro"),
        ),
    )
    """Format of manifests; only `avro` is supported."""
    manifest_compression = Option(
        "manifest.compression",
        WORD,
        "zstd",
        refusals=(
            Refusal(
                Access.WRITE,
                is_none_of("zstd", "snappy", "deflate", "none", "null"),
                "the codec is not supported for manifests",
                "use zstd, snappy, deflate or none",
            ),
        ),
    )
    """Codec of manifests: `zstd`, `snappy`, `deflate` or `none`."""
    manifest_target_file_size_bytes = Option("manifest.target-file-size", SIZE, 8 * MB)
    """Size to which small manifests are merged."""
    manifest_full_compaction_threshold_bytes = Option("manifest.full-compaction-threshold-size", SIZE, 16 * MB)
    """Size of manifests with deletions, or too small, at which all of them are rewritten. Larger values rewrite more
    rarely and make more to read."""
    manifest_merge_min_count = Option("manifest.merge-min-count", INT, 30)
    """Small manifests at the end of the list that are worth merging. Lower values make commits slower and plans faster.
    """
    manifest_delete_file_drop_stats = Option("manifest.delete-file-drop-stats", FLAG, False)
    """Leaves the statistics of columns out of the entries of deleted files, for smaller manifests. Releases of Paimon
    from before the option existed may miss them."""
