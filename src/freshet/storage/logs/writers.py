"""What those who write a table ask of its log, as protocols: the sink of changes, the opened log, the publisher.

A driver opens the log for its commit user; tasks in other processes get a sink by what the driver sends them
(`TaskLog`, plain values).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa

from freshet._frozen import Frozen
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.table_log import LogIdentity, LogIncrement

PUBLISHER_CONSUMER: Final = "freshet-publisher"
"""The consumer that keeps from expiry what was not published."""

WITHOUT_LOG: Final[Mapping[str, str]] = {
    "log.system": "none",
    "log.changelog-mode": "auto",
    "log.consistency": "transactional",
}
"""Options for commits to a table with a log that are not logged: its readers follow `log.on-lake-only`. The last two
are the defaults of Paimon, which tables without a log may have."""


class TaskLog(Frozen):
    """What a task needs to log for a driver. `attempt` is never given twice for a batch of one epoch."""

    identity: LogIdentity
    epoch: int
    attempt: int


class ChangeSink(Protocol):
    """Takes the changes of one commit after the other. Used by one thread at a time."""

    def begin(self, identifier: int, time_ms: int) -> None:
        """Another attempt at a commit; what was taken and not finished counts for nothing."""

    def log(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        """Takes rows of a bucket, in order: `_ROW_KIND` as int8 codes, then the columns of the table."""

    def finish(self) -> Mapping[BucketId, LogIncrement]:
        """Returns when everything taken is safe: what there is, by bucket. Raises `RetryableError` otherwise."""

    def abort(self) -> None:
        """Gives up what was taken."""


class TableLog(Protocol):
    """The log of a table, opened by the one user who writes it."""

    @property
    def identity(self) -> LogIdentity:
        """For the committer."""

    @property
    def epoch(self) -> int:
        """Which start of the writer this is; for tasks."""

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later with the topic as it is."""

    def sink(self, schema_id: int) -> ChangeSink:
        """Takes changes in the columns of a schema."""

    def committed(self, batch: int, snapshot_id: int) -> None:
        """Notifies readers of a snapshot; they would find it anyway, later."""

    def close(self) -> None:
        """Lets go of connections."""


class LogPublisher(Protocol):
    """Publishes what is committed (`log.consistency=transactional`); belongs to one writer or driver."""

    @property
    def warnings(self) -> list[str]:
        """What may go wrong later, and where it has begun."""

    @property
    def lag(self) -> int:
        """How many snapshots are committed and not published."""

    def publish(self) -> None:
        """Publishes what was not yet; what keeps it from that is logged, and it is tried again the next time."""

    def close(self) -> None:
        """Tries once more where something is left, and lets go of connections."""
