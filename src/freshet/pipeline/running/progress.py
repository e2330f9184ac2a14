"""Progress of running pipelines: rows per second, batch, lag, level 0, and where the time went, as values.

`progress_report` makes text and JSON of them.

Two sides report each micro-batch: the sink knows what became of the records (`BatchReport`), Spark knows the lag and
its own times (`StreamingQueryListener`). They meet here by query name and batch id; a `Progress` is complete when both
have reported. `ProgressListener` may be added to any session: `spark.streams.addListener(ProgressListener(hub))`.

A query that found nothing to read for some seconds is idle; Spark reports that by the id of the query.

Lag = records that the source had and that were not read when the batch began; None for sources that do not know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQueryListener

from freshet.pipeline.batch.batch_report import BatchReport
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.running.restarts import Restart

UNMATCHED_MAX: Final = 100
"""Reports kept while Spark has not reported their batch."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch, reported by both sides. `spark_ms` are the durations that Spark gives.

    `records_per_s` is 0 where Spark gives no duration.
    """

    report: BatchReport
    records_per_s: float
    lag: int | None
    batch_ms: float
    spark_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineState:
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
        self, on_progress: Callable[[Progress], None], on_idle: Callable[[str], None] = lambda pipeline: None
    ) -> None:
        """`on_idle` gets the name of a query that waits for records, every few seconds while it waits."""
        self._on_progress = on_progress
        self._on_idle = on_idle
        self._names: dict[str, str] = {}
        self._reports: dict[tuple[str, int], BatchReport] = {}
        self._lock = threading.Lock()

    def add_report(self, report: BatchReport) -> None:
        """The sink's side; comes first, because Spark reports a batch when it is over."""
        with self._lock:
            self._reports[report.pipeline, report.micro_batch_id] = report
            while len(self._reports) > UNMATCHED_MAX:
                self._reports.pop(next(iter(self._reports)))

    def add_query(self, query_id: str, name: str) -> None:
        """A query has started."""
        with self._lock:
            self._names[query_id] = name

    def add_idle(self, query_id: str) -> None:
        """A query found nothing to read."""
        with self._lock:
            name = self._names.get(query_id)
        if name is not None:
            self._on_idle(name)

    def add_spark_progress(self, source: Mapping[str, Any]) -> None:
        """Spark's side: the JSON of a `StreamingQueryProgress`."""
        with self._lock:
            report = self._reports.pop((source.get("name") or "", int(source["batchId"])), None)
        if report is None:
            return
        durations = source.get("durationMs") or {}
        batch_ms = float(durations.get("triggerExecution") or 0)
        speed = report.read_count * 1000 / batch_ms if batch_ms else 0.0
        self._on_progress(Progress(report, speed, lag_of(source), batch_ms, durations))


class ProgressListener(StreamingQueryListener):
    """Spark's listener that feeds a hub. Its events are the JVM's own, of which one JSON text is read.

    PySpark would copy each event into Python field by field: of a stream of small batches on two cores, that took 40 %
    of a core in the JVM and a tenth of one in Python.
    """

    class Java:
        """What py4j asks for: the interface that the JVM calls."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, hub: ProgressHub) -> None:
        self._hub = hub
        self._wrapper: Any = None

    @property
    def _jlistener(self) -> Any:
        """Where `addListener` and `removeListener` find the JVM's side; the version of PySpark is pinned."""
        if self._wrapper is None:
            jvm: Any = SparkContext._jvm
            self._wrapper = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._wrapper

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Idle queries are reported by their id alone."""
        self._hub.add_query(event.id().toString(), event.name() or "")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A micro-batch is over."""
        self._hub.add_spark_progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """No new records."""
        self._hub.add_idle(event.id().toString())

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The runner sees this by itself."""


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Records behind the newest offsets, over all Kafka sources of the query; None when none of them knows."""
    lags = [
        lag
        for each in source.get("sources") or ()
        if (lag := _offset_lag(each.get("endOffset"), each.get("latestOffset"))) is not None
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
