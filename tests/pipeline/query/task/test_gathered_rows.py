"""Rows of a task come back in input order, whether they fit into memory or not, and leave nothing on disk."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.pipeline.query.task.gathered_rows import GatheredRows
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
    ("memory_bytes", "slice_bytes"), [(10**9, 10**9), (10**9, 20_000), (30_000, 20_000), (0, 10**9)]
)
@pytest.mark.parametrize("small_bytes", [0, 10**6])
def test_in_order_in_every_way(
    tmp_path: Path, runs: int, memory_bytes: int, slice_bytes: int, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.pipeline.query.task.gathered_rows.SMALL_BYTES", small_bytes)
    batches, expected = _batches(runs, runs)
    gathered = GatheredRows(local_env(str(tmp_path)), memory_bytes=memory_bytes, slice_bytes=slice_bytes)
    for batch in batches:
        gathered.add(batch)
        gathered.add(batch.slice(0, 0))
    is_spilled = any(tmp_path.iterdir())
    assert is_spilled == (memory_bytes < 10**9)
    slices = list(gathered.slices(["_o0"]))
    assert (len(slices) > 1) == (slice_bytes < 10**9)
    found = [row for slice_ in slices for row in zip(*(c.to_pylist() for c in slice_.columns), strict=True)]
    assert found == expected
    gathered.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rows_that_are_much_larger_than_the_others_lie_in_slices_of_their_own(tmp_path: Path, is_mixed: bool) -> None:
    """By the average, all of the large ones would be in one slice_."""
    gathered = GatheredRows(local_env(str(tmp_path)), memory_bytes=0, slice_bytes=100_000)
    for run in range(2):
        numbers = list(range(run, 10_000, 2)) if is_mixed else list(range(run * 5000, run * 5000 + 5000))
        texts = ["x" * (50_000 if number % 5000 < 40 else 10) for number in numbers]
        gathered.add(pa.record_batch({"_o0": numbers, "text": texts}))
    slices = list(gathered.slices(["_o0"]))
    assert [number for slice_ in slices for number in slice_["_o0"].to_pylist()] == list(range(10_000))
    assert max(slice_.nbytes for slice_ in slices) < 3 * 100_000
    gathered.close()
