"""ALTER TABLE of fields inside of columns, and what is said where it is not done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import freshet
from freshet import Catalog
from freshet.storage.exceptions import StorageError


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path)
    made.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "address": "ROW<street STRING, ID INT>", "items": "ARRAY<ROW<n INT>>"},
    ).append([{"id": 1, "address": {"street": "a", "ID": 7}, "items": [{"n": 3}]}])
    return made


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("ADD COLUMN address.zip STRING COMMENT 'zip'", {"address": {"street": "a", "ID": 7, "zip": None}}),
        ("ADD COLUMN Address.zip STRING FIRST", {"address": {"zip": None, "street": "a", "ID": 7}}),
        ("ADD COLUMN address.zip STRING AFTER street", {"address": {"street": "a", "zip": None, "ID": 7}}),
        ("RENAME COLUMN address.ID TO number", {"address": {"street": "a", "number": 7}}),
        ("RENAME COLUMN `address`.`ID` TO `a.b`", {"address": {"street": "a", "a.b": 7}}),
        ("ALTER COLUMN address.ID TYPE BIGINT", {}),
        ("ALTER COLUMN address.ID COMMENT 'number'", {}),
        ("DROP COLUMN address.street", {"address": {"ID": 7}}),
        ("ADD COLUMN items.element.price DECIMAL(10, 2)", {"items": [{"n": 3, "price": None}]}),
    ],
)
def test_a_field_is_changed(catalog: Catalog, change: str, row: dict[str, Any]) -> None:
    before = {"id": 1, "address": {"street": "a", "ID": 7}, "items": [{"n": 3}]}
    freshet.sql(f"ALTER TABLE shop.orders {change}", catalog)
    table = catalog.table("shop.orders")
    assert table.schema.id == 1
    assert table.scan().to_arrow().to_pylist() == [{**before, **row}]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE shop.orders ADD COLUMNS (address.zip STRING)", "added by itself: ADD COLUMN address.zip STRING"),
        ("ALTER TABLE shop.orders ALTER COLUMN address.ID FIRST", "is said when it is added, and stays"),
        ("ALTER TABLE shop.orders DROP COLUMN address.nothing", "there are street, ID"),
        ("CREATE TABLE shop.t (a VARCHAR)", "its length is missing; write STRING"),
        ("SHOW SNAPSHOTS shop.orders", r"SELECT \* FROM t\$snapshots"),
        ("DELETE FROM shop.orders WHERE abs(id) = 1", r"SELECT DISTINCT c FROM t WHERE …"),
        ("DROP DATABASE shop", "CASCADE in SQL"),
    ],
)
def test_what_is_refused_says_what_to_write(catalog: Catalog, statement: str, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        freshet.sql(statement, catalog)
    assert catalog.table("shop.orders").schema.id == 0


def test_the_merge_that_stands_for_any_condition(catalog: Catalog) -> None:
    """What the error about a condition proposes, of a table without a primary key that holds rows twice."""
    table = catalog.create_table("shop.names", schema={"id": "INT", "name": "STRING"})
    table.append([{"id": each, "name": name} for each, name in enumerate(["ann", "ann", "Ann", "bob", None])])
    merge = (
        "MERGE INTO shop.names t USING (SELECT DISTINCT name FROM shop.names WHERE upper(name) = 'ANN') s "
        "ON t.name = s.name WHEN MATCHED THEN DELETE"
    )
    freshet.sql(merge, catalog)
    assert table.scan().to_arrow()["id"].to_pylist() == [3, 4]
