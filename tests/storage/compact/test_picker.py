"""Which runs are compacted: vectors 74 to 80, and what the options change."""

from __future__ import annotations

import pytest

from freshet.storage.compact.picker import (
    PickRules,
    is_size_amplified,
    off_peak_addition,
    pick,
    pick_by_size_ratio,
    pick_force_up_level_0,
    pick_full,
    pick_level_0_alone,
    pick_upper,
    unit_of_prefix,
)
from tests.storage.compact.shapes import levels_of, runs, sizes


def rules(amplification: int, ratio: int, trigger: int, **others: int) -> PickRules:
    return PickRules(trigger, amplification, ratio, **others)


@pytest.mark.parametrize(
    ("number", "options", "num_levels", "text", "picked", "level"),
    [
        (74, (25, 1, 3), 3, "0:1 0:2 0:3 0:3", [1, 2, 3, 3], 2),
        (75, (25, 1, 3), 4, "0:1 1:1 2:1 3:50", [1, 1, 1], 2),
        (76, (25, 1, 3), 4, "0:1 1:2 2:3 3:50", [1, 2, 3], 2),
        (77, (200, 1, 3), 3, "0:10 0:20 1:97 2:100", [10, 20, 97], 1),
        ("no output to level 0", (25, 1, 3), 3, "0:1 0:1 1:1 2:50", [1, 1, 1], 1),
        ("no output to level 0, by count", (25, 1, 3), 3, "0:1 0:2 1:3 2:50", [1, 2, 3], 1),
        ("large runs at the end", (200, 1, 5), 6, "0:1 0:1 0:1 0:1024 0:1048576", [1, 1, 1, 1024, 1048576], 5),
    ],
)
def test_normal_pick(
    number: object, options: tuple[int, int, int], num_levels: int, text: str, picked: list[int], level: int
) -> None:
    unit = pick(levels_of(text, num_levels), rules(*options))
    assert unit is not None, number
    assert (sizes(unit.files), unit.output_level) == (picked, level), number
    assert unit.is_full == (len(picked) == len(text.split()))


@pytest.mark.parametrize(
    ("text", "num_levels", "picked", "level"),
    [
        ("0:1 1:99 2:102", 3, [1, 99], 1),  # vector 78
        ("0:1 1:99 2:100", 3, [1, 99, 100], 2),  # vector 78
        ("0:1 0:5 2:10", 3, [1, 5], 1),  # vector 79
        ("2:10", 3, None, None),  # vector 79
        ("0:1 0:1", 3, [1, 1], 2),
        ("0:1 1:10", 3, [1, 10], 2),
        ("0:1 0:5 0:10 0:20", 3, [1, 5, 10, 20], 2),
    ],
)
def test_forced_level_0(text: str, num_levels: int, picked: list[int] | None, level: int | None) -> None:
    unit = pick_force_up_level_0(levels_of(text, num_levels), rules(200, 1, 5))
    found = (None, None) if unit is None else (sizes(unit.files), unit.output_level)
    assert found == (picked, level)


@pytest.mark.parametrize(("count", "level"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 5)])
def test_output_level_of_a_prefix(count: int, level: int) -> None:
    """Vector 80."""
    assert unit_of_prefix(runs("0:1 0:1 1:1 3:1 4:1"), 5, count).output_level == level


def test_size_amplification_grows_the_last_run() -> None:
    rule, history, run_sizes = rules(25, 0, 1), [], [1]
    for _ in range(17):
        run_sizes = [1, *run_sizes]
        if is_size_amplified(runs(" ".join(f"0:{size}" for size in run_sizes)), rule):
            run_sizes = [sum(run_sizes)]
        history.append(list(run_sizes))
    assert history[:6] == [[2], [3], [4], [1, 4], [6], [1, 6]]
    assert history[-1] == [18]


def test_size_ratio_over_a_history() -> None:
    rule, history, run_sizes = rules(25, 1, 5), [], [1, 1, 1, 1]
    for _ in range(24):
        run_sizes = [1, *run_sizes]
        unit = None
        if len(run_sizes) >= 5:
            unit = pick_by_size_ratio(runs(" ".join(f"0:{size}" for size in run_sizes)), 3, rule, 1)
        if unit is not None:
            # As in a tree where level 0 may be an output: the prefix absorbed, not the extension to a lower level.
            absorbed, total = 1, run_sizes[0]
            for size in run_sizes[1:]:
                if total * 1.01 < size:
                    break
                total, absorbed = total + size, absorbed + 1
            run_sizes = [total, *run_sizes[absorbed:]]
        history.append(list(run_sizes))
    assert history[0] == [5]
    assert history[4] == [4, 5]
    assert history[10] == [1, 2, 3, 4, 5]
    assert history[11] == [16]
    assert history[-1] == [1, 11, 16]


