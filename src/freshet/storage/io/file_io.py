"""The protocol of a store of files, as the table format needs one: a disk or an object store.

Paths are plain strings with slashes; there are files and nothing else, no folder has to be made before a file is. What
every implementation promises (`tests/storage/io/test_contract.py` runs for each):

| call | promise |
|---|---|
| `create_exclusive` | the name appears with all of its bytes, durably, or not at all; of two callers one gets WON |
| `asked_again` | after UNKNOWN: whether the bytes that are there now are the caller's, for contents that are unique |
| `overwrite` | readers see the old bytes or the new ones, never a mixture |
| `open_output` | the name must be new; after `close` the bytes survive a crash; nothing is promised before |
| `read_range` | the bytes there are; none beyond the end is no error. `ranges` plans several of one file |
| `entries` | what lies directly below a path, page by page and in no order; nothing below a missing one |
| `delete_all` | one request where the store has one for many files; what cannot be deleted is counted, not raised |
| `delete_prefix` | all files below a path; `/a/b` is no part of `/a/bc` |

Names that start with `.` are temporary files. There is no rename and no link. What a disk can do beyond this is in
`folders`, which is None for an object store: callers do without it there.

Errors are those of `exceptions`: `NotFoundError` for a missing file, `RetryableError` where waiting or freeing
space helps, `InvalidRequestError` where the call or the permissions must change. A create whose answer was lost is no
error but the outcome UNKNOWN: also where the store repeats a request by itself and then finds its own file there.

A new store is a module here, an entry of `registry.SCHEMES`, which names the options that it takes, and one of the
suite's `STORES`.

Source: FORMAT.md §1, §3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import AlreadyExistsError, RetryableError, StorageError, UnknownOutcomeError
from freshet.storage.io.ranges import ByteRange, ReadCosts
from freshet.storage.paths import numbered


class Created(Enum):
    """What became of an exclusive create."""

    WON = "won"
    """The file is there with the caller's bytes, and will be after a crash."""
    LOST = "lost"
    """The name is another's."""
    UNKNOWN = "unknown"
    """The store gave no answer: the file may be there, may appear yet, or not. `asked_again` says, once it answers."""


class NotCreatedError(RetryableError):
    """An exclusive create that failed before the file could have its name: it is not there, nor will be."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of the deletion of several files. Those that were not there count as neither, or as deleted where a
    store does not distinguish them."""

    deleted_count: int = 0
    failed_count: int = 0
    cause: StorageError | None = field(default=None, compare=False)
    """Why the first of those that failed could not be deleted."""


class FileStatus(Frozen):
    """One entry of a listing: a file, or a folder, which is a name that files lie below (on a disk, maybe none).

    `modified_ms` is milliseconds since the epoch; it and `size_bytes` say nothing of folders. `version` is another text
    whenever the file was replaced, even by one of the same size within a millisecond.
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


class WriteOnly:
    """What pyarrow asks of a Python file object, answered for a file that is written from its start to its end."""

    def readable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def writable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def seekable(self) -> bool:
        """Never; asked by pyarrow."""
        return False


class Folders(Protocol):
    """What a disk can do and an object store cannot."""

    def make(self, path: str) -> None:
        """Makes a folder, which shows in listings although nothing lies below; one that is there is fine."""

    def remove_empty(self, path: str, *, below: str) -> None:
        """Removes a folder and those above it while they are empty, up to but without `below`; best effort."""

    def way_out(self, path: str, *, below: str) -> str | None:
        """The first folder between `below` and the last part of a path that is a link or `..`; None for none, and for
        a path that lies elsewhere."""

    def sync(self, path: str) -> None:
        """Makes the names of the files in a folder durable (`FileIO.open_output`)."""

    def rename(self, source: str, target: str) -> None:
        """Gives a folder, with all below it, a name that is free, atomically and durably.

        `AlreadyExistsError` when the name is taken, `NotFoundError` when there is no such folder."""


class FileIO(Protocol):
    """The door to one store. May be shared by threads."""

    @property
    def read_costs(self) -> ReadCosts:
        """What reading costs here."""

    @property
    def folders(self) -> Folders | None:
        """None where there are none."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Opens a file for random reading."""

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """The bytes of a range, by one request; fewer or none where the file ends before."""

    def read_bytes(self, path: str) -> bytes:
        """All bytes of a small file; `NotFoundError` when it is missing."""

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        """Creates a file that must not exist yet; `AlreadyExistsError` here, or from `close`. Without `sync_folder` its
        name is durable once `Folders.sync` returns: of several files of a folder, all are at once."""

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Creates the file with these bytes, atomically and durably, if there is none of this name.

        Of the errors `NotCreatedError` and `InvalidRequestError` say that nothing was created; any other leaves it
        open."""

    def asked_again(self, path: str, data: bytes) -> Created:
        """After UNKNOWN: WON when the file holds exactly these bytes, LOST when it holds others, UNKNOWN when there is
        none. Raises when the store does not answer."""

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces the file atomically, or creates it; without `sync` a crash may lose it (hints)."""

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Makes of each source a durable file of the same bytes under a name that is free; no bytes come here.

        `NotFoundError` where a source is not there; what was copied before it stays."""

    def exists(self, path: str) -> bool:
        """True for a file."""

    def exists_prefix(self, path: str) -> bool:
        """True where files lie below a path; on a disk also for an empty folder."""

    def size(self, path: str) -> int:
        """Size in bytes; `NotFoundError` when it is missing."""

    def entries(self, path: str) -> Iterator[FileStatus]:
        """What lies directly below a path, in no order that is promised; a page is requested when it is needed."""

    def delete(self, path: str) -> bool:
        """Removes a file; False when it was not there. Of concurrent callers more than one may get True."""

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """Removes files, best effort; `in_turn`: one after the other, none after the first that cannot be removed."""

    def delete_prefix(self, path: str) -> None:
        """Removes everything below a path; nothing there is fine."""


def numbered_files(file_io: FileIO, folder: str, prefix: str) -> dict[int, FileStatus]:
    """Files of a folder named `<prefix><number>`, by their number, ascending."""
    files = {
        number: status
        for status in file_io.entries(folder)
        if not status.is_folder and (number := numbered(status.name, prefix)) is not None
    }
    return dict(sorted(files.items()))


def exists_already(path: str) -> AlreadyExistsError:
    """The error for the name of a new file that is taken."""
    return AlreadyExistsError(f"{path} exists already; data files are never overwritten")


def write_all(output: OutputFile, data: bytes) -> None:
    """Writes these bytes and closes the file; after an error it is removed."""
    try:
        output.write(data)
        output.close()
    except StorageError:
        output.abort()
        raise


def create_or_ask(file_io: FileIO, path: str, data: bytes) -> bool:
    """Creates a file of unique content: True when it is there, False when the name is another's.

    Where the store gives no answer it is asked again, once; `UnknownOutcomeError` when that says nothing either.
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
