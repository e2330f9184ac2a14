"""Row groups encoded by other threads make the same file as those of one thread; its size is that of the same rows."""

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
from hypothesis import given
from hypothesis import strategies as st

from freshet import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.files.file_format import FileSettings
from freshet.storage.files.parquet import thrift
from freshet.storage.files.parquet import writer as parquet_writer
from freshet.storage.files.parquet.reader import ParquetReader, footer_bytes
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


class Reversed(Executor):
    """Runs a task when its result is asked for, and with it all that were submitted later, the last one first."""

    def __init__(self) -> None:
        self._tasks: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = _Lazy(self._run)
        self._tasks.append((future, lambda: fn(*args, **kwargs)))
        return future

    def _run(self) -> None:
        while self._tasks:
            future, task = self._tasks.pop()
            future.set_result(task())


class _Lazy(Future[Any]):
    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__()
        self._make = run

    def result(self, timeout: float | None = None) -> Any:
        self._make()
        return super().result(timeout)


@pytest.fixture(autouse=True)
def small_files_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "JOINED_BYTES_MIN", GROUP_BYTES // 2)


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


def footer(path: Path) -> bytes:
    data = path.read_bytes()
    length = footer_bytes(pa.py_buffer(data))
    assert length is not None
    return data[-length:-8]


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_the_file_is_that_of_one_thread(tmp_path: Path, compression: str) -> None:
    table = rows(30_000)
    alone = written(tmp_path / "alone.parquet", table, None, compression=compression)
    order = Reversed()
    joined = written(tmp_path / "joined.parquet", table, order, compression=compression)
    groups = pq.read_metadata(joined).num_row_groups
    assert groups == order.submitted > 16  # so many that a list of them is written in the long form
    assert joined.read_bytes() == alone.read_bytes()


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
    order = Reversed()
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
        assert sizes(pool, "a.parquet") == sizes(Reversed(), "b.parquet")


def test_what_a_thread_refuses_is_the_callers_fault_and_leaves_nothing(tmp_path: Path, executor: Executor) -> None:
    writer = ParquetWriter(ENV, str(tmp_path / "a.parquet"), FIELDS, FileSettings(chunk_bytes=GROUP_BYTES), executor)
    table = rows(2_000)
    writer.write(table)
    writer.write(table.set_column(0, arrow_schema(FIELDS).field("k"), pa.nulls(table.num_rows, pa.int64())))
    with pytest.raises(InvalidRequestError, match=r"a\.parquet"):
        writer.close()
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_one_bucket_is_encoded_by_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the writer's own pool: at the flush and in the compaction, unless a commit is small."""
    monkeypatch.setattr(open_buckets, "SMALL_COMMIT_BYTES", 1000)
    threads = set[str]()
    encoded = ParquetWriter._encoded

    def noted(self: ParquetWriter, table: pa.Table) -> Any:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return encoded(self, table)

    monkeypatch.setattr(ParquetWriter, "_encoded", noted)
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
            assert threads == {"freshet-write"}
            threads.clear()
    assert [entry.file.level > 0 for entry in orders.files()] == [True]
    found = orders.scan().to_arrow().sort_by("id")
    assert found.column("text").to_pylist() == [f"{key % 2} {key}" for key in range(30_000)]


NUMBERS = st.integers(-(2**63), 2**63 - 1)


def structs(depth: int) -> st.SearchStrategy[thrift.Struct]:
    values: list[st.SearchStrategy[tuple[int, Any]]] = [
        st.tuples(st.just(6), NUMBERS),
        st.tuples(st.just(8), st.binary(max_size=200)),
        st.tuples(st.just(7), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(3), st.integers(0, 255)),
        st.just((1, True)),
        st.just((2, False)),
        st.lists(NUMBERS, max_size=20).map(lambda values: (9, thrift.List(5, values))),
    ]
    if depth:
        values.append(structs(depth - 1).map(lambda struct: (12, struct)))
        values.append(st.lists(structs(depth - 1), max_size=3).map(lambda found: (9, thrift.List(12, found))))
    return st.dictionaries(st.integers(1, 300), st.one_of(values), max_size=5).map(
        lambda found: dict(sorted(found.items()))
    )


@given(structs(2))
def test_structs_come_back(struct: thrift.Struct) -> None:
    assert thrift.decoded(thrift.encoded(struct)) == struct


def test_footers_come_back_byte_for_byte(tmp_path: Path) -> None:
    data = footer(written(tmp_path / "a.parquet", rows(3_000), None))
    assert thrift.encoded(thrift.decoded(data)) == data
