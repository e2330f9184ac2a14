"""Keys found in one file by reading it: what is matched, and which row groups are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import freshet.storage.files.parquet.writer as parquet_writer
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.lookup import cached_lookup
from freshet.storage.lookup.cached_lookup import SemiJoin, batch_ranges, equal_ranges
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta
from tests.storage.scan.scan_tables import PlacedTable

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string()), pa.field("w", pa.string())])


def _even_keys(folder: Path, count: int) -> tuple[SemiJoin, DataFileMeta]:
    """A file with the keys 0, 2, 4, …; v is the key as text."""
    table = PlacedTable(folder, SCHEMA, keys=["k"], options={"write-only": "true"})
    keys = range(0, 2 * count, 2)
    rows = pa.table({"k": list(keys), "v": [str(key) for key in keys], "w": [f"{key:0120d}" for key in keys]})
    table.place(rows, level=5)
    store = table.store
    (file,) = store.live.at(store.snapshots.latest()).files_of(EMPTY_ROW, 0)
    return SemiJoin(store, EMPTY_ROW, 0, ("k",)), file


def _keys(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys)}, schema=pa.schema([SCHEMA.field("k")]))


@pytest.mark.parametrize("search_share", [1, 10**9], ids=["halving", "sorting"])
@pytest.mark.parametrize("batch_rows", [3, 1000])
def test_rows_and_positions_of_keys_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search_share: int, batch_rows: int
) -> None:
    monkeypatch.setattr(cached_lookup, "SEARCH_SHARE", search_share)
    monkeypatch.setattr(cached_lookup, "KEY_BATCH_ROWS", batch_rows)
    monkeypatch.setattr(cached_lookup, "ROW_BATCH_ROWS", batch_rows)
    lookup, file = _even_keys(tmp_path, 10)
    keys = [-1, 0, 1, 2, 3, 9, 10, 18, 19, 30]
    found = lookup.find(file, _keys(*keys), ["v"])
    assert found.rows.column_names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "v"]
    assert found.rows["v"].to_pylist() == ["0", "2", "10", "18"]
    assert found.positions.tolist() == [-1, 0, -1, 1, -1, -1, 2, 3, -1, -1]
    assert found.by_key()["v"].to_pylist() == [None, "0", None, "2", None, None, "10", "18", None, None]
    only_presence = lookup.find(file, _keys(*keys), None)
    assert (only_presence.is_found == found.is_found).all()
    assert only_presence.rows.column_names == []


def test_no_key_there(tmp_path: Path) -> None:
    lookup, file = _even_keys(tmp_path, 10)
    for keys in ([], [1, 3]):
        found = lookup.find(file, _keys(*keys), ["k", "w"])
        assert found.rows.num_rows == 0
        assert found.rows.column_names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "w"]
        assert found.positions.tolist() == [-1] * len(keys)


def test_keys_far_apart_do_not_read_what_lies_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither key columns nor rows."""
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_BYTES", 64 * 1024)
    monkeypatch.setattr(cached_lookup, "KEY_BATCH_ROWS", 500)
    read = {"keys": 0, "rows": 0}

    class Counted(DataFileRead):
        def batches(self) -> Iterator[pa.RecordBatch]:
            for batch in super().batches():
                read["rows" if self.system_columns else "keys"] += batch.num_rows
                yield batch

    monkeypatch.setattr(cached_lookup, "DataFileRead", Counted)
    lookup, file = _even_keys(tmp_path, 30_000)
    found = lookup.find(file, _keys(2, 59_998), ["v"])
    assert found.rows["v"].to_pylist() == ["2", "59998"]
    assert 2 <= read["rows"] <= read["keys"] < 3000


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([1], [(0, 0)]),
        ([1, 1, 2, 5, 5], [(0, 1), (2, 2), (3, 4)]),
        (list(range(1, 129)), [(2 * at, 2 * at + 1) for at in range(64)]),
    ],
)
def test_ranges_are_of_one_batch_and_not_too_many(batches: list[int], expected: list[tuple[int, int]]) -> None:
    assert batch_ranges(np.array(batches)) == expected


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
def test_equal_ranges_cover_all(count: int) -> None:
    ranges = equal_ranges(count)
    assert len(ranges) == min(count, 64)
    assert [row for first, last in ranges for row in range(first, last + 1)] == list(range(count))
