"""Calls in workers: what comes back, how a worker's end is told, and that another takes its place."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from freshet.logstore.kafka.offset_range import OffsetRange
from freshet.logstore.kafka.record_sizes import RecordSizes
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.failure import kind_of, ran_out_of_memory
from freshet.pipeline.errors.known_causes import is_crash
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.batch_calls import SizeProbe
from freshet.pipeline.local.worker_processes import KEPT_MAX, KnownValues
from freshet.pipeline.local.workers import WorkerDiedError, WorkerPool, settled
from freshet.pipeline.query.driver.engine import EngineError
from freshet.pipeline.query.task.kafka_ranges import DirectClient
from freshet.pipeline.query.wire.kept_value import KeptValue
from freshet.storage.exceptions import CorruptDataError, RetryableError
from tests.kit.mock_kafka import mock_kafka


@dataclass(frozen=True)
class Told:
    """A call that does what it is told."""

    what: str
    value: Any = None

    def __call__(self, worker: int) -> Any:
        match self.what:
            case "who":
                return worker, os.getpid()
            case "raise":
                raise self.value
            case "raise what no pickle has":
                raise UnpicklableError(lambda: None)
            case "end by":
                faulthandler.disable()
                os.kill(os.getpid(), self.value)
            case "exit":
                os._exit(self.value)
            case "sleep":
                time.sleep(self.value)
            case "count":
                return _counted(self.value)
            case "niceness":
                return os.nice(0)
        return self.value


def _counted(rows: pa.Table) -> dict[int, int]:
    """How often each value is there, computed by threads of Arrow."""
    found = rows.group_by("n").aggregate([("n", "count")])
    return dict(zip(found.column("n").to_pylist(), found.column("n_count").to_pylist(), strict=True))


class UnpicklableError(Exception):
    """An error of a library."""


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as pool:
        yield pool


@pytest.fixture(params=[0, 2])
def either(request: pytest.FixtureRequest, pool: WorkerPool) -> WorkerPool:
    """Workers, or calls of this process."""
    return pool if request.param else WorkerPool(0)


def test_a_call_runs_in_the_worker_that_is_named(pool: WorkerPool) -> None:
    found = settled([pool.submit(Told("who"), worker=number) for number in (0, 1, 1, 0)])
    assert [number for number, _ in found] == [0, 1, 1, 0]
    assert [pid for _, pid in found[:2]] == pool.pids() and os.getpid() not in pool.pids()


def test_what_is_raised_in_a_worker_is_raised_by_its_call(either: WorkerPool) -> None:
    raised = [
        ValueError("no"),
        OSError(28, "full", "/x"),
        MemoryError("none"),
        pa.ArrowMemoryError("none"),
        RetryableError("r"),
        CorruptDataError("c", path="p"),
    ]
    for error in raised:
        with pytest.raises(type(error)) as caught:
            either.submit(Told("raise", error)).result()
        assert str(caught.value) == str(error) and kind_of(caught.value) is kind_of(error)
        assert ran_out_of_memory(caught.value) is ran_out_of_memory(error)
        assert "raise self.value" in str(caught.value.__cause__)


def test_an_error_that_cannot_travel_is_told_by_its_text(either: WorkerPool) -> None:
    with pytest.raises(Exception, match="UnpicklableError: <function") as caught:
        either.submit(Told("raise what no pickle has")).result()
    assert kind_of(caught.value) is ErrorKind.INTERNAL


def test_a_call_that_cannot_travel_fails_alone(either: WorkerPool) -> None:
    with pytest.raises(Exception, match="pickle"):
        either.submit(Told("value", lambda: None)).result()
    assert either.submit(Told("value", 7)).result() == 7


def test_workers_compute_and_read_kafka_though_the_driver_has_computed_before_the_fork() -> None:
    rows = pa.table({"n": pa.chunked_array([[number % 7 for number in range(1000)]] * 20)})
    wanted = _counted(rows)
    with mock_kafka(topics={"t": 1}) as cluster, WorkerPool(2) as pool:
        assert settled([pool.submit(Told("count", rows), worker=number) for number in (0, 1)]) == [wanted] * 2
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("t", b"x" * 30)
        producer.flush()
        client = DirectClient((("bootstrap.servers", cluster.bootstrap_servers),), 10.0, False)
        probe = SizeProbe(client, (OffsetRange("t", 0, 0, 1),))
        assert settled([pool.submit(probe, worker=number) for number in (0, 1)]) == [RecordSizes(30, 30)] * 2


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (Told("end by", signal.SIGKILL), "ended by SIGKILL, most often by lack of memory"),
        (Told("end by", signal.SIGSEGV), "ended by SIGSEGV: it crashed"),
        (Told("exit", 3), "ended with exit code 3"),
    ],
)
def test_a_worker_that_ends_says_how_and_another_takes_its_place(pool: WorkerPool, told: Told, text: str) -> None:
    before = pool.pids()
    waiting = [pool.submit(told, worker=0), pool.submit(Told("who"), worker=0), pool.submit(Told("who"), worker=1)]
    with pytest.raises(WorkerDiedError, match=text) as died:
        settled(waiting)
    assert is_crash(str(died.value))
    (number, pid), (_, other) = waiting[1].result(), waiting[2].result()
    assert number == 0 and pid not in before and [pid, other] == pool.pids() and other == before[1]


def test_a_worker_that_is_killed_between_two_calls_is_replaced(pool: WorkerPool) -> None:
    os.kill(pool.pids()[1], signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        pool.submit(Told("who"), worker=1).result()
    assert pool.submit(Told("who"), worker=1).result() == (1, pool.pids()[1])


@pytest.mark.dear("the template that takes its place is a program, which loads Arrow")
def test_a_template_that_is_killed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all of its workers, as often as it is killed: a run goes on, and no start again would have helped."""
    with WorkerPool(2, loads=[__name__]) as pool:
        [(_, worker), _] = settled([pool.submit(Told("who"), worker=number) for number in (0, 1)])
        os.kill(_parent_of(worker), signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="forked from was killed.*another one takes its place"):
            settled([pool.submit(Told("sleep", 60), worker=0)])
        found = settled([pool.submit(Told("who"), worker=number) for number in (0, 1, 1)])
        assert [number for number, _ in found] == [0, 1, 1] and len({_parent_of(pid) for _, pid in found}) == 1
        os.kill(_parent_of(found[1][1]), signal.SIGKILL)
        monkeypatch.setattr(sys, "executable", "/not/there")
        with pytest.raises(PipelineFailedError, match="start again") as ended:
            settled([pool.submit(Told("sleep", 60))])
        assert kind_of(ended.value) is ErrorKind.RETRYABLE
        monkeypatch.undo()
        assert settled([pool.submit(Told("who"), worker=1)])[0][0] == 1
    assert not any(_lives(pid) for _, pid in found)


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def test_workers_leave_signals_of_the_terminal_to_their_driver(pool: WorkerPool) -> None:
    before = pool.pids()
    for pid in before:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert [pid for _, pid in settled([pool.submit(Told("who"), worker=number) for number in (0, 1)])] == before


