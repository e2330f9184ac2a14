"""A query that runs here: plans batches from its sources, hands each to what writes it, and keeps the checkpoint.

    look ─▶ job ─┬─▶ commits to tables ─▶ commits/<N> ─▶ the sources are told ─▶ pause or wait ─▶ look
      offsets/<N>┘

`look` asks each source for the end of the batch that comes, once `commits` has the batch before: there is never more
than one open batch, of two of which Spark skips the older. A source of files writes its own log then, so its part of
the batch is settled (`file_log`); the ends of others are in memory. `offsets` is written while the job runs: that hides
a sync of a disk, or a request to a store, and until it is there no table has anything of the batch
(`MicroBatch.settle`).

| it died | the next run, on either engine |
|---|---|
| before `offsets/<N>` | looks again; the batch may end elsewhere, but for files that were written down |
| before `commits/<N>` | runs batch N again up to the same end |
| before the sources were told | tells them when it starts |

As on Spark, there is a batch where some offset differs from that of the batch before, or is its first: batch 0 of an
empty topic writes down where it begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import uuid4

import orjson

from freshet._frozen import Frozen
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import is_retryable
from freshet.pipeline.identity.checkpoint_folder import WritableCheckpoint
from freshet.pipeline.local.source import PatientSource, RenewableSource, Source, Span
from freshet.pipeline.local.stream_checkpoint import StreamCheckpoint
from freshet.pipeline.query.driver.engine import Engine, MicroBatch

IDLE_EVERY_MS: Final = 10_000
"""Spark's `spark.sql.streaming.noDataProgressEventInterval`."""

_SLICE_MS: Final = 100
"""How long a source waits before somebody looks whether the query ends."""
_TURN_MS: Final = 10
"""The same where several take turns; also the least pause where a source calls and has nothing."""
_LOOK_EVERY_MS: Final = 1000
"""While nothing comes, sources are asked for what only a look finds: partitions, topics, folders."""
_IGNORE_MISSING: Final = "spark.sql.files.ignoreMissingFiles"


class BatchPoint(StrEnum):
    """A named place where a crash leaves a batch half-done; each says what is there at that moment."""

    LOOKED = "batch-looked"
    """Sources have written down what they need of the batch; `offsets` has nothing of it."""

    PLANNED = "batch-planned"
    """`offsets` has the batch; no table has anything of it."""

    WRITTEN = "batch-written"
    """All tables have the batch; `commits` has not."""

    DONE = "batch-done"
    """`commits` has the batch; its sources do not know."""


class Trigger(Frozen):
    """When the batches of a query begin: its interval, 0 for as fast as possible; or everything that is there now, and
    then the end.

    With an interval, at most one batch begins in each multiple of it of the wall clock, as Spark has it: after a batch
    that took longer the next one begins at once. Where nothing was new at the beginning of a multiple, the batch begins
    with the first record in it; Spark waits for the next one.
    """

    interval_ms: int = 0
    available_now: bool = False

    def next_ms(self, begun_ms: int) -> int:
        """When the batch after one may begin."""
        if self.available_now or not self.interval_ms:
            return begun_ms
        return begun_ms // self.interval_ms * self.interval_ms + self.interval_ms


class WallClock:
    """The time, and waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def pause(self, ends: threading.Event, seconds: float) -> None:
        """Waits, unless it ends."""
        ends.wait(seconds)


class QueryClock(Protocol):
    """The time as a query asks for it: `WallClock`, or that of a test."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def pause(self, ends: threading.Event, seconds: float) -> None:
        """Waits, unless it ends."""


