"""The manifests and manifest lists that the rounds of one commit write, and how they are taken back; the record of the
commit in its delta list, the hint that it leaves.

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

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec

from freshet._frozen import Frozen, field
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.manifest_merge import ManifestMergeRule, MergedManifests, merge_manifests
from freshet.storage.commit.next_snapshot import CommitRequest, SnapshotLists
from freshet.storage.exceptions import RetryableError, StorageError, UnknownOutcomeError
from freshet.storage.metadata.manifest_store import FileQueue, ManifestStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitDigest
from freshet.storage.model.manifest import IndexEntry, ManifestFileMeta
from freshet.storage.model.snapshot import Snapshot

COMMIT_RECORD: Final = "freshet.commit"
"""Key in the header of a delta manifest list; part of what we write, do not change."""

_VERSION: Final = 1

_INTERVAL_MS: Final = 1000


class CommitFiles:
    """Files of one commit, over all of its rounds."""

    def __init__(self, store: ManifestStore, rule: ManifestMergeRule) -> None:
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


class CommitRecord(Frozen):
    """A commit, but for its files: whose commit a delta manifest list belongs to, as a property of its file, and what a
    lost commit is made again from; `snapshot_id` is the one that it was to be.

        freshet.commit = {"version": 1, "snapshot_id": 8, "user": "orders-cdc", "identifier": 17, …}

    On a store another program may copy its snapshot over one that was created (`catalogs.coordination`). What the
    snapshot named is still there then, and no file of the table says whose it is: the user, the identifier and the rest
    of what makes the commit the same one when it is made again. So it is written with the list, before the claim, at no
    request of its own. It proves nothing about the claim: whether the table has the commit, its last commits say.

    Compactions have no record: what they compacted is still there when they are lost. Other programs pass over it.
    """

    snapshot_id: int
    user: str
    identifier: int
    query_id: str | None = None
    digest: CommitDigest | None = None
    carried: str | None = None
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    changelog_list: str | None = None
    index_entries: tuple[IndexEntry, ...] = ()
    is_numbered: bool = False
    """Its rows are numbered above those of the snapshot before it."""
    is_logged: bool = False
    """Its rows are in the log of the table."""
    branch: str | None = None
    """The branch it was to be a snapshot of, None for the table itself: their manifest lists lie in one folder."""
    version: int = _VERSION

    @property
    def identity(self) -> CommitIdentity:
        """Who commits."""
        return CommitIdentity(self.user, self.identifier, self.query_id, self.digest, carried=self.carried)

    @property
    def text(self) -> str:
        """The inverse of `commit_record`."""
        return _ENCODER.encode(self).decode()


def record_of(
    request: CommitRequest, change: SnapshotChange, latest: Snapshot | None, branch: str | None
) -> CommitRecord | None:
    """The record of a commit upon the latest snapshot; None for a compaction."""
    identity = request.identity
    if not identity.is_traced:
        return None
    return CommitRecord(
        snapshot_id=1 if latest is None else latest.id + 1,
        user=identity.commit_user,
        identifier=identity.identifier,
        query_id=identity.query_id,
        digest=identity.digest,
        carried=identity.carried,
        watermark=request.watermark,
        properties=dict(request.properties),
        index_entries=change.index_entries,
        is_numbered=bool(change.numbered_at),
        is_logged=request.log is not None or bool(change.log.won),
        branch=branch,
    )


def commit_record(text: str, name: str) -> CommitRecord:
    """The record of the list of this name; `UnknownOutcomeError` for one that a later release wrote."""
    try:
        if _VERSIONED.decode(text).version == _VERSION:
            return _RECORD.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnknownOutcomeError(f"{name}: the property {COMMIT_RECORD} is unreadable ({error})") from error
    raise UnknownOutcomeError(
        f"{name}: the property {COMMIT_RECORD} is of a newer release of Freshet; upgrade before repairing"
    )


class _Versioned(msgspec.Struct):
    version: int


_ENCODER: Final = msgspec.json.Encoder()
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_RECORD: Final = msgspec.json.Decoder(CommitRecord)


class LatestHint:
    """The LATEST hint that commits leave, as one committer writes it, so that readers that come anew need not list the
    snapshots.

    | store | written |
    |---|---|
    | a disk | with each commit |
    | an object store | after the return, by the first commit of each second, and at the end of a series |

    A store takes one write a second to one object (Google Cloud Storage), and from all writers of a table together.
    Which commit is the first of a second is in the snapshots themselves, whose times never go back: so it is one of all
    writers, and none of them asks another. Readers heal a hint that is missing or too low, but one that is too high
    says that a snapshot was lost: so on a disk it is taken back where the table was dropped, and maybe made again,
    before it came.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._left_out: Snapshot | None = None
        """The last snapshot of ours, where the hint does not name it."""
        self._is_due = False

    def follow(self, before: Snapshot | None, snapshot: Snapshot, *, is_followed: bool) -> None:
        """After a commit on top of `before`; where another follows at once, the hint is left to that."""
        self._is_due |= before is None or before.time_ms // _INTERVAL_MS < snapshot.time_ms // _INTERVAL_MS
        self._left_out = snapshot
        if not is_followed and (self._is_due or not self._store.env.is_remote):
            self.write(snapshot)

    def write(self, snapshot: Snapshot) -> None:
        """Best effort; at a store in the background."""
        self._left_out, self._is_due = None, False
        store = self._store

        def write() -> None:
            file_io, paths = store.env.file_io, store.paths
            with suppress(StorageError):
                store.snapshots.write_latest_hint(snapshot.id)
                if not store.env.is_remote and not file_io.exists(paths.snapshot(snapshot.id)):
                    store.removal.delete(paths.latest_hint)

        if store.env.is_remote:
            store.env.run_later(f"hint of {store.location}", write)
        else:
            write()

    def finish(self) -> None:
        """Writes what was left out."""
        if self._left_out is not None:
            self.write(self._left_out)
