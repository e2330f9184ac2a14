"""A run without Spark at 2,000 records a second and the fastest trigger, for several times as long as snapshots live.

Memory, files and the time of a commit stay as they are once the first snapshots have expired. On the way the broker is
killed and started again, and the topic gets partitions. In the end each record is applied once, which sums show, and
the table is whole.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from freshet import Catalog
from freshet.jobs.demo.child_process import start_child, tail
from freshet.jobs.demo.kafka_broker import KafkaBroker
from tests.kit.memory_watch import descendants
from tests.soak.counts import LONG_RUN, chance_of

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(6000)]

PER_S = 2000
STEP_S = 0.02
KEYS = 20_000
PARTITIONS = (2, 4)
"""At first, and later."""
LIVES = 5
"""Of a snapshot, in the time of the run: the broker's end and what comes after it are in the second one."""
SAMPLE_S = 1.0
WAIT_S = 300
MORE, MORE_OF_MEMORY = 1.25, 1.1
"""What the last life may have more of than the third one; besides, by the jitter of a busy machine:"""
MORE_MB, MORE_FILES, MORE_OPEN, MORE_MS = 60, 200, 40, 8
"""What is kept of metadata has reached its bounds after 10,000 batches, some 30 MB in each process; a worker that large
batches alone need may begin only now."""
PIPELINE = """
name: long
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: long, startingOffsets: earliest}}
    format: json
table:
  warehouse: "{folder}/w"
  name: shop.long
  columns: {{id: BIGINT, n: BIGINT, count: BIGINT}}
  primary_key: [id]
  options: {{bucket: 2, merge-engine: aggregation, fields.n.aggregate-function: sum,
             fields.count.aggregate-function: sum, changelog-producer: lookup,
             snapshot.time-retained: "{retained_s} s", snapshot.num-retained.min: 5}}
trigger: {{processing_time: 0 s}}
checkpoint: "{folder}/c"
"""


@dataclass(frozen=True)
class Sample:
    """What there is at a moment."""

    at_s: float
    pss_mb: float
    of_processes_mb: Sequence[int]
    open_files: int
    table_files: int
    checkpoint_files: int


@dataclass(frozen=True)
class Life:
    """The samples and batches of as long as a snapshot lives."""

    samples: Sequence[Sample]
    batches: Sequence[dict[str, Any]]

    @property
    def pss_mb(self) -> float:
        return statistics.median(each.pss_mb for each in self.samples)

    @property
    def files(self) -> float:
        return statistics.median(each.table_files for each in self.samples)

    @property
    def open_files(self) -> float:
        return statistics.median(each.open_files for each in self.samples)

    @property
    def commit_ms(self) -> float:
        """Of the quick ones: what other programs of the machine add is not in them."""
        return statistics.quantiles((each["driver_ms"]["commit"] for each in self.batches), n=5)[0]

    @property
    def text(self) -> str:
        level0 = max(each["level0_files"] for each in self.batches)
        batch_ms = sorted(each["batch_ms"] for each in self.batches)
        checkpoint = max(each.checkpoint_files for each in self.samples)
        return (
            f"{len(self.batches)} batches, PSS {self.pss_mb:.0f} MB (max {max(s.pss_mb for s in self.samples):.0f}, of "
            f"the processes at last {', '.join(map(str, self.samples[-1].of_processes_mb))}), "
            f"{self.files:.0f} files of the table, {checkpoint} of the checkpoint, {level0} files of level 0, "
            f"{self.open_files:.0f} are open; "
            f"batch {statistics.median(batch_ms):.1f} ms, p99 {batch_ms[len(batch_ms) * 99 // 100]:.0f}, "
            f"commit, p20 {self.commit_ms:.1f} ms"
        )


