"""Append tables: rows stay as they came; small files are joined."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.data_file_reader import DataFileRead
from freshet.storage.model.data_file import EMPTY_ROW, FileSource
from tests.storage.write.tables import WrittenTable

ARROW = pa.schema([("n", pa.int64()), ("v", pa.string())])


def append_table(folder: Path, **options: str) -> WrittenTable:
    return WrittenTable(folder, arrow=ARROW, keys=[], **{"bucket": "-1", **options})


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"n": list(range(start, stop)), "v": [f"v{n % 7}" for n in range(start, stop)]})


def read(table: WrittenTable) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    live = table.committed.at(table.snapshot)
    for (partition, bucket), entries in sorted(live.by_bucket.items()):
        files = sorted((entry.file for entry in entries.values()), key=lambda file: file.min_sequence_number)
        for file in files:
            for batch in DataFileRead(table.store, partition, bucket, file, ("n",), None, batch_rows=100).batches():
                found.setdefault(bucket, []).extend(batch.column(0).to_pylist())
    return found


def test_rows_without_buckets(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    writer = table.writer()
    writer.write(numbers(0, 10))
    writer.write(numbers(5, 15))
    table.commit(writer.prepare_commit())
    (message,) = table.messages
    (file,) = message.new_files
    assert (message.bucket, message.total_buckets, file.level) == (0, -1, 0)
    assert (file.min_sequence_number, file.max_sequence_number, file.delete_row_count) == (0, 19, 0)
    assert (file.min_key, file.file_source) == (EMPTY_ROW, FileSource.APPEND)
    assert read(table) == {0: [*range(10), *range(5, 15)]}


def test_numbers_of_a_bucketed_table_continue(tmp_path: Path) -> None:
    table = append_table(tmp_path, bucket="2", bucket_key="n")
    for start in (0, 20):
        writer = table.writer()
        writer.write(numbers(start, start + 20))
        table.commit(writer.prepare_commit())
    for bucket in (0, 1):
        ranges = [(f.min_sequence_number, f.max_sequence_number, f.row_count) for f in _files(table, bucket)]
        assert ranges[1][0] == ranges[0][1] + 1
        assert all(high - low + 1 == count for low, high, count in ranges)
    found = read(table)
    assert sorted(found[0] + found[1]) == list(range(40))
    assert found[0] == sorted(found[0])


def test_bucketed_tables_join_five_small_files_in_order(tmp_path: Path) -> None:
    table = append_table(tmp_path, bucket="1", bucket_key="n")
    writer = table.writer()
    for start in range(0, 50, 10):
        writer.write(numbers(start, start + 10))
        table.commit(writer.prepare_commit())
    (file,) = table.files()
    assert (file.file_source, file.min_sequence_number, file.max_sequence_number) == (FileSource.COMPACT, 0, 49)
    assert read(table) == {0: list(range(50))}


def test_tables_without_buckets_are_joined_on_request(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    for start in range(0, 60, 10):
        writer = table.writer()
        writer.write(numbers(start, start + 10))
        table.commit(writer.prepare_commit())
    assert len(table.files()) == 6
    writer = table.writer()
    table.compact_all(writer)
    table.commit(writer.prepare_commit())
    assert [file.row_count for file in table.files()] == [60]
    assert sorted(read(table)[0]) == list(range(60))


def test_rows_beyond_memory_roll_over_files(tmp_path: Path) -> None:
    table = append_table(tmp_path, target_file_size="20 kb", write_buffer_size="64 kb")
    writer = table.writer()
    writer.write(pa.table({"n": list(range(40000)), "v": [str(n * n) for n in range(40000)]}))
    table.commit(writer.prepare_commit())
    assert len(table.files()) > 3
    assert read(table) == {0: list(range(40000))}


def test_retracts_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    writer = table.writer()
    with pytest.raises(InvalidRequestError, match="no primary key"):
        writer.write(numbers(0, 2).append_column("_ROW_KIND", pa.array(["+I", "-D"])))
    writer.write(numbers(0, 5))
    writer.close()
    assert table.data_files_on_disk() == set()


def _files(table: WrittenTable, bucket: int) -> list:  # type: ignore[type-arg]
    live = table.committed.at(table.snapshot)
    files = [e.file for (_, number), found in live.by_bucket.items() if number == bucket for e in found.values()]
    return sorted(files, key=lambda file: file.min_sequence_number)
