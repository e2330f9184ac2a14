"""W14: a PostgreSQL database straight into the lake, its server on the same cores.

| figure | what |
|---|---|
| copy | rows of ten columns into a keyed table, a process from its start to its exit, beside `psql` to nowhere |
| stream | changes that wait in a slot, likewise, beside `pg_recvlogical` to nowhere |
| event to commit | 1,000 updates a second, each a transaction |
| first row | from the start of the process until a snapshot has the ten rows of a new database |
| with Debezium | the same changes through Debezium and Kafka: processor time and memory of all processes |

`psql` throws away what `COPY … TO STDOUT (FORMAT csv)` gives. Half of the changes are inserts, half are updates; a
transaction has a thousand. What the lake has in the end is compared with the database by count and sums of all columns.
"""

from __future__ import annotations

import math
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import yaml

from bench.measure import Answer, Contestant, measure, report
from bench.peers import PeerError
from bench.process_use import Use, used_by
from bench.results import Results
from freshet.jobs.demo.postgres_server import USER, PostgresServer
from freshet.pipeline.postgres.server import ServerPlace
from freshet.storage.catalog import Catalog

ROWS: Final = 10_000_000
CHANGES: Final = 2_000_000
IN_TRANSACTION: Final = 1000
RATE: Final = 1000
WARM_UP_S: Final = 15
MEASURED_S: Final = 30
DATABASE: Final = "bench"
SETTINGS: Final = {
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
}
PRODUCERS: Final = {"freshet": {}, "freshet, lookup": {"changelog-producer": "lookup"}}
PEERS: Final = ("psql", "pg_recvlogical")
COLUMNS: Final = (
    "id bigint PRIMARY KEY, customer_id bigint, status text, total numeric(14, 4), note text, a bigint, b float8, "
    "c text, d timestamptz, e boolean"
)
VALUES: Final = (
    "i, i * 7919 % 1000003, (ARRAY['new', 'paid', 'sent', 'done'])[1 + i % 4], (i % 1000000) / 7.0, "
    "CASE WHEN i % 3 > 0 THEN 'note ' || i END, i * 3, i / 3.0, md5(i::text), "
    "timestamptz '2024-01-01Z' + i * interval '1 second', i % 2 = 0"
)
CHANGE: Final = f"""
CREATE PROCEDURE change(first bigint, transactions bigint) LANGUAGE plpgsql AS $$
DECLARE size bigint := {IN_TRANSACTION // 2};
BEGIN
    FOR n IN first .. first + transactions - 1 LOOP
        INSERT INTO changed SELECT {VALUES} FROM generate_series(n * size + 1, (n + 1) * size) AS i;
        UPDATE changed SET total = total + 1, a = a + 1, status = 'sent'
        WHERE id IN (SELECT (n * 7919 + j * 1000003) % ((n + 1) * size) + 1 FROM generate_series(1, size) AS j);
        COMMIT;
    END LOOP;
END $$
"""
SUMS: Final = (
    "count(*), sum(id), sum(customer_id), sum(length(status)), sum(total), count(note), sum(a), sum(length(c)), "
    "count(*) FILTER (WHERE e), sum(extract(epoch FROM d))::bigint, sum(b)"
)


