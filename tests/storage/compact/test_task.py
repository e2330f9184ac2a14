"""What a unit moves, rewrites and leaves alone: vectors 81 and 82, retracts, forced rewrites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.compact.picker import CompactionUnit
from freshet.storage.compact.section_merge import CompactionPlan, plan_task
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.sorted_runs import files_of, interval_partition
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.data_type import parse_data_type
from tests.storage.compact.shapes import ranges

BIGINT = parse_data_type("BIGINT NOT NULL")
COMPARATOR = KeyComparator((BIGINT,))


def plan(files: list[DataFileMeta], *, output: int = 2, max_level: int = 2, **options: Any) -> CompactionPlan:
    unit = CompactionUnit(output, tuple(files), rewrite_each=options.pop("rewrite_each", False))
    return plan_task(unit, interval_partition(files, COMPARATOR), max_level=max_level, small_file_bytes=2, **options)


def keyed(text: str) -> list[DataFileMeta]:
    def serialized(stand_in: bytes) -> bytes:
        return encode_row([int.from_bytes(stand_in, "big")], (BIGINT,))

    return [replace(f, min_key=serialized(f.min_key), max_key=serialized(f.max_key)) for f in ranges(text)]


def shown(files: Any) -> list[str]:
    def number(key: bytes) -> int:
        return int(COMPARATOR.sort_key(key)[0])

    return [f"[{number(file.min_key)},{number(file.max_key)}]" for file in files]


def groups(found: CompactionPlan) -> list[list[str]]:
    return [sorted(shown(file for section in group for file in files_of(section))) for group in found.rewrites]


def test_vector_81() -> None:
    found = plan(keyed("L0[1,5] L0[6,6] L1[7,7] L1[9,10]"))
    assert shown(found.moves) == ["[1,5]", "[9,10]"]
    assert groups(found) == [["[6,6]", "[7,7]"]]
    assert {file.level for file in found.moved} == {2}


def test_vector_82() -> None:
    found = plan(keyed("L0[1,3] L0[1,5] L0[6,8]"))
    assert shown(found.moves) == ["[6,8]"]
    assert groups(found) == [["[1,3]", "[1,5]"]]


def test_one_small_file_alone_is_moved() -> None:
    found = plan(keyed("L0[1,1] L0[3,9]"))
    assert shown(found.moves) == ["[1,1]", "[3,9]"]


def test_small_files_join_the_overlapping_ones_next_to_them() -> None:
    found = plan(keyed("L0[1,1] L0[3,9] L0[4,5] L0[11,11] L0[20,29]"))
    assert groups(found) == [["[1,1]", "[11,11]", "[3,9]", "[4,5]"]]
    assert shown(found.moves) == ["[20,29]"]


def test_a_file_at_the_output_level_is_left_alone() -> None:
    found = plan(keyed("L0[1,5] L2[6,9]"))
    assert shown(found.moves) == ["[1,5]"]
    assert found.rewrites == ()


@pytest.mark.parametrize(("deletes", "is_rewritten"), [(0, False), (1, True), (None, True)])
def test_retracts_do_not_reach_the_highest_level(deletes: int | None, is_rewritten: bool) -> None:
    files = [replace(file, delete_row_count=deletes) for file in keyed("L0[1,5]")]
    assert bool(plan(files).rewrites) == is_rewritten
    assert not plan(files, output=1).rewrites


def test_forced_rewrites() -> None:
    assert groups(plan(keyed("L0[1,5] L2[6,9]"), force_rewrite=True)) == [["[1,5]"], ["[6,9]"]]
    assert groups(plan(keyed("L2[1,5] L2[6,9]"), rewrite_each=True)) == [["[1,5]"], ["[6,9]"]]
    assert groups(plan(keyed("L0[1,5] L2[6,9]"), rewrites_moves=lambda file: True)) == [["[1,5]"]]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.booleans()), max_size=12))
def test_every_file_is_moved_or_rewritten_or_stays_and_groups_are_in_key_order(
    spans: list[tuple[int, int, bool]],
) -> None:
    files = keyed(" ".join(f"L0[{low},{low + span}]{'-' if retracts else ''}" for low, span, retracts in spans))
    found = plan(files)
    rewritten = [file for group in found.rewrites for section in group for file in files_of(section)]
    assert sorted(f.file_name for f in [*found.moves, *rewritten]) == sorted(f.file_name for f in files)
    last = -1
    for group in found.rewrites:
        for section in group:
            lows = [COMPARATOR.sort_key(file.min_key)[0] for file in files_of(section)]
            assert min(lows) > last
            last = max(COMPARATOR.sort_key(file.max_key)[0] for file in files_of(section))
