"""A table that was created again does not go on in silence without the batches before; what is legitimate goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from freshet import Catalog, Table, table_sink
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables


def created(folder: Path, name: str = "db.t", column: str = "id") -> Table:
    """The table, created again where it is there."""
    catalog = Catalog(folder / "warehouse")
    if catalog.has_table(name):
        before = catalog.table(name).engine.created_ms()
        catalog.drop_table(name)
        while (table := _made(catalog, name, column)).engine.created_ms() == before:
            catalog.drop_table(name)  # within one millisecond
        return table
    return _made(catalog, name, column)


def _made(catalog: Catalog, name: str, column: str) -> Table:
    return catalog.create_table(name, schema={column: "BIGINT"}, primary_keys=[column], options={"bucket": "1"})


def marker(checkpoint: Path) -> Path:
    (file,) = checkpoint.glob("freshet-table-*.json")
    return file


def test_only_batches_that_were_committed_are_missed(tmp_path: Path) -> None:
    table = created(tmp_path)
    for checkpoint in (str(tmp_path), tmp_path.as_uri()):
        first = CheckpointTables(checkpoint)
        first.refuse_recreated(
            table, 7
        )  # a table that a query writes from some batch on, or a checkpoint of an earlier version
        first.note(table)
        CheckpointTables(checkpoint).refuse_recreated(table, 8)
    CheckpointTables(str(tmp_path)).note(other := created(tmp_path, "db.other"))
    assert len(list(tmp_path.glob("freshet-table-*.json"))) == 2
    again = created(tmp_path)
    with pytest.raises(PipelineFailedError, match=r"db\.t was dropped and created again .*batch 8.*new checkpoint"):
        CheckpointTables(str(tmp_path)).refuse_recreated(again, 8)
    CheckpointTables(str(tmp_path)).refuse_recreated(other, 8)
    replayed = CheckpointTables(str(tmp_path))
    replayed.refuse_recreated(again, 0)  # Spark gives all rows again
    replayed.note(again)
    CheckpointTables(str(tmp_path)).refuse_recreated(again, 1)


def test_folders_elsewhere_and_damaged_files(tmp_path: Path) -> None:
    table = created(tmp_path)
    elsewhere = CheckpointTables("s3a://bucket/checkpoint")
    elsewhere.refuse_recreated(table, 1)
    elsewhere.note(table)
    CheckpointTables(str(tmp_path)).note(table)
    for text in ("{", "[]", "{}"):
        marker(tmp_path).write_text(text)
        with pytest.raises(PipelineFailedError, match="is damaged.*remove that file"):
            CheckpointTables(str(tmp_path)).refuse_recreated(table, 1)


def _run(spark: SparkSession, folder: Path, number: int, *, checkpoint: str = "c", user: str = "user") -> None:
    """The query over the files that are there, with one more."""
    path = folder / "in" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"id": {number}}}\n')
    os.utime(path, (number, number))
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(str(folder / "in")).writeStream
    stream = stream.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
    query = stream.foreachBatch(table_sink(str(folder / "warehouse"), "db.t", commit_user=user)).start()
    assert query.awaitTermination(600)


def _ids(folder: Path) -> list[int]:
    return sorted(Catalog(folder / "warehouse").table("db.t").scan().to_arrow()["id"].to_pylist())


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_into_a_table_that_was_created_again(spark: SparkSession, tmp_path: Path) -> None:
    created(tmp_path, column="other")
    with pytest.raises(StreamingQueryException):
        _run(spark, tmp_path, 1)
    created(tmp_path)  # nothing was committed: nothing is missing
    _run(spark, tmp_path, 2)
    _run(spark, tmp_path, 3, user="another")
    table = Catalog(tmp_path / "warehouse").table("db.t")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert len(table.snapshots()) == 1
    _run(spark, tmp_path, 4)
    assert _ids(tmp_path) == [1, 2, 3, 4]
    assert json.loads(marker(tmp_path / "c").read_text())["created_ms"] == table.engine.created_ms()

    created(tmp_path)
    for user in ("user", "another"):
        with pytest.raises(StreamingQueryException, match="InvalidRequestError: table db.t was dropped and created"):
            _run(spark, tmp_path, 5, user=user)
    assert _ids(tmp_path) == []
    marker(tmp_path / "c").unlink()
    _run(spark, tmp_path, 6)
    assert _ids(tmp_path) == [5, 6]
    _run(spark, tmp_path, 7, checkpoint="new", user="new")  # a new checkpoint, a table that is there
    assert _ids(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
