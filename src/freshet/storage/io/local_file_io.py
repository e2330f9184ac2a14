"""Files on a local or mounted POSIX disk.

An exclusive create never asks *exists* and then renames, since two writers would both see "absent": it writes
`.<name>.<uuid>.tmp` in the same folder, syncs it, and hard-links it to the final name, which fails when the name is
taken. Readers list `snapshot-*` and the like, so a temporary name begins with a dot. The crash table:

| crash after | left behind |
|---|---|
| writing the temporary file | a `.….tmp` file that nobody reads; orphan cleaning removes it |
| the link, before the temporary name is gone | the final file, complete, and the `.….tmp` name |
| the folder sync | the final file |

A data file is created under its final name, since only a manifest makes it visible, and is synced once, when it is
closed. Measured (virtual disk, ext4): writing 10 MB 27 ms, fsync of them 6–7 ms, of the folder 0.15 ms; an exclusive
create of 500 bytes takes 0.6 ms. Where the system can be told to start writing back what it was given (Linux), the
disk works while the next megabyte is being compressed: the fsync at the end of 10 MB then takes 1.1 ms and telling it
1.2 ms, where the fsync alone took 7.9 ms.

Source: FORMAT.md §1.1, §3.3, trap 3 and 19.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import shutil
import uuid
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from freshet.storage.exceptions import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StorageError,
    UnsupportedFeatureError,
)
from freshet.storage.io.file_io import Created, Deleted, FileStatus, OutputFile, write_all

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Bytes gathered before the kernel is called."""

DELETE_TRIES: Final = 20

PATH_SHOWN_MAX: Final = 500
"""Characters of a path in a message: a partition value may be of any length."""

_WRITE_BACK: Final = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
_WRITE_BACK_START: Final = 2
"""SYNC_FILE_RANGE_WRITE: start, do not wait. A hint; what is durable, fsync alone decides."""
if _WRITE_BACK is not None:
    _WRITE_BACK.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

