"""The live part of the demo of a database: rounds of work, what happens between them, and `freshet run`, which follows.

| after round | happens |
|---|---|
| `ALTER` | columns are added and become wider |
| `RESEND` | the rows of one table are sent again, so that they have what the default of a new column says |
| `NEW_TABLE` | a table is created |
| `TRUNCATE` | a table is emptied, and filled with other rows |
| `KILL` | the writer is killed (SIGKILL) |
| `RESTART` | it is started again |
"""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from freshet.jobs.demo.child_process import Child, Line
from freshet.jobs.demo.source_database import SourceDatabase
from freshet.jobs.demo.stage import DemoError

ROUNDS: Final = 20
ALTER: Final = 4
RESEND: Final = 6
NEW_TABLE: Final = 8
TRUNCATE: Final = 10
KILL: Final = 12
RESTART: Final = 14

ROUND_PAUSE_S: Final = 0.6
NEWS_EVERY_S: Final = 2.0
RUN_LIMIT_S: Final = 600.0


class Feed(Protocol):
    """How the changes of the database come to the writer."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What its pipeline files ask for."""

    @property
    def resend(self) -> str:
        """The script that sends the rows of the customers again."""

    @property
    def resend_text(self) -> str:
        """What it does."""

    def failure(self) -> str | None:
        """Why nothing comes any more."""

    def begin(self, live: DatabaseLive) -> None:
        """Waits until changes come; the writer runs."""

    def catch_up(self, live: DatabaseLive) -> None:
        """Waits until all changes are in the lake, and says how many there were."""


class DatabaseLive:
    """One run of the live part; `totals` are of the batches that were reported."""

    def __init__(self, output: Path, database: SourceDatabase, feed: Feed, files: Sequence[Path], engine: str) -> None:
        self.warehouse = output / "warehouse"
        self.database, self._feed = database, feed
        self._lines: queue.Queue[Line] = queue.Queue()
        command = ["freshet", "run", *map(str, files), "--progress", "json", "--on", engine]
        self._writer = Child("writer", command, self._lines, output)
        self._is_killed = False
        self._has_new_table = False
        self._began = time.monotonic()
        self._deadline = self._began + RUN_LIMIT_S
        self._told_at = 0.0
        self._started_at = 0.0
        self.first_row_s: float | None = None
        """From the start of the first writer to the first batch that had rows for the lake."""
        self.totals: Counter[str] = Counter()

    def run(self) -> None:
        """To the end, when all changes of the database are in the tables. Raises `DemoError`."""
        play = self.database.play
        happenings = {
            ALTER: ("ALTER: customers get two columns, order lines wider ones", lambda: play("alter")),
            RESEND: (self._feed.resend_text, lambda: play(self._feed.resend)),
            NEW_TABLE: ("CREATE TABLE refunds", lambda: play("new_table")),
            TRUNCATE: ("TRUNCATE daily_totals, and other rows", lambda: play("truncate")),
            KILL: ("kill -9: the writer is gone, the database goes on", self._kill),
            RESTART: ("the writer is started again", self._start_writer),
        }
        try:
            self._start_writer()
            self._feed.begin(self)
            self.until(lambda: self.totals["applied"] > 0)
            self.say("the first rows are in the lake; now the database changes")
            for number in range(1, ROUNDS + 1):
                play("work", number)
                if number == KILL:  # not before: what the writer follows is to be seen
                    self.until(lambda: self._has_new_table)
                if number in happenings:
                    text, happen = happenings[number]
                    self.say(f"after round {number}: {text}")
                    happen()
                self._hear(ROUND_PAUSE_S)
            self.say(f"the work is done, after {ROUNDS} rounds; the lake catches up")
            self._feed.catch_up(self)
        finally:
            self._writer.stop()

    def say(self, text: str) -> None:
        """A line with the seconds since the beginning."""
        print(f"  {time.monotonic() - self._began:5.1f} s  {text}", flush=True)

    def until(self, is_true: Callable[[], bool]) -> None:
        """Takes lines until something is true. Raises `DemoError` when the time is over, or nothing comes any more."""
        while not is_true():
            if time.monotonic() > self._deadline:
                raise DemoError(f"not done after {RUN_LIMIT_S:.0f} s; what the writer says is in {self._writer.log}")
            if failure := self._feed.failure():
                raise DemoError(failure)
            self._hear(0.2)

    # ------------------------------------------------------------------------------------------------ the writer

    def _start_writer(self) -> None:
        self._started_at = time.monotonic()
        self._writer.start({**self._feed.environment, "WAREHOUSE": self.warehouse.as_uri()})

    def _kill(self) -> None:
        self._is_killed = True
        self._writer.kill()

    # ------------------------------------------------------------------------------------------------ what comes

    def _hear(self, seconds: float) -> None:
        """Takes lines for some time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._lines.get(timeout=left))
            except queue.Empty:
                return

    def _take(self, line: Line) -> None:
        if line.facts is None:
            if not self._is_killed:
                raise DemoError(f"the writer has ended by itself; its log is {self._writer.log}")
            self._is_killed = False
        elif line.facts.get("state") == "running":
            self._count(line.facts)
        elif line.facts.get("state") == "restarting":
            self.say(f"{line.facts['pipeline']} is started again after: {line.facts['error']}")
        else:
            raise DemoError(
                f"the writer has failed: {line.facts.get('error', line.facts)}; its log is {self._writer.log}"
            )

    def _count(self, facts: Mapping[str, Any]) -> None:
        self.totals["records read"] += facts["records"]
        self.totals["applied"] += facts["applied"]
        if facts["applied"] and self.first_row_s is None:
            self.first_row_s = time.monotonic() - self._started_at
        self.totals["dead letters"] += sum(facts["dead_letters"].values())
        self.totals["skipped"] += sum(facts["skipped"].values())
        self._has_new_table |= any("lake.refunds is created" in text for text in facts["table_events"])
        created = [text for text in facts["table_events"] if " is created " in text]
        if len(created) > 1:
            self.say(f"{len(created)} tables are created in the lake")
        for text in facts["table_events"]:
            if text not in created or len(created) == 1:
                self.say(text)
        if time.monotonic() >= self._told_at + NEWS_EVERY_S:
            self._told_at = time.monotonic()
            self.say(f"{self.totals['records read']:,} records read so far")