def test_calls_of_a_group_run_beside_and_end_when_they_are_cancelled(pool: WorkerPool) -> None:
    assert pool.submit(Told("niceness"), group="g").result() == pool.submit(Told("niceness")).result() + 10
    running, waiting = pool.submit(Told("sleep", 60), group="g"), pool.submit(Told("who"), group="g")
    other = pool.submit(Told("value", "other"), group="h")
    settled([pool.submit(Told("who"), worker=number) for number in (0, 1)])
    pool.cancel("g")
    for each in (running, waiting):
        with pytest.raises(EngineError, match="the calls of g were cancelled"):
            each.result(300)
    assert other.result(300) == "other"


def test_a_kept_value_is_sent_once() -> None:
    known, value = KnownValues(), KeptValue(b"x" * 100_000)
    content, fresh = known.dumps([value, value])
    assert 100_000 < len(content) < 110_000
    known.sent(fresh)
    assert len(known.dumps([value, KeptValue(value.value)])[0]) < 1000


def test_a_worker_knows_the_values_that_its_driver_thinks_it_knows(pool: WorkerPool) -> None:
    values = [KeptValue(f"value {number}") for number in range(KEPT_MAX + 5)]
    for each in [*values, *reversed(values), *values[::2]]:
        found = pool.submit(Told("value", [each, values[3]]), worker=0).result()
        assert [one.value for one in found] == [each.value, "value 3"]


def test_threads_share_the_workers(pool: WorkerPool) -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        found[number] = [pool.submit(Told("value", (number, each))).result() for each in range(20)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {number: [(number, each) for each in range(20)] for number in range(4)}


@pytest.mark.parametrize(
    "is_renewed", [False, pytest.param(True, marks=pytest.mark.dear("a template that is a program loads Arrow"))]
)
def test_workers_end_with_a_driver_that_is_killed(is_renewed: bool) -> None:
    read, write = os.pipe()
    driver = os.fork()
    if not driver:
        pool = WorkerPool(2, loads=[__name__] if is_renewed else ())
        if is_renewed:
            os.kill(_parent_of(pool.submit(Told("who"), worker=0).result()[1]), signal.SIGKILL)
            while pool.submit(Told("who"), worker=1).exception() or pool.submit(Told("who"), worker=0).exception():
                pass
        pool.submit(Told("sleep", 60), worker=1)
        os.write(write, json.dumps([*pool.pids(), pool.submit(Told("who"), worker=0).result()[1]]).encode())
        time.sleep(60)
        os._exit(0)
    pids = json.loads(os.read(read, 1000))
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    until_s = time.monotonic() + 10
    while any(map(_lives, pids)) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def test_a_closed_pool_takes_no_calls_and_leaves_no_process() -> None:
    pool = WorkerPool(1)
    pid = pool.submit(Told("who")).result()[1]
    pool.close()
    assert not _lives(pid)
    with pytest.raises(EngineError, match="ended"):
        pool.submit(Told("who"))
