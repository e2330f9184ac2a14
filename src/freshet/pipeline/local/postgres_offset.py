"""The offset of a database as a checkpoint has it: a position in the log, and how far the copy of its tables is."""

from __future__ import annotations

import json
from dataclasses import dataclass

from freshet.pipeline.identity.checkpoint_offsets import CHANGES, SLOT
from freshet.pipeline.postgres.copy_state import CopyState
from freshet.pipeline.postgres.lsn import lsn_of, lsn_text

_COPY = "copy"


@dataclass(frozen=True)
class PostgresOffset:
    """The end of the last transaction, and how many numbers records had until there. `copy` is None once the log is
    past all that its chunks can hold."""

    slot: str
    systemid: str
    timeline: int
    lsn: int
    changes: int
    copy: CopyState | None = None

    @classmethod
    def of(cls, text: str) -> PostgresOffset:
        """What `text` has written."""
        document = json.loads(text)
        copy = document.get(_COPY)
        return cls(
            document[SLOT],
            document["systemid"],
            document["timeline"],
            lsn_of(document["lsn"]),
            document[CHANGES],
            None if copy is None else CopyState.of_document(copy),
        )

    @property
    def text(self) -> str:
        """The form in a checkpoint."""
        document = {SLOT: self.slot, "systemid": self.systemid, "timeline": self.timeline, "lsn": lsn_text(self.lsn)}
        own = {} if self.copy is None else {_COPY: self.copy.to_document()}
        return json.dumps({**document, CHANGES: self.changes, **own}, separators=(",", ":"))
