"""Empties a table for good: rows, history, and what keeps history.

Branches, tags and consumers go, all rows in an OVERWRITE snapshot, all snapshots before that one, changelogs that have
outlived theirs, and what is left as orphans. Each step is one that people call by itself, and is whole after a crash;
the next call does the rest. The table, its columns and options stay, and so does what commit users have committed:
their batches are not committed again.

Orphans younger than an age stay, since the files of a commit under way look like them. Those of branches that were
dropped are among them.

Source: Apache Paimon 2.0.0, purge_files, which takes orphans of any age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.edits.edit_result import EditResult
from freshet.storage.edits.overwrite import replaced
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.tags.removal import remove_tag

_WITHOUT_CHANGELOGS: Final = {
    "changelog.num-retained.min": "1",
    "changelog.num-retained.max": "1",
    "changelog.time-retained": "1 ms",
    "snapshot.time-retained": "1 h",  # not what expires: the age is given
}


@dataclass(frozen=True, slots=True, repr=False)
class Purge(Shown):
    """What went, or would (`is_dry_run`)."""

    branches: tuple[str, ...]
    tags: tuple[str, ...]
    consumers: tuple[str, ...]
    edit: EditResult
    """How the rows went; without a snapshot where there were none."""
    snapshot_ids: tuple[int, ...]
    orphan_count: int
    is_dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("only tried", self.is_dry_run), ("branches", ", ".join(self.branches)))
        yield from (("tags", ", ".join(self.tags)), ("consumers", ", ".join(self.consumers)))
        yield from (("snapshots", len(self.snapshot_ids)), ("orphan files", self.orphan_count))


def purge(store: TableStore, *, orphans_older_than_ms: int, dry_run: bool = False) -> Purge:
    """Takes everything away, or says what would go."""
    if store.paths.branch_name is not None:
        raise InvalidRequestError(
            f"branch {store.name} is not purged: its files are those of the table. Drop the branch, or purge the table",
            table=store.name,
        )
    branches = Branches(store)
    names, tags = sorted(store.snapshots.branches()), store.snapshots.tags.tags()
    consumers = sorted(store.consumers.positions())
    for name in names:
        branches.check_droppable(name)
    if dry_run:
        edit = replaced(store, lambda _: True, dry_run=True)
        ids = tuple(store.snapshots.list_ids())
        return Purge(tuple(names), tuple(tags), tuple(consumers), edit, ids, 0, is_dry_run=True)
    for name in names:
        branches.drop(name)
    for tag in tags.values():
        remove_tag(store, tag)
    for consumer in consumers:
        store.consumers.delete(consumer)
    edit = replaced(store, lambda _: True, dry_run=False)
    store.env.finish_later()
    bare = store.with_options(_WITHOUT_CHANGELOGS)
    expired = expire_snapshots(bare, retain_max=1, retain_min=1, time_retained_ms=0)
    orphans = remove_orphan_files(store, older_than_ms=orphans_older_than_ms)
    return Purge(tuple(names), tuple(tags), tuple(consumers), edit, expired.snapshot_ids, len(orphans.files))
