"""Edits of a table of 10 M rows beside Delta Lake, in turns: deletes of 1 % by key, merges of 100 K rows, and a delete
by a filter that prunes nothing beside a plain scan.

Each round takes other keys, so that the tables change as little as they would in a night; behind each round they are
equal by the number of rows and sums of columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from bench.edits_worker import SCORES, changes, make_source
from bench.measure import Answer, Contestant, check_equal, measure, report
from bench.peers import Peer
from bench.results import Results

ROWS: Final = 10_000_000
SHARE: Final = 100
"""One row of so many is edited."""
LABELS: Final = {"keyed": "freshet", "vectors": "freshet, no key, vectors", "delta": "Delta Lake"}


def edits(results: Results, folder: Path, factor: float, rounds: int) -> None:
    """The whole part."""
    rows = int(ROWS * factor)
    count = rows // SHARE
    make_source(folder / "edits-source", rows)
    peers = {
        name: Peer(name, [sys.executable, "-m", "bench.edits_worker", name], _log(results, name)) for name in LABELS
    }
    try:
        for name, peer in peers.items():
            answer = peer.ask("load", folder / "edits-source", folder / f"edits-{name}")
            report(f"edits, {LABELS[name]}: loaded {rows:,} rows in {answer['seconds']:.1f} s")
        _Edits(results, folder, peers, rows, count, rounds).run()
    finally:
        for peer in peers.values():
            peer.close()


class _Edits:
    def __init__(
        self, results: Results, folder: Path, peers: Mapping[str, Peer], rows: int, count: int, rounds: int
    ) -> None:
        self._results = results
        self._folder = folder
        self._peers = peers
        self._rows = rows
        self._count = count
        self._rounds = rounds
        self._peaks: dict[str, int] = {}

    def run(self) -> None:
        """Each edit in turns."""
        count, rounds = self._count, self._rounds
        for number in range(rounds + 1):
            pq.write_table(changes(self._rows, count, number + 1), self._path("merge", number))
            keys = changes(self._rows, count, number + 100).select(["id"])
            pq.write_table(keys, self._path("keys", number))
        self._turns("a range of 1 % deleted", "delete_range", lambda number: (number * count, (number + 1) * count))
        self._turns("1 % deleted by keys", "delete_keys", lambda number: (self._path("keys", number),))
        self._turns("1 % merged", "merge", lambda number: (self._path("merge", number),))
        width = SCORES // SHARE
        deletes = self._turns("1 % deleted, nothing pruned", "delete_filter", lambda n: (n * width, (n + 1) * width))
        scans = self._turns("a scan", "scan", lambda _: ())
        shown = ", ".join(f"{name} {deletes[name] / scans[name]:.2f}×" for name in scans)
        self._results.note(f"edits: a delete that prunes nothing, of {self._rows:,} rows, relative to a scan", shown)
        for name, peak in self._peaks.items():
            if name != "delta":
                self._results.note(f"edits of {self._rows:,} rows, {LABELS[name]}, peak resident", f"{peak:,} MB")

    def _turns(self, what: str, command: str, arguments: Callable[[int], tuple[object, ...]]) -> dict[str, float]:
        """Warm seconds by contestant."""

        def asking(name: str, peer: Peer) -> Callable[[], Answer]:
            number = 0

            def once() -> Answer:
                nonlocal number
                answer = peer.ask(command, *arguments(number))
                number += 1
                self._peaks[name] = max(self._peaks.get(name, 0), answer["peak_rss_mb"])
                return answer

            return once

        contestants = [Contestant(LABELS[name], "2", asking(name, peer)) for name, peer in self._peers.items()]
        figures = measure(f"edits: {what}", contestants, self._rows, self._rounds, is_patient=True)
        self._results.add(figures)
        check_equal({name: peer.ask("digest") for name, peer in self._peers.items()})
        seconds = {figure.peer: figure.warm_seconds for figure in figures}
        delta = seconds[LABELS["delta"]]
        shown = ", ".join(f"{name} {each:.2f} s ({each / delta:.2f}×)" for name, each in seconds.items())
        self._results.note(f"edits: {what}, of {self._rows:,} rows, warm, relative to Delta Lake", shown)
        return seconds

    def _path(self, what: str, number: int) -> Path:
        return self._folder / f"edits-{what}-{number}.parquet"


def _log(results: Results, name: str) -> Path:
    return results.folder / f"edits-{name}.log"
