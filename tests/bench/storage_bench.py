"""W1, W2 (ingest) and W5 (merge read) on the storage API, against Apache Paimon's Java API and pypaimon."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers import Peer, PeerError
from tests.bench.workloads import W5, WORKLOADS, Workload

READ_SHAPES = {"all columns": (), "3 columns": tuple(list(W5.columns)[:3]), "key only": (W5.key,)}


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of one peer on one measurement; the first round is cold, the rest are warm."""

    measurement: str
    peer: str
    threads: str
    rows: int
    seconds: tuple[float, ...]

    @property
    def cold_rate(self) -> float:
        """Rows per second of the first round."""
        return self.rows / self.seconds[0]

    @property
    def warm_rate(self) -> float:
        """Median rows per second of the later rounds."""
        return self.rows / statistics.median(self.seconds[1:] or self.seconds)


def measure(
    name: str, peers: Sequence[tuple[Peer, str]], rows: int, rounds: int, once: Callable[[Peer, int], dict[str, Any]]
) -> list[Figure]:
    """Runs `once(peer, round)` for every peer in turn, `rounds` times after a cold one."""
    seconds: dict[str, list[float]] = {peer.name: [] for peer, _ in peers}
    for number in range(rounds + 1):
        for peer, _ in peers:
            seconds[peer.name].append(float(once(peer, number)["seconds"]))
    return [Figure(name, peer.name, threads, rows, tuple(seconds[peer.name])) for peer, threads in peers]


def make(peer: Peer, workload: Workload, factor: float) -> None:
    """Lets a peer make the rows of a workload."""
    if peer.name != "paimon-java":
        peer.ask("make", workload.name, factor)
        return
    scaled = workload.scaled(factor)
    columns = [f"{name}:{kind.replace(' ', '')}" for name, kind in scaled.columns.items()]
    write_only = str(scaled.write_only).lower()
    peer.ask("make", scaled.name, scaled.rows, scaled.commits, scaled.buckets, scaled.key_space, write_only, *columns)


def ingest(peers: Sequence[Peer], name: str, folder: Path, factor: float, rounds: int) -> list[Figure]:
    """W1 or W2: rows to a compacted table, in commits; then every peer's last table must hold the same rows."""
    workload = WORKLOADS[name]
    for peer in peers:
        make(peer, workload, factor)

    def once(peer: Peer, number: int) -> dict[str, Any]:
        return peer.ask("ingest", folder / f"{name}-{peer.name}-{number}", 2)

    threads = {"freshet": "2", "paimon-java": "2 writers + compaction", "pypaimon": "2"}
    figures = measure(
        f"{name} ingest", [(peer, threads[peer.name]) for peer in peers], workload.scaled(factor).rows, rounds, once
    )
    _check_equal({peer.name: peer.ask("read", folder / f"{name}-{peer.name}-{rounds}", 2) for peer in peers})
    return figures


def merge_read(peers: Sequence[Peer], folder: Path, factor: float, rounds: int) -> list[Figure]:
    """W5: five overlapping runs, read merged; rows per second count the rows that go in."""
    figures: list[Figure] = []
    rows = W5.scaled(factor).rows
    for peer in peers:
        make(peer, W5, factor)
        peer.ask("ingest", folder / f"W5-{peer.name}", 2)
    for shape, columns in READ_SHAPES.items():
        runs = [(peer, threads) for peer in peers for threads in _reader_threads(peer)]
        seconds: dict[tuple[str, str], list[float]] = {(peer.name, threads): [] for peer, threads in runs}
        for _ in range(rounds + 1):
            answers = {}
            for peer, threads in runs:
                answer = peer.ask("read", folder / f"W5-{peer.name}", threads, *columns)
                seconds[peer.name, threads].append(float(answer["seconds"]))
                answers[peer.name] = answer
            _check_equal(answers)
        for (name, threads), series in seconds.items():
            figures.append(Figure(f"W5 merge read, {shape}", name, threads, rows, tuple(series)))
    return figures


def compacted_read(ours: Peer, folder: Path, factor: float, rounds: int) -> list[Figure]:
    """W5 after a full compaction, read whole by Freshet and by pyarrow's dataset, with two threads and with one."""
    figures: list[Figure] = []
    location = folder / "W5-freshet"
    ours.ask("compact", location)
    rows = int(ours.ask("read", location, 2)["rows"])
    for threads in ("2", "1"):
        seconds: dict[str, list[float]] = {"freshet": [], "pyarrow dataset": []}
        for _ in range(rounds + 1):
            answers = {
                "freshet": ours.ask("read_whole", location, threads),
                "pyarrow dataset": ours.ask("dataset", location, threads),
            }
            _check_equal(answers)
            for name, answer in answers.items():
                seconds[name].append(float(answer["seconds"]))
        name = f"compacted read, all columns, {threads} threads"
        figures += [Figure(name, peer, threads, rows, tuple(series)) for peer, series in seconds.items()]
    return figures


def write_amplification(ours: Peer, folder: Path, rounds: int) -> str:
    """Bytes written over bytes flushed, of W1 and W2, in the tables that Freshet and Paimon have written."""
    texts = []
    for name in ("W1", "W2"):
        for peer, below in (("freshet", "bench.db/t"), ("paimon-java", "")):
            location = folder / f"{name}-{peer}-{rounds}" / below
            if location.exists():
                answer = ours.ask("amplification", location)
                texts.append(f"{name} {peer} {answer['factor']:.2f} ({answer['flushed_mb']:.0f} MB flushed)")
    return ", ".join(texts)


def _reader_threads(peer: Peer) -> tuple[str, ...]:
    # One bucket of overlapping runs is one split, which Paimon reads with one thread.
    return ("2", "1") if peer.name == "freshet" else ("1",)


def _check_equal(answers: dict[str, dict[str, Any]]) -> None:
    sums = {name: (answer["rows"], answer["checksum"]) for name, answer in answers.items()}
    if len(set(sums.values())) != 1:
        raise PeerError(f"the peers hold different rows: (rows, checksum of keys) {sums}")
