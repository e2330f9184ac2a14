"""Values that a change did not carry, looked up per sequence group: which state counts, and what is never looked up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.pipeline.batch.routing import COLUMN, KIND, REASON, TAG, UNAVAILABLE
from freshet.pipeline.batch.unavailable_values import NOT_STORED, UnavailableValues
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

COLUMNS = {"k": "BIGINT", "a": "STRING", "s": "BIGINT", "b": "STRING", "t": "BIGINT"}
OPTIONS = {
    "bucket": "1",
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "a",
    "fields.t.sequence-group": "b",
}
ADD, DELETE = 0, 3


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """k, a ordered by s, b ordered by t; two rows are stored."""
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=OPTIONS)
    stored = [{"k": 1, "a": "a1", "s": 10, "b": None, "t": None}, {"k": 2, "a": None, "s": None, "b": "b2", "t": 10}]
    with table.writer("loader") as writer:
        writer.write(pa.Table.from_pylist(stored, schema=table.arrow_schema))
        writer.commit(1)
    return table


def _routed(*rows: tuple[int, tuple[object, ...], str]) -> pa.Table:
    """Rows as they cross the shuffle: kind, values, names of unavailable columns."""
    types = [pa.int64(), pa.string(), pa.int64(), pa.string(), pa.int64()]
    columns: dict[str, pa.Array] = {
        TAG: pa.array([0] * len(rows), pa.int8()),
        KIND: pa.array([kind for kind, _, _ in rows], pa.int8()),
        REASON: pa.nulls(len(rows), pa.string()),
        COLUMN: pa.nulls(len(rows), pa.string()),
        UNAVAILABLE: pa.array([names.split() or None for _, _, names in rows], pa.list_(pa.string())),
    }
    for place, data_type in enumerate(types):
        columns[f"_d{place}"] = pa.array([values[place] for _, values, _ in rows], data_type)
    return pa.table(columns)


def _filled(
    table: Table, *rows: tuple[int, tuple[object, ...], str]
) -> tuple[list[tuple[object, ...]], list[str], int]:
    """What becomes of the rows: those that stay, the columns of the dead ones, and how many got values."""
    values = UnavailableValues(table.store, table.store.snapshots.latest())
    routed = _routed(*rows)
    values.watch(routed)
    filled = values.fill(routed)
    kept = [tuple(row[f"_d{place}"] for place in range(len(COLUMNS))) for row in filled.rows.to_pylist()]
    assert set(filled.dead.column(REASON).to_pylist()) <= {NOT_STORED}
    return kept, filled.dead.column(COLUMN).to_pylist(), filled.count


def test_from_the_table_and_from_the_batch(table: Table) -> None:
    rows = [
        (ADD, (1, None, 11, None, None), "a"),
        (ADD, (1, "newer", 12, None, None), ""),
        (ADD, (1, None, 13, None, None), "a"),
    ]
    kept, dead, count = _filled(table, *rows)
    assert [row[1] for row in kept] == ["a1", "newer", "newer"]
    assert (dead, count) == ([], 2)


def test_rows_of_other_streams_do_not_touch_the_state(table: Table) -> None:
    rows = [(ADD, (1, None, None, "b", 99), ""), (ADD, (1, None, 11, None, None), "a")]
    kept, dead, _ = _filled(table, *rows)
    assert [row[1] for row in kept] == [None, "a1"]
    assert dead == []


def test_a_late_row_is_left_alone_and_an_equal_one_is_filled(table: Table) -> None:
    rows = [(ADD, (1, None, 9, None, None), "a"), (ADD, (1, None, 10, None, None), "a")]
    kept, dead, count = _filled(table, *rows)
    assert [row[1] for row in kept] == [None, "a1"]
    assert (dead, count) == ([], 1)


def test_a_late_row_of_the_batch_is_no_state(table: Table) -> None:
    rows = [
        (ADD, (1, "late", 5, None, None), ""),
        (ADD, (1, None, 11, None, None), "a"),
        (DELETE, (1, None, 7, None, None), ""),
        (ADD, (1, None, 12, None, None), "a"),
    ]
    kept, dead, _ = _filled(table, *rows)
    assert [row[1] for row in kept] == ["late", "a1", None, "a1"]
    assert dead == []


def test_what_is_not_stored_in_the_group_is_dead(table: Table) -> None:
    rows = [
        (ADD, (2, None, 11, None, None), "a"),  # a row of the other stream alone is stored
        (ADD, (3, None, 11, None, None), "a"),  # nothing is stored
        (DELETE, (1, None, 11, None, None), ""),
        (ADD, (1, None, 12, None, None), "a"),  # deleted before
    ]
    kept, dead, count = _filled(table, *rows)
    assert [row[0] for row in kept] == [1]
    assert (dead, count) == (["a", "a", "a"], 0)


def test_a_deletion_of_one_stream_leaves_the_other_group(table: Table) -> None:
    rows = [(DELETE, (2, None, 11, None, None), ""), (ADD, (2, None, None, None, 11), "b")]
    kept, dead, count = _filled(table, *rows)
    assert [row[3] for row in kept] == [None, "b2"]
    assert (dead, count) == ([], 1)


def test_two_groups_of_one_row(table: Table) -> None:
    kept, dead, count = _filled(
        table,
        (ADD, (1, None, 11, "b", 1), "a"),
        (ADD, (1, "a", 12, None, 2), "b"),
        (ADD, (1, None, 12, None, 2), "a b"),
    )
    assert [(row[1], row[3]) for row in kept] == [("a1", "b"), ("a", "b"), ("a", "b")]
    assert (dead, count) == ([], 3)
