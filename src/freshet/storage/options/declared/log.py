"""The options of a table: the log of changes."""

from __future__ import annotations

from freshet.storage.options.choices import LogChangelogMode, LogConsistency, LogSystem, OnLakeOnly, OnTruncated
from freshet.storage.options.option import FLAG, WORD, Option, one_of


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
    log_on_truncated = Option(
        "log.on-truncated", one_of(OnTruncated), OnTruncated.FAIL, former_values=(("hop", OnTruncated.FALL_BACK),)
    )
    """What a reader of the log does when retention has taken what it needs: `fail`, or `fall-back` (reads the changes
    of those snapshots from the files; its former name `hop` works until 1.0)."""
