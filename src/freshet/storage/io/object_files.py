"""One object as a file: read by pyarrow (`ObjectInput`), or on its way into the store: gathered, then one put, or a
multipart upload in a thread of its own.

A file of up to `PART_BYTES` is one put. A larger one goes as parts while it is written; nothing of it shows before its
end. An upload that is given up is aborted at the store. One whose process is killed leaves parts that nobody sees and
that cost money: a lifecycle rule of the bucket removes them (`AbortIncompleteMultipartUpload`).

Memory: the part that is gathered, one that the client takes and `UPLOADS_MAX` on their way; a full part is handed over
when the client asks for one, and not queued. Measured: 26 MB for each of 16 files of 64 MB that are written at once;
100 MB in pieces of 64 KB in 0.55 s, where one put by the client takes 0.55 s (versitygw, same machine).
"""

from __future__ import annotations

import io
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from freshet.storage.exceptions import StorageError
from freshet.storage.io.file_io import WriteOnly
from freshet.storage.io.ranges import ByteRange

PART_BYTES: Final = 6 * 1024 * 1024
"""The size of a part of a multipart upload; S3 wants 5 MB at least, and takes 10,000 parts."""

UPLOADS_MAX: Final = 2
"""Parts of one file that are on their way at once."""

_POLL_S: Final = 0.2

Parts: TypeAlias = Iterator[bytes | bytearray]


class Uploads(Protocol):
    """What a store does with a data file."""

    def put_new(self, path: str, data: bytes) -> None:
        """Creates the object, which must not exist yet."""

    def check_new(self, path: str) -> None:
        """Raises where there is such an object."""

    def put_parts(self, path: str, parts: Parts) -> None:
        """Uploads the parts; an error of the iterator aborts the upload, and is raised."""


class ObjectOutputFile(WriteOnly):
    """Bytes gathered until they fill a part; from then on a multipart upload."""

    def __init__(self, uploads: Uploads, path: str) -> None:
        self._uploads = uploads
        self._path = path
        self._buffer = bytearray()
        self._upload: _Upload | None = None
        self._position = 0
        self.closed = False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes."""
        view = memoryview(data).cast("B")
        self._position += view.nbytes
        start = 0
        while view.nbytes - start > PART_BYTES - len(self._buffer):
            end = start + PART_BYTES - len(self._buffer)
            self._buffer += view[start:end]
            start = end
            self._send()
        self._buffer += view[start:]
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def flush(self) -> None:
        """Nothing to do: a part goes when it is full."""

    def close(self) -> None:
        """The object appears."""
        if self.closed:
            return
        self.closed = True
        if self._upload is None:
            self._uploads.put_new(self._path, bytes(self._buffer))
        else:
            self._send()
            self._upload.finish()
        self._buffer = bytearray()

    def abort(self) -> None:
        """Nothing of it shows, nor stays at the store."""
        self.closed = True
        self._buffer = bytearray()
        if self._upload is not None:
            self._upload.abort()
            self._upload = None

    def _send(self) -> None:
        if self._upload is None:
            self._uploads.check_new(self._path)
            self._upload = _Upload(lambda parts: self._uploads.put_parts(self._path, parts))
        part, self._buffer = self._buffer, bytearray()
        self._upload.send(part)


class _Aborted(Exception):
    """Ends an upload from within."""


class _Upload:
    """A thread that uploads the parts that it is given."""

    def __init__(self, upload: Callable[[Parts], None]) -> None:
        self._parts: queue.SimpleQueue[bytes | bytearray | None] = queue.SimpleQueue()
        self._wanted = threading.Semaphore(0)
        self._is_aborted = False
        self._is_complete = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(upload,), name="freshet-upload", daemon=True)
        self._thread.start()

    def send(self, part: bytes | bytearray) -> None:
        """Waits while others are on their way; raises what the upload has raised."""
        self._put(part)

    def finish(self) -> None:
        """Returns when the object is there."""
        self._put(None)
        self._thread.join()
        if not self._is_complete:
            raise self._error or RuntimeError("the thread of an upload has died")

    def abort(self) -> None:
        """Returns when the store has been asked to drop the parts."""
        self._is_aborted = True
        self._thread.join()

    def _put(self, part: bytes | bytearray | None) -> None:
        while not self._wanted.acquire(timeout=_POLL_S):
            if not self._thread.is_alive():
                raise self._error or RuntimeError("the thread of an upload has died")
        self._parts.put(part)

    def _run(self, upload: Callable[[Parts], None]) -> None:
        try:
            upload(self._iterate())
            self._is_complete = True
        except _Aborted:
            pass
        except (StorageError, RuntimeError, MemoryError) as error:
            self._error = error  # raised in the thread of the writer

    def _iterate(self) -> Parts:
        while True:
            self._wanted.release()
            part = self._next()
            if part is None:
                return
            yield part

    def _next(self) -> bytes | bytearray | None:
        while not self._is_aborted:
            with suppress(queue.Empty):
                return self._parts.get(timeout=_POLL_S)
        raise _Aborted


class PositionedReads(ABC):
    """What pyarrow asks of a Python file object, answered for a file of which any part is read at its place."""

    closed = False

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def writable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def seekable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def size(self) -> int:
        """Size of the file."""
        return self._size_bytes

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """From the start, from here or from the end; without a request."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def close(self) -> None:
        """Lets go of everything."""
        self.closed = True

    def read(self, length: int | None = -1) -> pa.Buffer:
        """Bytes from here on, in a buffer, which pyarrow takes as it is."""
        left = max(0, self._size_bytes - self._position)
        wanted = ByteRange(self._position, left if length is None or length < 0 else min(length, left))
        found = self._read_at(wanted) if wanted.length else pa.py_buffer(b"")
        self._position += found.size
        return found

    @abstractmethod
    def _read_at(self, wanted: ByteRange) -> pa.Buffer:
        """These bytes, which are in the file."""


class ObjectInput(PositionedReads):
    """Random reads of one object, each a request."""

    def __init__(self, read: Callable[[ByteRange], pa.Buffer], size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._read = read

    def _read_at(self, wanted: ByteRange) -> pa.Buffer:
        return self._read(wanted)
