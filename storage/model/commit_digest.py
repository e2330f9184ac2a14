"""What a commit was made from, in short: so that a commit of the same number but of other input is told apart.

Two commits of one identifier are the same commit only if they read the same. The hash decides; the text beside it names
the range for people, in the message that shows both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DIGEST_TEXT_MAX: Final = 300
"""Characters of a range that are carried with a snapshot; the hash alone decides."""


@dataclass(frozen=True, slots=True)
class CommitDigest:
    """`hash` is any text that is equal exactly when the input was, `text` says what was read, such as
    `topic orders: 0 [100, 250), 1 [90, 180)`."""

    hash: str
    text: str

    @property
    def shown(self) -> str:
        """The text, cut where it is too long for a message, and the beginning of the hash."""
        text = self.text if len(self.text) <= DIGEST_TEXT_MAX else f"{self.text[:DIGEST_TEXT_MAX]}…"
        return f"{text or 'an unnamed range'} ({self.hash[:12]})"
