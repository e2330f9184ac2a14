"""Tasks of a micro-batch, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.pipeline.decode.json.reader import FastReader
from freshet.pipeline.decode.outcomes import SUB, TAG, TAG_GONE
from freshet.pipeline.exceptions import PipelineFailedError, StoppedByRecordError
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.task.write_task import WriteTask, _within
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.storage.catalog import Catalog
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import ConflictError, RetryableError
from freshet.storage.table import Table
from freshet.storage.table_engine import TaskLog
from freshet.storage.write.commit_compaction import CompactionLimit
from tests.kit.rescaled import with_buckets
from tests.kit.task_runs import task_result, task_results
from tests.logstore.logged_tables import fake_kafka, make_logged
from tests.pipeline.query.outcome_rows import data, dead, outcome_table, tally
from tests.pipeline.records import TOAST, Record, change, decoder_of, pipeline_of, raw_batch


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    return Catalog(str(tmp_path)).create_table(
        "db.k", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options={"bucket": "1"}
    )


PIN = BatchPin(0, 0, None, None)


def _work(table: Table) -> TableWork:
    return TableWork(table.handle, "p", ("k", "v"), table.options.bucket)


@pytest.mark.parametrize("error", [pa.ArrowInvalid("offset overflow"), pa.lib.ArrowCapacityError("full"), KeyError(3)])
def test_an_error_that_would_come_again_is_a_result(
    keyed: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(WriteTask, "_finish", fail)
    rows = outcome_table(keyed.schema, [data(1, 1, "a"), tally(1)])
    with pytest.raises(PipelineFailedError, match=f"would fail again: {type(error).__name__}"):
        task_result(_work(keyed), PIN, rows.to_batches())


@pytest.mark.parametrize("error", [OSError("no space"), MemoryError(), RetryableError("later")])
def test_an_error_that_may_pass_is_raised(keyed: Table, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(WriteTask, "_finish", fail)
    rows = outcome_table(keyed.schema, [data(1, 1, "a"), tally(1)])
    with pytest.raises(type(error)):
        task_results(_work(keyed), PIN, rows.to_batches())


def test_the_second_row_of_a_dead_letter_is_left_out(keyed: Table, tmp_path: Path) -> None:
    dead_letters = open_dead_letters(Catalog(str(tmp_path)), "db.dead")
    work = replace(_work(keyed), dead_letters=dead_letters.handle)
    gone = dead(2, column=None) | {SUB: 1, TAG: TAG_GONE}
    rows = outcome_table(keyed.schema, [data(1, 1, "a"), dead(2, column=None), gone, tally(2)])
    result = task_result(work, PIN, rows.to_batches())
    assert (result.read_count, result.applied, result.dead_count, result.notes) == (2, 1, 1, {})
    Committer(dead_letters.store, "stream").commit(0, result.dead_letter_messages)
    assert dead_letters.scan().to_arrow()["log_offset"].to_pylist() == [2]


@pytest.mark.parametrize(("files", "option", "routed"), [(2, 3, 3), (4, 4, 2), (2, 3, None), (2, 2, None)])
def test_a_row_goes_to_the_bucket_that_its_partition_has_for_it(
    tmp_path: Path, files: int, option: int, routed: int | None
) -> None:
    """Files of `files` buckets, then the option is `option`, and the rows of the task were routed to `routed`."""
    table = Catalog(str(tmp_path)).create_table(
        "db.k", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options={"bucket": str(files)}
    )
    with table.writer("before") as writer:
        writer.write(pa.table({"k": range(20), "v": ["old"] * 20}))
        writer.commit()
    if option != files:
        table = with_buckets(table, str(option))
    assert table.engine.is_rescaled() == (option != files)
    work, pin = replace(_work(table), bucket_count=routed), BatchPin(0, table.schema.id, None, 1)
    keys = range(20) if routed is None else [0]
    rows = outcome_table(table.schema, [*(data(key, key, "new") for key in keys), tally(20)], bucket_count=routed or 1)
    if routed is None:
        Committer(table.store, "stream").commit(0, task_result(work, pin, rows.to_batches()).messages[0])
        assert {entry.total_buckets for entry in table.files()} == {files}
        assert table.scan().to_arrow()["v"].to_pylist() == ["new"] * 20
    else:
        message = f"has {files} buckets, and rows for it were routed to {routed}.*Start the stream again"
        with pytest.raises(ConflictError, match=message):
            task_result(work, pin, rows.to_batches())


def test_rows_of_a_task_are_newer_than_those_committed_since_the_driver_looked(keyed: Table) -> None:
    """The driver saw the empty table; another writer was faster, with more rows than the task has."""
    with keyed.writer("other") as writer:
        writer.write(pa.table({"k": [1, 1, 1, 2], "v": ["x", "y", "z", "other"]}))
        writer.commit()
    rows = outcome_table(keyed.schema, [data(1, 1, "task"), tally(1)])
    Committer(keyed.store, "stream").commit(0, task_result(_work(keyed), PIN, rows.to_batches()).messages[0])
    assert sorted(map(tuple, (row.values() for row in keyed.scan().to_arrow().to_pylist()))) == [
        (1, "task"),
        (2, "other"),
    ]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_so_are_those_that_are_logged_as_they_are_written(tmp_path: Path, producer: str) -> None:
    with fake_kafka():
        table = make_logged(tmp_path, changelog_producer=producer)
        driver = table.engine.log.open("stream")
        with table.without_log().writer("other") as writer:
            writer.write(pa.table({"k": [1, 1, 1, 2], "v": ["x", "y", "z", "other"]}))
            writer.commit()
        pin = BatchPin(0, 0, None, None, log=TaskLog(driver.identity, driver.epoch, 0))
        rows = outcome_table(table.schema, [data(1, 1, "task"), tally(1)])
        messages = task_result(_work(table), pin, rows.to_batches()).messages[0]
        table.engine.committer("stream", log=driver.identity).commit(0, messages)
        table.without_log().compact()
        assert {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == {1: "task", 2: "other"}


def test_a_worker_that_had_a_table_open_does_not_take_the_next_one_of_the_name_for_it(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    for columns in ({"k": "BIGINT", "w": "STRING"}, {"k": "BIGINT", "v": "STRING"}):
        table = catalog.create_table("db.k", schema=columns, primary_keys=["k"], options={"bucket": "1"})
        rows = outcome_table(table.schema, [data(1, 1, "task"), tally(1)])
        work, pin = replace(_work(table), columns=tuple(columns)), BatchPin(0, 0, table.schema.time_ms, None)
        Committer(table.store, "stream").commit(0, task_result(work, pin, rows.to_batches()).messages[0])
        assert [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()] == [(1, "task")]
        catalog.drop_table("db.k")
    catalog.create_table("db.k", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options={"bucket": "1"})
    with pytest.raises(ConflictError, match="dropped and created again"):
        task_result(work, BatchPin(0, 0, 1, None), rows.to_batches())


def test_what_stopped_a_decoder_is_raised_by_the_driver_as_what_it_is(keyed: Table) -> None:
    """Reported in the tally: an exception in the decoding stage would make Spark try the same records four times."""
    records = [change("c", None, {"k": 1, "v": "a", "new": 5})]
    decoder = decoder_of(pipeline_of({"k": "BIGINT", "v": "STRING"}, primary_key=["k"], on_unknown_field="fail"))
    outcomes = decoder(iter([raw_batch(records)]))
    with pytest.raises(StoppedByRecordError) as caught:
        task_result(_work(keyed), PIN, outcomes)
    assert "unknown field new" in caught.value.message


def test_an_error_of_a_decoder_that_would_come_again_is_a_result(keyed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("no such field")

    monkeypatch.setattr(FastReader, "read", fail)
    decoder = decoder_of(pipeline_of({"k": "BIGINT", "v": "STRING"}, primary_key=["k"]))
    outcomes = decoder(iter([raw_batch([change("c", None, {"k": 1, "v": "a"})])]))
    with pytest.raises(PipelineFailedError, match="would fail again: KeyError: 'no such field'"):
        task_result(_work(keyed), PIN, outcomes)


def test_an_error_of_what_a_decoder_reads_is_raised(keyed: Table) -> None:
    """Reading from Spark may succeed when it is tried again."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield raw_batch([change("c", None, {"k": 1, "v": "a"})])
        raise pa.ArrowInvalid("the stream broke off")

    decoder = decoder_of(pipeline_of({"k": "BIGINT", "v": "STRING"}, primary_key=["k"]))
    with pytest.raises(pa.ArrowInvalid, match="broke off"):
        list(decoder(broken()))


