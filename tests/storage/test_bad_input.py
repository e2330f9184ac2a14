"""Wrong calls through the public surface: the right class, a message that names what is wrong, and nothing written.

Every refusal is followed by the same check: no file was added, changed or removed, and the table reads as before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    AlreadyExistsError,
    Catalog,
    ChangeType,
    ConflictError,
    DropColumn,
    InvalidRequestError,
    MoveColumn,
    NotFoundError,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    Table,
    UnsupportedFeatureError,
    col,
)
from tests.kit.folders import contents, unchanged

COLUMNS = {
    "id": "BIGINT",
    "status": "STRING",
    "total": "INT",
    "price": "DECIMAL(6, 2)",
    "must": "INT NOT NULL",
    "place": "ROW<street STRING, number INT>",
    "tags": "ARRAY<STRING>",
    "at": "TIMESTAMP(3)",
}


def good(**changed: Any) -> pa.Table:
    """Two rows that fit; a column given as None is left out, others are added or replaced."""
    columns: dict[str, Any] = {
        "id": pa.array([1, 2], pa.int64()),
        "status": ["new", "paid"],
        "total": pa.array([1, 2], pa.int32()),
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(6, 2)),
        "must": pa.array([1, 2], pa.int32()),
        "place": pa.array([{"street": "a", "number": 1}] * 2, pa.struct({"street": pa.string(), "number": pa.int32()})),
        "tags": pa.array([["x"], []], pa.list_(pa.string())),
        "at": pa.array([0, 1], pa.timestamp("ms")),
        **changed,
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "warehouse")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A table of two commits, of which each test has a copy, and its rows."""
    catalog = Catalog(tmp_path_factory.mktemp("template"))
    made = catalog.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 2})
    with made.writer("loader") as writer:
        for number in range(2):
            writer.write(good(id=pa.array([number, number + 1], pa.int64())))
            writer.commit(number)
    return Path(catalog.warehouse), rows_of(made)


@pytest.fixture
def table(catalog: Catalog, warehouse: tuple[Path, list[dict[str, Any]]]) -> Iterator[Table]:
    """A table of two commits; whatever a test does with it, it must read the same afterwards."""
    template, before = warehouse
    shutil.copytree(template, catalog.warehouse)
    with unchanged(catalog.warehouse):
        yield catalog.table("shop.orders")
    assert rows_of(catalog.table("shop.orders")) == before


