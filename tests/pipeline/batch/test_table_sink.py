"""Micro-batches into tables: rows, kinds, identity at replay, counts, dead letters, values that were not carried."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from freshet.pipeline.batch.bucket_task import HALF_APPLIED, IGNORED
from freshet.pipeline.batch.micro_batch import BatchReport
from freshet.pipeline.batch.routing import TAG_DATA, TAG_DEAD, TAG_SKIPPED
from freshet.pipeline.batch.table_sink import QUERY_ID_PROPERTY, TableSink, table_sink
from freshet.pipeline.batch.unavailable_values import NOT_STORED
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark: SparkSession) -> Iterator[Any]:
    """Sets Spark's query id as a streaming query would: call it with the id."""

    def be(query_id: str | None) -> None:
        spark.sparkContext.setLocalProperty(QUERY_ID_PROPERTY, query_id)  # type: ignore[arg-type]

    be("query-1")
    yield be
    be(None)


def _create(folder: Path, columns: dict[str, str], **arguments: Any) -> Table:
    arguments.setdefault("primary_keys", ["id"])
    arguments.setdefault("options", {"bucket": "2"})
    return Catalog(str(folder)).create_table("shop.orders", schema=columns, **arguments)


def _sink(folder: Path, reports: list[BatchReport], **arguments: Any) -> TableSink:
    return table_sink(str(folder), "shop.orders", commit_user="orders", on_report=reports.append, **arguments)


def _rows(table: Table, **arguments: Any) -> list[dict[str, Any]]:
    found = table.scan(**arguments).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row))


def test_changes_of_several_batches_in_input_order(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports)
    schema = "name string, id int, _ROW_KIND string"
    first = [(f"n{number}", number, "+I") for number in range(50)]
    sink(spark.createDataFrame(first, schema), 0)
    second = [
        ("again", 3, "+U"),
        ("n3", 3, "-D"),
        ("last", 3, "+I"),
        ("x", 4, "+U"),
        ("n4", 4, "-D"),
        ("new", 60, "+I"),
    ]
    sink(spark.createDataFrame(second, schema).coalesce(1), 1)
    expected = {number: f"n{number}" for number in range(50)} | {3: "last", 60: "new"}
    del expected[4]
    assert {row["id"]: row["name"] for row in _rows(table)} == expected
    assert [report.read_count for report in reports] == [50, 6]
    assert [report.result.applied for report in reports] == [50, 6]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 1]
    assert {entry.bucket for entry in table.files()} == {0, 1}


def test_the_last_of_many_changes_from_several_spark_partitions(
    spark: SparkSession, tmp_path: Path, query: Any
) -> None:
    """Input order is (Spark partition, position): of 200 changes of each key the one of the highest number stays."""
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"}, options={"bucket": "3"})
    frame = spark.range(0, 20_000, 1, 7).selectExpr("id % 100 AS id", "CAST(id AS STRING) AS name")
    _sink(tmp_path, [], options={"write-buffer-size": "64 kb"})(frame, 0)
    assert {row["id"]: row["name"] for row in _rows(table)} == {key: str(19_900 + key) for key in range(100)}


