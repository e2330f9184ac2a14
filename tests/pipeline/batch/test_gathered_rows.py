"""Rows of a task come back in input order, whether they fit into memory or not, and leave nothing on disk."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.pipeline.batch.gathered_rows import GatheredRows
from freshet.storage.io.env import local_env


def _batches(seed: int, runs: int) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
    """Sorted runs over interleaved ranges, cut into batches, in a random sequence of runs."""
    rng = random.Random(seed)
    batches, rows = [], []
    numbers = list(range(5000))
    rng.shuffle(numbers)
    for run in range(runs):
        own = sorted(numbers[run::runs])
        for start in range(0, len(own), 333):
            part = own[start : start + 333]
            batches.append(pa.record_batch({"_o0": part, "text": [f"text {number}" for number in part]}))
            rows += [(number, f"text {number}") for number in part]
    return batches, sorted(rows)


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize(
    ("memory_bytes", "portion_bytes"), [(10**9, 10**9), (10**9, 20_000), (30_000, 20_000), (0, 10**9)]
)
def test_in_order_in_every_way(tmp_path: Path, runs: int, memory_bytes: int, portion_bytes: int) -> None:
    batches, expected = _batches(runs, runs)
    gathered = GatheredRows(local_env(str(tmp_path)), memory_bytes=memory_bytes, portion_bytes=portion_bytes)
    for batch in batches:
        gathered.add(batch)
        gathered.add(batch.slice(0, 0))
    is_spilled = any(tmp_path.iterdir())
    assert is_spilled == (memory_bytes < 10**9)
    portions = list(gathered.portions(["_o0"]))
    assert (len(portions) > 1) == (portion_bytes < 10**9)
    found = [row for portion in portions for row in zip(*(c.to_pylist() for c in portion.columns), strict=True)]
    assert found == expected
    gathered.close()
    assert list(tmp_path.iterdir()) == []
