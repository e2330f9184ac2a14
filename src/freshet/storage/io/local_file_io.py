"""Files on a local or mounted POSIX disk.

An exclusive create never asks *exists* and then renames, since two writers would both see "absent": it writes
`.<name>.<uuid>.tmp` in the same folder, syncs it, and hard-links it to the final name, which fails when the name is
taken. Readers list `snapshot-*` and the like, so a temporary name begins with a dot. The crash table:

| crash after | left behind |
|---|---|
| writing the temporary file | a `.….tmp` file that is never read; orphan cleaning removes it |
| the link, before the temporary name is gone | the final file, complete, and the `.….tmp` name |
| the folder sync | the final file |

A data file is created under its final name, since only a manifest makes it visible, and is synced once, when it is
closed. Measured (virtual disk, ext4): writing 10 MB 27 ms, fsync of them 6–7 ms, of the folder 0.15 ms; an exclusive
create of 500 bytes takes 0.6 ms. Where the system can be asked to start writing back what it was given (Linux), the
disk works while the next megabyte is being compressed: the fsync at the end of 10 MB then takes 1.1 ms and asking it
1.2 ms, where the fsync alone took 7.9 ms.

Source: FORMAT.md §1.1, §3.3, pitfalls 3 and 19.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from freshet.storage.exceptions import (
    NotFoundError,
    RetryableError,
    StorageError,
    UnsupportedFeatureError,
)
from freshet.storage.io.file_io import (
    Created,
    Deleted,
    FileStatus,
    NotCreatedError,
    OutputFile,
    WriteOnly,
    exists_already,
    write_all,
)
from freshet.storage.io.local_errors import storage_error
from freshet.storage.io.local_folders import LocalFolders, delete_folder, fsync_folder, make_folder
from freshet.storage.io.ranges import ByteRange, ReadCosts

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Bytes gathered before the kernel is called."""

_WRITE_BACK: Final = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
_WRITE_BACK_START: Final = 2
"""SYNC_FILE_RANGE_WRITE: start, do not wait. A hint; what is durable, fsync alone decides."""
if _WRITE_BACK is not None:
    _WRITE_BACK.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

_NOWHERE: Final = frozenset({errno.ENOENT, errno.ELOOP})
_COPIED_BYTES: Final = 8 * 1024 * 1024
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class LocalOutputFile(WriteOnly):
    """A new file under its final name; `close` syncs it and the folder that names it."""

    def __init__(self, path: str, *, sync_file: bool = True, sync_folder: bool = True) -> None:
        self._path = path
        self._sync_file = sync_file
        self._sync_folder = sync_folder
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError as error:
            raise exists_already(path) from error
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
                fsync_folder(os.path.dirname(self._path))
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

    read_costs = ReadCosts(whole_bytes=64 * 1024, gap_bytes=64 * 1024, request_bytes=64 * 1024 * 1024)
    folders = LocalFolders()

    def open_input(self, path: str) -> pa.NativeFile:
        """Opens with plain reads, not a memory map: mapped pages would count as memory of the process."""
        try:
            return pa.OSFile(os.fsencode(path), "rb")  # a name need not be UTF-8
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """One positional read."""
        with self.open_input(path) as file:
            try:
                return pa.py_buffer(file.read_at(wanted.length, wanted.offset))
            except OSError as error:
                raise storage_error(error, "read", path) from error

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        """Creates the file; folders above it are created when they are missing."""
        return _new_file(path, sync_folder=sync_folder)

    def read_bytes(self, path: str) -> bytes:
        """All bytes of the file."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Temporary file, fsync, hard link, unlink, fsync of the folder.

        Where the link is there and its folder cannot be synced, a crash may still remove it: UNKNOWN.
        """
        try:
            temporary = self._write_temporary(path, data)
        except RetryableError as error:  # most often a full disk
            raise NotCreatedError(str(error)) from error
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
                fsync_folder(os.path.dirname(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise storage_error(error, "replace", path) from error

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """A second name of each file (files of tables never change); a copy where the file system has none."""
        folders = {os.path.dirname(target) for _, target in pairs}
        for folder in folders:
            make_folder(folder)
        for source, target in pairs:
            if not self._linked(source, target):
                self._copy_bytes(source, target)
        for folder in folders:
            fsync_folder(folder)

    def exists(self, path: str) -> bool:
        """True for a file."""
        return not _is_folder(path, otherwise=True)

    def exists_prefix(self, path: str) -> bool:
        """True for a folder."""
        return _is_folder(path, otherwise=False)

    def size(self, path: str) -> int:
        """Size in bytes."""
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise storage_error(error, "look at", path) from error

    def entries(self, path: str) -> Iterator[FileStatus]:
        """Sorted by name; those that vanish while they are listed, and links to nowhere, are left out."""
        statuses = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    try:
                        statuses.append(_status(entry))
                    except OSError as error:
                        if error.errno not in _NOWHERE:
                            raise
        except (FileNotFoundError, NotADirectoryError):
            return iter(())
        except OSError as error:
            raise storage_error(error, "list", path) from error
        return iter(sorted(statuses, key=lambda status: status.name))

    def delete(self, path: str) -> bool:
        """Removes a file."""
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error(error, "delete", path) from error
        return True

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """One by one."""
        deleted = failed = 0
        cause: StorageError | None = None
        for path in paths:
            try:
                deleted += self.delete(path)
            except StorageError as error:
                failed += 1
                cause = cause or error
                if in_turn:
                    break
        return Deleted(deleted, failed, cause)

    def delete_prefix(self, path: str) -> None:
        """Removes the folder."""
        delete_folder(path)

    def _write_temporary(self, path: str, data: bytes, *, sync: bool = True) -> str:
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}.{uuid.uuid4()}.tmp")
        output = _new_file(temporary, sync_file=sync, sync_folder=False)
        write_all(output, data)
        return temporary

    @staticmethod
    def _linked(source: str, target: str) -> bool:
        """Whether the file has a second name, and is young again: orphan cleaning leaves files alone that may be about
        to be committed."""
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise storage_error(error, "copy", source) from error
        try:
            os.utime(target)
        except OSError:  # of another owner
            with contextlib.suppress(OSError):
                os.unlink(target)
            return False
        return True

    def _copy_bytes(self, source: str, target: str) -> None:
        with self.open_input(source) as given:
            output = self.open_output(target)
            try:
                while data := given.read(_COPIED_BYTES):
                    output.write(data)
                output.close()
            finally:
                output.abort()

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


def _new_file(path: str, **synced: bool) -> LocalOutputFile:
    """Created; folders above it are when they are missing, which is asked where it fails."""
    try:
        return LocalOutputFile(path, **synced)
    except NotFoundError:
        make_folder(os.path.dirname(path))
        return LocalOutputFile(path, **synced)


def _is_folder(path: str, *, otherwise: bool) -> bool:
    """Whether the path is one; `otherwise` where nothing is there."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return otherwise
    except OSError as error:
        raise storage_error(error, "look at", path) from error


def _created(path: str) -> Created:
    """WON once the folder that names the file is synced."""
    try:
        fsync_folder(os.path.dirname(path))
    except OSError:
        return Created.UNKNOWN
    return Created.WON


def _status(entry: os.DirEntry[str]) -> FileStatus:
    is_folder = entry.is_dir()
    found = entry.stat()
    return FileStatus(
        name=entry.name,
        path=entry.path,
        size_bytes=0 if is_folder else found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        is_folder=is_folder,
        version=f"{found.st_ino}-{found.st_mtime_ns}",
    )
