"""The live part of the demo of a database: rounds of work, what happens between them, and `freshet run`, which follows.

| after round | happens |
|---|---|
| `ALTER` | columns are added and become wider |
| `SNAPSHOT` | Debezium sends the rows of one table again, so that they have what the default of a new column says |
| `NEW_TABLE` | a table is created |
| `TRUNCATE` | a table is emptied, and filled with other rows |
| `KILL` | the writer is killed (SIGKILL) |
| `RESTART` | it is started again |
"""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from freshet.jobs.demo.children import Child, Line
from freshet.jobs.demo.kafka_connect import KafkaConnect
from freshet.jobs.demo.live import DemoError
from freshet.jobs.demo.source_database import SourceDatabase

PIPELINES: Final = ("demo-database", "demo-shards")
"""Their files have these names too."""
TOPICS: Final = "shop.public."

ROUNDS: Final = 20
ALTER: Final = 4
SNAPSHOT: Final = 6
NEW_TABLE: Final = 8
TRUNCATE: Final = 10
KILL: Final = 12
RESTART: Final = 14

ROUND_PAUSE_S: Final = 0.6
NEWS_EVERY_S: Final = 2.0
RUN_LIMIT_S: Final = 600.0
_ANSWER_TIMEOUT_S: Final = 60.0
_SNAPSHOT_IS_DONE: Final = "aggregateType='Incremental Snapshot', type='COMPLETED'"


class DatabaseLive:
    """One run of the live part; `totals` are of the batches that were reported."""

    def __init__(
        self,
        output: Path,
        bootstrap_servers: str,
        database: SourceDatabase,
        connect: KafkaConnect,
        files: Sequence[Path],
        engine: str,
    ) -> None:
        self._warehouse = output / "warehouse"
        self._bootstrap_servers = bootstrap_servers
        self._database = database
        self._connect = connect
        self._lines: queue.Queue[Line] = queue.Queue()
        command = ["freshet", "run", *map(str, files), "--progress", "json", "--on", engine]
        self._writer = Child("writer", command, self._lines, output)
        self._is_killed = False
        self._has_new_table = False
        self._began = time.monotonic()
        self._told_at = 0.0
        self.totals: Counter[str] = Counter()

    def run(self) -> None:
        """To the end, when all changes of the database are in the tables. Raises `DemoError`."""
        deadline = time.monotonic() + RUN_LIMIT_S
        happenings = {
            ALTER: ("ALTER: customers get two columns, order lines wider ones", lambda: self._database.play("alter")),
            SNAPSHOT: ("an incremental snapshot of the customers", lambda: self._database.play("snapshot")),
            NEW_TABLE: ("CREATE TABLE refunds", lambda: self._database.play("new_table")),
            TRUNCATE: ("TRUNCATE daily_totals, and other rows", lambda: self._database.play("truncate")),
            KILL: ("kill -9: the writer is gone, the database goes on", self._kill),
            RESTART: ("the writer is started again", self._start_writer),
        }
        try:
            self._start_writer()
            self._until(self._connect.runs, deadline)
            self.say("Debezium runs, and sends what is there: its snapshot")
            self._until(lambda: self.totals["applied"] > 0, deadline)
            self.say("the first rows are in the lake; now the database changes")
            for number in range(1, ROUNDS + 1):
                self._database.play("work", number)
                if number == KILL:  # not before: what the writer follows is to be seen
                    self._until(lambda: self._has_new_table, deadline)
                if number in happenings:
                    text, happen = happenings[number]
                    self.say(f"after round {number}: {text}")
                    happen()
                self._hear(ROUND_PAUSE_S)
            self._catch_up(deadline)
        finally:
            self._writer.stop()

    def say(self, text: str) -> None:
        """A line with the seconds since the beginning."""
        print(f"  {time.monotonic() - self._began:5.1f} s  {text}", flush=True)

    # ------------------------------------------------------------------------------------------------ the writer

    def _start_writer(self) -> None:
        self._writer.start({"KAFKA_BOOTSTRAP_SERVERS": self._bootstrap_servers, "WAREHOUSE": self._warehouse.as_uri()})

    def _kill(self) -> None:
        self._is_killed = True
        self._writer.kill()

    # ------------------------------------------------------------------------------------------------ what comes

    def _catch_up(self, deadline: float) -> None:
        """Until 1. Debezium has sent all there is, 2. all records are committed to the tables."""
        end = self._database.position()
        self.say(f"the work is done, after {ROUNDS} rounds; the lake catches up")
        self._until(lambda: self._connect.has_logged(_SNAPSHOT_IS_DONE), deadline)
        self._until(lambda: self._database.has_sent(end), deadline)  # 1
        wanted = self._end_offsets()
        self._until(lambda: self._has_read(wanted), deadline)  # 2
        self.say(
            f"all {sum(wanted.values()):,} records of {len({topic for topic, _ in wanted})} topics are in the lake"
        )

    def _until(self, is_true: Callable[[], bool], deadline: float) -> None:
        """Takes lines until something is true."""
        while not is_true():
            if time.monotonic() > deadline:
                raise DemoError(f"not done after {RUN_LIMIT_S:.0f} s; what the writer says is in {self._writer.log}")
            if failure := self._connect.failure():
                raise DemoError(failure)
            self._hear(0.2)

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

    # ------------------------------------------------------------------------------------------------ offsets

    def _end_offsets(self) -> dict[tuple[str, int], int]:
        """By topic and Kafka partition of the tables; those without records are left out."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": "freshet-demo"})
        try:
            topics = consumer.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
            places = [
                (name, number) for name in topics if name.startswith(TOPICS) for number in topics[name].partitions
            ]
            ends = {
                (name, number): consumer.get_watermark_offsets(TopicPartition(name, number), timeout=_ANSWER_TIMEOUT_S)[
                    1
                ]
                for name, number in places
            }
        finally:
            consumer.close()
        return {place: end for place, end in ends.items() if end > 0}

    def _has_read(self, wanted: Mapping[tuple[str, int], int]) -> bool:
        """True when the checkpoint says that all records before these offsets are in the tables."""
        read: dict[str, dict[str, int]] = {}
        for pipeline in PIPELINES:
            folder = self._warehouse / "_checkpoints" / pipeline
            done = [int(file.name) for file in (folder / "commits").glob("*") if file.name.isdecimal()]
            if done:
                read |= json.loads((folder / "offsets" / str(max(done))).read_text().splitlines()[-1])
        return all(read.get(topic, {}).get(str(number), 0) >= end for (topic, number), end in wanted.items())
