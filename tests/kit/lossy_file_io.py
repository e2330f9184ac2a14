"""A store whose answers get lost: what a caller does who does not know whether a file was created."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from freshet.storage.io.file_io import Created, FileIO


class LossyFileIO:
    """Another `FileIO` of which the next answers to exclusive creates are lost.

    `takes_effect` says for each of these creates whether the request arrived; further ones are answered.
    """

    def __init__(self, inner: FileIO, *takes_effect: bool) -> None:
        self._inner = inner
        self._losses: Iterator[bool] = iter(takes_effect)

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """UNKNOWN while answers get lost."""
        takes_effect = next(self._losses, None)
        if takes_effect is None:
            return self._inner.create_exclusive(path, data)
        if takes_effect:
            self._inner.create_exclusive(path, data)
        return Created.UNKNOWN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
