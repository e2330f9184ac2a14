"""An object as a file that pyarrow reads."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from freshet.storage.io.ranges import ByteRange


class ObjectInput(io.RawIOBase):
    """Random reads of one object, each a request."""

    def __init__(self, read: Callable[[ByteRange], pa.Buffer], size_bytes: int) -> None:
        self._read = read
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def seekable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def size(self) -> int:
        """Size of the object."""
        return self._size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position, without a request."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> Any:
        """A buffer, which pyarrow takes as it is."""
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        found = self._read(ByteRange(self._position, length))
        self._position += found.size
        return found