class PostgresBench:
    """One server, and the pipelines that read it."""

    def __init__(self, results: Results, folder: Path, server: PostgresServer, programs: Mapping[str, Path]) -> None:
        self.results, self.server = results, server
        self._folder, self._programs = folder, programs
        self._number = 0
        self._spent: dict[str, list[Use]] = defaultdict(list)
        self._of_server: dict[str, list[float]] = defaultdict(list)

    def first_row(self, rounds: int) -> None:
        """A new database with ten rows."""
        self.server.run(f"CREATE TABLE few ({COLUMNS}); CREATE PUBLICATION few FOR TABLE few")
        self.server.run(f"INSERT INTO few SELECT {VALUES} FROM generate_series(1::bigint, 10) AS i")
        [figure] = measure("W14", [Contestant("first row", "2", partial(self._first, "few"))], 10, rounds)
        texts = ", ".join(f"{seconds:.2f}" for seconds in figure.seconds)
        self.results.note("W14 first row of a new database, from the start of the process", f"{texts} s")
        self._note("W14 first row of a new database")

    def copy(self, count: int, rounds: int) -> None:
        """Rows that are there."""
        report(f"{count:,} rows are made")
        self.server.run(f"CREATE TABLE orders ({COLUMNS}); CREATE PUBLICATION orders FOR TABLE orders")
        self.server.run(f"INSERT INTO orders SELECT {VALUES} FROM generate_series(1::bigint, {count}) AS i")
        self.server.run("VACUUM ANALYZE orders")
        self.server.run("CHECKPOINT")
        who = [Contestant("freshet", "2", lambda: self.run_to_the_end("freshet", self.file("orders", "only", {})))]
        if psql := self._programs.get("psql"):
            command = [psql, self.server.dsn(), "-qc", "COPY orders TO STDOUT (FORMAT csv)"]
            who.append(
                Contestant("psql COPY, thrown away", "1", lambda: self._thrown_away("psql COPY, thrown away", command))
            )
        self.results.add(measure("W14 copy", who, count, rounds))
        self._note("W14 copy", count)
        self.check("orders")

    def stream(self, count: int, rounds: int) -> None:
        """Changes that wait: a slot for each run, all of them older than the changes."""
        self.server.run(f"CREATE TABLE changed ({COLUMNS}); CREATE PUBLICATION changed FOR TABLE changed")
        self.server.run(CHANGE)
        waiting: dict[str, list[Any]] = {
            name: [self._begun(options) for _ in range(rounds + 1)] for name, options in PRODUCERS.items()
        }
        receives = "pg_recvlogical" in self._programs
        for number in range((rounds + 1) * receives):
            self.server.run(f"SELECT pg_create_logical_replication_slot('peer{number}', 'pgoutput')")
        report(f"{count:,} changes are made")
        self.server.run(f"CALL change(0, {count // IN_TRANSACTION})")
        end = str(self.server.run("SELECT pg_current_wal_lsn()")[0][0])
        self.server.run("INSERT INTO few VALUES (0)")  # of another publication: the position is passed
        who = [
            Contestant(name, "2", lambda n=name: self.run_to_the_end(n, waiting[n].pop()))  # type: ignore[misc]
            for name in PRODUCERS
        ]
        if receives:
            who.append(Contestant("pg_recvlogical", "1", lambda: self._received(end)))
        self.results.add(measure("W14 stream", who, count, rounds))
        self._note("W14 stream", count)
        self.check("changed")

    def latency(self) -> None:
        """Each update of another row, so that each has a first snapshot."""
        count = (WARM_UP_S + MEASURED_S) * RATE
        self.server.run(
            "CREATE TABLE seen (id bigint PRIMARY KEY, at_us bigint); CREATE PUBLICATION seen FOR TABLE seen"
        )
        self.server.run(f"INSERT INTO seen SELECT i, 0 FROM generate_series(0, {count - 1}) AS i")
        file = self.file("seen", "initial", {}, "0 seconds")
        with self.used("freshet"):
            child = self.start(file)
            self.until_snapshot(file, child)
            self._update(count)
            time.sleep(3)
            child.send_signal(signal.SIGTERM)
            child.wait(120)
        seconds = _latencies(Catalog(str(file.parent / "w")).table("lake.seen"), count)[WARM_UP_S * RATE :]
        p50, p99 = np.percentile(seconds, [50, 99])
        self.results.note("W14 event to commit, 1,000 updates/s", f"p50 {p50:.3f} s, p99 {p99:.3f} s")
        self._note("W14 event to commit, with the start", count)

    # --- pipelines ----------------------------------------------------------------------------------------------------

    def file(self, table: str, snapshot: str, options: Mapping[str, object], trigger: str = "") -> Path:
        """A pipeline file of one table, with a slot, warehouse and checkpoint of its own."""
        self._number += 1
        place = self._folder / f"postgres-{self._number}"
        place.mkdir()
        source = {
            "dsn": self.server.dsn(), "password": self.server.password, "tables": [f"public.{table}"],
            "slot": f"bench{self._number}", "publication": table, "snapshot": snapshot,
        }  # fmt: skip
        document = {
            "name": f"run{self._number}", "run_on": "local", "warehouse": str(place / "w"), "dead_letters": "lake.dead",
            "checkpoint": str(place / "c"),
            "trigger": {"processing_time": trigger} if trigger else {"available_now": True},
            "sync": {
                "source": {"postgres": source},
                "tables": [{"from": f"{DATABASE}.public.(.*)", "to": "lake.{table}"}],
                "options": {"bucket": 2, **options},
            },
        }  # fmt: skip
        path = place / "pipeline.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def run_to_the_end(self, who: str, file: Path) -> Answer:
        """A process that reads all that is there; its slot goes."""
        with self.used(who) as seconds:
            code = self.start(file).wait()
        if code:
            raise PeerError(f"freshet run ended with {code}; its output is in {file.with_suffix('.log')}")
        slot = yaml.safe_load(file.read_text())["sync"]["source"]["postgres"]["slot"]
        mine = f"slot_name = '{slot}'"  # which `snapshot: only` has dropped
        self.server.run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {mine}")
        self.last = file
        return {"seconds": seconds[0]}

    def check(self, table: str) -> None:
        """Raises `PeerError` unless the last run's table is the database's."""
        found = Catalog(str(self.last.parent / "w")).table(f"lake.{table}").scan().to_arrow()
        total = lambda name: pc.sum(found[name]).as_py()  # noqa: E731
        length = lambda name: pc.sum(pc.utf8_length(found[name])).as_py()  # noqa: E731
        at = pc.sum(pc.divide(found["d"].cast("int64"), 1_000_000)).as_py()
        ours = (
            found.num_rows, total("id"), total("customer_id"), length("status"), total("total"),
            found.num_rows - found["note"].null_count, total("a"), length("c"), total("e"), at, total("b"),
        )  # fmt: skip
        [theirs] = self.server.run(f"SELECT {SUMS} FROM {table}")
        *exact, doubles = zip(ours, theirs, strict=True)
        if any(mine != wanted for mine, wanted in exact) or not math.isclose(*doubles, rel_tol=1e-12):
            raise PeerError(f"table {table} differs: {ours} in the lake, {theirs} in the database")
        report(f"{table}: {found.num_rows:,} rows, as the database has them")

    def _begun(self, options: Mapping[str, object]) -> Path:
        file = self.file("changed", "never", options)
        if code := self.start(file).wait():
            raise PeerError(f"freshet run ended with {code}; its output is in {file.with_suffix('.log')}")
        return file

    def start(self, file: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "freshet", "run", str(file), "--progress", "json"]
        with file.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _first(self, table: str) -> Answer:
        file = self.file(table, "initial", {}, "0 seconds")
        with self.used("freshet") as seconds:
            began = time.perf_counter()
            child = self.start(file)
            self.until_snapshot(file, child)
            seconds[0] = time.perf_counter() - began
            child.send_signal(signal.SIGTERM)
            child.wait(120)
        return {"seconds": seconds[0]}

    @staticmethod
    def until_snapshot(file: Path, child: subprocess.Popen[bytes]) -> None:
        started = time.perf_counter()
        while not list((file.parent / "w").glob("lake.db/*/snapshot/snapshot-1")):
            if child.poll() is not None or time.perf_counter() - started > 120:
                raise PeerError(f"freshet run committed nothing; its output is in {file.with_suffix('.log')}")
            time.sleep(0.005)

    # --- peers, and what all of them take -----------------------------------------------------------------------------

    def _thrown_away(self, who: str, command: list[Any]) -> Answer:
        environment = {"PGPASSWORD": self.server.password}
        with self.used(who) as seconds:
            done = subprocess.run(
                [*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, check=False
            )
        if done.returncode:
            raise PeerError(f"{command[0]} ended with {done.returncode}: {done.stderr.decode()}")
        return {"seconds": seconds[0]}

    def _received(self, end: str) -> Answer:
        [(slot,)] = self.server.run("SELECT min(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'peer%'")
        command = [
            self._programs["pg_recvlogical"], "-h", "127.0.0.1", "-p", self.server.port, "-U", USER, "-d", DATABASE,
            "--slot", slot, "--start", "-o", "proto_version=1", "-o", "publication_names=changed", "-f", "/dev/null",
            "--endpos", end, "--no-loop",
        ]  # fmt: skip
        answer = self._thrown_away("pg_recvlogical", command)
        self.server.run(f"SELECT pg_drop_replication_slot('{slot}')")
        return answer

    @contextmanager
    def used(self, who: str):  # type: ignore[no-untyped-def]
        """Keeps what children and the server take in the block; gives a list with the seconds of it, in the end."""
        before, began, seconds = _children_s(), time.perf_counter(), [0.0]
        with used_by([self.server.pid]) as of_server:
            yield seconds
            took = time.perf_counter() - began
        seconds[0] = seconds[0] or took
        self._spent[who].append(Use(_children_s() - before))
        self._of_server[who].append(of_server.processor_s)

    def _note(self, what: str, count: int = 0) -> None:
        """Processor time of those that were measured since the last note, by their median."""
        for who, spent in self._spent.items():
            own, server = np.median([each.processor_s for each in spent]), np.median(self._of_server[who])
            each = f", {1e6 * own / count:.2f} and {1e6 * server / count:.2f} µs each" if count else ""
            self.results.note(f"{what}, {who}", f"{own:.2f} s of processor time, the server {server:.2f} s{each}")
            report(f"{what}, {who}: {own:.2f} s of processor time, the server {server:.2f} s{each}")
        self._spent.clear()
        self._of_server.clear()

    def _update(self, count: int) -> None:
        """At the rate, from two sessions."""

        def send(part: int) -> None:
            with ServerPlace(self.server.dsn(), self.server.password).session() as session:
                started = time.perf_counter()
                for number in range(part, count, 2):
                    if (ahead := number / RATE - (time.perf_counter() - started)) > 0:
                        time.sleep(ahead)
                    session.execute(b"UPDATE seen SET at_us = %s WHERE id = %s", (time.time_ns() // 1000, number))

        senders = [threading.Thread(target=send, args=(part,)) for part in range(2)]
        for each in senders:
            each.start()
        for each in senders:
            each.join()


def _latencies(table: Any, count: int) -> np.ndarray:
    """Seconds from the update to the first snapshot that has it; raises `PeerError` if one is in none."""
    committed, events = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    for snapshot in table.snapshots():
        rows = table.scan(snapshot_id=snapshot.id).to_arrow()
        ids, at = rows["id"].to_numpy(), rows["at_us"].to_numpy()
        new = (committed[ids] < 0) & (at > 0)
        committed[ids[new]], events[ids[new]] = snapshot.time_ms, at[new]
    if (committed < 0).any():
        raise PeerError(f"{int((committed < 0).sum())} updates are in no snapshot of {table.location}")
    return np.asarray(committed / 1e3 - events / 1e6)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
