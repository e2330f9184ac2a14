"""Batches in workers: each row once, whichever worker ends in which call; two queries at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.pipeline.local import job, packed_store
from freshet.pipeline.local.batch_calls import Leaving, PackedToResults, RangePiece
from freshet.pipeline.local.job import ATTEMPTS_MAX, Hand, Placing, Standing, divided
from freshet.pipeline.local.workers import WorkerDiedError, WorkerPool
from freshet.pipeline.query.task.kafka_ranges import DirectClient, RangeWork
from freshet.pipeline.query.wire.kept_value import KeptValue
from tests.kit import engine
from tests.kit.engine import CALL_KINDS, LinesPiece, LocalWorld, each_batch
from tests.kit.mock_kafka import mock_kafka
from tests.pipeline.query.test_engine_contract import PIPELINE, TABLES, WAITING

RECORDS = [{"id": number, "n": 1} for number in range(60)]


class KillingPool(WorkerPool):
    """Workers, of which one is killed while it runs the first call of a kind; as often as told."""

    kind = ""
    times = 0
    victim: int | None = None

    def submit(self, call: Any, *, worker: int | None = None, group: str | None = None) -> Future[Any]:
        """As `WorkerPool` says."""
        is_meant = self.victim is None or worker is None or self.victim == worker
        if not (CALL_KINDS.get(type(call)) == self.kind and self.times and is_meant):
            return super().submit(call, worker=worker, group=group)
        self.times -= 1
        super().submit(KeptOf(), worker=worker or 0).result()  # or what it was asked before would end with it
        victim = self.pids()[worker or 0]
        os.kill(victim, signal.SIGSTOP)  # or it may be ready before it is killed
        future = super().submit(call, worker=worker, group=group)
        os.kill(victim, signal.SIGKILL)
        return future


@pytest.fixture(scope="module")
def pool() -> Iterator[KillingPool]:
    with KillingPool(2) as pool:
        yield pool


def _world(root: Path, table: str, pool: WorkerPool) -> LocalWorld:
    return LocalWorld(root, PIPELINE.replace("OPTIONS", TABLES[table]), pool)


@pytest.mark.parametrize("table", ["assigners", "lookup"])
def test_batches_run_in_workers(tmp_path: Path, pool: KillingPool, table: str) -> None:
    there = _world(tmp_path / "world", table, pool)
    there.put(*RECORDS, "no JSON")
    there.put(*({"id": number, "n": 5} for number in range(30, 90)))
    assert list(each_batch(there.run())) == [(0, False), (1, False)]
    twice = 6 if table == "lookup" else 5
    assert [row["n"] for row in sorted(there.rows(), key=lambda row: row["id"])] == [1] * 30 + [twice] * 30 + [5] * 30
    assert len(there.dead()) == 1


@pytest.mark.parametrize("table", ["buckets", "assigners", "waiting"])
def test_rows_that_keep_together_are_written_by_one_task(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for their bucket stay with their own: its number is in the names of their files."""
    there = LocalWorld(tmp_path / "world", PIPELINE.replace("OPTIONS", (TABLES | WAITING)[table]))
    tasks: list[set[int]] = []
    write = PackedToResults.__call__

    def noted(call: PackedToResults, worker: int) -> list[bytes]:
        tasks[-1].add(call.place.number)
        return write(call, worker)

    monkeypatch.setattr(PackedToResults, "__call__", noted)
    for keeps_together in (False, True):
        monkeypatch.setattr(LinesPiece, "keeps_together", keeps_together)
        tasks.append(set())
        there.put(*RECORDS, "no JSON")
        there.run()
    assert tasks == [{0, 1}, {0, 1} if table == "waiting" else {0}]
    there.table().compact()
    assert len(there.rows()) == 60 and len(there.dead()) == 2


