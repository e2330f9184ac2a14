"""Failures that Spark reports in its own words: the file that is gone, the checkpoint whose disk is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.logstore.exceptions import LOST
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.errors.known_causes import full_checkpoint, kind_of_text, missing_file_system
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError, brief_reason
from freshet.pipeline.running.spark_pipeline import spark_runner
from freshet.storage.catalog import Catalog
from tests.kit.small_disk import small_disk
from tests.pipeline import small_pipeline

TEXT = small_pipeline.TEXT + "max_dead_letters: {count: LIMIT}\n"


def run(spark: SparkSession, folder: Path, *, limit: int = 5, checkpoint: Path | str | None = None) -> None:
    text = TEXT.replace("LIMIT", str(limit)).replace("FOLDER/c", str(checkpoint or folder / "c"))
    (folder / "p.yaml").write_text(text.replace("FOLDER", str(folder)))
    spark_runner(spark, [load_pipeline(folder / "p.yaml", {})], say=lambda _: None).run()


def fill(folder: Path, name: str, *ids: int, broken: int = 0) -> Path:
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids) + "{\n" * broken)
    return path


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.parametrize(
    "text",
    [
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///data/a%20b.json. File does not "
        "exist. It is possible the underlying files have been updated.\nSQLSTATE: KD001",
        "java.io.FileNotFoundException: File file:/data/a%20b.json does not exist\n\tat x",
        "[PATH_NOT_FOUND] Path does not exist: file:/data/a%20b.json. SQLSTATE: 42K03",
    ],
)
def test_a_file_that_is_gone_is_named(text: str) -> None:
    reason = brief_reason(RuntimeError(text))
    assert "/data/a b.json was there when a batch was planned and is gone now" in reason
    assert "ignoreMissingFiles" in reason


def test_a_second_run_of_a_checkpoint_is_named() -> None:
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 0."
    assert "another run of this pipeline is using its checkpoint" in brief_reason(RuntimeError(text))
    assert kind_of_text(text) is ErrorKind.INVALID_REQUEST


DATA_LOSS = """\
An error occurred while calling o694.executeCollect.
: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost because they are not \
available in Kafka any more;
either the data was aged out by Kafka or the topic may have been deleted before all the data in the
topic was processed.
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: REASON
\tat org.apache.spark"""


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        (
            "Could not read records in offset [50, 100) for topic partition shop.public-orders-0\nwith group g.",
            "topic shop.public-orders partition 0 offsets 50 to 100 are not in Kafka any more",
        ),
        (
            "Starting offset for shop-1 was 5 but consumer reset to 9.",
            "topic shop partition 1: offset 5 is not in Kafka, whose first one is 9",
        ),
        (
            "Partition shop-12 offset was changed from 50 to 5.\nThis could be either 1) a user error",
            "topic shop partition 12 was read up to offset 50 and ends at 5",
        ),
        ("Partitions Set(shop-1) have been deleted.", "Partitions Set(shop-1) have been deleted"),
        ("Added partition shop-1 starts from 7 instead of 0.", "Added partition shop-1 starts from 7 instead of 0"),
    ],
)
def test_offsets_that_are_lost_are_named_as_the_workers_do(reason: str, named: str) -> None:
    said = brief_reason(RuntimeError(DATA_LOSS.replace("REASON", reason)))
    assert said == f"{named}: {LOST}"
    assert "was deleted and made again" in said and "a snapshot of its tables" in said
    assert kind_of_text(DATA_LOSS) is ErrorKind.INVALID_REQUEST


def test_a_full_disk_between_batches_is_the_checkpoint_s() -> None:
    reason = full_checkpoint("org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat", "/c")
    assert reason is not None
    assert reason.startswith("checkpoint /c cannot be written: No space left on device. Make room on its disk")
    assert full_checkpoint("java.io.IOException: Connection reset", "/c") is None


def test_a_full_disk_that_is_named_between_batches_is_not_the_checkpoint_s() -> None:
    scratch = OSError(28, "No space left on device (a large transaction; choose another disk with TMPDIR)", "/s/t")
    assert full_checkpoint(str(scratch), "/c") is None
    assert full_checkpoint("No space left on device: /w/f.parquet; free some space on that disk", "/c") is None


@pytest.mark.slow
@pytest.mark.spark
def test_a_file_that_disappears_between_planning_and_reading(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, "a.json", 1, broken=1)
    gone = fill(tmp_path, "b.json", 2, broken=1)
    with pytest.raises(PipelineFailedError, match="max_dead_letters"):
        run(spark, tmp_path, limit=0)  # planned, and not committed
    gone.unlink()
    with pytest.raises(
        PipelineFailedError, match=r"/in/b\.json was there when a batch was planned and is gone now"
    ) as failed:
        run(spark, tmp_path)
    assert failed.value.exit_code == 65
    fill(tmp_path, "b.json", 2, broken=1)
    run(spark, tmp_path)
    rows = Catalog(tmp_path / "w").table("s.t").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == [1, 2]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "256k") as folder:
        yield folder


@pytest.mark.spark
def test_a_full_disk_of_the_checkpoint_is_named_and_the_run_goes_on_after_it(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    checkpoint = disk / "c"
    fill(tmp_path, "a.json", 1)
    run(spark, tmp_path, checkpoint=checkpoint)
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill_up(filler)
    fill(tmp_path, "b.json", 2)
    with pytest.raises((PipelineFailedError, ConfigurationError)) as failed:
        run(spark, tmp_path, checkpoint=checkpoint)
    assert f"checkpoint {checkpoint} cannot be written" in str(failed.value)
    assert "No space left on device" in str(failed.value)
    assert failed.value.exit_code == 75
    filler.unlink()
    run(spark, tmp_path, checkpoint=checkpoint)
    rows = Catalog(tmp_path / "w").table("s.t").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "Error loading streaming checkpoint file manager for path=s3a://b/c. Error instantiating … "
            "msg=java.lang.RuntimeException: java.lang.ClassNotFoundException: "
            "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found. SQLSTATE: 58030",
            "cannot reach s3a://b/c: there is no file system for its class org.apache.hadoop.fs.s3a.S3AFileSystem",
        ),
        (
            'for path=foo://x/c. Error … UnsupportedFileSystemException: No FileSystem for scheme "foo". SQLSTATE',
            "cannot reach foo://x/c: there is no file system for scheme foo",
        ),
    ],
)
def test_a_scheme_that_spark_does_not_know_names_the_path_and_the_jar(said: str, expected: str) -> None:
    reason = brief_reason(RuntimeError(said))
    assert expected in reason
    assert "spark.jars" in reason


def test_other_texts_name_no_file_system() -> None:
    assert missing_file_system("Class org.example.Thing not found") is None


@pytest.mark.spark
def test_a_checkpoint_of_an_unknown_scheme(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, "a.json", 1)
    with pytest.raises(ConfigurationError) as raised:
        run(spark, tmp_path, checkpoint="foo://x/c")
    assert "checkpoint: this Spark cannot reach foo://x/c: there is no file system for scheme foo" in str(raised.value)
    assert raised.value.exit_code == 2
