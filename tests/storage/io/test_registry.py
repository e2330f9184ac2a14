"""The scheme of a location decides how its files are reached."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.io.registry import open_file_io
from freshet.storage.table import Table


@pytest.mark.parametrize("location", ["/a/b", "file:///a/b", "FILE:/a", "relative", "/a:b/c"])
def test_paths_are_local(location: str) -> None:
    assert isinstance(open_file_io(location, {}), LocalFileIO)


def test_memory_is_one_for_the_process() -> None:
    assert isinstance(open_file_io("memory:/a", {}), MemoryFileIO)
    assert open_file_io("memory:/a", {}) is open_file_io("MEMORY:/b", {"x": "y"})


@pytest.mark.parametrize("location", ["ftp://node/a", "hdfs://node/a", "C:\\a"])
def test_other_schemes_are_refused_with_those_that_are_known(location: str) -> None:
    with pytest.raises(
        InvalidRequestError, match="only local paths and URIs of file:, memory:, s3:, .*abfss: can be opened, not"
    ) as caught:
        open_file_io(location, {})
    assert location in str(caught.value)


def test_a_password_in_a_location_is_not_shown() -> None:
    with pytest.raises(InvalidRequestError, match=r"^s3://\*\*\*@bucket/a: credentials"):
        open_file_io("s3://me:secret@bucket/a", {})


def test_a_table_in_memory_is_opened_by_its_location() -> None:
    warehouse = f"memory:/{uuid.uuid4()}"
    table = Catalog(warehouse).create_table("shop.orders", schema={"id": "BIGINT NOT NULL"})
    with table.writer("test") as session:
        session.write(pa.table({"id": [1, 2]}))
        session.commit(1)
    assert Catalog(f"{warehouse}/").list_tables("shop") == ["orders"]
    assert Table.open(f"{warehouse}/shop.db/orders").scan().to_arrow().num_rows == 2
    Catalog(warehouse).drop_database("shop", cascade=True)
    assert Catalog(warehouse).list_databases() == []
    assert not open_file_io(warehouse, {}).exists(warehouse)
