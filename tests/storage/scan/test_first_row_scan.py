"""Reading first-row tables: level 0 is not seen, files above it are read raw in any combination (vector 85)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.filters.column import col
from freshet.storage.merge.key_order import KeyComparator
from freshet.storage.scan.planner import Packing, split_bucket
from tests.kit.notation import INT_KEY, shape
from tests.storage.scan.scan_tables import PlacedTable

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
FIRST_ROW = {"merge-engine": "first-row"}


def placed(folder: Path, options: Mapping[str, str]) -> PlacedTable:
    return PlacedTable(folder, SCHEMA, keys=["k"], options=options)


@pytest.mark.parametrize(
    ("files", "raw"),
    [
        ("L1: [1,2] [3,4]", [True]),
        ("L1: [1,2] | L2: [3,4]", [True]),
        ("L1: [1,5] | L2: [2,3] | L5: [0,9]", [True]),
        ("L0: [1,2] [3,4]", [False]),
        ("L0: [1,5] | L5: [2,3]", [False]),
    ],
)
def test_vector_85_raw_flags_where_keys_are_unique(files: str, raw: list[bool]) -> None:
    groups = split_bucket(shape(files), Packing(100, 4), KeyComparator(INT_KEY), keys_are_unique=True)
    assert [is_raw for _, is_raw in groups] == raw


@pytest.mark.parametrize("delete_rows", [1, None])
def test_a_file_with_deletes_makes_the_bucket_merge(delete_rows: int | None) -> None:
    files = shape("L1: [1,5] | L2: [2,3]")
    files[1] = replace(files[1], delete_row_count=delete_rows)
    (group,) = split_bucket(files, Packing(100, 4), KeyComparator(INT_KEY), keys_are_unique=True)
    assert len(group[0]) == 2
    assert not group[1]


def test_level_0_is_not_seen_and_levels_above_are_not_merged(tmp_path: Path) -> None:
    table = placed(tmp_path, FIRST_ROW)
    table.place([{"k": 1, "v": 10}, {"k": 5, "v": 50}], level=5)
    table.place([{"k": 2, "v": 20}, {"k": 9, "v": 90}], level=3)
    table.place([{"k": 1, "v": -1}, {"k": 3, "v": -1}], level=0)
    assert sorted(row["k"] for row in table.rows()) == [1, 2, 5, 9]
    (split,) = table.scan().plan()
    assert split.raw_convertible
    assert [file.level for file in split.files] == [5, 3]
    assert table.rows(filter=col("k") == 3) == []


def test_files_are_left_out_by_values_one_by_one(tmp_path: Path) -> None:
    """Keys are unique above level 0, so that a file that cannot match holds back no older row."""
    for name, options, kept in (("first-row", FIRST_ROW, 1), ("deduplicate", {}, 2)):
        table = placed(tmp_path / name, options)
        table.place([{"k": 1, "v": 10}, {"k": 9, "v": 50}], level=5)
        table.place([{"k": 2, "v": 20}, {"k": 8, "v": 21}], level=3)
        scan = table.scan(filter=col("v") > 40)
        assert sum(len(split.files) for split in scan.plan()) == kept
        assert scan.to_arrow().to_pylist() == [{"k": 9, "v": 50}]


def test_a_lone_retract_of_another_writer_is_not_shown(tmp_path: Path) -> None:
    table = placed(tmp_path, FIRST_ROW)
    table.place([{"k": 1, "v": 10}, {"k": 5, "_ROW_KIND": "-D"}], level=5)
    table.place([{"k": 3, "v": 30}], level=4)
    assert table.rows() == [{"k": 1, "v": 10}, {"k": 3, "v": 30}]


def test_tables_that_need_lookup_are_read_by_the_lowest_level(tmp_path: Path) -> None:
    """Copies above the lowest level are stale; level 0 is added to it."""
    table = placed(
        tmp_path, {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "force-lookup": "true"}
    )
    table.place([{"k": 1, "v": 1}, {"k": 2, "v": 1}], level=5)
    table.place([{"k": 1, "v": 3}], level=2)
    table.place([{"k": 1, "v": 100}, {"k": 3, "v": 100}], level=0)
    assert table.rows() == [{"k": 1, "v": 103}, {"k": 2, "v": 1}, {"k": 3, "v": 100}]
    assert table.rows(columns=["v"], filter=col("k") == 1) == [{"v": 103}]
