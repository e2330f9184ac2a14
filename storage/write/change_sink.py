"""What the table writer asks of a log: to take the changes of a commit, and to say when they are safe.

`logstore` has the real one; this is all that `storage` knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from freshet.storage.model.table_log import Lane, LogIncrement


class ChangeSink(Protocol):
    """Takes the changes of one commit after the other. Used by one thread at a time."""

    def begin(self, identifier: int, time_ms: int) -> None:
        """Another attempt at a commit; what was taken and not finished counts for nothing."""
        ...

    def log(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        """Takes rows of a bucket, in order: `_ROW_KIND` as int8 codes, then the columns of the table."""
        ...

    def finish(self) -> Mapping[Lane, LogIncrement]:
        """Returns when everything taken is safe: what there is, by bucket. Raises `RetryableError` otherwise."""
        ...

    def abort(self) -> None:
        """Gives up what was taken."""
        ...