@pytest.mark.parametrize(("ratio", "absorbs_all"), [(10, False), (20, True)])
def test_size_ratio_threshold(ratio: int, absorbs_all: bool) -> None:
    unit = pick_by_size_ratio(runs("0:8 0:9 0:10"), 2, rules(25, ratio, 2), 1)
    assert (unit is not None) == absorbs_all


def test_below_the_trigger_nothing_is_picked() -> None:
    assert pick(levels_of("0:1 0:1 0:1 0:1", 6), PickRules()) is None


def test_one_file_at_the_output_level_is_nothing_to_do() -> None:
    assert pick(levels_of("5:10", 6), rules(200, 1, 1)) is None
    assert pick(levels_of("0:10", 6), rules(0, 1, 1)) is None
    full = pick_full(levels_of("0:10", 6))
    assert full is not None
    assert full.output_level == 5


def test_interval_of_full_compactions() -> None:
    rule = rules(100, 1, 3, optimization_interval_ms=1000)
    levels = levels_of("0:1 1:3 2:5", 3)
    first = pick(levels, rule, now_ms=0, last_full_ms=None)
    assert first is not None
    assert first.is_full
    assert pick(levels, rule, now_ms=1000, last_full_ms=0) is None
    assert pick(levels, rule, now_ms=1001, last_full_ms=0) is not None
    assert pick(levels_of("0:5", 3), rule, now_ms=0, last_full_ms=None) is None


def test_thresholds_of_early_full_compaction() -> None:
    total = rules(100, 1, 9, total_size_threshold_bytes=10)
    assert pick(levels_of("0:1 1:3 2:5", 3), total) is not None
    assert pick(levels_of("0:2 1:6 2:10", 3), total) is None
    newer = rules(500, 1, 9, incremental_size_threshold_bytes=10)
    assert pick(levels_of("0:4 1:6 2:1000", 3), newer) is None
    unit = pick(levels_of("0:5 1:6 2:1000", 3), newer)
    assert unit is not None
    assert unit.output_level == 2


def test_full_compaction() -> None:
    assert pick_full(levels_of("", 3)) is None
    assert pick_full(levels_of("2:10", 3)) is None
    forced = pick_full(levels_of("2:10", 3), force_rewrite=True)
    assert forced is not None
    assert forced.rewrite_each
    unit = pick_full(levels_of("0:1 1:2", 3))
    assert unit is not None
    assert (sizes(unit.files), unit.output_level, unit.is_full) == ([1, 2], 2, True)


@pytest.mark.parametrize(
    ("hour", "start", "end", "inside"),
    [(8, 8, 10, True), (10, 8, 10, False), (23, 22, 2, True), (1, 22, 2, True), (2, 22, 2, False), (5, 5, 5, False),
     (0, -1, 3, False)],
)  # fmt: skip
def test_off_peak_hours(hour: int, start: int, end: int, inside: bool) -> None:
    assert off_peak_addition(hour, start, end, 10) == (10 if inside else 0)


@pytest.mark.parametrize(
    ("text", "picked", "level"),
    [
        ("0:1 5:1", [1], 4),  # nothing is absorbed, whatever its size
        ("0:1 0:1 3:1 4:2", [1, 1], 2),
        ("0:1 2:1 3:1", [1], 1),
        ("0:1 1:9 2:1 5:1", [1, 9], 1),
        ("0:1 1:9 4:1 5:1", [1, 9], 3),  # level 1 is free again
        ("0:1 1:9", [1, 9], 5),
        ("0:1", [1], 5),
        ("1:9 5:1", None, None),
    ],
)
def test_level_0_alone(text: str, picked: list[int] | None, level: int | None) -> None:
    unit = pick_level_0_alone(levels_of(text, 6))
    found = (None, None) if unit is None else (sizes(unit.files), unit.output_level)
    assert found == (picked, level)


@pytest.mark.parametrize(
    ("text", "picked", "level", "is_full"),
    [
        ("0:1 1:1 4:1 5:1", None, None, None),  # two runs are left alone
        ("0:1 1:1 3:5 4:4 5:1", [5, 4, 1], 5, False),  # size amplification
        ("3:5 4:4 5:1", [5, 4, 1], 5, True),
        ("0:1 3:5 4:5 5:100", [5, 5], 4, False),  # size ratio
        ("0:1 3:5 4:10 5:100", None, None, None),
        ("1:1 2:5 3:10 4:40 5:100", [5, 10], 3, False),  # too many runs
        ("0:1 0:1 0:1 0:1 1:1", None, None, None),
    ],
)
def test_upper_runs(text: str, picked: list[int] | None, level: int | None, is_full: bool | None) -> None:
    unit = pick_upper(levels_of(text, 6), PickRules())
    found = (None, None, None) if unit is None else (sizes(unit.files), unit.output_level, unit.is_full)
    assert found == (picked, level, is_full)
