"""Part `stores`: what an S3 server costs, against local disks and what obstore alone moves to the same server.

| step | what | target |
|---|---|---|
| `ingest` | W1, seconds over (seconds on disk + bytes written at obstore's rate) | at most 1.25 |
| `merge-read` | W5, seconds over (seconds on disk + bytes read at obstore's rate) | at most 1.4 |
| `cdc` | W9, records per second over those on disk | at least 0.85 |
| `one-key` | requests for one row of 10,000 files in 16 buckets: with warm metadata, with nothing cached | 12, 40 |
| `commits`, `writers`, `latency` | `store_commits_bench` | |

W1 and W5 also by pypaimon and by Apache Paimon's Java API, both on the same server. Everyone takes turns, so the rates
are of the same rounds. The server (versitygw) has its folder on the disk of the local tables, and shares the cores.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench import peers
from bench.cdc_bench import RECORDS, CdcRun
from bench.measure import Answer, Contestant, Figure, check_equal, measure, report
from bench.peers import Peer
from bench.results import Results
from bench.storage_bench import location, make
from bench.store_commits_bench import commit_requests, store_latency, writers
from bench.workloads import W1, W5, Workload
from freshet.jobs.demo.kafka_broker import KafkaBroker
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import StoreProxy, through
from tests.kit.versitygw import versity_gateway

FILES: Final = 10_000
ONE_KEY_ROUNDS: Final = 5
INGEST_MOST, MERGE_READ_MOST, CDC_LEAST = 1.25, 1.4, 0.85
WARM_MOST, COLD_MOST = 12, 40
DISK: Final = "freshet, local disk"
OBSTORE: Final = "obstore alone"
_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_JVM_OPTIONS: Final = {"s3.directory.marker.retention": "keep"}
"""Hadoop's S3A deletes the markers of folders after each file; this server refuses that, and S3A tries for minutes."""
_VARIABLES: Final = {"s3.access-key": "FRESHET_BENCH_S3_KEY", "s3.secret-key": "FRESHET_BENCH_S3_SECRET"}
"""What other processes get as a reference to their environment."""


