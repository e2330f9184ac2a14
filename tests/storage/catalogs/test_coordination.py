"""`commit.coordination`: on a store that needs it nothing is written before it is chosen; all ways to write."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.catalogs.claims import FileClaims, LockedClaims
from freshet.storage.catalogs.coordination import CommitRules, Coordination, commit_rules
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import open_env
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.paths import TablePaths
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from freshet.storage.table_session import TableSession
from tests.kit.bucket_store import CHOSEN, WAREHOUSE, bucket_store
from tests.kit.jdbc_catalogs import sqlite_uri

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture(autouse=True)
def bucket() -> Iterator[MemoryFileIO]:
    with bucket_store() as files:
        yield files


def contents(files: MemoryFileIO) -> dict[str, bytes]:
    return {name: file.content for name, file in files._files.items()}


def make_table(rows: int = 3, **options: object) -> Table:
    catalog = Catalog(WAREHOUSE, options=CHOSEN)
    table = catalog.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1, **options})
    for number in range(rows):
        with table.writer("loader") as writer:
            writer.write([{"id": number, "v": "a"}])
            writer.commit()
    return table


def unchosen(name: str = "shop.orders") -> Table:
    return Catalog(WAREHOUSE).table(name)


def by_location() -> Table:
    return Table.open(f"{WAREHOUSE}/shop.db/orders")


def travelled() -> Table:
    return Table.of(unchosen().handle)


def _session(table: Table) -> TableSession:
    return TableSession(table.store, "loader", parallelism=1)


WRITES: dict[str, Callable[[], object]] = {
    "create a database": lambda: Catalog(WAREHOUSE).create_database("other"),
    "drop a database": lambda: Catalog(WAREHOUSE).drop_database("shop", cascade=True),
    "create a table": lambda: Catalog(WAREHOUSE).create_table("shop.new", schema=COLUMNS),
    "create a table and its database": lambda: Catalog(WAREHOUSE).create_table("new.new", schema=COLUMNS),
    "drop a table": lambda: Catalog(WAREHOUSE).drop_table("shop.orders"),
    "writer": lambda: unchosen().writer("loader"),
    "writer of a location": lambda: by_location().writer("loader"),
    "writer of a handle": lambda: travelled().writer("loader"),
    "session": lambda: _session(unchosen()),
    "writer with other options": lambda: unchosen().with_options({"write-only": "true"}).writer("loader"),
    "writer without log": lambda: unchosen().without_log().writer("loader"),
    "task writer": lambda: travelled().engine.task_writer(base_snapshot_id=3),
    "committer": lambda: unchosen().engine.committer("loader"),
    "background compaction": lambda: unchosen().engine.background_compaction("compactor"),
    "compact": lambda: unchosen().compact(),
    "repair": lambda: unchosen().repair(),
    "alter": lambda: unchosen().alter(AddColumn("w", "STRING")),
    "expire": lambda: unchosen().expire_snapshots(retain_max=1, older_than_ms=0),
    "remove orphans": lambda: unchosen().remove_orphan_files(older_than_ms=0),
}
"""Not here: the position of a consumer, which is one small file of one reader that is always overwritten; renaming a
table, which a warehouse folder on a store refuses in any case."""


@pytest.mark.parametrize("way", WRITES)
def test_nothing_is_written_before_a_way_was_chosen(bucket: MemoryFileIO, way: str) -> None:
    make_table()
    bucket.create_exclusive(f"{WAREHOUSE}/shop.db/orders/manifest/orphan", b"")
    before = contents(bucket)
    with pytest.raises(InvalidRequestError) as caught:
        WRITES[way]()
    assert caught.value.option == "commit.coordination"
    for choice in Coordination:
        assert f"\n  {choice}: " in str(caught.value), "each choice has a line"
    assert contents(bucket) == before


def test_sort_compaction_is_refused(bucket: MemoryFileIO) -> None:
    Catalog(WAREHOUSE, options=CHOSEN).create_table("shop.rows", schema=COLUMNS)
    with pytest.raises(InvalidRequestError, match=r"commit\.coordination"):
        unchosen("shop.rows").sort_compact(["id"])


def test_what_reads_is_not_refused(bucket: MemoryFileIO) -> None:
    make_table()
    table = unchosen()
    before = contents(bucket)
    assert table.scan().to_arrow().num_rows == 3
    assert not table.check().damage
    assert table.remove_orphan_files(dry_run=True).files == ()
    assert contents(bucket) == before
    table.reset_consumer("reader", 2)
    assert next(iter(table.stream(consumer_id="reader", max_wait_s=0.1, upserts=True))).num_rows == 1
    assert table.delete_consumer("reader")


@pytest.mark.parametrize("chosen", ["exclusive-put", "single-writer", "Single-Writer "])
def test_a_choice_reaches_whoever_writes(chosen: str) -> None:
    options = {"commit.coordination": chosen}
    table = make_table()
    rules = commit_rules(options)
    assert rules.coordination == chosen.strip().lower()
    opened = Catalog(WAREHOUSE, options=options).table("shop.orders")
    location = table.location
    in_env = Table.open(location, env=open_env(location, EnvSettings.of(options)))
    for each in (opened, Table.of(opened.handle), opened.with_options({"write-only": "true"}), in_env):
        assert each.store.claims.rules == rules
        with each.writer("another") as writer:
            writer.write([{"id": 7, "v": "b"}])
            writer.commit()
    assert opened.alter(AddColumn("w", "STRING")).store.claims.rules == rules


def test_a_table_whose_choice_is_of_this_process_alone_stays_here() -> None:
    table = make_table()
    other = dataclasses.replace(
        table.store,
        claims=FileClaims(table.store.env.file_io, table.store.paths, commit_rules({})),
    )
    with pytest.raises(InvalidRequestError, match="cannot be sent to another process"):
        _ = other.handle


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit.coordination": "optimistic"}, r"optimistic: there is no such way.*\n  exclusive-put: .*\n  single"),
        ({"commit.coordination": "jdbc-lock"}, r"this catalog has no lock.*metastore=jdbc.*\n  exclusive-put: "),
        ({"commit.adopt": "maybe"}, r"option commit.adopt=maybe"),
    ],
)
def test_a_choice_that_there_is_not_is_refused_when_the_catalog_is_opened(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        Catalog(WAREHOUSE, options=options)
    assert caught.value.option in options


def test_a_lock_is_a_choice(bucket: MemoryFileIO) -> None:
    table = make_table()
    bare = FileClaims(bucket, TablePaths(table.location))
    with pytest.raises(InvalidRequestError):
        bare.check_writable()
    locked = LockedClaims(bare, threading.Lock)
    locked.check_writable()
    assert locked.rules.coordination is Coordination.JDBC_LOCK
    assert commit_rules({}, has_lock=True).coordination is Coordination.JDBC_LOCK
    assert commit_rules({"commit.coordination": "jdbc-lock"}, has_lock=True) == commit_rules({}, has_lock=True)


def test_a_disk_and_the_memory_of_a_process_need_no_choice(tmp_path: object) -> None:
    for warehouse in (f"{tmp_path}", "memory:/coordination"):
        catalog = Catalog(warehouse)
        table = catalog.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1})
        with table.writer("loader") as writer:
            writer.write([{"id": 1, "v": "a"}])
            writer.commit()
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
        catalog.drop_database("shop", cascade=True)


@pytest.mark.parametrize("is_locked", [True, False], ids=["lock on", "lock off"])
def test_a_session_chooses_in_a_jdbc_catalog(tmp_path: Path, is_locked: bool) -> None:
    given = {"lock.enabled": str(is_locked).lower(), "uri": sqlite_uri(tmp_path / "catalog.db"), "metastore": "jdbc"}
    maker = Catalog(WAREHOUSE, options={**given, "lock.enabled": "true"})
    maker.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 1})
    table = Catalog(WAREHOUSE, options=given).table("shop.orders")
    for coordination in ("exclusive-put", "single-writer"):
        with table.writer("loader", coordination=coordination, adopt=True) as writer:
            assert writer._store.claims.rules == CommitRules(Coordination(coordination), adopts=True)
            writer.write([{"id": 1, "v": coordination}])
            writer.commit()
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": coordination}]
    if is_locked:
        assert table.writer("loader", coordination="jdbc-lock", adopt=True).close() is None
    else:
        with pytest.raises(InvalidRequestError, match=r"this catalog has no lock.*lock\.enabled=true"):
            table.writer("loader", coordination="jdbc-lock")
        with pytest.raises(InvalidRequestError, match=r"option commit\.coordination=everybody"):
            table.writer("loader", coordination="everybody")
