"""Batches are distinguished by what they read: offsets, and the files of a bare number."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from freshet.logstore.protocol.record import Attempt
from freshet.logstore.reading.reader_state import LogPosition, OpenBucket, ReaderState, Run
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.change_batches import FIRST, end_offset
from freshet.pipeline.query.driver.read_digests import SourceRange, digest_of, files_between
from freshet.pipeline.spark.table_sink import TableSink, table_sink
from freshet.storage.catalog import Catalog
from freshet.storage.changes.stream_request import StreamPosition
from freshet.storage.exceptions import DifferentInputError


def test_offsets_decide_and_the_order_of_keys_does_not() -> None:
    first = SourceRange('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}')
    same = SourceRange('{"t":{"1":7,"0":5}}', '{"t":{"1":7,"0":9}}')
    assert digest_of([first]) == digest_of([same])
    assert digest_of([first]).text == "topic t: 0 [5, 9)"
    others = [
        SourceRange('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":8}}'),
        SourceRange('{"t":{"0":4,"1":7}}', '{"t":{"0":9,"1":7}}'),
        SourceRange(None, '{"t":{"0":9,"1":7}}'),
    ]
    assert len({digest_of([each]).hash for each in [first, *others]}) == 4
    assert digest_of([first, others[0]]).hash != digest_of([others[0], first]).hash
    assert digest_of([SourceRange("3", "not json")]).text == "offsets 3 to not json"


def test_positions_in_a_table_decide_whole_and_are_shown_in_brief() -> None:
    start = LogPosition(ReaderState(4, "t", "id", "u", 0, 2, 1, {0: 5, 1: 7}, {0: 5, 1: 7}))
    run = Run(Attempt(1, 1), 7, 9, 3, b"12345678")
    shown = replace(start.state, positions={0: 5, 1: 9}, open_batch=3, open_buckets={(b"", 1): OpenBucket(run)})
    ends = [
        replace(start, state=shown),
        replace(start, state=replace(shown, open_buckets={(b"", 1): OpenBucket(replace(run, attempt=Attempt(1, 2)))})),
        replace(start, taken=1, of=3),
    ]
    texts = [json.dumps(position.to_document()) for position in (start, *ends)]
    digests = [digest_of([SourceRange(texts[0], text)]) for text in texts]
    assert len({digest.hash for digest in digests}) == 4
    assert digests[1].text == "a table from snapshot 4 to snapshot 4 log 0: 5, 1: 9"
    assert digests[3].text == "a table from snapshot 4 to snapshot 4 piece 1 of 3"
    alone = json.dumps(StreamPosition(9).to_document())
    assert digest_of([SourceRange(None, alone)]).text == "a table from the beginning to snapshot 9"


def test_the_end_of_a_first_batch_says_where_it_began() -> None:
    ends = [
        json.dumps(
            end_offset(FIRST, StreamPosition(begin, is_state=True).to_document(), StreamPosition(9).to_document())
        )
        for begin in (7, 8)
    ]
    digests = [digest_of([SourceRange(None, end)]) for end in ends]
    assert digests[0].text == "a table from the rows of snapshot 7 to snapshot 9"
    assert digests[0].hash != digests[1].hash


def _log(*entries: tuple[str, int, int]) -> str:
    lines = [json.dumps({"path": path, "timestamp": time, "batchId": batch}, separators=(",", ":"))
             for path, time, batch in entries]  # fmt: skip
    return "\n".join(["v1", *lines]) + "\n"


def test_files_are_read_from_the_log_of_the_source() -> None:
    log = {
        "8": _log(("b", 2, 8), ("a", 1, 8)),
        "9.compact": _log(("old", 0, 7), ("a", 1, 8), ("b", 2, 8), ("c", 3, 9)),
        "10": _log(("d", 4, 10)),
    }
    assert files_between(7, 8, log.get) == (("a", 1), ("b", 2))
    assert files_between(8, 9, log.get) == (("c", 3),)
    assert files_between(8, 10, log.get) == (("c", 3), ("d", 4))
    assert files_between(6, 7, log.get) == (("old", 0),)
    assert files_between(10, 10, log.get) == ()


def _write(folder: Path, name: str, ids: list[int], time_s: int) -> None:
    path = folder / name
    path.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
    os.utime(path, (time_s, time_s))


def _run(spark: SparkSession, root: Path, reports: list[BatchReport]) -> TableSink:
    """Reads what is there, one batch per file that is new; gives the sink with what stopped it, if anything did."""
    sink = table_sink(str(root / "warehouse"), "db.t", commit_user="stream", on_report=reports.append)
    frame = spark.readStream.schema("id bigint").json(str(root / "in"))
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(root / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    with suppress(StreamingQueryException):  # the sink has the error as it was
        assert running.awaitTermination(600)
    return sink


@pytest.mark.spark
@pytest.mark.slow
def test_a_checkpoint_restored_from_a_backup(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same files again are a replay; other files are refused, and none is taken for committed."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = catalog.create_table("db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"})
    (tmp_path / "in").mkdir()
    reports: list[BatchReport] = []
    _write(tmp_path / "in", "a.json", [1], 1000)
    assert _run(spark, tmp_path, reports).failure is None
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    _write(tmp_path / "in", "b.json", [2], 2000)
    assert _run(spark, tmp_path, reports).failure is None
    assert [report.is_replay for report in reports] == [False, False]

    _restore(tmp_path)
    assert _run(spark, tmp_path, reports).failure is None
    assert reports[-1].is_replay
    assert not [text for text in caplog.messages if "committed before" in text], "it is proven to be the same batch"

    _restore(tmp_path)
    _write(tmp_path / "in", "c.json", [3], 3000)
    failure = _run(spark, tmp_path, reports).failure
    assert isinstance(failure, DifferentInputError)
    assert failure.committed is not None
    assert failure.given is not None
    assert "b.json" in failure.committed.text
    assert "c.json" not in failure.committed.text
    assert "b.json" in failure.given.text
    assert "c.json" in failure.given.text
    assert failure.committed.text in str(failure)
    assert "checkpoint was restored from a backup" in str(failure)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def _restore(root: Path) -> None:
    shutil.rmtree(root / "checkpoint")
    shutil.copytree(root / "backup", root / "checkpoint")