_NOWHERE: Final = frozenset({errno.ENOENT, errno.ELOOP})
_ROOM: Final = "free some space on that disk (expire snapshots, remove orphans)"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MAY_PASS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT})
_AWAY: Final = frozenset({errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class LocalOutputFile:
    """A new file under its final name; `close` syncs it and the folder that names it."""

    def __init__(self, path: str, *, sync_file: bool = True, sync_folder: bool = True) -> None:
        self._path = path
        self._sync_file = sync_file
        self._sync_folder = sync_folder
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path} exists already; data files are never overwritten") from error
        except OSError as error:
            raise storage_error(error, "create", path) from error
        self._raw = io.FileIO(descriptor, "wb")
        self._file = io.BufferedWriter(self._raw, WRITE_BUFFER_BYTES)
        self._position = 0
        self._written_back = 0

    @property
    def closed(self) -> bool:
        """True after `close` or `abort`."""
        return self._file.closed

    def readable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def writable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def seekable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes."""
        try:
            written = self._file.write(data)
        except OSError as error:
            raise storage_error(error, "write", self._path) from error
        self._position += written
        if self._position - self._written_back >= 2 * WRITE_BUFFER_BYTES:
            self._start_write_back()
        return written

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def flush(self) -> None:
        """Hands buffered bytes to the kernel."""
        try:
            self._file.flush()
        except OSError as error:
            raise storage_error(error, "write", self._path) from error

    def close(self) -> None:
        """Flushes, syncs and closes; on failure nothing is left behind."""
        if self._file.closed:
            return
        try:
            self._file.flush()
            if self._sync_file:
                os.fsync(self._file.fileno())
            self._file.close()
            if self._sync_folder:
                _sync_folder(os.path.dirname(self._path))
        except OSError as error:
            self.abort()
            raise storage_error(error, "write", self._path) from error

    def _start_write_back(self) -> None:
        """Lets the disk begin with what the kernel has, all but the bytes still in our buffer."""
        handed_over = self._raw.tell()
        if _WRITE_BACK is not None and handed_over > self._written_back:
            count = handed_over - self._written_back
            _WRITE_BACK(self._raw.fileno(), self._written_back, count, _WRITE_BACK_START)
        self._written_back = handed_over

    def abort(self) -> None:
        """Closes and removes the file."""
        if self._file.closed:
            return
        # The buffer may refuse to be flushed (a full disk); the bytes are unwanted, so the raw file is closed below it.
        self._raw.close()
        with contextlib.suppress(OSError, ValueError):
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


class LocalFileIO:
    """`FileIO` on POSIX calls."""

    def open_input(self, path: str) -> pa.NativeFile:
        """Opens with plain reads, not a memory map: mapped pages would count as memory of the process."""
        try:
            return pa.OSFile(path, "rb")
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def open_output(self, path: str) -> OutputFile:
        """Creates the file; folders above it are created when they are missing."""
        try:
            return LocalOutputFile(path)
        except NotFoundError:
            self.make_folders(os.path.dirname(path))
            return LocalOutputFile(path)

    def read_bytes(self, path: str) -> bytes:
        """All bytes of the file."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Temporary file, fsync, hard link, unlink, fsync of the folder.

        Where the link stands and its folder cannot be synced, a crash may still take it: nobody can say, UNKNOWN.
        """
        temporary = self._write_temporary(path, data)
        try:
            linked = self._link(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return _created(path) if linked else Created.LOST

    def asked_again(self, path: str, data: bytes) -> Created:
        """Reads what is there, and syncs the folder before it says WON."""
        try:
            found = self.read_bytes(path)
        except NotFoundError:
            return Created.UNKNOWN
        return _created(path) if found == data else Created.LOST

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Temporary file, rename over the name; with `sync` an fsync of the file before and of the folder after."""
        temporary = self._write_temporary(path, data, sync=sync)
        try:
            os.replace(temporary, path)
            if sync:
                _sync_folder(os.path.dirname(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise storage_error(error, "replace", path) from error

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error(error, "look at", path) from error
        return True

    def size(self, path: str) -> int:
        """Size in bytes."""
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise storage_error(error, "look at", path) from error

    def list(self, folder: str) -> list[FileStatus]:
        """Entries sorted by name; those that vanish while they are listed, and links to nowhere, are left out."""
        statuses = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        statuses.append(_status(entry))
                    except OSError as error:
                        if error.errno not in _NOWHERE:
                            raise
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise storage_error(error, "list", folder) from error
        return sorted(statuses, key=lambda status: status.name)

    def delete(self, path: str) -> bool:
        """Removes a file."""
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error(error, "delete", path) from error
        return True

    def delete_all(self, paths: Sequence[str], *, prune_below: str | None = None, in_turn: bool = False) -> Deleted:
        """One by one, then the folders that are empty now."""
        deleted = failed = 0
        cause: str | None = None
        for path in paths:
            try:
                deleted += self.delete(path)
            except StorageError as error:
                failed += 1
                cause = cause or str(error)
                if in_turn:
                    break
        if prune_below is not None:
            for folder in sorted({os.path.dirname(path) for path in paths}):
                self._prune(folder, prune_below)
        return Deleted(deleted, failed, cause)

    @staticmethod
    def _prune(folder: str, below: str) -> None:
        """Removes the folder and those above it while they are empty; best effort."""
        while folder.startswith(f"{below}/"):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def delete_tree(self, path: str) -> None:
        """Removes a folder and all below it, also while others create and delete files there.

        Of a link to a folder, that folder and then the link; links below it are removed and not followed.
        """
        if os.path.islink(path):
            self.delete_tree(os.path.realpath(path))
            self.delete(path)
            return
        for tries_left in reversed(range(DELETE_TRIES)):
            try:
                shutil.rmtree(path)
                return
            except FileNotFoundError:  # the folder itself, or a file in it that somebody else has deleted
                if not os.path.lexists(path):
                    return
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or not tries_left:
                    raise storage_error(error, "delete", path) from error
        raise RetryableError(f"{path} was not deleted: files in it come and go. Stop who writes there, and try again")

    def make_folders(self, path: str) -> None:
        """Creates what is missing and syncs the folders that got a new entry, so that the names survive a crash."""
        missing = []
        current = path
        while current and not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current)
        try:
            os.makedirs(path, exist_ok=True)
            for created in missing:
                _sync_folder(os.path.dirname(created))
        except OSError as error:
            raise storage_error(error, "create", path) from error

    def _write_temporary(self, path: str, data: bytes, *, sync: bool = True) -> str:
        folder, name = os.path.split(path)
        self.make_folders(folder)
        temporary = os.path.join(folder, f".{name}.{uuid.uuid4()}.tmp")
        output = LocalOutputFile(temporary, sync_file=sync, sync_folder=False)
        write_all(output, data)
        return temporary

    @staticmethod
    def _link(temporary: str, path: str) -> bool:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # A network file system may repeat a request whose answer was lost: two names mean that the link is ours.
            return os.stat(temporary).st_nlink > 1
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UnsupportedFeatureError(
                    f"the file system of {path} has no hard links, so a commit cannot be claimed safely ({error}); "
                    "move the warehouse to a file system that has them"
                ) from error
            raise storage_error(error, "create", path) from error
        return True


def _created(path: str) -> Created:
    """WON once the folder that names the file is synced."""
    try:
        _sync_folder(os.path.dirname(path))
    except OSError:
        return Created.UNKNOWN
    return Created.WON


def storage_error(error: OSError, action: str, path: str, *, room: str = _ROOM) -> StorageError:
    """The error of the package for one of the operating system, with what to do about it; `room` is for a full disk."""
    code = error.errno
    shown = path if len(path) <= PATH_SHOWN_MAX else f"{path[:PATH_SHOWN_MAX]}…"
    text = f"cannot {action} {shown}: {os.strerror(code) if code else error}"
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"{text}; check the path, or whether the file was expired or cleaned")
    if code in _NO_SPACE:
        return RetryableError(f"{text}; {room}, then try again")
    if code in _NOT_ALLOWED:
        return InvalidRequestError(f"{text}; give this user the right to do so, or choose another warehouse")
    if code == errno.ENAMETOOLONG:
        return InvalidRequestError(f"{text}; use shorter names and partition values, they become folders")
    if code in (errno.ENOTDIR, errno.EISDIR):
        return InvalidRequestError(f"{text}; the path is not what a table expects there")
    if code in _MAY_PASS | _AWAY:
        return RetryableError(f"{text}; try again (for open files: raise the limit of the process)")
    return StorageError(f"{text}; check the disk and its mount")


def _status(entry: os.DirEntry[str]) -> FileStatus:
    is_folder = entry.is_dir()
    stat = entry.stat()
    return FileStatus(
        name=entry.name,
        path=entry.path,
        size_bytes=0 if is_folder else stat.st_size,
        modified_ms=stat.st_mtime_ns // 1_000_000,
        is_folder=is_folder,
        version=f"{stat.st_ino}-{stat.st_mtime_ns}",
    )


def _sync_folder(path: str) -> None:
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
