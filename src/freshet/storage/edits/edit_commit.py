"""The commits of edits: under one user and the next number, whoever else edits the table at the same time; and what
each round of them looks at.

An edit is one call of a person, who sees whether it came to its end; nothing replays it. Its user is the same for all
edits, since snapshots carry the last commit of every user for ever (`commit.last_commits`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from freshet.storage.cleaning.partition_expiry import expire_partitions_at_end
from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer, Renumber
from freshet.storage.commit.table_view import TableView
from freshet.storage.exceptions import (
    ConflictError,
    MisfitError,
    MissingFileError,
    NotFoundError,
    OutdatedAssignmentError,
)
from freshet.storage.maintenance.upkeep import upkeep_later
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.manifest import ManifestEntry
from freshet.storage.model.snapshot import CommitKind, Snapshot

EDIT_USER: Final = "freshet-edit"
"""The commit user of edits; part of what we write, do not change."""


class OutdatedPlanError(ConflictError):
    """The rows that an edit was computed from are not those of the table any more."""


class KeysChangedError(OutdatedPlanError):
    """Others have written keys of an edit; `keys` are all that were written since, `snapshot` has them."""

    def __init__(self, message: str, keys: pa.Table, snapshot: Snapshot) -> None:
        super().__init__(message)
        self.keys = keys
        self.snapshot = snapshot


def commit_edit(
    store: TableStore,
    commit: Callable[[Committer, int], CommitResult],
    discard: Callable[[], None] = lambda: None,
    *,
    renumber: Renumber | None = None,
) -> CommitResult:
    """What `commit` makes of a committer and a number, made again with the next number where another edit of the table
    has taken that one meanwhile.

    `discard` removes the files of the edit where a round has found that it does not fit any more, so that no snapshot
    can name them; at a store what was sent may arrive yet. After other errors they are left to orphan cleaning: a part
    of the commit may be there. `renumber` is that of the committer.
    """
    committer = Committer(
        store, EDIT_USER, renumber=renumber, after_commit=upkeep_later, at_end=expire_partitions_at_end
    )
    while True:
        last = committer.last_commit()
        try:
            result = commit(committer, 0 if last is None else last.identifier + 1)
        except ConflictError as conflict:
            if not store.env.is_remote and _is_settled(conflict):
                discard()
            raise
        if not result.already_committed:
            committer.finish()
            committer.check_last()
            store.env.finish_later()
            return result


def _is_settled(conflict: ConflictError) -> bool:
    """Whether no snapshot names the files of the edit; not where an earlier try has taken effect after all."""
    if isinstance(conflict, OutdatedAssignmentError):
        return conflict.is_certain
    return isinstance(conflict, OutdatedPlanError | MisfitError)


class LaterCommits(ABC):
    """A `RoundCheck` of what others have committed since a snapshot, but for compactions, which change no row."""

    def __init__(self, store: TableStore, upon: Snapshot | None) -> None:
        self._store = store
        self._checked_id = 0 if upon is None else upon.id

    def __call__(self, view: TableView) -> None:
        """Looks at what has come since the last round."""
        latest, store = view.latest, self._store
        if latest is None or latest.id <= self._checked_id:
            return
        try:
            later = [store.snapshots.snapshot(each) for each in range(self._checked_id + 1, latest.id + 1)]
            changing = [
                each
                for each in later
                if each.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE) and not each.is_rescale
            ]
            self._look_at(latest, [(each, delta_entries(store.manifests, each)) for each in changing])
        except (NotFoundError, MissingFileError) as error:
            raise OutdatedPlanError(f"table {store.name}: snapshots have expired since this edit was begun") from error
        self._checked_id = latest.id

    @abstractmethod
    def _look_at(self, latest: Snapshot, later: Sequence[tuple[Snapshot, list[ManifestEntry]]]) -> None:
        """Raises `OutdatedPlanError` where one of these commits, of which `latest` may be the last, changes the outcome
        of the edit."""
