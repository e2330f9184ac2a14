"""Progress of running pipelines: rows per second, batch, lag, level 0, and where the time went, as values.

`progress_report` makes text and JSON of them.

Two sides report each micro-batch: the writer knows what became of the records (`BatchReport`), the engine knows the lag
and its own times, as the JSON of Spark's `StreamingQueryProgress` has them. They meet here by query name and batch id;
a `Progress` is complete when both have reported.

A query that found nothing to read for some seconds is idle; the engine reports that by the id of the query.

Lag = records that the source had and that were not read when the batch began; None for sources that do not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from freshet._frozen import Frozen, field
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.running.restarts import Restart

UNMATCHED_MAX: Final = 100
"""Reports kept while the engine has not reported their batch."""


class Progress(Frozen):
    """One micro-batch, reported by both sides. `spark_ms` are the durations that the engine gives, by Spark's names.

    `records_per_s` is 0 where the engine gives no duration.
    """

    report: BatchReport
    records_per_s: float
    lag: int | None
    batch_ms: float
    spark_ms: Mapping[str, int] = field(default_factory=dict)


class PipelineState(Frozen):
    """A pipeline that does not run while others may: it waits for a `restart`, or is dead where there is none."""

    pipeline: str
    micro_batch_id: int | None
    """The batch begun last."""
    kind: ErrorKind
    error: str
    is_retryable: bool
    restart: Restart | None = None


class ProgressHub:
    """Brings the two sides together and hands each complete `Progress` on; called from several threads."""

    def __init__(
        self,
        on_progress: Callable[[Progress], None],
        on_idle: Callable[[str, int | None], None] = lambda pipeline, lag: None,
    ) -> None:
        """`on_idle` gets the name of a query that waits for records and its lag, every few seconds while it waits."""
        self._on_progress = on_progress
        self._on_idle = on_idle
        self._names: dict[str, str] = {}
        self._with_lag: set[str] = set()
        """Pipelines whose sources know how far behind they are."""
        self._reports: dict[tuple[str, int], BatchReport] = {}
        self._lock = threading.Lock()

    def add_report(self, report: BatchReport) -> None:
        """The writer's side; comes first, because the engine reports a batch when it is over."""
        with self._lock:
            self._reports[report.pipeline, report.micro_batch_id] = report
            while len(self._reports) > UNMATCHED_MAX:
                self._reports.pop(next(iter(self._reports)))

    def add_query(self, query_id: str, name: str) -> None:
        """A query has started."""
        with self._lock:
            self._names[query_id] = name

    def add_idle(self, query_id: str, lag: int | None = None) -> None:
        """A query found nothing to read; an engine that does not know its lag gives none, and has read everything."""
        with self._lock:
            name = self._names.get(query_id)
            lag = 0 if lag is None and name in self._with_lag else lag
        if name is not None:
            self._on_idle(name, lag)

    def add_engine_progress(self, source: Mapping[str, Any]) -> None:
        """The engine's side: the JSON of a `StreamingQueryProgress`."""
        with self._lock:
            report = self._reports.pop((source.get("name") or "", int(source["batchId"])), None)
        if report is None:
            return
        durations = source.get("durationMs") or {}
        batch_ms = float(durations.get("triggerExecution") or 0)
        speed, lag = report.read_count * 1000 / batch_ms if batch_ms else 0.0, lag_of(source)
        if lag is not None:
            self._with_lag.add(report.pipeline)
        self._on_progress(Progress(report, speed, lag, batch_ms, durations))


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Records behind the newest offsets, over all Kafka sources of the query; None when none of them knows. An engine
    that knows the `lag` of a source says so."""
    lags = [
        lag
        for each in source.get("sources") or ()
        if (lag := each.get("lag", _offset_lag(each.get("endOffset"), each.get("latestOffset")))) is not None
    ]
    return sum(lags) if lags else None


def _offset_lag(end: Any, latest: Any) -> int | None:
    """Offsets look like {"topic": {"0": 17}}; other sources have other shapes, which are not counted."""
    if not _is_kafka_offset(end) or not _is_kafka_offset(latest):
        return None
    total = 0
    for topic, partitions in latest.items():
        for kafka_partition, offset in partitions.items():
            known = end.get(topic) or {}
            total += max(0, int(offset) - int(known.get(kafka_partition, 0)))
    return total


def _is_kafka_offset(offset: Any) -> bool:
    """The position of a table has the same outer shape, and other things than numbers in it."""
    return isinstance(offset, Mapping) and all(
        isinstance(partitions, Mapping) and all(isinstance(each, int) for each in partitions.values())
        for partitions in offset.values()
    )
