"""W1 and W2 with a changelog, by every producer: ingest, against Apache Paimon's Java API with the same options.

Both compact in full at the commits that `full-compaction.delta-commits` says, and wait for it. Afterwards the tables
hold the same rows, and their changelogs have as many of each kind. Lookup runs through Apache Paimon on Flink as well,
which commits at its checkpoints: its table holds the same rows, its changelog reaches them by other steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.flink import flink
from bench.measure import check_equal
from bench.results import Results
from bench.storage_bench import ingest, location, start_peers
from bench.workloads import CHANGELOG_WORKLOADS

_CANNOT: Final = ("pypaimon",)


def changelogs(results: Results, folder: Path, factor: float, rounds: int, without: Sequence[str]) -> None:
    """The whole part."""
    with ExitStack() as stack:
        everyone = start_peers(stack, results.folder, [*without, *_CANNOT])
        on_flink = [] if "paimon-flink" in without else [flink(results.folder)]
        for peer in on_flink:
            stack.callback(peer.close)
        ours = everyone[0]
        for workload in CHANGELOG_WORKLOADS:
            scaled = workload.scaled(factor)
            extra = on_flink if scaled.options.get("changelog-producer") == "lookup" else []
            ingest(results, [*everyone, *extra], scaled, folder, rounds)
            for peer in extra:
                shutil.rmtree(location(folder, scaled, peer.name))
            places = {peer.name: location(folder, scaled, peer.name) for peer in everyone}
            if scaled.options:
                counts = {peer: ours.ask("count_changes", _table_folder(place)) for peer, place in places.items()}
                check_equal(counts)
                results.note(f"{scaled.name}, changes emitted", str(counts[ours.name]["kinds"]))
            for place in places.values():
                shutil.rmtree(place)


def _table_folder(place: Path) -> Path:
    """Freshet's is a warehouse."""
    inner = place / "bench.db" / "t"
    return inner if inner.exists() else place
