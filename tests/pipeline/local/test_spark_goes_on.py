"""Spark and the local engine on one checkpoint, in turns and at once.

The source is Spark's `rate-micro-batch`, and one that counts with the same offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.streaming import StreamingQuery

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import kind_of_text
from freshet.pipeline.exceptions import PipelineFailedError, brief_reason
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.local.local_query import BatchPoint, Trigger
from freshet.pipeline.local.stream_checkpoint import CONF, SHUFFLE_PARTITIONS
from tests.pipeline.local.counted import Counted, Died, Once, mortal

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 10
"""Of each batch."""


def _start(spark: SparkSession, folder: LocalCheckpoint, write: Callable[[int, int, int], None]) -> StreamingQuery:
    """Spark's query; `write` gets number, start and end of each batch."""
    options = {"rowsPerBatch": ROWS, "numPartitions": 1, "startTimestamp": 0, "advanceMillisPerBatch": ROWS}

    def write_batch(frame: DataFrame, number: int) -> None:
        first, last = frame.agg(F.min("value"), F.max("value")).collect()[0]
        write(number, first, last + 1)

    frame = spark.readStream.format("rate-micro-batch").options(**options).load()
    writer = frame.writeStream.foreachBatch(write_batch).option("checkpointLocation", folder.place())
    return writer.trigger(processingTime="0 seconds").start()


def _on_spark(spark: SparkSession, folder: LocalCheckpoint, table: Once, last: int, *, dies: str | None) -> None:
    """Runs batches on Spark up to one in which it dies, before or after its commit, or after which it is stopped."""

    def write(number: int, start: int, end: int) -> None:
        if number == last and dies == "before":
            raise RuntimeError("died")
        table.add(number, ((start, end),))
        if number == last and dies == "after":
            raise RuntimeError("died")

    query = _start(spark, folder, write)
    if dies is None:
        while query.lastProgress is None or query.lastProgress["batchId"] < last:
            assert query.isActive, query.exception()
            query.awaitTermination(1)
        query.stop()
    else:
        with pytest.raises(Exception, match="died"):
            query.awaitTermination(600)
    assert last in table.batches or dies == "before"


def _here(folder: LocalCheckpoint, table: Once, last: int, *, dies: BatchPoint | None) -> None:
    """The same here, by the point at which it dies."""
    query = mortal(folder, [Counted(1 << 40, limit=ROWS)], table.write, Trigger())

    def meets(point: BatchPoint) -> None:
        if query._log.next_number >= last and point is dies:
            raise Died
        if query._log.next_number > last:
            query.stop()

    query.meets = meets
    if dies is None:
        query.run()
    else:
        with pytest.raises(Died):
            query.run()


def _conf(folder: LocalCheckpoint, number: int) -> dict[str, Any]:
    conf: dict[str, Any] = orjson.loads((folder.read("offsets", str(number)) or "").split("\n")[1])["conf"]
    return conf


def test_engines_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """Over batch 10 and batch 101, and whatever died at the change."""
    folder, table = LocalCheckpoint(tmp_path / "c"), Once()
    _here(folder, table, 1, dies=None)
    assert _conf(folder, 1) == dict(CONF)
    _on_spark(spark, folder, table, 3, dies="before")
    assert _conf(folder, 2) == {**CONF, SHUFFLE_PARTITIONS: spark.conf.get(SHUFFLE_PARTITIONS)}
    _here(folder, table, 5, dies=BatchPoint.PLANNED)
    assert _conf(folder, 5) == _conf(folder, 2)
    _on_spark(spark, folder, table, 8, dies="after")
    _here(folder, table, 9, dies=BatchPoint.WRITTEN)
    _on_spark(spark, folder, table, 12, dies=None)
    _here(folder, table, 98, dies=BatchPoint.DONE)
    _on_spark(spark, folder, table, 103, dies="before")
    assert min(folder.numbers("offsets")) >= 2
    _here(folder, table, 115, dies=BatchPoint.WRITTEN)
    _on_spark(spark, folder, table, 117, dies=None)
    _here(folder, table, 125, dies=None)
    counts = table.counts()
    assert counts == [ROWS * (number + 1) for number in range(len(counts))] and len(counts) >= 125
    for name in ("offsets", "commits"):
        left = {path.name for path in (tmp_path / "c" / name).iterdir() if path.suffix == ".crc"}
        assert left <= {f".{number}.crc" for number in folder.numbers(name)}


def test_a_checkpoint_whose_first_batch_died_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder, table = LocalCheckpoint(tmp_path / "c"), Once()
    _on_spark(spark, folder, table, 0, dies="before")
    _here(folder, table, 2, dies=None)
    _on_spark(spark, folder, table, 4, dies=None)
    last = max(folder.numbers("commits"))
    folder.delete("commits", str(last))  # and with it Spark's checksum, which would keep Spark from writing it again
    _on_spark(spark, folder, table, last + 1, dies="after")
    assert table.counts()[:5] == [10, 20, 30, 40, 50]


def test_two_engines_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """One runs the batch of the other while that is in it: the other one is refused."""
    folder, table = LocalCheckpoint(tmp_path / "c"), Once()
    is_in, goes_on = threading.Event(), threading.Event()

    def write(number: int, start: int, end: int) -> None:
        if number == 1:
            is_in.set()
            assert goes_on.wait(600)
        table.add(number, ((start, end),))

    query = _start(spark, folder, write)
    assert is_in.wait(600)
    _here(folder, table, 3, dies=None)
    goes_on.set()
    with pytest.raises(Exception, match="CONCURRENT_STREAM_LOG_UPDATE|concurrently") as raised:
        query.awaitTermination(600)
    assert kind_of_text(str(raised.value)) is ErrorKind.INVALID_REQUEST
    assert "another run of this pipeline" in brief_reason(raised.value)

    here = mortal(folder, [Counted(1 << 40, limit=ROWS)], table.write, Trigger())

    def meets(point: BatchPoint) -> None:
        if point is BatchPoint.PLANNED:
            _on_spark(spark, folder, table, 6, dies=None)

    here.meets = meets
    with pytest.raises(PipelineFailedError, match="another run of this pipeline"):
        here.run()
    assert table.counts()[:7] == [10, 20, 30, 40, 50, 60, 70]
