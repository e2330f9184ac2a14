"""Removals of files of one table, none of which follows a link out of its folder.

The folder itself, and those above it, may be links: a warehouse may lie on another disk. A link below it was put there
by somebody who may write the table, and leads to what is no part of it; what is to be removed behind one counts as not
removed. A file or a folder to remove that is itself a link goes, and what it leads to stays.

What a write has made a moment ago and takes back needs none of this (`undone_on_failure`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.file_io import Deleted, FileIO


@contextmanager
def undone_on_failure(*undo: Callable[[], None] | None) -> Iterator[None]:
    """Calls each of these when what happens inside does not come to its end, whatever stopped it."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            for each in undo:
                if each is not None:
                    each()


class Removal(Frozen):
    """Removals as `FileIO` has them; `root` is the folder of the table."""

    file_io: FileIO
    root: str

    def delete(self, path: str) -> bool:
        """Raises `InvalidRequestError` for a file behind a link."""
        self._check(path)
        return self.file_io.delete(path)

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """Files behind a link have failed."""
        ways_out = {folder: self.way_out(f"{folder}/") for folder in {_folder(path) for path in paths}}
        behind = [path for path in paths if ways_out[_folder(path)] is not None]
        if not behind:
            return self.file_io.delete_all(paths, in_turn=in_turn)
        end = paths.index(behind[0]) if in_turn else len(paths)
        deleted = self.file_io.delete_all(
            [path for path in paths[:end] if ways_out[_folder(path)] is None], in_turn=in_turn
        )
        if in_turn and deleted.failed_count:
            return deleted
        failed_count = deleted.failed_count + (1 if in_turn else len(behind))
        return Deleted(deleted.deleted_count, failed_count, deleted.cause or self._error(behind[0]))

    def delete_prefix(self, path: str) -> None:
        """Removes all below, of a link the link alone. Raises `InvalidRequestError` for a folder behind one."""
        self._check(path)
        self.file_io.delete_prefix(path)

    def remove_empty(self, folders: Sequence[str], *, below: str) -> None:
        """Removes folders, and those above them, while they are empty, on a disk."""
        if self.file_io.folders is None:
            return
        for folder in folders:
            if self.way_out(f"{folder}/") is None:
                self.file_io.folders.remove_empty(folder, below=below)

    def way_out(self, path: str) -> str | None:
        """What leads out of the table above a path: a link, or `..`; None where nothing does."""
        folders = self.file_io.folders
        return None if folders is None else folders.way_out(path, below=self.root)

    def _check(self, path: str) -> None:
        if self.way_out(path) is not None:
            raise self._error(path)

    def _error(self, path: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"{path} is not removed: it lies behind {self.way_out(path)}, which leads out of the table at {self.root}. "
            "Put a folder in the place of that link, or remove by hand what is not needed there",
            path=path,
        )


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
