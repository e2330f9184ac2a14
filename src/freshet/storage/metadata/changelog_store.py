"""Changelogs that outlive their snapshots: copies of snapshot files, kept when the snapshots expire.

    changelog/changelog-<N>     the content of snapshot-<N>; its changelog files (without a changelog producer: the data
                                files it added) are still there, what else it names may be gone
    changelog/LATEST, EARLIEST  hints, as for snapshots: missing or low ones do no harm

Source: FORMAT.md §12.
"""

from __future__ import annotations

from freshet.storage.codec.metadata_json import decode_snapshot, encode_snapshot
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import numbered_files
from freshet.storage.io.removal import Removal
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import CHANGELOG_PREFIX, TablePaths


class ChangelogStore:
    """The long-lived changelogs of one table (or branch). Holds nothing in memory."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The copy of a snapshot, or None when none was kept."""
        path = self._paths.changelog(snapshot_id)
        try:
            return decode_snapshot(self._env.file_io.read_bytes(path), path)
        except NotFoundError:
            return None

    def list_ids(self) -> list[int]:
        """Ids of all copies, ascending."""
        return list(numbered_files(self._env.file_io, self._paths.changelog_folder, CHANGELOG_PREFIX))

    def all(self) -> dict[int, Snapshot]:
        """All copies by id."""
        found = {snapshot_id: self.find(snapshot_id) for snapshot_id in self.list_ids()}
        return {snapshot_id: snapshot for snapshot_id, snapshot in found.items() if snapshot is not None}

    def keep(self, snapshot: Snapshot) -> None:
        """Writes the copy of a snapshot that is about to expire; a copy that is there already is replaced by itself."""
        self._env.file_io.overwrite(self._paths.changelog(snapshot.id), encode_snapshot(snapshot))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Says which copy is the newest; only after it is there."""
        self._env.file_io.overwrite(self._paths.changelog_latest_hint, str(snapshot_id).encode(), sync=False)

    def remove_hints(self) -> None:
        """Removes the hints, of a table without copies."""
        hints = [self._paths.changelog_latest_hint, self._paths.changelog_earliest_hint]
        Removal(self._env.file_io, self._paths.location).delete_all(hints)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Says which copy is the oldest."""
        self._env.file_io.overwrite(self._paths.changelog_earliest_hint, str(snapshot_id).encode(), sync=False)
