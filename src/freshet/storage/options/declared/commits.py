"""The options of a table: snapshots, commits and changes of the schema; tags, expiry of partitions; the log of
changes."""

from __future__ import annotations

from typing import Final

from freshet.storage.options.choices import (
    LogChangelogMode,
    LogConsistency,
    LogSystem,
    OnLakeOnly,
    OnTruncated,
    TagCreation,
    TagPeriodChoice,
    TagPeriodFormat,
)
from freshet.storage.options.option import (
    DURATION,
    FLAG,
    INT,
    LONG,
    TEXT,
    WORD,
    Access,
    Option,
    Refusal,
    is_none_of,
    one_of,
)
from freshet.storage.options.values import INT_MAX

STRATEGIES: Final = ("values-time", "update-time")


class SnapshotOptions:
    """Snapshots."""

    snapshot_num_retained_min = Option("snapshot.num-retained.min", INT, 10, above=0)
    """Snapshots that expiry always keeps."""
    snapshot_num_retained_max = Option("snapshot.num-retained.max", INT, INT_MAX, above=0)
    """Snapshots that expiry keeps at most, however young. Readers of older ones fail."""
    snapshot_time_retained_ms = Option("snapshot.time-retained", DURATION, 3_600_000)
    """Age at which a snapshot may expire. Must be longer than the longest read and the longest pause of a streaming
    reader without a consumer id."""
    snapshot_expire_limit = Option("snapshot.expire.limit", INT, 50, above=0)
    """Snapshots that one expiry removes at most, so that a commit is never kept waiting for long."""
    history_retained_ms = Option("freshet.history-retained", DURATION, 30 * 24 * 3_600_000)
    """How long `$commits` and `$compactions` show commits after their snapshots have expired; `0 s`: not at all.
    Apache Paimon ignores it."""
    freshness_target_ms = Option("freshet.freshness-target", DURATION, None, above=0)
    """How old the newest rows may become: `freshet status` ends with exit code 3 where they are older. Apache Paimon
    ignores it."""
    snapshot_clean_empty_directories = Option(
        "snapshot.clean-empty-directories", FLAG, False, former=("snapshot.expire.clean-empty-directories",)
    )
    """Expiry removes folders that have become empty. Costs a listing per folder."""
    snapshot_ignore_empty_commit = Option("snapshot.ignore-empty-commit", FLAG, None)
    """`true`: `Table.writer` makes no snapshot of a commit without files, and a later commit of its number counts. The
    batches of a stream are committed in any case: only a snapshot proves that one was there."""
    changelog_num_retained_min = Option("changelog.num-retained.min", INT, None, above=0)
    """Snapshots whose changelog expiry always keeps, the last ones; as for snapshots unless set. More than those are
    kept as changelogs that outlive their snapshots, for readers of changes."""
    changelog_num_retained_max = Option("changelog.num-retained.max", INT, None, above=0)
    """Snapshots whose changelog is kept at most, however young; as for snapshots unless set."""
    changelog_time_retained_ms = Option("changelog.time-retained", DURATION, None)
    """Age at which the changelog of a snapshot may expire; as for snapshots unless set."""
    branch = Option(
        "branch",
        TEXT,
        "main",
        refusals=(
            Refusal(
                Access.READ,
                is_none_of("main", ""),
                "it is noted in the schema of another line of the table",
                "give it when the table is opened, or name the branch: database.table$branch_<name>",
            ),
        ),
    )
    """Opens a branch of the table, as the name `database.table$branch_<name>` does. It is given when a table is opened,
    not kept with it."""
    consumer_changelog_only = Option("consumer.changelog-only", FLAG, False)
    """Consumers hold back the expiry of changelogs, not of snapshots."""
    consumer_expiration_time_ms = Option("consumer.expiration-time", DURATION, None)
    """Age at which the file of a consumer that reads no more is removed, so that it holds back nothing any longer."""
    consumer_ignore_progress = Option("consumer.ignore-progress", FLAG, False)
    """A consumer starts as the scan mode says, not where it stopped; its progress is written nevertheless."""


