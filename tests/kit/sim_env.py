"""A world in memory in which programs crash, disks fail and time does not pass: `SimDisk`, `SimFileIO`, `SimEnv`.

Every change of the disk is a numbered mutation (from 0). A `Fault` names one of them, or a `CrashPoint`:

| fault                      | what the program sees                                   | what is on disk |
|----------------------------|---------------------------------------------------------|-----------------|
| CRASH, takes_effect False  | ends; every later call of the same process ends it, too | as before       |
| CRASH, takes_effect True   | the same                                                | changed         |
| ERROR, takes_effect False  | `StorageError`                                          | as before       |
| ERROR, takes_effect True   | `StorageError`: the outcome is unknown to the program   | changed         |
| FULL                       | from there on each write is refused, removals are done  | as before       |

A crash drops what was not synced: a data file that was open keeps a random part of its bytes, or none; a name whose
folder was not synced may be gone, and a hint may be empty. `SimDisk.boot`
gives the next process: same disk, new `SimEnv`. All randomness comes from one seed, so a failing run is replayed by
its seed and fault.
"""

from __future__ import annotations

import errno
import os
import random
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.file_io import Created, Deleted, FileStatus
from freshet.storage.io.local_cache import CacheFolder, LocalCache
from freshet.storage.io.local_errors import storage_error
from freshet.storage.io.memory_file_io import MemoryOutputFile
from freshet.storage.io.ranges import ByteRange, ReadCosts
from tests.kit.sim_folders import SimFolders

T = TypeVar("T")

_FREEING: Final = frozenset({"delete", "rmdir", "rename"})
"""What a full disk does nevertheless."""
START_MS: Final = 1_700_000_000_000
"""Clock of a new disk."""


class Crash(BaseException):
    """The process is dead; not an `Exception`, so that no code under test survives it."""


