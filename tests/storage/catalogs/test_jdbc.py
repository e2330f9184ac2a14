"""The rows of a JDBC catalog, and what interrupted calls leave: each state says what to do, and that works."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from freshet import (
    AddColumn,
    AlreadyExistsError,
    Catalog,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    SetOption,
    Table,
)
from freshet.storage.catalogs.jdbc_database import Pool, Session
from freshet.storage.catalogs.jdbc_options import parse_uri
from freshet.storage.catalogs.jdbc_rows import INSERT_TABLE
from freshet.storage.exceptions import StorageError
from freshet.storage.io.local_folders import LocalFolders
from tests.kit.jdbc_catalogs import LOCKED, opened, rows, sqlite_uri
from tests.kit.kit_store import in_fresh_process

COLUMNS = {"id": "BIGINT", "day": "STRING", "v": "STRING"}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return sqlite_uri(tmp_path / "catalog.db")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "w"


@pytest.fixture
def catalog(uri: str, warehouse: Path) -> Catalog:
    return Catalog(uri, warehouse=warehouse)


def create(catalog: Catalog, name: str = "shop.orders", **given: Any) -> Table:
    options = {"bucket": 1, "write-only": "true"}
    return catalog.create_table(name, **{"schema": COLUMNS, "primary_keys": ["id"], "options": options, **given})


def put(table: Table, number: int) -> None:
    with table.writer(f"w{number}") as writer:
        writer.write([{"id": number, "day": "d", "v": "v"}])
        writer.commit()


def execute(uri: str, statement: str, **values: object) -> None:
    _, pool = opened({"uri": uri})
    with pool.session() as session:
        session.run(statement, values)


def test_rows_of_a_database_and_its_tables(catalog: Catalog, uri: str, warehouse: Path) -> None:
    catalog.create_database("shop", properties={"owner": "me"})
    properties = [("exists", "true"), ("location", f"{warehouse}/shop.db"), ("owner", "me")]
    assert rows({"uri": uri}, "paimon_database_properties") == [("jdbc", "shop", *each) for each in properties]
    assert catalog.database_properties("shop") == {"location": f"{warehouse}/shop.db", "owner": "me"}
    create(catalog, primary_keys=["id", "day"], partition_keys=["day"])
    of = ("jdbc", "shop", "orders")
    assert rows({"uri": uri}, "paimon_tables") == [of]
    kept = {"bucket": "1", "bucket-key": "id", "partition": "day", "primary-key": "id,day", "write-only": "true"}
    assert rows({"uri": uri}, "paimon_table_properties") == [(*of, *each) for each in kept.items()]
    catalog.table("shop.orders").alter(SetOption("bucket", "2"), SetOption("snapshot.num-retained.max", "99"))
    altered = {**kept, "bucket": "2", "snapshot.num-retained.max": "99"}
    assert rows({"uri": uri}, "paimon_table_properties") == sorted((*of, *each) for each in altered.items())
    catalog.create_database("old")
    catalog.rename_table("shop.orders", "old.sales")
    assert rows({"uri": uri}, "paimon_tables") == [("jdbc", "old", "sales")]
    assert {row[1:3] for row in rows({"uri": uri}, "paimon_table_properties")} == {("old", "sales")}
    assert (warehouse / "old.db" / "sales" / "schema" / "schema-1").exists()
    catalog.drop_table("old.sales")
    assert rows({"uri": uri}, "paimon_tables") == rows({"uri": uri}, "paimon_table_properties") == []
    catalog.drop_database("old")
    assert {row[1] for row in rows({"uri": uri}, "paimon_database_properties")} == {"shop"}


def test_catalogs_of_two_keys_share_a_database_and_know_nothing_of_each_other(
    catalog: Catalog, uri: str, warehouse: Path
) -> None:
    put(create(catalog), 1)
    other = Catalog(uri, warehouse=warehouse, options={"catalog-key": "other"})
    assert other.list_databases() == []
    for call in (lambda: other.drop_table("shop.orders"), lambda: other.table("shop.orders")):
        with pytest.raises(NotFoundError, match=r"belongs to another catalog.*register_table\('shop.orders'\)"):
            call()
    with pytest.raises(AlreadyExistsError, match="belongs to another catalog"):
        create(other)
    assert catalog.table("shop.orders").scan().to_arrow().num_rows == 1, "its files are there"
    assert other.register_table("shop.orders").scan().to_arrow().num_rows == 1


def test_views_of_the_jvm_make_a_database_and_keep_their_names(catalog: Catalog, uri: str) -> None:
    catalog.list_databases()
    execute(uri, "INSERT INTO paimon_views VALUES ('jdbc', 'shop', 'top', '{}')")
    assert catalog.list_databases() == ["shop"]
    assert catalog.list_tables("shop") == []
    with pytest.raises(AlreadyExistsError, match="a view of this name"):
        create(catalog, "shop.top")
    create(catalog)
    with pytest.raises(AlreadyExistsError, match="a table or a view of this name"):
        catalog.rename_table("shop.orders", "shop.top")
    catalog.drop_table("shop.orders")
    with pytest.raises(InvalidRequestError, match=r"'shop' holds views \(top\).*cascade=True"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []


@pytest.mark.parametrize("is_locked", ["true", "false"])
def test_a_create_that_was_interrupted_before_its_row(
    uri: str, warehouse: Path, monkeypatch: pytest.MonkeyPatch, is_locked: str
) -> None:
    catalog = Catalog(uri, warehouse=warehouse, options={"lock.enabled": is_locked})
    insert = Session.insert

    def fails(self: Session, statement: str, values: Any) -> bool:
        if statement == INSERT_TABLE:
            raise RetryableError("gave no answer")
        return insert(self, statement, values)

    monkeypatch.setattr(Session, "insert", fails)
    with pytest.raises(RetryableError, match="gave no answer"):
        create(catalog)
    monkeypatch.undo()
    assert (warehouse / "shop.db" / "orders" / "schema" / "schema-0").exists()
    assert catalog.list_tables("shop") == []
    for call in (lambda: create(catalog), lambda: catalog.table("shop.orders")):
        with pytest.raises((AlreadyExistsError, NotFoundError), match=r"register_table\('shop.orders'\)"):
            call()
    put(catalog.register_table("shop.orders"), 1)
    assert catalog.list_tables("shop") == ["orders"]
    assert {row[3] for row in rows({"uri": uri}, "paimon_table_properties")} >= {"bucket", "primary-key"}
    assert catalog.register_table("shop.orders").scan().to_arrow().num_rows == 1, "a second time does nothing"


def test_a_create_whose_properties_were_not_written_is_done(
    catalog: Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog)
    execute(uri, "DELETE FROM paimon_table_properties")
    table = catalog.table("shop.orders")
    put(table, 1)
    table.alter(AddColumn("w", "INT"))
    assert len(rows({"uri": uri}, "paimon_table_properties")) == 4


def test_an_alter_is_done_although_its_properties_cannot_be_written(
    catalog: Catalog, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(catalog)
    execute(uri, "DROP TABLE paimon_table_properties")
    assert table.alter(AddColumn("w", "INT")).schema.id == 1
    assert "rows of paimon_table_properties were not" in caplog.text


def test_a_rename_that_was_interrupted_before_the_folder(catalog: Catalog, uri: str) -> None:
    put(create(catalog), 1)
    execute(uri, "UPDATE paimon_tables SET table_name = 'sales'")
    with pytest.raises(
        NotFoundError, match=r"shop.sales has a row of paimon_tables, and no files.*drop_table\('shop.sa"
    ):
        catalog.table("shop.sales")
    with pytest.raises(NotFoundError, match="has a row of paimon_tables, and no files"):
        create(catalog, "shop.sales")
    catalog.drop_table("shop.sales")
    assert catalog.register_table("shop.orders").scan().to_arrow().num_rows == 1
    assert catalog.list_tables("shop") == ["orders"]


def test_a_rename_whose_folder_cannot_be_renamed_leaves_the_table(
    catalog: Catalog, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(create(catalog), 1)

    def fails(self: LocalFolders, source: str, target: str) -> None:
        raise RetryableError("the disk is busy")

    monkeypatch.setattr(LocalFolders, "rename", fails)
    with pytest.raises(RetryableError, match="the disk is busy"):
        catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.table("shop.orders").scan().to_arrow().num_rows == 1
    assert {row[2] for row in rows({"uri": uri}, "paimon_table_properties")} == {"orders"}


def test_a_rename_to_files_of_another_catalog_is_refused(catalog: Catalog, uri: str, warehouse: Path) -> None:
    create(Catalog(warehouse), "shop.sales")
    create(catalog)
    with pytest.raises(AlreadyExistsError, match=rf"or files of one are at {warehouse}/shop.db/sales"):
        catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["orders"]


def test_a_drop_that_was_interrupted_is_dropped_again(catalog: Catalog, uri: str, warehouse: Path) -> None:
    for with_schema in (True, False):
        table = create(catalog)
        put(table, 1)
        execute(uri, "DELETE FROM paimon_tables")
        if with_schema:
            with pytest.raises(NotFoundError, match="register_table"):
                catalog.drop_table("shop.orders")
            catalog.register_table("shop.orders")
        else:
            table.store.env.file_io.delete_prefix(table.store.paths.schema_folder)
            with pytest.raises(
                InvalidRequestError, match="snapshots, tags or branches of an earlier table.*drop_table"
            ):
                create(catalog)
        catalog.drop_table("shop.orders")
        assert not (warehouse / "shop.db" / "orders").exists()


def test_files_that_are_no_table_are_not_registered(catalog: Catalog, warehouse: Path) -> None:
    for each in (catalog, Catalog(warehouse)):
        with pytest.raises(NotFoundError, match=rf"cannot be registered.*{warehouse}/shop.db/orders"):
            each.register_table("shop.orders")


def test_a_property_of_the_catalog_is_not_altered(catalog: Catalog) -> None:
    for call in (
        lambda: catalog.create_database("shop", properties={"exists": "no"}),
        lambda: catalog.alter_database("shop", {"exists": None}),
    ):
        with pytest.raises(InvalidRequestError, match="'exists' of a database is the catalog's own"):
            call()
        catalog.create_database("shop", if_not_exists=True)


def _rows_there(pickled: bytes) -> tuple[str, int]:
    table: Table = pickle.loads(pickled)
    return type(table.store.claims).__name__, table.scan().to_arrow().num_rows


@pytest.mark.dear("a new process")
def test_a_table_that_travels_is_read_without_the_database(catalog: Catalog, tmp_path: Path) -> None:
    """Tasks of a cluster would open more connections than a database has."""
    table = create(catalog)
    put(table, 1)
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    assert in_fresh_process(_rows_there, pickle.dumps(table)) == ("JdbcClaims", 1)


def test_no_error_shows_a_password(monkeypatch: pytest.MonkeyPatch, warehouse: Path) -> None:
    uri = "jdbc:postgresql://127.0.0.1:1/lake?password=hunter2&connectTimeout=2"
    catalog = Catalog(uri, warehouse=warehouse, options={"jdbc.user": "me"})
    with pytest.raises(
        RetryableError, match=r"lake\?password=\*\*\*&connectTimeout=2 gave no answer.*try again"
    ) as caught:
        catalog.list_databases()
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    pool = Pool(parse_uri(uri, {}), "UTC", 1)
    with pytest.raises(StorageError) as shown, pool.session() as session:
        session.run("SELECT 'hunter2'")
    assert "hunter2" not in "".join(traceback.format_exception(shown.value))
    with pytest.raises(InvalidRequestError, match="option uri holds a secret"):
        catalog._env.settings.check_travels()  # type: ignore[union-attr]


@pytest.mark.dear("a new process")
def test_a_database_that_was_deleted_under_a_program(uri: str, warehouse: Path) -> None:
    locked = Catalog(uri, warehouse=warehouse, options=LOCKED)
    table = locked.create_table("shop.orders", schema={"id": "BIGINT"})
    Path(uri.removeprefix("jdbc:sqlite:")).unlink()
    with table.writer("loader") as writer:
        writer.write([{"id": 1}])
        with pytest.raises(
            InvalidRequestError, match=r"has lost its tables.*Restore it.*register_table.*new program"
        ) as caught:
            writer.commit()
        assert caught.value.option == "uri"
        writer.abort()
    assert table.scan().count() == 0
    registered = in_fresh_process(_register_and_write, uri, str(warehouse))
    assert registered == 1
    assert table.scan().count() == 1


def _register_and_write(uri: str, warehouse: str) -> int:
    table = Catalog(uri, warehouse=warehouse, options=LOCKED).register_table("shop.orders")
    with table.writer("loader") as writer:
        writer.write([{"id": 1}])
        writer.commit()
    return table.scan().count()
