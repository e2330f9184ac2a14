"""Micro-batches into tables: rows, kinds, identity at replay, counts, dead letters, values that were not carried."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.exceptions import InvalidRequestError as OutsideQueryError
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.task.outcome_counts import HALF_APPLIED, IGNORED
from freshet.pipeline.query.task.unavailable_values import NOT_STORED
from freshet.pipeline.spark.arrow_batches import RECORDS_MAX, batch_settings
from freshet.pipeline.spark.column_way import ColumnWay
from freshet.pipeline.spark.frame_write import write
from freshet.pipeline.spark.routing import Routing
from freshet.pipeline.spark.table_sink import QUERY_ID_PROPERTY, TableSink, table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.schema.change import AddColumn, ChangeType
from freshet.storage.table import Table
from tests.kit.quick import some_now
from tests.kit.spark import inside_query
from tests.pipeline.noted_work import NotedWork
from tests.pipeline.query.outcome_rows import MOMENT, data, dead, outcome_frame, tally

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark: SparkSession) -> Iterator[Any]:
    """Sets Spark's query id as a streaming query would: call it with the id."""

    def be(query_id: str) -> None:
        spark.sparkContext.setLocalProperty(QUERY_ID_PROPERTY, query_id)

    with inside_query(spark):
        yield be


def _create(folder: Path, columns: dict[str, str], **arguments: Any) -> Table:
    arguments.setdefault("primary_keys", ["id"])
    arguments.setdefault("options", {"bucket": "2"})
    return Catalog(str(folder)).create_table("shop.orders", schema=columns, **arguments)


def _sink(folder: Path, reports: list[BatchReport], **arguments: Any) -> TableSink:
    return table_sink(str(folder), "shop.orders", commit_user="orders", on_report=reports.append, **arguments)


def _rows(table: Table, **arguments: Any) -> list[dict[str, Any]]:
    found = table.scan(**arguments).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row))


@pytest.mark.always("crossing: table_sink")
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


def test_a_query_of_a_users_session_hands_over_large_arrow_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the session says of bytes, and with its own settings again afterwards."""
    table = _create(tmp_path / "w", {"id": "BIGINT"}, options={"bucket": "1"})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("".join(f"{number}\n" for number in range(20_000)))
    seen = tmp_path / "seen"
    task = ColumnWay._task
    monkeypatch.setattr(ColumnWay, "_task", lambda *given: NotedWork(task(*given), seen))
    keys = ("spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch")
    before = [spark.conf.get(key, None) for key in keys]
    spark.conf.set(keys[0], "1000")
    spark.conf.unset(keys[1])
    inside: list[str | None] = []
    sink = _sink(tmp_path / "w", [])

    def write(frame: DataFrame, micro_batch_id: int) -> None:
        sink(frame, micro_batch_id)
        inside.append(frame.sparkSession.conf.get(keys[0], None))

    try:
        lines = spark.readStream.format("text").load(str(tmp_path / "in"))
        stream = lines.selectExpr("CAST(value AS BIGINT) AS id").writeStream.foreachBatch(write)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        stream.start().awaitTermination()
    finally:
        for key, value in zip(keys, before, strict=True):
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
    assert table.scan().to_arrow().num_rows == 20_000
    assert sorted(map(int, seen.read_text().split())) == [20_000 - RECORDS_MAX, RECORDS_MAX]
    assert inside == ["1000"]


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


def test_a_nightly_load_is_not_taken_for_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    """A call outside of a query is refused, and the way in that the message names takes every day's rows."""
    table = _create(tmp_path, {"id": "BIGINT", "day": "DATE", "at": "TIMESTAMP(6)"})
    sink = _sink(tmp_path, [])
    for day in range(2):
        begin = day * 10
        frame = spark.range(begin, begin + 10).selectExpr(
            "id", f"DATE'2026-11-0{day + 1}' AS day", "TIMESTAMP_NTZ'2026-11-01 10:00:00.123456' AS at"
        )
        with pytest.raises(OutsideQueryError, match=r"(?s)streaming query.*nothing was written.*freshet\.write\(frame"):
            sink(frame, 0)
        write(frame, "shop.orders", warehouse=str(tmp_path), commit_user="loader-1", identifier=day)
    assert [row["id"] for row in table.scan(columns=["id"]).to_arrow().sort_by("id").to_pylist()] == list(range(20))


