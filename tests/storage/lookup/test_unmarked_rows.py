"""Lookups pass over rows that deletion vectors mark, and say where the others are in their file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.codec.roaring_bitmaps import Bitmap32
from freshet.storage.lookup.cached_lookup import SemiJoin
from freshet.storage.lookup.file_lookup import FoundRows, UnmarkedRows
from freshet.storage.metadata.deletion_vector_store import BucketVectors
from freshet.storage.model.data_file import EMPTY_ROW
from tests.storage.scan.scan_tables import PlacedTable

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlacedTable:
    """Even keys 0 to 39998 in several row groups, each row's value its position."""
    monkeypatch.setattr("freshet.storage.files.parquet.writer.ROW_GROUP_BYTES", 128 * 1024)
    table = PlacedTable(tmp_path, SCHEMA, keys=["k"])
    table.place(pa.table({"k": range(0, 40_000, 2), "v": range(20_000)}), level=5)
    return table


def find(table: PlacedTable, keys: list[int], marked: set[int], columns: list[str] | None = None) -> FoundRows:
    store = table.store
    (entry,) = store.live.at(store.snapshots.latest()).entries()
    vectors = BucketVectors(store.vectors).marking({entry.file.file_name: Bitmap32(marked)})
    lookup = UnmarkedRows(SemiJoin(store, EMPTY_ROW, 0, ("k",)), vectors)
    return lookup.find(entry.file, pa.table({"k": keys}, schema=pa.schema([SCHEMA.field("k")])), columns)


@pytest.mark.parametrize("columns", [None, ["k", "v"]])
def test_positions_count_from_the_start_of_the_file(table: PlacedTable, columns: list[str] | None) -> None:
    found = find(table, [38_000, 38_001, 39_000, 39_998], set(), columns)
    assert found.file_rows is not None
    assert found.file_rows.tolist() == [19_000, -1, 19_500, 19_999]
    if columns:
        assert found.by_key()["v"].to_pylist() == [19_000, None, 19_500, 19_999]


@pytest.mark.parametrize("columns", [None, ["k", "v"]])
def test_marked_rows_are_not_found(table: PlacedTable, columns: list[str] | None) -> None:
    found = find(table, [0, 1, 2, 4, 39_998], {0, 2, 777}, columns)
    assert found.is_found.tolist() == [False, False, True, False, True]
    assert found.file_rows is not None
    assert found.file_rows.tolist() == [-1, -1, 1, -1, 19_999]
    if columns:
        assert found.rows["v"].to_pylist() == [1, 19_999], "rows are those found, no more"
        assert found.by_key()["k"].to_pylist() == [None, None, 2, None, 39_998]


def test_all_rows_marked(table: PlacedTable) -> None:
    found = find(table, [0, 2], {0, 1}, ["v"])
    assert not found.is_found.any()
    assert found.rows.num_rows == 0


def test_vectors_with_more_marks(table: PlacedTable) -> None:
    vectors = BucketVectors(table.store.vectors).marking({"a": Bitmap32([1]), "b": Bitmap32([2])})
    more = vectors.marking({"a": Bitmap32([3])})
    assert {name: list(rows) for name, rows in more.without(["b"]).items()} == {"a": [1, 3]}
    assert list(vectors.of("a") or ()) == [1], "a value: what was there stays"
    assert more.marked_files == {"a", "b"}
    assert more.of("c") is None
