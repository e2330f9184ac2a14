"""The order of runs, and what a compaction does to it."""

from __future__ import annotations

from freshet.storage.merge.sorted_runs import build_levels
from tests.storage.compact.shapes import a_file


def names(files: object) -> list[str]:
    return [file.file_name for file in files]  # type: ignore[attr-defined]


def test_newest_first_and_one_run_per_level() -> None:
    files = [
        a_file("l2b", level=2, low=5, high=9),
        a_file("old", sequence=1),
        a_file("new", sequence=9),
        a_file("l2a", level=2, low=1, high=4),
        a_file("l1", level=1),
    ]
    levels = build_levels(files, 6, key_order=lambda key: key)
    assert names(levels.files) == ["new", "old", "l1", "l2a", "l2b"]
    assert [run.level for run in levels.runs] == [0, 0, 1, 2]
    assert (levels.run_count, levels.highest_level, levels.max_level) == (4, 2, 5)


def test_ties_at_level_0_go_by_name_and_both_files_stay() -> None:
    levels = build_levels([a_file("b"), a_file("a")], 6, key_order=lambda key: key)
    assert names(levels.files) == ["a", "b"]


def test_files_above_the_configured_levels_are_honoured() -> None:
    levels = build_levels([a_file("top", level=7)], 6, key_order=lambda key: key)
    assert (levels.num_levels, levels.max_level) == (8, 7)


def test_an_upgrade_replaces_the_same_name_at_another_level() -> None:
    file = a_file("f")
    levels = build_levels([file], 6, key_order=lambda key: key)
    moved = a_file("f", level=5)
    after = levels.changed([file], [moved])
    assert after.files == (moved,)
    assert after.highest_level == 5


def test_no_files() -> None:
    levels = build_levels([], 6, key_order=lambda key: key)
    assert (levels.run_count, levels.highest_level, levels.files) == (0, -1, ())
