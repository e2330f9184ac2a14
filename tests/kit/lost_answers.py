"""A store whose answers get lost: what a caller does who does not know whether a file was created."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshet.storage.exceptions import StorageError
from freshet.storage.io.file_io import Created, FileIO


@dataclass
class LostAnswers:
    """Another store of which the next answers to exclusive creates of snapshots are lost: before they take effect, or
    after; as UNKNOWN, or as an error."""

    inner: FileIO
    takes_effect: bool
    is_error: bool = False
    left: int = 1
    asked: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_exclusive(self, path: str, data: bytes) -> Created:
        if "/snapshot-" not in path or not self.left:
            return self.inner.create_exclusive(path, data)
        self.left -= 1
        if self.takes_effect:
            self.inner.create_exclusive(path, data)
        if self.is_error:
            raise StorageError("the answer is lost")
        return Created.UNKNOWN

    def asked_again(self, path: str, data: bytes) -> Created:
        self.asked.append(path)
        return self.inner.asked_again(path, data)