def stores(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part; steps can be left out, as peers can."""
    steps: dict[str, Callable[[_Store], None]] = {
        "ingest": lambda store: _ingest(results, store, W1.scaled(factor), rounds, without),
        "merge-read": lambda store: _merge_read(results, store, W5.scaled(factor), rounds, without),
        "cdc": lambda store: _cdc(results, store, max(1000, int(RECORDS * factor)), rounds),
        "one-key": lambda store: _one_key(results, store, max(100, int(FILES * factor))),
        "commits": lambda store: commit_requests(results, store.place),
        "writers": lambda store: writers(results, store.place),
        "latency": lambda store: store_latency(results, store.place, store.disk, sent(store.place.options)),
    }
    with versity_gateway(folder / "s3") as gateway:
        place = gateway.new_bucket()
        for name, step in steps.items():
            if name not in without:
                step(_Store(place, folder, folder / "s3" / place.bucket, results.folder))
                shutil.rmtree(folder / "s3" / place.bucket)
                (folder / "s3" / place.bucket).mkdir()


@dataclass(frozen=True, slots=True)
class _Store:
    """A bucket, the folder of local tables, the one that holds the bucket's objects as files, and one for logs."""

    place: S3Place
    disk: Path
    objects: Path
    logs: Path

    def start(self, stack: ExitStack, peer: Peer, options: Mapping[str, str] = _NO_OPTIONS) -> Peer:
        """The peer reaches the bucket; it ends with the stack."""
        stack.callback(peer.close)
        connect(peer, self.place, options)
        return peer

    def worker(self) -> Peer:
        """obstore alone, and reads of one key."""
        return Peer("stores", [sys.executable, "-m", "bench.stores_worker"], self.logs / "stores.log")

    def uri(self, name: str) -> str:
        """A place in the bucket."""
        return f"{self.place.root}/{name}"


def connect(peer: Peer, place: S3Place, more: Mapping[str, str]) -> None:
    """Gives a peer the options of the store, and some of its own."""
    options = {**place.options, "s3.region": "us-east-1", **more}
    peer.ask("store", *(f"{key}={text}" for key, text in options.items()))


def sent(options: Mapping[str, str]) -> dict[str, str]:
    """The options as a pipeline file has them, whose secrets are variables from now on."""
    os.environ.update({variable: options[key] for key, variable in _VARIABLES.items()})
    return {**options, **{key: f"env:{variable}" for key, variable in _VARIABLES.items()}}


@dataclass
class _Everyone:
    """Who takes part in a workload: Freshet at the store and on disk, obstore, the peers at the store."""

    store: _Store
    workload: Workload
    stack: ExitStack
    without: Sequence[str]
    ours: Peer = field(init=False)
    worker: Peer = field(init=False)
    peers: list[Peer] = field(default_factory=list)

    def __post_init__(self) -> None:
        logs = self.store.logs
        self.worker = self.store.start(self.stack, self.store.worker())
        self.ours = self.store.start(self.stack, peers.freshet(logs))
        starts = {
            "paimon_java": (lambda: peers.paimon_java(logs, "paimon-s3"), _JVM_OPTIONS),
            "pypaimon": (lambda: peers.pypaimon(logs), _NO_OPTIONS),
        }
        for name, (start, options) in starts.items():
            if name not in self.without:
                self.peers.append(self.store.start(self.stack, start(), options))
        for peer in (self.ours, *self.peers):
            make(peer, self.workload)

    @property
    def uri(self) -> str:
        """Where Freshet has its table of the store."""
        return self._uri(self.ours)

    @property
    def contestants(self) -> list[tuple[str, Peer, str | Path]]:
        """Name, peer, place."""
        on_disk = location(self.store.disk, self.workload, "freshet")
        at_store: list[tuple[str, Peer, str | Path]] = [(peer.name, peer, self._uri(peer)) for peer in self.peers]
        return [("freshet", self.ours, self.uri), (DISK, self.ours, on_disk), *at_store]

    def write(self, peer: Peer, place: str | Path) -> Answer:
        """A new table in this place, and what it took."""
        shutil.rmtree(place if isinstance(place, Path) else self.store.objects / _key(place), ignore_errors=True)
        return peer.ask("ingest", place, 2, *self.workload.option_words)

    def check_digests(self) -> None:
        """All cells of every table must be the same."""
        check_equal({name: peer.ask("digest", place) for name, peer, place in self.contestants})

    def _uri(self, peer: Peer) -> str:
        return self.store.uri(f"{self.workload.name}-{peer.name}")


def _ingest(results: Results, store: _Store, workload: Workload, rounds: int, without: Sequence[str]) -> None:
    """W1 with compaction; obstore uploads files as large as Freshet's of the same round."""
    with ExitStack() as stack:
        everyone = _Everyone(store, workload, stack, without)
        answers: list[Answer] = []

        def put() -> Answer:
            answers.append(everyone.worker.ask("put_like", everyone.uri, store.uri("obstore")))
            return answers[-1]

        def writing(peer: Peer, place: str | Path) -> Callable[[], Answer]:
            return lambda: everyone.write(peer, place)

        contestants = [Contestant(name, "2", writing(peer, place)) for name, peer, place in everyone.contestants]
        contestants.insert(2, Contestant(OBSTORE, "", put))
        figures = measure("W1 ingest on S3", contestants, workload.rows, rounds)
        results.add(figures)
        everyone.check_digests()
        compacted = everyone.worker.ask("moved", everyone.uri)["compacted"]
    text = _over(figures, int(answers[-1]["bytes"]), INGEST_MOST)
    _note(results, "W1 ingest on S3", f"{text}; compactions have read {compacted / 1e6:.0f} MB of it")


def _merge_read(results: Results, store: _Store, workload: Workload, rounds: int, without: Sequence[str]) -> None:
    """W5, all columns of five overlapping runs; obstore downloads the same files."""
    with ExitStack() as stack:
        everyone = _Everyone(store, workload, stack, without)
        for _, peer, place in everyone.contestants:
            everyone.write(peer, place)
        answers: list[Answer] = []

        def get() -> Answer:
            answers.append(everyone.worker.ask("get_files", everyone.uri))
            return answers[-1]

        def reading(peer: Peer, place: str | Path, threads: str) -> Callable[[], Answer]:
            return lambda: peer.ask("read", place, threads)

        contestants = []
        for name, peer, place in everyone.contestants:
            threads = "2" if peer is everyone.ours else "1"  # Paimon reads one bucket of overlapping runs with one
            contestants.append(Contestant(name, threads, reading(peer, place, threads)))
        contestants.insert(2, Contestant(OBSTORE, "", get))
        figures = measure("W5 merge read on S3", contestants, workload.rows, rounds)
        results.add(figures)
        everyone.check_digests()
    _note(results, "W5 merge read on S3", _over(figures, int(answers[-1]["bytes"]), MERGE_READ_MOST))


def _cdc(results: Results, store: _Store, count: int, rounds: int) -> None:
    """The job of record with the table and the dead letters at the store, in turn with the same on disk."""
    catalog = sent(store.place.options)
    with KafkaBroker.start(store.disk / "kafka-stores") as broker, ExitStack() as stack:
        session = Peer("freshet", [sys.executable, "-m", "bench.cdc_worker"], store.logs / "stores-cdc.log")
        stack.callback(session.close)
        run = CdcRun(store.disk / "cdc-stores", broker, session, None, root=store.place.root, catalog=catalog)
        run.topic("plain", count, "plain")
        session.ask("floor", broker.bootstrap_servers, "plain")  # Spark has started
        contestants = [Contestant("freshet", "2", run.at_store), Contestant(DISK, "2", run.warm)]
        figures = measure("W9 CDC on S3", contestants, count, rounds)
        results.add(figures)
        check_equal({who: run.digest_of(who) for who in run.last})
    at_store, on_disk = figures
    ratio = at_store.warm_rate / on_disk.warm_rate
    _note(results, "W9 CDC on S3", f"{ratio:.2f} of the records/s on disk (at least {CDC_LEAST})")


def _one_key(results: Results, store: _Store, count: int) -> None:
    """Requests of each look are counted by a proxy; a cold one is of a new process with an empty local cache."""
    uri, warm, cold, files = store.uri("many"), list[int](), list[int](), 0
    with ExitStack() as stack:
        maker = store.start(stack, store.worker())
        made = maker.ask("many_files", uri, count)
        files, keys = int(made["files"]), (number % int(made["rows"]) for number in itertools.count(1, 99_991))
    with StoreProxy(store.place.endpoint) as proxy:
        for number in range(ONE_KEY_ROUNDS):
            with ExitStack() as stack:
                reader = store.start(stack, store.worker())
                connect(reader, through(store.place, proxy), {"local-cache.dir": f"{store.disk}/cache-{number}"})
                for counts in (cold, warm):
                    with proxy.counted() as requests:
                        answer = reader.ask("one_key", uri, next(keys))
                    counts.append(len(requests))
                    report(f"one key of {files:,} files: {len(requests)} requests, {answer['seconds']:.3f} s")
    text = f"{max(warm)} requests warm (at most {WARM_MOST}), {max(cold)} cold (at most {COLD_MOST})"
    _note(results, f"one key of {files:,} files in 16 buckets on S3", text)


def _over(figures: Sequence[Figure], moved: int, most: float) -> str:
    """Seconds at the store over those that disk and transfer take, each the median of its warm rounds."""
    taken = {figure.peer: figure.warm_seconds for figure in figures}
    ratio = taken["freshet"] / (taken[DISK] + taken[OBSTORE])
    rate = moved / taken[OBSTORE] / 1e6
    return (
        f"{taken['freshet']:.2f} s; on disk {taken[DISK]:.2f} s, {moved / 1e6:.0f} MB by obstore at {rate:.0f} MB/s "
        f"{taken[OBSTORE]:.2f} s: {ratio:.2f} of their sum (at most {most})"
    )


def _note(results: Results, name: str, text: str) -> None:
    report(f"{name}: {text}")
    results.note(name, text)


def _key(uri: str) -> str:
    return uri.removeprefix("s3://").partition("/")[2]
