"""Topics that were deleted and created again are noticed by their ids."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_topics import TOPICS_FILE, claim_topics
from freshet.storage.catalog import Catalog

TOPIC = "made-again"


def held(folder: Path) -> object:
    return json.loads((folder / TOPICS_FILE).read_text())


def test_ids_are_remembered_and_new_topics_are_added(tmp_path: Path) -> None:
    claim_topics(str(tmp_path), {"a": "1"})
    claim_topics(tmp_path.as_uri(), {"a": "1", "b": "2"})
    claim_topics(str(tmp_path), {"b": "2"})
    assert held(tmp_path) == {"a": "1", "b": "2"}
    assert [path.name for path in tmp_path.iterdir()] == [TOPICS_FILE]


def test_what_nobody_knows_is_not_written(tmp_path: Path) -> None:
    claim_topics(str(tmp_path), {})
    claim_topics("s3://bucket/checkpoint", {"a": "1"})
    assert not list(tmp_path.iterdir())


def test_another_id_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    claim_topics(str(tmp_path), {"a": "1", "b": "2"})
    with pytest.raises(ConfigurationError, match="topic a was deleted and created again .*name another checkpoint"):
        claim_topics(str(tmp_path), {"a": "9", "c": "3"})
    with pytest.raises(ConfigurationError, match="the topics a, b were deleted and created again"):
        claim_topics(str(tmp_path), {"a": "9", "b": "9"})
    assert held(tmp_path) == {"a": "1", "b": "2"}


@pytest.mark.parametrize("octets", [b"{", b"[]", b"7", b'"a"', b"\xff", b"\0\0"])
def test_a_damaged_file_is_reported_with_the_remedy(tmp_path: Path, octets: bytes) -> None:
    (tmp_path / TOPICS_FILE).write_bytes(octets)
    with pytest.raises(ConfigurationError, match="cannot be read.*remove that file"):
        claim_topics(str(tmp_path), {"a": "1"})


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_a_run_does_not_skip_the_records_of_a_topic_made_again(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    """At the old offsets the first records of the new topic would be missing, with exit code 0."""
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""
name: again
sources:
  - kafka:
      kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}"
      subscribe: {TOPIC}
      startingOffsets: earliest
    format: json
table: {{warehouse: "{tmp_path}/w", name: s.t, columns: {{id: BIGINT}}, primary_key: [id], options: {{bucket: 1}}}}
trigger: {{available_now: true}}
checkpoint: "{tmp_path}/c"
"""
    )

    def fill(numbers: range) -> None:
        kafka_broker.create_topic(TOPIC)
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        for number in numbers:
            producer.produce(TOPIC, json.dumps({"id": number}))
        producer.flush()

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "freshet", "run", "--wait-for-topics", "0", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    fill(range(20))
    for _ in range(2):
        done = run()
        assert done.returncode == 0, done.stderr
    kafka_broker.delete_topic(TOPIC)
    fill(range(100, 140))
    done = run()
    assert done.returncode == 2, done.stderr
    assert f"topic {TOPIC} was deleted and created again" in done.stderr
    assert "Traceback" not in done.stderr
    assert Catalog(tmp_path / "w").table("s.t").scan().count() == 20
    kafka_broker.delete_topic(TOPIC)
    done = run()
    assert f"there is no topic {TOPIC} at" in done.stderr
    assert done.returncode == 75, done.stderr


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_a_topic_made_again_while_a_pipeline_runs_stops_it(tmp_path: Path, kafka_broker: ForeignBroker) -> None:
    """Spark itself says nothing here: with failOnDataLoss false it goes on with what it finds."""
    topic = "made-again-meanwhile"
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""
name: again
sources:
  - kafka:
      kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}"
      subscribe: {topic}
      startingOffsets: earliest
      failOnDataLoss: false
    format: json
table: {{warehouse: "{tmp_path}/w", name: s.t, columns: {{id: BIGINT}}, primary_key: [id], options: {{bucket: 1}}}}
trigger: {{processing_time: 200 ms}}
checkpoint: "{tmp_path}/c"
"""
    )
    kafka_broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, json.dumps({"id": 1}))
    producer.flush()
    command = [sys.executable, "-m", "freshet", "run", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            assert running.stdout is not None
            said = []
            for line in running.stdout:
                said.append(line)
                if "1 applied" in line or "1 record" in line:
                    break
            kafka_broker.delete_topic(topic)
            kafka_broker.create_topic(topic)
            said += running.communicate(timeout=600)[0].splitlines(keepends=True)
        finally:
            running.kill()
    text = "".join(said)
    assert running.returncode == 65, text
    assert f"pipeline 'again': while it ran topic {topic} was deleted and created again" in text
    assert "Traceback" not in text
