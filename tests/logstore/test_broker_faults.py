"""A broker of our own that goes down, comes back, asks for passwords and loses topics, under a writer and readers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from freshet import Catalog, Table
from freshet.logstore.exceptions import LogUnavailableError
from freshet.logstore.kafka import log_client as kafka_log_client
from tests.kit.kafka_broker import SaslBroker
from tests.logstore.caught_up import CaughtUp
from tests.logstore.logged_tables import SCHEMA, Stream, folded, held, rows, write

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PASSWORD = "correct-horse-7"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with SaslBroker.start(users={"me": PASSWORD}) as found:
        yield found


def make(folder: Path, servers: str, **options: str) -> Table:
    given = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "log.system": "kafka",
        "kafka.topic": f"faults-{next(_NUMBERS)}",
        "kafka.bootstrap.servers": servers,
        # Clients that have missed the broker for some time try again at once, not up to ten seconds later.
        "kafka.reconnect.backoff.max.ms": "500",
        **options,
    }
    return Catalog(str(folder)).create_table("db.t", schema=SCHEMA, primary_keys=["k"], options=given)


def sasl(password: str) -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": password,
    }


def test_passwords_let_in_and_are_shown_nowhere(broker: SaslBroker, tmp_path: Path) -> None:
    table = make(tmp_path, broker.sasl_servers)
    allowed, refused = (table.with_options(sasl(password)) for password in (PASSWORD, "wrong-battery-9"))
    with pytest.raises(LogUnavailableError, match=r"no broker of the log answers.*(?i:authentication)") as caught:
        refused.writer("u")
    assert broker.sasl_servers in str(caught.value)
    write(allowed, "+I 1 a")
    for isolation in ("committed", "speculative"):
        assert CaughtUp(allowed, isolation, from_snapshot=1)() == "+I 1 a"
        with pytest.raises(LogUnavailableError, match="(?i)authentication") as other:
            Stream(refused, isolation)
        assert "wrong-battery-9" not in f"{other.value}{caught.value}{refused!r}{allowed!r}"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def test_a_broker_that_is_lost_and_comes_back_under_a_writer_and_readers(broker: SaslBroker, tmp_path: Path) -> None:
    patient = {"kafka.message.timeout.ms": "600000"}  # a broker takes its time to start
    table = make(tmp_path, broker.bootstrap_servers, **patient)
    write(table, "+I 1 a")
    streams = {
        isolation: table.stream(isolation=isolation, max_wait_s=600.0) for isolation in ("committed", "speculative")
    }
    heard: dict[str, list[str]] = {isolation: [] for isolation in streams}

    def follow(isolation: str) -> None:
        for batch in streams[isolation]:
            for row in batch.to_pylist():
                heard[isolation].append(f"{row['_ROW_KIND']} {row['k']} {row['v']}")
            if heard[isolation][-1] == "+I 9 end":
                return

    readers = [threading.Thread(target=follow, args=(isolation,)) for isolation in streams]
    for reader in readers:
        reader.start()
    with table.writer("u") as writer:
        writer.write(rows("+I 1 b"))
        writer.commit()
        broker.kill()
        writer.write(rows("+I 1 c | +I 2 x"))
        waiting = threading.Thread(target=writer.commit)
        waiting.start()
        waiting.join(3.0)
        assert waiting.is_alive(), "the commit waits for the broker"
        broker.restart()  # by this thread: the broker ends with the thread that started it
        waiting.join(600)
        assert not waiting.is_alive()
        writer.write(rows("+I 9 end"))
        writer.commit()
    for reader in readers:
        reader.join(600)
        assert not reader.is_alive()
    for isolation, stream in streams.items():
        stream.close()
        assert folded(" | ".join(heard[isolation])) == held(table) == {1: "c", 2: "x", 9: "end"}
        assert [each for each in heard[isolation] if each.startswith("+")].count("+U 1 c") == 1


def test_a_broker_that_stays_away_fails_the_commit_and_nothing_is_in_the_table(
    broker: SaslBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log_client, "REACH_TIMEOUTS_S", (10.0,))
    table = make(tmp_path, broker.bootstrap_servers, **{"kafka.message.timeout.ms": "10000"})
    write(table, "+I 1 a")
    with table.writer("u") as writer:
        writer.write(rows("+I 1 b"))
        broker.kill()
        try:
            with pytest.raises(LogUnavailableError, match=rf"topic faults-.*{broker.bootstrap_servers}.*nothing is"):
                writer.commit()
            with pytest.raises(LogUnavailableError, match="no broker of the log answers"):
                table.writer("u")
        finally:
            broker.restart()
        assert held(table) == {1: "a"}
        writer.abort()
        writer.write(rows("+I 1 b"))
        writer.commit()
    for isolation in ("committed", "speculative"):
        found = CaughtUp(table, isolation, from_snapshot=1)()
        assert folded(found) == held(table) == {1: "b"}


def test_a_transaction_that_another_program_left_open_delays_no_reader(broker: SaslBroker, tmp_path: Path) -> None:
    table = make(tmp_path, broker.bootstrap_servers)
    write(table, "+I 1 a")
    stranger = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "stranger"})
    stranger.init_transactions(300)
    stranger.begin_transaction()
    stranger.produce(table.options.given["kafka.topic"], b"not ours", partition=0)
    stranger.flush(300)
    write(table, "+I 1 b")
    for isolation in ("committed", "speculative"):
        found = CaughtUp(table, isolation, from_snapshot=1)()
        assert found == "+I 1 a | -U 1 a | +U 1 b"
    stranger.abort_transaction(300)
