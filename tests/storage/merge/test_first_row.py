"""Engine first-row: every cell of its truth table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.merge.chosen_row import FirstRow
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.merge.merge_function import without_retracts
from freshet.storage.merge.merge_reader import merge_section, merge_table
from freshet.storage.merge.merged_table import MergedTable
from freshet.storage.merge.row_levels import LEVEL_FIELD
from tests.kit.notation import kv_table

ORDER = RowOrder(("k",))
TABLE = MergedTable("db.t", ("k",))


def merged(text: str, *, drop_delete: bool = False, **options: Any) -> str:
    """Results as `key, sequence, value` texts."""
    segments = sort_segments(kv_table(text), ORDER)
    function = FirstRow(TABLE, **options)
    rows = function.merge(segments, keep=without_retracts if drop_delete else None).rows.to_pylist()
    return " | ".join(f"{row['k']}, {row['_SEQUENCE_NUMBER']}, {row['v']}" for row in rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1, 5, +I, a", "1, 5, a"),
        ("1, 5, +U, a | 1, 6, +I, b", "1, 5, a"),
        ("1, 7, +I, new | 1, 2, +I, old | 1, 4, +I, mid", "1, 2, old"),
        ("2, 1, +I, x | 1, 3, +I, y | 2, 0, +I, z", "1, 3, y | 2, 0, z"),
    ],
)
def test_the_oldest_row_is_the_result(rows: str, expected: str) -> None:
    assert merged(rows) == expected
    assert merged(rows, passes_lone_rows=False) == expected


def test_a_lone_retract_passes_and_is_dropped_by_readers() -> None:
    assert merged("1, 5, -D, a | 2, 1, +I, b") == "1, 5, a | 2, 1, b"
    assert merged("1, 5, -D, a | 2, 1, +I, b", drop_delete=True) == "2, 1, b"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1, 1, -D, a | 1, 2, +I, b | 1, 3, +I, c", "1, 2, b"),
        ("1, 1, +I, a | 1, 2, -U, b", "1, 1, a"),
        ("1, 1, -D, a | 1, 2, -U, b | 2, 1, +I, c", "2, 1, c"),
    ],
)
def test_ignore_delete_passes_over_retracts(rows: str, expected: str) -> None:
    assert merged(rows, ignore_delete=True) == expected


def test_ignore_delete_leaves_nothing_of_a_lone_retract_that_does_not_pass() -> None:
    assert merged("1, 1, -D, a | 2, 1, +I, c", ignore_delete=True, passes_lone_rows=False) == "2, 1, c"


@pytest.mark.parametrize(
    ("rows", "passes_lone_rows"),
    [("1, 1, +I, a | 7, 1, +I, a | 7, 2, -D, b", True), ("1, 1, +I, a | 7, 2, -U, b", False)],
)
def test_a_retract_is_refused_by_table_key_and_remedy(rows: str, passes_lone_rows: bool) -> None:
    with pytest.raises(StorageError, match=r"db\.t.*k=7.*ignore-delete|k=7.*ignore-delete.*db\.t"):
        merged(rows, passes_lone_rows=passes_lone_rows)


def test_projection_levels_and_no_rows() -> None:
    rows = kv_table("1, 1, +I, a | 1, 2, +I, b")
    leveled = rows.append_column(LEVEL_FIELD, pa.array([3, 0], pa.int8()))
    first = FirstRow(TABLE)
    assert first.merge(sort_segments(leveled, ORDER)).rows.column_names == rows.column_names
    assert first.merge(sort_segments(rows, ORDER), keep=without_retracts, columns=("v",)).rows.to_pylist() == [
        {"v": "a"}
    ]
    assert first.merge(sort_segments(rows.slice(0, 0), ORDER), keep=without_retracts).rows.num_rows == 0


def test_stages_change_nothing() -> None:
    texts = ["1, 0, +I, a | 2, 1, +I, b", "1, 2, +I, c", "2, 3, +I, d | 3, 4, +I, e"]
    tables = [kv_table(text) for text in texts]
    first = FirstRow(TABLE)
    assert first.merges_in_stages
    at_once = merge_table(pa.concat_tables(tables), ORDER, first)
    in_stages = merge_section([table.to_batches() for table in tables], ORDER, first, drop_delete=False, fill_rows=1)
    assert pa.Table.from_batches(in_stages).to_pylist() == at_once.to_pylist()
