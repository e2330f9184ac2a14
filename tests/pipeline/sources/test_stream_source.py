"""Changes of a table as a streaming frame: all of them, once, over restarts and limits; from table to table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.config.frame_options import stream_options
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.sources.batch_source import register
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit

pytestmark = pytest.mark.spark

Change = tuple[Any, ...]


@pytest.fixture
def orders(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path)).create_table(
        "db.orders",
        schema={"id": "BIGINT", "state": "STRING", "at": "TIME(3)"},
        primary_keys=["id"],
        options={"bucket": "2", "changelog-producer": "lookup"},
    )
    _write(table, {1: "new", 2: "new", 3: "new"})
    _write(table, {1: "paid"})
    return table


def _write(table: Table, states: Mapping[int, str | None]) -> None:
    """None deletes."""
    rows = [
        {"id": key, "state": state or "gone", "at": None, "_ROW_KIND": "-D" if state is None else "+I"}
        for key, state in states.items()
    ]
    with table.writer("writer") as writer:
        writer.write(rows)
        writer.commit()


def _frame(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    register(spark)
    reader = spark.readStream.format("freshet").option("warehouse", str(Path(table.location).parent.parent))
    for name, text in {"table": "db.orders", "scan.mode": "latest-full", **options}.items():
        reader = reader.option(name.replace("__", "."), text)
    return reader.load()


def _run(frame: DataFrame, checkpoint: Path) -> list[list[Change]]:
    """The changes of each batch of a run to the end of what is there."""
    batches: list[list[Change]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append([tuple(row) for row in batch.collect()])

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return batches


def _folded(changes: list[Change]) -> dict[int, str]:
    rows: dict[int, str] = {}
    for key, state, *_, kind in changes:
        if kind in ("+I", "+U"):
            rows[key] = state
        else:
            assert rows.pop(key) == state
    return rows


@pytest.mark.always("crossing: table source")
@pytest.mark.slow
def test_every_change_once_over_restarts_and_limits(spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    limits = {"maxFilesPerTrigger": "1"}
    first = _run(_frame(spark, orders, **limits), tmp_path / "checkpoint")
    assert sorted(change for batch in first for change in batch) == [
        (1, "paid", None, "+I"),
        (2, "new", None, "+I"),
        (3, "new", None, "+I"),
    ]
    assert len(first) > 1
    assert _run(_frame(spark, orders, **limits), tmp_path / "checkpoint") == []
    _write(orders, {1: "sent", 4: "new"})
    _write(orders, {2: None, 1: "here"})
    later = [change for batch in _run(_frame(spark, orders, **limits), tmp_path / "checkpoint") for change in batch]
    assert sorted(later) == [
        (1, "here", None, "+U"),
        (1, "paid", None, "-U"),
        (1, "sent", None, "+U"),
        (1, "sent", None, "-U"),
        (2, "new", None, "-D"),
        (4, "new", None, "+I"),
    ]
    changes = [change for batch in first for change in batch] + later
    assert _folded(changes) == {row["id"]: row["state"] for row in orders.scan().to_arrow().to_pylist()}


def test_from_a_snapshot_with_ids_filter_and_columns(spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    options = {
        "scan.mode": "from-snapshot",
        "scan.snapshot-id": "1",
        "with-snapshot-id": "true",
        "filter": "id = 1",
        "columns": "state",
        "consumer-id": "audit",
    }
    batches = _run(_frame(spark, orders, **options), tmp_path / "checkpoint")
    emitted = [change[:2] for batch in batches for change in batch]
    assert emitted == [("new", "+I"), ("new", "-U"), ("paid", "+U")]
    ids = [change[2] for batch in batches for change in batch]
    assert ids == sorted(ids)
    latest = orders.latest_snapshot()
    assert latest is not None
    assert orders.consumers() == {"audit": latest.id + 1}


def test_a_frame_that_is_older_than_a_change_of_the_table(spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    frame = _frame(spark, orders)
    orders.alter(AddColumn("more", "STRING"))
    with pytest.raises(PySparkException, match="load the frame again, since the table was changed"):
        _run(frame, tmp_path / "checkpoint")


@pytest.mark.always("crossing: table source")
@pytest.mark.slow
def test_one_table_follows_another(spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    copy = catalog.create_table(
        "db.copy", schema={"id": "BIGINT", "state": "STRING"}, primary_keys=["id"], options={"bucket": "2"}
    )
    for commits in ([], [{1: "sent", 4: "new"}, {2: None, 1: "here"}]):
        for changes in commits:
            _write(orders, changes)
        sink = table_sink(str(tmp_path), "db.copy", commit_user="copy")
        frame = _frame(spark, orders, columns="id, state")
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        there = {row["id"]: row["state"] for row in orders.scan().to_arrow().to_pylist()}
        assert {row["id"]: row["state"] for row in copy.scan().to_arrow().to_pylist()} == there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan.mode": "sideways"}, "scan_mode is one of"),
        ({"scan.mode": "from-snapshot"}, "needs from_snapshot"),
        ({"maxFilesPerTrigger": "0"}, "must be greater than 0"),
        ({"with-snapshot-id": "yes"}, "must be true or false"),
        ({"scan.tag-name": "t"}, "cannot begin at a tag"),
        ({"columns": "nothing"}, "nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(
    spark: SparkSession, orders: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        _frame(spark, orders, **options)


def test_a_mode_makes_a_stream_and_no_other_frame(spark: SparkSession, orders: Table, tmp_path: Path) -> None:
    register(spark)
    batch = spark.read.format("freshet").option("warehouse", str(tmp_path)).option("table", "db.orders")
    with pytest.raises(PySparkException, match="makes a stream"):
        batch.option("scan.mode", "latest").load().collect()
    stream = spark.readStream.format("freshet").option("warehouse", str(tmp_path)).option("table", "db.orders")
    with pytest.raises(PySparkException, match="a stream needs the option 'scan.mode'"):
        _run(stream.load(), tmp_path / "checkpoint")


def test_limits_are_read_whatever_the_case_of_their_names() -> None:
    given = {"scan.mode": "latest", "maxbytespertrigger": "5", "maxrowspertrigger": "7"}
    options = stream_options(given)
    assert options is not None
    assert options.limit == StreamLimit(size_bytes=5, rows=7)
    with pytest.raises(InvalidRequestError, match="is given without scan.mode"):
        stream_options({"maxbytespertrigger": "5"})
