"""Random histories of one bucket: flushed into runs, merged in rounds or in memory, and compared with a dict."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.merge.chosen_row import Deduplicate
from freshet.storage.merge.key_order import RowOrder, sort_segments
from freshet.storage.merge.merge_function import without_retracts
from freshet.storage.merge.merge_reader import merge_section, merge_table
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from tests.kit.hypothesis_profile import examples
from tests.kit.oracle import DeduplicateOracle, Row, exact_key, key_rank

# Few values of each type, chosen to be near each other or at an end: keys must collide to be merged.
KEY_VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-32768, -1, 0, 5, 32767],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    pa.float32(): [-0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan")],
    pa.float64(): [-0.0, 0.0, 1e-300, -1e-300, float("inf"), float("-inf"), float("nan")],
    pa.decimal128(5, 2): [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("0.01"), Decimal("999.99")],
    pa.decimal128(38, 3): [Decimal(10**34), Decimal(-(10**34)), Decimal("0.001"), Decimal("-0.001"), Decimal(2**64)],
    pa.string(): ["", "a", "a\0", "ab", "abcdefgh", "abcdefgha", "abcdefghb", "é", "\U0001f600", "\uffff", "x" * 200],
    pa.binary(): [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff" * 9, b"\xff" * 8, b"\xff" * 8 + b"\0" * 20],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)],
    pa.time32("ms"): [0, 1, 86_399_999],
    pa.timestamp("s"): [-1, 0, 1],
    pa.timestamp("us"): [-(2**62), -1, 0, 1, 2**62],
    pa.timestamp("ns", tz="UTC"): [-1, 0, 1, 2**62],
}
TEMPORAL_AS_INT = (pa.time32("ms"), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", tz="UTC"))


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values as the tables above write them."""
    if column.type in TEMPORAL_AS_INT:
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        return column.cast(width).to_pylist()
    return column.to_pylist()


def history(key_types: list[pa.DataType], sequence_types: list[pa.DataType]) -> st.SearchStrategy[list[list[Row]]]:
    """Runs of rows as they were written; each inner list is flushed as one run."""
    key = st.tuples(*(st.sampled_from(KEY_VALUES[kind]) for kind in key_types))
    sequence = st.tuples(*(st.none() | st.sampled_from(KEY_VALUES[kind]) for kind in sequence_types))
    row = st.builds(Row, key=key, kind=st.sampled_from([0, 0, 2, 3, 1]), values=st.integers(0, 99), sequence=sequence)
    return st.lists(st.lists(row, max_size=12), min_size=1, max_size=6)


def table_of(rows: list[Row], key_types: list[pa.DataType], sequence_types: list[pa.DataType]) -> pa.Table:
    columns = {
        SEQUENCE_NUMBER_COLUMN: pa.array([row.number for row in rows], pa.int64()),
        VALUE_KIND_COLUMN: pa.array([row.kind for row in rows], pa.int8()),
    }
    for i, kind in enumerate(key_types):
        columns[f"k{i}"] = pa.array([row.key[i] for row in rows], kind)  # type: ignore[index]
    for i, kind in enumerate(sequence_types):
        columns[f"s{i}"] = pa.array([row.sequence[i] for row in rows], kind)
    columns["v"] = pa.array([row.values for row in rows], pa.int64())
    return pa.table(columns)


def check(
    runs: list[list[Row]],
    key_types: list[pa.DataType],
    sequence_types: list[pa.DataType],
    *,
    descending: bool,
    cut: int,
    fill_rows: int,
) -> None:
    oracle = DeduplicateOracle(descending=descending)
    for run in runs:
        oracle.write_all(run)
    keys = tuple(f"k{i}" for i in range(len(key_types)))
    order = RowOrder(keys, tuple(f"s{i}" for i in range(len(sequence_types))), descending)
    everything = table_of([row for run in runs for row in run], key_types, sequence_types)
    flushed = [merge_table(table_of(run, key_types, sequence_types), order, Deduplicate()) for run in runs]
    sources = [iter(run.to_batches(max_chunksize=cut)) for run in flushed]
    merged = pa.Table.from_batches(
        merge_section(sources, order, Deduplicate(), drop_delete=True, fill_rows=fill_rows), everything.schema
    )
    expected = sorted(oracle.visible().values(), key=lambda row: tuple(key_rank(value) for value in row.key))
    for result in (merged, Deduplicate().merge(sort_segments(everything, order), keep=without_retracts).rows):
        found = zip(*(plain(result[name]) for name in keys), strict=True) if result.num_rows else iter(())
        assert [exact_key(key) for key in found] == [exact_key(row.key) for row in expected]
        assert result["v"].to_pylist() == [row.values for row in expected]
        assert result[SEQUENCE_NUMBER_COLUMN].to_pylist() == [row.number for row in expected]
        assert result[VALUE_KIND_COLUMN].to_pylist() == [row.kind for row in expected]


