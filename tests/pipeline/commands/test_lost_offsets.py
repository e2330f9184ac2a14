"""What a checkpoint goes on at and its topic does not give, found before anything is started: offsets that were
deleted, topics that were made again, transactions that are open. Of a real broker."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LOST
from freshet.logstore.kafka.cluster import KafkaCluster
from freshet.pipeline.checks import open_transactions
from freshet.pipeline.checks.kafka_reach import ASK_S, brokers_of
from freshet.pipeline.checks.open_transactions import WatchedTransactions, wait_for_transactions
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.identity.checkpoint_owner import claim_checkpoint
from freshet.pipeline.identity.checkpoint_topics import claim_topics
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.query.driver.table_setup import open_or_create
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.storage.table import Table
from tests.kit.transactions import Transaction
from tests.pipeline.commands.kit import Freshet

pytestmark = pytest.mark.kafka

QUERY = "910f53e6-1804-402b-a00d-1894a997eb96"
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795422618683,"conf":{}}\n'
SINGLE = """
name: reader
sources:
  - kafka: {KAFKA}
    format: json
table: {{warehouse: "{FOLDER}/w", name: s.t, columns: {{id: BIGINT}}, primary_key: [id], options: {{bucket: 1}}}}
trigger: {{available_now: true}}
checkpoint: "{FOLDER}/c"
"""
SYNC = """
name: reader
sync:
  source: {{kafka: {KAFKA}, format: debezium-json}}
  tables: [{{from: 'shop.(.*)', to: 's.$1'}}]
