"""The live part of the demo: a shop sends changes, a writer brings them into the tables, two readers follow its log.

In the middle the writer is killed (SIGKILL), as soon as the speculative reader was shown changes without a commit.
Its checkpoint is then put back to where it was before that batch, as a backup would be, so that it reads another,
larger batch: what the speculative reader was shown is retracted. With the checkpoint as the crash left it, the batch
would come again as it was, and a reader would notice nothing.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
from confluent_kafka import Producer

from freshet.jobs.demo.child_process import Child, Line
from freshet.jobs.demo.reader import TABLE, SentChanges
from freshet.jobs.demo.shop import CUSTOMERS_TOPIC, ORDERS_TOPIC, Shop
from freshet.jobs.demo.stage import DemoError
from freshet.pipeline.identity.checkpoint_offsets import finished_lines
from freshet.storage.catalog import Catalog

ISOLATIONS: Final = ("speculative", "committed")
PIPELINES: Final = {"demo-orders": ORDERS_TOPIC, "demo-customers": CUSTOMERS_TOPIC}
CUSTOMER_COUNT: Final = 300
EVENTS_PER_WAVE: Final = 500
WAVE_PAUSE_S: Final = 0.7
WAVES_BEFORE: Final = 10
"""So many waves come before the writer is killed, and after it works again."""

KILLS_MAX: Final = 3
"""A commit may be faster than the kill; then nothing is open, and the writer is killed again."""

NEWS_EVERY_S: Final = 2.0
RUN_LIMIT_S: Final = 900.0
CATCH_UP_LIMIT_S: Final = 120.0
"""How long readers may take for what is committed; what they have not shown by then is a difference."""

MOMENT_S: Final = 1.5


@dataclass
class Outcome:
    """What happened."""

    waves: list[SentChanges] = field(default_factory=list)
    recovered_us: int = 0
    """When the readers had caught up after the last kill."""
    totals: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in PIPELINES})
    kills: int = 0
    open_batches: list[int] = field(default_factory=list)
    """Batches that were shown and not committed when the writer was killed."""


class Live:
    """One run of the live part."""

    def __init__(self, output: Path, bootstrap_servers: str, shop: Shop, files: list[Path], engine: str) -> None:
        self._warehouse = output / "warehouse"
        self._bootstrap_servers = bootstrap_servers
        self._shop = shop
        self.outcome = Outcome()
        self._lines: queue.Queue[Line] = queue.Queue()
        command = ["freshet", "run", *map(str, files), "--progress", "json", "--on", engine]
        self._writer = Child("writer", command, self._lines, output)
        self.shown = {isolation: output / f"{isolation}.arrow" for isolation in ISOLATIONS}
        self._readers = {
            isolation: Child(
                isolation,
                ["freshet.jobs.demo.reader", str(self._warehouse), isolation, str(self.shown[isolation])],
                self._lines,
                output,
            )
            for isolation in ISOLATIONS
        }
        self._has_begun, self._enough, self._ended = threading.Event(), threading.Event(), threading.Event()
        self._sender = threading.Thread(target=self._send, name="shop")
        self._rows: Counter[str] = Counter()
        self._newest: dict[str, int] = {}
        self._sums: dict[str, tuple[int, int]] = {}
        """What the rows that were shown add up to: their number, and the sum of their changes."""
        self._reported_at = 0.0
        self._is_killed = False

    def run(self) -> None:
        """To the end, when all that was sent is in the tables and the readers have seen it. Raises `DemoError`."""
        deadline = time.monotonic() + RUN_LIMIT_S
        try:
            self._start_writer()
            for reader in self._readers.values():
                reader.start()
            self._sender.start()
            self._until(lambda: len(self.outcome.waves) > WAVES_BEFORE and self._follows(), deadline)
            while not self.outcome.open_batches and self.outcome.kills < KILLS_MAX:
                self._kill_and_recover(deadline)
            enough = len(self.outcome.waves) + WAVES_BEFORE
            self._until(lambda: len(self.outcome.waves) >= enough, deadline)
            self._enough.set()
            self._sender.join()
            self._until(self._is_read, deadline)
            self._catch_up()
        finally:
            self._ended.set()
            self._enough.set()
            if self._sender.ident is not None:
                self._sender.join()
            self._writer.stop()
            for reader in self._readers.values():
                reader.stop()

    # ------------------------------------------------------------------------------------------------ the writer

    def _start_writer(self) -> None:
        self._writer.start({"KAFKA_BOOTSTRAP_SERVERS": self._bootstrap_servers, "WAREHOUSE": self._warehouse.as_uri()})

    def _kill_and_recover(self, deadline: float) -> None:
        lsn = self._kill(deadline)
        self._hear_all()
        open_batch = self._put_back()
        if open_batch is None:
            print("  … but the commit was faster: nothing is open")
        else:
            self.outcome.open_batches.append(open_batch)
            print(
                f"  batch {open_batch} is in the log, not in the table; the speculative reader was shown rows of it\n"
                f"  its checkpoint is put back to before batch {open_batch}, so that the batch becomes another one"
            )
        print("  the writer is started again", flush=True)
        self._start_writer()
        back = time.monotonic()
        self._until(lambda: self._follows(after_lsn=lsn), deadline)
        self.outcome.recovered_us = time.time_ns() // 1000
        print(f"  the readers have caught up {time.monotonic() - back:.1f} s after that", flush=True)

    def _kill(self, deadline: float) -> int:
        """Kills the writer with the next rows that the speculative reader is shown; returns the last change sent."""
        rows = self._rows["speculative"]
        self._until(lambda: self._rows["speculative"] > rows, deadline)
        self._is_killed = True
        self._writer.kill()
        self.outcome.kills += 1
        print("\n  kill -9: the writer is gone", flush=True)
        return self._shop.lsn

    def _put_back(self) -> int | None:
        """Takes the last batch of the orders out of the checkpoint, unless it is committed or nothing of it was shown:
        a busy machine may be on its way to the next batch when the kill comes. Returns its number.
        """
        offsets = self._warehouse / "_checkpoints" / "demo-orders" / "offsets"
        last = max(int(file.name) for file in offsets.iterdir() if file.name.isdecimal())
        catalog = Catalog(str(self._warehouse))
        for name in (TABLE, "shop.dead_letters"):
            for snapshot in catalog.table(name).snapshots():
                if (snapshot.commit_user, snapshot.commit_identifier) == ("demo-orders", last):
                    return None
        committed = pc.max(catalog.table(TABLE).changelog().to_arrow()["changed"]).as_py()
        if self._newest["speculative"] <= (committed or 0):
            return None
        for file in (offsets / str(last), offsets / f".{last}.crc"):
            file.unlink(missing_ok=True)
        return last

    # ------------------------------------------------------------------------------------------------ what comes

    def _until(self, is_true: Callable[[], bool], deadline: float) -> None:
        """Takes lines until something is true."""
        while not is_true():
            if time.monotonic() > deadline:
                raise DemoError(f"not done after {RUN_LIMIT_S:.0f} s")
            try:
                self._take(self._lines.get(timeout=0.1))
            except queue.Empty:
                continue

    def _take(self, line: Line) -> None:
        if line.facts is None:
            child = self._readers.get(line.process, self._writer)
            if child is not self._writer or not self._is_killed:
                raise DemoError(f"the {child.name} has ended by itself; its log is {child.log}")
            self._is_killed = False
            return
        if line.process == "writer":
            self._count(line.facts)
            return
        self._rows[line.process] += line.facts["rows"]
        self._newest[line.process] = max(self._newest.get(line.process, 0), line.facts["changed"])
        rows, changed = self._sums.get(line.process, (0, 0))
        self._sums[line.process] = (rows + line.facts["adds"][0], changed + line.facts["adds"][1])
        self._tell()

    def _count(self, facts: Mapping[str, Any]) -> None:
        self._has_begun.set()
        totals = self.outcome.totals[facts["pipeline"]]
        totals["records read"] += facts["records"]
        totals["applied"] += facts["applied"]
        totals["dead letters"] += sum(facts["dead_letters"].values())
        totals["skipped"] += sum(facts["skipped"].values())

    def _tell(self) -> None:
        """A line about where everybody is, now and then."""
        now = time.monotonic()
        if now < self._reported_at + NEWS_EVERY_S:
            return
        self._reported_at = now
        sent, read = (f"{sum(counts):,}" for counts in (self._shop.sent.values(), self._read().values()))
        rows = ", ".join(f"{isolation} {self._rows[isolation]:,}" for isolation in ISOLATIONS)
        print(f"  {sent} records sent, {read} in the tables; changes of orders shown: {rows}", flush=True)

    def _follows(self, after_lsn: int = 0) -> bool:
        """True when both readers have seen changes after this one."""
        return all(self._newest.get(isolation, 0) > after_lsn for isolation in ISOLATIONS)

    def _read(self) -> Counter[str]:
        """Records in the tables, by pipeline, as the checkpoints say."""
        return Counter({name: self._read_by(name, topic) for name, topic in PIPELINES.items()})

    def _read_by(self, pipeline: str, topic: str) -> int:
        lines = finished_lines(str(self._warehouse / "_checkpoints" / pipeline))
        return sum(sum(json.loads(line)[topic].values()) for line in lines)

    def _is_read(self) -> bool:
        """True when all that was sent is in the tables."""
        return self._read() == {name: self._shop.sent[topic] for name, topic in PIPELINES.items()}

    def _catch_up(self) -> None:
        """Until both readers were shown what adds up to the table, for some time at most."""
        changed = Catalog(str(self._warehouse)).table(TABLE).scan(columns=["changed"]).to_arrow()["changed"]
        wanted = (len(changed), pc.sum(changed).as_py())
        deadline = time.monotonic() + CATCH_UP_LIMIT_S
        while any(self._sums.get(isolation) != wanted for isolation in ISOLATIONS) and time.monotonic() < deadline:
            self._hear_all()
        self._hear_all()

    def _hear_all(self) -> None:
        """Takes lines until none has come for a moment."""
        with suppress(queue.Empty):
            while True:
                self._take(self._lines.get(timeout=MOMENT_S))

    # ------------------------------------------------------------------------------------------------ the shop

    def _send(self) -> None:
        """Sends the stream in waves, the second when the first is in a table."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 10**6}
        )
        while not self._enough.is_set():
            is_first = not self.outcome.waves
            sent_us = time.time_ns() // 1000
            for message in self._shop.open(CUSTOMER_COUNT) if is_first else self._shop.trade(EVENTS_PER_WAVE):
                producer.produce(message.topic, message.value, message.key)
                producer.poll(0)
            producer.flush()
            self.outcome.waves.append(SentChanges(self._shop.lsn, sent_us))
            while is_first and not self._has_begun.wait(WAVE_PAUSE_S) and not self._ended.is_set():
                continue
            self._ended.wait(WAVE_PAUSE_S)