class LocalQuery:
    """A `PlannedQuery` and the loop that runs it. All but `stop` is called from one thread."""

    def __init__(
        self,
        name: str,
        checkpoint: WritableCheckpoint,
        sources: Sequence[Source],
        write: Callable[[MicroBatch], None],
        engine: Engine,
        trigger: Trigger,
        on_progress: Callable[[dict[str, Any]], None],
        conf: Mapping[str, str] = {},
        *,
        on_idle: Callable[[str, int | None], None] = lambda query_id, lag: None,
        clock: QueryClock = WallClock(),  # noqa: B008 - it has no state
        second_run: ErrorKind = ErrorKind.INVALID_REQUEST,
    ) -> None:
        """Opens the checkpoint, which its pipeline has claimed; raises as `StreamCheckpoint`.

        `conf` are settings of Spark's: a new checkpoint gets those that Spark would keep there. `on_progress` gets what
        Spark's `StreamingQueryProgress` says of each batch, as far as it is known here; `on_idle` the id of the query
        and its lag, every ten seconds while it waits for records. `second_run`: see `StreamCheckpoint`.
        """
        self.name = name
        self.run_id = str(uuid4())
        self._log = StreamCheckpoint(checkpoint, len(sources), conf, second_run)
        self._sources = tuple(sources)
        self._write = write
        self._engine = engine
        self._trigger = trigger
        self._on_progress = on_progress
        self._on_idle = on_idle
        self._clock = clock
        self._ignores_missing_files = conf.get(_IGNORE_MISSING, "").lower() == "true"
        self._ends = threading.Event()
        self._quiet_since_ms = clock.now_ms()
        self._times_ms: dict[str, float] = {}
        self._is_settled = False

    @property
    def query_id(self) -> str:
        """The id of the query, the same in each run."""
        return self._log.query_id

    @property
    def folder(self) -> WritableCheckpoint:
        """The checkpoint."""
        return self._log.folder

    def output_mode(self) -> str:
        """`PlannedQuery.output_mode`."""
        return "Append"

    def offsets(self, micro_batch_id: int) -> tuple[str | None, ...] | None:
        """`PlannedQuery.offsets`."""
        return self._log.offsets(micro_batch_id)

    def ignores_missing_files(self) -> bool:
        """`PlannedQuery.ignores_missing_files`."""
        return self._ignores_missing_files

    def takes_names_for_patterns(self) -> bool:
        """`PlannedQuery.takes_names_for_patterns`."""
        return False

    def span(self, number: int, index: int) -> Span:
        """Where a source begins and ends in a batch."""
        ends = self._log.offsets(number)
        return self._start(number, index), None if ends is None else ends[index]

    def stop(self) -> None:
        """Ends the query after the batch that runs; may be called from any thread, and more than once."""
        self._ends.set()
        for source in self._sources:
            if isinstance(source, PatientSource):
                source.leave()

    def run(self) -> None:
        """Runs batches until `stop`, or until all is read that was there (`available_now`); raises what failed. Closes
        the sources."""
        with ExitStack() as closing:
            for source in self._sources:
                closing.callback(source.close)
            closing.callback(self._log.close)
            if self._trigger.available_now:
                for source in self._sources:
                    source.bound()
            self._tell_sources(self._log.next_number - 1)
            was_called = False
            while not self._ends.is_set():
                begun_ms = self._clock.now_ms()
                if self._run_batch():
                    was_called = False
                    self._pause_until(self._trigger.next_ms(begun_ms))
                elif self._trigger.available_now or self._ends.is_set():
                    return
                else:
                    if was_called:  # for what a source cannot give yet
                        again_ms = min(self._trigger.next_ms(begun_ms), begun_ms + _LOOK_EVERY_MS)
                        self._pause_until(max(again_ms, begun_ms + _TURN_MS))
                    was_called = self._wait()

    def reach(self, point: BatchPoint) -> None:
        """Says that the query is at a named point; here nothing happens, in a test it may end."""

    def _run_batch(self) -> bool:
        """Runs the batch that comes next; False where nothing is new."""
        number, begun_s = self._log.next_number, time.perf_counter()
        self._times_ms = {}
        if not self._log.is_planned:
            with self._timed("latestOffset"):
                ends = self._look(number)
            if ends is None:
                return False
            self.reach(BatchPoint.LOOKED)
            self._log.plan(ends, self._clock.now_ms())
        self._is_settled = False
        spans = [self.span(number, index) for index in range(len(self._sources))]
        with self._timed("addBatch"):
            self._write(MicroBatch(number, self._engine, self.query_id, self, spans, self._settle))
        self._settle()
        self.reach(BatchPoint.WRITTEN)
        with self._timed("commitOffsets"):
            self._log.commit()
        self.reach(BatchPoint.DONE)
        self._tell_sources(number)
        self._times_ms["triggerExecution"] = (time.perf_counter() - begun_s) * 1000
        self._quiet_since_ms = self._clock.now_ms()
        self._on_progress(self._progress(number, spans))
        return True

    def _settle(self) -> None:
        """`MicroBatch.settle`."""
        if not self._is_settled:
            for source in self._sources:
                if isinstance(source, RenewableSource):
                    source.refuse_renewed()
            with self._timed("walCommit"):
                self._log.settle()
            self._is_settled = True
            self.reach(BatchPoint.PLANNED)

    def _look(self, number: int) -> list[str | None] | None:
        """Where each source ends in a batch that is not planned yet; None where nothing is new, or where one does not
        answer while the query is to end, which no answer could keep from it."""
        known = self._known(number)
        try:
            found = [source.latest(self._start(number, index)) for index, source in enumerate(self._sources)]
        except Exception as error:
            if self._ends.is_set() and is_retryable(error):
                return None
            raise
        ends = [old if new is None else new for new, old in zip(found, known, strict=True)]
        return None if ends == known else ends

    def _known(self, number: int) -> list[str | None]:
        """Where each source ended in the batch before."""
        before = self._log.offsets(number - 1) if number else None
        return [None] * len(self._sources) if before is None else list(before)

    def _start(self, number: int, index: int) -> str | None:
        known = self._known(number)[index]
        return self._sources[index].first() if known is None else known

    def _tell_sources(self, number: int) -> None:
        """A batch is committed; none before the first."""
        ends = self._log.offsets(number) if number >= 0 else None
        for source, end in zip(self._sources, ends or (), strict=False):
            if end is not None:
                source.done(end)

    def _pause_until(self, time_ms: int) -> None:
        while not self._ends.is_set() and (left_ms := time_ms - self._clock.now_ms()) > 0:
            self._clock.pause(self._ends, left_ms / 1000)

    def _wait(self) -> bool:
        """Waits until a source calls; False where it is time to look at all of them without that, or to end."""
        number = self._log.next_number
        starts = [self._start(number, index) for index in range(len(self._sources))]
        turn_s = (_SLICE_MS if len(starts) == 1 else _TURN_MS) / 1000
        begun_ms = self._clock.now_ms()
        while self._clock.now_ms() - begun_ms < _LOOK_EVERY_MS:
            self._report_idle(starts)
            for source, start in zip(self._sources, starts, strict=True):
                if self._ends.is_set():
                    return False
                if source.wait(start, turn_s):
                    return True
        return False

    def _report_idle(self, starts: Sequence[str | None]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._quiet_since_ms >= IDLE_EVERY_MS:
            self._quiet_since_ms = now_ms
            known = zip(self._sources, starts, strict=True)
            lags = [lag for source, at in known if at is not None and (lag := source.lag(at)) is not None]
            self._on_idle(self.query_id, sum(lags) if lags else None)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self._times_ms[name] = (time.perf_counter() - begun_s) * 1000

    def _progress(self, number: int, spans: Sequence[Span]) -> dict[str, Any]:
        """A batch that is done, by the names of Spark's `StreamingQueryProgress`; `lag` is ours."""
        sources = [
            {
                "startOffset": _parsed(start),
                "endOffset": _parsed(end),
                "lag": None if end is None else source.lag(end),
            }
            for source, (start, end) in zip(self._sources, spans, strict=True)
        ]
        return {
            "id": self.query_id,
            "runId": self.run_id,
            "name": self.name,
            "timestamp": datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds"),
            "batchId": number,
            "durationMs": {name: round(value, 1) for name, value in self._times_ms.items()},
            "sources": sources,
        }


def _parsed(offset: str | None) -> Any:
    return None if offset is None else orjson.loads(offset)
