"""W1, W2 (ingest) and W5 (merge read) on the storage API, against Apache Paimon's Java API and pypaimon."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import peers
from bench.measure import Answer, Contestant, check_equal, measure
from bench.peers import Peer
from bench.results import Results
from bench.workloads import W1, W2, W5, Workload

READ_SHAPES: Final = {"all columns": (), "3 columns": tuple(list(W5.columns)[:3]), "key only": (W5.key,)}
RATIO_ROUNDS: Final = 15
"""Reads in turn of what is compared: many short ones, of which the median counts."""
_WRITER_THREADS: Final = {"freshet": "2", "paimon-java": "2 writers + compaction", "paimon-flink": "2", "pypaimon": "2"}


def storage(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part."""
    with ExitStack() as stack:
        everyone = start_peers(stack, results.folder, without)
        for workload in (W1, W2):
            ingest(results, everyone, workload.scaled(factor), folder, rounds)
        runs = W5.scaled(factor)
        write_runs(everyone, runs, folder)
        for shape, columns in READ_SHAPES.items():
            merge_read(results, everyone, runs, folder, rounds, shape, columns)
        check_digests(everyone, runs, folder)
        ours = everyone[0]
        results.note("write amplification", write_amplification(ours, folder, ("W1", "W2")))
        before = location(folder, W5, f"{ours.name}-runs")
        shutil.copytree(location(folder, W5, ours.name), before)
        compacted_read(results, ours, folder, rounds)
        merge_over_raw(results, ours, before, location(folder, W5, ours.name))
        marked_read(results, ours, folder, rounds)


def start_peers(stack: ExitStack, logs: Path, without: Sequence[str]) -> list[Peer]:
    """Freshet, Paimon and pypaimon, but for those to do without; they end with the stack."""
    everyone = [peers.freshet, peers.paimon_java, peers.pypaimon]
    children = []
    for start in everyone:
        if start.__name__ not in without:
            children.append(start(logs))
            stack.callback(children[-1].close)
    return children


def make(peer: Peer, workload: Workload) -> None:
    """Lets a peer make the rows of a workload, which is scaled already."""
    columns = [f"{name}:{kind.replace(' ', '')}" for name, kind in workload.columns.items()]
    shape = (workload.rows, workload.commits, workload.buckets, workload.key_space, str(workload.write_only).lower())
    if peer.name in ("paimon-java", "paimon-flink"):
        peer.ask("make", workload.name, *shape, *columns)
    else:
        peer.ask("make", workload.name, workload.rows, workload.key_space)


def location(folder: Path, workload: Workload, peer: str) -> Path:
    """Where a peer has its table of a workload."""
    return folder / f"{workload.name}-{peer}"


def ingest(results: Results, everyone: Sequence[Peer], workload: Workload, folder: Path, rounds: int) -> None:
    """Rows to a compacted table, in commits; then every peer's last table must hold the same rows."""
    for peer in everyone:
        make(peer, workload)
    contestants = [
        Contestant(peer.name, _WRITER_THREADS[peer.name], writing(peer, workload, folder)) for peer in everyone
    ]
    results.add(measure(f"{workload.name} ingest", contestants, workload.rows, rounds))
    check_digests(everyone, workload, folder)


def write_runs(everyone: Sequence[Peer], workload: Workload, folder: Path) -> None:
    """Lets every peer write the table that it will read."""
    for peer in everyone:
        make(peer, workload)
        writing(peer, workload, folder)()


def merge_read(
    results: Results,
    everyone: Sequence[Peer],
    workload: Workload,
    folder: Path,
    rounds: int,
    shape: str,
    columns: Sequence[str],
) -> None:
    """Five overlapping runs, read merged; rows per second count the rows that were written."""

    def reading(peer: Peer, threads: str) -> Callable[[], Answer]:
        return lambda: peer.ask("read", location(folder, workload, peer.name), threads, *columns)

    contestants = [
        Contestant(peer.name, threads, reading(peer, threads)) for peer in everyone for threads in _reader_threads(peer)
    ]
    name = f"{workload.name.removesuffix('-runs')} merge read, {shape}"
    results.add(measure(name, contestants, workload.rows, rounds, compare=True))


def check_digests(everyone: Sequence[Peer], workload: Workload, folder: Path) -> None:
    """All cells of every peer's table must be the same."""
    check_equal({peer.name: peer.ask("digest", location(folder, workload, peer.name)) for peer in everyone})


