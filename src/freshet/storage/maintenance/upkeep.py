"""What follows a commit, in the background: tags that are due, tags whose time is over, then snapshots that may expire.

Tags come first: what they name does not expire. Not where the table is write-only. The tag that a batch program leaves
follows its last commit (`tags.batch`).

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

import logging
from typing import Final

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.tags.automatic import create_due_tags
from freshet.storage.tags.batch import leave_batch_tag
from freshet.storage.tags.expiry import expire_tags_now_and_then

_LOG: Final = logging.getLogger(__name__)

__all__ = ["leave_batch_tag", "upkeep_later"]


def upkeep_later(store: TableStore, latest: Snapshot) -> None:
    """Does it once the commit of the snapshot has returned. Failures are logged: the commit is there."""
    expire_later(store, latest, _look_after_tags)


def _look_after_tags(store: TableStore, latest: Snapshot) -> None:
    create_due_tags(store, latest)  # where it fails, what it would have named must not expire
    try:
        expire_tags_now_and_then(store)
    except StorageError as error:
        _LOG.warning("table %s: tags whose time is over were not removed: %s", store.location, error)