LONG = "x" * 40
UNCHANGED: dict[str, list[tuple[list[Any], list[tuple[int, str]], int]]] = {
    # Batches: records, what the table holds then, dead letters.
    "debezium-json": [
        ([change("c", None, {"k": 1, "v": LONG})], [(1, LONG)], 0),
        ([change("u", None, {"k": 1, "v": TOAST})], [(1, LONG)], 0),
        ([change("d", {"k": 1}), None, Record(change("c", None, {"k": 2, "v": TOAST}), old_key={"k": 1})],
         [(2, LONG)], 0),
        ([Record(change("d", {"k": 2}, lsn=7), 2), change("c", None, {"k": 3, "v": TOAST}, lsn=7)], [(3, LONG)], 0),
        ([change("c", None, {"k": 4, "v": TOAST})], [(3, LONG)], 1),
    ],
    "debezium-unwrapped": [
        ([{"k": 1, "v": LONG}], [(1, LONG)], 0),
        ([{"k": 1, "v": TOAST}], [(1, LONG)], 0),
        ([Record(None, {"k": 1}), Record({"k": 2, "v": TOAST}, old_key={"k": 1})], [(2, LONG)], 0),
        ([{"k": 3, "v": TOAST}], [(2, LONG)], 1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", UNCHANGED)
def test_a_placeholder_is_never_stored(keyed: Table, tmp_path: Path, form: str) -> None:
    dead_letters = open_dead_letters(Catalog(str(tmp_path)), "db.dead")
    decoder = decoder_of(pipeline_of({"k": "BIGINT", "v": "STRING"}, primary_key=["k"], format=form))
    for number, (records, rows, dead_count) in enumerate(UNCHANGED[form]):
        pin = BatchPin(number, keyed.schema.id, None, keyed.store.snapshots.latest_id())
        work = replace(_work(keyed), dead_letters=dead_letters.handle)
        result = task_result(work, pin, decoder(iter([raw_batch(records)])))
        Committer(keyed.store, "stream").commit(number, result.messages.get(0, ()))
        assert [tuple(row.values()) for row in keyed.scan().to_arrow().to_pylist()] == rows
        assert result.dead_count == dead_count


def test_the_time_for_compactions_is_that_of_all_tables() -> None:
    busy = frozenset([(b"", 1)])
    pin = replace(PIN, limit=CompactionLimit(200, busy))
    limits = [_within(pin, spent_ms).limit for spent_ms in (0.0, 149.6, 500.0)]
    assert limits == [CompactionLimit(200, busy), CompactionLimit(50, busy), CompactionLimit(0, busy)]
    assert _within(PIN, 10.0) is PIN
