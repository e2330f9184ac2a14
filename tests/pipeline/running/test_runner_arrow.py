"""The Arrow batches inside a query that the runner starts: large ones, whatever the session says of bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.batch import arrow_batches
from freshet.pipeline.batch.one_table import OneTableJob
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.sources import outcome_frame
from freshet.storage.catalog import Catalog
from tests.pipeline.small_pipeline import TEXT

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS = 40_000

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def noting(function: Function, seen: Path) -> Function:
    """The function, which writes down the sizes of the batches it is given; it runs in a worker."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def noted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with seen.open("a") as file:
                    file.write(f"{batch.num_rows}\n")
                yield batch

        yield from function(noted())

    return run


def write_lines(path: Path, count: int, size: int, seconds: int) -> None:
    """JSON lines of so many bytes; ids are those of the file's time."""
    lines = (json.dumps({"id": seconds * 10_000 + number, "doc": "x" * size}) + "\n" for number in range(count))
    path.write_text("".join(lines))
    os.utime(path, (seconds, seconds))


def test_a_batch_is_cut_by_the_records_of_the_batches_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", 1 << 20)
    (tmp_path / "in").mkdir()
    for name, size, seconds in (("a", 10, 1), ("b", 10_000, 2), ("c", 10_000, 3)):
        write_lines(tmp_path / "in" / f"{name}.json", 500, size, seconds)
    text = TEXT.replace('/in"}', '/in", maxFilesPerTrigger: 1}').replace("FOLDER", str(tmp_path))
    (tmp_path / "p.yaml").write_text(text)
    decoder = outcome_frame.RecordDecoder
    monkeypatch.setattr(outcome_frame, "RecordDecoder", lambda plan: noting(decoder(plan), tmp_path / "seen"))
    Runner(spark, [load_pipeline(tmp_path / "p.yaml", {})], say=lambda _: None).run()
    sizes = [int(line) for line in (tmp_path / "seen").read_text().split()]
    small, grown, known = (
        [size for size, end in zip(sizes, accumulate(sizes), strict=True) if batch * 500 < end <= (batch + 1) * 500]
        for batch in range(3)
    )
    assert sum(small) == sum(grown) == sum(known) == 500
    assert max(grown) > 200, "small ones were seen, so nobody has counted the bytes of the first large ones"
    assert max(known) <= 104, known
    assert spark.conf.get(RECORDS) == "65536", "the session's own"


def test_neither_decoder_nor_task_gets_small_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(json.dumps({"id": number}) + "\n" for number in range(ROWS)))
    (tmp_path / "p.yaml").write_text(TEXT.replace("FOLDER", str(tmp_path)))
    decoder, task = outcome_frame.RecordDecoder, OneTableJob._task

    def watched_decoder(plan: Any) -> Function:
        return noting(decoder(plan), tmp_path / "decoder")

    def watched_task(*arguments: Any) -> Any:
        return noting(task(*arguments), tmp_path / "task")

    monkeypatch.setattr(outcome_frame, "RecordDecoder", watched_decoder)
    monkeypatch.setattr(OneTableJob, "_task", watched_task)
    monkeypatch.setattr(OneTableJob, "single_stage", lambda *_: None)
    before = {key: spark.conf.get(key, None) for key in (BYTES, RECORDS)}
    spark.conf.set(BYTES, "1000")
    spark.conf.unset(RECORDS)
    try:
        Runner(spark, [load_pipeline(tmp_path / "p.yaml", {})], say=lambda _: None).run()
        assert spark.conf.get(BYTES) == "1000", "the session's own again"
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
    assert Catalog(tmp_path / "w").table("s.t").scan().count() == ROWS
    for who in ("decoder", "task"):
        sizes = [int(line) for line in (tmp_path / who).read_text().split()]
        assert sum(sizes) >= ROWS
        assert max(sizes) > 9_000, f"{who}: 1000 bytes would be batches of some rows: {sizes[:10]}"
        assert len(sizes) < 12, sizes
