"""`freshet run` with table, checkpoint and source files in S3, over a server that checks signatures: on Spark, and on
both engines in turns.

Spark reaches the checkpoint with Hadoop's S3A, whose jars (690 MB) are there only where `freshet jars --s3` was called.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from freshet.pipeline.spark.jars import S3A_GROUP, fetched_jars
from freshet.storage.catalog import Catalog
from freshet.storage.model.snapshot import CommitKind
from tests.kit.components import missing
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
FILES = 6

PIPELINE = """\
name: {name}
sources:
  - files: {{path: "s3a://{bucket}/input", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: s3://{bucket}/warehouse
  name: shop.orders
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2}}
trigger: {{available_now: true}}
checkpoint: s3://{bucket}/checkpoints/orders
spark: {{spark.eventLog.enabled: "true", spark.eventLog.compress: "false",
        spark.eventLog.dir: "file://{folder}/events"}}
"""


@pytest.fixture(autouse=True)
def _jars() -> None:
    if fetched_jars(S3A_GROUP) is None:
        missing("Hadoop's S3A", "freshet jars --s3 (690 MB)")


class Pipeline:
    """Its file, its input in the store, and its runs."""

    def __init__(self, folder: Path, s3: S3Place) -> None:
        self._folder = folder
        self._s3 = s3
        self._store = from_url(
            s3.root,
            config={"endpoint": s3.endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY},
            client_options={"allow_http": True},
        )
        (folder / "events").mkdir()
        self.catalog = Catalog(f"{s3.root}/warehouse", options=s3.options)

    def add_file(self, number: int) -> None:
        lines = [json.dumps({"id": key, "v": f"{number}"}) for key in range(number * 5, number * 5 + 40)]
        obstore.put(self._store, f"input/{number:02}.json", "\n".join(lines).encode())

    def keys(self, prefix: str) -> list[str]:
        return sorted(meta["path"] for page in obstore.list(self._store, prefix=prefix) for meta in page)

    def start(self, name: str = "orders", *, on: str = "spark") -> subprocess.Popen[str]:
        file = self._folder / f"{name}.yaml"
        file.write_text(PIPELINE.format(name=name, bucket=self._s3.bucket, folder=self._folder))
        command = [sys.executable, "-m", "freshet.pipeline.commands.command_line", "run", str(file), "--on", on]
        environment = {**os.environ, "FRESHET_CATALOG_OPTIONS": json.dumps(self._s3.options)}
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, name: str = "orders", *, on: str = "spark") -> tuple[int, str]:
        done = self.start(name, on=on)
        out, err = done.communicate(timeout=600)
        return done.returncode, out + err

    def rows(self) -> dict[int, str]:
        if not self.catalog.has_table("shop.orders"):
            return {}
        return {row["id"]: row["v"] for row in self.catalog.table("shop.orders").scan().to_arrow().to_pylist()}


@pytest.mark.parametrize(("first", "then"), [("spark", "spark"), ("spark", "local"), ("local", "spark")])
def test_a_run_with_its_checkpoint_in_s3_is_killed_and_goes_on(
    tmp_path: Path, versitygw: S3Place, first: str, then: str
) -> None:
    pipeline = Pipeline(tmp_path, versitygw)
    for number in range(FILES):
        pipeline.add_file(number)
    killed = pipeline.start(on=first)
    deadline = time.monotonic() + 600
    while len(pipeline.rows()) < 50 and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    for number, engine in enumerate((then, first, then), FILES):
        code, text = pipeline.run(on=engine)
        assert code == 0, text
        expected = {key: f"{min(key // 5, number - 1)}" for key in range((number - 1) * 5 + 40)}
        assert pipeline.rows() == expected
        pipeline.add_file(number)
    snapshots = pipeline.catalog.table("shop.orders").snapshots()
    batches = [each.commit_identifier for each in snapshots if each.commit_kind is CommitKind.APPEND]
    assert batches == list(range(len(batches)))
    assert "checkpoints/orders/freshet.json" in pipeline.keys("checkpoints")

    code, text = pipeline.run("others")
    assert code == 2 and "checkpoint: checkpoint s3a://" in text and "belongs to pipeline 'orders'" in text
    logged = "".join(path.read_text(errors="replace") for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert "s3a" in logged and SECRET_KEY not in logged + text