@pytest.mark.parametrize("kind", ["decode", "stage", "write"])
def test_a_batch_whose_worker_is_killed_is_run_again(
    tmp_path: Path, pool: KillingPool, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = _world(tmp_path / "world", "assigners", pool)
    there.put(*RECORDS, "no JSON")
    pool.kind, pool.times = kind, 2
    assert list(each_batch(there.run())) == [(0, False)]
    assert pool.times == 0
    assert "is run again from its start (attempt 2 of 4): a worker process was ended by SIGKILL" in caplog.text
    assert len(there.rows()) == 60 and len(there.dead()) == 1


def test_queries_share_the_workers(tmp_path: Path, pool: KillingPool) -> None:
    worlds = [_world(tmp_path / str(number), "buckets", pool) for number in range(2)]
    for number, each in enumerate(worlds):
        for batch in range(3):
            each.put(*({"id": row, "n": number} for row in range(batch * 20, batch * 20 + 40)))
    threads = [threading.Thread(target=each.run) for each in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, each in enumerate(worlds):
        assert [row["n"] for row in each.rows()] == [number] * 80


def test_nothing_is_left_between_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    monkeypatch.setattr("freshet.pipeline.local.packed_store.KEPT_BYTES", 0)  # before the fork: all goes into files
    with KillingPool(2, str(scratch)) as pool:
        there = _world(tmp_path / "world", "assigners", pool)
        there.put(*RECORDS)
        pool.kind, pool.times = "write", 1
        there.run()
        (folder,) = scratch.iterdir()
        assert [each.name for each in folder.iterdir()] == [".made-by-freshet"]
    assert not list(scratch.iterdir())


@dataclass(frozen=True)
class KeptOf:
    """How many rounds a worker keeps something of."""

    def __call__(self, worker: int) -> int:
        return len(packed_store._kept)


def test_workers_keep_nothing_of_a_round_that_has_failed(tmp_path: Path) -> None:
    with KillingPool(2) as pool:
        there = _world(tmp_path / "world", "buckets", pool)
        before = pool.submit(KeptOf(), worker=0).result()  # of this process, when it was forked
        there.put(*RECORDS)
        pool.kind, pool.times, pool.victim = "write", ATTEMPTS_MAX, 1
        with pytest.raises(WorkerDiedError):
            there.run()
        assert pool.submit(KeptOf(), worker=0).result() == before


# --- who reads which range --------------------------------------------------------------------------------------------


def _range(partition: int, size: int) -> OffsetRange:
    return OffsetRange("t", partition, 100, 100 + size)


def test_a_partition_stays_with_its_worker() -> None:
    placing = Placing()
    first = placing.groups({0: [_range(0, 90), _range(1, 100), _range(2, 80), _range(3, 70)]}, 2)
    assert first == [(1, 0, [0, 2]), (0, 0, [1, 3])]
    assert placing.groups({0: [_range(0, 100), _range(1, 90), _range(2, 70), _range(3, 80)]}, 2) == [
        (1, 0, [0, 2]),
        (0, 0, [1, 3]),
    ]


def test_partitions_move_where_one_worker_would_have_far_too_much() -> None:
    placing = Placing()
    placing.groups({0: [_range(0, 90), _range(1, 100), _range(2, 80), _range(3, 70)]}, 2)
    assert placing.groups({0: [_range(0, 1000), _range(1, 10), _range(2, 1000), _range(3, 10)]}, 2) == [
        (0, 0, [0, 1]),
        (1, 0, [2, 3]),
    ]


def test_a_partition_that_has_nearly_all_stays() -> None:
    placing = Placing()
    placing.groups({0: [_range(0, 100)], 1: [_range(0, 90)]}, 2)
    for _ in range(3):
        assert placing.groups({0: [_range(0, 10)], 1: [_range(0, 5000)]}, 2) == [(0, 0, [0]), (1, 1, [0])]


CLIENT = DirectClient((), 10.0, False, stays=True)


def _hand(worker: int, *partitions: int, client: DirectClient = CLIENT, source: int = 0) -> Hand:
    ranges = tuple(_range(each, 10) for each in partitions)
    groups = tuple((number,) for number in range(len(ranges)))
    return Hand((RangePiece(RangeWork(client, ranges, groups, KeptValue(None), source)),), worker)  # type: ignore[arg-type]


LARGE = [_hand(0, 0, 1), _hand(1, 2, 3)]
OTHER_CLIENT = replace(CLIENT, timeout_s=20.0)


@pytest.mark.parametrize(
    ("before", "now", "left"),
    [
        (LARGE, LARGE, {}),
        (LARGE, [_hand(0, 1)], {}),  # nothing new in the others
        (LARGE, [_hand(0, 0, 1, 2)], {(1, CLIENT): [("t", 2)]}),  # a small batch
        ([_hand(0, 0, 1, 2, 3)], LARGE, {(0, CLIENT): [("t", 2), ("t", 3)]}),  # and a large one
        ([_hand(0, 0), _hand(1, 0)], [_hand(0, 0)], {(1, CLIENT): [("t", 0)]}),  # a range in parts
        ([_hand(0, 0)], [_hand(0, 0, client=OTHER_CLIENT)], {(0, CLIENT): [("t", 0)]}),
        ([_hand(0, 0)], [_hand(1, 0, source=1)], {}),
        ([_hand(0, 0, client=replace(CLIENT, stays=False))], [_hand(1, 0)], {}),
    ],
)
def test_a_partition_that_another_worker_reads_is_left(
    before: list[Hand], now: list[Hand], left: dict[tuple[int, DirectClient], list[tuple[str, int]]]
) -> None:
    standing = Standing()
    assert standing.left(before) == {}
    assert standing.left(now) == left
    assert standing.left(now) == {}, "once"


@dataclass(frozen=True)
class Topic:
    """A `RangeSource` whose batches end at these offsets of two partitions."""

    client: DirectClient
    ends: tuple[int, ...]

    def ranges(self, start: str | None, end: str) -> list[OffsetRange]:
        """As `RangeSource` says."""
        begin = 0 if start is None else self.ends[int(start)]
        return [OffsetRange("t", partition, begin, self.ends[int(end)]) for partition in (0, 1)]


def test_a_worker_is_told_that_another_reads_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SMALL_RECORDS", 5)
    with mock_kafka(topics={"t": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(40):
            producer.produce("t", b'{"id": %d, "n": 1}' % number, partition=number % 2)
        assert producer.flush(30) == 0
        client = DirectClient((("bootstrap.servers", cluster.bootstrap_servers),), 30.0, False, stays=True)
        monkeypatch.setattr(engine, "FileListSource", lambda files: Topic(client, (8, 16, 17, 18)))
        there = LocalWorld(tmp_path / "world", PIPELINE.replace("OPTIONS", TABLES["buckets"]))
        sent: list[tuple[int | None, Leaving]] = []
        submit = there._engine.pool.submit

        def noted(call: Any, *, worker: int | None = None, group: str | None = None) -> Future[Any]:
            sent.extend([(worker, call)] if isinstance(call, Leaving) else [])
            return submit(call, worker=worker, group=group)

        monkeypatch.setattr(there._engine.pool, "submit", noted)
        for _ in range(4):  # two large batches, and two small ones
            there.put()
        there.run()
        assert [(worker, call.places) for worker, call in sent] == [(1, (("t", 1),))]
        assert len(there.rows()) == 36


def test_a_large_range_is_read_by_several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SPLIT_MIN", 100)
    assert divided([_range(0, 1000), _range(1, 10)], 2) == [
        OffsetRange("t", 0, 100, 600),
        OffsetRange("t", 0, 600, 1100),
        _range(1, 10),
    ]
    assert divided([_range(0, 600), _range(1, 500)], 2) == [_range(0, 600), _range(1, 500)]
    assert divided([_range(0, 120)], 4) == [_range(0, 120)]
    assert divided([], 2) == []
