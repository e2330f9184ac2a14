"""Commit messages as manifest entries: what the APPEND and what the COMPACT snapshot of one commit hold.

| part of the message                     | entries     | snapshot |
|-----------------------------------------|-------------|----------|
| new_files / deleted_files               | ADD, DELETE | APPEND; OVERWRITE if it deletes |
| changelog_files                         | ADD         | changelog list of the same snapshot |
| compact_before / compact_after          | DELETE, ADD | COMPACT  |
| compact_changelog_files                 | ADD         | changelog list of the COMPACT snapshot |
| compact_lookups                         | none        | must be live for the COMPACT snapshot to fit |

Source: LSM semantics §1.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind

Bucket = tuple[bytes, int]
"""(partition, bucket)."""


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """What one snapshot adds to the table."""

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog_entries: tuple[ManifestEntry, ...] = ()
    lookups: Mapping[Bucket, tuple[str, ...]] = field(default_factory=dict)
    """Names of live files that the entries of a bucket were made from without deleting them."""

    @property
    def is_empty(self) -> bool:
        """True when no file comes or goes."""
        return not (self.entries or self.changelog_entries)

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
    def buckets(self) -> frozenset[Bucket]:
        """Buckets touched by `entries`."""
        return frozenset((entry.partition, entry.bucket) for entry in self.entries)

    def without(self, buckets: frozenset[Bucket]) -> SnapshotChange:
        """The same change less everything in the buckets given."""
        return SnapshotChange(
            self.kind,
            tuple(entry for entry in self.entries if (entry.partition, entry.bucket) not in buckets),
            tuple(entry for entry in self.changelog_entries if (entry.partition, entry.bucket) not in buckets),
            {bucket: names for bucket, names in self.lookups.items() if bucket not in buckets},
        )


def append_change(messages: Sequence[CommitMessage]) -> SnapshotChange:
    """The new-files increments of all messages, as one change."""
    entries: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    for message in messages:
        entries += _entries(message, EntryKind.DELETE, message.deleted_files)
        entries += _entries(message, EntryKind.ADD, message.new_files)
        changelog += _entries(message, EntryKind.ADD, message.changelog_files)
    deletes = any(entry.kind is EntryKind.DELETE for entry in entries)
    return SnapshotChange(CommitKind.OVERWRITE if deletes else CommitKind.APPEND, tuple(entries), tuple(changelog))


def compact_change(messages: Sequence[CommitMessage]) -> SnapshotChange:
    """The compaction increments of all messages, as one change."""
    entries: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    for message in messages:
        entries += _entries(message, EntryKind.DELETE, message.compact_before)
        entries += _entries(message, EntryKind.ADD, message.compact_after)
        changelog += _entries(message, EntryKind.ADD, message.compact_changelog_files)
    lookups = {(m.partition, m.bucket): m.compact_lookups for m in messages if m.compact_lookups}
    return SnapshotChange(CommitKind.COMPACT, tuple(entries), tuple(changelog), lookups)


def _entries(message: CommitMessage, kind: EntryKind, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
    return [ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file) for file in files]
