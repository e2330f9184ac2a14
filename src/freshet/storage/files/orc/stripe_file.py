"""A large ORC file at a store, as a file object for pyarrow: a stripe comes by one request, the next one ahead."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Final

import pyarrow as pa

from freshet.storage.files.opening import Opening
from freshet.storage.files.orc.footer import Stripe
from freshet.storage.files.positioned_file import PositionedFile
from freshet.storage.io.env import Env
from freshet.storage.io.ranges import ByteRange

STRIPE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Columns of a larger stripe are read by a request for each of their streams."""
_HELD: Final = 4
"""Stripes at most, those under way included; as many may be read at a time."""


class StripeFile(PositionedFile):
    """What pyarrow reads of one file."""

    def __init__(self, env: Env, path: str, size_bytes: int, opening: Opening) -> None:
        super().__init__(env, path, size_bytes, opening)
        self._lock = Lock()
        self._coming: dict[int, tuple[int, Future[pa.Buffer]]] = {}
        """Stripes by their offset, with their lengths."""

    def close(self) -> None:
        super().close()
        self._coming.clear()

    def ahead(self, stripes: Sequence[Stripe], at: int) -> None:
        """Requests the stripe that is about to be read, and the one behind it."""
        with self._lock:
            for stripe in stripes[at : at + 2]:
                if stripe.offset not in self._coming and stripe.length <= STRIPE_BYTES_MAX:
                    part = partial(self._part, ByteRange(stripe.offset, stripe.length))
                    self._coming[stripe.offset] = stripe.length, self._reads.submit(part)
            while len(self._coming) > _HELD:
                self._coming.pop(min(self._coming))

    def _bytes(self, wanted: ByteRange) -> pa.Buffer:
        with self._lock:
            coming = dict(self._coming)
        for start, (length, part) in coming.items():
            if start <= wanted.offset and wanted.end <= start + length:
                return part.result().slice(wanted.offset - start, wanted.length)
        return self._part(wanted)
