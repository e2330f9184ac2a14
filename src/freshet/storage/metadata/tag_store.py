"""The tags of a table: names of snapshots, each with a copy of the snapshot's file, which outlives it.

Source: FORMAT.md §12.
"""

from __future__ import annotations

from operator import itemgetter

from freshet.storage.codec.snapshot_json import decode_snapshot
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import FileStatus
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.paths import TAG_PREFIX, TablePaths


class TagStore:
    """Tags of one table (or branch)."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._seen: dict[str, tuple[str, Snapshot]] = {}
        """Tags by name, with the version of the file."""

    def all(self) -> dict[str, Snapshot]:
        """Tags by name, each with the snapshot it holds; read again only where the file was replaced."""
        found: dict[str, tuple[str, Snapshot]] = {}
        for name, status in self._files():
            known = self._seen.get(name)
            try:
                found[name] = (
                    known if known is not None and known[0] == status.version else (status.version, self.of(name))
                )
            except NotFoundError:
                continue  # deleted while we looked
        self._seen = found
        return {name: snapshot for name, (_, snapshot) in found.items()}

    def names(self) -> list[str]:
        """Names of the tags."""
        return [name for name, _ in self._files()]

    def of(self, name: str) -> Snapshot:
        """The snapshot of a tag; `NotFoundError` when there is no such tag."""
        path = self._paths.tag(name)
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError as error:
            known = ", ".join(self.names()) or "none"
            raise NotFoundError(f"the table has no tag {name!r}; tags there are: {known} ({path})") from error
        return decode_snapshot(data, path)

    def _files(self) -> list[tuple[str, FileStatus]]:
        statuses = self._env.file_io.entries(self._paths.tag_folder)
        files = (status for status in statuses if status.name.startswith(TAG_PREFIX) and not status.is_folder)
        return sorted(((status.name.removeprefix(TAG_PREFIX), status) for status in files), key=itemgetter(0))
