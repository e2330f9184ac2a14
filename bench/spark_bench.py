"""W1 through Structured Streaming and as one frame, and the smallest micro-batches: Freshet, its floor, Delta Lake."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench.measure import Answer, Contestant, check_equal, measure, report
from bench.peers import Peer
from bench.results import Results
from bench.workloads import W1

SMALL_BATCHES: Final = 40
SMALL_ROWS: Final = 1000
SMALL_KEYS: Final = 10_000_000
STANDING_KEYS: Final = 20_000
"""So few that most rows of a small batch replace one."""
LOOKUP_ADDS_MAX_MS: Final = 20
_LABELS: Final = {"freshet": "freshet", "floor": "the same job, rows only counted", "delta": "Delta Lake MERGE"}


def through_spark(results: Results, folder: Path, factor: float, rounds: int) -> None:
    """Figures of W1, and notes: where the time of a batch goes, large and small."""
    peers: dict[str, Peer] = {}
    try:
        for name in _LABELS:
            peers[name] = _peer(name, results.folder)
            peers[name].ask("make", "W1", factor, folder / "spark-source")
        _large_batches(results, peers, folder, W1.scaled(factor).rows, rounds)
        _frames(results, peers, folder, W1.scaled(factor).rows, rounds)
        _small_batches(results, peers, folder)
    finally:
        for peer in peers.values():
            peer.close()


def _large_batches(results: Results, peers: Mapping[str, Peer], folder: Path, rows: int, rounds: int) -> None:
    last: dict[str, Answer] = {}
    places: dict[str, Path] = {}

    def ingesting(name: str, peer: Peer) -> Callable[[], Answer]:
        number = 0

        def once() -> Answer:
            nonlocal number
            places[name] = folder / f"spark-{name}-{number}"
            number += 1
            last[name] = peer.ask("ingest", places[name])
            return last[name]

        return once

    contestants = [Contestant(_LABELS[name], "2", ingesting(name, peer)) for name, peer in peers.items()]
    results.add(measure("W1 through Spark, local[2]", contestants, rows, rounds))
    if "where" in last["freshet"]:
        results.note("a large micro-batch through Spark, ms", _text(last["freshet"]["where"]))
    check_equal({name: peers[name].ask("read", places[name]) for name in ("freshet", "delta")}, only_rows=True)


def _frames(results: Results, peers: Mapping[str, Peer], folder: Path, rows: int, rounds: int) -> None:
    """The same rows as one batch frame."""

    def writing(name: str) -> Callable[[], Answer]:
        numbers = itertools.count()
        return lambda: peers[name].ask("write", folder / f"frame-{name}-{next(numbers)}")

    labels = {"freshet": "freshet.write", "delta": "Delta Lake append"}
    contestants = [Contestant(label, "2", writing(name)) for name, label in labels.items()]
    results.add(measure("W1 as one frame, local[2]", contestants, rows, rounds))


def _small_batches(results: Results, peers: Mapping[str, Peer], folder: Path) -> None:
    ours = peers["freshet"].ask("small", folder / "small-freshet", SMALL_BATCHES, SMALL_ROWS, SMALL_KEYS)
    report(f"small micro-batches: freshet {ours['freshet']:.0f} ms")
    floor = peers["floor"].ask("small", folder / "small-floor", SMALL_BATCHES, SMALL_ROWS, SMALL_KEYS)
    report(f"small micro-batches: floor {floor['floor']:.0f} ms")
    added = float(ours["freshet"]) - float(floor["floor"])
    results.note(
        f"a micro-batch of {SMALL_ROWS} rows, median ms",
        f"freshet {ours['freshet']:.0f}, the same job with rows only counted {floor['floor']:.0f}, no job "
        f"{floor['no job']:.0f}; Freshet adds {added:.0f}",
    )
    results.note("where the smallest batch's time goes, ms", _text(ours["where"]))


def small_batches_with_lookup(results: Results, folder: Path, rounds: int) -> None:
    """What a changelog by lookup adds to a warm micro-batch of few rows, in turns; the first of each is not counted."""
    options = {"none": (), "lookup": ("changelog-producer=lookup", f"lookup.cache-dir={folder / 'cache'}")}
    times: dict[str, list[float]] = {name: [] for name in options}
    where: dict[str, Mapping[str, float]] = {}
    peer = _peer("freshet", results.folder)
    try:
        for number in range(rounds + 1):
            for name, pairs in options.items():
                place = folder / f"small-{name}-{number}"
                answer = peer.ask("small", place, SMALL_BATCHES, SMALL_ROWS, STANDING_KEYS, *pairs)
                report(f"small micro-batches with {name}: {answer['freshet']:.0f} ms")
                times[name].append(float(answer["freshet"]))
                where[name] = answer["where"]
    finally:
        peer.close()
    none, lookup = (statistics.median(times[name][1:]) for name in options)
    results.note(
        f"a warm micro-batch of {SMALL_ROWS} rows, median ms",
        f"{none:.0f} with no changelog, {lookup:.0f} with lookup, which adds {lookup - none:.0f} (at most "
        f"{LOOKUP_ADDS_MAX_MS})",
    )
    for name, steps in where.items():
        results.note(f"where its time goes with {name}, ms", _text(steps))


def _peer(name: str, logs: Path) -> Peer:
    return Peer(name, [sys.executable, "-m", "bench.spark_worker", name], logs / f"spark-{name}.log")


def _text(where: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in where.items())
