"""Sections and runs of overlapping files (MERGING.md §3.3, vector 83)."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.codec.binary_row import decode_row, encode_row
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.merge.sorted_runs import Section, files_of, interval_partition, older_first
from freshet.storage.model.data_type import parse_data_type
from tests.kit.notation import INT_KEY, data_file, shape

COMPARATOR = KeyComparator(INT_KEY)


def ranges(section: Section) -> list[list[tuple[int, int]]]:
    return sorted(
        [(decode_row(file.min_key, INT_KEY)[0], decode_row(file.max_key, INT_KEY)[0]) for file in run.files]
        for run in section
    )


def test_vector_83() -> None:
    first, second = interval_partition(shape("L0: [0,9] [5,7] [9,15] [16,22] [16,28] [24,32]"), COMPARATOR)
    assert ranges(first) == [[(0, 9)], [(5, 7), (9, 15)]]
    assert ranges(second) == [[(16, 22), (24, 32)], [(16, 28)]]


def test_touching_ranges_share_a_section() -> None:
    assert len(interval_partition(shape("L0: [1,5] [5,9]"), COMPARATOR)) == 1
    assert len(interval_partition(shape("L0: [1,5] [6,9]"), COMPARATOR)) == 2
    assert interval_partition([], COMPARATOR) == []


def test_older_first_goes_by_sequence_number() -> None:
    (section,) = interval_partition(shape("L0: [0,9] [1,8] [2,7]")[::-1], COMPARATOR)
    assert [run.files[0].file_name for run in older_first(section)] == [
        "data-0.parquet",
        "data-1.parquet",
        "data-2.parquet",
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=14))
def test_every_file_once_sections_apart_runs_minimal(spans: list[tuple[int, int]]) -> None:
    files = [data_file(low, low + span, number=i) for i, (low, span) in enumerate(spans)]
    sections = interval_partition(files, COMPARATOR)
    assert sorted(file.file_name for section in sections for file in files_of(section)) == sorted(
        file.file_name for file in files
    )
    end = -1
    for section in sections:
        flat = [pair for run in ranges(section) for pair in run]
        assert min(low for low, _ in flat) > end
        end = max(high for _, high in flat)
        for run in ranges(section):
            assert all(left[1] < right[0] for left, right in itertools.pairwise(run))
        depth = max(sum(low <= key <= high for low, high in flat) for key in range(60))
        assert len(section) == depth


def test_keys_compare_by_the_rules_of_the_format() -> None:
    double = (parse_data_type("DOUBLE NOT NULL"),)
    values = [float("-inf"), -1.5, -0.0, 0.0, 1e-300, float("inf"), float("nan")]
    keys = [KeyComparator(double).sort_key(encode_row((value,), double)) for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(values)
    text = (parse_data_type("STRING NOT NULL"), parse_data_type("INT NOT NULL"))
    pairs = [("", 5), ("a", -1), ("a", 3), ("a\0", 0), ("\uffff", 0), ("\U0001f600", 0)]
    keys = [KeyComparator(text).sort_key(encode_row(pair, text)) for pair in pairs]
    assert keys == sorted(keys)
