"""Runs that hold several rows of a key: merged at once, in order, however they are cut, in memory bound by the keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from freshet.storage.merge.chosen_row import Deduplicate
from freshet.storage.merge.gather import in_pieces, take_from_batches
from freshet.storage.merge.key_order import RowOrder
from freshet.storage.merge.merge_reader import merge_section, merge_table, merge_table_in_parts, sort_table
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from tests.kit.joined import Joined


def table_of(rows: list[tuple[int, str, int | None]], first_number: int = 0) -> pa.Table:
    """Rows of (key, second key, sequence field), each with its number as its text."""
    numbers = list(range(first_number, first_number + len(rows)))
    return pa.table(
        {
            SEQUENCE_NUMBER_COLUMN: pa.array(numbers, pa.int64()),
            VALUE_KIND_COLUMN: pa.array([0] * len(rows), pa.int8()),
            "k": pa.array([row[0] for row in rows], pa.int32()),
            "l": pa.array([row[1] for row in rows], pa.string()),
            "s": pa.array([row[2] for row in rows], pa.int64()),
            "v": pa.array([str(number) for number in numbers], pa.string()),
        }
    )


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "long enough for several words"]), st.none() | st.just(1)),
    max_size=30,
)


@given(
    runs=st.lists(ROWS, min_size=1, max_size=4),
    cut=st.integers(1, 7),
    fill_rows=st.integers(1, 9),
    by_sequence=st.booleans(),
)
def test_raw_runs_give_what_all_rows_give_at_once(
    runs: list[list[tuple[int, str, int | None]]], cut: int, fill_rows: int, by_sequence: bool
) -> None:
    order = RowOrder(("k", "l"), ("s",) if by_sequence else ())
    tables, number = [], 0
    for rows in runs:
        tables.append(table_of(rows, number))
        number += len(rows)
    at_once = merge_table(pa.concat_tables(tables), order, Joined())
    sources = [sort_table(table, order).to_batches(max_chunksize=cut) for table in tables]
    merged = merge_section(sources, order, Joined(), drop_delete=False, fill_rows=fill_rows, keys_repeat=True)
    assert pa.Table.from_batches(merged, at_once.schema).to_pylist() == at_once.to_pylist()


@given(
    chunks=st.lists(ROWS, min_size=1, max_size=6),
    part_rows=st.integers(1, 9),
    is_merged=st.booleans(),
    by_sequence=st.booleans(),
)
def test_key_range_after_key_range_gives_what_all_rows_give_at_once(
    chunks: list[list[tuple[int, str, int | None]]], part_rows: int, is_merged: bool, by_sequence: bool
) -> None:
    order = RowOrder(("k", "l"), ("s",) if by_sequence else ())
    tables, number = [], 0
    for rows in chunks:
        tables.append(table_of(rows, number))
        number += len(rows)
    whole = pa.concat_tables(tables)
    at_once = merge_table(whole, order, Joined()) if is_merged else sort_table(whole, order)
    part_bytes = part_rows * whole.nbytes // max(1, whole.num_rows)
    parts = list(merge_table_in_parts(whole, order, Joined(), part_bytes, is_merged=is_merged))
    assert pa.concat_tables([at_once.slice(0, 0), *parts]).to_pylist() == at_once.to_pylist()
    if is_merged and part_rows == 1:
        assert all(part.num_rows == 1 for part in parts)


def test_neighbours_are_joined_where_there_are_too_many_pieces() -> None:
    rows = pa.concat_tables([pa.table({"v": [number]}) for number in range(100)])
    pieces = in_pieces(rows, 7)
    assert len(pieces) == 7
    assert pa.Table.from_batches(pieces).to_pydict() == {"v": list(range(100))}
    positions = np.array([99, 0, 50, 50, 14])
    part, order = take_from_batches(pieces, positions)
    assert part.column("v").to_numpy()[order].tolist() == positions.tolist()


def test_a_hot_key_is_gathered_and_the_others_stream() -> None:
    """Of a run of many keys no more is read than a round needs; the hot key in its midst is read to its end."""
    keys = [*range(1000), *[1000] * 500, *range(1001, 2000)]
    batches_read = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal batches_read
        for batch in table_of([(key, "", None) for key in keys]).to_batches(max_chunksize=10):
            batches_read += 1
            yield batch

    largest, results = 0, []
    for batch in merge_section(
        [source()], RowOrder(("k",)), Joined(), drop_delete=False, fill_rows=20, keys_repeat=True
    ):
        results += batch["v"].to_pylist()
        merged_rows = sum(text.count("+") + 1 for text in results)
        largest = max(largest, 10 * batches_read - merged_rows)
    assert len(results) == 2000
    assert results[1000] == "(" + "+".join(str(number) for number in range(1000, 1500)) + ")"
    assert results[999] == "999"
    assert largest <= 40


def test_rows_that_come_in_the_order_of_their_keys_are_not_copied() -> None:
    """As those of a table that is copied by ranges of its key."""
    order = RowOrder(("k", "l"))
    rows = pa.concat_tables([table_of([(number, "", None)], number) for number in range(4)])
    for found in (
        merge_table(rows, order, Deduplicate()),
        sort_table(rows, order),
        *merge_table_in_parts(rows, order, Deduplicate(), rows.nbytes),
        *merge_table_in_parts(rows, order, Deduplicate(), rows.nbytes, is_merged=False),
    ):
        assert found.equals(rows.select(found.column_names))
        assert found.column("v").num_chunks == 4
