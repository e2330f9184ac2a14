"""Removes tags whose time is over: `created` and `retained` of a tag, by the clock of this machine.

Tags without a retention stay. Whoever commits looks (`tag.time-expire-enabled`), at most once in `LOOK_MS` a process:
a look is a listing of the tags, and those that are new are read.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.tags.creation import local_now
from freshet.storage.tags.removal import remove_tag

LOOK_MS: Final = 60_000

_LOOKED: Final[WeakKeyDictionary[SnapshotStore, int]] = WeakKeyDictionary()
"""When a process looked at the tags of an open table last."""


def expire_tags(store: TableStore) -> list[str]:
    """Removes the tags whose time is over; their names."""
    now = local_now(store.env)
    over = [
        tag
        for tag in store.snapshots.tags.tags().values()
        if tag.retained_until is not None and tag.retained_until < now
    ]
    for tag in over:
        remove_tag(store, tag)
    return [tag.name for tag in over]


def expire_tags_now_and_then(store: TableStore) -> list[str]:
    """The same after a commit."""
    if not store.options.tag_time_expire_enabled:
        return []
    now_ms, looked_ms = store.env.now_ms(), _LOOKED.get(store.snapshots)
    if looked_ms is not None and 0 <= now_ms - looked_ms < LOOK_MS:
        return []
    names = expire_tags(store)
    _LOOKED[store.snapshots] = now_ms
    return names