def test_a_replay_that_nothing_proves_is_a_warning(
    spark: SparkSession, tmp_path: Path, query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _create(tmp_path, {"id": "BIGINT"})
    sink = _sink(tmp_path, [])
    sink(spark.range(10), 0)
    assert not caplog.records
    sink(spark.range(10, 20), 0)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "batch 0 of 'orders' was committed before" in record.getMessage()


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


def test_every_second_batch_compacts_buckets_that_it_did_not_write(
    spark: SparkSession, tmp_path: Path, query: Any
) -> None:
    """The changelog of full compactions has all rows, whichever batch wrote their buckets last."""
    options = {"bucket": "4", "changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}
    table = _create(tmp_path, {"id": "BIGINT", "v": "BIGINT"}, options=options)
    sink = _sink(tmp_path, [])
    sink(spark.range(20).selectExpr("id", "0L AS v"), 1)
    assert {entry.file.level for entry in table.files()} == {0}
    sink(spark.range(1).selectExpr("id", "1L AS v"), 2)
    assert {entry.file.level for entry in table.files()} == {5}
    changes = table.changelog().to_arrow()
    assert changes["_ROW_KIND"].to_pylist() == ["+I"] * 20
    assert dict(zip(changes["id"].to_pylist(), changes["v"].to_pylist(), strict=True)) == {
        k: int(k == 0) for k in range(20)
    }
    sink(spark.range(0).selectExpr("id", "1L AS v"), 3)
    sink(spark.range(5, 6).selectExpr("id", "7L AS v"), 4)
    last = table.changelog(from_snapshot=table.snapshots()[-1].id).to_arrow().to_pylist()
    assert [(row["_ROW_KIND"], row["id"], row["v"]) for row in last] == [("-U", 5, 0), ("+U", 5, 7)]


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
        ("name string", "lacks id"),
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


def test_outcomes_of_records_are_counted_and_dead_letters_kept(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    records = [
        data(1, 1, "a"),
        dead(3),
        data(9, 1, None, kind=3),
        data(9, 2, "b", sub=1),
        tally(2, {"tombstone": 1}, {"unknown field x": 1}),
        tally(3, {"tombstone": 1}),
    ]
    sink(outcome_frame(spark, table.schema, records[::-1], bucket_count=2).repartition(2), 0)
    assert _rows(table) == [{"id": 2, "name": "b"}]
    report = reports[0]
    assert (report.read_count, report.result.applied, report.result.dead, report.result.skipped) == (
        5, 2, {"no number": 1}, {"tombstone": 2},
    )  # fmt: skip
    assert report.result.notes == {"unknown field x": 1}
    letters = Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().to_pylist()
    assert len(letters) == 1
    assert {key: letters[0][key] for key in ("pipeline", "topic", "kafka_partition", "log_offset", "reason")} == {
        "pipeline": "orders", "topic": "orders", "kafka_partition": 1, "log_offset": 3, "reason": "no number",
    }  # fmt: skip
    assert (letters[0]["column_name"], letters[0]["raw_key"], letters[0]["raw_value"]) == ("name", b"key", b"value")
    assert letters[0]["record_time"] == MOMENT


@pytest.mark.slow
def test_a_crash_between_dead_letters_and_rows_doubles_neither(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    frame = outcome_frame(spark, table.schema, [data(1, 1, "a"), dead(3), tally(2)], bucket_count=2)
    sink = _sink(tmp_path, [], dead_letters="shop.dead")
    sink(frame, 0)
    # Undo the commit of the rows alone, as if the driver had died before it. Its hints are written in the background.
    folder = Path(table.location) / "snapshot"
    latest_end = time.monotonic() + 60
    while not {"EARLIEST", "LATEST"} <= {file.name for file in folder.iterdir()}:
        assert time.monotonic() < latest_end
        time.sleep(0.01)
    for file in folder.iterdir():
        file.unlink()
    _sink(tmp_path, [], dead_letters="shop.dead")(frame, 0)
    assert _rows(Catalog(str(tmp_path)).table("shop.orders")) == [{"id": 1, "name": "a"}]
    assert Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().num_rows == 1


@pytest.mark.slow
def test_values_that_a_change_did_not_carry(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    sink(_stored(spark, table), 0)
    records = [
        data(11, 1, None, kind=2, unavailable="1"),  # from the table
        data(12, 2, "newer", kind=2),
        data(14, 2, None, kind=2, unavailable="1"),  # from this batch
        data(13, 3, None, kind=3),
        data(15, 3, None, kind=2, unavailable="1"),  # deleted before: nothing to keep
        data(17, 9, None, kind=2, unavailable="1"),  # never stored
        tally(6),
    ]
    sink(outcome_frame(spark, table.schema, records, bucket_count=2), 1)
    assert {row["id"]: row["name"] for row in _rows(table)} == {1: "stored 1", 2: "newer", 4: "stored 4"}
    assert reports[1].result.restored == 2
    assert reports[1].result.dead == {NOT_STORED: 2}
    letters = Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().to_pylist()
    assert sorted((row["log_offset"], row["column_name"], row["raw_value"]) for row in letters) == [
        (15, "name", b"value"), (17, "name", b"value"),
    ]  # fmt: skip


def _stored(spark: SparkSession, table: Table, *, bucket_count: int = 2) -> DataFrame:
    rows = [data(number, number, f"stored {number}") for number in range(1, 5)]
    return outcome_frame(spark, table.schema, [*rows, tally(4)], bucket_count=bucket_count)


def test_a_nullable_column_added_while_the_query_runs_is_null(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    plain, outcomes = _sink(tmp_path, []), _sink(tmp_path, [], dead_letters="shop.dead")
    plain(spark.range(2), 0)
    outcomes(outcome_frame(spark, table.schema, [data(1, 2), tally(1)], bucket_count=2), 1)
    table.alter(AddColumn("more", "INT"))
    plain(spark.range(3, 4), 2)
    outcomes(outcome_frame(spark, table.schema, [data(1, 4), tally(1)], bucket_count=2), 3)
    after_restart = _sink(tmp_path, [])
    after_restart(spark.range(5, 6), 4)
    after_restart(spark.createDataFrame([(6, 7)], "id bigint, more int"), 5)
    found = {row["id"]: row["more"] for row in _rows(Catalog(str(tmp_path)).table("shop.orders"))}
    assert found == {0: None, 1: None, 2: None, 3: None, 4: None, 5: None, 6: 7}


def test_another_change_of_the_schema_stops_decoded_rows(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "count": "INT"})
    sink = _sink(tmp_path, [])
    frame = outcome_frame(spark, table.schema, [data(1, 2, 3), tally(1)], bucket_count=2)
    sink(frame, 0)
    table.alter(ChangeType("count", "BIGINT"))
    with pytest.raises(PipelineFailedError, match="column count is BIGINT there and INT in the file"):
        sink(frame, 1)
    assert len(table.snapshots()) == 1


def test_records_that_do_not_add_up_are_not_committed(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"})
    rows = [data(1, 1), data(2, 2), tally(3)]
    with pytest.raises(PipelineFailedError, match="3 records entered, but the tasks report 2 applied"):
        _sink(tmp_path, [])(outcome_frame(spark, table.schema, rows, bucket_count=2), 0)
    assert table.snapshots() == []


def test_rows_of_a_frame_that_are_there_twice_are_not_committed(
    spark: SparkSession, tmp_path: Path, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position of each row in its Spark partition crosses with it."""
    table = _create(tmp_path, {"id": "BIGINT"})
    distributed = Routing.distributed

    def twice(*arguments: Any) -> DataFrame:
        return distributed(*arguments).union(distributed(*arguments))

    monkeypatch.setattr(Routing, "distributed", twice)
    with pytest.raises(PipelineFailedError, match="missing or there twice"):
        _sink(tmp_path, [])(spark.range(10), 0)
    assert table.snapshots() == []


def _wrong_topic(spark: SparkSession, table: Table, dead_count: int, good_count: int) -> DataFrame:
    rows = [dead(number, "the value is not JSON") for number in range(dead_count)]
    rows += [data(number, number, "fine") for number in range(dead_count, dead_count + good_count)]
    return outcome_frame(spark, table.schema, [*rows, tally(dead_count + good_count)], bucket_count=2)


def test_a_batch_of_mostly_dead_letters_stops_the_run(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    sink = _sink(tmp_path, [], dead_letters="shop.dead")
    with pytest.raises(PipelineFailedError) as caught:
        sink(_wrong_topic(spark, table, 601, 399), 0)
    text = str(caught.value)
    assert "601 of the 1000 records of the batch are dead letters" in text
    assert "max_dead_letters: {share: 0.5}" in text
    shown = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    # Kafka partition 0 first, its offsets in order: the first ten of the input order.
    assert shown == [f"orders partition 0 offset {2 * n}: the value is not JSON (column name)" for n in range(10)]
    for name in ("shop.orders", "shop.dead"):
        refused = Catalog(str(tmp_path)).table(name)
        assert refused.snapshots() == []
        assert list(Path(refused.location).rglob("data-*")) == []


@pytest.mark.slow
def test_few_records_and_a_wider_limit_go_on(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"})
    _sink(tmp_path, [], dead_letters="shop.dead")(_wrong_topic(spark, table, 90, 9), 0)
    limit = MaxDeadLetters(share=1, count=2000)
    wide = _sink(tmp_path, [], dead_letters="shop.dead", max_dead_letters=limit)
    wide(_wrong_topic(spark, table, 1500, 0), 1)
    assert Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow().num_rows == 1590
    with pytest.raises(PipelineFailedError, match="count: 2000} allows"):
        wide(_wrong_topic(spark, table, 2001, 9000), 2)


def test_a_value_that_no_cast_takes_names_its_column(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "time": "TIME(3)"})
    sink = _sink(tmp_path, [])
    with pytest.raises(PipelineFailedError, match="column 'time' has a value that is no TIME"):
        sink(spark.createDataFrame([(1, 1 << 40)], "id bigint, time bigint"), 0)
    assert isinstance(sink.failure, InvalidRequestError)
    assert table.snapshots() == []


def test_settings_of_arrow_are_in_force_and_put_back(spark: SparkSession, tmp_path: Path, query: Any) -> None:
    table = _create(tmp_path, {"id": "BIGINT"}, options={"bucket": "1"})
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, "7")
    try:
        with batch_settings(spark):
            assert spark.conf.get(key) == "7"
            assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "2147483647"
        spark.conf.set(key, "0")
        with batch_settings(spark):
            assert spark.conf.get(key) == "16384"
        assert spark.conf.get(key) == "0"
        _sink(tmp_path, [])(spark.range(100), 0)
    finally:
        spark.conf.set(key, before)
    assert table.scan().to_arrow().num_rows == 100


def test_a_key_change_whose_new_row_is_dead_is_a_dead_letter_and_noted(
    spark: SparkSession, tmp_path: Path, query: Any
) -> None:
    table = _create(tmp_path, {"id": "BIGINT", "name": "STRING"}, options={"bucket": "8"})
    reports: list[BatchReport] = []
    sink = _sink(tmp_path, reports, dead_letters="shop.dead")
    sink(_stored(spark, table, bucket_count=8), 0)
    records = [
        data(11, 1, None, kind=3),
        data(11, 60, None, sub=1, unavailable="1"),
        data(12, 2, None, kind=3),
        data(12, 61, "whole", sub=1),
        tally(2),
    ]
    sink(outcome_frame(spark, table.schema, records, bucket_count=8), 1)
    assert {row["id"]: row["name"] for row in _rows(table)} == {3: "stored 3", 4: "stored 4", 61: "whole"}
    report = reports[1]
    assert (report.read_count, report.result.applied, report.result.dead) == (2, 1, {NOT_STORED: 1})
    assert report.result.notes == {HALF_APPLIED: 1}
    assert Catalog(str(tmp_path)).table("shop.dead").scan().to_arrow()["log_offset"].to_pylist() == [11]


@pytest.mark.parametrize(
    ("option", "applied", "skipped"),
    some_now([("ignore-delete", 2, 2), ("ignore-update-before", 3, 1), ("bucket", 4, 0)], stride=3),
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
