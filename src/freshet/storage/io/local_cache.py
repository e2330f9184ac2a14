"""A folder of immutable files on a local disk that all processes of one user on this machine share; folders for spilled
data (`ScratchFolders`).

    <root>/<folder>/<name>             published: complete, never changed, perhaps removed by anybody at any time
    <root>/<folder>/<name with a dot>/ the same, a folder of files
    <root>/<folder>/.<name>.<random>   being written

Or, in roots of their own, folders with a dot that are changed in place (`kept_folder`), by whoever has their lock.

A file is written under a name of its own and renamed: of several processes that write the same file each succeeds, and
the last rename wins, of a folder the first one. Readers map files; on a local disk a mapped file that is removed or
replaced stays readable until it is let go. The modification time of a file is when it was used last. Nothing here is
locked or synced: after a crash of the machine a file may hold anything, so every reader checks what it holds.

    <root>/.made-by-freshet            says that the root is ours

The root is `<parent>/<name>-<user id>`, which we make and mark: whoever names the parent, nothing beside it is ever
touched, and below it nothing is removed but what bears a name that we give. One that is another user's, or a link, is
refused, since another user could have prepared it; and so is one without the mark that holds anything else.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.local_errors import storage_error

LEFT_OVER_MS: Final = 60 * 60 * 1000
"""Unfinished files that were not written to for so long have been left by a process that ended."""

LOCK_SUFFIX: Final = ".lock"
MARK: Final = ".made-by-freshet"
_TEMPORARY: Final = "."
_LEFT_OVER: Final = re.compile(r"\..+\.([0-9a-f]{32}|lock)")
"""Unfinished files, and locks that did not stay, of processes that ended."""

SPILL_PREFIX: Final = "freshet-spill-"
_ATTEMPTS: Final = 10


class CacheFolder(Frozen):
    """What a root is called, and which names, relative to it, are given there."""

    name: str
    published: re.Pattern[str]


class CachedFile(Frozen):
    """A published file; `name` is relative to the root."""

    name: str
    size_bytes: int
    used_ms: int


class NewFile(Frozen):
    """A file that is being written to `sink`, under a name of its own."""

    path: str
    temporary: str
    sink: pa.NativeFile

    def write(self, data: Any) -> None:
        """Appends bytes."""
        try:
            self.sink.write(data)
        except OSError as error:
            raise storage_error(error, "write", self.path) from error

    def publish(self) -> None:
        """The file is complete, and takes the place of one of its name."""
        try:
            self.sink.close()
            os.replace(self.temporary, self.path)
        except OSError as error:
            raise storage_error(error, "write", self.path) from error

    def discard(self) -> None:
        """Removes what is not published; does nothing behind `publish`."""
        with suppress(OSError):
            self.sink.close()
        with suppress(OSError):
            os.unlink(self.temporary)


class NewFolder(Frozen):
    """A folder that is being filled, under a name of its own."""

    path: str
    temporary: str

    def publish(self) -> None:
        """The folder is complete. One that another process has published before stays."""
        try:
            os.rename(self.temporary, self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise storage_error(error, "write", self.path) from error
            self.discard()

    def discard(self) -> None:
        """Removes what is not published; does nothing behind `publish`."""
        shutil.rmtree(self.temporary, ignore_errors=True)


class LocalCache:
    """The files below one root. Holds no state, threads may share it."""

    def __init__(self, parent: str | None, folder: CacheFolder) -> None:
        """Without a parent the root lies in the system's folder for temporary files."""
        below = os.path.abspath(parent) if parent else tempfile.gettempdir()
        self.root = os.path.join(below, f"{folder.name}-{os.geteuid()}")
        self._published = folder.published

    def map(self, name: str) -> pa.Buffer | None:
        """The content of a file, mapped; None if it is not there."""
        path = self._path(name)
        try:
            self._check_root()
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                is_empty = os.fstat(descriptor).st_size == 0
                return pa.py_buffer(b"" if is_empty else mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, "map", path) from error

    def new_file(self, name: str) -> NewFile:
        """A file to be written; nobody sees it before it is published."""
        path, temporary = self._new(name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return NewFile(path, temporary, pa.OSFile(temporary, "wb"))
        except OSError as error:
            raise storage_error(error, "write", path) from error

    @contextmanager
    def writing(self, name: str) -> Iterator[pa.NativeFile]:
        """The same, published when the block ends without an error; else nothing of it stays."""
        file = self.new_file(name)
        try:
            yield file.sink
            file.publish()
        except OSError as error:
            raise storage_error(error, "write", file.path) from error
        finally:
            file.discard()

    def folder(self, name: str) -> str | None:
        """Where a published folder is; None if it is not there."""
        path = self._path(name)
        try:
            self._check_root()
            return path if stat.S_ISDIR(os.lstat(path).st_mode) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, "open", path) from error

    def new_folder(self, name: str) -> NewFolder:
        """A folder to be filled; nobody sees it before it is published."""
        path, temporary = self._new(name)
        try:
            os.makedirs(temporary)
        except OSError as error:
            raise storage_error(error, "write", path) from error
        return NewFolder(path, temporary)

    def _new(self, name: str) -> tuple[str, str]:
        """Where something of this name will be, and where it is until it is complete."""
        path = self._path(name)
        folder, base = os.path.split(path)
        try:
            self._make_root()
        except OSError as error:
            raise storage_error(error, "write", path) from error
        return path, os.path.join(folder, f"{_TEMPORARY}{base}.{uuid.uuid4().hex}")

    def remove(self, name: str) -> None:
        """Removes a file or a folder; it may be gone already."""
        path = self._path(name)
        if not self._is_marked():
            return
        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                # Under another name first: no process shall find half of it.
                going = os.path.join(os.path.dirname(path), f"{_TEMPORARY}{os.path.basename(path)}.{uuid.uuid4().hex}")
                os.rename(path, going)
                shutil.rmtree(going, ignore_errors=True)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "delete", path) from error
        with suppress(OSError):  # not empty
            os.rmdir(os.path.dirname(path))

    def note_use(self, name: str, now_ms: int) -> bool:
        """Says that a file is used; False when it is gone."""
        try:
            os.utime(self._path(name), ns=(now_ms * 1_000_000, now_ms * 1_000_000))
        except OSError:
            return False
        return True

    def files(self, now_ms: int, folder: str = "") -> list[CachedFile]:
        """What is published below a folder. Unfinished ones of processes that ended are removed on the way."""
        found: list[CachedFile] = []
        for name, is_published, is_left_over in self._names(folder) if self._is_marked() else ():
            path = os.path.join(self.root, name)
            with suppress(OSError):  # gone meanwhile
                status = os.lstat(path)
                used_ms = status.st_mtime_ns // 1_000_000
                if is_published:
                    found.append(CachedFile(name, _size(path, status), used_ms))
                elif is_left_over and now_ms - _touched_ms(path, status) > LEFT_OVER_MS:
                    shutil.rmtree(path) if stat.S_ISDIR(status.st_mode) else os.unlink(path)
        return found

    def _names(self, below: str = "") -> Iterator[tuple[str, bool, bool]]:
        """The files below a folder, relative to the root, folders with a dot among them; whether such a name is that of
        a published one, or of one that is unfinished."""
        for parent, folders, names in os.walk(os.path.join(self.root, below)):
            names += [name for name in folders if "." in name]
            folders[:] = [name for name in folders if "." not in name]
            for base in names:
                name = os.path.join(parent, base)[len(self.root) + 1 :]
                yield name, bool(self._published.fullmatch(name)), bool(_LEFT_OVER.fullmatch(base))

    def kept_folder(self, name: str) -> str:
        """A folder that its users change and lock themselves; made where it is not there."""
        path = self._path(name)
        try:
            self._make_root()
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise storage_error(error, "make", path) from error
        return path

    @contextmanager
    def locked(self, name: str, *, file_stays: bool = True) -> Iterator[bool]:
        """Holds the lock of a name while the block runs; False where somebody else has it, in this process or another.

        Where the file of the lock does not stay, another process may take a lock of this name a moment too early. The
        operating system takes the lock away when the process ends, however it ends.
        """
        path = os.path.normpath(os.path.join(self.root, f"{name}{LOCK_SUFFIX}"))
        if not path.startswith(f"{self.root}/"):
            raise self._no_name(name)
        try:
            self._make_root()
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise storage_error(error, "lock", path) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                try:
                    yield True
                finally:
                    if not file_stays:
                        with suppress(OSError):
                            os.unlink(path)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        """Room on the disk of the root."""
        try:
            self._make_root()
            return shutil.disk_usage(self.root).free
        except OSError as error:
            raise storage_error(error, "use", self.root) from error

    def _path(self, name: str) -> str:
        if not self._published.fullmatch(name):
            raise self._no_name(name)
        return os.path.join(self.root, name)

    def _no_name(self, name: str) -> InvalidRequestError:
        return InvalidRequestError(f"{name!r} is no name of a file in {self.root}; nothing is kept under it")

    def _make_root(self) -> None:
        if self._is_marked():
            self._check_root()
            return
        os.makedirs(os.path.dirname(self.root), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self.root, mode=0o700)
        self._check_root()
        # Heads before this one made such folders without the mark.
        for name, *is_ours in self._names():
            if not any(is_ours) and name != MARK:
                raise InvalidRequestError(
                    f"the folder {self.root} has no {MARK} and holds {name!r}, which is none of Freshet's: move it away"
                )
        with open(os.path.join(self.root, MARK), "wb"):
            pass

    def _is_marked(self) -> bool:
        return os.path.isfile(os.path.join(self.root, MARK))

    def _check_root(self) -> None:
        status = os.lstat(self.root)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise InvalidRequestError(f"{self.root} is another user's, a link, or no folder; remove it")


