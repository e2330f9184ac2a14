"""How files of a bucket become splits (MERGING.md §6.2, vectors 84 and 85)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.scan.planner import Packing, split_bucket
from tests.kit.notation import INT_KEY, data_file, shape

COMPARATOR = KeyComparator(INT_KEY)
RANGES = "L0: [0,10] [0,12] [15,60] [18,40] [82,85] [100,200]"


def names(groups: Sequence[tuple[Sequence[DataFileMeta], bool]]) -> list[set[int]]:
    """Files of each split by their number in the notation, from 1."""
    return [{int(file.file_name[5:-8]) + 1 for file in group} for group, _ in groups]


def raw_flags(groups: Sequence[tuple[Sequence[DataFileMeta], bool]]) -> list[bool]:
    return [is_raw for _, is_raw in groups]


@pytest.mark.parametrize(("cost", "expected"), [(2, [{1, 2, 3, 4, 5}, {6}]), (30, [{1, 2, 3, 4}, {5}, {6}])])
def test_vector_84(cost: int, expected: list[set[int]]) -> None:
    assert names(split_bucket(shape(RANGES), Packing(100, cost), COMPARATOR)) == expected


@pytest.mark.parametrize(
    ("files", "raw"),
    [
        ("L0: [1,2] [3,4]", [False]),
        ("L1: [1,2] [3,4]", [True]),
        ("L1: [1,2] | L2: [3,4]", [False]),
        ("L0: [1,2]", [True]),
        ("L5: [1,2]", [True]),
        ("L0: [1,5] | L5: [2,3]", [False]),
    ],
)
def test_vector_85_raw_flags(files: str, raw: list[bool]) -> None:
    assert raw_flags(split_bucket(shape(files), Packing(100, 4), COMPARATOR)) == raw


@pytest.mark.parametrize("delete_rows", [1, None])
def test_files_with_deletes_are_never_raw(delete_rows: int | None) -> None:
    files = [replace(file, delete_row_count=delete_rows) for file in shape("L1: [1,2] [3,4]")]
    assert raw_flags(split_bucket(files, Packing(100, 4), COMPARATOR)) == [False]
    assert raw_flags(split_bucket(files[:1], Packing(100, 4), COMPARATOR)) == [False]


def test_a_section_is_never_torn_and_disjoint_files_of_one_level_are() -> None:
    wide = shape("L0: [0,90] [10,95] [20,99]")
    assert names(split_bucket(wide, Packing(100, 1), COMPARATOR)) == [{1, 2, 3}]
    level = shape("L3: [0,60] [61,120] [121,130]")[::-1]
    groups = split_bucket(level, Packing(100, 1), COMPARATOR)
    assert names(groups) == [{1}, {2, 3}]
    assert raw_flags(groups) == [True, True]


def test_append_files_go_by_sequence_number_and_are_raw() -> None:
    files = [data_file(0, 60, number=number) for number in (2, 0, 1)]
    groups = split_bucket(files, Packing(130, 1), None)
    assert [[file.file_name for file in group] for group, _ in groups] == [
        ["data-0.parquet", "data-1.parquet"],
        ["data-2.parquet"],
    ]
    assert raw_flags(groups) == [True, True]
    assert split_bucket([], Packing(130, 1), None) == split_bucket([], Packing(130, 1), COMPARATOR) == []
