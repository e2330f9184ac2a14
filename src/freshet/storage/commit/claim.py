"""The claim of a snapshot id as a commit makes it, and the proof that the id was still free to be claimed.

The table's catalog decides how an id is claimed (`catalogs.claims`); a claim is lost while another writer's
`snapshot-N` is there. But a slow committer (a driver that was replaced, a machine that was suspended for an hour) may
come so late that N has been used *and has expired*: its create succeeds, below the history of the table, and no reader
would ever see what it committed. So a claim counts only when N is part of the history. Expiry deletes in ascending
order and never the latest; therefore:

| N - 1 | latest | then |
|---|---|---|
| the snapshot that N was built on | any | part of it: had N expired, N - 1 would have gone before |
| gone, or another | N or lower | part of it: N is the latest, N - 1 expired since |
| gone, or another | above N | part of it if what lies above N knows the commit: by its last commits, or in its base |

That N - 1 is there is not enough: it may be the claim of another writer who came too late as well and has not yet
taken it back. Nor does it say anything that N is gone again: an expiry may have found it below the history.

A claim that is not part of the history is taken back and counts as lost. So is one of a table whose schema is gone: it
was dropped or renamed meanwhile, and its folder holds nothing but the claim.
"""

from __future__ import annotations

from itertools import takewhile

from freshet.storage.catalogs.claims import LOST, WON, ClaimAnswer, ClaimOutcome
from freshet.storage.commit.identity import CommitIdentity
from freshet.storage.commit.last_commits import last_commits_of
from freshet.storage.commit.manifest_index import ManifestIndex
from freshet.storage.commit.table_view import VIEW_MS
from freshet.storage.exceptions import NotFoundError, StorageError, UnknownOutcomeError
from freshet.storage.metadata.live_files import delta_entries, live_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import Snapshot


class SnapshotClaim:
    """Claims ids of one table."""

    def __init__(self, store: TableStore, index: ManifestIndex) -> None:
        self._store = store
        self._index = index

    def take(self, snapshot: Snapshot, identity: CommitIdentity, *, base: Snapshot | None, seen_ms: int) -> ClaimAnswer:
        """WON when the snapshot is visible under its id, LOST when the id is or was another's. An error means that
        nothing was created. `seen_ms` is when the snapshot that it builds on, `base`, was seen to be the latest."""
        snapshots, claims = self._store.snapshots, self._store.claims
        if base is not None and not self._was_just_seen(seen_ms) and snapshots.find(base.id) != base:
            return LOST  # the snapshot it builds on has expired, so there are newer ones
        answer = claims.claim_snapshot(snapshot)
        if answer.outcome is ClaimOutcome.UNKNOWN:
            again = claims.ask_again(snapshot)
            answer = answer if again.outcome is ClaimOutcome.UNKNOWN else again
        if answer.outcome is not ClaimOutcome.WON:
            return answer
        try:
            is_held = self.holds(snapshot, identity, base=base)
        except StorageError as error:
            return ClaimAnswer(ClaimOutcome.UNKNOWN, error)
        if is_held:
            snapshots.remember(snapshot)
        return WON if is_held else LOST

    def _was_just_seen(self, seen_ms: int) -> bool:
        """Whether a look before the claim is spared: one request of a store, for what the look after it shows too. It
        keeps a claim that comes too late from being seen until it is taken back."""
        env = self._store.env
        return env.is_remote and env.now_ms() - seen_ms < VIEW_MS

    def holds(self, snapshot: Snapshot, identity: CommitIdentity, *, base: Snapshot | None) -> bool:
        """True when a snapshot of ours, which was created on top of `base`, is part of the history; otherwise it is
        removed."""
        if self._is_part_of_history(snapshot, identity, base):
            return True
        snapshots = self._store.snapshots
        try:
            if snapshots.fresh(snapshot.id).uuid == snapshot.uuid:
                self._store.env.file_io.delete(self._store.paths.snapshot(snapshot.id))
        except NotFoundError:
            pass
        snapshots.forget(snapshot.id)
        return False

    def _is_part_of_history(self, snapshot: Snapshot, identity: CommitIdentity, base: Snapshot | None) -> bool:
        snapshots = self._store.snapshots
        if base is not None and snapshots.find(base.id) == base:
            return True
        try:
            self._store.check_is_there()
        except NotFoundError:
            return False
        latest = snapshots.listed_latest()
        if latest is None or latest.id <= snapshot.id:
            return True
        # Not below: what lies there may be this very claim.
        above = takewhile(lambda later: later.id > snapshot.id, snapshots.newest_first(latest))
        known = last_commits_of(above)
        if identity.is_traced and known.has_carrier:
            trace = known.users.get(identity.commit_user)
            if trace is not None and trace.identifier > identity.identifier:
                raise self._undecided(snapshot, f"{identity.commit_user!r} has made a later commit since")
            return trace is not None and (trace.identifier, trace.time_ms) == (identity.identifier, snapshot.time_ms)
        return self._has_files_in(latest, snapshot)

    def _has_files_in(self, latest: Snapshot, snapshot: Snapshot) -> bool:
        """Whether the history above the snapshot has its files."""
        manifests = self._store.manifests
        delta = delta_entries(manifests, snapshot)
        deleted = {entry.identity for entry in delta if entry.kind is EntryKind.DELETE}
        moved = {entry.file.file_name for entry in delta if entry.kind is EntryKind.DELETE}
        added = [entry for entry in delta if entry.kind is EntryKind.ADD and entry.file.file_name not in moved]
        if added and self._index.is_in_base(latest, added[0]):
            return True
        if deleted and any(entry.identity in deleted for entry in live_entries(manifests, latest)):
            return False
        try:
            successor = self._store.snapshots.fresh(snapshot.id + 1)
        except NotFoundError as error:
            raise self._undecided(snapshot, "no file shows whether it came too late") from error
        if not added or self._index.is_in_base(successor, added[0]):
            raise self._undecided(snapshot, f"no file shows whether snapshot {successor.id} was built on it")
        return False

    def _undecided(self, snapshot: Snapshot, why: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"table {self._store.location}: snapshot {snapshot.id} was created, but snapshots around it expired at "
            f"that moment, and {why}; commit the same identifier again: if it took effect, it is recognised"
        )
