"""Credentials of a pipeline in a bucket: they are replaced while it runs, on the driver and in Python workers; and no
part of a secret is in anything that it writes, says or starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest

from freshet import Catalog
from freshet.storage.catalogs.given import CATALOG_OPTIONS_VARIABLE
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place
from tests.kit.store_proxy import Request, StoreProxy, through

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("Hk7QzHunt", "Wm4vXpHunt", "L8cRn5Hunt")
SECRET = f"{PARTS[0]}/+=%&?{PARTS[1]}@:'\"\\ü {PARTS[2]}"
"""Quoted or not, its parts stay as they are."""

FILES, ROWS = 6, 40

PIPELINE = """
name: orders
sources:
  - files: {{path: "{folder}/in", maxFilesPerTrigger: 1}}
    format: json
table:
  warehouse: "{warehouse}"
  name: shop.orders
  columns: {{id: BIGINT, v: STRING}}
  primary_key: [id]
  options: {{bucket: 2, changelog-producer: lookup}}
catalog: {catalog}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
spark: {{spark.eventLog.enabled: true, spark.eventLog.dir: "{folder}/events", spark.eventLog.compress: false}}
"""
PROGRAM = """
import json, os, uuid
key = uuid.uuid4().hex
with open({log!r}, "a") as file:
    file.write(f"{{os.getppid()}} {{key}}\\n")