def refused(call: Any, *parts: str, kind: type[Exception] = InvalidRequestError) -> str:
    """The message of a call that must be refused; it holds every part."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert len(message) < 1000
    return message


# ----------------------------------------------------------------------------------------------- warehouses and names


@pytest.mark.parametrize("warehouse", ["", " ", "file:", "/tmp/\0w", "w\0", None, 5])
def test_a_warehouse_is_a_path(warehouse: Any) -> None:
    refused(lambda: Catalog(warehouse), "give a path", "file:///data/warehouse")


@pytest.mark.parametrize("warehouse", ["hdfs://node/w", "file://host/w", "C:\\w"])
def test_a_remote_warehouse_is_named(warehouse: str) -> None:
    refused(lambda: Catalog(warehouse), "only local paths", warehouse)


@pytest.mark.parametrize(
    "name",
    ["", "orders", ".orders", "shop.", "a/b.c", "a.b/../c", "a.b$files", "a.b@1", "a.b\n", "a.b\tc", "a.\0", None],
)
def test_a_name_that_is_none(catalog: Catalog, name: Any) -> None:
    for call in (
        lambda: catalog.create_table(name, schema={"id": "INT"}, options={"bucket": -1}),
        lambda: catalog.table(name),
        lambda: catalog.drop_table(name),
    ):
        refused(call, repr(name) if name in (None, "", "orders") else "")
    assert not Path(catalog.warehouse).exists()


def test_a_name_that_no_file_system_takes(catalog: Catalog) -> None:
    for name in ("a." + "x" * 300, "y" * 252 + ".b", "a." + "ü" * 126):
        refused(lambda name=name: catalog.create_table(name, schema={"id": "INT"}), "bytes", "250")
    assert not Path(catalog.warehouse).exists()


def test_what_is_not_there_is_named_with_what_is(catalog: Catalog, table: Table) -> None:
    refused(lambda: catalog.table("shop.order"), "shop.order", "orders", kind=NotFoundError)
    refused(lambda: catalog.table("shops.orders"), "no database 'shops'", kind=NotFoundError)
    refused(lambda: catalog.list_tables("shops"), "'shops'", "shop", kind=NotFoundError)
    refused(lambda: catalog.drop_table("shop.order"), "orders", kind=NotFoundError)
    refused(lambda: catalog.drop_database("shop"), "orders", "cascade=True")
    refused(lambda: catalog.create_database("shop"), "'shop'", kind=AlreadyExistsError)
    refused(
        lambda: catalog.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 2}),
        "shop.orders",
        "if_not_exists",
        kind=AlreadyExistsError,
    )


# ------------------------------------------------------------------------------------------------------- new tables


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"merge-enigne": "deduplicate"}, ["merge-enigne", "did you mean merge-engine?"]),
        ({"snapshot.num-retained.mx": "1"}, ["did you mean snapshot.num-retained.max?"]),
        ({"": "1"}, ["unknown option ''"]),
        ({5: "1"}, ["options are keys with values"]),
        ({"bucket": "four"}, ["bucket = 'four'", "whole number"]),
        ({"bucket": None}, ["bucket"]),
        ({"bucket": 2**40}, ["bucket", "2147483647"]),
        ({"bucket": -7}, ["bucket=-7"]),
        ({"write-only": "maybe"}, ["write-only = 'maybe'", "true or false"]),
        ({"write-buffer-size": "12 parsecs"}, ["write-buffer-size", "parsecs", "64 mb"]),
        ({"write-buffer-size": 0}, ["write-buffer-size", "greater than 0"]),
        ({"snapshot.time-retained": "yesterday"}, ["snapshot.time-retained", "1 h"]),
        ({"num-levels": 1}, ["num-levels"]),
        ({"merge-engine": "newest"}, ["merge-engine", "deduplicate"]),
        ({"file.compression.per.level": "fast"}, ["file.compression.per.level", "key:value"]),
        ({"metadata.stats-mode": "all"}, ["'all'", "truncate(16)"]),
        ({"snapshot.num-retained.min": 9, "snapshot.num-retained.max": 3}, ["min=9", "max=3"]),
        ({"bucket-key": "status"}, ["bucket-key", "status", "primary key"]),
        ({"bucket-key": "nope"}, ["bucket-key", "nope", "columns: id"]),
        ({"merge-engine": "aggregation", "fields.status.aggregate-function": "sum"}, ["sum takes numbers", "status"]),
        ({"fields.total.agregate-function": "sum"}, ["did you mean fields.total.aggregate-function?"]),
        ({"sequence.field": "nope"}, ["sequence.field", "nope"]),
        ({"sequence.field": "total,total"}, ["sequence.field", "twice"]),
        ({"sequence.field": "tags"}, ["sequence.field", "tags", "no order"]),
        ({"rowkind.field": "total"}, ["rowkind.field", "total", "STRING"]),
        ({"fields.nope.stats-mode": "none"}, ["nope"]),
        ({"primary-key": "id"}, ["primary-key", "primary_keys"]),
        ({"partition": "status"}, ["partition", "partition_keys"]),
        ({"data-file.prefix": "a/b"}, ["data-file.prefix", "'a/b'"]),
        ({"data-file.prefix": ""}, ["data-file.prefix"]),
        ({"partition.default-name": " "}, ["partition.default-name"]),
        ({"data-file.path-directory": "../up"}, ["data-file.path-directory", "below"]),
        ({"data-file.path-directory": "/abs"}, ["data-file.path-directory"]),
        ([("bucket", 2)], ["options are keys with values"]),
        ("bucket=2", ["options are keys with values"]),
    ],
)
def test_wrong_options(catalog: Catalog, options: Any, parts: list[str]) -> None:
    given = {"bucket": 2, **options} if isinstance(options, dict) else options
    refused(lambda: catalog.create_table("a.b", schema=COLUMNS, primary_keys=["id"], options=given), *parts)
    assert not Path(catalog.warehouse).exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"file.format": "csv"}, ["file.format=csv", "parquet"]),
        ({"file.compression": "brotli"}, ["file.compression=brotli", "zstd"]),
        ({"manifest.format": "orc"}, ["manifest.format=orc", "avro"]),
        ({"index-file-in-data-file-dir": True}, ["index-file-in-data-file-dir"]),
        ({"branch": "b1"}, ["branch=b1"]),
        ({"path": "/elsewhere"}, ["path=/elsewhere", "warehouse"]),
        ({"scan.snapshot-id": 1}, ["scan.snapshot-id=1", "snapshot_id"]),
        ({"scan.mode": "from-timestamp"}, ["scan.mode=from-timestamp"]),
        ({"incremental-between": "1,3"}, ["incremental-between=1,3"]),
    ],
)
def test_options_that_are_not_supported_yet(catalog: Catalog, options: dict[str, Any], parts: list[str]) -> None:
    def create() -> Table:
        return catalog.create_table("a.b", schema=COLUMNS, primary_keys=["id"], options={"bucket": 2, **options})

    refused(create, *parts, kind=UnsupportedFeatureError)
    assert not Path(catalog.warehouse).exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"primary_keys": ["nope"]}, ["primary key", "'nope'", "columns: id"]),
        ({"primary_keys": "id"}, ["primary_keys is a list", "'id'"]),
        ({"primary_keys": None}, ["primary_keys is a list"]),
        ({"primary_keys": ["id", "id"]}, ["primary key column id", "twice"]),
        ({"primary_keys": ["tags"]}, ["tags", "primary key"]),
        (
            {"partition_keys": ["status"], "options": {"bucket": "2"}},
            ["primary key (id) is without the partition column status", "leave the option bucket out"],
        ),
        ({"partition_keys": "status"}, ["partition_keys is a list"]),
        ({"primary_keys": ["status"], "partition_keys": ["status"]}, ["add a column to the primary key"]),
        ({"options": {"bucket-key": "id"}}, ["bucket-key", "no meaning with bucket=-1", "set a number"]),
        ({"schema": {"id": "BIGINT", "v": "WEIRD"}}, ["column 'v'", "WEIRD"]),
        ({"schema": {"id": "BIGINT", "v": "VARCHAR"}}, ["column 'v'", "write STRING, or VARCHAR(n)"]),
        ({"schema": {"id": "BIGINT", "v": "varbinary not null"}}, ["column 'v'", "write BYTES, or VARBINARY(n)"]),
        ({"schema": {"id": "BIGINT", "v": "ARRAY<CHAR>"}}, ["column 'v'", "write CHAR(n)"]),
        ({"schema": {"id": "BIGINT", "A": "INT", "a": "INT"}}, ["A and a", "upper and lower case"]),
        ({"schema": {"id": "BIGINT", "v": "ARRAY<INT"}}, ["column 'v'", "ARRAY<INT"]),
        ({"schema": {"id": "BIGINT", "v": "DECIMAL(50, 2)"}}, ["column 'v'", "1..38"]),
        ({"schema": {"id": "BIGINT", "v": int}}, ["column 'v'", "BIGINT"]),
        ({"schema": {"id": pa.int64()}}, ["column 'id'", "pyarrow schema"]),
        ({"schema": {"id": "BIGINT", 5: "INT"}}, ["column 5"]),
        ({"schema": {"id": "BIGINT", " ": "INT"}}, ["blank"]),
        ({"schema": {"id": "BIGINT", "_KEY_id": "INT"}}, ["_KEY_id", "rename"]),
        ({"schema": {"id": "BIGINT", "r": "ROW<a INT, a STRING>"}}, ["column r", "field a", "twice"]),
        ({"schema": {"id": "BIGINT", "r": "ARRAY<ROW<a INT, b ROW<c INT, c INT>>>"}}, ["column r.b", "field c"]),
        ({"schema": {}}, ["at least one column"]),
        ({"schema": None}, ["schema is a pyarrow schema, a frame"]),
        ({"schema": [("id", "BIGINT")]}, ["schema is a pyarrow schema, a frame"]),
        ({"schema": pa.schema([("id", pa.int64()), ("id", pa.int64())])}, ["unique", "id, id"]),
        ({"schema": pa.schema([("id", pa.int64()), ("d", pa.duration("s"))])}, ["column 'd'", "duration[s]"]),
        ({"comment": 5}, ["comment"]),
    ],
)
def test_wrong_tables(catalog: Catalog, arguments: dict[str, Any], parts: list[str]) -> None:
    given: dict[str, Any] = {"schema": COLUMNS, "primary_keys": ["id"], "options": {"bucket": 2}, **arguments}
    refused(lambda: catalog.create_table("a.b", **given), *parts)
    assert not Path(catalog.warehouse).exists()


def test_dynamic_options(catalog: Catalog, table: Table) -> None:
    for options, parts, kind in (
        ({"bucket": 4}, ["bucket", "cannot be given when opening"], InvalidRequestError),
        ({"merge-engine": "aggregation"}, ["merge-engine"], InvalidRequestError),
        ({"write-onyl": True}, ["did you mean write-only?"], InvalidRequestError),
        ({"write-buffer-size": "big"}, ["write-buffer-size"], InvalidRequestError),
        ({"scan.snapshot-id": 1}, ["scan.snapshot-id", "snapshot_id"], UnsupportedFeatureError),
        ("write-only=true", ["options are keys"], InvalidRequestError),
        ({"sequence.field": "id"}, ["sequence.field", "cannot be given when opening"], InvalidRequestError),
        ({"data-file.prefix": "a/b"}, ["data-file.prefix"], InvalidRequestError),
        ({"metadata.stats-mode": "all"}, ["'all'"], InvalidRequestError),
        ({"snapshot.num-retained.min": 9, "snapshot.num-retained.max": 3}, ["min=9"], InvalidRequestError),
    ):
        refused(lambda options=options: catalog.table("shop.orders", options=options), *parts, kind=kind)
        refused(lambda options=options: table.with_options(options), *parts, kind=kind)
    assert table.with_options({"write-only": True}).store.options.write_only


# ------------------------------------------------------------------------------------------------------- wrong rows


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"id": None}, ["lacks column 'id'", "NULL is not allowed"]),
        ({"colour": ["red", "blue"]}, ["no column 'colour'", "id, status"]),
        ({"Status": ["a", "b"]}, ["no column 'Status'"]),
        ({"_KEY_id": [1, 2]}, ["no column '_KEY_id'"]),
        ({"id": pa.array([7, None], pa.int64())}, ["'id'", "primary key", "row 1", "NULL"]),
        ({"must": pa.array([None, 7], pa.int32())}, ["'must'", "NOT NULL", "row 0"]),
        ({"total": pa.array([1, 2**40], pa.int64())}, ["'total'", "INT", str(2**40)]),
        ({"total": [1.0, 2.5]}, ["'total'", "INT", "double", "2.5"]),
        ({"total": ["1", "2"]}, ["'total'", "INT", "string"]),
        ({"status": [1, 2]}, ["'status'", "STRING", "int64"]),
        ({"status": [b"a", b"b"]}, ["'status'", "binary"]),
        ({"price": pa.array([Decimal("1.005")] * 2)}, ["'price'", "DECIMAL(6, 2)"]),
        ({"price": pa.array([Decimal("99999.00")] * 2)}, ["'price'", "precision 6"]),
        ({"price": [1.5, 2.5]}, ["'price'", "double"]),
        ({"place": [{"way": "a"}] * 2}, ["'place'", "ROW<street STRING, number INT>", "struct<way: string>"]),
        ({"place": [{"street": "a", "number": "one"}] * 2}, ["'place'", "number: string"]),
        ({"place": [1, 2]}, ["'place'", "int64"]),
        ({"tags": [[1], [2]]}, ["'tags'", "ARRAY<STRING>", "int64"]),
        ({"at": pa.array([1, 2], pa.timestamp("us"))}, ["'at'", "TIMESTAMP(3)", "lose"]),
        ({"at": pa.array([1, 2], pa.timestamp("ms", "UTC"))}, ["'at'", "UTC"]),
        ({"_ROW_KIND": ["+I", "+X"]}, ["'_ROW_KIND'", "'+X'", "row 1", "+I, -U, +U, -D"]),
        ({"_ROW_KIND": ["+i", "+I"]}, ["'+i'", "row 0"]),
        ({"_ROW_KIND": [0, 4]}, ["holds 4", "row 1"]),
        ({"_ROW_KIND": [-1, 0]}, ["holds -1", "row 0"]),
        ({"_ROW_KIND": pa.array([0, 2**63], pa.uint64())}, [f"holds {2**63}"]),
        ({"_ROW_KIND": pa.array(["+I", None])}, ["None", "row 1"]),
        ({"_ROW_KIND": [0.0, 1.0]}, ["'_ROW_KIND'", "double"]),
    ],
)
def test_wrong_rows(table: Table, changed: dict[str, Any], parts: list[str]) -> None:
    with table.writer("other") as writer:
        message = refused(lambda: writer.write(good(**changed)), *parts)
        assert table.location in message
        refused(lambda: writer.write(good(**changed).to_batches()[0]), *parts)


def test_rows_that_are_no_arrow_data(table: Table) -> None:
    with table.writer("other") as writer:
        for rows in (None, "rows", b"rows", 7, object()):
            refused(lambda rows=rows: writer.write(rows), "pyarrow Table", "a list of dicts", type(rows).__name__)
        twice = pa.Table.from_arrays([pa.array([1])] * 2, names=["id", "id"])
        refused(lambda: writer.write(twice), "twice", "id, id")


def test_a_writer_goes_on_after_refused_rows(catalog: Catalog) -> None:
    made = catalog.create_table("shop.orders", schema=COLUMNS, primary_keys=["id"], options={"bucket": 2})
    with made.writer("loader") as writer:
        writer.write(good())
        refused(lambda: writer.write(good(must=pa.array([None, 1], pa.int32()))), "'must'")
        writer.commit(0)
    assert [row["id"] for row in rows_of(made)] == [1, 2]


def test_append_tables_take_no_deletes(catalog: Catalog) -> None:
    made = catalog.create_table("shop.log", schema={"id": "BIGINT"}, options={"bucket": -1})
    with made.writer("loader") as writer, unchanged(catalog.warehouse):
        for kind in ("-D", "-U"):
            rows = pa.table({"id": [1, 2], "_ROW_KIND": ["+I", kind]})
            refused(lambda rows=rows: writer.write(rows), kind, "no primary key", "leave those rows out")


def test_nested_nulls_are_found(catalog: Catalog) -> None:
    made = catalog.create_table(
        "shop.nested",
        schema={"id": "BIGINT", "a": "ARRAY<INT NOT NULL>", "r": "ROW<x INT NOT NULL>"},
        options={"bucket": -1},
    )
    fits = {
        "id": [1],
        "a": pa.array([[1]], pa.list_(pa.int32())),
        "r": pa.array([{"x": 1}], pa.struct({"x": pa.int32()})),
    }
    with made.writer("loader") as writer, unchanged(catalog.warehouse):
        for wrong in (
            {"a": pa.array([[None]], pa.list_(pa.int32()))},
            {"r": pa.array([{"x": None}], pa.struct({"x": pa.int32()}))},
        ):
            rows = pa.table({**fits, **wrong})
            refused(lambda rows=rows: writer.write(rows), repr(next(iter(wrong))), "NOT NULL")


@pytest.mark.parametrize("is_key", [True, False])
def test_text_that_is_no_utf8(catalog: Catalog, is_key: bool) -> None:
    made = catalog.create_table(
        "shop.texts",
        schema={"id": "BIGINT", "t": "STRING"},
        primary_keys=["t" if is_key else "id"],
        options={"bucket": 1},
    )
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    with made.writer("loader") as writer:
        refused(lambda: writer.write(pa.table({"id": [1], "t": wrong})), "'t'", "UTF-8", "BYTES")
        assert not [name for name in contents(made.location) if name.endswith(".parquet")]
        writer.write(pa.table({"id": [1], "t": ["right"]}))
        writer.commit(0)
    assert made.scan().to_arrow()["t"].to_pylist() == ["right"]


# -------------------------------------------------------------------------------------------------------- commits


@pytest.mark.parametrize("identifier", [-1, 2**63 - 1, 2**63, "7", 1.5, b"1"])
def test_wrong_identifiers_leave_no_file(table: Table, identifier: Any) -> None:
    with table.writer("other") as writer:
        writer.write(good())
        refused(lambda: writer.commit(identifier), "commit identifier", repr(identifier))
        writer.abort()


def test_identifiers_of_numpy(catalog: Catalog) -> None:
    made = catalog.create_table("shop.log", schema={"id": "BIGINT"}, options={"bucket": -1})
    with made.writer("loader") as writer:
        writer.write(pa.table({"id": [1]}))
        assert writer.commit(np.int64(5)).snapshots[0].commit_identifier == 5  # type: ignore[arg-type]
    assert [snapshot.commit_identifier for snapshot in catalog.table("shop.log").snapshots()] == [5]


@pytest.mark.parametrize("user", ["", "  ", None, 5, "a\nb", "\ud800"])
def test_wrong_commit_users(table: Table, user: Any) -> None:
    refused(lambda: table.writer(user), "commit user")


def test_the_number_of_buckets_stays_once_there_are_rows(catalog: Catalog) -> None:
    made = catalog.create_table("shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 2})
    assert made.alter(SetOption("bucket", "3")).schema.options["bucket"] == "3"
    made = made.alter(SetOption("bucket", "2"))
    with made.writer("old") as old:
        old.write(pa.table({"id": [1, 2, 3]}))
        old.commit(0)
    with unchanged(catalog.warehouse):
        refused(lambda: made.alter(SetOption("bucket", "4")), "'bucket'", "from '2' to '4'", "copy the rows")


def test_two_first_writers_of_different_bucket_counts(catalog: Catalog) -> None:
    """Neither could see the other's files when it began; the commit refuses."""
    two = catalog.create_table("shop.orders", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 2})
    four = two.alter(SetOption("bucket", "4"))
    with two.writer("a") as first, four.writer("b") as second:
        first.write(pa.table({"id": [1, 2, 3]}))
        second.write(pa.table({"id": [4]}))
        first.commit(0)
        with pytest.raises(ConflictError, match=r"bucket.*nothing was committed"):
            second.commit(0)
        second.abort()
    assert sorted(four.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


# --------------------------------------------------------------------------------------------------------- scans


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"columns": ["nope"]}, ["'nope'", "id, status"]),
        ({"columns": "id"}, ["columns is a list", "'id'"]),
        ({"columns": 5}, ["columns is a list"]),
        ({"columns": []}, ["at least one column"]),
        ({"columns": ["id", "id"]}, ["twice"]),
        ({"columns": ["_KEY_id"]}, ["_KEY_id"]),
        ({"filter": "id > "}, ["id >", "line 1"]),
        ({"filter": "length(status) > 1"}, ["LENGTH(status)", "IN BETWEEN"]),
        ({"filter": b"id > 1"}, ["id > 1", "SQL text"]),
        ({"filter": []}, ["cannot read the filter"]),
        ({"filter": [[]]}, ["cannot read the filter"]),
        ({"filter": col("id")}, ["cannot read the filter"]),
        ({"filter": col("nope") == 1}, ["'nope'", "id, status"]),
        ({"filter": col("id") == "x"}, ["'id'", "'x'"]),
        ({"filter": col("status") == 5}, ["'status'", "5"]),
        ({"filter": col("at") == "notadate"}, ["'at'", "'notadate'"]),
        ({"filter": col("place") == 1}, ["'place'"]),
        ({"filter": col("total").is_in(["a"])}, ["'total'", "'a'"]),
        ({"filter": col("total").starts_with("a")}, ["'total'", "starts_with"]),
        ({"filter": [("id", "~", 1)]}, ["'id'", "'~'"]),
        ({"filter": [("id", "==")]}, ["('id', '==')"]),
        ({"filter": [("id", "in", 5)]}, ["'id'", "is_in"]),
        ({"limit": -1}, ["limit", "-1"]),
        ({"limit": "3"}, ["limit", "'3'"]),
        ({"limit": 1.5}, ["limit", "1.5"]),
        ({"snapshot_id": "1"}, ["snapshot_id", "'1'"]),
        ({"snapshot_id": 1.0}, ["snapshot_id", "1.0"]),
        ({"timestamp_ms": "2026-01-01"}, ["timestamp_ms", "2026-01-01"]),
        ({"timestamp_ms": datetime(2026, 1, 1)}, ["timestamp_ms", "datetime"]),
        ({"tag": 5}, ["tag", "5"]),
        ({"tag": "../snapshot/snapshot-1"}, ["no name of a tag"]),
        ({"tag": "a\0"}, ["no name of a tag"]),
        ({"snapshot_id": 1, "tag": "t"}, ["snapshot_id and tag exclude each other"]),
        ({"snapshot_id": 1, "timestamp_ms": 1}, ["snapshot_id and timestamp_ms exclude"]),
        ({"tag": "t", "timestamp_ms": 1}, ["tag and timestamp_ms exclude"]),
    ],
)
def test_wrong_scans(table: Table, arguments: dict[str, Any], parts: list[str]) -> None:
    refused(lambda: table.scan(**arguments), *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"snapshot_id": 99}, ["snapshot 99", "1 to 2"]),
        ({"snapshot_id": 0}, ["snapshot 0"]),
        ({"snapshot_id": -1}, ["snapshot -1"]),
        ({"tag": "nope"}, ["'nope'", "none"]),
        ({"timestamp_ms": 0}, ["1970-01-01", "earliest"]),
    ],
)
def test_snapshots_that_are_not_there(table: Table, arguments: dict[str, Any], parts: list[str]) -> None:
    refused(lambda: table.scan(**arguments), *parts, kind=NotFoundError)
    if "snapshot_id" in arguments:
        refused(lambda: table.files(**arguments), *parts, kind=NotFoundError)
        refused(lambda: table.files(snapshot_id="1"), "snapshot_id", "'1'")  # type: ignore[arg-type]