@pytest.mark.few(8)
@pytest.mark.hypothesis
@pytest.mark.parametrize("key_type", KEY_VALUES, ids=str)
def test_every_key_type_merges_like_a_dict(key_type: pa.DataType) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(runs=history([key_type], []), cut=st.integers(1, 5), fill_rows=st.integers(1, 8))
    def run(runs: list[list[Row]], cut: int, fill_rows: int) -> None:
        check(runs, [key_type], [], descending=False, cut=cut, fill_rows=fill_rows)

    run()


@pytest.mark.few(5)
@pytest.mark.hypothesis
@pytest.mark.parametrize("sequence_type", KEY_VALUES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sequence_fields_of_every_type_with_nulls(sequence_type: pa.DataType, descending: bool) -> None:
    @settings(max_examples=examples(25), deadline=None)
    @given(runs=history([pa.int8()], [sequence_type]), cut=st.integers(1, 5), fill_rows=st.integers(1, 8))
    def run(runs: list[list[Row]], cut: int, fill_rows: int) -> None:
        check(runs, [pa.int8()], [sequence_type], descending=descending, cut=cut, fill_rows=fill_rows)

    run()


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), descending=st.booleans(), cut=st.integers(1, 5), fill_rows=st.integers(1, 8))
def test_composite_keys_and_sequences(data: st.DataObject, descending: bool, cut: int, fill_rows: int) -> None:
    kinds = st.sampled_from(list(KEY_VALUES))
    key_types = data.draw(st.lists(kinds, min_size=1, max_size=3))
    sequence_types = data.draw(st.lists(kinds, max_size=2))
    runs = data.draw(history(key_types, sequence_types))
    check(runs, key_types, sequence_types, descending=descending, cut=cut, fill_rows=fill_rows)


@pytest.mark.few(2)
@pytest.mark.parametrize("run_count", [5, 40])
@pytest.mark.parametrize("key_type", [pa.int64(), pa.string(), pa.float64()], ids=str)
def test_large_merge_with_threads(key_type: pa.DataType, run_count: int) -> None:
    """Enough rows for the packed sort, the wide sort and the parallel gather."""
    tables, newest, number = [], {}, 0
    for run in range(run_count):
        keys = sorted({(run * 7919 + i * 104729) % 30_011 for i in range(4000)})
        numbers = list(range(number, number + len(keys)))
        number += len(keys)
        newest.update(zip(keys, numbers, strict=True))
        values = [f"{key:06d}-{'suffix' * 3}{key % 7}" for key in keys] if pa.types.is_string(key_type) else keys
        columns = {SEQUENCE_NUMBER_COLUMN: numbers, VALUE_KIND_COLUMN: pa.array([0] * len(keys), pa.int8())}
        columns["k"] = pa.array(values, key_type)
        columns.update({f"v{i}": numbers for i in range(8)})
        tables.append(pa.table(columns))
    with ThreadPoolExecutor(2) as executor:
        merged = pa.Table.from_batches(
            merge_section(
                [table.to_batches(max_chunksize=1000) for table in tables],
                RowOrder(("k",)),
                Deduplicate(),
                drop_delete=True,
                fill_rows=3000,
                executor=executor,
            )
        )
    assert merged["v7"].to_pylist() == [newest[key] for key in sorted(newest)]
    shuffled = pa.concat_tables(tables[::-1])
    assert merge_table(shuffled, RowOrder(("k",)), Deduplicate())["v0"].to_pylist() == merged["v7"].to_pylist()


def test_sequence_numbers_decide_even_when_runs_overlap_in_them() -> None:
    """Two writers: neither run is newer as a whole."""
    order = RowOrder(("k",))
    first = pa.table({SEQUENCE_NUMBER_COLUMN: [5, 1], VALUE_KIND_COLUMN: pa.array([0, 0], pa.int8()), "k": [1, 2]})
    second = pa.table({SEQUENCE_NUMBER_COLUMN: [3, 4], VALUE_KIND_COLUMN: pa.array([0, 0], pa.int8()), "k": [1, 2]})
    for runs in ([first, second], [second, first]):
        batches = merge_section([run.to_batches() for run in runs], order, Deduplicate(), drop_delete=True)
        assert pa.Table.from_batches(batches)[SEQUENCE_NUMBER_COLUMN].to_pylist() == [5, 4]


def test_no_rows() -> None:
    empty = table_of([], [pa.int64()], [])
    assert list(merge_section([[], empty.to_batches()], RowOrder(("k0",)), Deduplicate(), drop_delete=True)) == []
    assert merge_table(empty, RowOrder(("k0",)), Deduplicate()).num_rows == 0
    assert len(sort_segments(empty, RowOrder(("k0",))).starts) == 0