warehouse: "{FOLDER}/w"
dead_letters: s.dead
trigger: {{available_now: true}}
checkpoint: "{FOLDER}/c"
"""
BOTH = pytest.mark.parametrize(
    "shape", [pytest.param(SINGLE, id="table"), pytest.param(SYNC, id="sync", marks=pytest.mark.slow)]
)


class Stopped:
    """A pipeline that was stopped, with its checkpoint, and a topic of ten records."""

    def __init__(self, folder: Path, broker: ForeignBroker, shape: str, topic: str) -> None:
        self.folder, self.broker, self.topic, self.checkpoint = folder, broker, topic, folder / "c"
        self.settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        broker.create_topic(topic)
        self.send(10)
        self.file = folder / "p.yaml"
        self.shape = shape
        self.write()
        self.table: Table = open_or_create(self.config)
        claim_checkpoint(self.config.checkpoint, pipeline="reader", table=self.table)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        claim_topics(str(self.checkpoint), self.ids())
        for number, end in enumerate((3, 6)):
            self.plan(number, end)
            self.done(number)

    @property
    def config(self) -> PipelineConfig:
        return load_pipeline(self.file, {})

    def write(self, **options: str) -> None:
        kafka = {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": self.topic, **options}
        self.file.write_text(self.shape.format(KAFKA=json.dumps(kafka), FOLDER=self.folder))

    def ids(self) -> dict[str, str]:
        brokers = brokers_of(self.config.sources[0])
        assert brokers is not None
        return KafkaCluster(brokers.settings).topic_ids([self.topic], ASK_S)

    def send(self, count: int) -> None:
        producer = Producer(self.settings)
        for number in range(count):
            producer.produce(self.topic, json.dumps({"id": number}))
        assert producer.flush(60) == 0

    def plan(self, number: int, end: int) -> None:
        (self.checkpoint / "offsets").mkdir(exist_ok=True)
        (self.checkpoint / "offsets" / str(number)).write_text(HEAD + json.dumps({self.topic: {"0": end}}))

    def done(self, number: int) -> None:
        (self.checkpoint / "commits").mkdir(exist_ok=True)
        (self.checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self.table.engine.committer("reader", QUERY).commit(number, [])

    def delete_before(self, offset: int) -> None:
        admin, place = AdminClient(self.settings), TopicPartition(self.topic, 0, offset)
        admin.delete_records([place])[place].result(60)


@pytest.fixture
def stopped(shape: str, tmp_path: Path, kafka_broker: ForeignBroker, request: pytest.FixtureRequest) -> Stopped:
    return Stopped(tmp_path, kafka_broker, shape, f"lost-{abs(hash(request.node.nodeid))}")


def refused(freshet: Freshet, stopped: Stopped, *wanted: str) -> None:
    for command in (("check", "--no-spark"), ("run",)):
        called = freshet(*command, stopped.file)
        assert called.code == 2, called.err
        for text in wanted:
            assert text in called.err


@BOTH
def test_offsets_that_retention_has_passed(freshet: Freshet, stopped: Stopped) -> None:
    stopped.delete_before(6)
    freshet.good("check", "--no-spark", stopped.file)
    stopped.delete_before(8)
    refused(
        freshet,
        stopped,
        f"sources[0] goes on with topic {stopped.topic} partition 0 at offset 6, which has offsets 8 to 9: {LOST}",
    )
    stopped.write(failOnDataLoss="false")
    freshet.good("check", "--no-spark", stopped.file)


@BOTH
def test_a_batch_that_the_table_holds_is_not_read_again(freshet: Freshet, stopped: Stopped) -> None:
    """It was committed when the driver died, and Spark has not noted that."""
    stopped.plan(2, 9)
    stopped.delete_before(8)
    refused(freshet, stopped, "partition 0 at offset 6, which has offsets 8 to 9")
    stopped.done(2)
    (stopped.checkpoint / "commits" / "2").unlink()
    freshet.good("check", "--no-spark", stopped.file)


@BOTH
def test_a_topic_that_was_made_again(freshet: Freshet, stopped: Stopped) -> None:
    """It has as many records as before."""
    stopped.broker.delete_topic(stopped.topic)
    stopped.broker.create_topic(stopped.topic)
    stopped.send(10)
    stopped.write(failOnDataLoss="false")
    refused(
        freshet,
        stopped,
        f"checkpoint: since it was written topic {stopped.topic} was deleted and created again (other ids in Kafka)",
        f"remove {stopped.checkpoint}/freshet-topics.json",
    )


@pytest.mark.parametrize("shape", [SINGLE], ids=["table"])
def test_a_topic_that_is_made_again_while_it_is_followed(stopped: Stopped) -> None:
    """It has more records than were read of the old one: of these none is committed, and the run ends."""

    def renew(progress: Progress) -> None:
        if not batches:
            stopped.broker.delete_topic(stopped.topic)
            stopped.broker.create_topic(stopped.topic)
            stopped.send(20)
        else:
            runner.request_stop()
        batches.append(progress.report.read_count)

    batches: list[int] = []
    stopped.file.write_text(stopped.file.read_text().replace("available_now: true", "processing_time: 0 s"))
    ids = {"reader": stopped.ids()}
    runner = Runner(LocalPipelines(WorkerPool(0)), [stopped.config], on_progress=renew, topic_ids=ids)
    with pytest.raises(PipelineFailedError, match=f"topic {stopped.topic} was deleted and created again") as failed:
        runner.run()
    assert (failed.value.exit_code, batches) == (65, [4])


@BOTH
def test_an_open_transaction_at_which_a_pipeline_stands_still(
    freshet: Freshet, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said by check, once while a pipeline runs, and waited for where a checkpoint lies behind its first record."""
    monkeypatch.setattr(open_transactions, "LOOK_S", 0.05)
    monkeypatch.setattr(open_transactions, "HELD_S", 0.001)
    begun = Transaction(stopped.broker.bootstrap_servers, stopped.topic)
    begun.send([(None, b"{}")] * 2)
    assert "waits" not in freshet.good("check", "--no-spark", stopped.file).err, "there is something to read"
    stopped.plan(2, 10)
    stopped.done(2)
    called = freshet.good("check", "--no-spark", "--json", stopped.file)
    (fact,) = called.facts["pipelines"]
    text = "sources[0] waits for an open transaction since 2"
    (found,) = [each for each in fact["warnings"] if each.startswith(text)]
    assert f" UTC: topic {stopped.topic} partition 0, offsets 10 to 11. It ends when its producer commits" in found
    assert f"reader: warning: {text}" in called.err

    brokers, said = brokers_of(stopped.config.sources[0]), list[str]()
    assert brokers is not None
    cluster = KafkaCluster(brokers.settings)
    watched = WatchedTransactions([stopped.config], lambda config: config.checkpoint, said.append)
    for expected in (0, 1, 1):
        watched.look(brokers, cluster, cluster.ask(ASK_S))
        assert len(said) == expected
    assert said[0].startswith(f"reader: {text}")

    stop = threading.Event()
    assert wait_for_transactions([(stopped.config, str(stopped.checkpoint))], say=said.append, stop=stop)
    stopped.plan(3, 11)
    ending = threading.Timer(0.5, begun.abort)
    ending.start()
    assert wait_for_transactions([(stopped.config, str(stopped.checkpoint))], say=said.append, stop=stop)
    ending.join()
    assert len(said) == 2 and said[1].startswith(f"reader: {text}")
    assert "waits" not in freshet.good("check", "--no-spark", stopped.file).err
    begun = Transaction(stopped.broker.bootstrap_servers, stopped.topic)
    begun.send([(None, b"{}")])
    stopped.plan(3, 14)
    stop.set()
    assert not wait_for_transactions([(stopped.config, str(stopped.checkpoint))], say=said.append, stop=stop)
    stopped.write(**{"kafka.isolation.level": "read_uncommitted"})
    assert "waits" not in freshet.good("check", "--no-spark", stopped.file).err
    begun.abort()
