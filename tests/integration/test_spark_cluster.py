"""docs/how-to/run-on-a-cluster.md: spark-submit against a cluster that shares no folder with the driver but S3.

A master and a worker of Spark run as processes; executors are their children and have the worker's environment, not the
driver's. The driver runs in another folder, and in another temporary folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from freshet.jobs.demo.child_process import free_ports, start_child, stop_child, tail
from freshet.storage.catalog import Catalog
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SPARK = Path(pyspark.__file__).parent
FILES = 2
WAIT_S = 300

PIPELINE = """\
name: orders
catalog: {catalog}
sources:
  - files: {{path: "{folder}/in", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: {root}
  name: shop.orders
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2, changelog-producer: lookup}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
"""


@dataclass(frozen=True)
class Cluster:
    """A master and a worker; `environment` is what the worker has."""

    url: str
    environment: Mapping[str, str]
    folder: Path

    def submit(self, folder: Path, s3: S3Place, catalog: Mapping[str, str], **own: str) -> tuple[int, str]:
        (folder / "p.yaml").write_text(PIPELINE.format(catalog=json.dumps(catalog), folder=folder, root=s3.root))
        settings = {
            "spark.pyspark.python": sys.executable,
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }
        given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        job = str(ROOT / "src" / "freshet" / "jobs" / "run_pipeline.py")
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *given, job, str(folder / "p.yaml")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable, **own}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    port, master_ui, worker_port, worker_ui = free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(folder / "tmp"),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    (folder / "tmp").mkdir()
    parts = {
        "Master": ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(master_ui)],
        "Worker": ["--host", "127.0.0.1", "--port", str(worker_port), "--webui-port", str(worker_ui), "--cores", "2"],
    }
    parts["Worker"] += ["--memory", "2g", "--work-dir", str(folder / "work"), url]
    log = folder / "cluster.log"
    with log.open("wb") as output:
        processes = []
        try:
            for name, arguments in parts.items():
                program = [
                    str(SPARK / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{name.lower()}.{name}",
                    *arguments,
                ]
                processes.append(start_child(program, log=output, env=environment))
            deadline = time.monotonic() + WAIT_S
            while "Successfully registered with master" not in log.read_text(errors="replace"):
                assert all(each.poll() is None for each in processes), tail(log)
                assert time.monotonic() < deadline, tail(log)
                time.sleep(0.1)
            yield Cluster(url, environment, folder)
        finally:
            for each in processes:
                stop_child(each)


def _fill(folder: Path) -> dict[int, str]:
    (folder / "in").mkdir()
    for number in range(FILES):
        lines = [json.dumps({"id": key, "v": f"{number}"}) for key in range(number * 5, number * 5 + 40)]
        file = folder / "in" / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + number,) * 2)
    return {key: f"{min(key // 5, FILES - 1)}" for key in range((FILES - 1) * 5 + 40)}


def test_executors_write_to_the_store_with_credentials_of_their_own(
    cluster: Cluster, tmp_path: Path, versitygw: S3Place
) -> None:
    """What the pipeline file says of the store travels; the keys are in the environment of driver and worker."""
    expected = _fill(tmp_path)
    catalog = {"s3.endpoint": versitygw.endpoint, "commit.coordination": "exclusive-put"}
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    code, text = cluster.submit(tmp_path, versitygw, catalog, **keys)
    assert code == 0, text
    table = Catalog(versitygw.root, options=versitygw.options).table("shop.orders")
    assert {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == expected
    stderr = "".join(path.read_text(errors="replace") for path in cluster.folder.glob("work/app-*/*/std*"))
    assert stderr and SECRET_KEY not in text + stderr


def test_a_variable_that_executors_lack_is_named(cluster: Cluster, tmp_path: Path, versitygw: S3Place) -> None:
    _fill(tmp_path)
    references = {"s3.access-key": "env:LAKE_KEY", "s3.secret-key": "env:LAKE_SECRET"}
    catalog = {**versitygw.options, **references}
    code, text = cluster.submit(tmp_path, versitygw, catalog, LAKE_KEY=ACCESS_KEY, LAKE_SECRET=SECRET_KEY)
    assert code == 65, text
    assert "taken from the environment variable LAKE_" in text and "spark.executorEnv" in text
