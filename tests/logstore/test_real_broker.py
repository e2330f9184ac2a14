"""The log on a real broker: what the log in memory only claims, and a writer that is killed between log and commit."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from freshet import Catalog, Table
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LogConfigError, LogTruncatedError
from freshet.logstore.kafka.log_client import KafkaLogClient
from freshet.logstore.protocol.client import StoredRecord, TopicPartition
from freshet.storage.exceptions import InvalidRequestError
from tests.kit.quick import some_now
from tests.logstore.caught_up import CaughtUp
from tests.logstore.logged_tables import SCHEMA, folded, held, write

pytestmark = pytest.mark.kafka

_NUMBERS = itertools.count()


@pytest.fixture
def topic(kafka_broker: ForeignBroker) -> str:
    return f"log-{os.getpid()}-{next(_NUMBERS)}"


@pytest.fixture
def client(kafka_broker: ForeignBroker) -> Iterator[KafkaLogClient]:
    found = KafkaLogClient.of_options({"kafka.bootstrap.servers": kafka_broker.bootstrap_servers})
    yield found
    found.close()


def make(folder: Path, broker: ForeignBroker, topic: str, **options: str) -> Table:
    given = {
        "bucket": "2",
        "changelog-producer": "lookup",
        "log.system": "kafka",
        "kafka.topic": topic,
        "kafka.bootstrap.servers": broker.bootstrap_servers,
    }
    return Catalog(str(folder)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options={**given, **options})


def test_the_client_answers_as_the_log_in_memory_does(client: KafkaLogClient, topic: str) -> None:
    assert client.topic(topic) is None
    assert client.create_topic(topic, 2, {"cleanup.policy": "delete"})
    assert not client.create_topic(topic, 2, {})
    facts = client.topic(topic)
    assert facts is not None and facts.partition_count == 2 and facts.topic_id
    assert facts.settings["cleanup.policy"] == "delete" and int(facts.settings["max.message.bytes"]) > 0
    places = [TopicPartition(topic, number) for number in range(2)]
    assert client.fetch(dict.fromkeys(places, 0), wait_s=0.5) == {}
    producer = client.producer()
    for number in range(5):
        producer.send(places[1], b"h%d" % number, b"v%d" % number, 1000, number)
    assert producer.flush() == [(number, number) for number in range(5)]
    assert dict(client.bounds(topic)) == {0: (0, 0), 1: (0, 5)}
    found: list[StoredRecord] = []
    position = 2
    while position < 5:
        fetched = client.fetch({places[0]: 0, places[1]: position}, wait_s=5).get(places[1])
        if fetched is not None:
            found += fetched.records
            position = fetched.next_offset
    assert [each[:4] for each in found] == [(number, b"h%d" % number, b"v%d" % number, 1000) for number in range(2, 5)]
    with pytest.raises(LogTruncatedError, match="partition 1 has offsets 0 to 5, not 9"):
        client.fetch({places[1]: 9}, wait_s=300)


def test_a_large_record_is_named(client: KafkaLogClient, topic: str) -> None:
    client.create_topic(topic, 1, {"max.message.bytes": "2000"})
    producer = client.producer()
    producer.send(TopicPartition(topic, 0), b"", os.urandom(5000), 0, None)
    with pytest.raises(LogConfigError, match="(?i)too large.*Raise max.message.bytes of the topic"):
        producer.flush()


def test_brokers_that_do_not_answer_and_options_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(LogConfigError, match=r"needs kafka.bootstrap.servers"):
        KafkaLogClient.of_options({})
    client = KafkaLogClient.of_options({"kafka.bootstrap.servers": "nowhere:9", "kafka.no.such.thing": "x"})
    with pytest.raises(LogConfigError, match="no.such.thing"):
        client.topic("t")


def test_readers_of_both_isolations_agree_with_the_table(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str
) -> None:
    table = make(tmp_path, kafka_broker, topic)
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    streams = {isolation: CaughtUp(table, isolation) for isolation in ("committed", "speculative")}
    tables = {isolation: folded(stream()) for isolation, stream in streams.items()}
    for text in ("-D 1 a | +U 2 x", "+I 4 d", "+I 1 z | -D 4 d"):
        write(table, text)
        for isolation, stream in streams.items():
            tables[isolation] = folded(stream(), tables[isolation])
            assert tables[isolation] == held(table)


WRITER = """
import os, signal, sys
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.table import Table
from tests.logstore.logged_tables import rows
import freshet

class KilledEnv(Env):
    def reach(self, point):
        if point == sys.argv[3]:
            os.kill(os.getpid(), signal.SIGKILL)

