"""The options of a table: what only changes performance."""

from __future__ import annotations

from freshet.storage.options.choices import LookupCompact, LookupStoreChoice
from freshet.storage.options.option import DURATION, FLAG, INT, LOCAL_FOLDER, MB, RATIO, SIZE, Option, Status, one_of
from freshet.storage.options.values import LONG_MAX


class WriteOptions:
    """Performance: writing."""

    write_buffer_size_bytes = Option("write-buffer-size", SIZE, 256 * MB, above=0)
    """Memory for rows of all buckets of a writer until they are sorted and written. Larger buffers make fewer, larger
    files; a Spark task needs this much and some 300 MB more."""
    write_buffer_spillable = Option("write-buffer-spillable", FLAG, True)
    """Lets a full buffer put sorted runs on local disk instead of writing a level-0 file each time."""
    write_buffer_for_append = Option("write-buffer-for-append", FLAG, False, status=Status.TOLERATED)
    """Has no effect here: rows of append tables are always buffered within `write-buffer-size`."""
    write_buffer_spill_max_disk_size_bytes = Option("write-buffer-spill.max-disk-size", SIZE, LONG_MAX)
    """Bytes of sorted runs on disk at which the buffer is flushed."""


class CompactionOptions:
    """Performance: compaction."""

    compaction_trigger = Option("num-sorted-run.compaction-trigger", INT, 5, above=0)
    """Sorted runs of a bucket at which compaction looks for work. Lower values make reads faster and writes amplify
    more."""
    stop_trigger_given = Option("num-sorted-run.stop-trigger", INT, None, above=0)
    """Sorted runs at which writing waits for compaction; three above the compaction trigger unless set, and never below
    it."""
    num_levels_given = Option("num-levels", INT, None, above=1)
    """Levels of a bucket, level 0 included; one more than the compaction trigger unless set."""
    compaction_max_size_amplification_percent = Option("compaction.max-size-amplification-percent", INT, 200)
    """Size of all runs but the last, in percent of the last, at which everything is compacted. Lower values save disk
    and rewrite more."""
    compaction_size_ratio = Option("compaction.size-ratio", INT, 1)
    """Percent by which the next run may be larger than those picked so far."""
    compaction_force_up_level_0 = Option("compaction.force-up-level-0", FLAG, False)
    """Every compaction takes all of level 0."""
    compaction_optimization_interval_ms = Option("compaction.optimization-interval", DURATION, None)
    """Compacts in full at least this often, for readers of the last level alone."""
    compaction_total_size_threshold_bytes = Option("compaction.total-size-threshold", SIZE, None)
    """Buckets below this size are compacted in full each time."""
    compaction_incremental_size_threshold_bytes = Option("compaction.incremental-size-threshold", SIZE, None)
    """Compacts in full when the runs above the last level exceed this size."""
    compaction_offpeak_start_hour = Option("compaction.offpeak.start.hour", INT, -1)
    """Hour of the day at which off-peak time begins; -1 for never."""
    compaction_offpeak_end_hour = Option("compaction.offpeak.end.hour", INT, -1)
    """Hour of the day at which off-peak time ends; -1 for never."""
    compaction_offpeak_ratio = Option("compaction.offpeak-ratio", INT, 0)
    """`compaction.size-ratio` in off-peak time."""
    lookup_compact = Option("lookup-compact", one_of(LookupCompact), LookupCompact.RADICAL)
    """`radical` moves level 0 up with every compaction of a table that needs lookup, `gentle` now and then."""
    lookup_compact_max_interval_given = Option("lookup-compact.max-interval", INT, None)
    """Rounds without a compaction after which a gentle table moves level 0 up; twice the compaction trigger unless set.
    """
    lookup_wait = Option("lookup-wait", FLAG, True, former=("changelog-producer.lookup-wait",))
    """Commits of a table that needs lookup wait until nothing is left at level 0."""
    precommit_compact = Option("precommit-compact", FLAG, False, former=("changelog.precommit-compact",))
    """The small changelog files of a commit are packed into one a partition, as the Flink sink of Paimon does. Flink
    and Freshet read them; other engines with Paimon do not.
    """
    precommit_compact_buffer_bytes = Option("changelog.precommit-compact.buffer-size", SIZE, 128 * MB)
    """Changelog files from this size on are not packed with others."""
    lookup_cache_dir = Option("lookup.cache-dir", LOCAL_FOLDER, None)
    """Folder on a local disk below which `freshet-lookup-<user id>` is made, for the stores in which rows are looked up
    by key; an option of Freshet. All processes of a user on one machine share them, and a restart finds them again. If
    not given: the folder for temporary files of each machine. What the table itself says counts only where the machine
    allows it: `FRESHET_LOCAL_DIRS`, [there](../explanation/security.md#folders-on-this-machine)."""
    lookup_cache_store = Option("lookup.cache.store", one_of(LookupStoreChoice), LookupStoreChoice.AUTO)
    """What the stores in which rows are looked up are; an option of Freshet. `mapped`: columns, uncompressed and
    mapped, the fastest. `rocksdb`: one RocksDB database for each data file, compressed (the extra `rocksdb`). `auto`:
    mapped as long as `lookup.cache-max-disk-size` and the free disk hold all stores, RocksDB for those that they do not
    hold."""
    lookup_cache_max_disk_size_bytes = Option("lookup.cache-max-disk-size", SIZE, LONG_MAX)
    """Bytes of all stores below the folder at which those used longest ago are removed; 0 for no stores at all. A store
    takes four to five times the bytes of its data file."""
    lookup_cache_file_retention_ms = Option("lookup.cache-file-retention", DURATION, 3_600_000)
    """Stores not used for so long are removed when another one is made."""
    lookup_cache_max_memory_size_bytes = Option("lookup.cache-max-memory-size", SIZE, 256 * MB)
    """A quarter of it, 64 MB at most, is what making a store holds twice. Asking stores takes none: they are mapped,
    and the system's page cache holds what is used."""
    compaction_min_file_num = Option("compaction.min.file-num", INT, 5, above=0)
    """Small files of an append bucket at which they are put together."""
    compaction_small_file_ratio = Option("compaction.small-file-ratio", RATIO, 0.7)
    """Files below this share of the target size are small: compaction rewrites them instead of only moving them up."""
    compaction_force_rewrite_all_files = Option("compaction.force-rewrite-all-files", FLAG, False)
    """A full compaction rewrites large files too."""


class ReadOptions:
    """Performance: reading."""

    split_target_size_bytes = Option("source.split.target-size", SIZE, 128 * MB, above=0)
    """Bytes that one reading task gets."""
    split_open_file_cost_bytes = Option("source.split.open-file-cost", SIZE, 4 * MB)
    """Bytes that every file counts for at least when splits are packed."""
    continuous_discovery_interval_ms = Option("continuous.discovery-interval", DURATION, 10_000, above=0)
    """How long a reader of changes waits before it looks for the next snapshot again."""
    streaming_read_delay_ms = Option("streaming.read.snapshot.delay", DURATION, 0)
    """Age at which a snapshot is given to readers of changes that follow the table."""
    file_index_read_enabled = Option("file-index.read.enabled", FLAG, True)
    """Scans with a filter ask the indexes of data files (bloom filters, bitmaps) which of them can be left out."""
    file_index_in_manifest_threshold_bytes = Option("file-index.in-manifest-threshold", SIZE, 500)
    """Indexes of a data file up to this size are in its manifest entry, larger ones in a file next to it."""