class CommitOptions:
    """Commit."""

    commit_user_prefix = Option("commit.user-prefix", TEXT, None)
    """How made-up commit users begin, those of compactions without a name of their own: `<prefix>_<uuid>` instead of
    `freshet-compact-<uuid>`."""
    commit_max_retries = Option("commit.max-retries", INT, 10, above=-1)
    """How often a commit that lost the race for a snapshot id tries again, at least; and no less long than these
    retries would take if their waits doubled each time (10 s by default). On an object store a commit may besides lose
    two claims to each other user that commits meanwhile."""
    commit_min_retry_wait_ms = Option("commit.min-retry-wait", DURATION, 10)
    """Wait before the first retry after an error, doubled each time. After a lost race it is of the order of a commit's
    time."""
    commit_max_retry_wait_ms = Option("commit.max-retry-wait", DURATION, 10_000)
    """Longest wait between two retries."""
    commit_timeout_ms = Option("commit.timeout", DURATION, None)
    """Time after which a commit gives up."""
    commit_force_compact = Option("commit.force-compact", FLAG, False)
    """Each commit does all of the compaction that is due before it ends: no larger compactions run in the background,
    and `lookup-wait=false` does not count."""
    dynamic_partition_overwrite = Option("dynamic-partition-overwrite", FLAG, True)
    """An overwrite without a partition replaces the partitions that occur in its rows; `false`: the whole table."""
    commit_force_create_snapshot = Option("commit.force-create-snapshot", FLAG, False)
    """Makes a snapshot even of a commit without files. Freshet does so anyway; it counts before
    `snapshot.ignore-empty-commit`."""
    commit_strict_mode_last_safe_snapshot = Option("commit.strict-mode.last-safe-snapshot", LONG, None)
    """Snapshot after which a commit gives up if another user compacted or overwrote one of its partitions; an
    overwrite also gives up if another user appended to one."""
    write_only = Option("write-only", FLAG, False, former=("write.compaction-skip",))
    """Writers neither compact nor expire. Another job must (`freshet compact`), else reads get slower with every
    commit."""


class SchemaChangeOptions:
    """Schema changes."""

    null_to_not_null_disabled = Option("alter-column-null-to-not-null.disabled", FLAG, True)
    """Refuses to make a nullable column NOT NULL, which old rows may break."""
    explicit_type_casting_disabled = Option("disable-explicit-type-casting", FLAG, False)
    """Allows only changes of type that cannot lose a value."""
    add_column_before_partition = Option("add-column-before-partition", FLAG, False)
    """Puts a new column before the first partition column where its place is not said, instead of last."""


class TagOptions:
    """Tags."""

    tag_automatic_creation = Option("tag.automatic-creation", one_of(TagCreation), TagCreation.NONE)
    """Whether whoever commits makes a tag of each period that has ended: by the time of the commits (`process-time`) or
    by their watermarks (`watermark`). The tag of a period holds the first snapshot after it. `batch`: `Table.writer`
    leaves a tag of the day when it is closed. Commits to a write-only table make no tags of periods."""
    tag_creation_period = Option("tag.creation-period", one_of(TagPeriodChoice), TagPeriodChoice.DAILY)
    """The period of an automatic tag."""
    tag_creation_period_duration_ms = Option("tag.creation-period-duration", DURATION, None, above=0)
    """A period of any whole number of minutes, instead of `tag.creation-period`; names are then `yyyyMMddHHmm`."""
    tag_creation_delay_ms = Option("tag.creation-delay", DURATION, 0)
    """How long after the end of a period its tag is made, for rows that come late. Shorter than the period."""
    tag_period_formatter = Option("tag.period-formatter", one_of(TagPeriodFormat), TagPeriodFormat.WITH_DASHES)
    """How the names of daily and hourly tags are written: `2026-03-01 09`, `20260301 09` or `2026030109`."""
    tag_automatic_completion = Option("tag.automatic-completion", FLAG, False)
    """Periods without a commit get tags too: each later snapshot becomes the tag of one of them, the oldest first."""
    tag_batch_customized_name = Option("tag.batch.customized-name", TEXT, None)
    """Name of the tag that `batch` leaves, instead of `batch-write-yyyy-MM-dd`."""
    tag_num_retained_max = Option("tag.num-retained-max", INT, None, above=0)
    """Automatic tags that are kept at most: when one is made, the oldest ones go. Tags with other names stay."""
    tag_default_time_retained_ms = Option("tag.default-time-retained", DURATION, None, above=0)
    """How long tags stay, automatic ones and those that are made without a time of their own."""
    tag_time_expire_enabled = Option("tag.time-expire-enabled", FLAG, True)
    """Whoever commits removes tags whose time is over."""
    sink_process_time_zone = Option("sink.process-time-zone", TEXT, None)
    """Time zone of automatic tags by the time of commits, such as `Europe/Berlin` or `GMT-08:00`; the machine's unless
    set."""
    sink_watermark_time_zone = Option("sink.watermark-time-zone", TEXT, "UTC")
    """Time zone of automatic tags by watermarks."""


