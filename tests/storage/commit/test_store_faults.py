"""Commits to an object store that loses answers, stalls, fails or sees its writer killed: each row once, none lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import RetryableError, UnknownOutcomeError
from freshet.storage.io.env import CrashPoint
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import AFTER, BEFORE, Request, StoreProxy, is_create, through

REPEATED = 2
"""How often the same request is cut: its repetition too."""

EVERY = 2
"""Of the requests of a commit, those that the quick suite cuts."""

COMPACTED = {"bucket": "1", "changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "2"}
EXPIRING = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}


@pytest.fixture
def proxy(s3: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


def create(place: S3Place, **options: str) -> Table:
    return opened(place).create_table(
        "shop.orders",
        schema={"id": "BIGINT NOT NULL", "v": "BIGINT"},
        primary_keys=["id"],
        options={"bucket": "1", **options},
    )


def opened(place: S3Place) -> Catalog:
    return Catalog(place.root, options=place.options)


def row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "v": pa.array([1], pa.int64())})


def commit(table: Table, user: str, number: int) -> None:
    """Until it has an outcome, as a stream does."""
    for _ in range(5):
        try:
            with table.writer(user) as writer:
                writer.write(row(number))
                writer.commit(identifier=number)
                return
        except (RetryableError, UnknownOutcomeError):
            continue
    raise AssertionError("no attempt had an outcome")


def check(place: S3Place, count: int) -> None:
    """As a reader sees it who opens the table anew."""
    table = opened(place).table("shop.orders")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": number, "v": 1} for number in range(count)
    ]


def appended(table: Table) -> list[int]:
    return [snapshot.commit_identifier for snapshot in table.snapshots() if snapshot.commit_kind is CommitKind.APPEND]


def test_partitions_and_buckets_with_odd_names(s3: S3Place) -> None:
    """Folders of partitions are escaped as on a disk, and keys are what is escaped; `s3a:` is the same place."""
    values = ["a b", "50%", "ü", "x=y", "1+1", "#1", "what?", "a/b", "2026-01-01 10:00"]
    catalog = Catalog(f"{s3.root}/ware house+%41", options=s3.options)
    table = catalog.create_table(
        "shop.odd",
        schema={"p": "STRING NOT NULL", "id": "BIGINT NOT NULL"},
        primary_keys=["p", "id"],
        partition_keys=["p"],
        options={"bucket": "1"},
    )
    with table.writer("loader") as writer:
        writer.write(pa.table({"p": values, "id": pa.array(range(len(values)), pa.int64())}))
        writer.commit()
    again = Catalog(f"s3a://{s3.bucket}/ware house+%41", options=s3.options).table("shop.odd")
    assert again.location == table.location
    assert sorted(again.scan().to_arrow()["p"].to_pylist()) == sorted(values)
    keys = urllib.request.urlopen(f"{s3.endpoint}/{s3.bucket}?list-type=2&prefix=ware%20house%2B%2541/", timeout=60)
    assert b"/p=a%2Fb/bucket-0/" in keys.read()


class Nth:
    """The n-th request from now on, and its repetitions."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._chosen: tuple[str, str, str] | None = None

    def __call__(self, request: Request) -> bool:
        name = (request.method, request.key, str(sorted(request.query.items())))
        if self._chosen is None:
            self._left -= 1
            if self._left < 0:
                self._chosen = name
        return name == self._chosen


