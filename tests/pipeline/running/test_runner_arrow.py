"""The Arrow batches inside a query that the runner starts: large ones, whatever the session says of bytes."""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.query.task.batch_work import RecordWork
from freshet.pipeline.query.task.write_task import WriteTask
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.pipeline.spark import arrow_batches, packed_way
from freshet.storage.catalog import Catalog
from tests.pipeline.noted_work import NotedWork
from tests.pipeline.small_pipeline import TEXT

pytestmark = pytest.mark.spark

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS = 40_000


def _noted(work: Any, seen: Path, *given: Any, **named: Any) -> NotedWork:
    return NotedWork(work(*given, **named), seen)


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
    monkeypatch.setattr(packed_way, "RecordWork", partial(_noted, RecordWork, tmp_path / "seen"))
    spark_runner(spark, [load_pipeline(tmp_path / "p.yaml", {})], say=lambda _: None).run()
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
    for name, work in (("RecordWork", RecordWork), ("WriteTask", WriteTask)):
        noted = partial(_noted, work, tmp_path / name)
        monkeypatch.setattr(packed_way, name, noted)
    before = {key: spark.conf.get(key, None) for key in (BYTES, RECORDS)}
    spark.conf.set(BYTES, "1000")
    spark.conf.unset(RECORDS)
    try:
        spark_runner(spark, [load_pipeline(tmp_path / "p.yaml", {})], say=lambda _: None).run()
        assert spark.conf.get(BYTES) == "1000", "the session's own again"
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
    assert Catalog(tmp_path / "w").table("s.t").scan().count() == ROWS
    for who in ("RecordWork", "WriteTask"):
        sizes = [int(line) for line in (tmp_path / who).read_text().split()]
        if who == "WriteTask":  # packed values: a few in each batch, of thousands of rows
            assert sum(sizes) < 12, sizes
            continue
        assert sum(sizes) >= ROWS
        assert max(sizes) > 9_000, f"{who}: 1000 bytes would be batches of some rows: {sizes[:10]}"
        assert len(sizes) < 12, sizes
