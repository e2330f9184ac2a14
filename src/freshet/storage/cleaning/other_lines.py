"""What the other histories of a table name: of the table its branches, of a branch the table and its other branches.

They share the folders of data, manifests and index files, so what one of them expires another may need. Other programs
expire each without a look at the others: what is left of them is protected, `ReadableManifests` reads the rest as
empty. Snapshot files are read again only where they were replaced: an id is used twice after a rollback, and by a
branch that was dropped and made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

from freshet.storage.codec.snapshot_json import decode_snapshot
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.file_io import FileStatus, numbered_files
from freshet.storage.io.sized_cache import SizedCache
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.metadata.tag_store import TagStore
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import CHANGELOG_PREFIX, SNAPSHOT_PREFIX

SNAPSHOTS_MAX: Final = 5_000
"""Snapshots of other lines that are kept in memory."""

_Seen = SizedCache[tuple[str, str], Snapshot]

_SEEN: Final[WeakKeyDictionary[SnapshotStore, _Seen]] = WeakKeyDictionary()


def other_lines(store: TableStore) -> Iterator[Snapshot]:
    """All tags and snapshots of the other lines, and the snapshots that they keep for their changelog."""
    seen = _SEEN.setdefault(store.snapshots, SizedCache(SNAPSHOTS_MAX, lambda _: 1))
    for paths in store.snapshots.other_lines():
        yield from TagStore(store.env, paths).all().values()
        for folder, prefix in ((paths.snapshot_folder, SNAPSHOT_PREFIX), (paths.changelog_folder, CHANGELOG_PREFIX)):
            for status in numbered_files(store.env.file_io, folder, prefix).values():
                with suppress(NotFoundError):  # expired while we looked
                    yield _snapshot(store, seen, status)


def _snapshot(store: TableStore, seen: _Seen, status: FileStatus) -> Snapshot:
    key = status.path, status.version
    known = seen.get(key)
    if known is None:
        known = decode_snapshot(store.env.file_io.read_bytes(status.path), status.path)
        seen.put(key, known)
    return known
