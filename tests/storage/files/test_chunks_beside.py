"""Chunks written by another thread make the same file as those of one thread; its size is that of the same rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.parquet.reader import ParquetReader
from freshet.storage.files.parquet.writer import ParquetWriter
from freshet.storage.io.env import local_env
from freshet.storage.model.arrow_types import arrow_schema
from freshet.storage.model.data_type import ArrayType, DataField, DataType, parse_data_type
from freshet.storage.write import open_buckets

ENV: Final = local_env()
GROUP_BYTES: Final = 64 * 1024
TYPES: Final[dict[str, DataType]] = {
    "k": parse_data_type("BIGINT NOT NULL"),
    "few": parse_data_type("STRING"),
    "many": parse_data_type("STRING"),
    "flag": parse_data_type("BOOLEAN"),
    "part": parse_data_type("DOUBLE"),
    "list": ArrayType(parse_data_type("INT")),
}
FIELDS: Final = tuple(DataField(number, name, of) for number, (name, of) in enumerate(TYPES.items()))


class Late(Executor):
    """Runs a task when its result is asked for; counts them."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        return _Lazy(lambda: fn(*args, **kwargs))


class _Lazy(Future[Any]):
    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__()
        self._make = run

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._make())
        return super().result(timeout)


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def rows(count: int) -> pa.Table:
    chance = np.random.default_rng(count)
    columns: list[Any] = [
        np.arange(count),
        [None if number % 7 == 0 else f"v{number % 5}" for number in range(count)],
        [f"text {number}" for number in chance.integers(0, 10**9, count).tolist()],
        [None if number % 3 == 0 else number % 2 == 0 for number in range(count)],
        chance.random(count),
        [[number, None] if number % 2 else None for number in range(count)],
    ]
    schema = arrow_schema(FIELDS)
    return pa.table([pa.array(values, of.type) for values, of in zip(columns, schema, strict=True)], schema=schema)


def written(path: Path, table: pa.Table, executor: Executor | None, **options: Any) -> Path:
    settings = FileSettings(chunk_bytes=GROUP_BYTES, delta_columns=("k",), **options)
    writer = ParquetWriter(ENV, str(path), FIELDS, settings, executor)
    for start in range(0, table.num_rows, 700):
        writer.write(table.slice(start, 700))
    summary = writer.close()
    assert (summary.size_bytes, summary.row_count) == (path.stat().st_size, table.num_rows)
    return path


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_the_file_is_that_of_one_thread(tmp_path: Path, executor: Executor, compression: str) -> None:
    table = rows(30_000)
    alone = written(tmp_path / "alone.parquet", table, None, compression=compression)
    late = Late()
    assert written(tmp_path / "late.parquet", table, late, compression=compression).read_bytes() == alone.read_bytes()
    assert pq.read_metadata(alone).num_row_groups == late.submitted + 1  # the last is written by who closes the file
    assert written(tmp_path / "a.parquet", table, executor, compression=compression).read_bytes() == alone.read_bytes()


def test_other_readers_find_every_row_group(tmp_path: Path, executor: Executor) -> None:
    table = rows(30_000)
    path = written(tmp_path / "a.parquet", table, executor)
    assert pq.read_table(path).equals(table)
    file = pq.ParquetFile(path, page_checksum_verification=True)
    last = file.num_row_groups - 1
    taken = file.read_row_group(last)
    assert taken.equals(table.slice(table.num_rows - taken.num_rows))
    with ParquetReader(ENV, str(path), size_bytes=path.stat().st_size) as reader:
        assert reader.table(FIELDS, chunks=[last]).equals(taken)
        assert sum(reader.chunk_rows) == table.num_rows


@pytest.mark.parametrize("count", [0, 100])
def test_small_files_are_written_by_one_thread(tmp_path: Path, count: int) -> None:
    order = Late()
    path = written(tmp_path / "a.parquet", rows(count), order)
    assert (order.submitted, pq.read_table(path).num_rows) == (0, count)


def test_the_size_is_asked_of_chunks_in_their_order(tmp_path: Path) -> None:
    """Else the files of a table would end elsewhere each time: the size decides where."""

    def sizes(executor: Executor, name: str) -> list[int]:
        writer = ParquetWriter(ENV, str(tmp_path / name), FIELDS, FileSettings(chunk_bytes=GROUP_BYTES), executor)
        found = []
        for start in range(0, table.num_rows, 700):
            writer.write(table.slice(start, 700))
            found.append(writer.written_bytes)
        writer.flush()
        assert abs(found[-1] - writer.written_bytes) < GROUP_BYTES
        writer.abort()
        return found

    table = rows(30_000)
    with ThreadPoolExecutor(2) as pool:
        assert sizes(pool, "a.parquet") == sizes(Late(), "b.parquet")


def test_what_a_thread_refuses_is_the_callers_fault_and_leaves_nothing(tmp_path: Path, executor: Executor) -> None:
    writer = ParquetWriter(ENV, str(tmp_path / "a.parquet"), FIELDS, FileSettings(chunk_bytes=GROUP_BYTES), executor)
    table = rows(2_000)
    writer.write(table)
    refused = table.set_column(0, arrow_schema(FIELDS).field("k"), pa.nulls(table.num_rows, pa.int64()))
    with pytest.raises(InvalidRequestError, match=r"a\.parquet"):
        writer.write(refused)  # of several chunks: the second one waits for the first
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_one_bucket_is_encoded_by_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the writer's own pool: at the flush and in the compaction, unless a commit is small."""
    monkeypatch.setattr(open_buckets, "SMALL_COMMIT_BYTES", 1000)
    threads = set[str]()
    write_chunk = ParquetWriter._write_chunk

    def noted(self: ParquetWriter, table: pa.Table) -> None:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        write_chunk(self, table)

    monkeypatch.setattr(ParquetWriter, "_write_chunk", noted)
    orders = Catalog(tmp_path).create_table(
        "a.b",
        schema={"id": "BIGINT", "text": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "file.block-size": "64 kb", "num-sorted-run.compaction-trigger": "2"},
    )
    with orders.writer("loader") as writer:
        for commit in range(2):
            keys = np.arange(commit, 30_000, 2)
            writer.write(pa.table({"id": keys, "text": [f"{commit} {key}" for key in keys.tolist()]}))
            writer.commit()
            assert "freshet-write" in threads
            threads.clear()
    assert [entry.file.level > 0 for entry in orders.files()] == [True]
    found = orders.scan().to_arrow().sort_by("id")
    assert found.column("text").to_pylist() == [f"{key % 2} {key}" for key in range(30_000)]
