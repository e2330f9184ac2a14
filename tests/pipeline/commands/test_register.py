"""freshet register: tables whose files a catalog in a database does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog
from tests.kit.jdbc_catalogs import sqlite_uri
from tests.pipeline.commands.kit import Freshet


def make(catalog: Catalog, name: str, *ids: int) -> None:
    table = catalog.create_table(name, schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1})
    with table.writer("loader") as writer:
        writer.write([{"id": number} for number in ids])
        writer.commit()


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, str]:
    return sqlite_uri(tmp_path / "c.db"), f"--catalog-option=warehouse={tmp_path}/w"


def test_tables_of_a_folder_become_those_of_a_catalog(freshet: Freshet, tmp_path: Path, place: tuple[str, str]) -> None:
    for number, name in enumerate(("shop.orders", "shop.items", "old.orders")):
        make(Catalog(tmp_path / "w"), name, number)
    uri, option = place
    refused = freshet("read", uri, "shop.orders", option)
    assert (refused.code, "freshet register" in refused.err) == (2, True)
    made = freshet.good("register", uri, "shop.orders", "old.orders", option)
    assert made.out == (
        f"shop.orders: registered, {tmp_path}/w/shop.db/orders\nold.orders: registered, {tmp_path}/w/old.db/orders\n"
    )
    assert [each["table"] for each in freshet.good("tables", uri, option, "--json").facts] == [
        "old.orders",
        "shop.orders",
    ]
    assert freshet.good("read", uri, "old.orders", option, "--format", "json").facts == {"id": 2}
    again = freshet.good("register", uri, "shop.orders", "shop.items", option, "--json").facts
    assert [(each["table"], each["is_new"]) for each in again] == [("shop.orders", False), ("shop.items", True)]
    catalog = Catalog(uri, warehouse=tmp_path / "w")
    assert catalog.list_tables("shop") == ["items", "orders"]
    with catalog.table("shop.orders").writer("loader") as writer:
        writer.write([{"id": 7}])
        writer.commit()
    assert sorted(catalog.table("shop.orders").scan().to_arrow()["id"].to_pylist()) == [0, 7]


def test_what_is_no_table_is_refused(freshet: Freshet, tmp_path: Path, place: tuple[str, str]) -> None:
    uri, option = place
    (tmp_path / "w" / "shop.db" / "orders").mkdir(parents=True)
    refused = freshet("register", uri, "shop.orders", option)
    assert refused.code == 2
    assert f"no schema file at {tmp_path}/w/shop.db/orders" in refused.err
    assert freshet("register", uri, "orders", option).code == 2
    assert freshet.good("tables", uri, option, "--json").facts == []


def test_a_folder_is_a_catalog_of_its_own(freshet: Freshet, tmp_path: Path) -> None:
    make(Catalog(tmp_path), "shop.orders", 1)
    assert "the catalog knows it already" in freshet.good("register", tmp_path, "shop.orders").out
    assert freshet("register", tmp_path, "shop.other").code == 2
