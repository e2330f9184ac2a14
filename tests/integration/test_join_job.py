"""Several queries write one wide table at the same time, are killed and started again, and lose or double nothing.

The queries are those of jobs/demo/pipelines/join-several-*.yaml, as `freshet run` starts them, together with `freshet
compact --every`, or with one of them compacting. Meanwhile the three streams send changes that are late, swapped and
repeated, and deletions. In the end the table, read by Freshet and by Apache Paimon, holds what the streams say, and
each broken record is one dead letter.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.join_streams import ORDERS, STREAMS, JoinStreams, topic_of
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.jobs.demo.shop import Message
from freshet.jobs.demo.stage import PIPELINES
from freshet.storage.catalog import Catalog
from freshet.storage.model.snapshot import CommitKind
from tests.kit.paimon_judge import PaimonJudge

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.judge,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]

ROOT = Path(__file__).resolve().parents[2]
TABLE = "shop.wide_orders_shared"
ORDERS_COUNT = 200
PIECES = 8
KILLS = 2
DEADLINE_S = 600


class Program:
    """One command that is started, killed and started again; its output goes on in one log."""

    def __init__(self, folder: Path, name: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", *arguments]
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def can_be_stopped(self) -> bool:
        """Whether it has come so far that SIGTERM is a request, which it finishes its batch upon."""
        assert self._child is not None
        status = Path(f"/proc/{self._child.pid}/status").read_text().splitlines()
        [caught] = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM at once."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait(30)

    def stop(self) -> int:
        """SIGTERM; the batch that runs is finished."""
        assert self._child is not None
        self._child.terminate()
        return self._child.wait(600)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def _send(broker: KafkaBroker, messages: Iterable[Message]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for message in messages:
        producer.produce(message.topic, message.value, message.key)
        producer.poll(0)
    assert producer.flush(300) == 0


def _wait(what: str, condition: Callable[[], bool], programs: Sequence[Program]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        logs = "\n".join(f"{program.log.name}:\n{program.tail()}" for program in programs)
        assert all(program.is_running() for program in programs), f"{what}: a program has ended\n{logs}"
        assert time.monotonic() < deadline, f"{what}\n{logs}"
        time.sleep(0.5)


def _rows(catalog: Catalog) -> dict[int, dict[str, Any]]:
    return {row["order_id"]: row for row in catalog.table(TABLE).scan().to_arrow().to_pylist()}


def _compactions(catalog: Catalog) -> int:
    return sum(each.commit_kind is CommitKind.COMPACT for each in catalog.table(TABLE).snapshots())


def _files(folder: Path, *, compacting: str | None) -> list[str]:
    """The pipeline files; `compacting` is the stream whose query is not write-only."""
    paths = []
    for stream in STREAMS:
        text = (PIPELINES / f"join-several-{stream}.yaml").read_text()
        assert "write-only: true" in text
        path = folder / f"{stream}.yaml"
        path.write_text(text.replace("write-only: true", "write-only: false") if stream == compacting else text)
        paths.append(str(path))
    return paths


@pytest.mark.parametrize(("processes", "compacting", "seed"), [("separate", None, 2), ("one", ORDERS, 3)])
def test_killed_and_started_again(
    tmp_path: Path, paimon: PaimonJudge, processes: str, compacting: str | None, seed: int
) -> None:
    draw = random.Random(seed)
    streams = JoinStreams(seed=seed)
    catalog = Catalog(str(tmp_path / "warehouse"))
    with KafkaBroker.start(tmp_path / "kafka") as broker:
        for stream in STREAMS:
            broker.create_topic(topic_of(stream), kafka_partitions=2)
        environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "WAREHOUSE": (tmp_path / "warehouse").as_uri(),
            "MAX_OFFSETS_PER_TRIGGER": "80",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
        }
        files = _files(tmp_path, compacting=compacting)
        groups = [files] if processes == "one" else [[file] for file in files]
        queries = [
            Program(tmp_path, f"queries-{number}", ["run", *group], environment) for number, group in enumerate(groups)
        ]
        compact = Program(
            tmp_path, "compact", ["compact", str(tmp_path / "warehouse"), TABLE, "--every", "0.5"], environment
        )
        programs = [*queries, compact] if compacting is None else queries
        try:
            _send(broker, (message for number in range(ORDERS_COUNT) for message in streams.insert(ORDERS, number)))
            for query in queries:
                query.start()
            _wait("the table is made", lambda: catalog.has_table(TABLE), queries)
            _wait("the first commit", lambda: catalog.table(TABLE).store.snapshots.latest() is not None, queries)
            if compacting is None:
                compact.start()
            kill_after = draw.sample(range(1, PIECES), KILLS)
            for piece in range(PIECES):
                _send(broker, streams.anything(120, range(ORDERS_COUNT)))
                _send(broker, streams.without_order(piece))
                time.sleep(draw.uniform(0.2, 2.0))
                if piece in kill_after:
                    victim = draw.choice(queries)
                    victim.kill()
                    victim.start()
            _wait("the table holds what the streams say", lambda: _rows(catalog) == streams.expected(), programs)
            dead = f"{TABLE}_dead_letters"
            _wait("the dead letters", lambda: catalog.table(dead).scan().to_arrow().num_rows == PIECES, programs)
            _wait("a compaction", lambda: _compactions(catalog) > 0, programs)
            # One that was killed at last may have found nothing to do, and be on its way up still.
            _wait("all can be stopped", lambda: all(program.can_be_stopped() for program in programs), programs)
            assert [program.stop() for program in programs] == [0] * len(programs), [p.tail() for p in programs]
        finally:
            for program in programs:
                program.kill()
    assert streams.broken == PIECES
    assert all(streams.present(stream) for stream in STREAMS)
    table = catalog.table(TABLE)
    ours = table.scan().to_arrow().sort_by("order_id")
    assert {row["order_id"]: row for row in ours.to_pylist()} == streams.expected()
    theirs = paimon.table(table.location).read_arrow(sort_by=["order_id"])
    assert theirs.cast(ours.schema).equals(ours)
    _check_commits(catalog, compacting)


def _check_commits(catalog: Catalog, compacting: str | None) -> None:
    """Each query committed under its own name, in order and no batch twice; only who should has compacted."""
    identifiers: dict[str, list[int]] = {}
    for snapshot in catalog.table(TABLE).snapshots():
        if snapshot.commit_kind is CommitKind.APPEND:
            identifiers.setdefault(snapshot.commit_user, []).append(snapshot.commit_identifier)
        else:
            assert snapshot.commit_user.startswith("freshet-compact-" if compacting is None else f"join-{compacting}")
    assert set(identifiers) <= {f"join-{stream}" for stream in STREAMS}
    for user, found in identifiers.items():
        assert found == sorted(set(found)), f"{user} committed a batch twice: {found}"
    assert _compactions(catalog) > 0
