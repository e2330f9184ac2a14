"""The errors of an edit whose rows were computed from what is no longer so; nothing of it is committed then."""

from __future__ import annotations

import pyarrow as pa

from freshet.storage.exceptions import ConflictError
from freshet.storage.model.snapshot import Snapshot


class OutdatedPlanError(ConflictError):
    """The rows that an edit was computed from are not those of the table any more."""


class KeysChangedError(OutdatedPlanError):
    """Others have written keys of an edit; `keys` are all that were written since, `snapshot` has them."""

    def __init__(self, message: str, keys: pa.Table, snapshot: Snapshot) -> None:
        super().__init__(message)
        self.keys = keys
        self.snapshot = snapshot
