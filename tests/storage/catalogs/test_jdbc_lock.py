"""The lock of a JDBC catalog in SQLite: waited for, taken over, released by its owner alone; threads and processes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, InvalidRequestError, RetryableError, Table
from freshet.storage.catalogs.claims import LOST, WON, FileClaims, LockedClaims, LockExpiredError, LockTimeoutError
from freshet.storage.catalogs.jdbc_database import Session
from freshet.storage.catalogs.jdbc_lock import RELEASE_LOCK, JdbcLock
from freshet.storage.catalogs.jdbc_rows import INSERT_TABLE, LOCKS
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import Env, local_env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.metadata.table_store import TableStore
from tests.kit.hand_made import bare_snapshot, make_table, message, new_file
from tests.kit.jdbc_catalogs import opened, sqlite_lock, sqlite_uri
from tests.kit.kit_store import in_fresh_process

NAME = TableName("shop", "orders")
ID = "jdbc.shop.orders"


def run(path: Path, statement: str, **values: object) -> list[Any]:
    """A statement of another program: it has another pool."""
    _, pool = opened({"uri": sqlite_uri(f"{path}?busy_timeout=20000")})
    with pool.session() as session:
        if statement.startswith("SELECT"):
            return list(session.rows(statement, values))
        session.run(statement, values)
        return []


def hold(path: Path, expire_s: int = 480, made: str = "-0 seconds") -> None:
    """As another program would hold the lock."""
    statement = f"INSERT INTO {LOCKS} VALUES (:id, datetime('now', :at), :expire_s)"
    run(path, statement, id=ID, at=made, expire_s=expire_s)


def holders(path: Path) -> list[str]:
    return [row[0] for row in run(path, f"SELECT lock_id FROM {LOCKS}")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A catalog that has the table."""
    found = tmp_path / "catalog.db"
    run(found, INSERT_TABLE, key="jdbc", db=NAME.database, name=NAME.table)
    return found


@pytest.fixture
def table(path: Path, tmp_path: Path) -> Table:
    uri = sqlite_uri(path)
    options = {"lock.enabled": "true", "lock-check-max-sleep": "200 ms"}
    catalog = Catalog(uri, warehouse=tmp_path / "w", options=options)
    kept = {"bucket": 1, "write-only": "true"}
    return catalog.create_table("shop.items", schema={"id": "BIGINT"}, primary_keys=["id"], options=kept)


def test_a_lock_is_a_row_while_it_is_held(path: Path) -> None:
    with sqlite_lock(path, lock_acquire_timeout="90 s").held(NAME) as held:
        assert held.is_table
        [row] = run(path, f"SELECT * FROM {LOCKS}")
        assert (row[0], row[1], row[2]) == (ID, held.acquired_at, 90)
    assert holders(path) == []
    with sqlite_lock(path).held(TableName("shop", "another")) as held:
        assert not held.is_table


def test_a_branch_has_a_lock_of_its_own_under_the_name_that_the_jvm_gives_it(path: Path, table: Table) -> None:
    table.branches.create("b")
    uri = sqlite_uri(path)
    options = {"lock.enabled": "true", "lock-acquire-timeout": "1 s", "lock-check-max-sleep": "200 ms"}
    branch = Catalog(uri, warehouse=Path(table.location).parents[1], options=options).table("shop.items$branch_b")
    statement = f"INSERT INTO {LOCKS} VALUES (:id, datetime('now'), 480)"
    run(path, statement, id="jdbc.shop.items$branch_b")
    with table.writer("w") as writer:
        writer.write([{"id": 1}])
        writer.commit()
    with pytest.raises(LockTimeoutError, match=r"lock jdbc\.shop\.items\$branch_b could not be had"):
        branch.store.claims.claim_snapshot(bare_snapshot(1))
    run(path, f"DELETE FROM {LOCKS}")
    run(path, statement, id="jdbc.shop.items")
    assert branch.store.claims.claim_snapshot(bare_snapshot(1)) == WON
    assert holders(path) == ["jdbc.shop.items"]


