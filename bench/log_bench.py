"""What a log costs the writer and what readers make of it: W1 with and without a log, in one process and one run.

| figure | what |
|---|---|
| logged, unlogged | W1 into tables with the same options, one with a log on a real broker; they take turns; the ratio |
| read | rows a second from one Kafka partition, by isolation: everything W1 has logged, from the first snapshot on |
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from typing import Final

from bench.measure import report
from bench.results import Results
from bench.workloads import W1, Workload
from freshet import Catalog, Table
from freshet.jobs.demo.kafka_broker import KafkaBroker

COST_MAX: Final = 0.15
READ_RATE_MIN: Final = 300_000
BASE: Final = {"bucket": "1", "changelog-producer": "lookup", "snapshot.num-retained.min": "1000"}


def log_costs(results: Results, folder: Path, factor: float, rounds: int) -> None:
    """The whole part."""
    workload = W1.scaled(factor)
    with KafkaBroker.start() as broker:
        log = {"log.system": "kafka", "kafka.bootstrap.servers": broker.bootstrap_servers}
        seconds: dict[str, list[float]] = {name: [] for name in ("none", "arrow")}
        table: Table | None = None
        for number in range(rounds + 1):
            for name in seconds:
                options = {**BASE}
                if name != "none":
                    options |= {**log, "kafka.topic": f"w1-{name}-{number}"}
                place = folder / f"log-{name}-{number}"
                made = make_table(place, workload, options)
                taken = written(made, workload)
                report(f"W1 log {name}, round {number}: {taken:.2f} s")
                if number:  # the first is cold
                    seconds[name].append(taken)
                if name == "arrow":
                    table = made
                else:
                    shutil.rmtree(place)
        medians = {name: statistics.median(each) for name, each in seconds.items()}
        cost = 1 - medians["none"] / medians["arrow"]
        rate = workload.rows / medians["arrow"]
        text = f"{rate:,.0f} rows/s, {cost:.1%} less than without (at most {COST_MAX:.0%})"
        results.note("W1 with a log, arrow", text)
        assert table is not None
        for isolation in ("committed", "speculative"):
            count, taken = read(table, isolation)
            text = f"{count / taken:,.0f} rows/s (at least {READ_RATE_MIN:,})"
            results.note(f"W1 log read, {isolation}", text)
            report(f"W1 log read, {isolation}: {text}")


def make_table(place: Path, workload: Workload, options: dict[str, str]) -> Table:
    """An empty table for the workload."""
    schema = workload.table(0).schema
    return Catalog(str(place)).create_table(
        "bench.w1", schema=schema, primary_keys=[workload.key], options={**options, **workload.options}
    )


def written(table: Table, workload: Workload) -> float:
    """Seconds that writing takes, without making the rows."""
    taken = 0.0
    with table.writer("bench") as writer:
        for number in range(workload.commits):
            rows = workload.table(number)
            start = time.perf_counter()
            writer.write(rows)
            writer.commit()
            taken += time.perf_counter() - start
    return taken


def read(table: Table, isolation: str) -> tuple[int, float]:
    """Rows that a reader from the first snapshot on gets, and the seconds up to the last of them."""
    count, last = 0, 0.0
    start = time.perf_counter()
    stream = table.stream(isolation=isolation, from_snapshot=1, max_wait_s=1.0)
    for batch in stream:
        count += batch.num_rows
        last = time.perf_counter()
    stream.close()
    return count, last - start