def _size(path: str, status: os.stat_result) -> int:
    """The bytes of a file; of a folder what its files take together."""
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    with os.scandir(path) as entries:
        return sum(entry.stat().st_size for entry in entries)


def _touched_ms(path: str, status: os.stat_result) -> int:
    """The time of a file; of a folder when the last of its files was written to."""
    times = [status.st_mtime_ns]
    if stat.S_ISDIR(status.st_mode):
        with os.scandir(path) as entries:
            times += [entry.stat().st_mtime_ns for entry in entries]
    return max(times) // 1_000_000


class ScratchFolders:
    """The folders for spilled data that one process made below one root; those whose owner has ended are removed. May
    be shared by threads.

        <scratch root>/freshet-spill-<random>     locked (flock on the folder itself) by the process that made it
                                             /.made-by-freshet    without it, nothing there is removed

    The operating system takes the lock away when the process ends, however it ends, so a folder that can be locked has
    no owner any more and is removed by the next process that makes such a folder, or by orphan removal. Process ids
    would not do: they are reused, and containers that share a disk have the same ones. A child that was forked while a
    folder was in use holds its lock too, until it ends.
    """

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._descriptors: dict[str, int] = {}
        self._has_swept = False

    def new(self) -> str:
        """A new empty folder; the first call makes the root and removes what dead processes have left."""
        root = self._root or tempfile.gettempdir()
        try:
            if not self._has_swept:
                self._has_swept = True
                os.makedirs(root, exist_ok=True)
                self.sweep()
            for _ in range(_ATTEMPTS):
                folder = tempfile.mkdtemp(prefix=SPILL_PREFIX, dir=root)
                descriptor = _locked(folder)
                if descriptor is None:  # another process swept it between its making and its lock
                    continue
                with self._lock:
                    self._descriptors[folder] = descriptor
                with open(os.path.join(folder, MARK), "wb"):
                    return folder
            raise OSError(f"{_ATTEMPTS} new folders were removed by others at once")
        except OSError as error:
            raise storage_error(error, "create a scratch folder in", root) from error

    def release(self, folder: str) -> None:
        """Removes a folder that `new` gave, with all in it."""
        with self._lock:
            descriptor = self._descriptors.pop(folder, None)
        if descriptor is None:
            return
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, "delete", folder) from error
        finally:
            os.close(descriptor)

    def sweep(self) -> list[str]:
        """Removes the folders whose owners are dead, as far as this user may; returns them."""
        root = self._root or tempfile.gettempdir()
        swept = []
        for name in sorted(os.listdir(root)):
            folder = os.path.join(root, name)
            descriptor = _locked(folder) if name.startswith(SPILL_PREFIX) else None
            if descriptor is None:
                continue
            with suppress(OSError):  # another user's, or busy: it stays for its owner
                if os.path.isfile(os.path.join(folder, MARK)):
                    shutil.rmtree(folder)
                else:  # its owner died before it was marked, or it is none of ours
                    os.rmdir(folder)
                swept.append(folder)
            os.close(descriptor)
        return swept


def _locked(folder: str) -> int | None:
    """The descriptor of the folder, locked; None when it lives, is gone or is not ours."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except OSError:
        is_there = False
    if is_there:
        return descriptor
    os.close(descriptor)
    return None
