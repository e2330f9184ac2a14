"""Statements against the verbs: what is said in SQL leaves a catalog as the methods of Catalog and Table leave it."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet
from freshet import (
    AddColumn,
    Catalog,
    ChangeType,
    DropColumn,
    MoveColumn,
    NotFoundError,
    RenameColumn,
    ResetOption,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
    SqlResult,
    Table,
    expr,
)
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError
from tests.kit.quick import some_now

ROWS = [
    {"id": 1, "dt": "a", "total": Decimal("1.00"), "city": "Ulm"},
    {"id": 2, "dt": "a", "total": Decimal("2.00"), "city": None},
    {"id": 3, "dt": "b", "total": None, "city": "Rom"},
    {"id": 4, "dt": "c", "total": Decimal("4.00"), "city": "Köln"},
]
CREATE = """
    CREATE TABLE shop.orders (id BIGINT, dt STRING, total DECIMAL(10, 2) COMMENT 'in €', city STRING)
    PARTITIONED BY (dt) COMMENT 'orders' TBLPROPERTIES ('primary-key' = 'id,dt', 'bucket' = '2')
"""


def in_python(folder: Path) -> Table:
    """The table that `CREATE` makes, with the rows."""
    schema = {"id": "BIGINT", "dt": "STRING", "total": "DECIMAL(10, 2)", "city": "STRING"}
    table = Catalog(folder).create_table(
        "shop.orders",
        schema=schema,
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "2"},
        comment="orders",
    )
    table.append(ROWS)
    return table


def in_sql(folder: Path) -> Catalog:
    catalog = Catalog(folder)
    freshet.sql(CREATE, catalog)
    freshet.sql(
        "INSERT INTO shop.orders VALUES (1, 'a', 1, 'Ulm'), (2, 'a', 2, NULL), (3, 'b', NULL, 'Rom'), "
        "(4, 'c', 4, 'Köln')",
        folder,
    )
    return catalog


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both tables, of which each test has copies."""
    folder = tmp_path_factory.mktemp("made")
    in_python(folder / "python")
    in_sql(folder / "sql")
    return folder


def rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=repr)


