"""The snapshot files of a table: which there are, which is the latest, and the exclusive claim of the next one.

Invariant I1: snapshot N is visible exactly when `snapshot-N` exists; ids are contiguous; hints may lie.

| hint | trusted when | otherwise |
|---|---|---|
| LATEST | snapshot-hint exists and snapshot-(hint + 1) does not | step forward from it, or list |
| EARLIEST | snapshot-hint exists | list |

A hint that runs ahead of the truth, is missing, or is no number does no harm. Names that are no `snapshot-<number>` are
skipped.

Snapshots are remembered by id. A rolled-back table uses ids a second time: `latest` and `fresh` read from disk, and
drop what is remembered when it is no longer so.

Source: table format §1.1, §3.3, §12.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson

from freshet.storage.codec.snapshot_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import CorruptDataError, NotFoundError, StorageError
from freshet.storage.io.env import Env
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import BRANCH_PREFIX, CONSUMER_PREFIX, SNAPSHOT_PREFIX, TAG_PREFIX, TablePaths, numbered

_STEPS_BEFORE_LISTING: Final = 16
_CACHE_SIZE: Final = 1024


class SnapshotStore:
    """Snapshots, tags and consumers of one table (or branch)."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._cache: dict[int, Snapshot] = {}

    def exists(self, snapshot_id: int) -> bool:
        """True when the snapshot is visible."""
        return self._env.file_io.exists(self._paths.snapshot(snapshot_id))

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One snapshot; `NotFoundError` when it has expired or is not there yet."""
        cached = self._cache.get(snapshot_id)
        return self.fresh(snapshot_id) if cached is None else cached

    def fresh(self, snapshot_id: int) -> Snapshot:
        """One snapshot as it is on disk now."""
        path = self._paths.snapshot(snapshot_id)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            raise NotFoundError(f"snapshot {snapshot_id} does not exist: {self._range_text()} ({path})") from error
        snapshot = decode_snapshot(data, path)
        if snapshot.id != snapshot_id:
            raise CorruptDataError(f"the file holds snapshot {snapshot.id}", path=path)
        if self._cache.get(snapshot_id, snapshot) != snapshot or len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[snapshot_id] = snapshot
        return snapshot

    def list_ids(self) -> list[int]:
        """Ids of all visible snapshots, ascending."""
        statuses = self._env.file_io.list(self._paths.snapshot_folder)
        numbers = (numbered(status.name, SNAPSHOT_PREFIX) for status in statuses if not status.is_folder)
        return sorted(number for number in numbers if number is not None)

    def latest_id(self) -> int | None:
        """Id of the newest snapshot, or None for a table without any."""
        hint = self._hint(self._paths.latest_hint)
        if hint is not None and hint > 0 and self.exists(hint):
            for candidate in range(hint, hint + _STEPS_BEFORE_LISTING):
                if not self.exists(candidate + 1):
                    return candidate
        ids = self.list_ids()
        return ids[-1] if ids else None

    def latest(self) -> Snapshot | None:
        """The newest snapshot, read from disk, or None for a table without any."""
        latest_id = self.latest_id()
        return None if latest_id is None else self.fresh(latest_id)

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot, or None for a table without any."""
        hint = self._hint(self._paths.earliest_hint)
        if hint is not None and self.exists(hint):
            return hint
        ids = self.list_ids()
        return ids[0] if ids else None

    def earliest(self) -> Snapshot | None:
        """The oldest snapshot, or None for a table without any."""
        earliest_id = self.earliest_id()
        return None if earliest_id is None else self.snapshot(earliest_id)

    def newest_first(self) -> Iterator[Snapshot]:
        """Snapshots from the latest back, until one has expired."""
        latest_id = self.latest_id()
        for snapshot_id in range(latest_id or 0, 0, -1):
            try:
                yield self.snapshot(snapshot_id)
            except NotFoundError:
                return

    def at_or_before(self, time_ms: int) -> Snapshot | None:
        """The newest snapshot not younger than the time, or None when all are younger.

        Commit times never go back, so this is a binary search.
        """
        earliest_id, latest_id = self.earliest_id(), self.latest_id()
        if earliest_id is None or latest_id is None:
            return None
        low, high = earliest_id, latest_id + 1  # the answer is in [low - 1, high)
        while low < high:
            middle = (low + high) // 2
            if self.snapshot(middle).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return self.snapshot(low - 1) if low > earliest_id else None

    def try_commit(self, snapshot: Snapshot) -> bool:
        """Claims the snapshot's id: True when it is ours and visible, False when the id is taken."""
        return self._env.file_io.create_exclusive(self._paths.snapshot(snapshot.id), encode_snapshot(snapshot))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Says which snapshot is the newest; only after it is visible, a hint that runs ahead breaks other readers."""
        self._env.file_io.overwrite(self._paths.latest_hint, str(snapshot_id).encode(), sync=False)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Says which snapshot is the oldest."""
        self._env.file_io.overwrite(self._paths.earliest_hint, str(snapshot_id).encode(), sync=False)

    def forget(self, snapshot_id: int) -> None:
        """Drops a snapshot that was deleted from memory."""
        self._cache.pop(snapshot_id, None)

    def tags(self) -> dict[str, Snapshot]:
        """Tags by name, each with the snapshot it holds."""
        return {name: self.tag(name) for name in self.tag_names()}

    def tag_names(self) -> list[str]:
        """Names of the tags."""
        statuses = self._env.file_io.list(self._paths.tag_folder)
        return [
            status.name.removeprefix(TAG_PREFIX)
            for status in statuses
            if status.name.startswith(TAG_PREFIX) and not status.is_folder
        ]

    def tag(self, name: str) -> Snapshot:
        """The snapshot of a tag; `NotFoundError` when there is no such tag."""
        path = self._paths.tag(name)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            known = ", ".join(self.tag_names()) or "none"
            raise NotFoundError(f"the table has no tag {name!r}; tags there are: {known} ({path})") from error
        return decode_snapshot(data, path)

    def branches(self) -> list[str]:
        """Names of the branches."""
        statuses = self._env.file_io.list(self._paths.branch_folder)
        return [
            status.name.removeprefix(BRANCH_PREFIX)
            for status in statuses
            if status.name.startswith(BRANCH_PREFIX) and status.is_folder
        ]

    def branch(self, name: str) -> SnapshotStore:
        """The snapshots and tags of a branch."""
        return SnapshotStore(self._env, self._paths.branch(name))

    def consumers(self) -> dict[str, int]:
        """Next snapshot each streaming reader wants, by reader."""
        positions: dict[str, int] = {}
        for status in self._env.file_io.list(self._paths.consumer_folder):
            if not status.name.startswith(CONSUMER_PREFIX) or status.is_folder:
                continue
            position = self._consumer_position(status.path)
            if position is not None:
                positions[status.name.removeprefix(CONSUMER_PREFIX)] = position
        return positions

    def min_consumer_next(self) -> int | None:
        """The oldest snapshot some streaming reader still wants, or None."""
        return min(self.consumers().values(), default=None)

    def _consumer_position(self, path: str) -> int | None:
        try:
            return int(orjson.loads(self._env.file_io.read_bytes(path))["nextSnapshot"])
        except NotFoundError:
            return None  # the reader was removed while we looked
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                f"the consumer file cannot be read ({error!r}); remove it if the reader is gone", path=path
            ) from error

    def _hint(self, path: str) -> int | None:
        try:
            text = self._env.file_io.read_bytes(path).decode("ascii", "replace")
        except NotFoundError:
            return None
        return numbered(text.strip(), "")

    def _range_text(self) -> str:
        try:
            ids = self.list_ids()
        except StorageError:
            return "the snapshots cannot be listed"
        return f"the table has snapshots {ids[0]} to {ids[-1]}" if ids else "the table has no snapshots"
