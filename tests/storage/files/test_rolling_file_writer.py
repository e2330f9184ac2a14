"""Files that were opened or finished and then could not be described leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet import Catalog, InvalidRequestError
from freshet.storage.files.data_file_paths import DataFileNames
from freshet.storage.files.file_format import FileSummary
from freshet.storage.files.rolling_file_writer import RollingFileWriter
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