STATEMENTS: list[tuple[str, Callable[[Table], Any]]] = [
    ("DELETE FROM orders WHERE id = 1", lambda table: table.delete("id = 1")),
    (
        "DELETE FROM shop.orders AS o WHERE o.total >= 2 OR o.city IS NULL",
        lambda t: t.delete("total >= 2 OR city IS NULL"),
    ),
    ("delete from Shop.Orders where ID = 1".replace("Shop.Orders", "shop.orders"), lambda t: t.delete("id = 1")),
    (
        "UPDATE orders SET city = 'Bonn', total = total * 1.5 WHERE id = 1",
        lambda t: t.update({"city": "Bonn", "total": expr("total * 1.5")}, "id = 1"),
    ),
    (
        "UPDATE orders o SET o.CITY = upper(o.city) WHERE TRUE",
        lambda t: t.update({"city": expr("upper(city)")}, "id > 0"),
    ),
    ("UPDATE orders SET city = NULL WHERE dt IN ('a', 'b')", lambda t: t.update({"city": None}, "dt IN ('a', 'b')")),
    ("UPDATE orders SET total = 7 WHERE id = 3", lambda t: t.update({"total": 7}, "id = 3")),
    (
        "INSERT INTO orders (dt, id) VALUES ('z', 9)",
        lambda t: t.append([{"id": 9, "dt": "z", "total": None, "city": None}]),
    ),
    (
        "INSERT INTO orders SELECT id + 10, dt, total + 0.005, city FROM orders WHERE dt = 'a'",
        lambda t: t.append(
            [{**row, "id": row["id"] + 10, "total": row["total"] + Decimal("0.01")} for row in ROWS[:2]]
        ),
    ),
    (
        "INSERT INTO orders BY NAME SELECT 'x' AS city, 'z' AS dt, 9 AS id",
        lambda t: t.append([{"id": 9, "dt": "z", "total": None, "city": "x"}]),
    ),
    (
        "INSERT INTO orders PARTITION (dt = 'a') VALUES (9, 1, 'x')",
        lambda t: t.append([{"id": 9, "dt": "a", "total": 1, "city": "x"}]),
    ),
    (
        "WITH w AS (SELECT 9 AS id) INSERT INTO orders (id, dt) SELECT id, 'w' FROM w",
        lambda t: t.append([{"id": 9, "dt": "w", "total": None, "city": None}]),
    ),
    (
        "INSERT OVERWRITE orders VALUES (9, 'a', 1, 'x')",
        lambda t: t.overwrite([{"id": 9, "dt": "a", "total": 1, "city": "x"}]),
    ),
    (
        "INSERT OVERWRITE TABLE orders PARTITION (dt = 'b') SELECT 9, 1, 'x'",
        lambda t: t.overwrite([{"id": 9, "dt": "b", "total": 1, "city": "x"}], partition={"dt": "b"}),
    ),
    (
        "INSERT OVERWRITE orders PARTITION (dt) SELECT id, dt, total, 'new' FROM orders WHERE id = 4",
        lambda t: t.overwrite([{**ROWS[3], "city": "new"}]),
    ),
    (
        "INSERT OVERWRITE orders PARTITION (dt = 'a') SELECT id, total, city FROM orders WHERE FALSE",
        lambda t: t.drop_partition({"dt": "a"}),
    ),
    ("TRUNCATE TABLE orders", lambda t: t.truncate()),
    ("TRUNCATE TABLE orders PARTITION (dt = 'a')", lambda t: t.drop_partition({"dt": "a"})),
    (
        "ALTER TABLE orders DROP PARTITION (dt = 'a'), PARTITION (DT = 'c')",
        lambda t: t.drop_partition({"dt": "a"}, {"dt": "c"}),
    ),
    ("ALTER TABLE orders DROP IF EXISTS PARTITION (dt = 'nobody')", lambda t: t.drop_partition({"dt": "nobody"})),
    ("ALTER TABLE orders ADD COLUMN note STRING", lambda t: t.alter(AddColumn("note", "STRING"))),
    (
        "ALTER TABLE orders ADD COLUMNS (n INT COMMENT 'x' FIRST, m MAP<STRING, ARRAY<INT>> AFTER ID)",
        lambda t: t.alter(
            AddColumn("n", "INT", "x", first=True), AddColumn("m", "MAP<STRING, ARRAY<INT>>", after="id")
        ),
    ),
    ("ALTER TABLE orders RENAME COLUMN city TO town", lambda t: t.alter(RenameColumn("city", "town"))),
    ("ALTER TABLE orders DROP COLUMN city", lambda t: t.alter(DropColumn("city"))),
    ("ALTER TABLE orders DROP COLUMNS (city, total)", lambda t: t.alter(DropColumn("city"), DropColumn("total"))),
    (
        "ALTER TABLE orders ALTER COLUMN total TYPE DECIMAL(12, 2)",
        lambda t: t.alter(ChangeType("total", "DECIMAL(12, 2)")),
    ),
    ("ALTER TABLE orders ALTER COLUMN total COMMENT 'euros'", lambda t: t.alter(SetColumnComment("total", "euros"))),
    (
        "ALTER TABLE orders CHANGE COLUMN total amount DECIMAL(12, 2) COMMENT 'euros' FIRST",
        lambda t: t.alter(
            RenameColumn("total", "amount"),
            ChangeType("amount", "DECIMAL(12, 2)"),
            SetColumnComment("amount", "euros"),
            MoveColumn("amount", first=True),
        ),
    ),
    ("ALTER TABLE orders ALTER COLUMN City DROP NOT NULL", lambda t: t.alter(SetNullable("city", True))),
    ("ALTER TABLE orders ALTER COLUMN City SET DEFAULT 'none'", lambda t: t.alter(SetDefault("city", "none"))),
    ("ALTER TABLE orders ALTER COLUMN total SET DEFAULT -1.5", lambda t: t.alter(SetDefault("total", "-1.5"))),
    ("ALTER TABLE orders ALTER COLUMN city DROP DEFAULT", lambda t: t.alter(SetDefault("city", None))),
    ("ALTER TABLE orders ALTER COLUMN city FIRST", lambda t: t.alter(MoveColumn("city", first=True))),
    ("ALTER TABLE orders ALTER city AFTER id", lambda t: t.alter(MoveColumn("city", after="id"))),
    (
        "ALTER TABLE orders SET TBLPROPERTIES ('snapshot.num-retained.max' = '50', 'comment' = 'new')",
        lambda t: t.alter(SetOption("snapshot.num-retained.max", "50"), SetComment("new")),
    ),
    (
        "ALTER TABLE orders UNSET TBLPROPERTIES IF EXISTS ('write-only', 'comment')",
        lambda t: t.alter(ResetOption("write-only"), SetComment(None)),
    ),
    ("COMMENT ON TABLE orders IS 'it''s'", lambda t: t.alter(SetComment("it's"))),
    ("CALL sys.compact(table => 'shop.orders')", lambda t: t.compact()),
    ("CALL sys.compact('orders', 'dt=a;dt=b', 'minor')", lambda t: t.compact(full=False, partition={"dt": "a"})),
    ("CALL sys.rollback(table => 'shop.orders', version => '1')", lambda t: t.rollback(1)),
    ("CALL sys.expire_snapshots(table => 'orders', retain_max => 1)", lambda t: t.expire_snapshots(retain_max=1)),
    (
        "CALL sys.create_tag('orders', 't', 1, '1 d')",
        lambda t: t.tags.create("t", 1, retained=datetime.timedelta(days=1)),
    ),
    ("CALL sys.create_branch(branch => 'b', table => 'orders')", lambda t: t.branches.create("b")),
    ("CALL sys.reset_consumer('orders', 'me', 1)", lambda t: t.reset_consumer("me", 1)),
    ("CALL sys.rescale(table => 'orders', bucket_num => 3)", lambda t: t.rescale(3)),
]


