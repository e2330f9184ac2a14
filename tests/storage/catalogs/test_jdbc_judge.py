"""One JDBC catalog for Apache Paimon's JVM and us: the same rows, tables of each other, one lock."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from freshet import AddColumn, AlreadyExistsError, Catalog, NotFoundError, SetOption, Table, UnsupportedFeatureError
from freshet.storage.catalogs.jdbc_rows import CATALOG_TABLES, LOCKS
from freshet.storage.catalogs.metastore import TableName
from tests.kit.jdbc_catalogs import LOCKED, lock_of, opened, rows, sqlite_uri
from tests.kit.paimon_catalog import JDBC_JARS, PaimonCatalog
from tests.kit.paimon_changes import add_column, set_option
from tests.kit.paimon_judge import JVM_OPTIONS, PaimonError, PaimonJudge
from tests.kit.postgres_server import PostgresServer, postgres_server
from tests.kit.s3_server import S3Place, moto_server, new_bucket
from tests.soak.counts import JDBC_COMMITS

pytestmark = [pytest.mark.judge, pytest.mark.slow]

COLUMNS = {"id": "BIGINT", "day": "STRING", "v": "STRING"}
TYPES = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL", "v": "STRING"}
OPTIONS = {"bucket": "1", "write-only": "true"}
FAST = {"lock-check-max-sleep": "200 ms"}


@pytest.fixture(scope="module")
def judge() -> Iterator[PaimonJudge]:
    with PaimonJudge.start(more_jars=JDBC_JARS) as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@dataclass(frozen=True)
class Place:
    """A locked catalog: ours is in UTC, as the JVM of the judge."""

    options: Mapping[str, str]
    warehouse: str
    of_the_jvm: Mapping[str, str] = field(default_factory=dict)
    """Options that only the JVM takes."""

    def ours(self) -> Catalog:
        return Catalog(self.warehouse, options={"lock.time-zone": "UTC", **self.options})

    def theirs(self, judge: PaimonJudge, *, changes_what_we_did: bool = False) -> PaimonCatalog:
        """With SQLite and a lock one connection of the JVM's pool leaves a query open when it starts: it goes on seeing
        the rows of that moment, and fails to write after others. So without a lock where that matters."""
        lock = {"lock.enabled": "false"} if changes_what_we_did and "sqlite" in self.options["uri"] else {}
        place = {"metastore": "jdbc", "warehouse": str(self.warehouse)}
        return PaimonCatalog(judge, {**place, **self.options, **self.of_the_jvm, **lock})

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """As of a warehouse at /W."""
        found = rows({"lock.time-zone": "UTC", **self.options}, table)
        return sorted(tuple(str(each).replace(str(self.warehouse), "/W") for each in row) for row in found)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    def place(name: str) -> Place:
        if request.param == "sqlite":
            database = {"uri": sqlite_uri(tmp_path / f"{name}.db")}
        else:
            server: PostgresServer = request.getfixturevalue("server")
            database = {**server.options, "uri": server.new_database()}
        return Place({**database, **LOCKED, **FAST}, f"{tmp_path}/{name}")

    return place


@pytest.fixture
def place(new_place: Callable[[str], Place]) -> Place:
    return new_place("w")


def append(table: Table, *ids: int, user: str = "ours") -> None:
    with table.writer(f"{user}{ids[0]}") as writer:
        writer.write([{"id": number, "day": "d", "v": "ours"} for number in ids])
        writer.commit()


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def columns_of(place: Place) -> list[tuple[Any, ...]]:
    """How the tables of the catalog are made, as the database says it."""
    _, pool = opened({"lock.time-zone": "UTC", **place.options})
    named = ", ".join(f"'{name}'" for name in (*CATALOG_TABLES, LOCKS))
    if pool.address.kind == "sqlite":
        statement = f"SELECT name, sql FROM sqlite_master WHERE name IN ({named})"
    else:
        statement = (
            "SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length, is_nullable, "
            f"column_default FROM information_schema.columns WHERE table_name IN ({named})"
        )
    with pool.session() as session:
        return sorted(tuple(map(str, row)) for row in session.rows(statement))


def test_rows_are_those_that_the_jvm_writes(judge: PaimonJudge, new_place: Callable[[str], Place]) -> None:
    """After each of the same calls, in a catalog of the JVM and in one of ours, column by column."""
    jvms, own = new_place("jvm"), new_place("own")
    theirs, ours = jvms.theirs(judge), own.ours()
    keyed = {"primary_keys": ["day", "id"], "partition_keys": ["day"], "options": OPTIONS}
    appended = {"options": {"bucket": "2", "bucket-key": "id,v"}}
    changed = (add_column("w", "INT"), set_option("snapshot.num-retained.max", 99))
    changes = (AddColumn("w", "INT"), SetOption("snapshot.num-retained.max", "99"))
    steps: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: theirs.create_database("shop"), lambda: ours.create_database("shop")),
        (
            lambda: theirs.create_database("old", {"owner": "me", "team": "a"}),
            lambda: ours.create_database("old", properties={"owner": "me", "team": "a"}),
        ),
        (
            lambda: theirs.alter_database("old", {"owner": "you", "team": None, "x": "1", "never": None}),
            lambda: ours.alter_database("old", {"owner": "you", "team": None, "x": "1", "never": None}),
        ),
        (
            lambda: theirs.create_table("shop.orders", TYPES, **keyed),  # type: ignore[arg-type]
            lambda: ours.create_table("shop.orders", schema=COLUMNS, **keyed),  # type: ignore[arg-type]
        ),
        (
            lambda: theirs.create_table("shop.items", TYPES, **appended),  # type: ignore[arg-type]
            lambda: ours.create_table("shop.items", schema=COLUMNS, **appended),  # type: ignore[arg-type]
        ),
        (
            lambda: theirs.alter_table("shop.orders", *changed),
            lambda: ours.table("shop.orders").alter(*changes),
        ),
        (
            lambda: theirs.rename_table("shop.orders", "old.orders"),
            lambda: ours.rename_table("shop.orders", "old.orders"),
        ),
        (lambda: theirs.drop_table("shop.items"), lambda: ours.drop_table("shop.items")),
        (lambda: theirs.drop_database("shop"), lambda: ours.drop_database("shop")),
        (lambda: theirs.drop_database("old", cascade=True), lambda: ours.drop_database("old", cascade=True)),
    ]
    for number, (they, we) in enumerate(steps):
        they()
        we()
        for table in CATALOG_TABLES:
            assert own.rows(table) == jvms.rows(table), f"{table} after step {number}"
        assert own.rows(LOCKS) == jvms.rows(LOCKS) == []
        assert ours.list_databases() == theirs.list_databases()
    assert columns_of(own) == columns_of(jvms)


def test_tables_of_the_jvm_are_found_read_written_and_altered(judge: PaimonJudge, place: Place) -> None:
    theirs, ours = place.theirs(judge), place.ours()
    theirs.create_database("shop", {"owner": "jvm"})
    made = theirs.create_table("shop.orders", TYPES, primary_keys=["id"], options=OPTIONS)
    made.write([(1, "d", "theirs")])
    assert (ours.list_databases(), ours.list_tables("shop")) == (["shop"], ["orders"])
    assert ours.database_properties("shop") == theirs.database_properties("shop")
    table = ours.table("shop.orders")
    append(table, 2)
    assert sorted(made.read_rows()) == [(1, "d", "theirs"), (2, "d", "ours")]
    table = table.alter(AddColumn("w", "INT"))
    theirs.alter_table("shop.orders", add_column("x", "INT"))
    found = ours.table("shop.orders")
    assert found.schema.column_names == ("id", "day", "v", "w", "x")
    theirs.table("shop.orders").write([(3, "d", "theirs", 1, 2)])
    assert ids(found) == [1, 2, 3]
    theirs.rename_table("shop.orders", "shop.sales")
    with pytest.raises(NotFoundError, match=r"no table shop\.orders"):
        ours.table("shop.orders")
    append(ours.table("shop.sales"), 4)
    assert len(theirs.table("shop.sales").read_rows()) == 4


def test_tables_of_ours_are_found_read_written_and_dropped_by_the_jvm(judge: PaimonJudge, place: Place) -> None:
    theirs, ours = place.theirs(judge, changes_what_we_did=True), place.ours()
    table = ours.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    append(table, 1)
    assert (theirs.list_databases(), theirs.list_tables("shop")) == (["shop"], ["orders"])
    theirs.table("shop.orders").write([(2, "d", "theirs")])
    assert ids(table) == [1, 2]
    ours.rename_table("shop.orders", "shop.sales")
    assert sorted(theirs.table("shop.sales").read_rows()) == [(1, "d", "ours"), (2, "d", "theirs")]
    theirs.drop_table("shop.sales")
    assert ours.list_tables("shop") == []
    append(ours.create_table("shop.sales", schema=COLUMNS, primary_keys=["id"], options=OPTIONS), 3)
    theirs.drop_database("shop", cascade=True)  # its files stay
    assert ours.list_databases() == []
    with pytest.raises(AlreadyExistsError, match="register_table"):
        ours.create_table("shop.sales", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    theirs.repair_table("shop.sales")
    assert ids(ours.table("shop.sales")) == [3]


def test_a_commit_of_the_jvm_waits_for_our_lock_and_ours_for_its(judge: PaimonJudge, place: Place) -> None:
    ours = place.ours()
    table = ours.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    made = place.theirs(judge).table("shop.orders")
    append(table, 0)
    with ThreadPoolExecutor(1) as pool:
        with lock_of({"lock.time-zone": "UTC", **place.options}).held(TableName("shop", "orders")):
            writing = pool.submit(made.write, [(1, "d", "theirs")])
            time.sleep(2)
            assert not writing.done()
            assert ids(table) == [0], "its claim is under the lock"
        writing.result(timeout=300)
    assert ids(table) == [0, 1]


def test_a_branch_is_opened_here_and_in_no_jdbc_catalog_of_the_jvm(judge: PaimonJudge, place: Place) -> None:
    """There its files are read by their folder."""
    table = place.ours().create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    table.branches.create("b")
    append(table, 0)
    append(place.ours().table("shop.orders$branch_b"), 1)
    with pytest.raises(PaimonError, match="does not support table branches"):
        place.theirs(judge).table("shop.orders$branch_b")
    assert place.theirs(judge).table("shop.orders").read_rows(["id"]) == [(0,)]
    assert judge.table(table.location, branch="b").read_rows(["id"]) == [(1,)]


def test_a_lock_of_a_jvm_that_was_killed_is_taken_over_when_its_time_is_over(
    new_place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_place("killed")
    table = place.ours().create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    append(table, 0)
    options = {**place.options, "lock-acquire-timeout": "5 s"}
    with PaimonJudge.start(more_jars=JDBC_JARS) as mortal, ThreadPoolExecutor(1) as pool:
        made = Place(options, place.warehouse).theirs(mortal).table("shop.orders")
        made.write([(1, "d", "theirs")])
        deadline = time.monotonic() + 300
        working = pool.submit(_write_on, made.write)
        while not place.rows(LOCKS):
            assert time.monotonic() < deadline
        os.kill(mortal.pid, signal.SIGKILL)
        with pytest.raises(Exception, match="the judge is gone"):
            working.result()
    append(table, 10)
    found = ids(table)
    assert (found[0], found[1], found[-1]) != (0, 1, 1), "ours is there"
    assert 10 in found
    assert place.rows(LOCKS) == []


def _write_on(write: Callable[[list[tuple[Any, ...]]], object]) -> None:
    number = 1_000
    while True:
        write([(number, "d", "theirs")])
        number += 1


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as found:
        yield found


@pytest.fixture
def in_s3(server: PostgresServer, endpoint: str) -> Place:
    """PostgreSQL, and an S3 server where a JVM without the lock would copy over what was created; the lock is on by
    default."""
    return place_in(new_bucket(endpoint), server)


@pytest.fixture
def in_versitygw(server: PostgresServer, versitygw: S3Place) -> Place:
    """The same on a server that keeps objects as files: where the JVM deletes markers of folders after each put, those
    are the folders of its files (as in `test_unlocked_jvm`)."""
    return place_in(versitygw, server, {"s3.region": "us-east-1", "s3.directory.marker.retention": "keep"})


def place_in(bucket: S3Place, server: PostgresServer, of_the_jvm: Mapping[str, str] | None = None) -> Place:
    options = {**server.options, **bucket.store_options, **FAST, "uri": server.new_database()}
    return Place(options, f"{bucket.root}/w", of_the_jvm or {})


@pytest.fixture(scope="module")
def s3_judge() -> Iterator[PaimonJudge]:
    with PaimonJudge.start(more_jars=(*JDBC_JARS, "paimon-s3")) as found:
        yield found


def test_tables_of_each_other_in_an_object_store(s3_judge: PaimonJudge, in_s3: Place) -> None:
    theirs, ours = in_s3.theirs(s3_judge), in_s3.ours()
    theirs.create_database("shop")
    made = theirs.create_table("shop.theirs", TYPES, primary_keys=["id"], options=OPTIONS)
    made.write([(1, "d", "theirs")])
    table = ours.table("shop.theirs")
    append(table, 2)
    assert sorted(made.read_rows()) == [(1, "d", "theirs"), (2, "d", "ours")]
    table.alter(AddColumn("w", "INT"))
    theirs.alter_table("shop.theirs", add_column("x", "INT"))
    assert ours.table("shop.theirs").schema.column_names == ("id", "day", "v", "w", "x")
    append(ours.create_table("shop.ours", schema=COLUMNS, primary_keys=["id"], options=OPTIONS), 3)
    theirs.table("shop.ours").write([(4, "d", "theirs")])
    assert ids(ours.table("shop.ours")) == [3, 4]
    with pytest.raises(UnsupportedFeatureError, match=r"shop\.ours cannot be renamed"):
        ours.rename_table("shop.ours", "shop.other")
    ours.drop_table("shop.ours")
    theirs.drop_table("shop.theirs")
    assert (ours.list_tables("shop"), theirs.list_tables("shop")) == ([], [])
    assert in_s3.rows("paimon_table_properties") == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_jvm_and_we_commit_side_by_side_to_an_object_store(s3_judge: PaimonJudge, in_versitygw: Place) -> None:
    side_by_side(s3_judge, in_versitygw, JDBC_COMMITS.now())


def side_by_side(judge: PaimonJudge, place: Place, count: int) -> None:
    """Both commit to one table without pause: every row is there once, every commit is a snapshot."""
    table = place.ours().create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    made = place.theirs(judge).table("shop.orders")

    def we() -> None:
        with table.writer("ours") as writer:
            for number in range(count):
                writer.write([{"id": number, "day": "d", "v": "ours"}])
                writer.commit()

    def they() -> None:
        for number in range(count):
            made.write([(100_000 + number, "d", "theirs")])

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(we), pool.submit(they)]:
            each.result()
    assert ids(table) == [*range(count), *range(100_000, 100_000 + count)]
    assert [snapshot.id for snapshot in table.snapshots()] == list(range(1, 2 * count + 1))
    assert len(made.read_rows()) == 2 * count
    assert place.rows(LOCKS) == []


def test_a_jvm_and_we_commit_side_by_side(judge: PaimonJudge, place: Place) -> None:
    side_by_side(judge, place, 10)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_jvm_and_we_commit_side_by_side_for_long(judge: PaimonJudge, place: Place) -> None:
    side_by_side(judge, place, JDBC_COMMITS.now())


def test_a_jvm_in_another_time_zone_shares_the_lock_where_ours_is_said(server: PostgresServer, tmp_path: Path) -> None:
    zone = "Asia/Tokyo"
    place = Place({**server.options, **LOCKED, **FAST, "uri": server.new_database()}, f"{tmp_path}/w")
    jvm = tuple(option.replace("=UTC", f"={zone}") for option in JVM_OPTIONS)
    with PaimonJudge.start(jvm_options=jvm, more_jars=JDBC_JARS) as judge:
        there = Catalog(place.warehouse, options={**place.options, "lock.time-zone": zone})
        table = there.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
        made = place.theirs(judge).table("shop.orders")
        lock = lock_of({**place.options, "lock.time-zone": zone})
        with ThreadPoolExecutor(1) as pool:
            with lock.held(TableName("shop", "orders")):
                writing = pool.submit(made.write, [(1, "d", "theirs")])
                time.sleep(1)
                assert not writing.done(), "it neither sees an old lock nor takes it"
            writing.result(timeout=300)
        append(table, 2)
        assert ids(table) == [1, 2]


def test_what_the_jvm_cannot_open_it_says(judge: PaimonJudge, place: Place) -> None:
    """A row without files: for both an error that names the place."""
    theirs, ours = place.theirs(judge), place.ours()
    ours.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options=OPTIONS)
    table = ours.table("shop.orders")
    table.store.env.file_io.delete_prefix(table.location)
    with pytest.raises(PaimonError, match="There is no paimon table in"):
        theirs.table("shop.orders")
    with pytest.raises(NotFoundError, match=f"no files at {place.warehouse}/shop.db/orders"):
        ours.table("shop.orders")
