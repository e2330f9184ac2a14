"""Random histories of every merge engine: after each commit and each full compaction the table equals the oracle.

Quick runs take fixed seeds with many keys; the slow one is hypothesis's, with few keys, and shrinks what it finds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.engine_histories import SHAPES, Shape, Story, history
from tests.kit.engine_tables import FreshetTable

SMALL_BUFFER = {"write-buffer-size": "2 kb", "write-buffer-spillable": "true"}
"""Rows of one commit are spilled several times, and are one flush all the same."""


def play(shape: Shape, source: Random, seed: Any, folder: Path, **size: int) -> None:
    """A history on a table of Freshet's; each step is read whole and in some columns."""
    table = FreshetTable.create(
        folder, shape.types, shape.primary_keys, shape.table_options, partition_keys=shape.partition_keys
    )
    story = Story(shape, seed)
    try:
        for step in history(shape, source, **size):
            story.steps.append(step)
            if step.rows is None:
                table.compact()
            else:
                table.commit(step.rows)
            story.check(table.read())
            some = [name for name in shape.types if source.random() < 0.4] or [next(iter(shape.types))]
            story.check(table.read(some), some)
    finally:
        table.close()


def with_options(shape: Shape, options: Mapping[str, str]) -> Shape:
    return replace(shape, options={**shape.options, **options})


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_table_equals_the_oracle(shape: Shape, seed: int, tmp_path: Path) -> None:
    play(shape, Random(seed), seed, tmp_path, keys=10, steps=5, rows=25)


@pytest.mark.parametrize("shape", SHAPES[::3], ids=lambda shape: shape.name)
def test_spilled_rows_are_one_flush(shape: Shape, tmp_path: Path) -> None:
    play(with_options(shape, SMALL_BUFFER), Random(3), 3, tmp_path, keys=40, steps=3, rows=400)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_table_equals_the_oracle_at_length(shape: Shape) -> None:
    @settings(max_examples=25)
    @given(source=st.randoms(use_true_random=False), keys=st.integers(1, 3), rows=st.integers(1, 10))
    def run(source: Random, keys: int, rows: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play(shape, source, "hypothesis", Path(folder), keys=keys, steps=5, rows=rows)

    run()
