"""How large records are: what sizes of fetches, polls and batches are chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """Bytes of key and value together, as a reader holds them: uncompressed.

    `mean` is that of the place (of a topic, or of a stream) where it is largest; 0 where nothing was seen.
    """

    mean: int = 0
    largest: int = 0

    def joined(self, other: RecordSizes) -> RecordSizes:
        """Both together, for a reader of both."""
        return RecordSizes(max(self.mean, other.mean), max(self.largest, other.largest))


NOTHING_SEEN: Final = RecordSizes()
