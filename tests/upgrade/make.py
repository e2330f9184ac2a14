"""Makes a golden archive of a head: tables, checkpoints, logs and lookup stores, as they are when it is stopped.

    git worktree add ../old HEAD
    PYTHONPATH=../old/src:. .venv/bin/python -m tests.upgrade.make tests/golden/upgrade_HEAD.tar.xz kinds

This code drives, the code of the other checkout makes. `engines` is an archive of merge engines, changelog producers
and streams: two minutes, made of 7ac1e1e. `kinds` is one of every kind of buckets, formats and indexes of files: one
minute, made of 4f5f963. `histories` has tables that people change by hand later: half a minute, made of 72567c5.
Heads before the packages moved (e384998) have other module names: e507463 drives those.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import freshet
from freshet import Catalog
from freshet.jobs.demo.kafka_broker import KafkaBroker
from tests.upgrade.archive import pack
from tests.upgrade.file_pipelines import (
    BATCHES,
    FILE_PIPELINES,
    LATER_BATCHES,
    STOPPED_BY_HAND,
    FilePipeline,
    add_input,
    batch_records,
    held_after_batches,
)
from tests.upgrade.file_pipelines import PLACE as FILES_PLACE
from tests.upgrade.fixed_place import fixed_place
from tests.upgrade.histories import HISTORIES
from tests.upgrade.kinds import KINDS
from tests.upgrade.make_tables import make_tables
from tests.upgrade.shapes import SHAPES
from tests.upgrade.stores import ENGINE_STORES, KIND_STORES, make_stores
from tests.upgrade.streams import (
    BROKER_SETTINGS,
    COMPUTED,
    SOURCES,
    TOPIC,
    TOPIC_PARTITIONS,
    Pipeline,
    commit_orders,
    held_after,
    logged,
    order_commits,
    pipelines,
    records,
    send,
)

STORES = {"engines": ENGINE_STORES, "kinds": KIND_STORES}
FIRST_RECORDS = range(60)
MORE_RECORDS = range(60, 95)
TIMEOUT_S = 1200


def main() -> None:
    """Makes everything in a new folder and packs it."""
    archive, content = Path(sys.argv[1]), sys.argv[2]
    shapes = {"engines": SHAPES, "kinds": KINDS, "histories": HISTORIES}[content]
    print(f"made by the code in {Path(freshet.__file__).parent}")
    world = Path(tempfile.mkdtemp(prefix="freshet-golden-"))
    try:
        (world / "tables").mkdir()
        manifest = make_tables(world / "tables", shapes)
        (world / "tables" / "manifest.json").write_text(json.dumps(manifest))
        shutil.rmtree(world / "tables" / "index", ignore_errors=True)  # elsewhere it is an index of other tables
        if content in STORES:
            manifest = make_stores(world / "stores", STORES[content])
            (world / "stores" / "manifest.json").write_text(json.dumps(manifest))
        kafka = None
        if content == "engines":
            kafka = make_streams(world / "streams")
        else:
            make_file_pipelines(world / "files", FILE_PIPELINES if content == "kinds" else STOPPED_BY_HAND)
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
        write_pipelines(world, pipelines("${KAFKA}"))
        for part in ("pipelines", "streams"):
            run_until_killed(world, kafka, part)
    (world / "manifest.json").write_text(json.dumps(manifest_of(world)))
    for path in (world / "kafka").iterdir():
        if path.name != "logs":
            path.unlink()
    return kafka


def make_file_pipelines(folder: Path, pipelines: Sequence[FilePipeline]) -> None:
    """Pipelines that read files: what they leave is moved into the folder."""
    batches = batch_records(range(BATCHES + LATER_BATCHES))
    with fixed_place(FILES_PLACE) as world:
        add_input(world, range(BATCHES), batches[:BATCHES])
        write_pipelines(world, pipelines)
        run_until_killed(world, "-", "files")
        shutil.copytree(world, folder)
    manifest = {
        "rest": batches[BATCHES:],
        "rows in the end": {each.name: held_after_batches(each, batches) for each in pipelines},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_pipelines(world: Path, everything: Iterable[Pipeline]) -> None:
    """Their files."""
    (world / "pipelines").mkdir()
    for pipeline in everything:
        (world / "pipelines" / f"{pipeline.name}.yaml").write_text(pipeline.file)


def run_until_killed(world: Path, kafka: str, part: str) -> None:
    """Runs the program that stops everything where it is to be stopped."""
    command = [sys.executable, "-m", "tests.upgrade.stopped_program", str(world), kafka, part]
    code = subprocess.run(command, timeout=TIMEOUT_S, start_new_session=True, check=False).returncode
    assert code == -signal.SIGKILL, f"the program that is stopped ended with {code}"


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