class Source:
    """The topic, and the rows that its records come to. A key stays in its partition, new ones have their own keys."""

    def __init__(self, broker: KafkaBroker, chance: Random) -> None:
        self._broker, self._chance = broker, chance
        broker.create_topic("long", kafka_partitions=PARTITIONS[0])
        self._producer = self._new_producer()
        self._partitions = PARTITIONS[0]
        self.wanted: dict[int, dict[str, int]] = {}
        self.sent = 0

    def _new_producer(self) -> Producer:
        settings = {"bootstrap.servers": self._broker.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        return Producer({**settings, "message.timeout.ms": WAIT_S * 1000})

    def add_partitions(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        admin.create_partitions([NewPartitions("long", PARTITIONS[1])])["long"].result(60)
        while len(admin.list_topics("long", timeout=60).topics["long"].partitions) < PARTITIONS[1]:
            time.sleep(STEP_S)
        self.flush()
        self._producer = self._new_producer()  # the old one believes for minutes what it has heard
        self._partitions = PARTITIONS[1]

    def send(self, count: int) -> None:
        for _ in range(count):
            partition = self._chance.randrange(self._partitions)
            key = self._chance.randrange(KEYS) * PARTITIONS[1] + partition
            value = b'{"id": %d, "n": %d, "count": 1}' % (key, self.sent)
            while True:
                try:
                    self._producer.produce("long", value, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            row = self.wanted.setdefault(key, {"id": key, "n": 0, "count": 0})
            row["n"] += self.sent
            row["count"] += 1
            self.sent += 1
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0


class Run:
    """The run, and what is seen of it."""

    def __init__(self, folder: Path, servers: str, retained_s: int) -> None:
        self.folder = folder
        file = folder / "long.yaml"
        file.write_text(PIPELINE.format(servers=servers, folder=folder, retained_s=retained_s))
        self._output, self.log = folder / "batches.jsonl", folder / "log.txt"
        command = [sys.executable, "-m", "freshet", "run", str(file), "--on", "local", "--progress", "json"]
        with self.log.open("wb") as log, self._output.open("wb") as output:
            self.child: subprocess.Popen[Any] = start_child(command, log=log, stdout=output)
        self._begun_s = time.monotonic()
        self.samples: list[Sample] = []
        self.batches: list[tuple[float, dict[str, Any]]] = []
        self._read = 0

    @property
    def at_s(self) -> float:
        return time.monotonic() - self._begun_s

    def begin(self) -> None:
        """Waits for the first batch; time begins then."""
        until = time.monotonic() + WAIT_S
        while not self.batches:
            assert time.monotonic() < until, tail(self.log)
            time.sleep(STEP_S)
            self.look()
        self.samples, self.batches, self._begun_s = [], [], time.monotonic()

    def look(self) -> None:
        assert self.child.poll() is None, tail(self.log)
        with self._output.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        found = [json.loads(line) for line in whole.splitlines()]
        self.batches += [(self.at_s, each) for each in found if each.get("applied") is not None]
        pids = descendants(self.child.pid)
        sizes_mb, open_files = [_pss_kb(pid) / 1024 for pid in pids], sum(map(_open_files, pids))
        counts = [sum(1 for path in (self.folder / name).rglob("*") if path.is_file()) for name in ("w", "c")]
        self.samples.append(Sample(self.at_s, sum(sizes_mb), [round(each) for each in sizes_mb], open_files, *counts))

    def life(self, begin_s: float, end_s: float) -> Life:
        return Life(
            [each for each in self.samples if begin_s <= each.at_s < end_s],
            [each for at_s, each in self.batches if begin_s <= at_s < end_s and not each["replay"]],
        )

    def stop_when_all_is_read(self, count: int) -> None:
        until = time.monotonic() + WAIT_S
        table = Catalog(str(self.folder / "w")).table("shop.long")
        while sum(table.scan(columns=["count"]).to_arrow()["count"].to_pylist()) < count:
            assert time.monotonic() < until and self.child.poll() is None, tail(self.log)
            time.sleep(0.2)
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(60) == 0, tail(self.log)


@contextmanager
def _run(folder: Path, servers: str, retained_s: int) -> Iterator[Run]:
    run = Run(folder, servers, retained_s)
    try:
        yield run
    finally:
        run.child.kill()
        run.child.wait()


def _pss_kb(pid: int) -> int:
    """What a process has of its own, and its part of what it shares; 0 of one that is ending."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _open_files(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:  # it is ending
        return 0


def test_nothing_grows(tmp_path: Path) -> None:
    seconds = LONG_RUN.now()
    retained_s = max(10, seconds // LIVES)
    with KafkaBroker.start(tmp_path / "kafka") as broker:
        source = Source(broker, chance_of("long run"))
        with _run(tmp_path, broker.bootstrap_servers, retained_s) as run:
            source.send(1)
            run.begin()
            events = {1.2: broker.kill, 1.25: broker.restart, 1.5: source.add_partitions}
            while run.at_s < LIVES * retained_s:
                if events and run.at_s > min(events) * retained_s:
                    events.pop(min(events))()
                if not run.samples or run.at_s - run.samples[-1].at_s > SAMPLE_S:
                    run.look()
                if (missing := int(PER_S * run.at_s) - source.sent) > 0:
                    source.send(missing)
                time.sleep(STEP_S)
            run.look()
            source.flush()
            run.stop_when_all_is_read(source.sent)
    lives = [run.life(number * retained_s, (number + 1) * retained_s) for number in range(LIVES)]
    print(f"{seconds} s, {source.sent:,} records, {len(run.batches)} batches, snapshots live {retained_s} s")
    for each in lives:
        print(each.text)
    table = Catalog(str(tmp_path / "w")).table("shop.long")
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == source.wanted
    assert not events and not table.check().damage
    third, last = lives[2], lives[-1]
    assert last.pss_mb < third.pss_mb * MORE_OF_MEMORY + MORE_MB
    # The snapshots that live are those of as many batches as the machine has time for.
    batches = [sum(len(each.batches) for each in lives[end - 2 : end]) for end in (3, LIVES)]
    assert last.files < third.files * max(1.0, batches[1] / batches[0]) * MORE + MORE_FILES
    assert last.open_files < third.open_files * MORE + MORE_OPEN
    assert last.commit_ms < third.commit_ms * MORE + MORE_MS
