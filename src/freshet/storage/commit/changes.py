"""Commit messages as manifest entries: what the APPEND and what the COMPACT snapshot of one commit hold.

| part of the message                     | entries     | snapshot |
|-----------------------------------------|-------------|----------|
| new_files / deleted_files               | ADD, DELETE | APPEND; OVERWRITE if it deletes |
| changelog_files                         | ADD         | changelog list of the same snapshot |
| compact_before / compact_after          | DELETE, ADD | COMPACT  |
| compact_changelog_files                 | ADD         | changelog list of the COMPACT snapshot |
| compact_lookups                         | none        | must be live for the COMPACT snapshot to fit |
| new_, deleted_index_files               | ADD, DELETE | APPEND; OVERWRITE with deletion vectors |
| compact_new_, compact_deleted_index_files | ADD, DELETE | COMPACT |
| assigned_upon                           | none        | must be the state of the indexes for the APPEND to fit |
| log, compact_log                        | none        | properties of the APPEND, of the COMPACT (`next_log`) |
| compactions                             | none        | properties of the snapshot that has them (`commit_facts`) |

Source: MERGING.md §1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from freshet._frozen import Frozen, field
from freshet.storage.exceptions import ConflictError, InvalidRequestError
from freshet.storage.model.commit_facts import CompactionFacts
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import (
    DELETION_VECTORS_INDEX,
    BucketId,
    EntryKind,
    IndexEntry,
    IndexFileMeta,
    ManifestEntry,
)
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.model.table_log import NO_BATCH, LogIdentity, LogIncrement, LogProgress, with_stable_batch


class LogChange(Frozen):
    """What a change has logged. `is_pending`: the COMPACT of the same commit brings more."""

    won: Mapping[BucketId, LogIncrement] = field(default_factory=dict)
    is_pending: bool = False

    def without(self, buckets: frozenset[BucketId]) -> LogChange:
        """The same less some buckets."""
        return LogChange({bucket: each for bucket, each in self.won.items() if bucket not in buckets}, self.is_pending)


_NOTHING_LOGGED = LogChange()


class SnapshotChange(Frozen):
    """What one snapshot adds to the table."""

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog_entries: tuple[ManifestEntry, ...] = ()
    lookups: Mapping[BucketId, tuple[str, ...]] = field(default_factory=dict)
    """Names of live files that the entries of a bucket were made from without deleting them."""
    index_entries: tuple[IndexEntry, ...] = ()
    log: LogChange = _NOTHING_LOGGED
    numbered_at: Mapping[BucketId, int] = field(default_factory=dict)
    """The snapshot above whose files new rows are numbered, of buckets where they are."""
    assigned_upon: Mapping[bytes, frozenset[str]] = field(default_factory=dict)
    """The state of the hash indexes that keys were assigned upon, of partitions with dynamic buckets."""
    keeps_numbers: bool = False
    """Files that are added keep the numbers of their rows, also where those follow from the snapshot."""
    merges_manifests: bool = False
    """The manifests of the table are merged anew, although no file comes or goes."""
    compactions: Mapping[BucketId, tuple[CompactionFacts, ...]] = field(default_factory=dict)
    """For people."""

    @property
    def is_empty(self) -> bool:
        """True when no file comes or goes, nothing was logged, and no manifest is to be merged."""
        has_files = self.entries or self.changelog_entries or self.index_entries
        return not (has_files or self.log.won or self.merges_manifests)

    @property
    def has_deletes(self) -> bool:
        """True when a live file is to go, which can conflict with other commits."""
        return any(entry.kind is EntryKind.DELETE for entry in self.entries)

    @property
    def row_count(self) -> int:
        """Rows of added files minus rows of deleted ones (deltaRecordCount)."""
        return sum(
            entry.file.row_count if entry.kind is EntryKind.ADD else -entry.file.row_count for entry in self.entries
        )

    @property
    def buckets(self) -> frozenset[BucketId]:
        """Buckets whose files or index files change."""
        files = {entry.bucket_id for entry in self.entries}
        return frozenset(files | {entry.bucket_id for entry in self.index_entries})

    def without(self, buckets: frozenset[BucketId]) -> SnapshotChange:
        """The same change less everything in the buckets given."""
        return SnapshotChange(
            self.kind,
            tuple(entry for entry in self.entries if entry.bucket_id not in buckets),
            tuple(entry for entry in self.changelog_entries if entry.bucket_id not in buckets),
            {bucket: names for bucket, names in self.lookups.items() if bucket not in buckets},
            tuple(entry for entry in self.index_entries if entry.bucket_id not in buckets),
            self.log.without(buckets),
            {bucket: at for bucket, at in self.numbered_at.items() if bucket not in buckets},
            self.assigned_upon,
            self.keeps_numbers,
            self.merges_manifests,
            {bucket: facts for bucket, facts in self.compactions.items() if bucket not in buckets},
        )


def append_change(messages: Sequence[CommitMessage]) -> SnapshotChange:
    """The new-files increments of all messages, as one change."""
    entries = _entries((m, m.deleted_files, m.new_files) for m in messages)
    index = _index_entries((m, m.deleted_index_files, m.new_index_files) for m in messages)
    deletes = any(entry.kind is EntryKind.DELETE for entry in entries)
    marks = any(entry.file.index_type == DELETION_VECTORS_INDEX for entry in index)
    return SnapshotChange(
        CommitKind.OVERWRITE if deletes or marks else CommitKind.APPEND,
        entries,
        _entries((m, (), m.changelog_files) for m in messages),
        index_entries=index,
        log=LogChange(
            {m.bucket_id: m.log for m in messages if m.log is not None},
            is_pending=any(m.compact_log is not None for m in messages),
        ),
        # What overwrites takes the place of other rows, whatever their numbers.
        numbered_at={}
        if deletes or marks
        else {m.bucket_id: m.numbered_at for m in messages if m.new_files and m.numbered_at is not None},
        assigned_upon=_assigned_upon(messages),
        compactions=_compactions(message for message in messages if not message.has_compaction),
    )


def compact_change(messages: Sequence[CommitMessage]) -> SnapshotChange:
    """The compaction increments of all messages, as one change."""
    return SnapshotChange(
        CommitKind.COMPACT,
        _entries((m, m.compact_before, m.compact_after) for m in messages),
        _entries((m, (), m.compact_changelog_files) for m in messages),
        {m.bucket_id: m.compact_lookups for m in messages if m.compact_lookups},
        _index_entries((m, m.compact_deleted_index_files, m.compact_new_index_files) for m in messages),
        LogChange({m.bucket_id: m.compact_log for m in messages if m.compact_log is not None}),
        numbered_at={m.bucket_id: m.numbered_at for m in messages if not m.new_files and m.numbered_at is not None},
        compactions=_compactions(message for message in messages if message.has_compaction),
    )


def _compactions(messages: Iterable[CommitMessage]) -> dict[BucketId, tuple[CompactionFacts, ...]]:
    found: dict[BucketId, tuple[CompactionFacts, ...]] = {}
    for message in messages:
        if message.compactions:
            found[message.bucket_id] = (*found.get(message.bucket_id, ()), *message.compactions)
    return found


def _assigned_upon(messages: Sequence[CommitMessage]) -> dict[bytes, frozenset[str]]:
    """By partition; several assigners of one may have seen different states, of which only one can be that of now."""
    states: dict[bytes, frozenset[str]] = {}
    for message in messages:
        if message.assigned_upon is not None:
            states[message.partition] = states.get(message.partition, frozenset()) | {message.assigned_upon}
    return states


def _entries(
    parts: Iterable[tuple[CommitMessage, Iterable[DataFileMeta], Iterable[DataFileMeta]]],
) -> tuple[ManifestEntry, ...]:
    """Entries of the files that messages delete and add."""
    return tuple(
        ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file)
        for message, deleted, added in parts
        for kind, files in ((EntryKind.DELETE, deleted), (EntryKind.ADD, added))
        for file in files
    )


def _index_entries(
    parts: Iterable[tuple[CommitMessage, Iterable[IndexFileMeta], Iterable[IndexFileMeta]]],
) -> tuple[IndexEntry, ...]:
    """Entries of the index files that messages delete and add."""
    return tuple(
        IndexEntry(kind, message.partition, message.bucket, file)
        for message, deleted, added in parts
        for kind, files in ((EntryKind.DELETE, deleted), (EntryKind.ADD, added))
        for file in files
    )


def next_log(
    before: LogProgress | None,
    change: LogChange,
    kind: CommitKind,
    *,
    log: LogIdentity | None,
    identifier: int,
    last_identifier: int | None,
) -> LogProgress | None:
    """What the next snapshot says of the log, how far it has come: a decision over where it was, the change and who
    commits. `log` is given by the user who logs, `last_identifier` is that user's last commit before this one, with or
    without its compaction.

    | commit | what its snapshot says of the log |
    |---|---|
    | of anybody but the user who logs | what the one before said |
    | APPEND, its COMPACT will bring nothing logged | its batch is stable, by what its rows logged |
    | APPEND, its COMPACT will bring what was logged | the last batch before it is stable: what was not named is void |
    | COMPACT that brings something logged | its batch is stable, by what the compactions logged that were not aborted |
    | other COMPACT | what the one before said |

    The rows of changelog files are logged, so the snapshot that names those files names what was logged. If a
    compaction is aborted on conflict or lost in a crash, what it logged is void, and the next compaction emits these
    changes again.

    A log has one user: offsets of two would not be in the order of the batches. Another topic begins a new log.

    Source: MERGING.md §4 for which snapshot names changelog files.
    """
    if log is None:
        if change.won:
            raise InvalidRequestError("the commit has logged changes, but its committer was opened without the log")
        return before
    base = _of_this_log(before, log)
    if change.is_pending:
        last = NO_BATCH if last_identifier is None else last_identifier
        return base if last <= base.batch else with_stable_batch(base, last, {})
    if kind is CommitKind.COMPACT and not change.won:
        return base
    return with_stable_batch(base, identifier, change.won)


def check_log(before: LogProgress | None, log: LogIdentity, *, table: str) -> None:
    """Raises `InvalidRequestError` where a log cannot go on with this user and topic."""
    if before is None or before.identity.topic != log.topic:
        return
    known = before.identity
    if known.topic_id != log.topic_id:
        raise InvalidRequestError(
            f"table {table}: topic {log.topic} of its log was deleted and created again (its id was {known.topic_id}, "
            f"it is {log.topic_id}); what readers had not read of it is gone. Set kafka.topic to a new name: a new "
            "log begins there, and readers must start again too",
            table=table,
            option="kafka.topic",
        )
    if known.commit_user != log.commit_user:
        raise InvalidRequestError(
            f"table {table}: {known.commit_user!r} writes its log in topic {log.topic}, and a log has one commit "
            f"user; {log.commit_user!r} cannot. Commit as {known.commit_user!r}, or stop that writer and set "
            "kafka.topic to a new name",
            table=table,
            option="log.system",
        )


def _of_this_log(before: LogProgress | None, log: LogIdentity) -> LogProgress:
    if before is None:
        return LogProgress(log, 0, NO_BATCH, log.start, {})
    known = before.identity
    if known.topic != log.topic:
        return LogProgress(log, before.generation + 1, NO_BATCH, log.start, {})
    if (known.topic_id, known.commit_user) != (log.topic_id, log.commit_user):
        raise ConflictError(
            f"the log in topic {log.topic} is written by {known.commit_user!r} since, or the topic is another one; "
            "nothing was committed: stop one of the writers"
        )
    return before
