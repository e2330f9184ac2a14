"""Rows that a shuffle has mixed up come back in the order in which they entered."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet.pipeline.query.wire.input_order import input_order, runs_in_order


def _columns(rows: list[tuple[int, str | None, int | None, int, int]]) -> list[pa.Array]:
    types = [pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int32()]
    return [pa.array([row[place] for row in rows], data_type) for place, data_type in enumerate(types)]


def test_rows_in_order_are_left_alone() -> None:
    assert input_order(_columns([(0, "a", 0, 5, 0), (0, "a", 0, 5, 1), (0, "a", 1, 2, 0), (0, "b", 0, 0, 0)])) is None
    assert input_order(_columns([])) is None
    assert input_order(_columns([(0, "a", 0, 5, 0)])) is None
    assert input_order([pa.array([7, 7, 7])]) is None


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_is_sorted_like_tuples(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (rng.randint(0, 1), rng.choice([None, "é", "z", "a"]), rng.choice([None, 0, 1, 2]), rng.randint(0, 9), 0)
        for _ in range(rng.randint(1, 200))
    ]

    def tuple_order(place: int) -> tuple[int, bytes, int, int]:
        source, topic, kafka_partition, offset, _ = rows[place]
        topic_key = b"" if topic is None else topic.encode()
        return source, topic_key, -1 if kafka_partition is None else kafka_partition, offset

    order = input_order(_columns(rows))
    found = list(range(len(rows))) if order is None else order.tolist()
    assert found == sorted(range(len(rows)), key=tuple_order)


def test_runs_that_changed_places() -> None:
    numbers = pa.chunked_array([pa.array(range(50, 100)), pa.array(range(50))])
    order = input_order([numbers])
    assert order is not None
    assert numbers.take(pa.array(order)).to_pylist() == list(range(100))


def test_paths_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    """All rows of a file have its path: 32-bit offsets end at 2 GB of them, a task's rows do not."""
    path = f"{tmp_path}/" + "x" * 200
    chunk = pa.array([path]).take(pa.array(np.zeros(500_000, np.int32)))
    column = pa.chunked_array([chunk] * 24)
    assert column.nbytes > 1 << 31
    assert input_order([column]) is None


def _batch(places: list[tuple[str | None, int]]) -> pa.RecordBatch:
    return pa.record_batch({"topic": [topic for topic, _ in places], "offset": [offset for _, offset in places]})


def test_runs_are_put_in_order_as_wholes() -> None:
    batches = [_batch([("b", 1), ("b", 2), ("a", 7), ("a", 9)]), _batch([("a", 1), ("a", 2)]), _batch([(None, 5)])]
    runs = runs_in_order(batches, ["topic", "offset"])
    assert runs is not None
    assert [(run.batch, run.start, run.stop) for run in runs] == [(2, 0, 1), (1, 0, 2), (0, 2, 4), (0, 0, 2)]


def test_runs_that_overlap_are_no_runs() -> None:
    assert runs_in_order([_batch([("a", 1), ("a", 5)]), _batch([("a", 3)])], ["topic", "offset"]) is None