def test_of_programs_and_threads_one_at_a_time_holds_it(path: Path) -> None:
    inside, most, total = [0], [0], [0]

    def take(number: int) -> None:
        lock = sqlite_lock(f"{path}?busy_timeout={20_000 + number % 3}", lock_check_max_sleep="20 ms")  # three pools
        for _ in range(4):
            with lock.held(NAME):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                total[0] += 1
                time.sleep(0.001)
                inside[0] -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(take, range(6)))
    assert (most[0], total[0]) == (1, 24)
    assert holders(path) == []


def test_a_lock_that_is_held_is_waited_for(path: Path) -> None:
    hold(path)
    waits: list[float] = []

    class Waiting(Env):
        def sleep_s(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 9:
                run(path, f"DELETE FROM {LOCKS}")

    lock = sqlite_lock(path)
    lock._env = Waiting(LocalFileIO())
    with lock.held(NAME):
        assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8, 8]


def test_who_waits_too_long_is_told_who_holds_it(path: Path) -> None:
    hold(path, made="-70 seconds", expire_s=480)
    message = rf"lock {ID} could not be had in 1 s: it is held since .* \(7\d s\) and expires 480 s after"
    with (
        pytest.raises(LockTimeoutError, match=message) as caught,
        sqlite_lock(path, lock_acquire_timeout="1 s").held(NAME),
    ):
        pass
    assert isinstance(caught.value, RetryableError)
    assert f"delete its row of {LOCKS} in jdbc:sqlite:{path}" in str(caught.value)
    assert holders(path) == [ID]


def test_a_holder_whose_time_is_over_loses_it(path: Path) -> None:
    hold(path, made="-10 seconds", expire_s=9)
    with sqlite_lock(path).held(NAME):
        assert len(holders(path)) == 1
    assert holders(path) == []


