"""Checkpoints that only Spark's file systems reach: the same files, the same refusals as on a local disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.checks.unread_records import finished_offsets
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint, as_folder, local_folder, spark_path
from freshet.pipeline.identity.checkpoint_offsets import checkpoint_offsets
from freshet.pipeline.identity.checkpoint_owner import OWNER_FILE, checkpoint_problem, claim_checkpoint, query_id_of
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables
from freshet.pipeline.identity.checkpoint_topics import TOPICS_FILE, claim_topics
from freshet.pipeline.spark.hadoop_folder import HadoopFolder, open_checkpoint
from freshet.storage.catalog import Catalog

pytestmark = pytest.mark.spark


def test_spark_is_asked_for_what_is_not_local(spark: SparkSession, tmp_path: Path) -> None:
    assert isinstance(open_checkpoint(spark, str(tmp_path)), LocalCheckpoint)
    assert isinstance(open_checkpoint(spark, tmp_path.as_uri()), LocalCheckpoint)
    assert as_folder("hdfs://name/checkpoint") is None
    with pytest.raises(OSError, match='No FileSystem for scheme "gopher"'):
        open_checkpoint(spark, "gopher://host/checkpoint")


@pytest.mark.parametrize("name", ["a b", "a%20b", "a b%25", "späť", "c"])
def test_spark_finds_the_folder_that_freshet_finds(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for given in (str(folder), folder.as_uri(), folder.as_uri().replace("file:///", "file:/")):
        HadoopFolder(spark, spark_path(given)).replace("a", given)
        assert local_folder(given) == folder and (folder / "a").read_text() == given
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert spark_path("hdfs://name/a%20b") == "hdfs://name/a%20b"


def test_files_appear_whole_and_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    folder = HadoopFolder(spark, f"{tmp_path.as_uri()}/not/there yet/")
    assert folder.read("a") is None
    assert folder.numbers("commits") == []
    assert folder.write_problem() is None
    folder.replace("a", "first")
    folder.replace("a", "zweites, größer")
    assert folder.read("a") == "zweites, größer"
    for name in ("3", "10", "x", ".9.crc"):
        (tmp_path / "not" / "there yet" / "commits").mkdir(exist_ok=True)
        (tmp_path / "not" / "there yet" / "commits" / name).touch()
    assert sorted(folder.numbers("commits")) == [3, 10]
    names = {name for name in os.listdir(tmp_path / "not" / "there yet") if not name.endswith(".crc")}
    assert names == {"a", "commits"}
    assert folder.place("a").endswith("/not/there yet/a")


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = HadoopFolder(spark, f"{tmp_path.as_uri()}/file/checkpoint")
    assert "Exception" in str(folder.write_problem())
    with pytest.raises(OSError, match="Exception"):
        folder.replace("a", "text")


def test_the_owner_the_topics_and_the_tables_are_kept_there(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(tmp_path / "w").create_table("db.t", schema={"id": "BIGINT"})
    folder = HadoopFolder(spark, f"{tmp_path.as_uri()}/c")
    claim_checkpoint(folder, pipeline="orders", table=table)
    assert json.loads((tmp_path / "c" / OWNER_FILE).read_text())["pipeline"] == "orders"
    assert checkpoint_problem(folder, pipeline="orders", table=table) is None
    assert "belongs to pipeline 'orders', not 'others'" in str(
        checkpoint_problem(folder, pipeline="others", table=table)
    )
    assert "which is not there" in str(checkpoint_problem(folder, pipeline="orders", table=None))

    claim_topics(folder, {"a": "1"})
    claim_topics(folder, {"b": "2"})
    assert json.loads((tmp_path / "c" / TOPICS_FILE).read_text()) == {"a": "1", "b": "2"}
    with pytest.raises(ConfigurationError, match=f"topic a was deleted and created again.*remove file:.*{TOPICS_FILE}"):
        claim_topics(folder, {"a": "3"})

    CheckpointTables(folder, "user").note(table, 0)
    (marker,) = (tmp_path / "c").glob("freshet-table-*.json")
    folder.replace(marker.name, json.dumps({"created_ms": 0}))
    with pytest.raises(PipelineFailedError, match="dropped and created again"):
        CheckpointTables(folder, "user").refuse_other(table, 1, 0)


def test_what_spark_has_written_is_read_there(spark: SparkSession, tmp_path: Path) -> None:
    for name, number in (("offsets", 4), ("offsets", 5), ("commits", 4)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / str(number)).write_text(f'v1\n{{}}\n{{"t": {{"0": {number}}}}}\n')
    (tmp_path / "metadata").write_text('{"id": "the-query"}')
    folder = HadoopFolder(spark, tmp_path.as_uri())
    assert query_id_of(folder) == "the-query"
    assert checkpoint_offsets(folder, 0) == checkpoint_offsets(str(tmp_path), 0) is not None
    assert finished_offsets(folder) == finished_offsets(str(tmp_path)) != {}
    assert "is not Freshet's" in str(checkpoint_problem(folder, pipeline="orders", table=None))