class FaultKind(StrEnum):
    """What goes wrong."""

    CRASH = "crash"
    ERROR = "error"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: at the mutations [at, at + count), or at the nth visit of a crash point."""

    kind: FaultKind = FaultKind.CRASH
    at: int | None = None
    count: int = 1
    takes_effect: bool = False
    point: CrashPoint | None = None
    visit: int = 1

    def hits(self, mutation: int) -> bool:
        """True when the mutation of this number goes wrong."""
        if self.at is None:
            return False
        return self.at <= mutation and (self.kind is FaultKind.FULL or mutation < self.at + self.count)


@dataclass(slots=True)
class _File:
    content: bytes
    modified_ms: int
    is_open: bool = False
    is_named: bool = True
    """The name in its folder is synced."""
    is_hint: bool = False
    """Overwritten without a sync: a crash may leave it empty."""
    version: str = ""


@dataclass(slots=True)
class SimDisk:
    """The bytes that outlive processes, and the clock."""

    seed: int = 0
    files: dict[str, _File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    now_ms: int = START_MS
    lock: threading.RLock = field(default_factory=threading.RLock)
    boots: int = 0
    versions: int = 0
    has_crashed: bool = False
    caches: tempfile.TemporaryDirectory[str] | None = None
    """Where the local caches of the processes on this disk are, once there are any."""
    created: list[tuple[str, bytes]] = field(default_factory=list)
    """Every exclusive create that took effect, also of files that are gone by now."""

    def boot(self, fault: Fault | None = None) -> SimEnv:
        """Starts a process on this disk; bytes that no earlier process synced are lost now."""
        chance = random.Random(f"{self.seed}/{self.boots}")
        self.boots += 1
        with self.lock:
            for path, file in list(self.files.items()):
                if file.is_open:
                    self._drop_unsynced(path, file, chance)
                elif self.has_crashed and not file.is_named and chance.random() < 0.5:
                    del self.files[path]
                elif self.has_crashed and file.is_hint and chance.random() < 0.3:
                    file.content = b""
            self.has_crashed = False
        return SimEnv(self, fault, chance)

    def copy(self) -> SimDisk:
        """Another disk with the same bytes, for many tests that begin with one story."""
        files = {path: replace(file) for path, file in self.files.items()}
        more = {"folders": set(self.folders), "created": list(self.created), "lock": threading.RLock(), "caches": None}
        return replace(self, files=files, **more)

    def cache_folder(self) -> str:
        """A folder for local caches. File names repeat from one simulation to the next, so it belongs to this disk."""
        with self.lock:
            if self.caches is None:
                self.caches = tempfile.TemporaryDirectory(prefix="freshet-sim-")
            return self.caches.name

    def names(self) -> set[str]:
        """Paths of all files."""
        return set(self.files)

    def _drop_unsynced(self, path: str, file: _File, chance: random.Random) -> None:
        if chance.random() < 0.5:
            del self.files[path]
            return
        file.content = file.content[: chance.randrange(len(file.content) + 1)]
        file.is_open = False


class SimEnv(Env):
    """One process: dies at its fault and stays dead."""

    file_io: SimFileIO

    def __init__(self, disk: SimDisk, fault: Fault | None, chance: random.Random) -> None:
        super().__init__(SimFileIO(disk, fault))
        self._disk = disk
        self._fault = fault
        self._chance = chance
        self.visits: Counter[CrashPoint] = Counter()

    def now_ms(self) -> int:
        """The clock of the disk; each look takes a millisecond."""
        with self._disk.lock:
            self._disk.now_ms += 1
            return self._disk.now_ms

    def creation_time_ms(self) -> int:
        """UTC everywhere."""
        return self.now_ms()

    def new_uuid(self) -> str:
        """From the seed."""
        with self._disk.lock:
            return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def local_cache(self, folder: CacheFolder, parent: str | None = None) -> LocalCache:
        """Below a real folder of this disk, unless another is given."""
        return LocalCache(parent or self._disk.cache_folder(), folder)

    def jitter(self) -> float:
        """From the seed."""
        with self._disk.lock:
            return self._chance.random()

    def sleep_s(self, seconds: float) -> None:
        """Moves the clock, waits for nothing."""
        with self._disk.lock:
            self._disk.now_ms += int(seconds * 1000)

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """One after the other: what is on disk at each moment must not depend on threads."""
        return [call() for call in calls]

    def for_tables(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """One after the other, as `together`."""
        return self.together(calls)

    def run_later(self, name: str, work: Callable[[], None]) -> None:
        """At once: what is on disk at each moment must not depend on threads."""
        work()

    def run_gradually(self, name: str, steps: Callable[[], Iterator[None]]) -> None:
        """At once as well."""
        for _ in steps():
            pass

    def reach(self, point: CrashPoint) -> None:
        """Dies here if this is the fault."""
        self.file_io.check_alive()
        self.visits[point] += 1
        fault = self._fault
        if fault is not None and fault.point is point and fault.visit == self.visits[point]:
            self.file_io.die()


class SimFileIO:
    """`FileIO` of one process over a `SimDisk`."""

    read_costs = ReadCosts(whole_bytes=0, gap_bytes=0, request_bytes=1 << 40)

    def __init__(self, disk: SimDisk, fault: Fault | None = None) -> None:
        self.folders = SimFolders(self, disk)
        self._disk = disk
        self._fault = fault
        self._is_alive = True
        self.mutation_count = 0
        self.read_count = 0
        self.read_bytes_count = 0
        self.journal: list[str] = []
        """Every mutation as `operation path`; the index is its number."""

    def check_alive(self) -> None:
        """Ends a process that has crashed already."""
        if not self._is_alive:
            raise Crash("the process is dead")

    def die(self) -> None:
        """Crashes now."""
        self._is_alive = False
        self._disk.has_crashed = True
        raise Crash(f"crash after {self.mutation_count} mutations")

    def open_input(self, path: str) -> pa.NativeFile:
        """A reader over the bytes of this moment."""
        return pa.BufferReader(self.read_bytes(path))

    def open_output(self, path: str, *, sync_folder: bool = True) -> SimOutputFile:
        """A new file, not synced until it is closed."""
        with self._disk.lock:
            if path in self._disk.files:
                raise AlreadyExistsError(f"{path} exists already")
            self._mutate("open", path, lambda: self._put(path, b"", is_open=True))
            return SimOutputFile(self, path, sync_folder=sync_folder)

    def read_bytes(self, path: str) -> bytes:
        """All bytes."""
        self.check_alive()
        with self._disk.lock:
            file = self._disk.files.get(path)
            if file is None:
                raise NotFoundError(f"no such file: {path}")
            self.read_count += 1
            self.read_bytes_count += len(file.content)
            return file.content

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Atomic and durable."""
        self.check_alive()
        with self._disk.lock:
            if path in self._disk.files:
                return Created.LOST
            self._mutate("create", path, lambda: self._create(path, data))
            return Created.WON

    def asked_again(self, path: str, data: bytes) -> Created:
        """By the bytes."""
        try:
            return Created.WON if self.read_bytes(path) == data else Created.LOST
        except NotFoundError:
            return Created.UNKNOWN

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Atomic; durable when synced."""
        self._mutate("overwrite", path, lambda: self._put(path, data, is_hint=not sync))

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """A part of the bytes."""
        return pa.py_buffer(self.read_bytes(path)[wanted.offset : wanted.end])

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One mutation per file, durable: a crash may come between."""
        for source, target in pairs:
            content = self.read_bytes(source)
            self._mutate("copy", target, partial(self._create, target, content))

    def exists(self, path: str) -> bool:
        """True for files."""
        self.check_alive()
        with self._disk.lock:
            return path in self._disk.files

    def exists_prefix(self, path: str) -> bool:
        """True for folders."""
        self.check_alive()
        with self._disk.lock:
            return path.rstrip("/") in self._disk.folders

    def size(self, path: str) -> int:
        """Size in bytes."""
        self.check_alive()
        with self._disk.lock:
            if path not in self._disk.files:
                raise NotFoundError(f"no such file: {path}")
            return len(self._disk.files[path].content)

    def entries(self, path: str) -> Iterator[FileStatus]:
        """By name."""
        self.check_alive()
        prefix = path.rstrip("/") + "/"
        with self._disk.lock:
            entries = [
                FileStatus(path[len(prefix) :], path, len(file.content), file.modified_ms, False, file.version)
                for path, file in self._disk.files.items()
                if path.startswith(prefix) and "/" not in path[len(prefix) :]
            ]
            entries += [
                FileStatus(path[len(prefix) :], path, 0, START_MS, is_folder=True)
                for path in self._disk.folders
                if path.startswith(prefix) and "/" not in path[len(prefix) :]
            ]
        return iter(sorted(entries, key=lambda status: status.name))

    def delete(self, path: str) -> bool:
        """Removes a file."""
        self.check_alive()
        with self._disk.lock:
            if path not in self._disk.files:
                return False
            self._mutate("delete", path, lambda: self._disk.files.pop(path))
            return True

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """One mutation per file: a crash may come between."""
        deleted = failed = 0
        for path in paths:
            try:
                deleted += self.delete(path)
            except StorageError:
                failed += 1
                if in_turn:
                    break
        return Deleted(deleted, failed)

    def delete_prefix(self, path: str) -> None:
        """Removes everything below, one mutation per file."""
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._disk.names() if name.startswith(prefix)]:
            self.delete(name)
        with self._disk.lock:
            self._disk.folders -= {name for name in self._disk.folders if name == path or name.startswith(prefix)}

    def _create(self, path: str, data: bytes) -> None:
        self._put(path, data, is_named=False)
        self._sync_names(path)
        self._disk.created.append((path, bytes(data)))

    def _sync_names(self, path: str) -> None:
        folder = path.rsplit("/", 1)[0]
        for name, file in self._disk.files.items():
            if name.rsplit("/", 1)[0] == folder:
                file.is_named = True

    def _put(
        self, path: str, data: bytes, *, is_open: bool = False, is_named: bool = True, is_hint: bool = False
    ) -> None:
        self.folders.make(path.rsplit("/", 1)[0])
        self._disk.versions += 1
        version = str(self._disk.versions)
        self._disk.files[path] = _File(bytes(data), self._disk.now_ms, is_open, is_named, is_hint, version)

    def _mutate(self, operation: str, path: str, change: object) -> None:
        assert callable(change)
        self.check_alive()
        with self._disk.lock:
            number = self.mutation_count
            self.mutation_count += 1
            self.journal.append(f"{operation} {path}")
            fault = self._fault
            if fault is None or not fault.hits(number):
                change()
                return
            if fault.kind is FaultKind.FULL:
                if operation not in _FREEING:
                    raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), operation, path)
                change()
                return
            if fault.takes_effect:
                change()
            if fault.kind is FaultKind.CRASH:
                self.die()
            raise StorageError(f"injected error at mutation {number}: {operation} {path}")


class SimOutputFile(MemoryOutputFile):
    """A file that shows while it is written; its bytes are safe after `close`."""

    def __init__(self, file_io: SimFileIO, path: str, *, sync_folder: bool = True) -> None:
        super().__init__(self._show_closed)
        self._is_named = sync_folder
        self._file_io = file_io
        self._path = path

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends; unsynced."""
        self._file_io.check_alive()
        count = super().write(data)
        with self._file_io._disk.lock:
            self._file_io._put(self._path, bytes(self._buffer), is_open=True)
        return count

    def abort(self) -> None:
        """Removes the file."""
        if not self.closed:
            self.closed = True
            self._file_io.delete(self._path)

    def _show_closed(self, data: bytes) -> None:
        self._file_io._mutate(
            "close", self._path, lambda: self._file_io._put(self._path, data, is_named=self._is_named)
        )
