"""The protocol of a store of files, as the table format needs one: a disk or an object store.

Paths are plain strings with slashes; whether there are folders is up to the implementation, none has to be made
before a file is. What every implementation promises:

| call | promise |
|---|---|
| `create_exclusive` | the name appears with all of its bytes, durably, or not at all; of two callers one gets WON |
| `asked_again` | after UNKNOWN: whether the bytes that are there now are the caller's, for contents that are unique |
| `overwrite` | readers see the old bytes or the new ones, never a mixture |
| `open_output` | the name must be new; after `close` the bytes survive a crash; nothing is promised before |
| `list` | what lies directly below a path; nothing below a missing one; names that start with `.` are temporary files |
| `delete_all` | one request where the store has one for many files; what cannot be deleted is counted, not raised |

Errors are those of `exceptions`: `NotFoundError` for a missing file, `RetryableError` where waiting or freeing
space helps, `InvalidRequestError` where the call or the permissions must change. A create whose answer was lost is no
error but the outcome UNKNOWN.

Source: FORMAT.md §1, §3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

import pyarrow as pa

from freshet.storage.exceptions import StorageError, UnknownOutcomeError
from freshet.storage.paths import numbered


class Created(Enum):
    """What became of an exclusive create."""

    WON = "won"
    """The file is there with the caller's bytes, and will be after a crash."""
    LOST = "lost"
    """The name is another's."""
    UNKNOWN = "unknown"
    """The store gave no answer: the file may be there, may appear yet, or not. `asked_again` tells, when it answers."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of the deletion of several files; those that were not there count as neither."""

    deleted_count: int = 0
    failed_count: int = 0
    cause: str | None = field(default=None, compare=False)
    """Why the first of those that failed could not be deleted."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One entry of a folder. `modified_ms` is milliseconds since the epoch, `size_bytes` is 0 for folders.

    `version` is another text whenever the file was replaced, even by one of the same size within a millisecond.
    """

    name: str
    path: str
    size_bytes: int
    modified_ms: int
    is_folder: bool
    version: str = ""


@runtime_checkable
class OutputFile(Protocol):
    """A file being written; has what pyarrow asks of a Python file object."""

    @property
    def closed(self) -> bool:
        """True after `close` or `abort`."""

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes and returns their number."""

    def tell(self) -> int:
        """Bytes written so far."""

    def flush(self) -> None:
        """Hands buffered bytes to the operating system; they do not survive a crash yet."""

    def close(self) -> None:
        """Makes the bytes and the name durable. A second call does nothing."""

    def abort(self) -> None:
        """Closes without syncing and removes the file; does nothing after `close`."""


class FileIO(Protocol):
    """The door to one file system."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Opens a file for random reading."""

    def open_output(self, path: str) -> OutputFile:
        """Creates a file that must not exist yet; missing folders above it are created."""

    def read_bytes(self, path: str) -> bytes:
        """All bytes of a small file; `NotFoundError` when it is missing."""

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Creates the file with these bytes, atomically and durably, if there is none of this name."""

    def asked_again(self, path: str, data: bytes) -> Created:
        """After UNKNOWN: WON when the file holds exactly these bytes, LOST when it holds others, UNKNOWN when there is
        none. Raises when the store does not answer."""

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces the file atomically, or creates it; without `sync` a crash may lose it (hints)."""

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""

    def size(self, path: str) -> int:
        """Size in bytes; `NotFoundError` when it is missing."""

    def list(self, folder: str) -> list[FileStatus]:
        """Entries of the folder sorted by name; empty when there is no such folder."""

    def delete(self, path: str) -> bool:
        """Removes a file; False when it was not there."""

    def delete_all(self, paths: Sequence[str], *, prune_below: str | None = None, in_turn: bool = False) -> Deleted:
        """Removes files, best effort, in the order given; `in_turn`: none after the first that cannot be removed. Where
        the store has folders, those that became empty go as well, up to but without `prune_below`; None leaves them."""

    def delete_tree(self, path: str) -> None:
        """Removes everything below a path; nothing there is fine."""

    def make_folders(self, path: str) -> None:
        """Makes a path show in listings that nothing lies below yet (a new database)."""


def numbered_files(file_io: FileIO, folder: str, prefix: str) -> dict[int, FileStatus]:
    """Files of a folder named `<prefix><number>`, by their number, ascending."""
    files = {
        number: status
        for status in file_io.list(folder)
        if not status.is_folder and (number := numbered(status.name, prefix)) is not None
    }
    return dict(sorted(files.items()))


def write_all(output: OutputFile, data: bytes) -> None:
    """Writes these bytes and closes the file; after an error it is taken back."""
    try:
        output.write(data)
        output.close()
    except StorageError:
        output.abort()
        raise


def create_or_ask(file_io: FileIO, path: str, data: bytes) -> bool:
    """Creates a file of unique content: True when it is there, False when the name is another's.

    Where the store gives no answer it is asked again, once; `UnknownOutcomeError` when that tells nothing either.
    """
    outcome = file_io.create_exclusive(path, data)
    if outcome is Created.UNKNOWN:
        outcome = file_io.asked_again(path, data)
    if outcome is Created.UNKNOWN:
        raise UnknownOutcomeError(
            f"{path} was to be created and the store does not say whether it was; check the disk or the connection, "
            "then whether the file is there, before doing it again",
            path=path,
        )
    return outcome is Created.WON
