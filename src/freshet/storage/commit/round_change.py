"""What a commit changes, computed from the snapshot that each of its rounds builds on.

| change | entries of a round |
|---|---|
| `GivenChange` | those of messages, whatever the snapshot: an append, a compaction, a delete |
| `Overwriting` | the same, as an OVERWRITE whatever comes and goes |
| `Replacement` | all that lives in some partitions as deleted, and the files of messages: an overwrite, a truncate |
| `edits.rollback` | what lies between the snapshot and an earlier one: a rollback |

A claim that is lost is made again upon what others have committed; a change that depends on what is live must follow
that, or rows committed in between would stay beside those that were to replace them.

Source: FORMAT.md §3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from freshet._frozen import Frozen
from freshet.storage.commit.changes import SnapshotChange, append_change
from freshet.storage.commit.table_view import TableView
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.manifest import EntryKind, IndexEntry, ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot

IsReplaced = Callable[[bytes], bool]
"""Whether a partition, by its serialized row, is replaced."""

RoundCheck = Callable[[TableView], None]
"""Raises where a change that was planned before makes no sense upon what a round sees."""


class RoundChange(Protocol):
    """What a commit changes."""

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """The change upon the latest snapshot of the view; raises where it makes no sense there."""
        ...


class GivenChange(Frozen):
    """The same change whatever it is built on; whether its files fit there is checked by the commit, whether its rows
    do by `check`."""

    change: SnapshotChange
    check: RoundCheck | None = None

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """The change."""
        del store
        if self.check is not None:
            self.check(view)
        return self.change


class Overwriting(Frozen):
    """The files of messages take the place of others, which may be none: an OVERWRITE."""

    messages: Sequence[CommitMessage]
    check: RoundCheck | None = None

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """The change."""
        del store
        if self.check is not None:
            self.check(view)
        return replace(append_change(self.messages), kind=CommitKind.OVERWRITE, numbered_at={})


class Replacement(Frozen):
    """The partitions chosen hold the rows of the messages afterwards, and nothing else.

    What others commit to them before the claim goes too. Index files go with the files of their buckets. No changelog
    belongs to it: what the writers of the messages have made of one is left out.
    """

    is_replaced: IsReplaced
    messages: Sequence[CommitMessage] = ()

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """All that is live in the partitions as deleted, the files of the messages as added."""
        added = append_change(self.messages)
        gone, gone_index = live_in(store, view.latest, self.is_replaced)
        return SnapshotChange(
            CommitKind.OVERWRITE,
            (*gone, *added.entries),
            index_entries=(*gone_index, *added.index_entries),
        )


def live_in(
    store: TableStore, snapshot: Snapshot | None, is_chosen: IsReplaced
) -> tuple[tuple[ManifestEntry, ...], tuple[IndexEntry, ...]]:
    """What lives in some partitions at a snapshot, as entries that delete it: data files, and index files."""
    if snapshot is None:
        return (), ()
    files = tuple(
        replace(entry, kind=EntryKind.DELETE) for entry in live_entries(store.manifests, snapshot, partition=is_chosen)
    )
    index = tuple(
        replace(entry, kind=EntryKind.DELETE)
        for entry in store.manifests.read_index_manifest(snapshot.index_manifest)
        if is_chosen(entry.partition)
    )
    return files, index