def test_a_replayed_batch_runs_no_job(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"}, primary_keys=[], options={"bucket": "-1"})
    reports: list[BatchReport] = []
    _sink(tmp_path, reports)(spark.range(10), 0)
    again = _sink(tmp_path, reports)
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("replay", "replay")
    try:
        again(spark.range(10), 0)
        assert list(tracker.getJobIdsForGroup("replay")) == []
        again(spark.range(10, 15), 1)
        assert len(tracker.getJobIdsForGroup("replay")) == 1
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert [report.is_replay for report in reports] == [False, True, False]
    assert table.scan().to_arrow().num_rows == 15


def test_one_job_where_adaptive_execution_is_on(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.sparkContext.setJobGroup("adaptive", "adaptive")
    try:
        _sink(tmp_path, [])(spark.range(10), 0)
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("adaptive")) == 1
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert table.scan().to_arrow().num_rows == 10


def test_another_query_is_refused_with_the_remedy(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    _sink(tmp_path, [])(spark.range(3), 0)
    query("query-2")
    sink = _sink(tmp_path, [])
    with pytest.raises(PipelineFailedError, match="checkpoint was deleted"):
        sink(spark.range(3), 0)
    assert isinstance(sink.failure, InvalidRequestError)
    assert len(table.snapshots()) == 1


def test_an_empty_batch_is_committed_too(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    sink = _sink(tmp_path, [])
    sink(spark.range(0), 0)
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0]


def test_partitions_and_types_that_spark_carries_as_others(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    columns = {
        "id": "STRING", "part": "STRING", "time": "TIME(3)", "fine": "TIMESTAMP(9)",
        "zoned": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "rough": "TIMESTAMP(3)",
        "amount": "DECIMAL(30,5)", "raw": "BYTES", "tags": "ARRAY<STRING>", "day": "DATE",
    }  # fmt: skip
    table = _create(tmp_path, columns, primary_keys=["id", "part"], partition_keys=["part"])
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
    schema = (
        "id string, part string, time bigint, fine bigint, zoned timestamp, rough timestamp_ntz, "
        "amount decimal(30,5), raw binary, tags array<string>, day date"
    )
    rows = [
        (
            key,
            part,
            3661001,
            1_700_000_000_123_456_789,
            moment,
            moment,
            Decimal("-1.50000"),
            b"\x00\xff",
            ["a", None],
            day,
        )
        for key in ("", "a long key of more than seven bytes", "ä")
        for part in ("x", "y=1/ä")
        for day in (datetime.date(1969, 12, 31),)
    ]
    reports: list[BatchReport] = []
    _sink(tmp_path, reports)(spark.createDataFrame(rows, schema), 0)
    found = table.scan().to_arrow()
    assert found.num_rows == 6
    assert found.schema.field("time").type == pa.time32("ms")
    assert found.schema.field("fine").type == pa.timestamp("ns")
    one = found.slice(0, 1)
    assert one["time"].cast(pa.int32()).to_pylist() == [3661001]
    assert one["fine"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789]
    assert one["rough"].cast(pa.int64()).to_pylist() == [1_700_000_000_123]
    assert one["zoned"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456]
    assert one["amount"].to_pylist() == [Decimal("-1.50000")]
    assert one["tags"].to_pylist() == [["a", None]]
    keys = {(row["id"], row["part"]) for row in found.select(["id", "part"]).to_pylist()}
    assert keys == {(row[0], row[1]) for row in rows}
    # Every row lies in the bucket that a reader looking for its key would open.
    for row in rows:
        from_key = table.scan(filter=[("id", "=", row[0]), ("part", "=", row[1])]).to_arrow()
        assert from_key.num_rows == 1


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id bigint", "lacks name"),
        ("id bigint, name string, more int", "has more, which the table does not"),
        ("id string, name string", "column 'id' of the frame is string"),
        ("id bigint, name int", "column 'name' of the frame is int"),
    ],
)
def test_frames_that_do_not_fit(spark: SparkSession, tmp_path: Path, query: Any, schema: str, message: str) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    with pytest.raises(PipelineFailedError, match=message):
        _sink(tmp_path, [])(spark.createDataFrame([], schema), 0)
    assert table.snapshots() == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(None, "+I")], "part of the primary key"),
        ([(1, "+X")], "row kinds are"),
    ],
)
def test_rows_that_cannot_be_written(
    spark: SparkSession, tmp_path: Path, query: Any, rows: list[Any], message: str
) -> None:
    """The error of the task arrives as what it is, and nothing is committed."""
    table = _create(tmp_path, {"id": "BIGINT"})
    sink = _sink(tmp_path, [])
    with pytest.raises(PipelineFailedError, match=message):
        sink(spark.createDataFrame(rows, "id bigint, _ROW_KIND string"), 0)
    assert isinstance(sink.failure, InvalidRequestError)
    assert table.snapshots() == []


