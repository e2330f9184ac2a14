"""A source that counts, a table that takes each batch once, and a clock: what the loop of a query needs to be tried.

The offsets of the source are those of Spark's `rate-micro-batch`, so that Spark can go on with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from freshet.pipeline.local.local_query import BatchPoint, LocalQuery
from freshet.pipeline.query.driver.engine import MicroBatch


class Died(BaseException):
    """What a SIGKILL leaves: nothing of the process goes on."""


def offset(count: int) -> str:
    """The offset behind so many records."""
    return json.dumps({"offset": count, "timestamp": count}, separators=(",", ":"))


def count_of(text: str | None) -> int:
    """The records before an offset."""
    return 0 if text is None else int(json.loads(text)["offset"])


class FakeClock:
    """A clock that moves when somebody waits."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now = now_ms
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return self.now

    def pause(self, ends: threading.Event, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += round(seconds * 1000)


@dataclass
class Counted:
    """Records 0, 1, 2 …, of which `there` are there; at most `limit` in a batch. `comes` are records that come at a
    time of the clock."""

    there: int = 0
    limit: int = 1_000_000
    clock: FakeClock = field(default_factory=FakeClock)
    comes: dict[int, int] = field(default_factory=dict)
    has_first: bool = True
    cries_wolf: bool = False
    told: list[int] = field(default_factory=list)
    looks: int = 0
    waits: int = 0
    is_closed: bool = False
    most: int | None = None

    def first(self) -> str | None:
        return offset(0) if self.has_first else None

    def latest(self, start: str | None) -> str | None:
        self.looks += 1
        self._arrive()
        end = min(self.there if self.most is None else self.most, count_of(start) + self.limit)
        return start if end <= count_of(start) else offset(end)

    def bound(self) -> None:
        self._arrive()
        self.most = self.there

    def done(self, end: str) -> None:
        self.told.append(count_of(end))

    def lag(self, end: str) -> int | None:
        return self.there - count_of(end)

    def wait(self, start: str | None, timeout_s: float) -> bool:
        self.waits += 1
        if self.cries_wolf:
            return True
        end = self.clock.now + round(timeout_s * 1000)
        self.clock.now = min([at for at in self.comes if self.clock.now < at <= end], default=end)
        self._arrive()
        return self.there > count_of(start)

    def close(self) -> None:
        self.is_closed = True

    def _arrive(self) -> None:
        for at in [at for at in self.comes if at <= self.clock.now]:
            self.there += self.comes.pop(at)


class Once:
    """A table: takes a batch of a number once, refuses another one of that number, and has no gaps."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[tuple[int, int], ...]] = {}
        self.runs = 0

    def add(self, number: int, spans: tuple[tuple[int, int], ...]) -> None:
        self.runs += 1
        assert number in self.batches or number == len(self.batches), f"batch {number} leaves a gap"
        assert self.batches.setdefault(number, spans) == spans, f"batch {number} is another one than before"

    def write(self, batch: MicroBatch) -> None:
        """What a query calls."""
        assert isinstance(batch.query, LocalQuery)
        batch.settle()
        ends = batch.offsets()
        spans = [batch.query.span(batch.number, index) for index in range(len(ends))]
        self.add(batch.number, tuple((count_of(start), count_of(end)) for start, end in spans))

    def counts(self, source: int = 0) -> list[int]:
        """Where the batches end; raises where one does not begin at the end of the one before."""
        ends = [0]
        for number in sorted(self.batches):
            start, end = self.batches[number][source]
            assert start == ends[-1], f"batch {number} begins at {start}, not {ends[-1]}"
            ends.append(end)
        return ends[1:]


class NoWorkers:
    """An engine whose workers nobody calls."""

    parallelism = tasks_max = 1

    def each(self, work: Any, items: Sequence[Any], *, group: str | None = None) -> list[bytes]:
        raise NotImplementedError

    def cancel(self, group: str) -> None:
        raise NotImplementedError


class Mortal(LocalQuery):
    """A query that dies at a point of its n-th batch, or does something else there."""

    meets: Any = None

    def reach(self, point: BatchPoint) -> None:
        if self.meets is not None:
            self.meets(point)


def mortal(folder: Any, sources: Sequence[Any], write: Any, trigger: Any, **more: Any) -> Mortal:
    """A query in a folder, with the clock of its first source."""
    progress = more.pop("progress", [])
    more.setdefault("clock", sources[0].clock)
    return Mortal("counted", folder, sources, write, NoWorkers(), trigger, progress.append, **more)
