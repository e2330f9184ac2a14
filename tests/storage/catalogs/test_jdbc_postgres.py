"""A JDBC catalog in PostgreSQL: the same behaviour, sessions in a time zone, a server that is away for a while."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, InvalidRequestError, RetryableError, Table
from freshet.storage.catalogs.claims import LockTimeoutError
from freshet.storage.catalogs.jdbc_rows import LOCKS
from freshet.storage.catalogs.metastore import TableName
from tests.kit.jdbc_catalogs import LOCKED, lock_of, rows
from tests.kit.kit_store import in_fresh_process
from tests.kit.postgres_server import PASSWORD, PostgresServer, postgres_server

pytestmark = pytest.mark.slow

NAME = TableName("shop", "orders")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.fixture
def options(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a locked catalog in a new database; the password by the name of a variable."""
    monkeypatch.setenv("FRESHET_TEST_PG_PASSWORD", PASSWORD)
    password = {"jdbc.password": "env:FRESHET_TEST_PG_PASSWORD"}
    fast = {"lock-check-max-sleep": "200 ms"}
    return {**server.options, **password, **LOCKED, **fast, "uri": server.new_database()}


def in_full(options: dict[str, str]) -> dict[str, str]:
    return {**options, "jdbc.password": PASSWORD}


def make(options: dict[str, str], warehouse: Path) -> Table:
    kept = {"bucket": 1, "write-only": "true"}
    catalog = Catalog(warehouse=warehouse, options=options)
    return catalog.create_table(str(NAME), schema={"id": "BIGINT"}, primary_keys=["id"], options=kept)


def append(table: Table, numbers: list[int], user: str = "w") -> None:
    for number in numbers:
        with table.writer(f"{user}{number}") as writer:
            writer.write([{"id": number}])
            writer.commit()


def _append_there(pickled: bytes, numbers: list[int]) -> None:
    append(pickle.loads(pickled), numbers)


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_databases_and_tables_live_in_postgresql(options: dict[str, str], tmp_path: Path) -> None:
    table = make(options, tmp_path)
    append(table, [1])
    catalog = Catalog(warehouse=tmp_path, options=options)
    catalog.create_database("old", properties={"owner": "me", "team": "a"})
    catalog.alter_database("old", {"owner": "you", "team": None, "x": "1"})
    expected = {"location": f"{tmp_path}/old.db", "owner": "you", "x": "1"}
    assert catalog.database_properties("old") == expected
    table.alter(AddColumn("v", "STRING"))
    catalog.rename_table("shop.orders", "old.orders")
    assert (catalog.list_tables("shop"), catalog.list_tables("old")) == ([], ["orders"])
    assert ids(catalog.table("old.orders")) == [1]
    assert {row[1:3] for row in rows(in_full(options), "paimon_table_properties")} == {("old", "orders")}
    keys = [f"{n}{'x' * 250}" for n in range(4)]
    with pytest.raises(InvalidRequestError, match=r"option primary-key has 1007 characters.*holds 1000"):
        catalog.create_table("old.b", schema=dict.fromkeys(keys, "INT"), primary_keys=keys, options={"bucket": 1})
    assert catalog.list_tables("old") == ["orders"]
    catalog.drop_database("old", cascade=True)
    catalog.drop_database("shop")
    assert catalog.list_databases() == []


def test_processes_and_threads_commit_through_the_lock(options: dict[str, str], tmp_path: Path) -> None:
    table = make(options, tmp_path)
    pickled = pickle.dumps(table)
    with ThreadPoolExecutor(6) as pool:
        work = [pool.submit(in_fresh_process, _append_there, pickled, list(range(n, n + 10))) for n in (0, 10)]
        work += [pool.submit(_append_there, pickled, list(range(n, n + 10))) for n in (20, 30, 40, 50)]
        for each in work:
            each.result()
    assert ids(table) == list(range(60))
    assert rows(in_full(options), LOCKS) == []


