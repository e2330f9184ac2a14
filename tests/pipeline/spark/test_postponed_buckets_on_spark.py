"""Batches of Spark into tables whose rows wait for their bucket (`bucket=-2`), and their compaction on executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet import Catalog
from freshet.pipeline.commands.executors import executors
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.commit.committer import Committer
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.table import Table
from tests.kit.spark import inside_query

pytestmark = pytest.mark.spark

COLUMNS = {"p": "INT NOT NULL", "k": "BIGINT NOT NULL", "name": "STRING", "v": "BIGINT"}


def create(path: Path, *, partitioned: bool = True, **options: str) -> Table:
    given = {"bucket": "-2", "postpone.default-bucket-num": "3", **options}
    return Catalog(str(path)).create_table(
        "db.t", schema=COLUMNS, primary_keys=["p", "k"], partition_keys=["p"] if partitioned else [], options=given
    )


def frame(spark: SparkSession, start: int, end: int, value: int) -> Any:
    return spark.range(start, end, 1, 3).select(
        F.pmod(F.col("id"), F.lit(2)).cast("int").alias("p"),
        F.col("id").alias("k"),
        F.lit(value).cast("bigint").alias("v"),
        F.when(F.col("id") % 10 == value, "-D").otherwise("+I").alias("_ROW_KIND"),
    )


def found(table: Table) -> dict[int, int]:
    keyed = {row["k"]: row["v"] for row in table.scan(["k", "v"]).to_arrow().to_pylist()}
    assert table.scan().count() == len(keyed), "a key is in two buckets"
    return keyed


def waiting(table: Table) -> list[str]:
    return [entry.file.file_name for entry in table.files() if entry.bucket == -2]


@pytest.mark.few(1)
@pytest.mark.parametrize("partitioned", [True, False])
def test_rows_wait_in_the_files_of_their_task(spark: SparkSession, tmp_path: Path, partitioned: bool) -> None:
    table = create(tmp_path, partitioned=partitioned)
    sink = table_sink(str(tmp_path), "db.t", commit_user="my-stream")
    expected: dict[int, int] = {}
    with inside_query(spark):
        for batch, (start, end) in enumerate([(0, 300), (200, 350), (0, 400)]):
            sink(frame(spark, start, end, batch), batch)
            for key in range(start, end):
                expected.pop(key, None)
                if key % 10 != batch:
                    expected[key] = batch
    assert found(table) == {}
    writers = {name.partition("-w-")[0] for name in waiting(table)}
    assert len(writers) > 1 and all(writer.startswith("data--u-my_stream-s-") for writer in writers)
    keys: dict[int, set[str]] = {}
    for entry in table.files():
        for row in read_waiting(table, entry):
            keys.setdefault(row, set()).add(entry.file.file_name.partition("-w-")[0])
    assert all(len(each) == 1 for each in keys.values()), "all rows of a key are with one writer"
    with executors("freshet compact") as elsewhere:
        result = table.compact(elsewhere=elsewhere)
    assert result.snapshots and not result.aborted_compactions
    assert found(table) == expected
    assert waiting(table) == []
    assert not table.check(all_snapshots=True).damage


def read_waiting(table: Table, entry: Any) -> list[int]:
    place = (table.store, entry.partition, entry.bucket, entry.file)
    return [key for batch in DataFileRead(*place, ("k",)).batches() for key in batch.column("k").to_pylist()]


def test_a_batch_that_is_run_again_waits_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, **{"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"})
    commit = Committer.commit

    def lost(self: Committer, *arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Committer, "commit", commit)
        commit(self, *arguments, **named)
        raise OSError("the driver died before it heard of the commit")

    with inside_query(spark):
        table_sink(str(tmp_path), "db.t", commit_user="s")(frame(spark, 0, 50, 11), 0)
        monkeypatch.setattr(Committer, "commit", lost)
        with pytest.raises((OSError, PipelineFailedError)):
            table_sink(str(tmp_path), "db.t", commit_user="s")(frame(spark, 0, 50, 11), 1)
        again = table_sink(str(tmp_path), "db.t", commit_user="s")
        again(frame(spark, 0, 50, 11), 1)
        again(frame(spark, 0, 50, 11), 1)
    table.compact()
    assert found(table) == dict.fromkeys(range(50), 22)


def test_streams_of_upserts_read_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    with inside_query(spark):
        table_sink(str(tmp_path), "db.t", commit_user="s")(frame(spark, 0, 20, 5), 0)
    stream = table.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0, upserts=True)
    rows = pa.Table.from_batches(list(stream)).to_pylist()
    assert {(row["k"], row["_ROW_KIND"]) for row in rows} == {
        (key, "-D" if key % 10 == 5 else "+I") for key in range(20)
    }