def test_a_holder_that_is_killed_is_waited_for_until_its_time_is_over(path: Path) -> None:
    program = (
        "import sys\n"
        "from tests.kit.jdbc_catalogs import sqlite_lock\n"
        "from freshet.storage.catalogs.metastore import TableName\n"
        "with sqlite_lock(sys.argv[1], lock_acquire_timeout='3 s').held(TableName('shop', 'orders')):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        os.kill(child.pid, signal.SIGKILL)
    assert holders(path) == [ID]
    with sqlite_lock(path, lock_check_max_sleep="200 ms").held(NAME):
        assert len(holders(path)) == 1
    assert holders(path) == []


def test_a_holder_that_stalls_abandons_its_claim_and_leaves_the_next_ones_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = make_table(local_env(), f"{tmp_path}/t")
    lock = sqlite_lock(path, lock_acquire_timeout="100 s")
    found = lock._try
    skipped_ms = [0]

    class Stalling(Env):
        def now_ms(self) -> int:
            return super().now_ms() + skipped_ms[0]

    lock._env = Stalling(LocalFileIO())

    def stalls(name: TableName, lock_id: str) -> Any:
        held = found(name, lock_id)
        run(path, f"UPDATE {LOCKS} SET acquired_at = datetime('now', '-101 seconds')")
        [(acquired_at,)] = run(path, f"SELECT acquired_at FROM {LOCKS}")
        other = sqlite_lock(f"{path}?busy_timeout=20001").held(name)
        others.append(other)
        other.__enter__()  # it is over the time: taken
        skipped_ms[0] = 101_000
        return replace(held, acquired_at=acquired_at)

    others: list[Any] = []
    monkeypatch.setattr(lock, "_try", stalls)
    claims = LockedClaims(FileClaims(store.env.file_io, store.paths), lambda: lock.held(NAME))
    assert claims.claim_snapshot(bare_snapshot(1, uuid="a")) == LOST
    assert store.snapshots.latest() is None, "nothing was created"
    assert holders(path) == [ID], "the lock of the other one is there"
    others[0].__exit__(None, None, None)
    assert holders(path) == []
    monkeypatch.undo()
    skipped_ms[0] = 0
    assert claims.claim_snapshot(bare_snapshot(1, uuid="a")) == WON


def test_half_of_its_time_is_left_when_a_claim_begins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = sqlite_lock(path, lock_acquire_timeout="100 s")
    times = iter([0, 0, 49_999, 0, 0, 50_001])
    monkeypatch.setattr(Env, "now_ms", lambda self: next(times))
    with lock.held(NAME):
        pass
    with pytest.raises(LockExpiredError, match=r"50\.0 s ago and counts for 100\.0 s"), lock.held(NAME):
        pass
    assert holders(path) == []


def test_a_lock_in_another_time_zone_is_refused_by_name(path: Path) -> None:
    hold(path, made="+8 hours")
    with (
        pytest.raises(InvalidRequestError, match=r"8\.0 hours from now.*lock\.time-zone"),
        sqlite_lock(path).held(NAME),
    ):
        pass


def test_an_id_that_does_not_fit_is_refused(path: Path) -> None:
    lock = sqlite_lock(path, lock_key_max_length="10")
    with pytest.raises(InvalidRequestError, match=r"16 characters.*holds 10; choose a shorter name"), lock.held(NAME):
        pass


def test_a_database_that_is_away_for_a_while_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = sqlite_lock(path, lock_acquire_timeout="60 s")
    session, failures = lock._pool.session, [RetryableError("gave no answer")] * 4

    @contextmanager
    def away() -> Iterator[Session]:
        if failures:
            raise failures.pop()
        with session() as found:
            yield found

    monkeypatch.setattr(lock._pool, "session", away)
    monkeypatch.setattr(Env, "sleep_s", lambda self, seconds: None)
    with lock.held(NAME):
        assert not failures
    failures.extend([RetryableError("gave no answer")] * 1000)
    times = iter(range(0, 10**9, 20_000))
    monkeypatch.setattr(Env, "now_ms", lambda self: next(times))
    with pytest.raises(LockTimeoutError, match="could not be had in 60 s: gave no answer"), lock.held(NAME):
        pass


def test_a_lock_that_cannot_be_released_is_released_with_the_next(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_table(local_env(), f"{tmp_path}/t")
    lock = sqlite_lock(path)
    execute = Session.run

    def fails(self: Session, statement: str, values: Any = None) -> int:
        if statement == RELEASE_LOCK:
            raise RetryableError("gave no answer")
        return execute(self, statement, values)

    monkeypatch.setattr(Session, "run", fails)
    claims = LockedClaims(FileClaims(store.env.file_io, store.paths), lambda: lock.held(NAME))
    assert claims.claim_snapshot(bare_snapshot(1, uuid="a")) == WON
    assert f"lock {ID} could not be released" in caplog.text
    assert holders(path) == [ID]
    monkeypatch.undo()
    assert claims.claim_snapshot(bare_snapshot(2, uuid="b")) == WON, "without waiting for 8 minutes"
    assert holders(path) == []


def test_an_error_of_a_release_that_nobody_expected_takes_no_claim_back(path: Path, tmp_path: Path) -> None:
    store = make_table(local_env(), f"{tmp_path}/t")

    @contextmanager
    def odd() -> Iterator[None]:
        yield
        raise OSError("of a driver")

    claims = LockedClaims(FileClaims(store.env.file_io, store.paths), odd)
    assert claims.claim_snapshot(bare_snapshot(1, uuid="a")) == WON


@pytest.mark.usefixtures("unchecked_claims")
def test_a_commit_outlasts_more_timeouts_of_the_lock_than_errors_of_a_disk(tmp_path: Path) -> None:
    options = {"write-only": "true", "commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}
    store = make_table(local_env(), f"{tmp_path}/t", options=options)
    timeouts = [LockTimeoutError("held")] * 8

    @contextmanager
    def held() -> Iterator[None]:
        if timeouts:
            raise timeouts.pop()
        yield

    claims = LockedClaims(store.claims, held)
    store = TableStore(**{**vars(store), "claims": claims})
    [made] = Committer(store, "u").commit(1, [message(store, new=[new_file(store, "f")])]).snapshots
    assert made.id == 1


def test_a_file_that_another_program_writes_is_waited_for(path: Path) -> None:
    _, pool = opened({"uri": sqlite_uri(f"{path}?busy_timeout=20000")})
    with pool.session() as session:
        session.run("BEGIN IMMEDIATE")
        impatient = sqlite_lock(f"{path}?busy_timeout=20", lock_acquire_timeout="1 s")
        with pytest.raises(LockTimeoutError, match="gave no answer: database is locked"), impatient.held(NAME):
            pass
        timer = threading.Timer(0.3, lambda: session.run("ROLLBACK"))
        timer.start()
        with sqlite_lock(f"{path}?busy_timeout=20").held(NAME):
            timer.join()
    assert holders(path) == []


def _append(pickled: bytes, numbers: list[int]) -> None:
    table: Table = pickle.loads(pickled)
    for number in numbers:
        with table.writer(f"w{number}") as writer:
            writer.write([{"id": number}])
            writer.commit()


@pytest.mark.dear("twenty commits of two processes and two threads")
def test_processes_and_threads_commit_through_the_lock(table: Table, path: Path) -> None:
    pickled = pickle.dumps(table)
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(in_fresh_process, _append, pickled, list(range(10 * n, 10 * n + 5))) for n in range(2)]
        work += [pool.submit(_append, pickled, list(range(10 * n, 10 * n + 5))) for n in (2, 3)]
        for each in work:
            each.result()
    wanted = [10 * n + k for n in range(4) for k in range(5)]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
    assert [snapshot.id for snapshot in table.snapshots()] == list(range(1, 21))
    assert holders(path) == []


def _refused(pickled: bytes) -> str:
    try:
        _append(pickled, [1])
    except RetryableError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_table_that_travels_takes_the_same_lock(path: Path, tmp_path: Path) -> None:
    options = {"lock.enabled": "true", "lock-acquire-timeout": "1 s"}
    kept = {"bucket": 1, "write-only": "true", "commit.max-retries": 0}
    catalog = Catalog(sqlite_uri(path), warehouse=tmp_path / "w", options=options)
    table = catalog.create_table("shop.items", schema={"id": "BIGINT"}, primary_keys=["id"], options=kept)
    run(path, f"INSERT INTO {LOCKS} (lock_id, expire_time_seconds) VALUES ('jdbc.shop.items', 480)")
    assert "lock jdbc.shop.items could not be had in 1 s" in in_fresh_process(_refused, pickle.dumps(table))
    run(path, f"DELETE FROM {LOCKS}")
    assert in_fresh_process(_refused, pickle.dumps(table)) == ""
    assert table.scan().to_arrow()["id"].to_pylist() == [1]


def test_a_table_that_its_catalog_dropped_is_not_committed_to(table: Table, path: Path) -> None:
    """As the JVM drops a database: the rows go, the files stay."""
    run(path, "DELETE FROM paimon_tables")
    with pytest.raises(InvalidRequestError, match=r"shop\.items was dropped or renamed while it was open: its catalog"):
        _append(pickle.dumps(table), [1])


def test_a_forked_child_makes_connections_of_its_own(path: Path) -> None:
    lock = sqlite_lock(path)
    with lock.held(NAME):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with JdbcLock(local_env(), opened({"uri": sqlite_uri(path)})[1], "jdbc", lock._options).held(
                    TableName("shop", "another")
                ):
                    status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
