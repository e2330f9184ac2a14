"""The part of a PostgreSQL database: Freshet alone, then the same changes through Debezium and Kafka, and what all
processes take, beside ours."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import yaml

from bench.measure import report
from bench.peers import PeerError
from bench.postgres_bench import CHANGES, DATABASE, IN_TRANSACTION, PEERS, ROWS, SETTINGS, PostgresBench
from bench.process_use import Use, used_by
from bench.results import Results
from freshet.jobs.demo.kafka_broker import KafkaBroker
from freshet.jobs.demo.kafka_connect import KafkaConnect
from freshet.jobs.demo.postgres_server import USER, PostgresServer, find_programs
from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import NotFoundError

LIMIT_S: Final = 3600.0
WARM_TRANSACTIONS: Final = 20
"""They come before those that count: everything runs by then."""

Followers = tuple[list[int], Path]
"""The processes that bring changes into a table of the lake, and its pipeline file."""


def postgres(results: Results, folder: Path, factor: float, rounds: int, without: list[str]) -> None:
    """The whole part."""
    programs = find_programs(("initdb", "postgres", *(each for each in PEERS if each not in without)))
    with PostgresServer.start(DATABASE, SETTINGS) as server:
        bench = PostgresBench(results, folder, server, programs)
        bench.first_row(rounds)
        bench.copy(max(10_000, int(ROWS * factor)), rounds)
        bench.stream(max(10_000, int(CHANGES * factor)), rounds)
        bench.latency()
        if "debezium" not in without:
            with_debezium(bench, max(20, int(CHANGES * factor / 4 / IN_TRANSACTION)))


def with_debezium(bench: PostgresBench, transactions: int) -> None:
    """Both follow changes as they come, one after the other."""
    ours = _measured(bench, transactions, "freshet alone", _direct)
    theirs = _measured(bench, transactions, "Debezium, Kafka and freshet", _through_kafka)
    shares = f"{ours.processor_s / theirs.processor_s:.2f} of the processor time"
    text = f"{shares}, {ours.megabytes / theirs.megabytes:.2f} of the memory (at most 0.3)"
    bench.results.note("W14 freshet alone, of Debezium, Kafka and freshet", text)
    report(text)


def _measured(
    bench: PostgresBench, transactions: int, who: str, follow: Callable[[PostgresBench, ExitStack], Followers]
) -> Use:
    bench.server.run("TRUNCATE changed")
    with ExitStack() as stack:
        pids, file = follow(bench, stack)
        bench.server.run(f"CALL change(0, {WARM_TRANSACTIONS})")
        _await(bench, file)
        began = time.perf_counter()
        with used_by(pids) as use, used_by([bench.server.pid]) as of_server:
            bench.server.run(f"CALL change({WARM_TRANSACTIONS}, {transactions})")
            _await(bench, file)
        seconds = time.perf_counter() - began
    count = transactions * 1000
    text = f"{seconds:.1f} s ({count / seconds:,.0f} changes/s), {use.processor_s:.1f} s of processor time, "
    text += f"{use.megabytes:.0f} MB at most, the server {of_server.processor_s:.1f} s"
    bench.results.note(f"W14 {count:,} changes as they come, {who}", text)
    report(f"{who}: {text}")
    return use


def _direct(bench: PostgresBench, stack: ExitStack) -> Followers:
    file = bench.file("changed", "never", {}, "0 seconds")
    child = stack.enter_context(_running(bench, file))
    _until(lambda: _slot_is_there(bench, file), f"see {file.with_suffix('.log')}")
    return [child.pid], file


def _through_kafka(bench: PostgresBench, stack: ExitStack) -> Followers:
    file = bench.file("changed", "never", {}, "0 seconds")
    broker = stack.enter_context(KafkaBroker.start(file.parent / "kafka"))
    connect = stack.enter_context(KafkaConnect.start(file.parent, broker.bootstrap_servers, _connector(bench)))
    _until(connect.runs, "the connector does not run")
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": "bench[.]public[.].*"}
    document = yaml.safe_load(file.read_text())
    document["sync"]["source"] = {"kafka": {**kafka, "startingOffsets": "earliest"}, "format": "debezium-json"}
    file.write_text(yaml.safe_dump(document))
    child = stack.enter_context(_running(bench, file))
    return [broker.pid, connect.pid, child.pid], file


def _connector(bench: PostgresBench) -> dict[str, str]:
    server = bench.server
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "topic.prefix": "bench",
        "slot.name": "debezium",
        "publication.name": "changed",
        "snapshot.mode": "no_data",
        "table.include.list": "public.changed",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "2",
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": server.password,
        "database.dbname": server.database,
    }


@contextmanager
def _running(bench: PostgresBench, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = bench.start(file)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(120)


def _slot_is_there(bench: PostgresBench, file: Path) -> bool:
    slot = yaml.safe_load(file.read_text())["sync"]["source"]["postgres"]["slot"]
    return bool(bench.server.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"))


def _await(bench: PostgresBench, file: Path) -> None:
    """Until the lake has what the database has."""
    wanted = bench.server.run("SELECT count(*), sum(a) FROM changed")[0]
    catalog = Catalog(str(file.parent / "w"))

    def is_equal() -> bool:
        try:
            scan = catalog.table("lake.changed").scan(columns=["id", "a"])
        except NotFoundError:
            return False
        if scan.count() != wanted[0]:
            return False
        return bool(pc.sum(scan.to_arrow()["a"]).as_py() == wanted[1])

    _until(is_equal, f"the lake does not get what the database has; see {file.with_suffix('.log')}")


def _until(is_true: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_true():
        if time.monotonic() > end:
            raise PeerError(otherwise)
        time.sleep(0.3)
