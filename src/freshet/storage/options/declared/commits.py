"""The options of a table: snapshots, commits and changes of the schema."""

from __future__ import annotations

from freshet.storage.options.option import DURATION, FLAG, INT, LONG, TEXT, Option
from freshet.storage.options.refusal import Access, Refusal, is_none_of
from freshet.storage.options.values import INT_MAX


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
