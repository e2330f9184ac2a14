"""What `Catalog` takes: warehouses, names, columns and options. What it refuses: `test_bad_input`; what every catalog
does with them: `catalogs/test_catalogs.py`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    NotFoundError,
    Table,
)

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "warehouse"))


def create(catalog: Catalog, name: str = "shop.orders", **arguments: object) -> Table:
    given = {"schema": COLUMNS, "primary_keys": ["id"], "options": {"bucket": 4}, **arguments}
    return catalog.create_table(name, **given)  # type: ignore[arg-type]


def test_create_makes_database_and_schema_file(catalog: Catalog) -> None:
    table = create(catalog, comment="all orders")
    assert catalog.list_databases() == ["shop"]
    assert catalog.list_tables("shop") == ["orders"]
    assert (Path(catalog.warehouse) / "shop.db" / "orders" / "schema" / "schema-0").is_file()
    assert table.schema.primary_keys == ("id",)
    assert dict(table.schema.options) == {"bucket": "4"}
    assert table.schema.comment == "all orders"
    assert [str(column.type) for column in table.schema.fields] == ["BIGINT NOT NULL", "STRING"]


def test_arrow_schema_and_type_strings_make_the_same_table(catalog: Catalog) -> None:
    arrow = pa.schema([pa.field("id", pa.int64()), pa.field("d", pa.decimal128(14, 4)), pa.field("t", pa.date32())])
    first = create(catalog, "a.one", schema=arrow)
    second = create(catalog, "a.two", schema={"id": "BIGINT", "d": "DECIMAL(14,4)", "t": "DATE"})
    assert first.schema.fields == second.schema.fields
    assert first.arrow_schema == second.arrow_schema


def test_uri_and_path_are_one_warehouse(tmp_path: Path) -> None:
    create(Catalog(f"file://{tmp_path}/w"))
    assert Catalog(f"{tmp_path}/w/").list_tables("shop") == ["orders"]


def test_dynamic_options_are_for_one_object_only(catalog: Catalog) -> None:
    create(catalog)
    tuned = catalog.table("shop.orders", options={"write-buffer-size": "1 mb", "write-only": True})
    assert tuned.store.options.write_only
    assert tuned.store.options.write_buffer_size_bytes == 1024 * 1024
    assert not catalog.table("shop.orders").store.options.write_only


def test_a_table_is_opened_by_its_folder(tmp_path: Path) -> None:
    made = Catalog(tmp_path).create_table(
        "shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "2"}
    )
    made.alter(AddColumn("note", "STRING"))
    table = Table.open("file://" + made.location, options={"write-only": True})
    assert (table.location, table.name, table.schema.id) == (made.location, made.location, 1)
    assert table.store.options.write_only
    assert Table.open(made.location, schema_id=0, name="shop.orders").schema.column_names == ("id",)
    with pytest.raises(NotFoundError, match="no table at"):
        Table.open(str(tmp_path / "nowhere"))
