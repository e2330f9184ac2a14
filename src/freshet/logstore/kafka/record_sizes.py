"""Records as checks and plans look at them before they are read, without a client, so that a check of files needs none:
how large they are, by which sizes of fetches, polls and batches are chosen, and a sample of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from freshet._frozen import Frozen


class RecordSizes(Frozen):
    """Bytes of key and value together, as a reader holds them: uncompressed.

    `mean` is that of the place (of a topic, or of a stream) where it is largest; 0 where nothing was seen.
    """

    mean: int = 0
    largest: int = 0

    def joined(self, other: RecordSizes) -> RecordSizes:
        """Both together, for a reader of both."""
        return RecordSizes(max(self.mean, other.mean), max(self.largest, other.largest))


NOTHING_SEEN: Final = RecordSizes()


class SampledRecord(NamedTuple):
    """A record that is only looked at."""

    key: bytes | None
    value: bytes | None
    topic: str