@pytest.mark.parametrize("ours", ["Asia/Tokyo", "America/Los_Angeles"])
def test_locks_of_programs_in_one_time_zone_count_as_long_as_they_say(
    options: dict[str, str], server: PostgresServer, ours: str
) -> None:
    """As a JVM there and this program with `lock.time-zone`, whatever the zone of the server."""
    theirs = lock_of({**in_full(options), "lock.time-zone": ours, "lock-acquire-timeout": "90 s"})
    same = lock_of({**in_full(options), "lock.time-zone": ours, "lock-acquire-timeout": "1 s", "client-pool-size": "1"})
    with theirs.held(NAME):
        message = r"it is held since .* \(\d s\) and expires 90 s after"
        with pytest.raises(LockTimeoutError, match=message), same.held(NAME):
            pass
    with same.held(NAME):
        pass


def test_a_lock_of_a_program_in_a_zone_ahead_is_refused(options: dict[str, str]) -> None:
    theirs = lock_of({**in_full(options), "lock.time-zone": "Asia/Tokyo"})
    here = lock_of({**in_full(options), "lock.time-zone": "UTC"})
    message = r"9\.0 hours from now.*lock\.time-zone"
    with theirs.held(NAME), pytest.raises(InvalidRequestError, match=message), here.held(NAME):
        pass


def test_a_wrong_password_database_or_zone_is_refused_at_once(options: dict[str, str], tmp_path: Path) -> None:
    for wrong, message in (
        ({"jdbc.password": "hunter2"}, "password authentication failed"),
        ({"uri": options["uri"] + "x"}, "does not exist"),
        ({"lock.time-zone": "Mars/Olympus"}, 'invalid value for parameter "TimeZone"'),
    ):
        catalog = Catalog(warehouse=tmp_path, options={**in_full(options), **wrong})
        with pytest.raises(InvalidRequestError, match=message) as caught:
            catalog.list_databases()
        assert "hunter2" not in str(caught.value)
        assert PASSWORD not in str(caught.value)


def test_a_server_that_is_stopped_and_started_again(
    options: dict[str, str], server: PostgresServer, tmp_path: Path
) -> None:
    """Commits wait for it; other calls say what to do."""
    table = make(options, tmp_path)
    append(table, [1])
    server.stop()
    try:
        with pytest.raises(RetryableError, match="gave no answer.*check that it is running"):
            Catalog(warehouse=tmp_path, options=options).list_databases()
        assert ids(table) == [1], "reading needs no catalog"
        with ThreadPoolExecutor(1) as pool:
            commit = pool.submit(append, table, [2])
            time.sleep(1)
            assert not commit.done()
            server.start()
            commit.result(timeout=300)
    finally:
        if server._process is None:
            server.start()
    assert ids(table) == [1, 2]
    assert rows(in_full(options), LOCKS) == []


def test_a_server_that_restarts_again_and_again_while_programs_commit(
    options: dict[str, str], server: PostgresServer, tmp_path: Path
) -> None:
    """A lock whose INSERT or release lost its answer is waited for: its time is short here."""
    table = make({**options, "lock-acquire-timeout": "20 s"}, tmp_path)
    done = threading.Event()
    numbers: list[int] = []

    def work(start: int) -> None:
        number = start
        while not done.is_set():
            for _ in range(20):
                try:
                    append(table, [number])
                    break
                except RetryableError:
                    time.sleep(0.1)
            numbers.append(number)
            number += 1

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, start) for start in (0, 100_000)]
        try:
            for _ in range(3):
                time.sleep(0.7)
                server.stop()
                server.start()
        finally:
            done.set()
        for each in working:
            each.result()
    assert ids(table) == sorted(numbers)
    assert len(numbers) > 4


def test_the_password_does_not_travel(options: dict[str, str], tmp_path: Path) -> None:
    table = make(options, tmp_path)
    assert PASSWORD.encode() not in pickle.dumps(table)
    with pytest.raises(InvalidRequestError, match=r"option jdbc\.password holds a secret"):
        pickle.dumps(Catalog(warehouse=tmp_path, options=in_full(options)).table(str(NAME)))
