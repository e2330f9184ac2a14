"""What the batches of a run add up to, for metrics, and what its pipelines do now, for probes."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.running.metric_list import (
    BATCH,
    COMMIT,
    EVENT_TO_COMMIT,
    HISTOGRAMS,
    RESTARTS,
    RUN_COUNTERS,
    MetricOf,
    RunHistogram,
    Shown,
)
from freshet.pipeline.running.progress import PipelineState, Progress
from freshet.pipeline.running.run_note import RunState

LOOK_LOST_S: Final = 300.0
"""The thread that looks after pipelines is stuck where it has not looked for so long."""
CAUSES_MAX: Final = 100
"""Causes of one metric of a pipeline that are told apart; the others are one."""
OTHER: Final = "other"
_COUNTERS: Final = (*RUN_COUNTERS, RESTARTS)
_RESTARTED: Final = tuple(str(each) for each in (ErrorKind.UNKNOWN_OUTCOME, ErrorKind.CONFLICT, ErrorKind.RETRYABLE))
"""A rise from nothing is none to Prometheus: what is known beforehand begins at 0."""
_POINTS: Final = np.linspace(0, 1, 21)
"""Where in a batch the ages of its records are looked at."""


class Distribution(Frozen):
    """What a histogram shows: counts by bucket, the last without an upper end, and the sum of all values."""

    of: RunHistogram
    counts: tuple[float, ...]
    sum_s: float


@dataclass(slots=True)
class _Run:
    """One pipeline since the run began."""

    state: RunState = RunState.STARTING
    counters: dict[str, dict[str, float]] = field(
        default_factory=lambda: {each.name: dict.fromkeys(_first(each), 0) for each in _COUNTERS}
    )
    counts: dict[str, np.ndarray] = field(
        default_factory=lambda: {each.name: np.zeros(len(each.bounds) + 1) for each in HISTOGRAMS}
    )
    sums_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def observe(self, histogram: RunHistogram, values_s: np.ndarray, weight: float) -> None:
        places = np.searchsorted(histogram.bounds, values_s)
        upto = np.cumsum(np.bincount(places, minlength=len(histogram.bounds) + 1))
        self.counts[histogram.name] += np.diff(np.rint(weight * upto), prepend=0)  # whole records
        self.sums_s[histogram.name] += weight * float(values_s.sum())

    def add(self, counter: MetricOf[Progress], shown: Shown) -> None:
        total = self.counters[counter.name]
        for name, count in shown.items() if isinstance(shown, Mapping) else [("", shown or 0)]:
            is_told = name in total or len(total) < CAUSES_MAX
            told = name if is_told else OTHER
            total[told] = total.get(told, 0) + count


def _first(counter: MetricOf[Progress]) -> Iterable[str]:
    if counter is RESTARTS:
        return _RESTARTED
    return () if counter.by else ("",)


class RunTotals:
    """The totals of the pipelines of one process. Takes what they report from any thread."""

    def __init__(
        self,
        pipelines: Iterable[str],
        clock_s: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._clock_s, self._now_ms = clock_s, now_ms
        self._runs = {name: _Run() for name in pipelines}
        self._looked_s: float | None = None
        self._lock = threading.Lock()

    def take(self, progress: Progress) -> None:
        """A batch is done."""
        report = progress.report
        ages_s = _ages_s(report, self._now_ms())
        with self._lock:
            run = self._runs[report.pipeline]
            run.state = RunState.RUNNING
            for counter in RUN_COUNTERS:
                run.add(counter, counter.value(progress))
            run.observe(BATCH, np.array([progress.batch_ms / 1000]), 1)
            if not report.is_replay and "commit" in report.times_ms:
                run.observe(COMMIT, np.array([report.times_ms["commit"] / 1000]), 1)
            if ages_s is not None:
                run.observe(EVENT_TO_COMMIT, ages_s, report.read_count / len(ages_s))

    def idle(self, pipeline: str, lag: int | None = None) -> None:
        """A pipeline waits for records."""
        with self._lock:
            self._runs[pipeline].state = RunState.IDLE

    def state(self, state: PipelineState) -> None:
        """A pipeline does not run."""
        with self._lock:
            run = self._runs[state.pipeline]
            run.state = RunState.FAILED if state.restart is None else RunState.RESTARTING
            if state.restart is not None:
                run.add(RESTARTS, {str(state.kind): 1})

    def look(self) -> None:
        """The pipelines are looked after."""
        self._looked_s = self._clock_s()

    @property
    def is_live(self) -> bool:
        """False where nothing looks after the pipelines any more, so that only a new process helps."""
        return self._looked_s is None or self._clock_s() - self._looked_s < LOOK_LOST_S

    def states(self, pipelines: Iterable[str]) -> dict[str, RunState]:
        """What these pipelines do now."""
        with self._lock:
            return {name: self._runs[name].state for name in pipelines}

    def counters(self, pipeline: str) -> Iterator[tuple[MetricOf[Progress], dict[str, float]]]:
        """The totals of one; by cause where the counter has causes, else under an empty name."""
        with self._lock:
            totals = [(each, dict(self._runs[pipeline].counters[each.name])) for each in _COUNTERS]
        yield from totals

    def distributions(self, pipeline: str) -> list[Distribution]:
        """The histograms of one."""
        with self._lock:
            run = self._runs[pipeline]
            return [Distribution(of, tuple(run.counts[of.name].tolist()), run.sums_s[of.name]) for of in HISTOGRAMS]


def _ages_s(report: BatchReport, now_ms: int) -> np.ndarray | None:
    """How old the records of a batch are, at points of equally many records; None where they carry no times."""
    times = report.result.read.times
    if times is None or not report.read_count or report.is_replay:
        return None
    made_ms = times.first_ms + (times.last_ms - times.first_ms) * _POINTS
    return np.maximum(now_ms - made_ms, 0) / 1000