print(json.dumps({{"Version": 1, "AccessKeyId": key, "SecretAccessKey": "SK", "SessionToken": "T"}}))
"""


@pytest.fixture
def proxy(s3: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


def write_files(folder: Path) -> None:
    for name in ("in", "events"):
        (folder / name).mkdir()
    for number in range(FILES):
        lines = [json.dumps({"id": number * ROWS + row, "v": f"{number}"}) for row in range(ROWS)]
        (folder / "in" / f"{number}.json").write_text("\n".join(lines))


def run(folder: Path, environment: Mapping[str, str], *arguments: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """The pipeline to its end, and the command lines of all that it started."""
    command = [sys.executable, "-m", "freshet", "run", str(folder / "p.yaml"), "--progress", "json", *arguments]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    lines: set[str] = set()
    with subprocess.Popen(
        command, cwd=ROOT, env={**kept, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                lines.update(command_lines(process.pid))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        out, err = process.communicate(timeout=600)
        ended.set()
        watcher.join()
    return subprocess.CompletedProcess(command, process.returncode, out, err), "\n".join(lines)


def command_lines(ancestor: int) -> Iterator[str]:
    found = subprocess.run(["ps", "-eo", "pid=,ppid=,args=", "-ww"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()]
    family = {str(ancestor)}
    for pid, parent, *rest in sorted(rows, key=lambda row: int(row[0])):
        if pid in family or parent in family:
            family.add(pid)
            yield from rest


def rows_of(s3: S3Place) -> Counter[int]:
    rows = Catalog(f"{s3.root}/w", options=s3.options).table("shop.orders").scan().to_arrow().column("id")
    return Counter(rows.to_pylist())


def test_credentials_are_replaced_on_the_driver_and_in_workers(s3: S3Place, proxy: StoreProxy, tmp_path: Path) -> None:
    """Each key serves some requests and has expired then; profiles name a program that has others."""
    write_files(tmp_path)
    log = tmp_path / "keys"
    (tmp_path / "program.py").write_text(PROGRAM.format(log=str(log)))
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process = {sys.executable} {tmp_path}/program.py\n")
    options = {key: text for key, text in through(s3, proxy).options.items() if "-key" not in key}
    text = PIPELINE.format(folder=tmp_path, warehouse=f"{s3.root}/w", catalog=json.dumps(options))
    (tmp_path / "p.yaml").write_text(text)
    served: Counter[str | None] = Counter()

    def is_old(request: Request) -> bool:
        served[request.access_key] += 1
        return served[request.access_key] > 12

    proxy.answer(400, "ExpiredToken", is_old)
    profile = {"AWS_PROFILE": "lake", "AWS_CONFIG_FILE": str(tmp_path / "config")}
    done, _ = run(tmp_path, {**profile, "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}, "--restart", "0")

    assert done.returncode == 0, done.stderr[-4000:]
    assert rows_of(s3) == Counter(range(FILES * ROWS))
    by_process = Counter(line.split()[0] for line in log.read_text().splitlines())
    assert len(by_process) > 1 and sum(count > 1 for count in by_process.values()) > 1, by_process


def test_expired_credentials_end_a_batch_and_a_restart_finishes_it(
    s3: S3Place, proxy: StoreProxy, tmp_path: Path
) -> None:
    """Keys that were given cannot be renewed: the message says so, and the next run has every row once."""
    write_files(tmp_path)
    options = json.dumps(through(s3, proxy).sent_options)
    (tmp_path / "p.yaml").write_text(PIPELINE.format(folder=tmp_path, warehouse=f"{s3.root}/w", catalog=options))
    commits: list[Request] = []

    def is_after_three_commits(request: Request) -> bool:
        if request.method == "PUT" and "shop.db/orders/snapshot/snapshot-" in request.key:
            commits.append(request)
        return len(commits) > 3

    proxy.answer(400, "ExpiredToken", is_after_three_commits)
    first, _ = run(tmp_path, {}, "--restart", "0")
    assert first.returncode not in (0, None)
    assert "the credentials have expired" in first.stderr and "a profile or a role that renews them" in first.stderr
    assert 0 < sum(rows_of(s3).values()) < FILES * ROWS
    proxy.clear()
    second, _ = run(tmp_path, {}, "--restart", "0")
    assert second.returncode == 0, second.stderr[-4000:]
    assert rows_of(s3) == Counter(range(FILES * ROWS))


def given(way: str, options: dict[str, str], folder: Path, root: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """The warehouse, the mapping `catalog:`, the environment."""
    rest, secret = {**options}, "s3.secret-key"
    del rest[secret]
    if way == "reference":
        return f"{root}/w", {**rest, secret: "env:HUNTED"}, {"HUNTED": SECRET}
    if way == "environment":
        return f"{root}/w", rest, {CATALOG_OPTIONS_VARIABLE: json.dumps({secret: SECRET})}
    rest["warehouse"] = f"{root}/w"
    file = folder / "catalogs.yaml"
    named = {"FRESHET_CATALOGS_FILE": str(file)}
    if way == "named":
        file.write_text(json.dumps({"lake": {**rest, secret: SECRET}}))
        file.chmod(0o600)
        return "lake", {}, named
    file.write_text(json.dumps({"lake": rest}))
    return "lake", {}, {**named, "FRESHET_CATALOG__LAKE__S3__SECRET_KEY": SECRET}


@pytest.mark.parametrize("way", ["reference", "environment", "named", "variable"])
def test_no_part_of_a_secret_is_in_anything(s3: S3Place, proxy: StoreProxy, tmp_path: Path, way: str) -> None:
    write_files(tmp_path)
    options = {**through(s3, proxy).options, "s3.access-key": ACCESS_KEY, "s3.secret-key": SECRET}
    options["s3.access-key"] = "env:HUNTED_USER"
    warehouse, catalog, environment = given(way, options, tmp_path, s3.root)
    text = PIPELINE.format(folder=tmp_path, warehouse=warehouse, catalog=json.dumps(catalog))
    text = text.replace("spark: {", "spark: {spark.log.level: INFO, ")
    (tmp_path / "p.yaml").write_text(text)
    environment = {**environment, "HUNTED_USER": ACCESS_KEY}
    good, processes = run(tmp_path, environment, "--debug", "--restart", "0")
    assert good.returncode == 0, good.stderr[-4000:]
    (tmp_path / "in" / "more.json").write_text('{"id": 1, "v": "more"}')
    proxy.answer(403, "SignatureDoesNotMatch", lambda request: "bucket-" in request.key and request.method == "PUT")
    bad, others = run(tmp_path, environment, "--debug", "--restart", "0")
    assert bad.returncode != 0 and "Traceback" in bad.stderr and "SignatureDoesNotMatch" in bad.stderr

    places = {"processes": processes + others, "output": good.stdout + bad.stdout, "messages": good.stderr + bad.stderr}
    for folder in ("events", "checkpoint"):
        files = [file for file in (tmp_path / folder).rglob("*") if file.is_file()]
        assert files
        places[folder] = "".join(file.read_bytes().decode("latin-1") for file in files)
    assert "java" in places["processes"] and "SparkListenerSQLExecutionStart" in places["events"]
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1", **keys)
    objects = [found["Key"] for found in client.list_objects_v2(Bucket=s3.bucket)["Contents"]]
    assert any("/schema/schema-0" in key for key in objects)
    bodies = (client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() for key in objects)
    places["table"] = "".join(body.decode("latin-1") for body in bodies)
    assert [(place, part) for place, found in places.items() for part in PARTS if part in found] == []
