"""Every metric that Freshet publishes: its name, what it is, and which fact it shows. Base units: seconds, bytes.

Gauges show the values that `freshet status` shows (`PipelineStatus`, `TableStatus`), read from files, so a restart does
not reset them; counters and histograms add up the progress of a run since it began. Labels are `pipeline`, of tables
`database` and `table`, and one more where a metric has it (`by`): a `cause`, or the `phase` of a batch. Nothing has a
label with the partition or the bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from freshet._frozen import Frozen

if TYPE_CHECKING:
    from freshet.pipeline.running.pipeline_status import PipelineStatus
    from freshet.pipeline.running.progress import Progress
    from freshet.storage.status.table_status import Batches, LastHour, LevelStatus, TableDetail, TableStatus

T = TypeVar("T")

PREFIX: Final = "freshet_"
CAUSE: Final = "cause"
PHASE: Final = "phase"

Shown = float | None | Mapping[str, float]
"""A value; None where it is not known; several by cause or phase."""


class MetricOf(Frozen, Generic[T]):
    """A fact of a table or a pipeline at a moment, or what each batch of a run adds to: then the sample's name ends in
    `_total`."""

    name: str
    text: str
    value: Callable[[T], Shown]
    by: str | None = None


class RunHistogram(Frozen):
    """A distribution over the batches of a run; `bounds` are the upper ends of its buckets, in seconds."""

    name: str
    text: str
    bounds: tuple[float, ...]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _age(status: TableStatus, time_ms: int | None) -> float | None:
    return None if time_ms is None else max(0, status.observed_ms - time_ms) / 1000


def _detail(value: Callable[[TableDetail], Shown]) -> Callable[[TableStatus], Shown]:
    return lambda table: None if table.detail is None else value(table.detail)


def _levels(value: Callable[[LevelStatus], Shown]) -> Callable[[TableStatus], Shown]:
    return _detail(lambda detail: value(detail.levels))


def _hour(value: Callable[[LastHour], Shown]) -> Callable[[TableStatus], Shown]:
    return _detail(lambda detail: value(detail.hour))


def _batches(value: Callable[[Batches], Shown]) -> Callable[[PipelineStatus], Shown]:
    return lambda pipeline: value(pipeline.batches)


def _oldest_hold(table: TableStatus) -> float | None:
    held = () if table.detail is None else table.detail.holds
    return max((_age(table, each.since_ms) or 0.0 for each in held), default=None if table.detail is None else 0.0)


def _consumer_behind(table: TableStatus) -> float | None:
    if table.detail is None or table.newest is None:
        return None
    wanted = [each.snapshot_id for each in table.detail.holds if each.kind == "consumer" and each.snapshot_id]
    return float(max((table.newest.snapshot_id + 1 - snapshot_id for snapshot_id in wanted), default=0))


TABLE_GAUGES: Final[Sequence[MetricOf[TableStatus]]] = (
    MetricOf(
        "table_freshness_seconds",
        "Age of the newest commit that was no compaction; of a pipeline that waits, of its last word.",
        lambda table: _seconds(table.freshness_ms),
    ),
    MetricOf(
        "table_freshness_target_seconds",
        "The option freshet.freshness-target.",
        lambda table: _seconds(table.target_ms),
    ),
    MetricOf(
        "table_behind",
        "1 where the table is less fresh than its target or cannot be read, else 0.",
        lambda it: it.is_behind,
    ),
    MetricOf(
        "table_readable",
        "1 where its files can be read, else 0: its other metrics are absent then.",
        lambda it: it.error is None,
    ),
    MetricOf("table_rows", "Rows of the newest snapshot, merged or not.", lambda table: table.rows),
    MetricOf("table_files", "Live data files.", lambda table: table.files),
    MetricOf("table_live_bytes", "Bytes of the live data files.", lambda table: table.live_bytes),
    MetricOf(
        "table_snapshot_id",
        "The newest snapshot; its increase is the number of commits.",
        lambda table: None if table.newest is None else table.newest.snapshot_id,
    ),
    MetricOf(
        "table_snapshot_age_seconds",
        "Age of the newest snapshot, also of a compaction.",
        lambda table: None if table.newest is None else _age(table, table.newest.time_ms),
    ),
    MetricOf("level0_files_max", "Most files at level 0 of one bucket.", _levels(lambda it: it.level_0_max)),
    MetricOf("sorted_runs_max", "Most sorted runs of one bucket.", _levels(lambda it: it.runs_max)),
    MetricOf(
        "sorted_runs_stop",
        "Runs of a bucket from which on writers wait for it; absent of append tables, where nobody waits.",
        _levels(lambda it: it.runs_stop),
    ),
    MetricOf(
        "compaction_backlog_bytes",
        "Bytes of the files that the picking rules ask for now.",
        _levels(lambda it: it.backlog_bytes),
    ),
    MetricOf(
        "compaction_backlog_seconds",
        "How long that takes at the rate of the last hour; absent where nothing was compacted in it.",
        _levels(lambda it: None if it.backlog_minutes is None else it.backlog_minutes * 60),
    ),
    MetricOf(
        "changelog_behind_snapshots",
        "Commits of rows since the last snapshot with a changelog; absent of tables that make none.",
        _detail(lambda it: it.changelog_behind),
    ),
    MetricOf(
        "changelog_waiting_rows", "Rows whose changes wait for a compaction.", _levels(lambda it: it.waiting_rows)
    ),
    MetricOf("table_snapshots", "Snapshots that are kept.", _detail(lambda it: it.history.snapshots)),
    MetricOf(
        "table_kept_bytes",
        "Bytes of data and changelog files that only snapshots need; absent where that is not noted.",
        _detail(lambda it: it.history.kept_bytes),
    ),
    MetricOf("oldest_hold_seconds", "Age of the oldest tag, branch or consumer that holds files.", _oldest_hold),
    MetricOf("consumer_behind_snapshots", "Snapshots that the slowest consumer has not read.", _consumer_behind),
    MetricOf("hour_commits", "Commits of rows in the last hour.", _hour(lambda it: it.commits)),
    MetricOf("hour_rows_written", "Rows that they wrote.", _hour(lambda it: it.rows_written)),
    MetricOf("hour_conflicts", "Conflicts that commits of the last hour met.", _hour(lambda it: it.conflicts)),
    MetricOf("hour_commit_p99_seconds", "p99 of a commit, last hour.", _hour(lambda it: _seconds(it.commit_ms_p99))),
    MetricOf(
        "hour_compactions",
        "Compactions of buckets in the last hour, by reason.",
        _hour(lambda it: it.reasons),
        by=CAUSE,
    ),
    MetricOf("hour_compacted_bytes", "Bytes that they read.", _hour(lambda it: it.compacted_bytes)),
)

PIPELINE_GAUGES: Final[Sequence[MetricOf[PipelineStatus]]] = (
    MetricOf(
        "pipeline_up",
        "1 where it starts, runs or waits for records, else 0.",
        lambda it: it.state.is_up if it.error is None else None,
    ),
    MetricOf(
        "pipeline_readable",
        "1 where its checkpoint and its catalog can be read, else 0: its other metrics of files are absent then.",
        lambda it: it.error is None,
    ),
    MetricOf(
        "pipeline_behind",
        "1 where it has failed, is gone, has set tables apart, cannot be read, or a table of it is behind; else 0.",
        lambda it: it.is_behind,
    ),
    MetricOf("pipeline_batch", "The number of the last batch that is done.", lambda it: it.batch),
    MetricOf("source_lag_records", "Records that wait at the source.", lambda it: it.lag_records),
    MetricOf(
        "source_lag_seconds",
        "Age of the latest record that it has read, where others wait; 0 where none does.",
        lambda it: _seconds(it.lag_ms),
    ),
    MetricOf("tables_set_apart", "Tables whose records are held back.", lambda it: None if it.error else len(it.apart)),
    MetricOf("recent_records_per_second", "Records a second, last 15 minutes.", _batches(lambda it: it.records_per_s)),
    MetricOf(
        "recent_event_to_commit_p50_seconds",
        "p50 from the time that records carry to their commit, last 15 minutes.",
        _batches(lambda it: _seconds(it.event_to_commit_ms_p50)),
    ),
    MetricOf(
        "recent_event_to_commit_p99_seconds",
        "p99 of the same.",
        _batches(lambda it: _seconds(it.event_to_commit_ms_p99)),
    ),
    MetricOf(
        "recent_batch_phase_seconds",
        "Where a batch spends its time, on average over the last 15 minutes; those of tasks added up.",
        _batches(lambda it: {name: ms / 1000 for name, ms in it.phases_ms.items()}),
        by=PHASE,
    ),
    MetricOf("hour_dead_letters", "Dead letters of the last hour.", _batches(lambda it: it.dead_letters), by=CAUSE),
)

RUN_COUNTERS: Final[Sequence[MetricOf[Progress]]] = (
    MetricOf("batches", "Batches that are done.", lambda it: 1),
    MetricOf("records_read", "Records that they read.", lambda it: it.report.read_count),
    MetricOf("records_applied", "Records that became rows.", lambda it: it.report.result.applied),
    MetricOf("records_skipped", "Records that were passed over.", lambda it: it.report.result.skipped, by=CAUSE),
    MetricOf("dead_letters", "Records that became dead letters.", lambda it: it.report.result.dead, by=CAUSE),
    MetricOf("broken_rules", "Records that broke a rule of expect.", lambda it: it.report.broken, by=CAUSE),
    MetricOf("rewrites", "Files written again because another writer was first.", lambda it: it.report.rewrite_count),
    MetricOf("rewritten_bytes", "Bytes of them.", lambda it: it.report.rewritten_bytes),
    MetricOf(
        "waited_buckets",
        "Buckets that a batch had to compact, though background compaction should have.",
        lambda it: it.report.result.waited_buckets,
    ),
    MetricOf("table_events", "Tables created, altered, emptied, set apart.", lambda it: len(it.report.table_events)),
)
RESTARTS: Final[MetricOf[Progress]] = MetricOf(
    "restarts", "Restarts after a failure, by its kind.", lambda it: None, by=CAUSE
)

BATCH: Final = RunHistogram(
    "batch_seconds", "How long a batch took.", (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
)
COMMIT: Final = RunHistogram(
    "commit_seconds", "How long the commits of a batch took.", (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
)
EVENT_TO_COMMIT: Final = RunHistogram(
    "event_to_commit_seconds",
    "From the time that records carry to the end of their batch; of a batch the first and the last are known, those "
    "between count as spread evenly.",
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 86400),
)
HISTOGRAMS: Final = (BATCH, COMMIT, EVENT_TO_COMMIT)

LOOK_SUCCESS: Final = "look_success"
LOOK_SECONDS: Final = "look_seconds"
BUILD_INFO: Final = "build_info"
OWN: Final = {
    LOOK_SUCCESS: "1 where the files could be read at the last look, else 0: what is read from files is absent then.",
    LOOK_SECONDS: "How long the last look at the files took.",
    BUILD_INFO: "1; the label version is that of Freshet.",
}
