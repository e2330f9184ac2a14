"""Rows held in memory are those that reading the file gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.files.data_file_writer import KeyValueFileWriter
from freshet.storage.files.file_columns import SMALL_BYTES, HeldRows, SmallFiles
from freshet.storage.model.data_file import EMPTY_ROW, FileSource
from tests.storage.scan.scan_tables import PlacedTable

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("ns")),
        pa.field("total", pa.decimal128(14, 4)),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def _rows(first: int, count: int) -> pa.Table:
    """With the columns in another order than in the file, and one that is not stored."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table(
        {
            "k": numbers,
            "_LEVEL": pa.array([0] * count, pa.int8()),
            "_SEQUENCE_NUMBER": numbers,
            "_VALUE_KIND": pa.array([0] * count, pa.int8()),
            "tags": pa.array([["a", None]] * count, pa.list_(pa.string())),
            "at": numbers.cast(pa.timestamp("ns")),
            "total": pa.array([None] * count, pa.decimal128(14, 4)),
        }
    )


def test_rows_are_those_of_the_file(tmp_path: Path) -> None:
    store = PlacedTable(tmp_path, SCHEMA, keys=["k"]).store
    writer, held = KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND), HeldRows(store.schema, 1 << 20)
    for rows in (_rows(0, 5), _rows(5, 3).to_batches()[0], _rows(8, 0)):
        writer.write(rows)
        held.add(rows)
    (file,) = writer.close()
    taken = held.take(file.file_name)
    read = DataFileRead(store, EMPTY_ROW, 0, file, store.schema.column_names, system_columns=True).batches()
    assert taken is not None
    assert taken.combine_chunks() == pa.Table.from_batches(read)
    assert held.take(file.file_name) is None


def test_too_many_rows_are_not_held(tmp_path: Path) -> None:
    schema = PlacedTable(tmp_path, SCHEMA, keys=["k"]).store.schema
    rows = _rows(0, 100)
    held = HeldRows(schema, rows.nbytes + rows.nbytes // 2)
    held.add(rows)
    held.add(rows)
    held.add(rows.slice(0, 1))
    assert held.take("f") is None


def test_small_files_are_there_once_and_for_their_schema(tmp_path: Path) -> None:
    store = PlacedTable(tmp_path, SCHEMA, keys=["k"]).store
    later, small = replace(store.schema, id=store.schema.id + 1), SmallFiles()
    files = {}
    for name, count in (("one", 3), ("other", 3), ("large", SMALL_BYTES // 8)):
        writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 0, FileSource.APPEND)
        writer.write(_rows(0, count))
        (files[name],) = writer.close()
        small.keep(files[name], _rows(0, count))
    asked = list(files.values())
    assert small.of(asked[:1], later) == {}
    assert list(small.of(asked, store.schema)) == [files["other"].file_name]
    assert small.of(asked, store.schema) == {}
