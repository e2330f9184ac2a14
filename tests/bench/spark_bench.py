"""W1 through Structured Streaming, and the smallest micro-batches: Freshet, its floor, and Delta Lake MERGE."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.bench.peers import Peer, PeerError
from tests.bench.storage_bench import Figure
from tests.bench.workloads import W1

SMALL_BATCHES = 40
SMALL_ROWS = 1000


def through_spark(logs: Path, folder: Path, factor: float, rounds: int) -> tuple[list[Figure], dict[str, str]]:
    """Figures of W1, and notes: where the time of a batch goes, large and small."""
    names = ("freshet", "floor", "delta")
    peers = {name: _peer(name, logs) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    notes: dict[str, str] = {}
    try:
        for peer in peers.values():
            peer.ask("make", "W1", factor, folder / "spark-source")
        for number in range(rounds + 1):
            for name, peer in peers.items():
                answer = peer.ask("ingest", folder / f"spark-{name}-{number}")
                seconds[name].append(float(answer["seconds"]))
                if "where" in answer:
                    notes["a large micro-batch through Spark, ms"] = _text(answer["where"])
        _check_equal(
            {name: peers[name].ask("read", folder / f"spark-{name}-{rounds}") for name in ("freshet", "delta")}
        )
        notes |= _small_batches(peers, folder)
    finally:
        for peer in peers.values():
            peer.close()
    rows = W1.scaled(factor).rows
    labels = {"freshet": "freshet", "floor": "the same job, rows only counted", "delta": "Delta Lake MERGE"}
    figures = [
        Figure("W1 through Spark, local[2]", labels[name], "2", rows, tuple(series)) for name, series in seconds.items()
    ]
    return figures, notes


def _small_batches(peers: dict[str, Peer], folder: Path) -> dict[str, str]:
    ours = peers["freshet"].ask("small", folder / "small-freshet", SMALL_BATCHES, SMALL_ROWS)
    floor = peers["floor"].ask("small", folder / "small-floor", SMALL_BATCHES, SMALL_ROWS)
    added = float(ours["freshet"]) - float(floor["floor"])
    return {
        f"a micro-batch of {SMALL_ROWS} rows, median ms": (
            f"freshet {ours['freshet']:.0f}, the same job with rows only counted {floor['floor']:.0f}, no job "
            f"{floor['no job']:.0f}; Freshet adds {added:.0f}"
        ),
        "where the smallest batch's time goes, ms": _text(ours["where"]),
    }


def _peer(name: str, logs: Path) -> Peer:
    return Peer(name, [sys.executable, "-m", "tests.bench.spark_worker", name], logs / f"spark-{name}.log")


def _check_equal(answers: dict[str, dict[str, Any]]) -> None:
    if len({answer["rows"] for answer in answers.values()}) != 1:
        raise PeerError(f"the tables hold different rows: {answers}")


def _text(where: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in where.items())
