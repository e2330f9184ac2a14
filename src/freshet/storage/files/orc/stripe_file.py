"""A large ORC file at a store, as a file object for pyarrow: a stripe comes by one request, the next one ahead."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Final

import pyarrow as pa

from freshet.storage.files.opening import Opening, read_part
from freshet.storage.files.orc.footer import Stripe
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange

STRIPE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Columns of a larger stripe are read by a request for each of their streams."""
_HELD: Final = 4
"""Stripes at most, those under way included; as many may be read at a time."""


class StripeFile:
    """What pyarrow reads of one file. It makes one read at a time."""

    closed = False

    def __init__(self, env: Env, path: str, size_bytes: int, opening: Opening) -> None:
        assert env.reads is not None
        self._env = env
        self._reads = env.reads
        self._path = path
        self._size_bytes = size_bytes
        self._opening = opening
        self._position = 0
        self._lock = Lock()
        self._coming: dict[int, tuple[int, Future[pa.Buffer]]] = {}
        """Stripes by their offset, with their lengths."""

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
        self._coming.clear()

    def ahead(self, stripes: Sequence[Stripe], at: int) -> None:
        """Requests the stripe that is about to be read, and the one behind it."""
        with self._lock:
            for stripe in stripes[at : at + 2]:
                if stripe.offset not in self._coming and stripe.length <= STRIPE_BYTES_MAX:
                    wanted = ByteRange(stripe.offset, stripe.length)
                    part = partial(read_part, self._env, self._path, wanted, self._size_bytes)
                    self._coming[stripe.offset] = stripe.length, self._reads.submit(part)
            while len(self._coming) > _HELD:
                self._coming.pop(min(self._coming))

    def read(self, length: int = -1) -> pa.Buffer:
        """Bytes from here on: of a stripe that was requested, or by a request."""
        left = self._size_bytes - self._position
        wanted = ByteRange(self._position, left if length < 0 else min(length, left))
        if wanted.length <= 0:
            return pa.py_buffer(b"")
        found = self._held(wanted)
        self._position += found.size
        return found

    def _held(self, wanted: ByteRange) -> pa.Buffer:
        if wanted.offset >= self._opening.offset:
            return self._opening.data.slice(wanted.offset - self._opening.offset, wanted.length)
        with self._lock:
            coming = dict(self._coming)
        for start, (length, part) in coming.items():
            if start <= wanted.offset and wanted.end <= start + length:
                return part.result().slice(wanted.offset - start, wanted.length)
        return read_part(self._env, self._path, wanted, self._size_bytes)