def test_filters_joined_by_words(table: Table) -> None:
    refused(lambda: (col("id") > 1) and (col("id") < 5), "& | ~")
    refused(lambda: (col("id") > 1) & True, "parentheses")
    refused(lambda: col("id") == None, "is_null()")  # noqa: E711
    refused(lambda: col(5), "name of a column")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- changes and upkeep


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (None, ["not a change of a table", "AddColumn"]),
        ("drop total", ["not a change of a table"]),
        (DropColumn("nope"), ["'nope'", "id, status"]),
        (DropColumn("id"), ["'id'", "primary key"]),
        (RenameColumn("total", ""), ["blank"]),
        (RenameColumn("total", "status"), ["'status'"]),
        (RenameColumn("total", "_SEQUENCE_NUMBER"), ["_SEQUENCE_NUMBER", "rename"]),
        (AddColumn("note", "NOPE"), ["'note'", "NOPE"]),
        (AddColumn("note", 5), ["'note'", "5"]),  # type: ignore[arg-type]
        (AddColumn("note", "INT NOT NULL"), ["'note'", "NOT NULL"]),
        (AddColumn("note", "INT", first=True, after="id"), ["'note'", "not both"]),
        (AddColumn("note", "INT", after="nope"), ["'nope'"]),
        (AddColumn("note", "ROW<a INT, a INT>"), ["note", "twice"]),
        (AddColumn("status", "INT"), ["'status'"]),
        (ChangeType("total", "STRANGE"), ["'total'", "STRANGE"]),
        (ChangeType("place", "INT"), ["'place'", "INT"]),
        (ChangeType("id", "STRING"), ["'id'", "primary key"]),
        (SetNullable("id", True), ["'id'", "primary key"]),
        (SetNullable("total", False), ["'total'", "existing rows"]),
        (MoveColumn("nope", first=True), ["'nope'"]),
        (SetOption("bukcet", "4"), ["did you mean bucket?"]),
        (SetOption("bucket", "0"), ["'bucket'", "to '0'", "copy the rows"]),
        (SetOption("bucket", "many"), ["'bucket'", "to 'many'"]),
        (SetOption("bucket", "-1"), ["'bucket'", "to '-1'"]),
        (ChangeType("total", "SMALLINT"), ["'total'", "from INT to SMALLINT", "wrap", "allow_lossy=True"]),
        (ChangeType("status", "VARCHAR"), ["'status'", "STRING, or VARCHAR(n)"]),
        (RenameColumn("total", "Status"), ["status and Status", "upper and lower case"]),
        (AddColumn("ID", "INT"), ["id and ID"]),
        (AddColumn("note", "ROW<a INT, A INT>"), ["note.a and note.A"]),
        (SetOption("merge-engine", "aggregation"), ["merge-engine"]),
        (SetOption("primary-key", "total"), ["primary-key"]),
        (SetOption("path", "/elsewhere"), ["path"]),
        (SetOption("scan.snapshot-id", "1"), ["scan.snapshot-id"]),
        (SetOption("sequence.field", "nope"), ["sequence.field", "nope"]),
        (SetComment(5), ["comment"]),  # type: ignore[arg-type]
    ],
)
def test_wrong_changes(table: Table, change: Any, parts: list[str]) -> None:
    refused(lambda: table.alter(AddColumn("fine", "INT"), change), *parts)


