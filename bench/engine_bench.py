"""W6 (partial-update) and W7 (aggregation): ingest, merge read, and the merge alone compared with deduplicate.

pypaimon takes part where it can: a table of few rows shows whether it writes one that reads as Freshet's does, or at
least reads the one Freshet wrote. What it cannot do is a note.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.measure import Answer, Contestant, measure
from bench.peers import Peer, PeerError
from bench.results import Results
from bench.storage_bench import (
    check_digests,
    ingest,
    location,
    merge_read,
    start_peers,
    write_amplification,
    write_runs,
)
from bench.workloads import W6, W7, WORKLOADS, Workload

MERGES: Final = {"W6-runs": "W6", "W7-numbers": "W7, sum max last_non_null_value", "W7-joins": "W7, listagg collect"}
_PROBE: Final = 0.002
_REASON_CHARS: Final = 220


def engines(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part."""
    for name, title in MERGES.items():
        merge_alone(results, WORKLOADS[name].scaled(factor), title, rounds)
    with ExitStack() as stack:
        everyone = start_peers(stack, results.folder, without)
        for workload in (W6, W7):
            writers, readers = able(results, everyone, workload, folder)
            ingest(results, writers, workload.scaled(factor), folder, rounds)
            runs = workload.in_runs().scaled(factor)
            write_runs(writers, runs, folder)
            for guest in readers:
                lend(runs, folder, everyone[0], guest)
            merge_read(results, [*writers, *readers], runs, folder, rounds, "all columns", ())
            check_digests([*writers, *readers], runs, folder)
        results.note("write amplification, engines", write_amplification(everyone[0], folder, ("W6", "W7")))


def able(results: Results, everyone: Sequence[Peer], workload: Workload, folder: Path) -> tuple[list[Peer], list[Peer]]:
    """Who can write and read such a table, and who can only read it."""
    few = workload.in_runs().scaled(_PROBE)
    writers = [peer for peer in everyone if peer.name != "pypaimon"]
    readers: list[Peer] = []
    for guest in (peer for peer in everyone if peer.name == "pypaimon"):
        write_runs(writers[:1], few, folder)
        reason = _cannot_write(guest, writers[0], few, folder)
        if reason is None:
            writers.append(guest)
            continue
        results.note(f"{workload.name}, {guest.name} cannot write it", reason)
        reason = _cannot_read(guest, writers[0], few, folder)
        if reason is None:
            readers.append(guest)
        else:
            results.note(f"{workload.name}, {guest.name} cannot read it", reason)
    for peer in everyone:
        shutil.rmtree(location(folder, few, peer.name), ignore_errors=True)
    return writers, readers


def lend(workload: Workload, folder: Path, owner: Peer, guest: Peer) -> None:
    """Gives a guest the owner's table as its own."""
    place = location(folder, workload, guest.name)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(location(folder, workload, owner.name), place)


def merge_alone(results: Results, workload: Workload, title: str, rounds: int) -> None:
    """The merge of rows in memory, by the engine and by deduplicate."""
    command = [sys.executable, "-m", "bench.merge_worker"]
    worker = Peer("freshet", command, results.folder / "merge.log")
    try:
        rows = worker.ask("make", workload.name, workload.rows, workload.key_space)
        for shape, what in (("flush", "unsorted rows"), ("runs", "five runs")):
            contestants = [
                Contestant("freshet", "1", _merging(worker, shape, "engine")),
                Contestant("deduplicate, the same rows", "1", _merging(worker, shape, "deduplicate")),
            ]
            engine, floor = measure(
                f"merge alone, {title}, {what}", contestants, int(rows[shape]), max(rounds, 5), is_patient=True
            )
            results.add([engine, floor])
            results.note(
                f"merge alone over deduplicate, {title}, {what}",
                f"{engine.warm_seconds / floor.warm_seconds:.2f} (fastest rounds "
                f"{min(engine.seconds) / min(floor.seconds):.2f})",
            )
    finally:
        worker.close()


def _merging(worker: Peer, shape: str, engine: str) -> Callable[[], Answer]:
    return lambda: worker.ask("merge", shape, engine)


def _cannot_write(guest: Peer, ours: Peer, workload: Workload, folder: Path) -> str | None:
    """Why not; None if it can, and its table reads as ours does."""
    try:
        write_runs([guest], workload, folder)
        check_digests([ours, guest], workload, folder)
    except PeerError as error:
        return _short(error)
    return None


def _cannot_read(guest: Peer, ours: Peer, workload: Workload, folder: Path) -> str | None:
    """Why not; None if it reads our table as we do."""
    lend(workload, folder, ours, guest)
    try:
        check_digests([ours, guest], workload, folder)
    except PeerError as error:
        return _short(error)
    return None


def _short(error: PeerError) -> str:
    text = str(error)
    return text if len(text) <= _REASON_CHARS else text[:_REASON_CHARS] + "…"
