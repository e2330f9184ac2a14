"""`make bench`: the workloads against the peers, on this machine, in one run.

    python -m bench [--factor 1.0] [--rounds 3] [--parts core,cdc,local,local-latency,database,latency,log-latency,
                          storage,engines,memory,spark,commits,lookup,lookup-scale,background,changelogs,log,stores,
                          buckets,edits,postgres]

The part `core` is the short one, which sizes a machine; `cdc` is the benchmark of record: the job that users run. The
first round of each peer is printed as cold; the median of the later ones as warm. Peers take turns. Results are
written as they come; a part that fails is reported at the end, by the exit code as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

from bench.background_bench import background
from bench.bucket_bench import buckets
from bench.cdc_bench import cdc
from bench.changelog_bench import changelogs
from bench.commit_bench import commits
from bench.core_bench import core
from bench.core_table import table
from bench.database_bench import database
from bench.edits_bench import edits
from bench.engine_bench import engines
from bench.latency_bench import latency
from bench.local_bench import local, local_latency
from bench.log_bench import log_costs
from bench.log_latency_bench import log_latency
from bench.lookup_bench import lookups
from bench.lookup_scale_bench import lookups_at_scale
from bench.measure import report
from bench.postgres_debezium import postgres
from bench.results import Results
from bench.spark_bench import small_batches_with_lookup, through_spark
from bench.storage_bench import storage
from bench.stores_bench import stores
from freshet.storage.io.env import LOCAL_DIRS

PARTS: Final = (
    "core",
    "cdc", "local", "local-latency", "database", "latency", "log-latency", "storage", "engines", "memory", "spark",
    "commits", "lookup", "lookup-scale", "background", "changelogs", "log", "stores", "buckets", "edits",
    "postgres",
)  # fmt: skip


def main() -> None:
    """Runs the parts asked for and shows all figures."""
    parser = argparse.ArgumentParser(description="Freshet's benchmarks against its peers")
    parser.add_argument("--factor", type=float, default=1.0, help="scale of rows and keys; 1.0 is the full size")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds per peer")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma separated; core alone takes ten minutes")
    parser.add_argument("--without", default="", help="peers, readers, steps of stores; comma separated")
    parser.add_argument("--out", type=Path, default=Path("bench-output"))
    arguments = parser.parse_args()
    os.environ.setdefault(LOCAL_DIRS, "/")  # tables of the benchmarks name folders of their own
    parts = arguments.parts.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = Results(arguments.out)
    folder = Path(tempfile.mkdtemp(prefix="freshet-bench-"))
    try:
        for part in parts:
            report(f"part {part}")
            try:
                _run(part, results, folder, arguments)
            except Exception as failure:  # noqa: BLE001 - the other parts can still be measured
                traceback.print_exc()
                results.fail(part, f"{type(failure).__name__}: {failure}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        results.show()
        if results.core["figures"]:
            print(table(results.core))
    if results.failures:
        sys.exit(1)


def _run(part: str, results: Results, folder: Path, arguments: argparse.Namespace) -> None:
    factor, rounds, without = arguments.factor, arguments.rounds, arguments.without.split(",")
    match part:
        case "core":
            core(results, folder, factor, without)
        case "cdc":
            cdc(results, folder, factor, rounds, without)
        case "local":
            local(results, folder, factor, rounds, without)
        case "local-latency":
            local_latency(results, folder, rounds, without)
        case "database":
            database(results, folder, factor, rounds, without)
        case "latency":
            latency(results, folder, without)
        case "log-latency":
            log_latency(results, folder, without)
        case "storage":
            storage(results, folder, factor, rounds, without)
        case "engines":
            engines(results, folder, factor, rounds, without)
        case "memory":
            for runs in (1, 5, 50):
                results.note(f"memory, {runs} overlapping runs", _memory(folder, runs, factor))
        case "spark":
            through_spark(results, folder, factor, rounds)
        case "commits":
            commits(results, folder, factor)
        case "lookup":
            small_batches_with_lookup(results, folder, rounds)
            lookups(results, folder, factor)
        case "lookup-scale":
            lookups_at_scale(results, folder, factor)
        case "background":
            background(results, folder, factor)
        case "changelogs":
            changelogs(results, folder, factor, rounds, without)
        case "log":
            log_costs(results, folder, factor, rounds)
        case "stores":
            stores(results, folder, factor, rounds, without)
        case "edits":
            edits(results, folder, factor, rounds)
        case "postgres":
            postgres(results, folder, factor, rounds, without)
        case "buckets":
            buckets(results, folder, factor, rounds, without)


def _memory(folder: Path, runs: int, factor: float) -> str:
    command = [sys.executable, "-m", "bench.memory_worker", str(folder / f"memory-{runs}"), str(runs)]
    answer = subprocess.run([*command, str(2 * factor)], stdout=subprocess.PIPE, text=True, check=True).stdout
    shutil.rmtree(folder / f"memory-{runs}")
    text = ", ".join(f"{name} {value:g}" for name, value in json.loads(answer).items())
    report(f"memory, {runs} overlapping runs: {text}")
    return text


if __name__ == "__main__":
    main()
