"""W3: a long stream with lookup and background compaction; do its batches get slower, do files accumulate?

500 batches of 10 K rows, 80 % of them on 20 % of 1 M keys, two buckets. One process writes and commits batches, another
runs the compaction units, as tasks of a pipeline do.

| figure | bound |
|---|---|
| median of the last tenth of the batches, to that of the second tenth | 1.2 |
| 99th percentile of all batches, to their median | 3 |
| level-0 files, changelog files, open files at the end of each batch | those of the second tenth, doubled |
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Final

from bench.background_worker import CAUSES, TIMES
from bench.measure import report
from bench.results import Results

BATCHES: Final = 500
BATCH_ROWS: Final = 10_000
KEYS: Final = 1_000_000
GROWTH_MAX: Final = 1.2
TAIL_MAX: Final = 3.0
SLOWEST: Final = 5
"""Batches that are reported one by one."""
COUNTS: Final = ("level0_files", "changelog_files", "open_files")


def background(results: Results, folder: Path, factor: float, batches: int = BATCHES) -> None:
    """The stream with background compaction, and without for comparison."""
    for name, budget in (("W3 in the background", "200"), ("W3 in the batches", "none")):
        numbers = [str(max(1, int(number * factor))) for number in (BATCH_ROWS, KEYS)]
        command = [sys.executable, "-m", "bench.background_worker", str(folder / name.replace(" ", "-"))]
        answer = subprocess.run(
            [*command, str(batches), *numbers, budget], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for key, text in _figures(json.loads(answer)).items():
            results.note(f"{name}, {key}", text)
            report(f"{name}, {key}: {text}")


def _figures(answer: Mapping[str, Sequence[float]]) -> dict[str, str]:
    times = answer["ms"]
    tenth = len(times) // 10
    early, late = statistics.median(times[tenth : 2 * tenth]), statistics.median(times[-tenth:])
    middle, tail = statistics.median(times), sorted(times)[len(times) * 99 // 100]
    slowest = sorted(range(len(times)), key=times.__getitem__)[-SLOWEST:]
    figures = {
        "growth": f"{late / early:.2f} (at most {GROWTH_MAX}): median {early:.0f} ms early, {late:.0f} ms late",
        "tail": f"{tail / middle:.2f} (at most {TAIL_MAX}): median {middle:.0f} ms, p99 {tail:.0f} ms, "
        f"slowest {max(times):.0f} ms",
        "slowest": "; ".join(_batch(answer, number) for number in slowest),
        "units": f"{answer['units'][-1]:.0f} committed, {answer['aborted'][-1]:.0f} aborted",
    }
    is_busy = [count > 0 for count in answer["busy"]]
    if any(is_busy) and not all(is_busy):
        medians = [statistics.median(compress(times, chosen)) for chosen in (is_busy, map(not_, is_busy))]
        figures["busy"] = f"median {medians[0]:.0f} ms in {sum(is_busy)} batches with a unit, {medians[1]:.0f} ms else"
    for name in COUNTS:
        counts = answer[name]
        figures[name] = f"{max(counts[tenth : 2 * tenth]):.0f} early, {max(counts[-tenth:]):.0f} late"
    return figures


def _batch(answer: Mapping[str, Sequence[float]], number: int) -> str:
    """What a batch spent its time on."""
    times = ", ".join(f"{name.removesuffix('_ms')} {answer[name][number]:.0f}" for name in TIMES[1:])
    causes = ", ".join(f"{answer[name][number]:.0f} {name.replace('_', ' ')}" for name in CAUSES)
    return f"batch {number} {answer['ms'][number]:.0f} ms ({times}; {causes})"