_ENVELOPE = st.StructType(
    [
        st.StructField("tag", st.ByteType()),
        st.StructField("row_kind", st.ByteType()),
        st.StructField("reason", st.StringType()),
        st.StructField("column", st.StringType()),
        st.StructField(
            "order",
            st.StructType(
                [
                    st.StructField("source_index", st.IntegerType()),
                    st.StructField("rank", st.LongType()),
                    st.StructField("topic", st.StringType()),
                    st.StructField("kafka_partition", st.IntegerType()),
                    st.StructField("offset", st.LongType()),
                    st.StructField("sub", st.IntegerType()),
                    st.StructField("timestamp", st.TimestampType()),
                ]
            ),
        ),
        st.StructField("raw_key", st.BinaryType()),
        st.StructField("raw_value", st.BinaryType()),
        st.StructField("unavailable", st.ArrayType(st.StringType())),
        st.StructField("notes", st.ArrayType(st.StringType())),
        st.StructField(
            "data", st.StructType([st.StructField("id", st.LongType()), st.StructField("name", st.StringType())])
        ),
    ]
)
_MOMENT = datetime.datetime(2024, 5, 1, 12)


def _record(
    offset: int,
    tag: int = TAG_DATA,
    *,
    kind: int | None = 0,
    data: tuple[Any, ...] | None = None,
    reason: str | None = None,
    sub: int = 0,
    unavailable: list[str] | None = None,
    notes: list[str] | None = None,
) -> tuple[Any, ...]:
    order = (0, 0, "orders", offset % 2, offset, sub, _MOMENT)
    raw = (b"key", b"value") if tag == TAG_DEAD or unavailable else (None, None)
    column = "name" if tag == TAG_DEAD else None
    return tag, kind if tag == TAG_DATA else None, reason, column, order, *raw, unavailable, notes, data


