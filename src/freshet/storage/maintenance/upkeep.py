"""What follows a commit, in the background: tags that are due, tags whose time is over, then snapshots that may expire.

Tags come first: what they name does not expire. Not where the table is write-only. The tag that a batch program leaves
follows its last commit (`tags.batch`).

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.automatic import create_due_tags
from freshet.storage.tags.batch import leave_batch_tag
from freshet.storage.tags.expiry import expire_tags_now_and_then

__all__ = ["leave_batch_tag", "upkeep_later"]


def upkeep_later(store: TableStore, latest: Snapshot) -> None:
    """Does it once the commit of the snapshot has returned. Failures are logged: the commit is there."""
    expire_later(store, latest, _look_after_tags)


def _look_after_tags(store: TableStore, latest: Snapshot) -> None:
    create_due_tags(store, latest)
    expire_tags_now_and_then(store)
