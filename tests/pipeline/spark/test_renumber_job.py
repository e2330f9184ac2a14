"""A batch whose rows another writer has overtaken before its commit: its files are numbered again by a Spark job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.query_run import QueryRun
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.spark.table_sink import table_sink

pytestmark = pytest.mark.spark

COLUMNS = {"k": "BIGINT NOT NULL", "v": "STRING", "n": "BIGINT"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "lookup"}


def overtake(monkeypatch: pytest.MonkeyPatch, keys: range) -> list[BatchReport]:
    """Before each batch commits, another writer commits these keys; gives the reports of the batches."""
    reports: list[BatchReport] = []
    write, commit = QueryRun.write, TableCommit.commit

    def commit_late(self: TableCommit, *arguments: Any) -> Any:
        with Table.open(self.table.location).writer("other", parallelism=1) as other:
            other.write(pa.Table.from_pylist([{"k": key, "v": "other", "n": 10} for key in keys]))
            other.commit()
        return commit(self, *arguments)

    def reported(self: QueryRun, *arguments: Any) -> BatchReport:
        reports.append(write(self, *arguments))
        return reports[-1]

    monkeypatch.setattr(TableCommit, "commit", commit_late)
    monkeypatch.setattr(QueryRun, "write", reported)
    return reports


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, SUM], ids=["deduplicate", "sum-lookup"])
def test_the_batch_that_commits_last_wins(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["k"], options={"bucket": "2"} | options
    )
    reports = overtake(monkeypatch, range(5))
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("k bigint, v string, n bigint").json(str(tmp_path / "in"))
    for number in range(2):
        rows = [json.dumps({"k": key, "v": f"batch-{number}", "n": 1}) for key in range(10)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(rows))
        sink = table_sink(str(tmp_path), "db.t", commit_user="stream")
        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        sink.close()
    found = {row["k"]: (row["v"], row["n"]) for row in table.scan().to_arrow().to_pylist()}
    sums = {key: 22 if key < 5 else 2 for key in range(10)} if options else dict.fromkeys(range(10), 1)
    assert found == {key: ("batch-1", sums[key]) for key in range(10)}
    assert [report.rewrite_count for report in reports] == [1, 1]
    assert all(report.rewritten_bytes > 0 for report in reports)
    if options:
        fold: dict[int, tuple[str, int]] = {}
        for row in table.changelog().to_arrow().to_pylist():
            value = (row["v"], row["n"])
            if row["_ROW_KIND"] in ("-U", "-D"):
                assert fold.pop(row["k"]) == value
            else:
                fold[row["k"]] = value
        assert fold == found
