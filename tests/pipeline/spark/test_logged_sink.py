"""A streaming query into a table with a log: its tasks log what they write, and readers of the log see it once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from freshet import Catalog, Table
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.writing.publisher import TopicPublisher
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.spark.table_sink import table_sink
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.schema.change import SetOption
from tests.logstore.caught_up import CaughtUp
from tests.logstore.logged_tables import SCHEMA, folded, held, on_broker
from tests.logstore.writing.published import changelog_by_bucket
from tests.logstore.writing.test_real_publisher import seen

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_NUMBERS = itertools.count()


@pytest.fixture
def table(kafka_broker: ForeignBroker, tmp_path: Path) -> Table:
    options = on_broker(kafka_broker)
    return Catalog(str(tmp_path)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options=options)


def _run(spark: SparkSession, root: Path, rows: Sequence[tuple[str, int, str]] = ()) -> None:
    """A run to the end of the input, to which these rows are added as a file."""
    (root / "in").mkdir(exist_ok=True)
    if rows:
        documents = (json.dumps({"_ROW_KIND": kind, "k": key, "v": value}) for kind, key, value in rows)
        (root / "in" / f"{next(_NUMBERS):06}.json").write_text("\n".join(documents))
    frame = spark.readStream.schema("_ROW_KIND string, k bigint, v string").json(str(root / "in"))
    sink = table_sink(str(root), "db.t", commit_user="stream")
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(root / "checkpoint"))
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        sink.close()


def _readers(table: Table) -> dict[str, CaughtUp]:
    return {isolation: CaughtUp(table, isolation) for isolation in ("committed", "speculative")}


@pytest.mark.always("crossing: log")
def test_readers_of_both_isolations_follow_a_query(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    readers = _readers(table)
    found: dict[str, dict[int, str]] = {isolation: {} for isolation in readers}
    for rows in (
        [("+I", key, f"a{key}") for key in range(20)],
        [("+I", 3, "b"), ("-D", 4, "x"), ("+I", 30, "c")],
        [("+I", 3, "d")],
    ):
        _run(spark, tmp_path, rows)
        for isolation, reader in readers.items():
            found[isolation] = folded(reader(), found[isolation])
            assert found[isolation] == held(table)


@pytest.mark.slow
def test_a_batch_that_is_replayed_is_silent(
    spark: SparkSession, tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a batch fails when its changes are in the log; the next run replays it in another epoch."""
    _run(spark, tmp_path, [("+I", 1, "a"), ("+I", 2, "b")])
    readers = _readers(table)
    before = {isolation: folded(reader()) for isolation, reader in readers.items()}
    commit = Committer.commit

    def failing(self: Committer, *arguments: Any, **named: Any) -> Any:
        raise RetryableError("the disk is full")

    monkeypatch.setattr(Committer, "commit", failing)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        _run(spark, tmp_path, [("+I", 1, "c"), ("-D", 2, "x"), ("+I", 3, "d")])
    monkeypatch.setattr(Committer, "commit", commit)
    shown = readers["speculative"]()
    after = folded(shown, before["speculative"])
    assert after == {1: "c", 3: "d"}
    assert readers["committed"]() == ""
    _run(spark, tmp_path)
    assert held(table) == {1: "c", 3: "d"}
    assert readers["speculative"]() == ""
    assert folded(readers["committed"](), before["committed"]) == held(table)


@pytest.mark.slow
def test_rows_that_another_writer_overtook_are_logged_as_another_attempt(
    spark: SparkSession, tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits between the tasks of a batch and its commit: the batch is numbered and logged again."""
    _run(spark, tmp_path, [("+I", key, "a") for key in range(10)])
    readers = _readers(table)
    found = {isolation: folded(reader()) for isolation, reader in readers.items()}
    commit = TableCommit.commit

    def commit_late(self: TableCommit, *arguments: Any) -> Any:
        with Table.open(self.table.location).without_log().writer("other", parallelism=1) as other:
            other.write([{"k": key, "v": "other"} for key in range(3)])
            other.commit()
        return commit(self, *arguments)

    monkeypatch.setattr(TableCommit, "commit", commit_late)
    _run(spark, tmp_path, [("+I", 1, "b"), ("-D", 2, "x"), ("+I", 30, "c")])
    assert held(table) == {0: "other", 1: "b", **dict.fromkeys(range(3, 10), "a"), 30: "c"}
    for isolation, reader in readers.items():
        found[isolation] = folded(reader(), found[isolation])
        assert found[isolation] == held(table), isolation


def test_a_log_has_one_user(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    _run(spark, tmp_path, [("+I", 1, "a")])
    with pytest.raises(InvalidRequestError, match="stream"):
        table_sink(str(tmp_path), "db.t", commit_user="another")


def test_a_query_publishes_what_it_has_committed(
    spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = table.options.given["kafka.topic"]
    table.alter(SetOption("log.consistency", "transactional"), SetOption("log.format", "debezium-json"))
    _run(spark, tmp_path, [("+I", key, f"a{key}") for key in range(20)])
    assert seen(kafka_broker, topic, 2) == changelog_by_bucket(table)
    publish = TopicPublisher.publish
    monkeypatch.setattr(TopicPublisher, "publish", lambda self: None)  # as where the driver dies after the commit
    _run(spark, tmp_path, [("+I", 3, "b"), ("-D", 4, "x"), ("+I", 30, "c")])
    assert seen(kafka_broker, topic, 2) != changelog_by_bucket(table)
    monkeypatch.setattr(TopicPublisher, "publish", publish)
    _run(spark, tmp_path, [("+I", 3, "d")])
    parts = seen(kafka_broker, topic, 2)
    assert parts == changelog_by_bucket(table)
    assert folded(parts[0]) | folded(parts[1]) == held(table)
