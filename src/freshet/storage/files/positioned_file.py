"""A file at a store as a file object for pyarrow, which makes one read at a time: each has its bytes by a request, or
they are here already. What is requested ahead, the formats decide (`parquet/ranged_file`, `orc/stripe_file`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from freshet.storage.files.opening import Opening, read_part
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange


class PositionedFile(ABC):
    """What pyarrow reads of one file."""

    closed = False

    def __init__(self, env: Env, path: str, size_bytes: int, opening: Opening) -> None:
        assert env.reads is not None
        self._env = env
        self._reads = env.reads
        self._path = path
        self._size_bytes = size_bytes
        self._opening = opening
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
        """As the manifest says."""
        return self._size_bytes

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """From the start, from here or from the end."""
        self._position = offset + (0, self._position, self._size_bytes)[whence]
        return self._position

    def close(self) -> None:
        """Lets go of everything."""
        self.closed = True

    def read(self, length: int = -1) -> pa.Buffer:
        """Bytes from here on: held, or by a request."""
        left = self._size_bytes - self._position
        wanted = ByteRange(self._position, left if length < 0 else min(length, left))
        if wanted.length <= 0:
            return pa.py_buffer(b"")
        if wanted.offset >= self._opening.offset:
            found = self._opening.data.slice(wanted.offset - self._opening.offset, wanted.length)
        else:
            found = self._bytes(wanted)
        self._position += found.size
        return found

    @abstractmethod
    def _bytes(self, wanted: ByteRange) -> pa.Buffer:
        """These bytes, which begin before the opening."""

    def _part(self, wanted: ByteRange) -> pa.Buffer:
        """By a request."""
        return read_part(self._env, self._path, wanted, self._size_bytes)