def test_a_change_that_is_none(table: Table) -> None:
    refused(table.alter, "at least one change")


def test_option_values_are_stored_as_text(catalog: Catalog) -> None:
    made = catalog.create_table("a.b", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": 1})
    changed = made.alter(SetOption("write-only", True), SetOption("num-levels", 4))  # type: ignore[arg-type]
    assert (changed.schema.options["write-only"], changed.schema.options["num-levels"]) == ("true", "4")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"retain_max": 0}, ["at least", "1 or more", "0"]),
        ({"retain_min": 0}, ["1 or more", "0"]),
        ({"retain_max": -3}, ["-3"]),
        ({"retain_min": 5, "retain_max": 2}, ["(2)", "(5)"]),
        ({"retain_max": "2"}, ["'2'"]),
        ({"older_than_ms": -1}, ["-1"]),
        ({"older_than_ms": "1 h"}, ["'1 h'"]),
    ],
)
def test_expiry_with_nonsense(table: Table, arguments: dict[str, Any], parts: list[str]) -> None:
    refused(lambda: table.expire_snapshots(**arguments), *parts)


def test_orphan_cleaning_with_nonsense(table: Table) -> None:
    refused(lambda: table.remove_orphan_files(older_than_ms="1 d"), "'1 d'")  # type: ignore[arg-type]


def test_contents_see_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = contents(tmp_path)
    (tmp_path / "a" / "b").write_bytes(b"x")
    assert contents(tmp_path) != before
    with pytest.raises(AssertionError, match="a/b"), unchanged(tmp_path):
        (tmp_path / "a" / "b").write_bytes(b"y")


@pytest.mark.parametrize(
    "name", ["rowkind", "ROWKIND", "_row_kind", "_Row_Kind", "_SNAPSHOT_ID", "_snapshot_id", "_KEY_a"]
)
def test_columns_with_the_names_of_those_that_changes_have(name: str, tmp_path: Path) -> None:
    """In Spark, which knows no case, the columns of a stream were ambiguous."""
    catalog = Catalog(tmp_path)
    with pytest.raises(InvalidRequestError, match=f"column name {name} is kept for system columns"):
        catalog.create_table("db.t", schema={"id": "BIGINT", name: "STRING"})
    table = catalog.create_table("db.t", schema={"id": "BIGINT", "kind": "STRING"})
    for change in (AddColumn(name, "STRING"), RenameColumn("kind", name)):
        with pytest.raises(InvalidRequestError, match=f"column name {name} is kept for system columns"):
            table.alter(change)