def test_outcomes_of_records_are_counted_and_dead_letters_kept(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    records = [
        _record(1, data=(1, "a"), notes=["unknown field x"]),
        _record(3, TAG_DEAD, reason="no number"),
        _record(5, TAG_SKIPPED, reason="tombstone"),
        _record(7, TAG_SKIPPED, reason="tombstone"),
        _record(9, kind=3, data=(1, None), sub=0),
        _record(9, kind=0, data=(2, "b"), sub=1),
    ]
    sink(spark.createDataFrame(records[::-1], _ENVELOPE).repartition(2), 0)
    assert _rows(table) == [{"id": 2, "name": "b"}]
    report = reports[0]
    assert (report.read_count, report.result.applied, report.result.dead, report.result.skipped) == (
        5, 2, {"no number": 1}, {"tombstone": 2},
    )  # fmt: skip
    assert report.result.notes == {"unknown field x": 1}
    dead = Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().to_pylist()
    assert len(dead) == 1
    assert {key: dead[0][key] for key in ("pipeline", "topic", "kafka_partition", "log_offset", "reason")} == {
        "pipeline": "orders", "topic": "orders", "kafka_partition": 1, "log_offset": 3, "reason": "no number",
    }  # fmt: skip
    assert (dead[0]["column_name"], dead[0]["raw_key"], dead[0]["raw_value"]) == ("name", b"key", b"value")
    assert dead[0]["record_time"].timestamp() == _MOMENT.replace(tzinfo=datetime.UTC).timestamp()


def test_a_crash_between_dead_letters_and_rows_doubles_neither(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    frame = spark.createDataFrame([_record(1, data=(1, "a")), _record(3, TAG_DEAD, reason="bad")], _ENVELOPE)
    sink = _sink(tmp_path, [], dead_letters="shop.dead")
    sink(frame, 0)
    # Undo the commit of the rows alone, as if the driver had died before it.
    folder = Path(table.location) / "snapshot"
    for file in folder.iterdir():
        file.unlink()
    _sink(tmp_path, [], dead_letters="shop.dead")(frame, 0)
    assert _rows(Catalog(str(tmp_path)).table("shop.orders")) == [{"id": 1, "name": "a"}]
    assert Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().num_rows == 1


def test_values_that_a_change_did_not_carry(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    sink(spark.createDataFrame([_record(n, data=(n, f"stored {n}")) for n in range(1, 5)], _ENVELOPE), 0)
    toast = ["name"]
    records = [
        _record(11, kind=2, data=(1, None), unavailable=toast),  # from the table
        _record(12, kind=2, data=(2, "newer")),
        _record(14, kind=2, data=(2, None), unavailable=toast),  # from this batch
        _record(13, kind=3, data=(3, None)),
        _record(15, kind=2, data=(3, None), unavailable=toast),  # deleted before: nothing to keep
        _record(17, kind=2, data=(9, None), unavailable=toast),  # never stored
    ]
    sink(spark.createDataFrame(records, _ENVELOPE), 1)
    assert {row["id"]: row["name"] for row in _rows(table)} == {1: "stored 1", 2: "newer", 4: "stored 4"}
    assert reports[1].result.restored == 2
    assert reports[1].result.dead == {NOT_STORED: 2}
    dead = Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().to_pylist()
    assert sorted((row["log_offset"], row["column_name"], row["raw_value"]) for row in dead) == [
        (15, "name", b"value"), (17, "name", b"value"),
    ]  # fmt: skip


def test_a_schema_change_while_the_query_runs(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    sink = _sink(tmp_path, [])
    sink(spark.range(2), 0)
    table.alter(AddColumn("more", "INT"))
    with pytest.raises(PipelineFailedError, match="lacks more"):
        sink(spark.range(2, 4), 1)
    sink(spark.createDataFrame([(5, 7)], "id bigint, more int"), 1)
    assert {row["id"]: row["more"] for row in _rows(Catalog(str(tmp_path)).table("shop.orders"))} == {
        0: None, 1: None, 5: 7,
    }  # fmt: skip


def test_a_key_change_whose_new_row_is_dead_is_a_dead_letter_and_noted(
    spark: SparkSession, tmp_path: Path, query: Any
) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"}, options={"bucket": "8"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    sink(spark.createDataFrame([_record(n, data=(n, f"stored {n}")) for n in range(1, 5)], _ENVELOPE), 0)
    records = [
        _record(11, kind=3, data=(1, None), sub=0),
        _record(11, kind=0, data=(60, None), sub=1, unavailable=["name"]),
        _record(12, kind=3, data=(2, None), sub=0),
        _record(12, kind=0, data=(61, "whole"), sub=1),
    ]
    sink(spark.createDataFrame(records, _ENVELOPE), 1)
    assert {row["id"]: row["name"] for row in _rows(table)} == {3: "stored 3", 4: "stored 4", 61: "whole"}
    report = reports[1]
    assert (report.read_count, report.result.applied, report.result.dead) == (2, 1, {NOT_STORED: 1})
    assert report.result.notes == {HALF_APPLIED: 1}
    assert Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow()["log_offset"].to_pylist() == [11]


@pytest.mark.parametrize(
    ("option", "applied", "skipped"), [("ignore-delete", 2, 2), ("ignore-update-before", 3, 1), ("bucket", 4, 0)]
)
def test_rows_of_ignored_kinds_are_skipped_not_applied(
    spark: SparkSession, tmp_path: Path, query: Any, option: str, applied: int, skipped: int
) -> None:
    _create(tmp_path, {"id": "BIGINT"}, options={"bucket": "2", option: "2" if option == "bucket" else "true"})
    reports: list[BatchReport] = []
    rows = [(1, "+I"), (2, "-U"), (2, "+U"), (3, "-D")]
    _sink(tmp_path, reports)(spark.createDataFrame(rows, "id bigint, _ROW_KIND string"), 0)
    result = reports[0].result
    assert (reports[0].read_count, result.applied, result.skipped_count) == (4, applied, skipped)
    assert set(result.skipped) <= {IGNORED}
