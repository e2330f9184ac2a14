"""`make bench`: the workloads against the peers, on this machine, in one run.

    python -m tests.bench [--factor 1.0] [--rounds 3] [--parts storage,memory,spark]

The first round of each peer is printed as cold; the median of the later ones as warm. Peers take turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench import peers, report, spark_bench, storage_bench
from tests.bench.storage_bench import Figure


def main() -> None:
    """Runs the parts asked for and shows all figures."""
    parser = argparse.ArgumentParser(description="Freshet's benchmarks against its peers")
    parser.add_argument("--factor", type=float, default=1.0, help="scale of rows and keys; 1.0 is the full size")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds per peer")
    parser.add_argument("--parts", default="storage,memory,spark", help="comma separated")
    parser.add_argument("--without", default="", help="peers to leave out, comma separated")
    parser.add_argument("--out", type=Path, default=Path("bench-output"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="freshet-bench-"))
    figures: list[Figure] = []
    notes: dict[str, str] = {}
    parts = arguments.parts.split(",")
    try:
        if "storage" in parts:
            with ExitStack() as stack:
                everyone = [peers.freshet, peers.paimon_java, peers.pypaimon]
                wanted = [peer for peer in everyone if peer.__name__ not in arguments.without.split(",")]
                children = [peer(arguments.out) for peer in wanted]
                for child in children:
                    stack.callback(child.close)
                for name in ("W1", "W2"):
                    figures += storage_bench.ingest(children, name, folder, arguments.factor, arguments.rounds)
                figures += storage_bench.merge_read(children, folder, arguments.factor, arguments.rounds)
                ours = children[0]
                notes["write amplification"] = storage_bench.write_amplification(ours, folder, arguments.rounds)
                figures += storage_bench.compacted_read(ours, folder, arguments.factor, arguments.rounds)
        if "memory" in parts:
            notes |= {
                f"memory, {runs} overlapping runs": _memory(folder, runs, arguments.factor) for runs in (1, 5, 50)
            }
        if "spark" in parts:
            more_figures, more_notes = spark_bench.through_spark(
                arguments.out, folder, arguments.factor, arguments.rounds
            )
            figures += more_figures
            notes |= more_notes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if figures or notes:
            report.show(figures, notes, arguments.out)


def _memory(folder: Path, runs: int, factor: float) -> str:
    command = [sys.executable, "-m", "tests.bench.memory_worker", str(folder / f"memory-{runs}"), str(runs)]
    answer = subprocess.run([*command, str(2 * factor)], capture_output=True, text=True, check=True).stdout
    shutil.rmtree(folder / f"memory-{runs}")
    return ", ".join(f"{name} {value:g}" for name, value in json.loads(answer).items())


if __name__ == "__main__":
    main()
