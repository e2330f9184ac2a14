"""SELECT of `freshet.sql` in a Spark session: the rows that DuckDB gives, of the snapshots that are asked for."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

import freshet
from freshet import AddColumn, Catalog
from freshet.pipeline.sources import spark_queries
from freshet.storage.exceptions import InvalidRequestError

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_session_computes_queries(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table(
        "s.o",
        schema={"id": "BIGINT", "na me": "STRING", "n": "DECIMAL(10, 2)"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    table.append([{"id": n, "na me": f"r{n % 2}", "n": n} for n in range(6)])
    table.tags.create("eom")
    table.delete("id = 1")

    def both(text: str) -> list[dict[str, Any]]:
        result = freshet.sql(text, catalog, spark=spark, database="s")
        found = sorted(result.to_arrow().to_pylist(), key=repr)
        assert found == sorted(freshet.sql(text, catalog, database="s").to_arrow().to_pylist(), key=repr)
        return found

    given: list[spark_queries.TableRead] = []
    frame = spark_queries.SparkQueryEngine._frame
    monkeypatch.setattr(
        spark_queries.SparkQueryEngine, "_frame", lambda self, read: given.append(read) or frame(self, read)
    )
    text = (
        "SELECT a.id, b.n FROM o VERSION AS OF 'eom' a LEFT JOIN o b ON a.id = b.id "
        "WHERE a.id < 3 AND upper(a.`na me`) <> 'X'"
    )
    assert both(text) == [{"id": 0, "n": Decimal(0)}, {"id": 1, "n": None}, {"id": 2, "n": Decimal(2)}]
    assert [(read.columns, read.filter) for read in given] == [(("id", "na me"), "id < 3"), (("id", "n"), None)]
    assert [row["snapshot_id"] for row in both("SELECT snapshot_id FROM o$snapshots")] == [1, 2]
    spark.range(2).createOrReplaceTempView("freshet_own")
    shown = freshet.sql("SELECT o.id, v.id AS v FROM s.o o JOIN freshet_own v ON o.id = v.id", catalog, spark=spark)
    table = table.alter(AddColumn("more", "INT"))
    table.upsert([{"id": 0, "na me": "late", "n": 1, "more": 1}])
    assert shown.to_spark().columns == ["id", "v"]
    assert shown.to_arrow().to_pylist() == [{"id": 0, "v": 0}], "the view of the session and the table of the catalog"
    assert both("SELECT more FROM o WHERE more IS NOT NULL") == [{"more": 1}]
    result = freshet.sql("INSERT INTO s.o (id) SELECT id + 10 FROM freshet_own", catalog, spark=spark)
    assert result.edit is not None and result.edit.rows_inserted == 2
    with pytest.raises(InvalidRequestError, match="nope"):
        freshet.sql("SELECT nope FROM s.o", catalog, spark=spark)
    with pytest.raises(InvalidRequestError, match="not of Spark"):
        freshet.sql("SHOW DATABASES", catalog, spark=spark).to_spark()
    assert {each.name for each in spark.catalog.listTables()} >= {"freshet_own"}
    assert not [
        each.name for each in spark.catalog.listTables() if each.name.startswith("freshet_") and "own" not in each.name
    ]
    spark.catalog.dropTempView("freshet_own")


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("Etc/UTC", UTC),
        ("Europe/Berlin", ZoneInfo("Europe/Berlin")),
        ("+05:30", timezone(timedelta(hours=5, minutes=30))),
        ("GMT-3", timezone(timedelta(hours=-3))),
    ],
)
def test_zones_of_sessions(text: str, zone: object) -> None:
    assert spark_queries._zone(text) == zone
