"""A table that was created again does not go on in silence without the batches before; what is legitimate goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from freshet import Catalog, Table, table_sink
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_tables import CheckpointTables, one_call, users_of


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


def tables_of(checkpoint: Path | str, user: str = "user") -> CheckpointTables:
    return CheckpointTables(str(checkpoint), user)


def test_only_batches_that_were_committed_are_missed(tmp_path: Path) -> None:
    table = created(tmp_path)
    for checkpoint in (str(tmp_path), tmp_path.as_uri()):
        first = tables_of(checkpoint)
        first.refuse_other(table, 7, None)  # written from some batch on, or a checkpoint of an earlier version
        first.note(table, 7)
        tables_of(checkpoint).refuse_other(table, 8, 7)
        marker(tmp_path).unlink()
    tables_of(tmp_path).note(table, 7)
    tables_of(tmp_path).note(other := created(tmp_path, "db.other"), 7)
    assert len(list(tmp_path.glob("freshet-table-*.json"))) == 2
    again = created(tmp_path)
    with pytest.raises(PipelineFailedError, match=r"db\.t was dropped and created again .*batch 8.*new checkpoint"):
        tables_of(tmp_path).refuse_other(again, 8, None)
    tables_of(tmp_path).refuse_other(other, 8, 7)
    replayed = tables_of(tmp_path)
    replayed.refuse_other(again, 0, None)  # Spark gives all rows again
    replayed.note(again, 0)
    tables_of(tmp_path).refuse_other(again, 1, 0)


def test_folders_elsewhere_and_damaged_files(tmp_path: Path) -> None:
    table = created(tmp_path)
    elsewhere = tables_of("s3a://bucket/checkpoint")
    elsewhere.refuse_other(table, 1, None)
    elsewhere.note(table, 1)
    tables_of(tmp_path).note(table, 0)
    for text in ("{", "[]", "{}", '{"created_ms": 1, "users": 3}'):
        marker(tmp_path).write_text(text)
        with pytest.raises(PipelineFailedError, match="is damaged.*remove that file"):
            tables_of(tmp_path).refuse_other(table, 1, None)


def test_a_table_that_lacks_batches_of_the_checkpoint(tmp_path: Path) -> None:
    """Rolled back, or restored; batches that a function leaves out are not missed."""
    table = created(tmp_path)
    running = tables_of(tmp_path)
    running.note(table, 3)
    running.note(table, 7)
    for checked in (running, tables_of(tmp_path)):
        checked.refuse_other(table, 12, 7)  # 8 to 11 were left out
        for committed, missing in ((5, "batches 6 to 7"), (6, "batch 7"), (None, "batches 0 to 7")):
            with pytest.raises(PipelineFailedError, match=rf"does not hold {missing} of commit user 'user'.*remove"):
                checked.refuse_other(table, 8, committed)
    marker(tmp_path).unlink()
    tables_of(tmp_path).refuse_other(table, 8, 5)


def test_another_commit_user_is_refused_and_a_second_sink_is_not(tmp_path: Path) -> None:
    table = created(tmp_path)
    tables_of(tmp_path).note(table, 7)
    with pytest.raises(PipelineFailedError, match=r"as commit user 'user' up to batch 7.*batch 8 as 'b'.*would be wr"):
        tables_of(tmp_path, "b").refuse_other(table, 8, None)
    second = tables_of(tmp_path, "b")
    second.refuse_other(table, 8, None, called={"user"})
    second.note(table, 8)
    assert json.loads(marker(tmp_path).read_text())["users"] == {"user": 7, "b": 8}
    for user, committed in (("user", 7), ("b", 8)):
        tables_of(tmp_path, user).refuse_other(table, 9, committed)
    document = json.loads(marker(tmp_path).read_text())
    del document["users"]  # as earlier versions wrote it
    marker(tmp_path).write_text(json.dumps(document))
    tables_of(tmp_path, "c").refuse_other(table, 9, None)


def test_a_call_for_a_batch_is_the_only_one_while_it_goes_on_and_after_it(tmp_path: Path) -> None:
    table = created(tmp_path)
    for number in (0, 1):
        with pytest.raises(ZeroDivisionError), one_call("run", number, table, "user"):
            raise ZeroDivisionError  # it may be made again
        refused = pytest.raises(InvalidRequestError, match=f"batch {number} was given")
        with one_call("run", number, table, "user"), one_call("run", number, table, "other"), refused:
            one_call("run", number, table, "user").__enter__()
        assert users_of("run", number, table) == {"user", "other"}
        with pytest.raises(InvalidRequestError, match=f"batch {number} was given"):
            one_call("run", number, table, "user").__enter__()
    with one_call("the next run", 1, table, "user"):
        pass


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
    with pytest.raises(StreamingQueryException, match="as commit user 'user' up to batch"):
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
