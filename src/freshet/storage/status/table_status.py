"""The facts of a table at a moment, as values; `observe` reads them.

At a glance (`TableStatus` without a `detail`) it is what the schema and the newest snapshot say. Times are milliseconds
since the epoch, spans milliseconds; None stands for what is not known: bytes of a table that another program writes,
its rate of compaction where nothing was compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Final

from freshet._frozen import Frozen, field
from freshet.storage.model.shown import Facts, Shown

HOUR_MS: Final = 3_600_000


class Batches(Frozen):
    """The batches of one commit user: dead letters and broken rules of the last hour, else the last 15 minutes."""

    batches: int = 0
    records: int = 0
    records_per_s: float | None = None
    """Over the time since the first of them; None of one batch."""
    event_to_commit_ms_p50: int | None = None
    event_to_commit_ms_p99: int | None = None
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """Of a batch on average, the longest first."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
    last_ms: int | None = None
    """When the newest batch was committed."""
    broken_rules: Mapping[str, int] = field(default_factory=dict)
    """Records that broke a rule of `expect`, by what it is called."""


class NewestCommit(Frozen):
    """The newest snapshot."""

    snapshot_id: int
    time_ms: int
    commit_user: str
    kind: str


class LevelStatus(Frozen):
    """The buckets of a table against what triggers their compaction; of an append table a file is a run.

    `backlog_bytes` are the inputs of what the picking rules ask for now.
    """

    buckets: int
    level_0_max: int
    """Most files at level 0 of one bucket."""
    runs_max: int
    runs_trigger: int
    runs_stop: int | None
    """Runs of a bucket from which on writers wait for its compaction; None of append tables, whose writers never do."""
    backlog_bytes: int
    backlog_buckets: int
    backlog_minutes: float | None
    """At the rate of the last hour."""
    waiting_rows: int
    """Rows whose changes readers of the changelog do not have yet, since only a compaction gives them."""


class Hold(Frozen):
    """What keeps old snapshots or their files: a tag, a branch, a consumer."""

    kind: str
    name: str
    snapshot_id: int | None
    since_ms: int | None
    kept_bytes: int | None = None
    """Bytes of data files that are not live any more, for a consumer also of the changelog; what two hold counts for
    both."""


class History(Frozen):
    """The snapshots that are there. `kept_bytes` are those of data and changelog files that none but they need."""

    snapshots: int
    earliest_id: int | None
    earliest_ms: int | None
    kept_bytes: int | None


class LastHour(Frozen):
    """The commits of the last hour, as far as their snapshots or the history know them."""

    span_ms: int = 0
    """How far back this reaches: less than an hour where there are more snapshots than are looked at."""
    commits: int = 0
    compactions: int = 0
    rows_written: int = 0
    conflicts: int = 0
    commit_ms_p50: int | None = None
    commit_ms_p99: int | None = None
    compacted_bytes: int = 0
    compaction_ms: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Compactions by reason."""


class LogStatus(Frozen):
    """How far the log of a table has come with its newest snapshot."""

    topic: str
    batch: int
    offsets: Mapping[str, int]
    """Of each partition of the topic the offset that readers of committed changes read up to."""


class TableDetail(Frozen):
    """What takes more than the newest snapshot to know."""

    levels: LevelStatus
    history: History
    holds: tuple[Hold, ...]
    hour: LastHour
    batches: Mapping[str, Batches]
    """Of pipelines that wrote the table, or its ledger, by commit user."""
    log: LogStatus | None
    changelog_behind: int | None
    """Commits of rows since the last snapshot with a changelog; None where the table makes none."""


@dataclass(frozen=True, slots=True, repr=False)
class TableStatus(Shown):
    """A table at a moment. `freshness_ms` is the age of the newest commit that was no compaction, the same as a moment
    ago where its writer has nothing to write: who knows that (a pipeline) says so."""

    name: str
    observed_ms: int
    newest: NewestCommit | None
    freshness_ms: int | None
    target_ms: int | None
    """`freshet.freshness-target`."""
    rows: int | None
    files: int | None
    live_bytes: int | None
    detail: TableDetail | None = None
    error: str | None = None
    """Why its files cannot be read; nothing else is known then."""

    @classmethod
    def unreadable(cls, name: str, observed_ms: int, error: Exception) -> TableStatus:
        """The status of a table whose files cannot be read."""
        return cls(name, observed_ms, None, None, None, None, None, None, error=str(error))

    @property
    def is_behind(self) -> bool:
        """Whether it is less fresh than its target, or cannot be read."""
        if self.error is not None:
            return True
        return self.target_ms is not None and (self.freshness_ms is None or self.freshness_ms > self.target_ms)

    @property
    def urgency(self) -> tuple[bool, float, str]:
        """Sorts those first that are behind, by how far in times of their target."""
        share = inf if self.error else 0.0 if self.target_ms is None else (self.freshness_ms or 0) / self.target_ms
        return not self.is_behind, -share, self.name

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**asdict(self), "is_behind": self.is_behind}

    def _shown(self) -> Facts:
        yield from (("table", self.name), ("rows", self.rows), ("files", self.files), ("bytes", self.live_bytes))
        yield from (("age of the newest rows (ms)", self.freshness_ms), ("target (ms)", self.target_ms))
