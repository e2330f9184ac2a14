"""Records that grow while a query runs: the next batches poll fewer, by Spark's own source on a real broker."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.storage.catalog import Catalog
from tests.kit.sized_records import SizedRecords, produce_sized

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PIPELINE = """\
name: growing
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{topic}", startingOffsets: earliest,
            maxOffsetsPerTrigger: 40{options}}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: s.t
  columns: {{id: BIGINT, doc: STRING}}
  primary_key: [id]
  options: {{bucket: 1}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
"""
PARTS = [SizedRecords(40, 200, is_easy=False), SizedRecords(80, 300_000, is_easy=True, first=40)]


def polls_of_a_run(broker: ForeignBroker, topic: str, folder: Path, options: str = "") -> list[str]:
    folder.mkdir()
    file = folder / "growing.yaml"
    servers = broker.bootstrap_servers
    file.write_text(PIPELINE.format(servers=servers, topic=topic, folder=folder, options=options))
    command = [sys.executable, "-m", "tests.integration.growing_records_program", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-5000:]
    assert Catalog(str(folder / "warehouse")).table("s.t").scan(columns=["id"]).count() == 120
    return [line.removeprefix("polls ") for line in ran.stdout.splitlines() if line.startswith("polls ")]


def test_polls_follow_the_batches_unless_the_file_says_how_many(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    topic = f"growing-{uuid.uuid4()}"
    produce_sized(kafka_broker, topic, PARTS)
    assert polls_of_a_run(kafka_broker, topic, tmp_path / "follows") == ["16384", "27", "27"]
    assert polls_of_a_run(kafka_broker, topic, tmp_path / "given", ', kafka.max.poll.records: "77"') == []
