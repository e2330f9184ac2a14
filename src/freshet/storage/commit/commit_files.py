"""The manifests and manifest lists that the rounds of one commit write, and how they are taken back.

| file                          | written                                     | taken back                |
|-------------------------------|---------------------------------------------|---------------------------|
| delta and changelog manifests | once, and again when a compaction shrinks   | the commit is not made    |
| merged manifests              | once, used as long as their inputs are there | they no longer fit, or so |
| manifest lists                | in every round                              | the round is lost         |
| index manifest                | in every round that changes index files     | the round is lost         |

A commit that does nothing but merge merges again where the inputs are gone.

After a claim without an answer nothing is taken back: a snapshot may name all of it. On an object store neither is it
after a lost claim, for a request that was lost on its way may arrive yet. Taking back is best effort; what
stays behind is named by no snapshot and removed by orphan cleaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.commit_record import COMMIT_RECORD, CommitRecord
from freshet.storage.commit.manifest_merge import MergedManifests, MergeRule, merge_manifests
from freshet.storage.commit.next_snapshot import SnapshotLists
from freshet.storage.exceptions import RetryableError, StorageError, UnknownOutcomeError
from freshet.storage.metadata.manifest_store import FileQueue, ManifestStore
from freshet.storage.model.manifest import IndexEntry, ManifestFileMeta


class CommitFiles:
    """Files of one commit, over all of its rounds."""

    def __init__(self, store: ManifestStore, rule: MergeRule) -> None:
        self._store = store
        self._rule = rule
        self._change: SnapshotChange | None = None
        self._delta: list[ManifestFileMeta] = []
        self._changelog: list[ManifestFileMeta] = []
        self._merged: MergedManifests | None = None
        self._lists: list[str] = []
        self._is_kept = False

    def write(
        self,
        change: SnapshotChange,
        manifests: Sequence[ManifestFileMeta],
        index: str | Sequence[IndexEntry] | None,
        record: CommitRecord | None = None,
    ) -> SnapshotLists:
        """Writes what a snapshot with this change on top of these manifests names.

        `index` is the name of the index manifest where that stays as it is, or the index files of a new one; `record`
        goes with the delta.
        """
        self._lists = []
        queue: FileQueue = []
        merged = self._merged
        try:
            self._write_manifests(change, queue)
            index = self._index(index, queue)
            base, base_size = self._write_list(self._base(change, manifests, queue), queue)
            changelog, changelog_size = self._write_list(self._changelog, queue) if self._changelog else (None, None)
            record = record and replace(record, changelog_list=changelog)
            delta, delta_size = self._write_list(self._delta, queue, record)
            lists = SnapshotLists(base, base_size, delta, delta_size, changelog, changelog_size, index)
            self._store.create(queue)
            self._change = change
            return lists
        except UnknownOutcomeError as error:
            self._take_back_failed(merged)
            raise RetryableError(f"a manifest could not be made durable, no snapshot names it: {error}") from error
        except StorageError:
            self._take_back_failed(merged)
            raise

    def keep(self) -> None:
        """From now on nothing is taken back."""
        self._is_kept = True
        self._lists = []

    def committed(self) -> None:
        """A snapshot names them. Manifests that were merged are those of earlier snapshots alone."""
        if self._merged is not None:
            kept = {meta.file_name for meta in self._merged.outputs}
            self._store.forget_entries([meta.file_name for meta in self._merged.inputs if meta.file_name not in kept])

    def take_back_round(self) -> None:
        """The round is lost: its lists are of no use to the next one."""
        self._delete(self._lists)
        self._lists = []

    def take_back(self) -> None:
        """The commit is not made."""
        self.take_back_round()
        self._delete_manifests([*self._delta, *self._changelog])
        if self._merged is not None:
            self._delete_manifests(self._merged.written)

    def _take_back_failed(self, merged: MergedManifests | None) -> None:
        """The files of this round were not all made; `merged` were made before it."""
        self.take_back_round()
        if merged is None and self._merged is not None:
            self._delete_manifests(self._merged.written)
            self._merged = None

    def _write_manifests(self, change: SnapshotChange, queue: FileQueue) -> None:
        if self._change == change:
            return
        self._change = None
        self._delete_manifests([*self._delta, *self._changelog])
        self._delta = self._store.write_manifests(change.entries, queue) if change.entries else []
        changes = change.changelog_entries
        self._changelog = self._store.write_manifests(changes, queue) if changes else []

    def _base(
        self, change: SnapshotChange, manifests: Sequence[ManifestFileMeta], queue: FileQueue
    ) -> Sequence[ManifestFileMeta]:
        applied = None if self._merged is None else self._merged.applied_to(manifests)
        if applied is not None:
            return applied
        is_first = self._merged is None
        if self._merged is not None:
            self._delete_manifests(self._merged.written)
        if is_first or change.merges_manifests:
            self._merged = merge_manifests(self._store, manifests, self._rule, queue)
            return self._merged.outputs
        self._merged = MergedManifests((), (), ())
        return manifests

    def _index(self, index: str | Sequence[IndexEntry] | None, queue: FileQueue) -> str | None:
        if index is None or isinstance(index, str):
            return index
        if not index:
            return None
        name = self._store.write_index_manifest(index, queue)
        self._lists.append(name)
        return name

    def _write_list(
        self, manifests: Sequence[ManifestFileMeta], queue: FileQueue, record: CommitRecord | None = None
    ) -> tuple[str, int]:
        properties = {} if record is None else {COMMIT_RECORD: record.text}
        name, size = self._store.write_manifest_list(manifests, queue, properties)
        self._lists.append(name)
        return name, size

    def _delete_manifests(self, metas: Iterable[ManifestFileMeta]) -> None:
        self._delete([meta.file_name for meta in metas])

    def _delete(self, names: Iterable[str]) -> None:
        if not self._is_kept:
            self._store.delete(list(names))
