"""One query into two tables by one job a batch: who has rows is committed, and a batch that was begun is finished."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet.pipeline.batch.batch_pin import BatchPin
from freshet.pipeline.batch.batch_report import BatchReport, TableReport
from freshet.pipeline.batch.bucket_task import BucketTask
from freshet.pipeline.batch.query_run import QueryRun
from freshet.pipeline.batch.routing import POSITION
from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.batch.table_sink import QUERY_ID_PROPERTY
from freshet.pipeline.batch.task_result import RESULT_SPARK_SCHEMA
from freshet.pipeline.decode.outcomes import BUCKET
from freshet.pipeline.spark.arrow_map import ArrowFunction, KeptColumns
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import Table

COLUMNS = ("id", "text", "number")
TABLES = {"s.orders": {"id": "BIGINT", "text": "STRING"}, "s.items": {"id": "BIGINT", "number": "BIGINT"}}


class TwoTableJob:
    """Rows say by the index `_table` which table they are for; one task has those of both."""

    def __init__(self, commits: list[TableCommit]) -> None:
        self._commits = commits

    def tasks(self, frame: DataFrame, pins: Mapping[int, BatchPin] | None = None) -> tuple[DataFrame, int]:
        assert pins is not None
        tasks = [
            BucketTask(each.table.handle, "p", COLUMNS, 1, pin=pins[index], table_index=index)
            for index, each in enumerate(self._commits)
        ]
        data = [F.col(name).alias(f"_d{index}") for index, name in enumerate(COLUMNS)]
        head = [F.lit(0).alias(BUCKET), F.monotonically_increasing_id().alias(POSITION), F.col("_table")]
        rows = KeptColumns([*head, *data]).select(frame).repartitionById(1, F.lit(0))
        kept = KeptColumns([F.col(name) for name in rows.columns])
        return kept.map_in_arrow(rows, _by_table(tasks), RESULT_SPARK_SCHEMA), 1

    def single_stage(self, frame: DataFrame, decoder: ArrowFunction | None) -> None:
        raise AssertionError("only frames that are planned once have one")


def _by_table(tasks: list[BucketTask]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrived = list(batches)
        for index, task in enumerate(tasks):
            own = [batch.filter(pc.equal(batch.column("_table"), index)) for batch in arrived]
            yield from task(iter([batch.drop_columns(["_table"]) for batch in own]))

    return run


class Query:
    """A streaming query over a folder of files, a batch each; it may be run again and again."""

    def __init__(self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spark, self._folder, self._files = spark, folder, 0
        catalog = Catalog(folder / "w")
        self.tables = [
            catalog.create_table(name, schema=columns, primary_keys=["id"], options={"bucket": "1"})
            for name, columns in TABLES.items()
        ]
        self.dies_at: str | None = None
        """The driver dies before the next commit to this table."""
        self.jobs: list[int] = []
        commit = TableCommit.commit

        def failing(target: TableCommit, *arguments: Any) -> TableReport:
            if target.table.name == self.dies_at:
                self.dies_at = None
                raise RetryableError("died")
            return commit(target, *arguments)

        monkeypatch.setattr(TableCommit, "commit", failing)
        (folder / "in").mkdir()

    def add(self, *rows: dict[str, Any]) -> None:
        self._files += 1
        path = self._folder / "in" / f"{self._files}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (self._files, self._files))

    def run(self) -> list[BatchReport]:
        """Reads what is there; the reports of the batches until the driver dies."""
        commits = [TableCommit(table, "user") for table in self.tables]
        run = QueryRun(commits, TwoTableJob(commits), "user")
        context, reports = self._spark.sparkContext, []

        def write(frame: DataFrame, micro_batch_id: int) -> None:
            local = frame.sparkSession.sparkContext
            reports.append(run.write(frame, micro_batch_id, local.getLocalProperty(QUERY_ID_PROPERTY)))

        frame = self._spark.readStream.schema("_table int, id bigint, text string, number bigint")
        frame = frame.option("maxFilesPerTrigger", 1).json(str(self._folder / "in"))
        stream = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self._folder / "c"))
        query = stream.trigger(availableNow=True).start()
        with suppress(StreamingQueryException):
            assert query.awaitTermination(600)
        self.jobs.append(len(context.statusTracker().getJobIdsForGroup(str(query.runId))))
        run.close()
        return reports

    def committed(self) -> list[list[int]]:
        """The batches that each table holds."""
        return [[snapshot.commit_identifier for snapshot in table.snapshots()] for table in self.tables]

    def data_files(self) -> list[str]:
        """Whatever lies in the folders, committed or not."""
        return sorted(str(path) for path in (self._folder / "w").rglob("data-*"))


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


ORDER, ITEM = {"_table": 0, "id": 1, "text": "a"}, {"_table": 1, "id": 1, "number": 7}


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(spark, tmp_path, monkeypatch)


@pytest.mark.spark
def test_a_batch_that_was_begun_is_finished_table_by_table(query: Query) -> None:
    query.add(ORDER, ITEM, ORDER | {"id": 2})
    query.dies_at = "s.items"
    assert query.run() == []
    assert query.committed() == [[0], []]
    assert query.dies_at is None
    files = query.data_files()
    (report,) = query.run()
    assert query.committed() == [[0], [0]]
    assert [name for name in query.data_files() if "orders" in name] == [name for name in files if "orders" in name]
    assert (report.read_count, report.result.applied, report.is_replay) == (3, 3, False)
    assert report.snapshot_ids == (1,)
    assert list(report.result.messages) == [1], "rows of the table that holds the batch are counted, not written"
    assert _rows(query.tables[0]) == [(1, "a"), (2, "a")]
    assert _rows(query.tables[1]) == [(1, 7)]
    assert query.jobs == [1, 1]


@pytest.mark.spark
def test_tables_without_rows_of_a_batch_are_not_committed(query: Query) -> None:
    query.add(ORDER)
    query.add(ITEM)
    query.add(ORDER | {"id": 3}, ITEM | {"id": 3})
    reports = query.run()
    assert query.committed() == [[0, 2], [1, 2]]
    assert [report.snapshot_ids for report in reports] == [(1,), (1,), (2, 2)]
    assert query.jobs == [3]


def test_only_a_table_of_all_batches_shows_that_one_is_missing() -> None:
    commits: list[Any] = [None, None]
    with pytest.raises(ValueError, match="no table of several holds all"):
        QueryRun(commits, TwoTableJob(commits), "user", writes_all_batches=True)
