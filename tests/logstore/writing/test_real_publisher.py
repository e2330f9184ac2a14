"""log.consistency=transactional on a real broker, as a plain consumer with isolation.level=read_committed sees it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from freshet import Table
from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.logstore.exceptions import LogUnavailableError
from freshet.logstore.kafka.log_client import KafkaLogClient, KafkaTransactions
from freshet.logstore.protocol.client import TopicPartition
from tests.logstore.logged_tables import folded, held, rows, write
from tests.logstore.test_real_broker import make as make_on_broker
from tests.logstore.writing.published import change_lines, changelog, changelog_by_bucket

pytestmark = pytest.mark.kafka

_NUMBERS = itertools.count()


@pytest.fixture
def topic(kafka_broker: ForeignBroker) -> str:
    return f"published-{os.getpid()}-{next(_NUMBERS)}"


def make(folder: Path, broker: ForeignBroker, topic: str, **options: str) -> Table:
    given = {"log.consistency": "transactional", "log.format": "debezium-json", "bucket": "1"}
    return make_on_broker(folder, broker, topic, **{**given, **options})


def seen(
    broker: ForeignBroker,
    topic: str,
    partition_count: int = 1,
    isolation: str = "read_committed",
    *,
    is_stable: bool = True,
) -> list[str]:
    """What a consumer that knows nothing of this library reads, by partition.

    Where no transaction is open, `is_stable`, it reads everything that is there: a commit returns before its markers
    are written, and without them a consumer meets an end too early.
    """
    client = KafkaLogClient.of_options({"kafka.bootstrap.servers": broker.bootstrap_servers})
    ends = {number: bounds.end if is_stable else 0 for number, bounds in client.bounds(topic).items()}
    client.close()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "consumer",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([KafkaPartition(topic, number, 0) for number in range(partition_count)])
    found: list[list[str]] = [[] for _ in range(partition_count)]
    left = set(range(partition_count))
    while left:
        message = consumer.poll(300)
        assert message is not None, "no end of the partition within 300 s"
        problem = message.error()
        if problem is not None:
            assert problem.code() == KafkaError._PARTITION_EOF, problem
            if message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
        else:
            found[message.partition()] += change_lines(message.value())
    consumer.close()
    return [" | ".join(each) for each in found]


def test_transactions_do_as_those_of_the_log_in_memory(kafka_broker: ForeignBroker, topic: str) -> None:
    client = KafkaLogClient.of_options({"kafka.bootstrap.servers": kafka_broker.bootstrap_servers})
    client.create_topic(topic, 1, {})
    place, committed = TopicPartition(topic, 0), client.committed()
    first, second = client.transactions("name"), client.transactions("name")
    first.start()
    for value, ends in ((b"a", first.commit), (b"b", first.abort)):
        first.begin()
        first.send(place, b"h", value, 0, None)
        first.flush()
        ends()
    first.begin()
    first.send(place, b"h", b"c", 0, None)
    first.flush()
    second.start()
    with pytest.raises(LogUnavailableError, match="transactions name: .*(?i:fenced|newer|epoch|fatal error)"):
        first.commit()
    values, position = [], 0
    while position < client.bounds(topic)[0].end:
        fetched = committed.fetch({place: position}, wait_s=300)[place]
        values += [each.value for each in fetched.records]
        position = fetched.next_offset
    assert values == [b"a"]
    client.close()
    committed.close()


def test_a_plain_consumer_sees_each_committed_change_once(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str
) -> None:
    table = make(tmp_path, kafka_broker, topic, bucket="2")
    write(table, " | ".join(f"+I {key} a" for key in range(8)), "+U 1 b | -D 2 a")
    with table.writer("u") as zombie:
        write(table, "+I 1 c", user="another")  # takes over
        zombie.write(rows("+I 1 d | +I 9 x"))
        zombie.commit()
    parts = seen(kafka_broker, topic, 2)
    assert parts == changelog_by_bucket(table)
    assert folded(parts[0]) | folded(parts[1]) == held(table)


def test_a_zombie_that_is_replaced_within_its_transaction_publishes_nothing_twice(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, kafka_broker, topic)
    commit = KafkaTransactions.commit

    def late(transactions: KafkaTransactions) -> None:
        monkeypatch.setattr(KafkaTransactions, "commit", commit)
        transactions.flush()
        write(table, "+U 1 b", user="another")
        commit(transactions)

    with table.writer("u") as zombie:
        zombie.write(rows("+I 1 a"))
        monkeypatch.setattr(KafkaTransactions, "commit", late)
        zombie.commit()
    assert seen(kafka_broker, topic) == [changelog(table)] == ["+I 1 a | -U 1 a | +U 1 b"]
    assert seen(kafka_broker, topic, isolation="read_uncommitted") == ["+I 1 a | +I 1 a | -U 1 a | +U 1 b"]


WRITER = """
import os, signal, sys
from freshet import Table
from freshet.logstore.kafka.log_client import KafkaTransactions
from freshet.logstore.writing.publisher import TopicPublisher
from tests.logstore.logged_tables import rows

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

commit = KafkaTransactions.commit
if sys.argv[3] == "in the very first transaction":
    KafkaTransactions.commit = lambda self: (self.flush(), die())
with Table.open(sys.argv[1]).writer("u") as writer:
    writer.write(rows(sys.argv[2]))
    if sys.argv[3] == "before publication":
        TopicPublisher.publish = die
    elif sys.argv[3] == "before the commit of the transaction":
        KafkaTransactions.commit = lambda self: (self.flush(), die())
    else:
        KafkaTransactions.commit = lambda self: (commit(self), die())
    writer.commit()
"""


def killed_at(table: Table, text: str, point: str) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", WRITER, table.location, text, point],
        env={**os.environ, "PYTHONPATH": "src:."},
        timeout=600,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_writer_that_is_killed_loses_and_doubles_nothing(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str
) -> None:
    table = make(tmp_path, kafka_broker, topic)
    write(table, "+I 1 a")
    before = seen(kafka_broker, topic)
    for point, value, is_seen in (
        ("before publication", "b", False),
        ("before the commit of the transaction", "c", False),
        ("after the transaction", "d", True),
    ):
        killed_at(table, f"+I 1 {value}", point)
        assert held(table) == {1: value}
        is_open = point == "before the commit of the transaction"
        assert (seen(kafka_broker, topic, is_stable=not is_open) == [changelog(table)]) is is_seen, point
    assert before != [changelog(table)] == seen(kafka_broker, topic)
    write(table, "+I 1 e")
    assert seen(kafka_broker, topic) == [changelog(table)]
    assert "-U 1 b | +U 1 c | -U 1 b | +U 1 c" in seen(kafka_broker, topic, isolation="read_uncommitted")[0]


def test_a_writer_that_is_killed_in_the_very_first_transaction_keeps_no_writer_out(
    kafka_broker: ForeignBroker, tmp_path: Path, topic: str
) -> None:
    table = make(tmp_path, kafka_broker, topic)
    killed_at(table, "+I 1 a", "in the very first transaction")
    write(table, "+I 1 b")
    assert held(table) == {1: "b"}
    assert seen(kafka_broker, topic) == [changelog(table)] == ["+I 1 b"]
