"""Small pieces are written together; files that could not be described leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import Catalog, InvalidRequestError
from freshet.storage.files.data_file_paths import DataFileNames
from freshet.storage.files.file_format import FileSummary
from freshet.storage.files.rolling_file_writer import WAITING_BYTES, RollingFileWriter
from freshet.storage.model.data_file import EMPTY_ROW, DataFileMeta


class Undescribable:
    """Contents that fail at one of their three steps."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._fail("new")

    def add(self, rows: pa.Table) -> None:
        self._fail("add")

    def meta(self, file_name: str, summary: FileSummary) -> DataFileMeta:
        self._fail("meta")
        raise AssertionError("not reached")

    def _fail(self, step: str) -> None:
        if step == self._step:
            raise InvalidRequestError(step)


@pytest.mark.parametrize("step", ["new", "add", "meta"])
def test_nothing_is_left(tmp_path: Path, step: str) -> None:
    store = Catalog(tmp_path).create_table("a.b", schema={"id": "BIGINT"}, options={"bucket": -1}).store
    writer = RollingFileWriter(
        store, DataFileNames(store, EMPTY_ROW, 0, 0), store.schema.fields, lambda: Undescribable(step)
    )

    def write() -> None:
        writer.write(pa.table({"id": [1, 2]}))
        writer.close()

    with pytest.raises(InvalidRequestError, match=step):
        write()
    writer.abort()
    assert not list(tmp_path.rglob("*.parquet"))


class Described:
    """Contents that note the pieces they see."""

    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    def add(self, rows: pa.Table) -> None:
        self._seen.append(rows.num_rows)

    def index(self) -> None:
        return None

    def meta(self, file_name: str, summary: FileSummary) -> Any:
        return summary.row_count


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ([3, 0, 4, 5], [12]),
        ([600, 600, 1], [1200, 1]),
        ([2000, 7], [2000, 7]),
        ([1, 2000], [2001]),
        ([], []),
    ],
)
def test_small_pieces_are_written_together(tmp_path: Path, written: list[int], seen: list[int]) -> None:
    store = Catalog(tmp_path).create_table("a.b", schema={"id": "BIGINT"}, options={"bucket": -1}).store
    found: list[int] = []
    names = DataFileNames(store, EMPTY_ROW, 0, 0)
    writer = RollingFileWriter(store, names, store.schema.fields, lambda: Described(found))
    numbers = iter(range(10_000))
    for count in written:
        writer.write(pa.table({"id": pa.array([next(numbers) for _ in range(count)], pa.int64())}))
    assert [*writer.close()] == ([sum(written)] if written else [])
    assert found == seen
    rows = [row for path in tmp_path.rglob("*.parquet") for row in pq.read_table(path)["id"].to_pylist()]
    assert rows == list(range(sum(written)))


def test_pieces_of_other_types_and_large_ones_do_not_wait(tmp_path: Path) -> None:
    store = Catalog(tmp_path).create_table("a.b", schema={"id": "STRING"}, options={"bucket": -1}).store
    found: list[int] = []
    names = DataFileNames(store, EMPTY_ROW, 0, 0)
    writer = RollingFileWriter(store, names, store.schema.fields, lambda: Described(found))
    writer.write(pa.table({"id": ["a", "b"]}))
    writer.write(pa.table({"id": pa.array(["c"], pa.large_string())}))
    writer.write(pa.table({"id": pa.array(["x" * WAITING_BYTES], pa.large_string())}))
    assert found == [2, 2]
    writer.abort()
    assert not list(tmp_path.rglob("*.parquet"))
