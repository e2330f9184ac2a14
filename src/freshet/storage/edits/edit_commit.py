"""The commits of edits: under one user and the next number, whoever else edits the table at the same time; what each
round of them looks at; and what an edit did to a table, or would do (`EditResult`).

An edit is one call of a person, who sees whether it came to its end; nothing replays it. Its user is the same for all
edits, since snapshots carry the last commit of every user for ever (`commit.last_commits`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
    UnknownOutcomeError,
)
from freshet.storage.maintenance.upkeep import unseen_buckets, upkeep_later
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import ids_text
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.shown import Facts, Shown
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


WAITS: Final = "readers see it with the next compaction"


@dataclass(frozen=True, slots=True, repr=False)
class EditResult(Shown):
    """`snapshots` in order of their ids, none where nothing changed or the edit was only tried (`is_dry_run`).

    The counts of files are those of data files; of rows they are exact, and None where the edit did not look at rows.
    """

    snapshots: tuple[Snapshot, ...] = ()
    files_added: int = 0
    files_removed: int = 0
    partitions: int = 0
    """Partitions whose files changed; a table without partitions is one."""
    rows_deleted: int | None = None
    rows_updated: int | None = None
    rows_inserted: int | None = None
    is_dry_run: bool = False
    snapshots_removed: tuple[int, ...] = ()
    """Ids of snapshots that are gone, or would be."""
    hidden_buckets: tuple[BucketId, ...] = ()
    """Buckets whose new rows readers do not see before the next compaction."""

    def __repr__(self) -> str:
        counts = (
            ("snapshot", "removed", len(self.snapshots_removed)),
            ("row", "deleted", self.rows_deleted),
            ("row", "updated", self.rows_updated),
            ("row", "inserted", self.rows_inserted),
            ("file", "removed", self.files_removed),
            ("file", "added", self.files_added),
        )
        what = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'} {verb}" for noun, verb, count in counts if count)
        where = "not committed" if self.is_dry_run else ", ".join(f"snapshot {each.id}" for each in self.snapshots)
        seen = f"; {WAITS}" if self.hidden_buckets else ""
        return f"EditResult({what or 'nothing changed'}{f'; {where}' if where else ''}{seen})"

    def _shown(self) -> Facts:
        yield from (("not committed", self.is_dry_run), ("snapshots", ids_text(each.id for each in self.snapshots)))
        yield from (("rows deleted", self.rows_deleted), ("rows updated", self.rows_updated))
        yield from (("rows inserted", self.rows_inserted), ("data files removed", self.files_removed))
        yield from (("data files added", self.files_added), ("partitions", self.partitions))
        yield ("snapshots removed", ids_text(self.snapshots_removed))
        yield ("buckets whose new rows wait for a compaction", len(self.hidden_buckets))


def result_of(store: TableStore, committed: CommitResult, counted: EditResult | None = None) -> EditResult:
    """The result of a commit, with the files of its first snapshot: what follows compacts them. `counted` has counts of
    rows.

    Raises `UnknownOutcomeError` where what was committed could not be compacted, so that readers do not see it.
    """
    if committed.hidden_cause is not None and committed.hidden_buckets:
        raise _unseen(store, committed) from committed.hidden_cause
    entries = delta_entries(store.manifests, committed.snapshots[0]) if committed.snapshots else []
    return replace(
        _of_files(entries, counted or EditResult()),
        snapshots=committed.snapshots,
        hidden_buckets=tuple(unseen_buckets(store, committed)),
    )


def _unseen(store: TableStore, committed: CommitResult) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"table {store.name}: snapshot {committed.snapshots[0].id} has this edit, but readers do not see it before its "
        f"rows are compacted, and that has failed ({committed.hidden_cause}). Do not make the edit again: mend the "
        "cause, then compact the table (Table.compact, freshet compact)",
        table=store.name,
    )


def preview_of(entries: Iterable[ManifestEntry]) -> EditResult:
    """What a commit of these entries would do."""
    return _of_files(entries, EditResult(is_dry_run=True))


def _of_files(entries: Iterable[ManifestEntry], result: EditResult) -> EditResult:
    """The result with the files that come and go."""
    changed = [(entry.kind, entry.partition) for entry in entries]
    kinds = Counter(kind for kind, _ in changed)
    return replace(
        result,
        files_added=kinds[EntryKind.ADD],
        files_removed=kinds[EntryKind.DELETE],
        partitions=len({partition for _, partition in changed}),
    )
