"""The folders of a simulated disk (`sim_env`)."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError

if TYPE_CHECKING:
    from tests.kit.sim_env import SimDisk, SimFileIO


class SimFolders:
    """`Folders` of a `SimDisk`."""

    def __init__(self, file_io: SimFileIO, disk: SimDisk) -> None:
        self._file_io = file_io
        self._disk = disk

    def make(self, path: str) -> None:
        """Not counted as a mutation: an empty folder is harmless."""
        self._file_io.check_alive()
        with self._disk.lock:
            parts = path.rstrip("/").split("/")
            self._disk.folders |= {"/".join(parts[:count]) for count in range(2, len(parts) + 1)}

    def remove_empty(self, path: str, *, below: str) -> None:
        """One mutation per folder: a crash may come between."""
        with contextlib.suppress(StorageError), self._disk.lock:
            while path.startswith(f"{below}/") and path in self._disk.folders and not any(self._file_io.entries(path)):
                self._file_io._mutate("rmdir", path, partial(self._disk.folders.discard, path))
                path = path.rsplit("/", 1)[0]

    def way_out(self, path: str, *, below: str) -> str | None:
        """There are no links here."""
        return None

    def sync(self, path: str) -> None:
        """One mutation."""
        self._file_io._mutate("sync", path, partial(self._file_io._sync_names, f"{path}/"))

    def rename(self, source: str, target: str) -> None:
        """One mutation."""
        with self._disk.lock:
            if self._file_io.exists(target) or self._file_io.exists_prefix(target):
                raise AlreadyExistsError(f"{target} exists already")
            if not self._file_io.exists_prefix(source):
                raise NotFoundError(f"no such folder: {source}")
            self._file_io._mutate("rename", source, lambda: self._rename(source, target))

    def _rename(self, source: str, target: str) -> None:
        def renamed(path: str) -> str:
            return target + path[len(source) :] if f"{path}/".startswith(f"{source}/") else path

        self._disk.files = {renamed(path): file for path, file in self._disk.files.items()}
        self._disk.folders = {renamed(path) for path in self._disk.folders}
        self.make(target)
