"""A pipeline that follows a table of a bucket into another one there: options under `catalog:` and in the environment,
secrets nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.storage.catalogs.given import CATALOG_OPTIONS_VARIABLE
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place

ROOT = Path(__file__).resolve().parents[3]
KEY_VARIABLE = "FRESHET_TEST_S3_KEY"

PIPELINE = """
name: copy
sources:
  - table: {{warehouse: "{root}/w", name: shop.orders}}
table:
  warehouse: "{root}/other"
  name: shop.copy
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2}}
catalog: {catalog}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
spark: {{spark.eventLog.enabled: true, spark.eventLog.dir: "{folder}/events", spark.eventLog.compress: false}}
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_table_is_followed_from_bucket_to_bucket(tmp_path: Path, s3: S3Place) -> None:
    source = Catalog(f"{s3.root}/w", options=s3.options).create_table(
        "shop.orders",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": 2, "changelog-producer": "input"},
    )
    with source.writer("loader") as writer:
        writer.write([{"id": key, "v": f"v{key}"} for key in range(50)])
        writer.commit()
    (tmp_path / "events").mkdir()
    options = {key: text for key, text in s3.options.items() if key != "s3.secret-key"}
    options["s3.access-key"] = f"env:{KEY_VARIABLE}"
    text = PIPELINE.format(root=s3.root, folder=tmp_path, catalog=json.dumps(options))
    (tmp_path / "p.yaml").write_text(text)

    environment = json.dumps({"s3.secret-key": SECRET_KEY})
    run = subprocess.run(
        [sys.executable, "-m", "freshet", "run", str(tmp_path / "p.yaml"), "--restart", "0"],
        cwd=ROOT,
        env={**os.environ, KEY_VARIABLE: ACCESS_KEY, CATALOG_OPTIONS_VARIABLE: environment},
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert run.returncode == 0, run.stderr
    copied = Catalog(f"{s3.root}/other", options=s3.options).table("shop.copy").scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in copied) == [(key, f"v{key}") for key in range(50)]
    events = "".join(each.read_text() for each in (tmp_path / "events").rglob("*") if each.is_file())
    assert "SparkListenerSQLExecutionStart" in events
    kept = "".join(each.read_text(errors="replace") for each in (tmp_path / "checkpoint").rglob("*") if each.is_file())
    assert kept
    for where in (events, kept, run.stdout, run.stderr):
        assert SECRET_KEY not in where
