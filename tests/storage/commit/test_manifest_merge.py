"""The merge decision on sizes alone, and the cancelling of entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.commit.manifest_merge import ManifestMergeRule, cancel_pairs, is_full_merge_due, plan_minor_merge
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry, ManifestFileMeta

RULE = ManifestMergeRule(target_size_bytes=100, full_threshold_bytes=200, min_count=3)


def manifests(*sizes: int, deletes: int = 0) -> list[ManifestFileMeta]:
    return [ManifestFileMeta(f"m{i}", size, 1, deletes, EMPTY_STATS, 0) for i, size in enumerate(sizes)]


def shape(*sizes: int) -> list[tuple[list[int], bool]]:
    groups = plan_minor_merge(manifests(*sizes), RULE)
    return [([item.file_size_bytes for item in group.manifests], group.is_rewritten) for group in groups]


def test_group_that_reaches_the_target_is_rewritten() -> None:
    assert shape(60, 60, 5) == [([60, 60], True), ([5], False)]


def test_group_of_one_stays() -> None:
    assert shape(120, 130) == [([120], False), ([130], False)]


def test_short_tail_stays_long_tail_is_rewritten() -> None:
    assert shape(5, 5) == [([5, 5], False)]
    assert shape(5, 5, 5) == [([5, 5, 5], True)]


def test_large_head_of_the_tail_stays() -> None:
    assert shape(50, 5, 5) == [([50], False), ([5, 5], True)]
    assert shape(10, 5, 5) == [([10, 5, 5], True)], "no larger than what follows"


@given(st.lists(st.integers(1, 150), max_size=200))
def test_groups_are_the_input_in_order(sizes: list[int]) -> None:
    groups = plan_minor_merge(manifests(*sizes), RULE)
    assert [item.file_size_bytes for group in groups for item in group.manifests] == sizes
    assert all(len(group.manifests) > 1 for group in groups if group.is_rewritten)


def test_full_merge_counts_only_what_it_would_change() -> None:
    assert not is_full_merge_due(manifests(150, 150, 150), RULE), "large, without deletes"
    assert is_full_merge_due(manifests(150, 150, deletes=1), RULE)
    assert is_full_merge_due(manifests(90, 90, 90), RULE)
    assert not is_full_merge_due(manifests(300, deletes=1), RULE), "one manifest alone"


def test_steady_stream_rewrites_a_bounded_share() -> None:
    """One small manifest per commit, target never reached: the bytes rewritten per commit stay logarithmic."""
    rule = ManifestMergeRule(target_size_bytes=10**9, full_threshold_bytes=2 * 10**9, min_count=30)
    sizes: list[int] = []
    rewritten = 0
    commits = 3000
    for _ in range(commits):
        sizes.append(10)
        after: list[int] = []
        for group in plan_minor_merge(manifests(*sizes), rule):
            group_sizes = [item.file_size_bytes for item in group.manifests]
            if group.is_rewritten:
                rewritten += sum(group_sizes)
                after.append(sum(group_sizes))
            else:
                after += group_sizes
        sizes = after
        assert len(sizes) <= 30
    # Rewriting everything each thirtieth time would be about 1 000 bytes per commit at this length.
    assert rewritten / commits < 10 * 15


def entry(kind: EntryKind, name: str, level: int = 0) -> ManifestEntry:
    file = DataFileMeta(name, 1, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, level)
    return ManifestEntry(kind, EMPTY_ROW, 0, 1, file)


def test_pairs_cancel_in_any_order_and_unmatched_deletes_stay() -> None:
    add, delete = EntryKind.ADD, EntryKind.DELETE
    rest = cancel_pairs(
        [entry(delete, "a"), entry(add, "a"), entry(delete, "old"), entry(add, "b"), entry(delete, "b", level=1)]
    )
    assert [(item.kind, item.file.file_name, item.file.level) for item in rest] == [
        (add, "b", 0),
        (delete, "old", 0),
        (delete, "b", 1),
    ]
