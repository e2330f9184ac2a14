"""Removes tags whose time is over: `created` and `retained` of a tag, by the clock of this machine.

Tags without a retention stay, unless all that were made before a moment are to go: of those without a time the file
says when they were made, which a replaced tag is anew. Whoever commits looks (`tag.time-expire-enabled`), at most once
in `LOOK_MS` a process: a look is a listing of the tags, and those that are new are read.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.io.env import Env
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.tag import Tag
from freshet.storage.tags.creation import local_now, local_time
from freshet.storage.tags.removal import TagRemoval, remove_tag

LOOK_MS: Final = 60_000

_LOOKED: Final[WeakKeyDictionary[SnapshotStore, int]] = WeakKeyDictionary()
"""When a process looked at the tags of an open table last."""


def expire_tags(
    store: TableStore, *, older_than_ms: int | None = None, is_dry_run: bool = False
) -> tuple[TagRemoval, ...]:
    """Removes the tags whose time is over, and those that were made before a moment, with what only they name."""
    tags, now = store.snapshots.tags, local_now(store.env)
    before = None if older_than_ms is None else local_time(store.env, older_than_ms)
    made_ms = {} if before is None else tags.made_ms()
    over = [
        tag
        for tag in tags.tags().values()
        if _is_over(tag, now) or (before is not None and _made(store.env, tag, made_ms) < before)
    ]
    # One that was replaced since it was listed has another time.
    return tuple(remove_tag(store, tag, is_dry_run=is_dry_run) for tag in over if tags.find(tag.name) == tag)


def _is_over(tag: Tag, now: datetime) -> bool:
    return tag.retained_until is not None and tag.retained_until < now


def _made(env: Env, tag: Tag, file_ms: Mapping[str, int]) -> datetime:
    """When a tag was made, as the clock of this machine shows it."""
    if tag.created is not None and tag.retained is not None:
        return tag.created
    made_ms = file_ms.get(tag.name)
    return datetime.max if made_ms is None else local_time(env, made_ms)


def expire_tags_now_and_then(store: TableStore) -> list[str]:
    """The same after a commit."""
    if not store.options.tag_time_expire_enabled:
        return []
    now_ms, looked_ms = store.env.now_ms(), _LOOKED.get(store.snapshots)
    if looked_ms is not None and 0 <= now_ms - looked_ms < LOOK_MS:
        return []
    gone = expire_tags(store)
    _LOOKED[store.snapshots] = now_ms
    return [each.tag.name for each in gone]