def compacted_read(results: Results, ours: Peer, folder: Path, rounds: int) -> None:
    """W5 after a full compaction, read whole by Freshet and by pyarrow's dataset, with two threads and with one."""
    place = location(folder, W5, ours.name)
    ours.ask("compact", place)
    rows = int(ours.ask("read", place, 2)["rows"])

    def asking(command: str, threads: str) -> Callable[[], Answer]:
        return lambda: ours.ask(command, place, threads)

    for threads in ("2", "1"):
        contestants = [
            Contestant("freshet", threads, asking("read_whole", threads)),
            Contestant("pyarrow dataset", threads, asking("dataset", threads)),
        ]
        name = f"compacted read, all columns, {threads} threads"
        results.add(measure(name, contestants, rows, rounds, compare=True))


def merge_over_raw(results: Results, ours: Peer, runs: Path, compacted: Path) -> None:
    """What merging adds to reading, per byte of the files read: five runs merged, over each of two raw reads.

    Over the same files as they are, each row of a key for itself; and over the same rows, in one file without merging.
    """
    for threads in ("2", "1"):
        answers: dict[str, list[Answer]] = {"merged": [], "the same files raw": [], "compacted": []}
        for _ in range(RATIO_ROUNDS + 1):
            answers["merged"].append(ours.ask("read_files", runs, threads, "merged"))
            answers["the same files raw"].append(ours.ask("read_files", runs, threads, "raw"))
            answers["compacted"].append(ours.ask("read_files", compacted, threads, "merged"))
        check_equal({name: {**answers[name][0], "checksum": 0} for name in ("merged", "compacted")})
        texts = [
            f"{ratio_per_byte(answers['merged'][1:], answers[raw][1:], seconds):.2f} over {raw} in {words}"
            for raw in ("the same files raw", "compacted")
            for seconds, words in (("cpu_seconds", "processor time"), ("seconds", "time"))
        ]
        results.note(f"merge read of five runs, per byte, {threads} threads", ", ".join(texts))


def ratio_per_byte(some: Sequence[Answer], others: Sequence[Answer], seconds: str) -> float:
    """The median of what `some` take over what `others` take, read in turn: other work on the machine hits both."""
    return statistics.median(
        (one[seconds] / one["bytes"]) / (other[seconds] / other["bytes"])
        for one, other in zip(some, others, strict=True)
    )


def marked_read(results: Results, ours: Peer, folder: Path, rounds: int) -> None:
    """The same files with every tenth row marked in a deletion vector and without; both count the rows stored."""
    place = location(folder, W5, ours.name)
    marked = place.with_name(f"{place.name}-marked")
    shutil.copytree(place, marked)
    ours.ask("mark", marked)
    rows = int(ours.ask("read", place, 2)["rows"])
    contestants = [
        Contestant("freshet", "2", lambda: ours.ask("read_whole", place, 2)),
        Contestant("freshet, 10 % marked", "2", lambda: ours.ask("read_whole", marked, 2)),
    ]
    results.add(measure("raw read with deletion vectors", contestants, rows, rounds))


def write_amplification(ours: Peer, folder: Path, names: Sequence[str]) -> str:
    """Bytes written over bytes flushed, in the tables that Freshet and Paimon have written."""
    texts = []
    for name in names:
        for peer, below in (("freshet", "bench.db/t"), ("paimon-java", "")):
            place = folder / f"{name}-{peer}" / below
            if place.exists():
                answer = ours.ask("amplification", place)
                texts.append(f"{name} {peer} {answer['factor']:.2f} ({answer['flushed_mb']:.0f} MB flushed)")
    return ", ".join(texts)


def writing(peer: Peer, workload: Workload, folder: Path) -> Callable[[], Answer]:
    """Writes the rows of the workload that the peer has made into a new table."""
    place = location(folder, workload, peer.name)

    def once() -> Answer:
        shutil.rmtree(place, ignore_errors=True)
        return peer.ask("ingest", place, 2, *workload.option_words)

    return once


def _reader_threads(peer: Peer) -> tuple[str, ...]:
    # One bucket of overlapping runs is one split, which Paimon reads with one thread.
    return ("2", "1") if peer.name == "freshet" else ("1",)