class PartitionExpiryOptions:
    """Partitions that expire, or are done."""

    partition_expiration_time_ms = Option("partition.expiration-time", DURATION, None)
    """Age at which a partition expires: all of its rows are deleted, by whoever commits (not with `write-only`) or by
    `Table.expire_partitions`. Streams follow it as an overwrite."""
    partition_expiration_check_interval_ms = Option("partition.expiration-check-interval", DURATION, 3_600_000)
    """Time after which a program that commits looks again for partitions to expire. The first time is at random
    within it, so that programs which end sooner expire none; 0 looks after each commit."""
    partition_expiration_strategy = Option(
        "partition.expiration-strategy",
        WORD,
        "values-time",
        refusals=(
            Refusal(
                Access.CREATE, is_none_of(*STRATEGIES), "partitions do not expire", "use values-time or update-time"
            ),
        ),
    )
    """How old a partition is: `values-time` by the time that its values say, `update-time` by its newest file."""
    partition_timestamp_pattern = Option("partition.timestamp-pattern", TEXT, None)
    """The time of a partition as a text, made of its values: `$year-$month-$day`. The first value alone if not set,
    and then a DATE or a TIMESTAMP is a time by itself."""
    partition_timestamp_formatter = Option("partition.timestamp-formatter", TEXT, None)
    """Format of that text, such as `yyyyMMdd`; `yyyy-MM-dd` or `yyyy-MM-dd HH:mm:ss` if not set. Partitions whose text
    is another, or NULL, are kept."""
    partition_expiration_max_num = Option("partition.expiration-max-num", INT, 100, above=0)
    """Partitions that expire at once at most, in the order of their values."""
    partition_expiration_batch_size = Option("partition.expiration-batch-size", INT, None, above=0)
    """Partitions that one commit deletes; all of them if not set."""
    end_input_check_partition_expire = Option("end-input.check-partition-expire", FLAG, False)
    """A writer that ends looks for partitions to expire, whatever the interval."""
    partition_mark_done_action = Option("partition.mark-done-action", TEXT, "success-file")
    """What `Table.mark_partition_done` does: `success-file` writes a file `_SUCCESS` into the folder of the partition.
    What else Apache Paimon has (`done-partition`, `mark-event`, `http-report`, `custom`) is refused when it is called.
    Nobody else marks partitions here."""


class LogOptions:
    """Log."""

    log_system = Option("log.system", one_of(LogSystem), LogSystem.NONE)
    """`kafka` appends every change to a topic before it is committed, so that readers need not wait. Where the brokers
    are and what the topic is called: `kafka.bootstrap.servers`, `kafka.topic` (one that is empty or the
    log's own already: any other is refused); other `kafka.*` go to the client. A
    secret is not kept in a table: `kafka.sasl.password=env:KAFKA_PASSWORD` names a variable of every process."""
    log_changelog_mode = Option("log.changelog-mode", one_of(LogChangelogMode), LogChangelogMode.AUTO)
    """`all` logs -U rows too, `upsert` does not; `auto` is `all` for append tables and where `changelog-producer` is
    lookup or input (or full-compaction, with `log.consistency=transactional`), else `upsert`. Speculative readers need
    `all`."""
    log_consistency = Option("log.consistency", one_of(LogConsistency), LogConsistency.EVENTUAL)
    """`eventual` logs before the commit, and the snapshots say which records count: for readers of Freshet.
    `transactional` publishes after the commit, a Kafka transaction for each snapshot, for consumers with
    `isolation.level=read_committed` that know nothing of Freshet; it needs `log.format` json or debezium-json."""
    log_format = Option("log.format", WORD, "arrow")
    """Format of the values in the log: `arrow`, batches of rows; `json` and `debezium-json`, a record for each change,
    for consumers that know nothing of Freshet."""
    log_key_format = Option("log.key.format", WORD, None)
    """Format of message keys, which are the primary key: `json`; records of `log.format=arrow` have none."""
    log_ignore_delete = Option("log.ignore-delete", FLAG, False)
    """Leaves -U and -D out of the log and logs +U as +I. Such a log does not follow deletes, and has no speculative
    readers."""
    log_on_lake_only = Option("log.on-lake-only", one_of(OnLakeOnly), OnLakeOnly.APPLY)
    """What a reader of the log does about a commit that was not logged and changed rows (a compaction job that
    emitted changes, an overwrite, another program): `apply` reads its changes from the files, `fail`, `skip`."""
    log_on_truncated = Option("log.on-truncated", one_of(OnTruncated), OnTruncated.FAIL)
    """What a reader of the log does when retention has taken what it needs: `fail`, or `fall-back` (reads the changes
    of those snapshots from the files)."""