@pytest.mark.few(1)
@pytest.mark.parametrize("where", [BEFORE, AFTER])
@pytest.mark.parametrize("start", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_answers_lost_at_each_request_of_a_commit(s3: S3Place, proxy: StoreProxy, where: str, start: int) -> None:
    place = through(s3, proxy)
    table = create(place)
    commit(table, "loader", 0)
    with proxy.counted() as requests:
        commit(table, "loader", 1)
    count = 2
    for index in range(start, len(requests), EVERY):
        proxy.cut(Nth(index), where, times=REPEATED)
        commit(table, "loader", count)
        table.store.env.finish_later()
        assert [request for request in proxy.requests if request.status is None], f"request {index} was not cut"
        proxy.clear()
        count += 1
    assert count >= 5
    check(s3, count)
    assert appended(table) == [*range(count)]


@pytest.mark.dear("waits until an id has expired")
def test_a_stalled_writer_that_wakes_after_its_id_has_expired(s3: S3Place, proxy: StoreProxy) -> None:
    """Its create finds the name free, and is no part of the history."""
    slow, quick = create(through(s3, proxy), **EXPIRING), opened(s3).table("shop.orders")
    commit(quick, "quick", 0)
    held = proxy.hold(lambda request: is_create(request) and "/snapshot/snapshot-" in request.key, times=1)
    with ThreadPoolExecutor(1) as threads:
        stalled = threads.submit(commit, slow, "slow", 1)
        held.arrived()
        [name] = [request.key for request in proxy.requests if is_create(request) and "/snapshot-" in request.key]
        for number in range(2, 6):
            commit(quick, "quick", number)
            quick.store.env.finish_later()
        quick.expire_snapshots(retain_max=1)
        assert not quick.store.env.file_io.exists(f"{s3.root}/{name}")
        held.release()
        stalled.result()
    check(s3, 6)


PROGRAM = """
import json, os, signal, sys
import pyarrow as pa
from freshet.storage.catalog import Catalog
from freshet.storage.io.env import Env

point, root, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def reach(self, reached):
    if reached.value == point:
        os.kill(os.getpid(), signal.SIGKILL)

Env.reach = reach
table = Catalog(root, options=options).table("shop.orders")
for number in range(1, 4):
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": pa.array([number], pa.int64()), "v": pa.array([1], pa.int64())}))
        writer.commit(identifier=number)
    table.store.env.finish_later()
table.expire_snapshots(retain_max=1)
"""
REACHED = (
    CrashPoint.DATA_FILE_OPENED,
    CrashPoint.DATA_FILE_CLOSED,
    CrashPoint.CHANGELOG_WRITTEN,
    CrashPoint.WRITE_FLUSHED,
    CrashPoint.COMPACT_BEFORE_OUTPUT,
    CrashPoint.COMPACT_OUTPUT_WRITTEN,
    CrashPoint.WRITE_PREPARED,
    CrashPoint.COMMIT_MANIFESTS_WRITTEN,
    CrashPoint.COMMIT_SNAPSHOT_CREATED,
    CrashPoint.COMMIT_BEFORE_COMPACT,
    CrashPoint.EXPIRE_PLANNED,
    CrashPoint.EXPIRE_SNAPSHOTS_REMOVED,
    CrashPoint.EXPIRE_DATA_REMOVED,
)


@pytest.mark.slow
@pytest.mark.parametrize("point", REACHED)
def test_killed_at_each_named_point(versitygw: S3Place, point: CrashPoint) -> None:
    """What it had not committed is committed by the next one, what it had is not committed again."""
    table = create(versitygw, **COMPACTED)
    commit(table, "loader", 0)
    arguments = [point.value, versitygw.root, json.dumps(versitygw.options)]
    found = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == -signal.SIGKILL, f"{point} was not reached: {done.stderr}"
    for number in range(1, 4):
        commit(opened(versitygw).table("shop.orders"), "loader", number)
    check(versitygw, 4)


@pytest.mark.slow
def test_writers_at_a_slow_store_with_errors(versitygw: S3Place) -> None:
    """200 ms for each request, one of twenty answered 500 or 503; two writers commit at once."""
    table = create(versitygw)
    with StoreProxy(versitygw.endpoint, seed=7) as proxy:
        place = through(versitygw, proxy)
        proxy.answer(503, "SlowDown", share=0.025)
        proxy.answer(500, share=0.025)
        proxy.delay_s = 0.2

        def write(writer: int) -> None:
            ours = opened(place).table("shop.orders")
            for step in range(4):
                commit(ours, f"writer-{writer}", 2 * step + writer)
            ours.store.env.finish_later()

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, range(2)))
        assert {request.status for request in proxy.requests} >= {500, 503}
    check(versitygw, 8)
    assert sorted(appended(table)) == [*range(8)]
