"""A position in the changes of a table, as a reader of snapshots alone keeps it, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from freshet.storage.exceptions import InvalidRequestError

LOG_STATE: Final = "log"
"""Positions of readers of a log have this key."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Everything before a snapshot was taken, and of the snapshot the first `taken` of `of` splits.

    `is_state` says that it is the rows of the snapshot with which the stream begins, not its changes. `before_ms` is
    the commit time of the snapshot before, where it was there, `of_ms` that of the snapshot whose rows come first, or
    which was read in part: they distinguish a history from another one of the same ids.
    """

    snapshot_id: int
    is_state: bool = False
    taken: int = 0
    of: int = 0
    before_ms: int | None = None
    of_ms: int | None = None

    @property
    def next_id(self) -> int:
        """The first snapshot that is still needed."""
        return self.snapshot_id

    def to_document(self) -> dict[str, Any]:
        """The position for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StreamPosition:
        """The inverse; `InvalidRequestError` for what is no position, or one of a reader of the log."""
        if LOG_STATE in document:
            raise InvalidRequestError(
                "the checkpoint was made by a reader of the log, which has its place there: go on with "
                "log.read.isolation=committed or speculative, or begin with a new checkpoint",
                option="log.read.isolation",
            )
        try:
            return cls(**document)
        except TypeError as error:
            raise InvalidRequestError(f"{dict(document)!r} is no position in the changes of a table: {error}") from None
