"""Topics and offsets of a source, asked of a real broker before anything is made."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.identity.checkpoint_owner import claim_checkpoint
from freshet.pipeline.query.driver.table_setup import open_or_create
from tests.pipeline.commands.kit import Freshet

pytestmark = pytest.mark.kafka

LATE = 99_999_999_999_999


def pipeline(folder: Path, broker: ForeignBroker, topic: str, **options: object) -> Path:
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}
    file = folder / "p.yaml"
    file.write_text(
        f"""
name: reader
sources:
  - kafka: {json.dumps(kafka)}
    format: json
table: {{warehouse: "{folder}/w", name: s.t, columns: {{id: BIGINT}}, primary_key: [id], options: {{bucket: 1}}}}
trigger: {{available_now: true}}
checkpoint: "{folder}/c"
"""
    )
    return file


@pytest.fixture(scope="module")
def topic(kafka_broker: ForeignBroker) -> str:
    """Five records in partition 0, none in partition 1."""
    name = f"five-{uuid.uuid4()}"
    kafka_broker.create_topic(name, kafka_partitions=2)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(5):
        producer.produce(name, json.dumps({"id": number}), partition=0)
    assert producer.flush(300) == 0
    return name


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": {"T": {"0": 99, "1": 0}}}, "offset 99 lies beyond the end of topic T partition 0"),
        ({"startingOffsets": {"T": {"0": 1}}}, "lacks topic T partition 1"),
        ({"startingOffsets": {"T": {"0": 1, "1": 0, "7": 0}}}, "names topic T partition 7, which is not there"),
        ({"startingOffsets": {"T": {"0": 1, "1": 0}, "U": {"0": 1}}}, "names topic U, which the source does not read"),
        ({"startingOffsetsByTimestamp": {"T": {"0": 1, "1": LATE}}}, "no record of topic T partition 1 is as late"),
        ({"startingTimestamp": LATE}, "no record of topic T partition 0, topic T partition 1 is as late"),
        ({"subscribe": None, "assign": {"T": [0, 7]}}, "names topic T partition 7, which is not there"),
    ],
)  # fmt: skip
def test_offsets_that_cannot_be_are_found_before_anything_is_made(
    freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker, topic: str, options: dict[str, object], wanted: str
) -> None:
    given = json.loads(json.dumps(options).replace('"T"', f'"{topic}"'))
    file = pipeline(tmp_path, kafka_broker, topic, **given)
    if "assign" in given:
        file.write_text(file.read_text().replace('"subscribe": null, ', ""))
    for command in (("check", "--no-spark"), ("run",)):
        called = freshet(*command, file)
        assert called.code == 2, called.err
        assert (
            f"p.yaml:4: sources.0.kafka.{list(given)[-1]}: {wanted.replace('topic T', f'topic {topic}')}" in called.err
        )
        assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_right_ones_are_let_through(freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker, topic: str) -> None:
    for options in (
        {"startingOffsets": {topic: {"0": 5, "1": -2}}},
        {"startingOffsetsByTimestamp": {topic: {"0": 1, "1": LATE}}, "startingOffsetsByTimestampStrategy": "latest"},
        {"subscribe": f"{topic[:-1]}.", "startingOffsets": {topic: {"0": 5, "1": -1}}},
    ):
        file = pipeline(tmp_path, kafka_broker, topic, **options)
        if "subscribe" in options:
            file.write_text(file.read_text().replace('"subscribe"', '"subscribePattern"'))
        called = freshet.good("check", "--no-spark", file)
        assert "warning" not in called.err


def test_a_checkpoint_that_keeps_offsets_beyond_the_end_is_named_with_the_remedy(
    freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker, topic: str
) -> None:
    """The file was mended, and Spark would go on where the first start was to begin."""
    file = pipeline(tmp_path, kafka_broker, topic, startingOffsets="earliest")
    config = load_pipeline(file, {})
    table = open_or_create(config)
    claim_checkpoint(config.checkpoint, pipeline=config.name, table=table)
    checkpoint = tmp_path / "c"
    (checkpoint / "metadata").write_text('{"id":"910f53e6-1804-402b-a00d-1894a997eb96"}')
    (checkpoint / "sources" / "0").mkdir(parents=True)
    begun = checkpoint / "sources" / "0" / "0"
    begun.write_text("\0v1\n" + json.dumps({topic: {"0": 99, "1": 0}}))
    for command in (("check", "--no-spark"), ("run",)):
        called = freshet(*command, file)
        assert called.code == 2, called.err
        assert f"sources[0] goes on with topic {topic} partition 0 at offset 99, which ends at 5." in called.err
        assert f"delete the folder {checkpoint} and start again" in called.err
    shutil.rmtree(checkpoint)
    freshet.good("check", "--no-spark", file)
    claim_checkpoint(config.checkpoint, pipeline=config.name, table=table)
    (checkpoint / "metadata").write_text('{"id":"910f53e6-1804-402b-a00d-1894a997eb96"}')
    begun.parent.mkdir(parents=True)
    begun.write_text("\0v1\n" + json.dumps({topic: {"0": 5, "1": 0}}))
    freshet.good("check", "--no-spark", file)


def test_a_topic_that_is_not_there_is_warned_of_and_waited_for(
    freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker
) -> None:
    name = f"later-{uuid.uuid4()}"
    file = pipeline(tmp_path, kafka_broker, name, startingOffsets={name: {"0": 1}})
    assert f"warning: there is no topic {name} at" in freshet.good("check", "--no-spark", file).err
    called = freshet("run", "--wait-for-topics", "0", file)
    assert called.code == 75, called.err
    assert f"there is no topic {name} at" in called.err and "nothing was started" in called.err
    assert freshet("run", "--wait-for-topics", "soon", file).code == 2
    creating = threading.Timer(1.5, lambda: kafka_broker.create_topic(name))
    creating.start()
    called = freshet("run", file)
    creating.join()
    assert called.code == 2
    assert "waiting for it, 300 s at most" in called.err and "all topics are there" in called.err
    assert "offset 1 lies beyond the end" in called.err, "what is there is looked at"
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("T", "'T': write topic, partition and offset, such as shop.public.orders/0/17"),
        ("other/0/0", "no source of these pipelines reads topic other"),
        ("T/7/0", "topic T has 2 partitions, from 0 on"),
        ("T/0/5", "partition 0 of topic T has offsets 0 to 4"),
        ("T/1/0", "partition 1 of topic T has no records"),
        ("T/0/2", "reader has read that record, and goes on at offset 3"),
    ],
)
def test_a_record_to_skip_is_there_and_still_to_be_read(
    freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker, topic: str, place: str, wanted: str
) -> None:
    file = pipeline(tmp_path, kafka_broker, topic, startingOffsets="earliest")
    if place == "T/0/2":
        for folder in ("offsets", "commits"):
            (tmp_path / "c" / folder).mkdir(parents=True)
        (tmp_path / "c" / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps({topic: {'0': 3, '1': 0}})}")
        (tmp_path / "c" / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    called = freshet("run", "--skip-record", place.replace("T", topic), file)
    assert called.code == 2
    assert f"--skip-record {wanted if place == 'T' else f'{place}: {wanted}'}".replace("T", topic) in called.err
    assert not (tmp_path / "w").exists()


LOG = (
    "changelog-producer: lookup, log.system: kafka, log.format: FORMAT, log.changelog-mode: upsert, "
    "log.consistency: KIND, kafka.topic: TOPIC"
)


@pytest.mark.parametrize("kind", ["eventual", "transactional"])
def test_a_log_goes_into_a_topic_of_its_own_or_an_empty_one(
    freshet: Freshet, tmp_path: Path, kafka_broker: ForeignBroker, topic: str, kind: str
) -> None:
    def refused(source: str, log: str, wanted: str, **options: object) -> None:
        own = LOG.replace("KIND", kind).replace("TOPIC", log).replace("FORMAT", log_format)
        own = f"{own}, kafka.bootstrap.servers: '{servers}'"
        file = pipeline(tmp_path, kafka_broker, source, startingOffsets="earliest", **options)
        text = file.read_text().replace('"subscribe": null, ', "")
        file.write_text(text.replace("{bucket: 1}", f"{{bucket: {buckets}, {own}}}"))
        for command in (("check", "--no-spark"), ("run", "--wait-for-topics", "0")):
            called = freshet(*command, file)
            assert called.code == 2, called.err
            assert wanted in called.err
            assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]

    servers, buckets = kafka_broker.bootstrap_servers, 2
    log_format = "arrow" if kind == "eventual" else "json"
    reads = f"sources[0] reads topic {topic}"
    empty = f"empty-{uuid.uuid4()}"
    kafka_broker.create_topic(empty)
    refused(empty, topic, f"p.yaml:6: table.options.kafka.topic: table s.t: its log is to go into topic {topic}, and")
    refused(topic, topic, reads)
    servers = servers.replace("127.0.0.1", "localhost")
    refused(topic, topic, reads)
    kafka_broker.create_topic(f"{empty}-control")
    refused(f"{empty}-control", empty, f"sources[0] reads topic {empty}-control, where the log of s.t is to go")
    buckets = 1
    source = {"subscribePattern": "later.*", "subscribe": None}
    refused(empty, "later-made", "sources[0] reads topic later-made", **source)
