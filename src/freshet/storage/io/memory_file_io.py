"""Files in the memory of this process: a store without folders, as object stores are.

For tests and trials whose subject is not the disk. Nothing survives the process, and other processes see nothing of it.
A path is a name like any other: `/w/t/x` and `memory:/w/t/x` are two files. Listings come in pages, as those of
stores do.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.file_io import Created, Deleted, FileStatus, Folders, OutputFile, WriteOnly, exists_already
from freshet.storage.io.ranges import ByteRange, ReadCosts

PAGE_ENTRIES: Final = 1000
"""Entries of a page of a listing; as many as S3 gives."""


class _File(Frozen):
    content: bytes
    modified_ms: int
    version: str


class MemoryFileIO:
    """`FileIO` on a dictionary."""

    read_costs = ReadCosts(whole_bytes=0, gap_bytes=0, request_bytes=1 << 40)
    folders: Folders | None = None

    def __init__(self, *, page_entries: int = PAGE_ENTRIES) -> None:
        self._page_entries = page_entries
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._names: list[str] = []
        """Sorted."""
        self._versions = 0

    def open_input(self, path: str) -> pa.NativeFile:
        """A reader of the bytes of this moment."""
        return pa.BufferReader(self._file(path).content)

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """A view of the bytes."""
        content = pa.py_buffer(self._file(path).content)
        start, end = min(wanted.offset, content.size), min(wanted.end, content.size)
        return content.slice(start, end - start)

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        """A new file, which is there once it is closed."""
        if self.exists(path):
            raise exists_already(path)
        return MemoryOutputFile(partial(self._create, path))

    def read_bytes(self, path: str) -> bytes:
        """All bytes of the file."""
        return self._file(path).content

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """Never UNKNOWN."""
        with self._lock:
            if path in self._files:
                return Created.LOST
            self._put(path, data)
            return Created.WON

    def asked_again(self, path: str, data: bytes) -> Created:
        """Compares the bytes."""
        with self._lock:
            file = self._files.get(path)
        if file is None:
            return Created.UNKNOWN
        return Created.WON if file.content == data else Created.LOST

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces the bytes at once."""
        with self._lock:
            self._put(path, data)

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """The same bytes under other names."""
        for source, target in pairs:
            content = self._file(source).content
            with self._lock:
                self._put(target, content)

    def exists(self, path: str) -> bool:
        """True for a file."""
        return path in self._files

    def exists_prefix(self, path: str) -> bool:
        """True where files lie below."""
        return bool(self._page(_prefix(path), _prefix(path), 1)[0])

    def size(self, path: str) -> int:
        """Size in bytes."""
        return len(self._file(path).content)

    def entries(self, path: str) -> Iterator[FileStatus]:
        """By pages, in the order of the names of all files: `a-b` before a folder `a`."""
        prefix = after = _prefix(path)
        while after:
            page, after = self._page(prefix, after, self._page_entries)
            yield from page

    def delete(self, path: str) -> bool:
        """Removes a file."""
        with self._lock:
            return self._remove(path)

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """All at once."""
        with self._lock:
            return Deleted(sum(self._remove(path) for path in paths))

    def delete_prefix(self, path: str) -> None:
        """All at once."""
        prefix = _prefix(path)
        with self._lock:
            start, end = bisect_left(self._names, prefix), bisect_left(self._names, _after(prefix))
            for name in self._names[start:end]:
                del self._files[name]
            del self._names[start:end]

    def _file(self, path: str) -> _File:
        with self._lock:
            file = self._files.get(path)
        if file is None:
            raise NotFoundError(f"cannot read {path}: there is no such file; check the path, or whether it was expired")
        return file

    def _create(self, path: str, data: bytes) -> None:
        if self.create_exclusive(path, data) is Created.LOST:  # another has made one of this name meanwhile
            raise exists_already(path)

    def _put(self, path: str, data: bytes) -> None:
        if path not in self._files:
            insort(self._names, path)
        self._versions += 1
        self._files[path] = _File(bytes(data), time.time_ns() // 1_000_000, str(self._versions))

    def _remove(self, path: str) -> bool:
        if self._files.pop(path, None) is None:
            return False
        del self._names[bisect_left(self._names, path)]
        return True

    def _page(self, prefix: str, start: str, most: int) -> tuple[list[FileStatus], str]:
        """Entries directly below the prefix from a name on, and the name at which the next page begins, if any."""
        page: list[FileStatus] = []
        with self._lock:
            while (at := bisect_left(self._names, start)) < len(self._names) and self._names[at].startswith(prefix):
                if len(page) == most:
                    return page, start
                path = self._names[at]
                name, slash, _ = path[len(prefix) :].partition("/")
                if slash:
                    page.append(FileStatus(name, f"{prefix}{name}", 0, 0, is_folder=True))
                    start = _after(f"{prefix}{name}/")
                else:
                    file = self._files[path]
                    page.append(FileStatus(name, path, len(file.content), file.modified_ms, False, file.version))
                    start = f"{path}\0"
        return page, ""


class MemoryOutputFile(WriteOnly):
    """Bytes gathered until `close`, which hands them to `finish`."""

    def __init__(self, finish: Callable[[bytes], None]) -> None:
        self._finish = finish
        self._buffer = bytearray()
        self.closed = False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes."""
        self._buffer += memoryview(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return len(self._buffer)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """The file appears."""
        if not self.closed:
            self._finish(bytes(self._buffer))
            self.closed = True

    def abort(self) -> None:
        """Drops the bytes."""
        self.closed = True


def _prefix(path: str) -> str:
    return f"{path.rstrip('/')}/"


def _after(prefix: str) -> str:
    """The first text after all that begin with this prefix, which ends in a slash."""
    return f"{prefix[:-1]}0"
