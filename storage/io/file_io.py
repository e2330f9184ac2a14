"""The protocol of a file system, as the table format needs one.

Paths are plain strings; on local disks they are absolute POSIX paths. What every implementation promises:

| call | promise |
|---|---|
| `create_exclusive` | the name appears with all of its bytes, synced, or not at all; of two callers one gets True |
| `overwrite` | readers see the old bytes or the new ones, never a mixture |
| `open_output` | the name must be new; after `close` the bytes survive a crash; nothing is promised before |
| `list` | a missing folder is an empty one; names that start with `.` are temporary files of somebody |

Errors are those of `exceptions`: `NotFoundError` for a missing file, `RetryableError` where waiting or freeing
space helps, `InvalidRequestError` where the call or the permissions must change, `UnknownOutcomeError` where it cannot
be told whether an exclusive create took effect.

Source: table format §1, §3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One entry of a folder. `modified_ms` is milliseconds since the epoch, `size_bytes` is 0 for folders."""

    name: str
    path: str
    size_bytes: int
    modified_ms: int
    is_folder: bool


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

    def create_exclusive(self, path: str, data: bytes, *, sync_folder: bool = True) -> bool:
        """Creates the file with these bytes, atomically; False when the name is taken.

        Without `sync_folder` the bytes are safe but the name is so only after the next create in this folder that
        syncs it: for files of which only the last one is named by anybody.
        """

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

    def delete_folder_if_empty(self, path: str) -> bool:
        """Removes a folder that has no entries; False when it has some or is missing."""

    def delete_tree(self, path: str) -> None:
        """Removes a folder and all below it; a missing one is fine."""

    def make_folders(self, path: str) -> None:
        """Creates the folder and those above it; existing ones are fine."""
