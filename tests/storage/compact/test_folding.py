"""What becomes of a compaction unit whose retracts must not be merged with other rows above older ones."""

from __future__ import annotations

import pytest

from freshet.storage.compact.picker import CompactionUnit, joined_runs, kept_apart
from freshet.storage.merge.sorted_runs import Levels, build_levels
from freshet.storage.model.data_file import EMPTY_STATS, DataFileMeta
from freshet.storage.model.row_kind import RowKind
from freshet.storage.options.retracts import RetractRule

REMOVES = RetractRule(removes=True, removing_groups=(), alone=(), blanks=())
ALONE = RetractRule(removes=False, removing_groups=(), alone=(RowKind.UPDATE_BEFORE, RowKind.DELETE), blanks=())
NOTHING = RetractRule(removes=False, removing_groups=(), alone=(), blanks=())


def levels_of(*runs: tuple[int, int, int], keys: tuple[bytes, bytes] = (b"a", b"z")) -> Levels:
    """Runs as (level, rows, retracts), the newest first; 10 bytes a row."""
    files = [
        DataFileMeta(
            file_name=f"f{number}",
            file_size_bytes=10 * rows,
            row_count=rows,
            min_key=keys[0],
            max_key=keys[1],
            key_stats=EMPTY_STATS,
            value_stats=EMPTY_STATS,
            min_sequence_number=100 - number,
            max_sequence_number=100 - number,
            schema_id=0,
            level=level,
            delete_row_count=retracts,
        )
        for number, (level, rows, retracts) in enumerate(runs)
    ]
    return build_levels(files, 6, lambda key: key)


def unit_of(levels: Levels, count: int, output: int) -> CompactionUnit:
    return CompactionUnit(output, tuple(file for run in levels.runs[:count] for file in run.run.files))


def test_two_runs_where_a_level_is_free() -> None:
    levels = levels_of((0, 10, 1), (0, 10, 1), (5, 900, 0))
    found = kept_apart(unit_of(levels, 2, 4), levels, REMOVES, runs_max=8)
    assert found is not None
    assert (found.output_level, found.retract_level, len(found.files)) == (3, 4, 2)


@pytest.mark.parametrize(
    ("retracts", "rule"), [((0, 0), REMOVES), ((1, 1), NOTHING), ((1, 1), None)], ids=["none", "folds", "no rule"]
)
def test_as_it_is(retracts: tuple[int, int], rule: RetractRule | None) -> None:
    levels = levels_of((0, 10, retracts[0]), (0, 10, retracts[1]), (5, 900, 0))
    unit = unit_of(levels, 2, 4)
    assert kept_apart(unit, levels, rule, runs_max=8) is unit


def test_the_next_run_too_where_no_level_is_free() -> None:
    levels = levels_of((0, 30, 1), (0, 30, 1), (1, 10, 0), (2, 10, 0), (5, 900, 0))
    found = kept_apart(unit_of(levels, 3, 1), levels, REMOVES, runs_max=4)
    assert found is not None
    assert (found.output_level, found.retract_level, len(found.files)) == (3, 4, 4)


def test_retracts_alone_wait_and_take_all() -> None:
    levels = levels_of((0, 10, 10), (0, 10, 1), (0, 10, 10), (5, 900, 0))
    unit = unit_of(levels, 2, 4)
    assert kept_apart(unit, levels, ALONE, runs_max=4) is None
    found = kept_apart(unit, levels, ALONE, runs_max=2)
    assert found is not None
    assert found.is_full and len(found.files) == 4


def test_what_is_mostly_old_waits_for_new_rows() -> None:
    levels = levels_of((0, 10, 1), (1, 50, 2), (5, 900, 0))
    unit = unit_of(levels, 2, 1)
    assert kept_apart(unit, levels, REMOVES, runs_max=8) is None
    assert kept_apart(unit, levels, REMOVES, runs_max=2) is not None


def test_a_run_of_retracts_counts_with_the_newer_run() -> None:
    levels = levels_of((0, 10, 1), (0, 2, 2), (3, 50, 1), (4, 3, 3), (5, 900, 0))
    assert [(run.level, len(run.run.files)) for run in joined_runs(levels).runs] == [(0, 2), (3, 2), (5, 1)]
