"""What `Catalog` takes: warehouses, names, columns and options; refusals before anything is written. What every catalog
does with them: `catalogs/test_catalogs.py`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    InvalidRequestError,
    NotFoundError,
    Table,
    UnsupportedFeatureError,
)

COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "warehouse"))


def create(catalog: Catalog, name: str = "shop.orders", **arguments: object) -> Table:
    given = {"schema": COLUMNS, "primary_keys": ["id"], "options": {"bucket": 4}, **arguments}
    return catalog.create_table(name, **given)  # type: ignore[arg-type]


def nothing_written(catalog: Catalog) -> bool:
    return not list(Path(catalog.warehouse).rglob("*schema*"))


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


def test_foreign_warehouses_are_refused() -> None:
    for warehouse in ("ftp://host/w", "hdfs://host/w"):
        with pytest.raises((InvalidRequestError, UnsupportedFeatureError)):
            Catalog(warehouse)


@pytest.mark.parametrize("name", ["orders", "a.", ".b", "a/b.c", "a.b/c", "a.$snapshots", "a.b$files", "..x"])
def test_names_that_are_no_tables(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        create(catalog, name)
    assert nothing_written(catalog)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"bucket": 0}}, "bucket"),
        ({"options": {"bucket": 4, "merge-enigne": "deduplicate"}}, "merge-engine"),
        ({"options": {"bucket": "four"}}, "bucket"),
        ({"options": {"bucket": 4, "fields.v.aggregate-function": "sum"}}, "merge-engine"),
        ({"options": {"bucket": 4, "data-evolution.enabled": "true"}}, "data-evolution"),
        ({"primary_keys": ["nope"]}, "nope"),
        ({"primary_keys": ["id"], "partition_keys": ["v"], "options": {"bucket": 2}}, "needs dynamic buckets"),
        ({"schema": {"id": "BIGINT", "v": "STRANGE"}}, "STRANGE"),
        ({"schema": {"id": "BIGINT", "v": "VARIANT"}}, "VARIANT"),
        ({"schema": {"id": "BIGINT", "_VALUE_KIND": "INT"}}, "_VALUE_KIND"),
        ({"schema": {}}, "at least one column"),
        ({"options": {"bucket": 4, "sequence.field": "nope"}}, "nope"),
    ],
)
def test_wrong_tables_are_refused_before_anything_is_written(
    catalog: Catalog, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        create(catalog, **arguments)
    assert message in str(refused.value)
    assert nothing_written(catalog)


def test_dynamic_options_are_for_one_object_only(catalog: Catalog) -> None:
    create(catalog)
    tuned = catalog.table("shop.orders", options={"write-buffer-size": "1 mb", "write-only": True})
    assert tuned.store.options.write_only
    assert tuned.store.options.write_buffer_size_bytes == 1024 * 1024
    assert not catalog.table("shop.orders").store.options.write_only
    with pytest.raises(InvalidRequestError, match="bucket"):
        catalog.table("shop.orders", options={"bucket": 8})
    with pytest.raises(InvalidRequestError, match="write-only"):
        catalog.table("shop.orders", options={"write-onli": True})


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
