"""The tags of a table, as people see and manage them: `table.tags`.

Tags go when their time is over: `created` and `retained` of a tag, by the clock of this machine.

Tags without a retention stay, unless all that were made before a moment are to go: of those without a time the file
says when they were made, which a replaced tag is anew. Whoever commits looks (`tag.time-expire-enabled`), at most once
in `_LOOK_MS` a process: a look is a listing of the tags, and those that are new are read.

Source: FORMAT.md §12.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.io.env import Env
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.metadata.tag_store import check_tag_name
from freshet.storage.model.arguments import TimeGiven, answering_callers, time_ms
from freshet.storage.model.tag import Tag, Tags
from freshet.storage.tags.automatic import create_due_tags
from freshet.storage.tags.changes import (
    TagRemoval,
    check_auto_name,
    create_tag,
    local_now,
    local_time,
    remove_tag,
    rename_tag,
    replace_tag,
    snapshot_to_tag,
    tag_of,
)

_LOOK_MS: Final = 60_000

_LOOKED: Final[WeakKeyDictionary[SnapshotStore, int]] = WeakKeyDictionary()
"""When a process looked at the tags of an open table last."""


@answering_callers
class TableTags:
    """Names of snapshots, which neither expire nor lose their files while they have one. `Table.tags` gives it.

        table.tags.create("2026-11")
        table.scan(tag="2026-11").to_pandas()
        table.tags.delete("2026-11")

    What there is: `list`, `get`. What changes it: `create`, `replace`, `rename`,
    `delete`, `expire`, `create_due`.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"TableTags({self._store.name!r})"

    def list(self) -> tuple[Tag, ...]:
        """All tags, by snapshot and name."""
        tags = self._store.snapshots.tags.tags().values()
        return Tags(sorted(tags, key=lambda tag: (tag.snapshot_id, tag.name)))

    def get(self, name: str) -> Tag:
        """One tag; `NotFoundError`, which names those there are, where it is not there."""
        check_tag_name(name)
        return self._store.snapshots.tags.tag(name)

    def create(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        timestamp_ms: TimeGiven | None = None,
        retained: timedelta | None = None,
    ) -> Tag:
        """Gives a snapshot a name: the latest, that of an id, or the last one committed at or before a time (epoch
        milliseconds, or a datetime with a time zone). A snapshot that has expired can be named while another tag holds
        it.

        `retained` is how long the tag stays before whoever commits removes it; without it, as long as the option
        `tag.default-time-retained` says, else until it is deleted. Raises `AlreadyExistsError` for a name that is
        taken, `NotFoundError` for a snapshot that is not there, `InvalidRequestError` for what can be no name.
        """
        store = self._writable()
        check_tag_name(name)
        tag = tag_of(store, name, snapshot_to_tag(store, snapshot_id, timestamp_ms), retained)
        check_auto_name(store, tag)
        create_tag(store, tag)
        return tag

    def replace(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        timestamp_ms: TimeGiven | None = None,
        retained: timedelta | None = None,
    ) -> Tag:
        """Lets a tag name another snapshot, chosen as in `create`; its time begins anew. What only the tag named until
        then is removed.

        Raises as `create` does, and `NotFoundError` where there is no such tag.
        """
        old = self.get(name)
        store = self._writable()
        new = tag_of(store, name, snapshot_to_tag(store, snapshot_id, timestamp_ms), retained)
        check_auto_name(store, new)
        replace_tag(store, old, new)
        return new

    def rename(self, name: str, new_name: str) -> Tag:
        """Gives a tag another name; its snapshot and its time stay. Raises `AlreadyExistsError` for a name that is
        taken, `NotFoundError` where there is no such tag."""
        old = self.get(name)
        return rename_tag(self._writable(), old, new_name)

    def delete(self, name: str, *, dry_run: bool = False) -> TagRemoval:
        """Removes a tag, and the files that only it named: those of a snapshot that has expired. `dry_run` counts them
        and removes nothing.

        Raises `NotFoundError` where there is no such tag, `CorruptDataError` where it cannot be found out what others
        need; nothing is removed then.
        """
        tag = self.get(name)
        return remove_tag(self._store if dry_run else self._writable(), tag, is_dry_run=dry_run)

    def expire(self, *, older_than: TimeGiven | None = None, dry_run: bool = False) -> tuple[TagRemoval, ...]:
        """Removes the tags whose time to stay is over, as whoever commits does now and then, and what only they named.

        With `older_than`, a moment (epoch milliseconds, or a datetime with a time zone), all tags that were made before
        it go too, also those that stay until they are deleted. `dry_run` says which would go. Raises
        `CorruptDataError` as `delete` does; tags before that one are gone then.
        """
        older_than_ms = None if older_than is None else time_ms("older_than", older_than)
        store = self._store if dry_run else self._writable()
        return expire_tags(store, older_than_ms=older_than_ms, is_dry_run=dry_run)

    def create_due(self) -> tuple[Tag, ...]:
        """Makes the tags of `tag.automatic-creation` that are due, as whoever commits does; none without that option,
        and none by its `batch`, whose tag follows a program's last commit."""
        store = self._writable()
        latest = store.snapshots.latest()
        made = () if latest is None else create_due_tags(store, latest)
        tags = self._store.snapshots.tags.tags()
        return tuple(tags[name] for name in made if name in tags)

    def _writable(self) -> TableStore:
        """Refused before anything is written."""
        self._store.check_writable()
        self._store.check_is_there()
        return self._store


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
    if looked_ms is not None and 0 <= now_ms - looked_ms < _LOOK_MS:
        return []
    gone = expire_tags(store)
    _LOOKED[store.snapshots] = now_ms
    return [each.tag.name for each in gone]
