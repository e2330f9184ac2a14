"""How much one step of a stream takes: what is counted, and the limits on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class StepSize(NamedTuple):
    """What a piece of a stream costs. Rows of the log count as rows and by the offsets they lie in, not as files."""

    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    offsets: int = 0

    def plus(self, other: StepSize) -> StepSize:
        """Both together."""
        return StepSize(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """How much one step takes at most: files, their bytes, rows, offsets of a log; the smallest wins, None is no limit.

    A step takes one piece at least, however large.
    """

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None
    offsets: int | None = None

    @property
    def is_none(self) -> bool:
        """True where nothing is limited."""
        return self == StreamLimit()

    def allows(self, size: StepSize) -> bool:
        """True for a size within the limit."""
        limits = (self.files, self.size_bytes, self.rows, self.offsets)
        return all(limit is None or given <= limit for given, limit in zip(size, limits, strict=True))