@pytest.mark.parametrize(("statement", "verb"), some_now(STATEMENTS, 3), ids=[text[:60] for text, _ in STATEMENTS])
def test_a_statement_does_what_its_verb_does(
    tmp_path: Path, made: Path, statement: str, verb: Callable[[Table], Any]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    verb(Catalog(tmp_path / "python").table("shop.orders"))
    expected = Catalog(tmp_path / "python").table("shop.orders")
    catalog = Catalog(tmp_path / "sql")
    result = freshet.sql(statement, catalog, database="shop")
    found = catalog.table("shop.orders")
    assert rows(found) == rows(expected)
    assert found.schema.fields == _with_comment(expected)
    assert (found.schema.primary_keys, found.schema.options) == (expected.schema.primary_keys, expected.schema.options)
    assert found.schema.comment == expected.schema.comment
    assert len(found.snapshots()) == len(expected.snapshots())
    assert [each.name for each in found.tags.list()] == [each.name for each in expected.tags.list()]
    assert found.branches.list() == expected.branches.list() and found.consumers() == expected.consumers()
    assert repr(result).startswith("SqlResult(")


def _with_comment(expected: Table) -> tuple[Any, ...]:
    """The fields of the oracle with the comment that only SQL can give a column of a new table."""
    table = expected
    names = table.schema.by_name
    if "total" in names and names["total"].description is None:
        table = table.alter(SetColumnComment("total", "in €"))
    elif "amount" not in names and "total" in names:
        return table.schema.fields
    return table.schema.fields


def test_a_table_is_created_as_it_is_said(tmp_path: Path) -> None:
    made = in_sql(tmp_path / "sql").table("shop.orders").schema
    expected = in_python(tmp_path / "python").schema
    assert made.by_name["total"].description == "in €" and made.comment == "orders"
    assert [(f.name, f.type) for f in made.fields] == [(f.name, f.type) for f in expected.fields]
    assert (made.primary_keys, made.partition_keys) == (expected.primary_keys, expected.partition_keys)
    assert made.options == expected.options


def test_every_type(tmp_path: Path) -> None:
    types = {
        "a": ("BOOLEAN", "BOOLEAN"), "b": ("BYTE", "TINYINT"), "c": ("SHORT", "SMALLINT"), "d": ("INTEGER", "INT"),
        "e": ("LONG", "BIGINT"), "f": ("REAL", "FLOAT"), "g": ("DOUBLE", "DOUBLE"), "h": ("DECIMAL", "DECIMAL(10, 0)"),
        "i": ("DATE", "DATE"), "j": ("TIMESTAMP", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        "k": ("TIMESTAMP_NTZ", "TIMESTAMP(6)"), "l": ("STRING", "STRING"), "m": ("CHAR(3)", "CHAR(3)"),
        "n": ("VARCHAR(7)", "VARCHAR(7)"), "o": ("BINARY", "BYTES"), "p": ("TIME(3)", "TIME(3)"),
        "q": ("TIMESTAMP_NTZ(3)", "TIMESTAMP(3)"), "r": ("ARRAY<STRING>", "ARRAY<STRING>"),
        "s": ("STRUCT<x: INT NOT NULL, `y z`: MAP<STRING, TIMESTAMP>>",
              "ROW<x INT NOT NULL, y z MAP<STRING, TIMESTAMP(6) WITH LOCAL TIME ZONE>>"),
    }  # fmt: skip
    columns = ", ".join(f"{name} {written}" for name, (written, _) in types.items())
    catalog = Catalog(tmp_path)
    freshet.sql(f"CREATE TABLE db.t ({columns})", catalog)
    table = catalog.table("db.t")
    assert {field.name: str(field.type) for field in table.schema.fields} == {k: v for k, (_, v) in types.items()}
    said = freshet.sql("SHOW CREATE TABLE db.t", catalog).to_arrow().column(0)[0].as_py()
    freshet.sql(said.replace("`db`.`t`", "db.again"), catalog)
    assert catalog.table("db.again").schema.fields == table.schema.fields


def test_databases_and_names(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)

    def run(text: str) -> SqlResult:
        return freshet.sql(text, catalog, database="in`db")

    assert run("CREATE DATABASE IF NOT EXISTS `in``db`").message
    with pytest.raises(AlreadyExistsError):
        run("CREATE SCHEMA `in``db`")
    odd = """ä'"; DROP TABLE x; --"""
    quoted = f"`{odd}`"
    run(f"CREATE TABLE {quoted} ({quoted} INT, `from` STRING, `a.b` INT, PRIMARY KEY ({quoted}))")
    run(f"INSERT INTO {quoted} VALUES (1, 'it\\'s', 2), (2, '\"', NULL)")
    run(f"UPDATE {quoted} SET `from` = concat(`from`, '`'), `a.b` = {quoted} WHERE {quoted} = 2")
    found = run(f"SELECT {quoted}, x.`from`, `a.b` FROM {quoted} x WHERE x.`from` <> '' ORDER BY 1").to_arrow()
    assert found.to_pylist() == [{odd: 1, "from": "it's", "a.b": 2}, {odd: 2, "from": '"`', "a.b": 2}]
    run(
        f"MERGE INTO {quoted} t USING (SELECT 1 AS {quoted}, 5 AS n) s ON t.{quoted} = s.{quoted} "
        "WHEN MATCHED THEN UPDATE SET `a.b` = s.n"
    )
    run(f"DELETE FROM {quoted} WHERE {quoted} = 2")
    assert run(f"SELECT `a.b` FROM `in``db`.{quoted}").to_arrow().to_pylist() == [{"a.b": 5}]
    assert run("SHOW TABLES").to_arrow()["tableName"].to_pylist() == [odd]
    assert run("SHOW DATABASES LIKE 'IN*|x'").to_arrow().to_pylist() == [{"namespace": "in`db"}]
    run(f"ALTER TABLE {quoted} RENAME TO plain")
    run("CREATE TABLE IF NOT EXISTS plain (x INT)")
    assert run("SHOW COLUMNS IN plain").to_arrow()["col_name"].to_pylist() == [odd, "from", "a.b"]
    with pytest.raises(InvalidRequestError, match="holds tables"):
        run("DROP DATABASE `in``db`")
    run("DROP TABLE plain")
    run("DROP TABLE IF EXISTS plain")
    with pytest.raises(NotFoundError):
        run("DROP TABLE plain")
    run("DROP DATABASE `in``db` CASCADE")
    run("DROP DATABASE IF EXISTS `in``db`")
    assert catalog.list_databases() == []


def test_create_from_a_query_and_like_another_table(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)
    made = freshet.sql(
        "CREATE TABLE shop.big PARTITIONED BY (DT) TBLPROPERTIES ('primary-key' = 'ID,dt', 'bucket' = '1') AS "
        "SELECT id, dt, sum(total) OVER () AS total, count(*) OVER () AS n FROM shop.orders VERSION AS OF 1 "
        "WHERE id < 3",
        catalog,
    )
    table = catalog.table("shop.big")
    assert made.edit is not None and made.edit.snapshots
    assert (table.schema.primary_keys, table.schema.partition_keys) == (("id", "dt"), ("dt",))
    expected = [{"id": n, "dt": "a", "total": Decimal("3.00"), "n": 2} for n in (1, 2)]
    assert rows(table) == expected
    freshet.sql("CREATE TABLE shop.like_it LIKE shop.orders", catalog)
    assert catalog.table("shop.like_it").schema.fields == catalog.table("shop.orders").schema.fields
    assert catalog.table("shop.like_it").schema.comment == "orders"
    with pytest.raises(InvalidRequestError, match="Could not convert"):
        freshet.sql("CREATE TABLE shop.lost AS SELECT CAST(city AS INT) AS n FROM shop.orders", catalog)
    assert not catalog.has_table("shop.lost")
    assert freshet.sql("CREATE TABLE IF NOT EXISTS shop.big AS SELECT 1 AS x", catalog).edit is None
    with pytest.raises(InvalidRequestError, match="'ID': the query has two columns of this name"):
        freshet.sql("CREATE TABLE shop.twice AS SELECT id, id + 1 AS ID FROM shop.orders", catalog)
    assert not catalog.has_table("shop.twice")


def test_merge_with_many_clauses(tmp_path: Path) -> None:
    expected = in_python(tmp_path / "python")
    source = [
        {"key": 1, "dt": "a", "total": Decimal("5.00"), "gone": False},
        {"key": 2, "dt": "a", "total": None, "gone": True},
        {"key": 9, "dt": "z", "total": Decimal("9.00"), "gone": False},
        {"key": 8, "dt": "z", "total": Decimal("-1.00"), "gone": False},
    ]
    merge = expected.merge([{"id": row["key"], **row} for row in source], on=["id", "dt"])
    merge = merge.when_matched_delete("source.gone").when_matched_update({"total": expr("target.total + source.total")})
    merge = merge.when_not_matched_insert(
        {"id": expr("source.key"), "dt": expr("source.dt"), "total": expr("source.total"), "city": "new"},
        "source.total > 0",
    )
    merge = merge.when_not_matched_by_source_update({"city": expr("lower(target.city)")}, "target.dt = 'b'")
    merge = merge.when_not_matched_by_source_delete()
    merge.execute()
    catalog = in_sql(tmp_path / "sql")
    freshet.sql("CREATE TABLE shop.changes (key BIGINT, dt STRING, total DECIMAL(10, 2), gone BOOLEAN)", catalog)
    catalog.table("shop.changes").append(source)
    result = freshet.sql(
        "MERGE INTO shop.orders AS o USING shop.changes ON o.id = key AND (changes.dt = o.dt) "
        "WHEN MATCHED AND gone THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET o.total = o.total + changes.total "
        "WHEN NOT MATCHED BY TARGET AND changes.total > 0 THEN INSERT (id, dt, total, city) "
        "VALUES (key, changes.dt, changes.total, 'new') "
        "WHEN NOT MATCHED BY SOURCE AND o.dt = 'b' THEN UPDATE SET city = lower(o.city) "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        catalog,
    )
    assert result.edit is not None and (result.edit.rows_deleted, result.edit.rows_inserted) == (2, 1)
    assert rows(catalog.table("shop.orders")) == rows(expected)


def test_a_merge_with_itself_takes_any_condition(tmp_path: Path, made: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    latest = "SELECT max(id) FROM shop.orders GROUP BY dt"
    source = f"(SELECT id, dt FROM shop.orders WHERE length(city) = 3 AND id IN ({latest}))"
    freshet.sql(
        f"MERGE INTO shop.orders t USING {source} s ON t.id = s.id AND t.dt = s.dt WHEN MATCHED THEN DELETE",
        tmp_path / "sql",
    )
    assert rows(Catalog(tmp_path / "sql").table("shop.orders")) == [row for row in ROWS if row["id"] != 3]


def test_shows_and_describes(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)

    def column(text: str, name: str) -> list[Any]:
        found: list[Any] = freshet.sql(text, catalog, database="shop").to_arrow()[name].to_pylist()
        return found

    assert column("SHOW PARTITIONS orders", "partition") == ["dt=a", "dt=b", "dt=c"]
    assert column("SHOW PARTITIONS orders PARTITION (dt = 'b')", "partition") == ["dt=b"]
    assert column("SHOW TBLPROPERTIES orders", "key") == ["bucket", "primary-key"]
    assert column("SHOW TBLPROPERTIES orders ('primary-key')", "value") == ["id,dt"]
    assert column("DESC orders", "col_name")[:5] == ["id", "dt", "total", "city", "# Partition Information"]
    assert column("DESCRIBE TABLE EXTENDED shop.orders", "data_type")[0] == "BIGINT NOT NULL"
    assert "id, dt" in column("DESCRIBE FORMATTED orders", "data_type")
    assert "snapshot_id" in column("DESCRIBE orders$snapshots", "col_name")
    assert column("DESCRIBE DATABASE shop", "info_value")[0] == "shop"
    assert column("SHOW COLUMNS IN orders FROM shop", "col_name") == ["id", "dt", "total", "city"]
    catalog.create_table("shop.keyed", schema={"id": "INT", "h": "INT"}, partition_keys=["h"]).append(
        [{"id": 1, "h": 8}, {"id": 2, "h": None}]
    )
    assert column("SHOW PARTITIONS keyed PARTITION (h = '08')", "partition") == ["h=8"]
    freshet.sql("ALTER TABLE shop.keyed DROP PARTITION (h = NULL)", catalog)
    assert rows(catalog.table("shop.keyed")) == [{"id": 1, "h": 8}]


def test_procedures_of_tags_branches_and_history(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)
    table = catalog.table("shop.orders")
    table.delete("id = 1")

    def call(text: str) -> pa.Table:
        return freshet.sql(f"CALL sys.{text}", catalog, database="shop").to_arrow()

    call("create_tag(table => 'orders', tag => 'eom')")
    call("replace_tag(table => 'orders', tag => 'eom', snapshot => 1)")
    call("rename_tag(table => 'orders', tag => 'eom', target_tag => 'may')")
    first, second = table.snapshots()
    made = call(f"create_tag_from_timestamp('orders', 'late', {first.time_ms + 1})").to_pylist()
    assert made[0]["snapshot"] == second.id and made[0]["commit_time"] == second.time_ms
    assert [(tag.name, tag.snapshot_id) for tag in table.tags.list()] == [("may", 1), ("late", 2)]
    call("create_branch('orders', 'b', 'may')")
    call("create_branch('orders', 'b', 'may', 'true')")
    assert freshet.sql("SELECT count(*) AS n FROM shop.orders$branch_b", catalog).to_arrow()["n"].to_pylist() == [4]
    call("delete_branch('orders', 'b')")
    assert call("rollback(table => 'orders', tag => 'may')").to_pylist() == [
        {"previous_snapshot_id": 2, "current_snapshot_id": 3}
    ]
    assert rows(table) == sorted(ROWS, key=repr)
    call(f"rollback_to_timestamp('orders', {second.time_ms})")
    assert len(rows(table)) == 3
    call("delete_tag('orders', 'may,late')")
    assert table.tags.list() == () and table.branches.list() == []
    call("reset_consumer('orders', 'me', 1)")
    call("clear_consumers('orders', 'm.*')")
    assert table.consumers() == {}
    assert call("remove_orphan_files('shop.*', NULL, true)").to_pylist()[0]["deletedFileCount"] == 0
    assert call("compact_database(including_tables => 'shop.o.*')").num_rows == 1
    assert call("expire_snapshots('orders', 1, 1, '2100-01-01 00:00:00')").to_pylist() == [
        {"deleted_snapshots_count": 3}
    ]


def test_tags_by_statements(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)
    table = catalog.table("shop.orders")
    table.delete("id = 1")

    def say(text: str) -> None:
        freshet.sql(f"ALTER TABLE {text}", catalog, database="shop")

    def tags() -> dict[str, tuple[int, datetime.timedelta | None]]:
        return {tag.name: (tag.snapshot_id, tag.retained) for tag in table.tags.list()}

    say("orders CREATE TAG eom AS OF VERSION 1 RETAIN 30 DAYS")
    say("shop.orders create tag if not exists eom")
    say("orders CREATE TAG `2026-11` RETAIN 12 HOURS")
    assert tags() == {"eom": (1, datetime.timedelta(days=30)), "2026-11": (2, datetime.timedelta(hours=12))}
    with pytest.raises(AlreadyExistsError, match="eom"):
        say("orders CREATE TAG eom")
    say("orders REPLACE TAG eom AS OF VERSION 2")
    say("orders CREATE OR REPLACE TAG `2026-11` AS OF VERSION 1 RETAIN 5 MINUTES")
    say("orders CREATE OR REPLACE TAG 'new'")
    say("orders REPLACE TAG newer")
    say("orders DELETE TAG newer")
    assert tags()["2026-11"] == (1, datetime.timedelta(minutes=5))
    say("orders RENAME TAG eom TO month")
    assert freshet.sql("SHOW TAGS shop.orders", catalog).to_arrow().to_pylist() == [
        {"tag": "2026-11"}, {"tag": "month"}, {"tag": "new"}
    ]  # fmt: skip
    say("orders DELETE TAG new")
    say("orders DELETE TAG IF EXISTS new")
    with pytest.raises(NotFoundError, match="new"):
        say("orders DELETE TAG new")
    for text, part in (("orders CREATE TAG x RETAIN 5 YEARS", "YEARS"), ("orders DELETE TAG a, b", "b")):
        with pytest.raises(InvalidRequestError, match=part):
            say(text)
    assert tags() == {"2026-11": (1, datetime.timedelta(minutes=5)), "month": (2, None)}


def test_procedures_that_look_after_a_table(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)
    table = catalog.table("shop.orders")

    def call(text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = freshet.sql(f"CALL sys.{text}", catalog, database="shop").to_arrow().to_pylist()
        return found

    table.delete("id = 1")
    assert call("compact_manifest(table => 'orders', dry_run => true)") == [{"result": True}]
    assert len(table.snapshots()) == 2
    assert call("compact_manifest('orders', 'manifest.target-file-size=1 mb')") == [{"result": True}]
    assert [each.commit_kind for each in table.snapshots()][2:] == ["COMPACT"]
    table.tags.create("a", 1)
    call("create_branch('orders', 'b', 'a')")
    assert call("rename_branch('orders', 'b', 'c')") == [{"result": True}]
    assert table.branches.list() == ["c"]
    assert call("expire_tags(table => 'orders')") == [{"expired_tags": "No expired tags."}]
    assert call("expire_tags('orders', '2020-01-01 00:00:00')") == [{"expired_tags": "No expired tags."}]
    assert call("expire_tags('orders', '2100-01-01 00:00:00')") == [{"expired_tags": "a"}]
    assert call("mark_partition_done('orders', 'dt=a;dt=n')") == [{"result": True}]
    assert sorted(path.parent.name for path in Path(table.location).glob("*/_SUCCESS")) == ["dt=a", "dt=n"]
    assert call("repair('shop.orders')") == [{"result": True}]
    Committer(table.store, "w").commit(0, [], watermark=70)
    Committer(table.store, "w").commit(1, [], watermark=90)
    table.append([{**ROWS[0], "id": 77}])
    marked = [each.id for each in table.snapshots() if each.watermark == 70][-1]
    before = table.latest_snapshot()
    assert before is not None
    answer = call("rollback_to_watermark(table => 'orders', watermark => 80)")
    assert answer == [{"previous_snapshot_id": before.id, "current_snapshot_id": before.id + 1}]
    assert rows(table) == sorted(table.scan(snapshot_id=marked).to_arrow().to_pylist(), key=repr)
    assert call("purge_files('orders')") == [{"result": "Success"}]
    assert rows(table) == [] and table.branches.list() == [] and len(table.snapshots()) == 1


def test_tags_that_are_due_are_made_by_hand(tmp_path: Path) -> None:
    catalog = in_sql(tmp_path)
    table = catalog.table("shop.orders")
    freshet.sql("CALL sys.trigger_tag_automatic_creation('shop.orders')", catalog)
    assert table.tags.list() == ()
    table.alter(SetOption("tag.automatic-creation", "process-time"), SetOption("tag.creation-period", "daily"))
    freshet.sql("CALL sys.trigger_tag_automatic_creation('shop.orders')", catalog)
    freshet.sql("CALL sys.trigger_tag_automatic_creation('shop.orders')", catalog)
    assert [tag.snapshot_id for tag in catalog.table("shop.orders").tags.list()] == [1]


def test_partitions_expire(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    freshet.sql("CREATE TABLE db.t (dt STRING, id INT) PARTITIONED BY (dt)", catalog)
    freshet.sql("INSERT INTO db.t VALUES ('2020-01-01', 1), ('9999-01-01', 2)", catalog)
    expired = freshet.sql(
        "CALL sys.expire_partitions(table => 'db.t', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd')",
        catalog,
    ).to_arrow()
    assert expired.to_pylist() == [{"expired_partitions": "dt=2020-01-01"}]
    assert rows(catalog.table("db.t")) == [{"dt": "9999-01-01", "id": 2}]


def test_show_partitions_with_a_slash_in_a_value(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("s.t", schema={"id": "INT", "p": "STRING", "q": "STRING"}, partition_keys=["p", "q"])
    table.append([{"id": 1, "p": "b/c", "q": "x"}, {"id": 2, "p": "b", "q": "x"}, {"id": 3, "p": "b", "q": "y/z"}])

    def shown(partition: str) -> list[str]:
        result = freshet.sql(f"SHOW PARTITIONS s.t PARTITION ({partition})", catalog)
        return sorted(result.to_arrow()["partition"].to_pylist())

    assert shown("p = 'b/c'") == ["p=b/c/q=x"]
    assert shown("p = 'b'") == ["p=b/q=x", "p=b/q=y/z"]
    assert shown("q = 'y/z'") == ["p=b/q=y/z"]
    assert shown("q = 'y'") == []
