"""Makes a golden archive of a head: tables, checkpoints, logs and lookup stores, as they are when it is stopped.

    git worktree add ../old HEAD
    PYTHONPATH=../old/src:. .venv/bin/python -m tests.upgrade.make tests/golden/upgrade_HEAD.tar.xz

This code drives, the code of the other checkout makes. It takes two minutes. Heads before the packages moved (e384998)
have other module names: e507463 drives those, and has made the archive of 7ac1e1e.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import freshet
from freshet import Catalog
from freshet.jobs.demo.kafka_broker import KafkaBroker
from tests.upgrade.archive import pack
from tests.upgrade.make_tables import make_tables
from tests.upgrade.stores import make_stores
from tests.upgrade.streams import (
    BROKER_SETTINGS,
    COMPUTED,
    SOURCES,
    TOPIC,
    TOPIC_PARTITIONS,
    commit_orders,
    held_after,
    logged,
    order_commits,
    pipelines,
    records,
    send,
)

FIRST_RECORDS = range(60)
MORE_RECORDS = range(60, 95)
TIMEOUT_S = 1200


def main() -> None:
    """Makes everything in a new folder and packs it."""
    archive = Path(sys.argv[1])
    print(f"made by the code in {Path(freshet.__file__).parent}")
    world = Path(tempfile.mkdtemp(prefix="freshet-golden-"))
    try:
        (world / "tables").mkdir()
        manifest = make_tables(world / "tables")
        (world / "tables" / "manifest.json").write_text(json.dumps(manifest))
        manifest = make_stores(world / "stores")
        (world / "stores" / "manifest.json").write_text(json.dumps(manifest))
        kafka = make_streams(world / "streams")
        pack(world, archive, kafka=kafka)
    finally:
        shutil.rmtree(world, ignore_errors=True)
    print(f"{archive}: {archive.stat().st_size} bytes")


def make_streams(world: Path) -> str:
    """Everything that needs Spark or Kafka; returns the address that the broker had."""
    world.mkdir()
    with KafkaBroker.start(world / "kafka", settings=BROKER_SETTINGS) as broker:
        kafka = broker.bootstrap_servers
        broker.create_topic(TOPIC, kafka_partitions=TOPIC_PARTITIONS)
        send(kafka, records(FIRST_RECORDS))
        catalog = Catalog(str(world / "warehouse"))
        for name, has_log in SOURCES.items():
            options = {**COMPUTED, **(logged(f"log-{name}", kafka) if has_log else {})}
            columns = {"k": "BIGINT", "v": "STRING"}
            table = catalog.create_table(f"shop.{name}", schema=columns, primary_keys=["k"], options=options)
            commit_orders(table, (1, 2))
        (world / "pipelines").mkdir()
        for pipeline in pipelines("${KAFKA}"):
            (world / "pipelines" / f"{pipeline.name}.yaml").write_text(pipeline.file)
        for part in ("pipelines", "streams"):
            command = [sys.executable, "-m", "tests.upgrade.stopped_program", str(world), kafka, part]
            code = subprocess.run(command, timeout=TIMEOUT_S, start_new_session=True, check=False).returncode
            assert code == -signal.SIGKILL, f"the program that is stopped ended with {code}"
    (world / "manifest.json").write_text(json.dumps(manifest_of(world)))
    for path in (world / "kafka").iterdir():
        if path.name != "logs":
            path.unlink()
    return kafka


def manifest_of(world: Path) -> dict[str, Any]:
    """What is expected, and what else arrives."""
    before, more = records(FIRST_RECORDS), records(MORE_RECORDS)
    read = [each for each in pipelines("") if each.follows is None]
    states = world / "log_states.json"
    found = {
        "rest": more,
        "rows in the end": {each.name: held_after(each, [*before, *more]) for each in read},
        "broken": [text for text in [*before, *more] if not text.startswith("{")],
        "commits of orders": order_commits(),
        "log states": json.loads(states.read_text()),
    }
    states.unlink()
    return found


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    main()
