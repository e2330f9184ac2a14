"""What an edit did to a table, or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.exceptions import UnknownOutcomeError
from freshet.storage.maintenance.upkeep import unseen_buckets
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.display import ids_text
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import Snapshot

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
