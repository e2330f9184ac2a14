"""`freshet doctor FILES`: each situation of a pipeline is made by running it, and found; and of machines."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.commands import doctor, local_running
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.running.pipeline_findings import PIPELINE_RULES, PipelineFacts, Topics
from freshet.pipeline.running.pipeline_status import pipeline_statuses
from freshet.pipeline.running.run_note import STATUS_FILE
from freshet.storage.status.finding import findings_of
from tests.pipeline.commands.kit import Freshet, fake_java

DAY_MS = 86_400_000
PIPELINE = """\
name: a
run_on: local
sources:
  - SOURCE
    format: FORMAT
table:
  warehouse: "FOLDER/w"
  name: s.a
  columns: {id: BIGINT, n: INT, bits: "ARRAY<BOOLEAN>"}
  primary_key: [id]
  options: {bucket: 1}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_running, "WorkerPool", lambda count, **_: WorkerPool(0))


class Pipeline:
    """A pipeline of files, and its doctor."""

    def __init__(self, folder: Path, freshet: Freshet) -> None:
        self.folder, self.freshet, self.file = folder, freshet, folder / "a.yaml"
        (folder / "in").mkdir()
        self.write('files: {path: "FOLDER/in"}')

    def write(self, source: str, record_format: str = "json") -> None:
        text = PIPELINE.replace("SOURCE", source).replace("FORMAT", record_format)
        self.file.write_text(text.replace("FOLDER", str(self.folder)))

    def put(self, *rows: object) -> None:
        name = f"{len(list((self.folder / 'in').iterdir()))}.json"
        (self.folder / "in" / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def run(self) -> int:
        return self.freshet("run", self.file).code

    def note(self, **changes: Any) -> None:
        """What its run has noted, but for this."""
        note = self.folder / "c" / STATUS_FILE
        note.write_text(json.dumps({**json.loads(note.read_text()), **changes}))

    def found(self) -> list[dict[str, Any]]:
        called = self.freshet("doctor", self.file, "--json")
        found: list[dict[str, Any]] = called.facts["findings"]
        assert called.code == (3 if any(each["severity"] != "note" for each in found) else 0)
        return found


@pytest.fixture
def pipeline(tmp_path: Path, freshet: Freshet) -> Pipeline:
    return Pipeline(tmp_path, freshet)


def gone(pipeline: Pipeline) -> int:
    pipeline.run()
    pipeline.note(state="running", time_ms=now_ms() - 120_000)
    return 120


def failed(pipeline: Pipeline) -> int:
    pipeline.run()
    pipeline.note(state="failed", error="the store is away", batch_done_ms=now_ms() - 60_000)
    return 60


def stuck(pipeline: Pipeline) -> int:
    pipeline.run()
    pipeline.note(state="running", time_ms=now_ms(), lag_records=7, batch_done_ms=now_ms() - 600_000)
    return 7


def bad_records(pipeline: Pipeline) -> int:
    pipeline.put({"id": 2, "n": "no number"}, *({"id": number, "n": 1} for number in range(3, 40)))
    pipeline.run()
    return 1


def fields_left_out(pipeline: Pipeline) -> int:
    pipeline.put({"id": 2, "n": 1, "more": 1}, {"id": 3, "n": 1, "more": 2})
    pipeline.run()
    return 2


def unchanged_values(pipeline: Pipeline) -> int:
    pipeline.run()
    pipeline.write('files: {path: "FOLDER/in"}', "debezium-json")
    return 1


def now_ms() -> int:
    return time.time_ns() // 1_000_000


MADE: dict[str, Callable[[Pipeline], int]] = {
    "run gone": gone,
    "run failed": failed,
    "run stuck": stuck,
    "bad records": bad_records,
    "fields left out": fields_left_out,
    "unchanged values come as NULL": unchanged_values,
}


@pytest.mark.parametrize("name", MADE)
def test_each_situation_is_found_alone(pipeline: Pipeline, name: str) -> None:
    pipeline.put({"id": 1, "n": 1})
    evidence = MADE[name](pipeline)
    (found,) = pipeline.found()
    assert found["table"] == "a" and found["name"] == name
    assert evidence <= found["evidence"] <= evidence + 5
    text = pipeline.freshet("doctor", pipeline.file).out
    assert f"a: {name} (" in text and "{" not in text


def test_a_pipeline_that_is_well(pipeline: Pipeline) -> None:
    pipeline.put({"id": 1, "n": 1})
    pipeline.run()
    assert pipeline.found() == []
    assert pipeline.freshet.good("doctor", pipeline.file).out == "nothing is wrong\n"
    (pipeline.folder / "w" / "s.db" / "a" / "snapshot" / "snapshot-1").write_text("{")
    assert [(each["table"], each["name"]) for each in pipeline.found()] == [("s.a", "cannot be read")]


@pytest.mark.kafka
def test_what_kafka_keeps(pipeline: Pipeline, kafka_broker: ForeignBroker) -> None:
    """A week by default: what is four days old is near the end, what was deleted is lost."""
    settings = {"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0}
    kafka_broker.create_topic("doctor")
    kafka = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": "doctor"}
    pipeline.write(f"kafka: {json.dumps({**kafka, 'startingOffsets': 'earliest'})}")
    producer, admin = Producer(settings), AdminClient(settings)

    def send(count: int, age_ms: int) -> None:
        for number in range(count):
            record = json.dumps({"id": number, "n": 1})
            producer.produce("doctor", record, timestamp=now_ms() - age_ms)
        assert producer.flush(60) == 0

    send(3, 6 * DAY_MS)
    assert pipeline.run() == 0
    assert pipeline.found() == [], "old, and read"
    send(2, 4 * DAY_MS)
    send(5, DAY_MS)
    (near,) = pipeline.found()
    assert (near["name"], near["evidence"]) == ("topic near its retention", 2)
    assert "topic doctor partition 0 keeps (retention.ms=604800000" in near["cause"]
    place = TopicPartition("doctor", 0, 6)
    admin.delete_records([place])[place].result(60)
    (lost,) = pipeline.found()
    assert (lost["name"], lost["evidence"], lost["severity"]) == ("offsets lost", 3, "error")
    assert pipeline.freshet(*shlex.split(lost["command"])[1:], "--no-spark").code == 2


@pytest.mark.kafka
def test_a_topic_that_keeps_so_many_bytes(pipeline: Pipeline, kafka_broker: ForeignBroker) -> None:
    settings = {"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0}
    admin = AdminClient(settings)
    kafka_broker.create_topic("bytes")
    entry = ConfigEntry("retention.bytes", "1000000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "bytes", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    kafka = {"kafka.bootstrap.servers": kafka_broker.bootstrap_servers, "subscribe": "bytes"}
    pipeline.write(f"kafka: {json.dumps({**kafka, 'startingOffsets': 'earliest'})}")
    producer = Producer(settings)
    for number in range(3):
        producer.produce("bytes", json.dumps({"id": number, "n": 1}))
    assert producer.flush(60) == 0 and pipeline.run() == 0
    for number in range(50):
        producer.produce("bytes", json.dumps({"id": number, "n": 1}))
    assert producer.flush(60) == 0
    assert pipeline.found() == [], "nothing was deleted yet"
    place = TopicPartition("bytes", 0, 2)
    admin.delete_records([place])[place].result(60)
    assert [(each["name"], each["evidence"]) for each in pipeline.found()] == [("topic near its retention", 50)]


@pytest.mark.kafka
def test_a_log_that_is_kept_too_short(pipeline: Pipeline, kafka_broker: ForeignBroker) -> None:
    """A week by default; snapshots are kept for an hour, or here for eight days."""
    log = f'log.system: kafka, kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}", kafka.topic: doctor-log'
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("options: {bucket: 1}", f"options: {{bucket: 1, {log}}}"))
    pipeline.put({"id": 1, "n": 1})
    assert pipeline.run() == 0
    assert pipeline.found() == []
    longer = f"options: {{bucket: 1, snapshot.time-retained: 8 d, {log}}}"
    pipeline.file.write_text(text.replace("options: {bucket: 1}", longer))
    (found,) = pipeline.found()
    assert (found["name"], found["evidence"]) == ("log kept too short", DAY_MS // 1000)


def test_brokers_that_are_away_hide_nothing(pipeline: Pipeline) -> None:
    pipeline.put({"id": 1, "n": 1})
    bad_records(pipeline)
    pipeline.write('kafka: {kafka.bootstrap.servers: "127.0.0.1:1", subscribe: t}')
    called = pipeline.freshet("doctor", pipeline.file, "--json")
    assert [each["name"] for each in called.facts["findings"]] == ["bad records"]


def test_machines(pipeline: Pipeline, freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "11.0.2")))
    monkeypatch.setattr(doctor, "requires_of", lambda name: ["pyarrow<22,>=20; extra == 'x'", "numpy>=2", "none>=1"])
    pipeline.put({"id": 1, "n": 1})
    pipeline.run()
    found = freshet("doctor", tmp_path / "w", "--json").facts["findings"]
    assert [(each["table"], each["name"]) for each in found] == [
        ("this machine", "libraries do not fit"),
        ("this machine", "Java does not fit"),
    ]
    assert "pyarrow" in found[0]["cause"] and "<22,>=20" in found[0]["cause"] and "11" in found[1]["cause"]


@pytest.mark.parametrize(
    ("bounds", "versions"),
    [(">=2,<3", {"2": True, "2.9.1": True, "3.0": False, "1.9": False}), (">1.5,<=2.0", {"1.5.0": False, "2": True})],
)
def test_bounds(bounds: str, versions: dict[str, bool]) -> None:
    assert {version: doctor._fits(version, bounds) for version in versions} == versions


def test_tables_that_are_set_apart(pipeline: Pipeline) -> None:
    """How a ledger says it is tried where tables are set apart; here it is put into the status."""
    pipeline.put({"id": 1, "n": 1})
    pipeline.run()
    (status,) = pipeline_statuses(load_pipelines([pipeline.file]))
    facts = PipelineFacts(replace(status, apart={"s.b": "a type that changed", "s.c": "the same"}), Topics(), ())
    (found,) = findings_of(PIPELINE_RULES, facts, "a", file="a.yaml")
    assert (found.name, found.evidence, found.command) == (
        "tables set apart",
        2,
        "freshet resume a.yaml --table s.b",
    )
    assert found.cause == "s.b: a type that changed; s.c: the same"


def test_every_rule_is_tried() -> None:
    kafka = {"offsets lost", "topic near its retention", "log kept too short"}
    assert {rule.name for rule in PIPELINE_RULES} == MADE.keys() | kafka | {"tables set apart"}
