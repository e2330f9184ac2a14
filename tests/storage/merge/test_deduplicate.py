"""The engine `deduplicate`: MERGING.md §2.2 and the vectors of §9.1 that a merge decides."""

from __future__ import annotations

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.merge.chosen_row import Deduplicate
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.merge.merge_function import without_retracts
from freshet.storage.merge.merge_reader import merge_section, merge_table, sort_table
from tests.kit.notation import kv_table, rows

KEY = RowOrder(("k",))


def adds(source: str, function: Deduplicate) -> pa.Table:
    """What readers see."""
    return function.merge(sort_segments(kv_table(source), KEY), keep=without_retracts).rows


def table_rows(table: pa.Table) -> list[tuple[object, ...]]:
    names = ["k", "_SEQUENCE_NUMBER", "_VALUE_KIND", *table.column_names[3:]]
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize(
    ("source", "kept", "read"),
    [
        ("1, 0, +I, a | 1, 1, +U, b", "1, 1, +U, b", "1, 1, +U, b"),
        ("1, 0, +I, a | 1, 1, -D, b", "1, 1, -D, b", ""),
        ("1, 0, +I, a | 1, 1, -U, b", "1, 1, -U, b", ""),
        ("1, 1, -D, b | 1, 2, +I, c", "1, 2, +I, c", "1, 2, +I, c"),
        ("1, 5, -D, b", "1, 5, -D, b", ""),
        ("2, 0, +I, a | 1, 1, +I, b", "1, 1, +I, b | 2, 0, +I, a", "1, 1, +I, b | 2, 0, +I, a"),
        ("1, 3, +I, c | 1, 2, +I, b | 1, 1, -D, a", "1, 3, +I, c", "1, 3, +I, c"),
    ],
)
def test_the_last_row_is_the_result_with_its_kind(source: str, kept: str, read: str) -> None:
    assert table_rows(merge_table(kv_table(source), KEY, Deduplicate())) == rows(kept)
    assert table_rows(adds(source, Deduplicate())) == rows(read)


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("1, 0, +I, a | 1, 1, -D, b", "1, 0, +I, a"),
        ("1, 0, +I, a | 1, 1, -U, b | 1, 2, -D, c", "1, 0, +I, a"),
        ("1, 0, -D, a | 1, 1, -U, b", ""),
        ("1, 0, -D, a", "1, 0, -D, a"),
        ("1, 0, -D, a | 2, 1, -D, b | 2, 2, +I, c | 3, 3, +I, d", "1, 0, -D, a | 2, 2, +I, c | 3, 3, +I, d"),
    ],
)
def test_ignore_delete_skips_legacy_retracts_but_a_lone_one_passes(source: str, kept: str) -> None:
    function = Deduplicate(ignore_delete=True)
    assert table_rows(merge_table(kv_table(source), KEY, function)) == rows(kept)
    visible = [row for row in rows(kept) if row[2] in (0, 2)]
    assert table_rows(adds(source, function)) == visible


@pytest.mark.parametrize(
    ("commits", "descending", "expected"),
    [
        # vector 4: a, b, c of SchemaChange's sort-order table; smallest value wins
        (["1, 0, +I, b, 1", "1, 1, +I, d, 3", "1, 2, +I, e, 2"], True, ("b", 1)),
        (["1, 0, +I, b, 1", "1, 1, +I, d, 3", "1, 2, +I, e, 2"], False, ("d", 3)),
        # vector 5: NULL is smallest in both directions
        (["1, 0, +I, x, 5", "1, 1, +I, y, N"], False, ("x", 5)),
        (["1, 0, +I, x, 5", "1, 1, +I, y, N"], True, ("x", 5)),
        # ties fall to the sequence number
        (["1, 0, +I, x, 5", "1, 1, +I, y, 5"], False, ("y", 5)),
        (["1, 0, +I, x, N", "1, 1, +I, y, N"], True, ("y", None)),
    ],
)
def test_sequence_field(commits: list[str], descending: bool, expected: tuple[object, ...]) -> None:
    order = RowOrder(("k",), ("s",), descending)
    tables = [kv_table(text, ("k", "v", "s"), (pa.int64(), pa.string(), pa.int64())) for text in commits]
    merged = pa.Table.from_batches(
        merge_section([table.to_batches() for table in tables], order, Deduplicate(), drop_delete=True)
    )
    assert [(row["v"], row["s"]) for row in merged.to_pylist()] == [expected]
    assert merge_table(pa.concat_tables(tables), order, Deduplicate()).to_pylist() == merged.to_pylist()


def test_sort_keeps_every_row() -> None:
    source = "2, 0, +I, a | 1, 2, +U, c | 1, 1, -U, b"
    assert table_rows(sort_table(kv_table(source), KEY)) == rows("1, 1, -U, b | 1, 2, +U, c | 2, 0, +I, a")


def test_only_the_columns_named_come_out() -> None:
    table = kv_table("1, 0, +I, a | 1, 1, +I, b | 2, 2, -D, c")
    runs = [table.slice(0, 1).to_batches(), table.slice(1).to_batches()]
    (batch,) = merge_section(runs, KEY, Deduplicate(), drop_delete=True, columns=("v",))
    assert batch.to_pydict() == {"v": ["b"]}


def test_null_in_a_key_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="key column 'k' holds NULL"):
        merge_table(kv_table("1, 0, +I, a | N, 1, +I, b"), KEY, Deduplicate())
