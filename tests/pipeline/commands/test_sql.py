"""The command sql: text, a file or the input; rows for people and for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog
from tests.pipeline.commands.kit import Freshet

SETUP = (
    "CREATE TABLE orders (id INT, city STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1');\n"
    "-- the first rows\nINSERT INTO orders VALUES (1, 'Köln'), (2, NULL);"
)


@pytest.fixture
def lake(freshet: Freshet, tmp_path: Path) -> Path:
    (tmp_path / "setup.sql").write_text(SETUP, encoding="utf-8")
    said = freshet.good("sql", tmp_path / "lake", "--file", tmp_path / "setup.sql", "--database", "shop").out
    assert said == "table shop.orders is there\n2 rows inserted, 1 data file added in 1 partition, in snapshot 1\n"
    return tmp_path / "lake"


def test_rows_in_each_form(freshet: Freshet, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT id, city FROM shop.orders ORDER BY id"
    assert freshet.good("sql", lake, text).out == "id  city\n 1  Köln\n 2  NULL\n"
    lines = [{"id": 1, "city": "Köln"}, {"id": 2, "city": None}]
    assert [json.loads(line) for line in freshet.good("sql", lake, text, "--json").out.splitlines()] == lines
    assert freshet.good("sql", lake, text, "--format", "csv").out.splitlines()[1:] == ['1,"Köln"', "2,"]
    shown = freshet.good("sql", lake, text, "--limit", "1")
    assert shown.out == "id  city\n 1  Köln\n" and "--limit" in shown.err
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW TABLES IN shop"))
    assert "orders" in freshet.good("sql", lake, "-").out
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT count(*) AS n FROM shop.orders$files"))
    assert freshet.good("sql", lake, "--file", "-", "--json").facts == {"n": 1}


def test_statements_one_after_the_other(freshet: Freshet, lake: Path) -> None:
    text = "UPDATE shop.orders SET city = 'Rom' WHERE id = 2; ALTER TABLE shop.orders ADD COLUMN n INT; SELECT 1 AS one"
    said = [json.loads(line) for line in freshet.good("sql", lake, text, "--json").out.splitlines()]
    assert said[0].items() >= {"table": "shop.orders", "snapshots": [2], "rows_updated": 1, "files_added": 1}.items()
    assert said[1] == {"done": "table shop.orders has schema 1 now"} and said[2] == {"one": 1}
    text = "DELETE FROM shop.orders WHERE id = 2; SELECT id FROM shop.orders"
    rows = freshet.good("sql", lake, text, "--format", "csv")
    assert rows.out == '"id"\n1\n' and "1 row deleted" in rows.err


def test_what_is_refused(freshet: Freshet, lake: Path, tmp_path: Path) -> None:
    for arguments, part in (
        (["TRUNCATE TABLE shop.orders; FROB x"], "'FROB x'"),
        ([], "--file"),
        (["SELECT 1", "--file", str(tmp_path / "setup.sql")], "one of them"),
        (["--file", str(tmp_path / "nothing.sql")], "no file"),
        (["SELECT 1; SELECT 2", "--format", "csv"], "one statement"),
        (["SELECT * FROM orders"], "database"),
    ):
        refused = freshet("sql", lake, *arguments)
        assert refused.code != 0 and part in refused.err, refused
    assert Catalog(lake).table("shop.orders").scan().to_arrow().column("id") == pa.chunked_array(
        [pa.array([1, 2], "int32")]
    )
