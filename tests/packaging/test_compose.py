"""docker/compose.yaml without containers: its store, its catalog and its pipeline as processes, by its own commands.

`make lint` checks the file against the schema of compose files. What only a container shows (images, volumes, health
checks of the images) is not checked here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from freshet.jobs.demo.child_process import start_child, stop_child, tail
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.storage.catalog import Catalog
from tests.kit.postgres_server import PASSWORD, USER, postgres_server
from tests.kit.s3_server import free_port, wait_for
from tests.kit.versitygw import versitygw_program

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ORDERS = 25
_VARIABLE = re.compile(r"\$\{(\w+):(?:-([^}]*)|\?[^}]*)\}")


def services() -> dict[str, Any]:
    text = (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")
    given = _VARIABLE.sub(lambda found: found[2] or "a-password-of-our-own", text)
    found: dict[str, Any] = yaml.safe_load(given)["services"]
    return found


@contextmanager
def store(folder: Path) -> Iterator[str]:
    """The server of the service, and the bucket that the service before it makes; gives its address."""
    data, address = folder / "data", f"127.0.0.1:{free_port()}"
    bucket, own = services()["bucket"], services()["store"]
    subprocess.run([each.replace("/data", str(data)) for each in bucket["entrypoint"]], check=True)
    places = {":7070": address, "/data": str(data)}
    command = [versitygw_program(), *(places.get(each, each) for each in own["command"])]
    with (folder / "store.log").open("wb") as log:
        process = start_child(command, log=log, env={**os.environ, **own["environment"]})
    try:
        wait_for(f"http://{address}", process)
        health = own["healthcheck"]["test"][-1].replace("localhost:7070", address)
        with urllib.request.urlopen(health, timeout=30) as answer:
            assert answer.status == 200
        yield address
    finally:
        stop_child(process)


def environment_of(service: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """The environment of a service, with the hosts that its network would have replaced."""
    texts = dict(service["environment"])
    for name, place in places.items():
        assert any(name in text for text in texts.values()), name
        texts = {key: text.replace(name, place) for key, text in texts.items()}
    return texts


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(ORDERS):
        row = {"order_id": number, "status": f"new {number}", "total": None, "ordered": None}
        source = {"db": "shop", "schema": "public", "table": "orders"}
        producer.produce("shop.public.orders", json.dumps({"op": "c", "before": None, "after": row, "source": source}))
    assert producer.flush(60) == 0


def test_the_pipeline_writes_into_the_store_and_the_catalog(tmp_path: Path) -> None:
    catalog, pipeline = services()["catalog"], services()["pipeline"]
    assert catalog["command"][0] == "postgres"
    with (
        store(tmp_path) as address,
        postgres_server(*catalog["command"][1:]) as database,
        KafkaBroker.start() as broker,
    ):
        assert database.query("SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'") == [("UTC",)]
        broker.create_topic("shop.public.orders")
        produce(broker.bootstrap_servers)
        uri = database.new_database()
        places = {
            "kafka:9092": broker.bootstrap_servers,
            "store:7070": address,
            "jdbc:postgresql://catalog:5432/freshet": uri,
            "/warehouse/_checkpoints": str(tmp_path / "checkpoints"),
        }
        own = {**environment_of(pipeline, places), "CATALOG_PASSWORD": PASSWORD}
        assert own["CATALOG_USER"] == USER
        _run(pipeline["command"], own, tmp_path, _catalog(own, uri))


def _catalog(own: Mapping[str, str], uri: str) -> Catalog:
    options = {
        "jdbc.user": own["CATALOG_USER"],
        "jdbc.password": own["CATALOG_PASSWORD"],
        "s3.endpoint": own["S3_ENDPOINT"],
        "s3.access-key": own["AWS_ACCESS_KEY_ID"],
        "s3.secret-key": own["AWS_SECRET_ACCESS_KEY"],
    }
    return Catalog(uri, warehouse=own["WAREHOUSE"], options=options)


def _run(command: list[str], own: Mapping[str, str], folder: Path, catalog: Catalog) -> None:
    """Runs the pipeline until the table has all orders, then stops it as Docker does."""
    program = [sys.executable, "-m", "freshet.pipeline.commands.command_line"]
    arguments = [each.replace("/pipelines/", f"{ROOT}/conf/pipelines/") for each in command]
    log = folder / "pipeline.log"
    with log.open("wb") as output:
        process = start_child([*program, *arguments], log=output, env={**os.environ, **own})
    try:
        deadline = time.monotonic() + 300
        while _count(catalog) < ORDERS:
            assert process.poll() is None, tail(log)
            assert time.monotonic() < deadline, tail(log)
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, tail(log)
    finally:
        stop_child(process)
    found = catalog.table("shop.orders").scan().to_arrow()
    assert sorted(found["order_id"].to_pylist()) == list(range(ORDERS))


def _count(catalog: Catalog) -> int:
    return catalog.table("shop.orders").scan().to_arrow().num_rows if catalog.has_table("shop.orders") else 0
