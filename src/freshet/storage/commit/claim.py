"""The claim of a snapshot id as a commit makes it, and the proof that the id was still free to be claimed.

The table's catalog decides how an id is claimed (`catalogs.claims`); a claim is lost while another writer's
`snapshot-N` is there. But a slow committer (a driver that was replaced, a machine that was suspended for an hour) may
come so late that N has been used *and has expired*: its create succeeds, below the history of the table, and no reader
would ever see what it committed. So a claim counts only when N is part of the history. Expiry deletes in ascending
order and never the latest; therefore:

| N - 1 | above N | N + 1 | then |
|---|---|---|---|
| there | any | any | part of it: had N expired, N - 1 would have gone before |
| gone | nothing | - | part of it: N is the latest, N - 1 expired since |
| gone | something | gone | not part of it: had N + 1 expired, N would have gone before |
| gone | something | there | part of it if N + 1 was built on N: its last commits or its base know the commit |

A claim that is not part of the history is taken back and counts as lost. So is one of a table whose schema is gone: it
was dropped or renamed meanwhile, and its folder holds nothing but the claim.
"""

from __future__ import annotations

from freshet.storage.catalogs.claims import LOST, WON, ClaimAnswer, ClaimOutcome
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.last_commits import COMMITS_PROPERTY, parse_last_commits
from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.commit.table_view import VIEW_MS
from freshet.storage.exceptions import NotFoundError, StorageError, UnknownOutcomeError
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import Snapshot


class SnapshotClaim:
    """Claims ids of one table."""

    def __init__(self, store: TableStore, index: ManifestIndex) -> None:
        self._store = store
        self._index = index

    def take(self, snapshot: Snapshot, identity: CommitIdentity, *, seen_ms: int) -> ClaimAnswer:
        """WON when the snapshot is visible under its id, LOST when the id is or was another's. An error means that
        nothing was created. `seen_ms` is when the snapshot that it builds on was seen to be the latest."""
        snapshots, claims = self._store.snapshots, self._store.claims
        if snapshot.id > 1 and not self._was_just_seen(seen_ms) and not snapshots.exists(snapshot.id - 1):
            return LOST  # the snapshot it builds on has expired, so there are newer ones
        answer = claims.claim_snapshot(snapshot)
        if answer.outcome is ClaimOutcome.UNKNOWN:
            again = claims.ask_again(snapshot)
            answer = answer if again.outcome is ClaimOutcome.UNKNOWN else again
        if answer.outcome is not ClaimOutcome.WON:
            return answer
        snapshots.remember(snapshot)
        try:
            return WON if self.holds(snapshot, identity) else LOST
        except StorageError as error:
            return ClaimAnswer(ClaimOutcome.UNKNOWN, error)

    def _was_just_seen(self, seen_ms: int) -> bool:
        """Whether a look before the claim is spared: one request of a store, for what the look after it shows too. It
        keeps a claim that comes too late from being seen until it is taken back."""
        env = self._store.env
        return env.is_remote and env.now_ms() - seen_ms < VIEW_MS

    def holds(self, snapshot: Snapshot, identity: CommitIdentity) -> bool:
        """True when a snapshot of ours, which lies on disk, is part of the history; otherwise it is removed."""
        if self._is_part_of_history(snapshot, identity):
            return True
        snapshots = self._store.snapshots
        try:
            if snapshots.fresh(snapshot.id).uuid == snapshot.uuid:
                self._store.env.file_io.delete(self._store.paths.snapshot(snapshot.id))
        except NotFoundError:
            pass
        snapshots.forget(snapshot.id)
        return False

    def _is_part_of_history(self, snapshot: Snapshot, identity: CommitIdentity) -> bool:
        snapshots = self._store.snapshots
        if snapshot.id > 1 and snapshots.exists(snapshot.id - 1):
            return True
        try:
            self._store.check_is_there()
        except NotFoundError:
            return False
        ids = snapshots.list_ids()
        if not ids or ids[-1] <= snapshot.id or snapshot.id not in ids:
            return True  # the latest, or expired by a process that saw it as part of the history
        try:
            successor = snapshots.fresh(snapshot.id + 1)
        except NotFoundError:
            # Not yet gone when the ids were listed, both may have expired since: N goes first.
            return not snapshots.exists(snapshot.id)
        return self._is_built_on(successor, snapshot, identity)

    def _is_built_on(self, successor: Snapshot, snapshot: Snapshot, identity: CommitIdentity) -> bool:
        text = (successor.properties or {}).get(COMMITS_PROPERTY)
        if identity.is_traced and text is not None:
            trace = parse_last_commits(text, successor.id).users.get(identity.commit_user)
            return trace is not None and trace.identifier >= identity.identifier
        added = [entry for entry in delta_entries(self._store.manifests, snapshot) if entry.kind is EntryKind.ADD]
        if not added:
            raise UnknownOutcomeError(
                f"table {self._store.location}: snapshot {snapshot.id} was created, but snapshots around it expired at "
                "that moment and it holds no file that would show whether it came too late; commit the same identifier "
                "again: if it took effect, it is recognised"
            )
        return self._index.is_in_base(successor, added[0])
