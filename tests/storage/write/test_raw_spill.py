"""Spilling changes nothing: the level-0 file holds the same rows, in the same order, whatever the memory."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.merge.chosen_row import Deduplicate, FirstRow
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_function import MergeFunction
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.merge.row_levels import LookupLevels
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from freshet.storage.write.write_buffer import WriteBuffer
from tests.kit.joined import Joined

FUNCTIONS = [
    Joined(),
    Deduplicate(),
    FirstRow(MergedTable("t", ("k",))),
    LookupLevels(Joined()),
    LookupLevels(Deduplicate()),
]


def chunks(seed: int, *, by_sequence: bool) -> list[pa.Table]:
    source, numbers = random.Random(seed), itertools.count()
    tables = []
    for _ in range(12):
        rows = [(source.choice([7, source.randrange(40)]), source.choice([None, 1, 2])) for _ in range(50)]
        taken = [next(numbers) for _ in rows]
        tables.append(
            pa.table(
                {
                    SEQUENCE_NUMBER_COLUMN: pa.array(taken, pa.int64()),
                    VALUE_KIND_COLUMN: pa.array([0] * len(rows), pa.int8()),
                    "k": pa.array([row[0] for row in rows], pa.int64()),
                    "s": pa.array([row[1] if by_sequence else None for row in rows], pa.int64()),
                    "v": pa.array([str(number) for number in taken], pa.string()),
                }
            )
        )
    return tables


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: repr(function)[:40])
@pytest.mark.parametrize("by_sequence", [False, True])
@pytest.mark.parametrize("spill_after", [(3,), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), (11,)], ids=len)
def test_spilled_rows_merge_as_rows_in_memory(
    tmp_path: Path, function: MergeFunction, by_sequence: bool, spill_after: tuple[int, ...]
) -> None:
    order = RowOrder(("k",), ("s",) if by_sequence else ())
    paths = (str(tmp_path / f"{number}.arrow") for number in itertools.count())
    small, large = (WriteBuffer(order, function, lambda: next(paths)) for _ in range(2))
    for at, rows in enumerate(chunks(3, by_sequence=by_sequence)):
        small.add(rows)
        large.add(rows)
        if at in spill_after:
            small.spill()
            assert small.size_bytes == 0
            assert small.spilled_bytes > 0
    want = [row for part in large.take_merged() for row in part.to_pylist()]
    found = [row for part in small.take_merged() for row in part.to_pylist()]
    assert found == want
    assert list(tmp_path.iterdir()) == []
    if isinstance(function, Joined):
        assert max(row["v"].count("+") for row in want) > 100


def test_runs_of_an_engine_that_merges_at_once_are_raw(tmp_path: Path) -> None:
    paths = iter([str(tmp_path / "raw"), str(tmp_path / "merged")])
    raw, merged = (WriteBuffer(RowOrder(("k",)), f, lambda: next(paths)) for f in (Joined(), Deduplicate()))
    for buffer in (raw, merged):
        for rows in chunks(4, by_sequence=False):
            buffer.add(rows)
        buffer.spill()
    assert raw.spilled_bytes > 3 * merged.spilled_bytes
