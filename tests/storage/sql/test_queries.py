"""SELECT in DuckDB: the rows that loops over the tables give, and of each table no more than is asked for."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import freshet
from freshet import AddColumn, Catalog, SqlResult
from freshet.storage.exceptions import InvalidRequestError, MissingFileError, RetryableError
from freshet.storage.sql import duckdb_engine
from freshet.storage.sql.session import TableRead

O_ROWS = [{"id": n, "City": None if n % 3 == 0 else f"c{n % 4}", "n": None if n % 5 == 0 else n % 7} for n in range(40)]
C_ROWS = [{"id": n, "name": f"n{n}", "x": math.nan if n == 6 else n / 2} for n in range(0, 60, 3)]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    made = Catalog(tmp_path_factory.mktemp("lake"))
    schema = {"id": "BIGINT", "City": "STRING", "n": "INT"}
    made.create_table("s.o", schema=schema, primary_keys=["id"], options={"bucket": "2"}).append(O_ROWS)
    made.create_table("s.c", schema={"id": "BIGINT", "name": "STRING", "x": "DOUBLE"}).append(C_ROWS)
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[tuple[str, ...], str | None]]:
    """What was read: columns and filter by table, `#2` behind that of the second place of it."""
    seen: dict[str, tuple[tuple[str, ...], str | None]] = {}
    scan_of = duckdb_engine.scan_of

    def spied(read: TableRead) -> Any:
        seen[read.label.removeprefix("freshet_")] = (read.columns, read.filter)
        scan = scan_of(read)
        assert scan.schema == read.schema
        return scan

    monkeypatch.setattr(duckdb_engine, "scan_of", spied)
    return seen


def query(catalog: Catalog, text: str) -> list[dict[str, Any]]:
    return sorted(freshet.sql(text, catalog, database="s").to_arrow().to_pylist(), key=repr)


def oracle(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def where(row: dict[str, Any], column: str, test: Any) -> bool:
    return row[column] is not None and test(row[column])


def test_columns_and_filters_go_to_the_scan(catalog: Catalog, reads: dict[str, Any]) -> None:
    found = query(catalog, "SELECT CITY AS c FROM o WHERE n > 3 AND upper(city) = 'C1' AND (id < 30 OR id = 33)")
    expected = [
        {"c": row["City"]}
        for row in O_ROWS
        if where(row, "n", lambda n: n > 3) and row["City"] == "c1" and (row["id"] < 30 or row["id"] == 33)
    ]
    assert found == oracle(expected) and expected
    assert reads == {"0": (("id", "City", "n"), "n > 3 AND (id < 30 OR id = 33)")}


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT count(*) AS n FROM o", {"0": (("id",), None)}),
        ("SELECT * FROM o WHERE id = 3", {"0": (("id", "City", "n"), "id = 3")}),
        (
            "SELECT a.n FROM o a JOIN c b ON a.id = b.id AND b.x > 2 WHERE a.n = 1",
            {"0": (("id", "n"), "n = 1"), "1": (("id", "x"), "x > 2")},
        ),
        (
            "SELECT o.id FROM o LEFT JOIN c ON o.id = c.id WHERE c.x IS NULL",
            {"0": (("id",), None), "1": (("id", "x"), None)},
        ),
        (
            "SELECT o.id FROM o LEFT JOIN c ON o.id = c.id AND c.x > 1 WHERE c.x < 9 AND o.n IS NULL",
            {"0": (("id", "n"), "n IS NULL"), "1": (("id", "x"), "x < 9")},
        ),
        (
            "SELECT o.id FROM o RIGHT JOIN c USING (id) WHERE o.n IS NULL AND c.name LIKE 'n1%'",
            {"0": (("id", "n"), None), "1": (("id", "name"), "name LIKE 'n1%'")},
        ),
        (
            "SELECT o.id FROM o FULL JOIN c ON o.id = c.id WHERE o.n <=> NULL",
            {"0": (("id", "n"), None), "1": (("id",), None)},
        ),
        (
            "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM c WHERE c.id = o.id AND name = 'n3')",
            {"0": (("id",), None), "1": (("id", "name"), "name = 'n3'")},
        ),
        (
            "SELECT id FROM o WHERE id IN (SELECT id FROM c WHERE x >= 20)",
            {"0": (("id",), None), "1": (("id", "x"), "x >= 20")},
        ),
        (
            "WITH q AS (SELECT id, n FROM o WHERE n > 1) SELECT a.id FROM q a JOIN q b ON a.id = b.id WHERE a.n = 2",
            {"0": (("id", "n"), "n > 1")},
        ),
        (
            "SELECT id FROM o WHERE n > 3 UNION ALL SELECT id FROM c WHERE x = 3",
            {"0": (("id", "n"), "n > 3"), "1": (("id", "x"), "x = 3")},
        ),
        (
            "SELECT o.id FROM (o LEFT JOIN c ON o.id = c.id) WHERE c.x IS NULL AND o.n = 3",
            {"0": (("id", "n"), None), "1": (("id", "x"), None)},
        ),
        (
            "SELECT a.id FROM o a LEFT JOIN (o b LEFT JOIN c ON b.id = c.id) ON a.id = b.id WHERE c.x IS NULL",
            {"0": (("id",), None), "1": (("id",), None), "2": (("id", "x"), None)},
        ),
        (
            "SELECT a.id FROM o a LEFT ANTI JOIN c b ON a.id = b.id WHERE n = 1",
            {"0": (("id", "n"), "n = 1"), "1": (("id",), None)},
        ),
        ("SELECT city FROM o GROUP BY city HAVING count(n) > 3", {"0": (("City", "n"), None)}),
        ("SELECT s.o.id FROM s.o WHERE s.o.n = 3", {"0": (("id", "n"), None)}),
        (
            "SELECT o.*, (SELECT max(x) FROM c WHERE c.id < o.id - 2) AS m FROM o WHERE o.id = 8",
            {"0": (("id", "City", "n"), "id = 8"), "1": (("id", "x"), None)},
        ),
    ],
)
def test_what_is_read_and_that_nothing_is_lost(
    catalog: Catalog, reads: dict[str, Any], monkeypatch: pytest.MonkeyPatch, text: str, read: dict[str, Any]
) -> None:
    found = query(catalog, text)
    reads = {label: (columns, _spark(condition)) for label, (columns, condition) in reads.items()}
    if "s.o.n" not in text:
        assert reads == {label: (columns, _spark(condition)) for label, (columns, condition) in read.items()}
    # The oracle is DuckDB over all rows.
    monkeypatch.setattr(duckdb_engine, "scan_of", lambda read: read.table.scan(read.columns))
    assert found == query(catalog, text)


def _spark(condition: str | None) -> str | None:
    return None if condition is None else condition.replace("NOT n IS NULL", "n IS NOT NULL")


def test_a_join_is_what_loops_give(catalog: Catalog) -> None:
    found = query(
        catalog,
        "SELECT o.id, c.name, c.x FROM o LEFT JOIN c ON o.id = c.id AND c.x <> 3 "
        "WHERE o.n >= 2 AND (c.x > 2 OR c.x IS NULL)",
    )
    expected = []
    for row in O_ROWS:
        if not where(row, "n", lambda n: n >= 2):
            continue
        matches = [other for other in C_ROWS if other["id"] == row["id"] and other["x"] != 3]
        for match in matches or [{"name": None, "x": None}]:
            # NaN is above every number, as in Spark
            if match["x"] is None or math.isnan(match["x"]) or match["x"] > 2:
                expected.append({"id": row["id"], "name": match["name"], "x": match["x"]})
    assert repr(found) == repr(oracle(expected))


def test_time_travel_by_snapshot_tag_and_moment(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("s.t", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"})
    table.append([{"id": 1}])
    table.tags.create("one")
    first = table.latest_snapshot()
    assert first is not None
    table.append([{"id": 2}])
    table.tags.create("2", snapshot_id=1)
    moment = datetime.datetime.fromtimestamp(first.time_ms / 1000, datetime.UTC)
    table = table.alter(AddColumn("n", "INT"))
    table.append([{"id": 3, "n": 3}])

    def ids(behind: str) -> list[int]:
        return [row["id"] for row in query(catalog, f"SELECT * FROM t {behind}")]

    assert ids("") == [1, 2, 3]
    assert ids("VERSION AS OF 1") == ids("VERSION AS OF 'one'") == ids("FOR VERSION AS OF 'one' AS x") == [1]
    assert ids("VERSION AS OF '2'") == [1], "a tag of this name goes before the snapshot"
    assert ids(f"TIMESTAMP AS OF '{moment:%Y-%m-%d %H:%M:%S.%f}'") == [1]
    assert ids(f"TIMESTAMP AS OF TIMESTAMP '{moment:%Y-%m-%dT%H:%M:%S.%f}Z'") == [1]
    assert ids("TIMESTAMP AS OF 4000000000") == [1, 2, 3]
    assert query(catalog, "SELECT a.id FROM t a JOIN t VERSION AS OF 'one' b ON a.id = b.id") == [{"id": 1}]
    assert freshet.sql("SELECT * FROM s.t VERSION AS OF 1", catalog).schema.names == ["id"], "in the columns of then"
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert ids("VERSION AS OF 'one'") == [1]
    with pytest.raises(InvalidRequestError, match="snapshot 99"):
        freshet.sql("SELECT * FROM s.t VERSION AS OF 3 UNION ALL SELECT * FROM s.t VERSION AS OF 99", catalog)


def test_a_result_is_of_the_snapshots_of_its_statement(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("s.t", schema={"id": "INT"})
    table.append([{"id": 1}])
    result = freshet.sql("SELECT a.id FROM s.t a, s.t b", catalog)
    table.append([{"id": 2}])
    assert result.to_arrow().to_pylist() == result.to_arrow().to_pylist() == [{"id": 1}]
    assert [batch.num_rows for batch in result.to_batches()] == [1]
    assert result.to_reader().read_all().num_rows == 1
    assert "id" in repr(result) and result.has_rows
    empty = freshet.sql("SELECT id FROM s.t WHERE FALSE", catalog).to_arrow()
    assert empty.num_rows == 0 and empty.schema == pa.schema([("id", pa.int32())])
    assert catalog.table("s.t").scan().count() == 2


def test_a_table_without_rows_and_system_tables(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("s.t", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"})
    assert query(catalog, "SELECT count(*) AS n, max(id) AS m FROM t") == [{"n": 0, "m": None}]
    table.append([{"id": 1}])
    table.tags.create("x")
    assert query(catalog, "SELECT tag_name FROM t$tags") == [{"tag_name": "x"}]
    joined = "SELECT f.record_count AS n FROM `t$files` f JOIN t$snapshots s ON f.schema_id = s.schema_id"
    assert query(catalog, joined) == [{"n": 1}]
    table.branches.create("b", from_tag="x")
    assert query(catalog, "SELECT * FROM t$branch_b") == query(catalog, "SELECT * FROM s.`t$branch_b` b") == [{"id": 1}]
    assert query(catalog, "SELECT count(*) AS n FROM t$branch_b$snapshots") == [{"n": 1}]


def test_types_go_through_duckdb(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    types = ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 10)", "CHAR(3)",
             "STRING", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
             "ARRAY<STRING>", "MAP<STRING, INT>", "ROW<a INT, b ARRAY<INT>>"]  # fmt: skip
    schema = {f"c{number}": kind for number, kind in enumerate(types)}
    table = catalog.create_table("s.t", schema=schema)
    early = datetime.datetime(1901, 2, 3, 4, 5, 6, 789000)
    values = [True, -1, -2, -3, -4, 0.5, math.inf, Decimal("-1.0000000001"), "abc", "ä\x00\n", b"\x00\xff",
              early.date(), early.time(), early, early, early.replace(tzinfo=datetime.UTC), ["x", None], [("k", 1)],
              {"a": 1, "b": [2]}]  # fmt: skip
    table.append([dict(zip(schema, values, strict=True)), dict.fromkeys(schema)])
    found = freshet.sql("SELECT * FROM s.t", catalog).to_arrow()
    assert found.to_pylist() == table.scan().to_arrow().to_pylist()
    freshet.sql("INSERT INTO s.t SELECT * FROM s.t", catalog)
    assert table.scan().to_arrow().num_rows == 4
    assert sorted(map(repr, table.scan().to_arrow().to_pylist()[:2])) == sorted(map(repr, found.to_pylist()))


def test_sums_are_bigint_or_an_error(catalog: Catalog) -> None:
    found = freshet.sql("SELECT sum(id) AS s, avg(id) AS a, sum(n) AS n FROM s.o", catalog)
    assert found.schema.field("s").type == pa.int64()
    assert found.to_arrow().to_pylist()[0]["s"] == sum(row["id"] for row in O_ROWS)
    with pytest.raises(InvalidRequestError, match="'big' of the result has values beyond BIGINT"):
        freshet.sql("SELECT sum(9223372036854775807) AS big FROM s.o", catalog).to_arrow()


def test_errors_of_a_scan_keep_their_kind(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("s.t", schema={"id": "INT"})
    table.append([{"id": 1}])
    result = freshet.sql("SELECT id + 1 AS id FROM s.t", catalog)
    for path in (tmp_path / "s.db" / "t").rglob("data-*"):
        path.unlink()
    for use in (SqlResult.to_arrow, lambda result: list(result.to_batches())):
        with pytest.raises((MissingFileError, RetryableError), match="data-"):
            use(result)
    with pytest.raises((MissingFileError, RetryableError), match="data-"):
        freshet.sql("INSERT INTO s.t SELECT id FROM s.t", catalog)


def test_a_query_reaches_tables_only(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    rows = pa.table({"a": [1]})  # noqa: F841 - a variable that DuckDB would find
    for source in (f"read_csv('{path}')", f"'{path}'", f"csv.`{path}`", "rows", "duckdb_settings()", "nodb.rows"):
        with pytest.raises(InvalidRequestError):
            freshet.sql(f"SELECT * FROM {source}", catalog)
    assert query(catalog, "SELECT x FROM range(2) AS r(x)") == [{"x": 0}, {"x": 1}]


def test_functions_that_make_rows_have_sparks_names(catalog: Catalog) -> None:
    assert query(catalog, "SELECT id FROM range(2)") == [{"id": 0}, {"id": 1}]
    assert query(catalog, "SELECT * FROM range(1, 2)") == [{"id": 1}]
    assert query(catalog, "SELECT r.id AS n FROM range(1) r") == [{"n": 0}]
    assert query(catalog, "SELECT col FROM explode(array(5, 6))") == [{"col": 5}, {"col": 6}]
    assert query(catalog, "SELECT o.id FROM o JOIN range(2) USING (id) ORDER BY 1") == [{"id": 0}, {"id": 1}]


CONDITIONS = [
    "a.id < 20", "n > 2", "a.n IS NULL", "a.n <=> 3", "NOT (a.n = 2)", "a.City IN ('c1', NULL)", "city LIKE 'c%'",
    "b.x > 3", "b.x IS NULL", "x <> 6", "b.name NOT LIKE 'n1%'", "b.name IS NOT NULL", "NOT b.x <=> NULL",
    "b.x BETWEEN 2 AND 9", "a.id = b.id OR a.n > 3", "(b.x > 3 OR b.x IS NULL)", "b.id > 3 AND a.id > 3", "b.x = x",
    "a.id IN (SELECT id FROM c WHERE x > 2)", "EXISTS (SELECT 1 FROM o WHERE o.id = b.id AND n > 1)",
    "a.n NOT IN (1, 2)", "coalesce(b.x, 9) > 3", "TRUE",
]  # fmt: skip
"""Of `o` as `a` and `c` as `b`."""


@pytest.mark.parametrize("count", [4, pytest.param(120, marks=pytest.mark.slow)])
def test_no_join_loses_rows_to_what_is_pushed_down(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    chance = random.Random(22)
    scan_of = duckdb_engine.scan_of
    for _ in range(count):
        kind = chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = " AND ".join(["a.id = b.id", *chance.sample(CONDITIONS[:18], chance.randrange(2))])
        where = " AND ".join(chance.sample(CONDITIONS, chance.randrange(4)) or ["TRUE"])
        text = f"SELECT a.id, a.n, b.x FROM o a {kind} c b ON {on} WHERE {where}"
        monkeypatch.setattr(duckdb_engine, "scan_of", scan_of)
        found = query(catalog, text)
        monkeypatch.setattr(duckdb_engine, "scan_of", lambda read: read.table.scan(read.columns))
        assert repr(found) == repr(query(catalog, text)), text
