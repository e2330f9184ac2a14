"""The commands that make, rename and drop tables and databases, and what `alter` changes inside of columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from tests.pipeline.commands.kit import Freshet


def test_a_table_is_created_renamed_and_dropped(freshet: Freshet, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    created = freshet.good(
        *("create-table", tmp_path, "shop.orders", "--column", "dt STRING NOT NULL", "--column", "`odd name` BIGINT"),
        *("--column", "total DECIMAL(10, 2)", "--primary-key", "dt, odd name", "--partition-by", "dt"),
        *("--option", "bucket=2", "--comment", "orders", "--json"),
    )
    table = catalog.table("shop.orders")
    assert created.facts == {"table": "shop.orders", "location": table.location}
    assert table.schema.primary_keys == ("dt", "odd name") and table.schema.partition_keys == ("dt",)
    assert str(table.schema.by_name["total"].type) == "DECIMAL(10, 2)"
    assert (table.options.bucket, table.schema.comment) == (2, "orders")
    again = ("create-table", tmp_path, "shop.orders", "--column", "id BIGINT")
    assert freshet(*again).code == 2
    freshet.good(*again, "--if-not-exists")
    table.append([{"dt": "a", "odd name": 1}])

    assert "no database 'archive'" in freshet("rename-table", tmp_path, "shop.orders", "archive.old").err
    freshet.good("create-database", tmp_path, "archive")
    assert freshet("create-database", tmp_path, "archive").code == 2
    freshet.good("create-database", tmp_path, "archive", "--if-not-exists")
    done = freshet.good("rename-table", tmp_path, "shop.orders", "archive.old")
    assert done.out == "shop.orders is archive.old now\n"
    assert catalog.table("archive.old").scan().count() == 1
    gone = freshet.good("rename-table", tmp_path, "shop.orders", "archive.x", "--if-exists", "--json")
    assert gone.facts == {"table": "shop.orders", "new_name": "archive.x", "renamed": False}

    tried = freshet.good("drop-table", tmp_path, "archive.old", "--dry-run")
    assert tried.out == "would be dropped: archive.old, 1 record\n"
    assert freshet.good("drop-table", tmp_path, "archive.old", "--json").facts == {
        "table": "archive.old",
        "dropped": True,
        "dry_run": False,
    }
    assert not catalog.has_table("archive.old")
    for more in ((), ("--dry-run",)):
        assert "there is no table archive.old" in freshet("drop-table", tmp_path, "archive.old", *more).err
        freshet.good("drop-table", tmp_path, "archive.old", "--if-exists", *more)


def test_columns_of_a_key_may_be_given_one_by_one(freshet: Freshet, tmp_path: Path) -> None:
    columns = ("--column", "dt STRING", "--column", "hh INT", "--column", "id BIGINT")
    keys = ("--primary-key", "dt,hh", "--primary-key", "id", "--partition-by", "dt", "--partition-by", "hh")
    freshet.good("create-table", tmp_path, "shop.orders", *columns, *keys, "--option", "bucket=1")
    schema = Catalog(tmp_path).table("shop.orders").schema
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "hh", "id"), ("dt", "hh"))


def test_a_database_is_dropped_with_its_tables_only_on_request(freshet: Freshet, tmp_path: Path) -> None:
    for name in ("a", "b.c"):
        freshet.good("create-table", tmp_path, f"shop.{name}", "--column", "id BIGINT")
    for more in ((), ("--dry-run",)):
        assert "cascade" in freshet("drop-database", tmp_path, "shop", *more).err
    tried = freshet.good("drop-database", tmp_path, "shop", "--cascade", "--dry-run")
    assert tried.out == "would be dropped: database shop with 2 tables\n  shop.a\n  shop.b.c\n"
    done = freshet.good("drop-database", tmp_path, "shop", "--cascade", "--json").facts
    assert done == {"database": "shop", "tables": ["shop.a", "shop.b.c"], "dropped": True, "dry_run": False}
    assert Catalog(tmp_path).list_databases() == []
    assert freshet("drop-database", tmp_path, "shop").code == 2
    assert freshet.good("drop-database", tmp_path, "shop", "--if-exists").out == "there is no database shop\n"


def test_what_cannot_be_is_refused_before_anything_is_written(freshet: Freshet, tmp_path: Path) -> None:
    for arguments in (
        ("--column", "id"),
        ("--column", "id BIGINT", "--column", "id INT"),
        ("--column", "id BIGINT", "--primary-key", "nowhere"),
        ("--column", "id BIGINT", "--option", "bucket"),
        ("--column", "id BIGINT", "--option", "buckets=3"),
    ):
        assert freshet("create-table", tmp_path / "w", "shop.t", *arguments).code == 2, arguments
    assert not (tmp_path / "w").exists()


def test_alter_within_a_column(freshet: Freshet, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_table(
        "shop.t", schema={"id": "BIGINT", "a.b": "ROW<x INT>", "l": "ARRAY<ROW<p INT>>", "note": "STRING"}
    )
    freshet.good("alter", tmp_path, "shop.t", "--within", "`a.b`", "--add", "zip STRING", "--rename", "x=y")
    freshet.good("alter", tmp_path, "shop.t", "--within", "l.element", "--type", "p BIGINT")
    freshet.good(
        "alter", tmp_path, "shop.t", "--default", "note=none=1", "--move", "note after id", "--move", "id last"
    )
    schema = catalog.table("shop.t").schema
    assert str(schema.by_name["a.b"].type) == "ROW<y INT, zip STRING>"
    assert str(schema.by_name["l"].type) == "ARRAY<ROW<p BIGINT>>"
    assert schema.column_names == ("note", "a.b", "l", "id")
    assert schema.by_name["note"].default_value == "none=1"
    freshet.good("alter", tmp_path, "shop.t", "--default", "note=", "--move", "`a.b` before note")
    assert catalog.table("shop.t").schema.by_name["note"].default_value is None
    assert catalog.table("shop.t").schema.column_names[0] == "a.b"
    assert "alter-column-null-to-not-null" in freshet("alter", tmp_path, "shop.t", "--not-null", "note").err
    for wrong in (("--move", "note"), ("--move", "note beside id"), ("--within", "a..b", "--drop", "x")):
        assert freshet("alter", tmp_path, "shop.t", *wrong).code == 2, wrong
    freshet.good("create-table", tmp_path, "shop.k", "--column", "id BIGINT", "--primary-key", "id")
    freshet.good("alter", tmp_path, "shop.k", "--drop-primary-key")
    assert not catalog.table("shop.k").schema.has_primary_key


@pytest.mark.parametrize("name", ["shop.a$b", "shop", "shop.x/y"])
def test_names_that_no_table_can_have(freshet: Freshet, tmp_path: Path, name: str) -> None:
    assert freshet("create-table", tmp_path / "w", name, "--column", "id BIGINT").code == 2
    assert freshet("drop-table", tmp_path / "w", name).code == 2
