"""What a merging read knows of its files by their manifest entries is not read in them: kinds, sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.model.schema import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN
from tests.storage.scan.scan_tables import PlacedTable

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int32()), ("w", pa.int32())])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The columns asked of each file, in order of reading."""
    asked: list[set[str]] = []
    batches = ParquetReader.batches

    def noted(self: ParquetReader, fields: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        asked.append({field.name for field in fields})
        return batches(self, fields, **more)

    monkeypatch.setattr(ParquetReader, "batches", noted)
    return asked


def of(keys: range, value: int, kind: str = "+I") -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "w": value, "_ROW_KIND": kind} for key in keys]


def values(table: PlacedTable) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.rows()}


def test_runs_one_after_the_other_without_retracts(tmp_path: Path, read: list[set[str]]) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"])
    table.place(of(range(6), 1), level=5)
    table.place(of(range(2, 8), 2, "+U"))
    table.place(of(range(4, 5), 3))
    assert values(table) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 3, 5: 2, 6: 2, 7: 2}
    assert read == [{"k", "v", "w"}] * 3


def test_kinds_are_read_of_files_with_retracts_alone(tmp_path: Path, read: list[set[str]]) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"])
    table.place(of(range(6), 1), level=5)
    table.place([*of(range(2, 4), 2), *of(range(4, 5), 2, "-D")])
    assert values(table) == {0: 1, 1: 1, 2: 2, 3: 2, 5: 1}
    assert sorted(VALUE_KIND_COLUMN in columns for columns in read) == [False, True]


def test_numbers_decide_where_runs_share_them(tmp_path: Path, read: list[set[str]]) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"])
    table.place(of(range(6), 1))
    table.sequence = 3  # keys 0, 1, 2 get 3, 4, 5: above the first file's 0, 1, 2; the next keys share its numbers
    table.place(of(range(3), 2))
    table.sequence = 0
    table.place(of(range(3, 6), 3))  # 0, 1, 2: below the first file's 3, 4, 5
    assert values(table) == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1, 5: 1}
    assert all(SEQUENCE_NUMBER_COLUMN in columns for columns in read)


def test_sequence_fields_come_before_the_runs(tmp_path: Path, read: list[set[str]]) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"], options={"sequence.field": "w"})
    table.place([{"k": 1, "v": 1, "w": 7}, {"k": 2, "v": 1, "w": 7}])
    table.place([{"k": 1, "v": 2, "w": 5}, {"k": 2, "v": 2, "w": 7}])
    assert values(table) == {1: 1, 2: 2}
    assert not any(SEQUENCE_NUMBER_COLUMN in columns for columns in read)


def test_deletes_are_looked_for_in_entries_that_do_not_count_them(tmp_path: Path, read: list[set[str]]) -> None:
    table = PlacedTable(tmp_path, COLUMNS, keys=["k"])
    table.place(of(range(3), 1))
    table.place(of(range(1, 2), 2, "-D"))
    scan = table.scan()
    (split,) = scan.plan()
    unknown = replace(split, files=tuple(replace(file, delete_row_count=None) for file in split.files))
    assert [row["k"] for batch in scan.read_split(unknown) for row in batch.to_pylist()] == [0, 2]
    assert all(VALUE_KIND_COLUMN in columns for columns in read)
