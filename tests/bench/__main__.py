"""`make bench`: the workloads against the peers, on this machine, in one run.

    python -m tests.bench [--factor 1.0] [--rounds 3] [--parts storage,spark,compacted,memory]

The first round of each peer is printed as cold; the median of the later ones as warm. Peers take turns.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench import peers, report, storage_bench
from tests.bench.storage_bench import Figure


def main() -> None:
    """Runs the parts asked for and shows all figures."""
    parser = argparse.ArgumentParser(description="Freshet's benchmarks against its peers")
    parser.add_argument("--factor", type=float, default=1.0, help="scale of rows and keys; 1.0 is the full size")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds per peer")
    parser.add_argument("--parts", default="storage", help="comma separated")
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if figures:
            report.show(figures, notes, arguments.out)


if __name__ == "__main__":
    main()