with Table.open(sys.argv[1], env=KilledEnv(LocalFileIO())).writer("u") as writer:
    writer.write(rows(sys.argv[2]))
    writer.commit()
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("point", "shown", "healed"),
    some_now(
        [
            ("write-flushed", False, ""),
            ("compact-output-written", None, ""),  # logged, before the files: it may have left the process
            ("write-prepared", True, ""),
            ("commit-manifests-written", True, ""),
            ("commit-snapshot-created", True, None),
            ("commit-before-compact", True, None),
        ]
    ),
)
def test_a_writer_that_is_killed_is_healed(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str, point: str, shown: bool | None, healed: str | None
) -> None:
    table = make(tmp_path, kafka_broker, topic, bucket="1")
    write(table, "+I 1 a")
    fast, safe = CaughtUp(table, "speculative"), CaughtUp(table, "committed")
    assert fast() == safe() == "+I 1 a"
    dead = subprocess.run(
        [sys.executable, "-c", WRITER, table.location, "+I 1 b | +I 2 x", point],
        env={**os.environ, "PYTHONPATH": "src:."},
        timeout=600,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL
    early = fast()
    shown = bool(early) if shown is None else shown
    assert early == ("-U 1 a | +U 1 b | +I 2 x" if shown else "")
    assert safe() == ""
    if healed == "":
        write(table, "+I 1 b | +I 2 x")  # the same rows again: a speculative reader that has shown them is silent
        assert fast() == ("" if shown else "-U 1 a | +U 1 b | +I 2 x")
    else:
        write(table, "+I 3 y")  # rows of the batch are in the table, and their changes are emitted with the next
        late = fast()
        assert folded(f"{early} | {late}", {1: "a"}) == held(table)
    assert folded(safe(), {1: "a"}) == held(table)
    assert held(table) == {1: "b", 2: "x"} | ({} if healed == "" else {3: "y"})


def test_a_replay_with_other_rows_takes_back_what_was_shown(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str
) -> None:
    table = make(tmp_path, kafka_broker, topic, bucket="1")
    write(table, "+I 1 a")
    fast, safe = CaughtUp(table, "speculative"), CaughtUp(table, "committed")
    fast(), safe()
    command = [sys.executable, "-c", WRITER, table.location, "+I 1 b | +I 2 x", "write-prepared"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": "src:."}, timeout=600, check=False)
    assert fast() == "-U 1 a | +U 1 b | +I 2 x"
    write(table, "+I 1 c")
    assert (fast(), safe()) == ("-D 2 x | -U 1 b | +U 1 c", "-U 1 a | +U 1 c")


def test_retention_and_topics_that_come_and_go(kafka_broker: ForeignBroker, tmp_path: Path, topic: str) -> None:
    table = make(tmp_path, kafka_broker, topic, bucket="1")
    write(table, "+I 1 a", "+I 1 b", "+I 1 c")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    [done] = admin.delete_records([KafkaPartition(topic, 0, 2)]).values()
    done.result(300)
    for isolation in ("committed", "speculative"):
        with pytest.raises(LogTruncatedError, match=f"topic {topic} partition 0 has offsets 2 to 3"):
            CaughtUp(table, isolation, from_snapshot=1)()
        falling_back = CaughtUp(table.with_options({"log.on-truncated": "fall-back"}), isolation, from_snapshot=1)
        assert falling_back() == "+I 1 a | -U 1 a | +U 1 b | -U 1 b | +U 1 c"
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic)
    with pytest.raises(LogConfigError, match="deleted and created again"):
        CaughtUp(table, "committed")
    with pytest.raises(InvalidRequestError, match="Set kafka.topic to a new name"):
        table.writer("u")


def test_a_large_commit_is_read_whole(kafka_broker: ForeignBroker, tmp_path: Path, topic: str) -> None:
    table = make(tmp_path, kafka_broker, topic)
    count = 200_000
    with table.writer("u") as writer:
        writer.write(pa.table({"k": range(count), "v": [f"value {number}" for number in range(count)]}))
        writer.commit()
    for isolation in ("committed", "speculative"):
        stream = CaughtUp(table, isolation, from_snapshot=1)
        found = pa.Table.from_batches(stream.batches(), stream.stream.schema)
        stream.close()
        assert found.num_rows == count and set(found["_ROW_KIND"].to_pylist()) == {"+I"}
        assert (
            found.select(["k", "v"])
            .sort_by("k")
            .equals(table.scan().to_arrow().sort_by("k").cast(found.select(["k", "v"]).schema))
        )
