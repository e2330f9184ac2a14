"""Which small files of an append table are joined."""

from __future__ import annotations

import pytest

from freshet.storage.compact.append_compaction import AppendRules, pick_bins, pick_full_bucket, pick_window
from freshet.storage.model.data_file import DataFileMeta
from tests.storage.compact.shapes import a_file, sizes

RULES = AppendRules(target_bytes=100, small_file_bytes=70, open_file_cost_bytes=2, min_file_count=3)


def files(*file_sizes: int) -> list[DataFileMeta]:
    return [a_file(f"f{n}", size=size, sequence=n) for n, size in enumerate(file_sizes)]


def test_window_takes_the_oldest_files_in_order() -> None:
    assert sizes(pick_window(reversed(files(1, 2, 3, 4)), RULES)) == [1, 2, 3]
    assert pick_window(files(1, 2), RULES) == ()


def test_window_leaves_big_files_behind() -> None:
    assert sizes(pick_window(files(190, 20, 30, 40), RULES)) == [20, 30, 40]


def test_a_file_that_outweighs_the_others_is_not_rewritten_for_them() -> None:
    assert sizes(pick_window(files(60, 5, 5, 5), RULES)) == [5, 5, 5]
    assert pick_window(files(60, 5, 5), RULES) == ()
    assert sizes(pick_window(files(10, 5, 5), RULES)) == [10, 5, 5]


@pytest.mark.parametrize("target", [1_000, 100_000_000])
def test_a_byte_is_rewritten_a_few_times_however_long_the_history(target: int) -> None:
    rules = AppendRules(target, target * 7 // 10, open_file_cost_bytes=0)
    bucket: list[DataFileMeta] = []
    rewritten = most = 0
    for number in range(2000):
        bucket.append(a_file(f"f{number}", size=90 + number * 7919 % 20, sequence=number))
        unit = pick_window(bucket, rules)
        total = sum(sizes(unit))
        outputs = [min(target, total - start) for start in range(0, total, target)]
        rewritten += total
        bucket = [file for file in bucket if file not in unit]
        bucket += [
            a_file(f"c{number}-{n}", size=s, sequence=unit[0].min_sequence_number) for n, s in enumerate(outputs)
        ]
        most = max(most, sum(file.file_size_bytes < rules.small_file_bytes for file in bucket))
    assert rewritten <= 8 * 2000 * 100
    assert most <= 4 * 5


def test_full_compaction_of_a_bucket_skips_big_files_at_the_front() -> None:
    assert sizes(pick_full_bucket(files(80, 90, 10, 20, 30), RULES)) == [10, 20, 30]
    assert pick_full_bucket(files(10, 20), RULES) == ()
    assert pick_full_bucket(files(10, 80, 90, 20), RULES) == ()
    assert sizes(pick_full_bucket(files(80, 90), RULES, force_rewrite=True)) == [80, 90]


def test_bins_by_size_and_rows_in_order_inside_a_bin() -> None:
    bins = pick_bins(files(60, 90, 50, 40, 55, 5, 6), RULES, full=False)
    assert [sizes(unit) for unit in bins] == [[60, 50, 40, 55, 5, 6]]
    assert pick_bins(files(5, 6), RULES, full=False) == []
    assert [sizes(unit) for unit in pick_bins(files(5, 6), RULES, full=True)] == [[5, 6]]
    many = pick_bins(files(*[60] * 7), RULES, full=False)
    assert [sizes(unit) for unit in many] == [[60] * 4, [60] * 3]
