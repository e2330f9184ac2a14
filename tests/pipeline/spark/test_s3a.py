"""What S3A is given of the options of a catalog; the store itself is reached in `tests/integration/test_s3a.py`."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from freshet.pipeline.commands import running
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.spark.s3a import buckets, s3a_settings, use_store
from tests.pipeline import small_pipeline

CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def test_buckets_that_s3a_reaches() -> None:
    assert buckets(["s3a://a/x", "/local", "file:///b", "hdfs://c/d", "s3a://e/*.json", "s3a://a/y"]) == ["a", "e"]


@pytest.mark.parametrize("prefix", ["s3.", "s3a.", "fs.s3a."])
def test_options_have_the_names_of_s3a_and_secrets_stay_references(prefix: str) -> None:
    given = {
        "endpoint": "http://store:9000",
        "access-key": "env:LAKE_USER",
        "secret-key": "env:LAKE_SECRET",
        "connection.maximum": "32",
    }
    assert s3a_settings({f"{prefix}{key}": text for key, text in given.items()} | {"metastore": "jdbc"}, {}) == {
        "endpoint": "http://store:9000",
        "access.key": "${env.LAKE_USER}",
        "secret.key": "${env.LAKE_SECRET}",
        "connection.maximum": "32",
        "path.style.access": "true",
        "endpoint.region": "us-east-1",
    }


def test_what_the_options_leave_out_is_that_of_aws() -> None:
    assert s3a_settings({}, {}) == {"aws.credentials.provider": CHAIN}
    environment = {"AWS_ENDPOINT_URL": "https://store", "AWS_REGION": "eu-north-1", "AWS_SECRET_ACCESS_KEY": "s"}
    assert s3a_settings({"s3.path.style.access": "false"}, environment) == {
        "endpoint": "https://store",
        "endpoint.region": "eu-north-1",
        "path.style.access": "false",
        "aws.credentials.provider": CHAIN,
    }
    keys = {"s3.access-key": "a", "s3.secret-key": "b", "s3.session-token": "c"}
    assert s3a_settings(keys, {})["aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")


def test_jars_that_are_missing_are_a_problem_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.yaml").write_text(small_pipeline.TEXT.replace("FOLDER/c", "s3://lake/c").replace("FOLDER", "/data"))
    config = load_pipeline(tmp_path / "p.yaml", {})
    monkeypatch.setattr(running, "fetched_jars", lambda group: None)
    with pytest.raises(
        ConfigurationError, match=r"p.yaml:\d+: checkpoint: .*s3a://lake/c .*freshet jars --s3 \(690 MB"
    ):
        running.needed_jars([config], {})
    assert running.needed_jars([config], {"spark.jars": "/jars/hadoop-aws-3.5.0.jar"}) == []
    monkeypatch.setattr(running, "fetched_jars", lambda group: [Path("/cache/a.jar")])
    assert running.needed_jars([config], {}) == [Path("/cache/a.jar")]


@pytest.mark.spark
def test_each_bucket_by_itself_and_the_session_wins(spark: SparkSession) -> None:
    one, two = f"b{uuid4()}", f"b{uuid4()}"
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    use_store(spark, [one], {"endpoint": "first", "secret.key": "${env.HOME}"})
    use_store(spark, [two], {"endpoint": "second"})
    assert configuration.get(f"fs.s3a.bucket.{one}.endpoint") == "first"
    assert configuration.get(f"fs.s3a.bucket.{two}.endpoint") == "second"
    assert configuration.getRaw(f"fs.s3a.bucket.{one}.secret.key") == "${env.HOME}"
    assert configuration.get(f"fs.s3a.bucket.{one}.secret.key") == str(Path.home())
    assert one not in json.dumps(spark.sparkContext.getConf().getAll())
