"""Everything that a writer takes as rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet import Catalog, InvalidRequestError, Table
from tests.kit.frames import frame_library

ROWS = [
    {"id": 1, "name": "a", "price": Decimal("1.50"), "day": datetime.date(2024, 2, 29), "tags": ["x"]},
    {"id": 2, "name": None, "price": None, "day": None, "tags": None},
]
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
TABLE = pa.Table.from_pylist(ROWS, ARROW)


class Streamed:
    """A frame of another library, known by its Arrow interface only."""

    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_stream__(requested_schema)


class Exported:
    """A record batch of another library."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._data.__arrow_c_array__(requested_schema)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Catalog(tmp_path).create_table(
        "db.t",
        schema={"id": "BIGINT", "name": "STRING", "price": "DECIMAL(6, 2)", "day": "DATE", "tags": "ARRAY<STRING>"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )


def written(table: Table, data: object) -> list[dict[str, Any]]:
    with table.writer("u") as writer:
        writer.write(data)
        writer.commit()
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        Streamed(TABLE),
        Exported(TABLE.to_batches()[0]),
        ROWS,
        tuple(ROWS),
        [ROWS[0], {"id": 2}],
        {name: [row[name] for row in ROWS] for name in ARROW.names},
        {name: TABLE.column(name) for name in ARROW.names} | {"id": np.array([1, 2]), "day": [19782, None]},
    ],
    ids=["table", "batch", "stream", "array", "rows", "tuple of rows", "rows with gaps", "columns", "arrays"],
)
def test_what_is_taken(table: Table, data: object) -> None:
    assert written(table, data) == ROWS


def test_a_reader_is_read_batch_by_batch(table: Table) -> None:
    batches = [pa.record_batch({"id": [number]}) for number in range(5)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert [row["id"] for row in written(table, reader)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("data", [[], Streamed(ARROW.empty_table()), {"id": []}, {}], ids=repr)
def test_no_rows(table: Table, data: object) -> None:
    assert written(table, data) == []


@pytest.mark.parametrize(
    ("data", "column", "message"),
    [
        ([{"id": "x"}], "id", "'id' of .* is BIGINT NOT NULL"),
        ([{"id": 2**63}], "id", "'id' of .* is BIGINT"),
        ([{"id": 1, "name": 5}], "name", "'name' of .* is STRING"),
        ([{"id": 1, "nmae": "a"}], "nmae", "no column 'nmae'"),
        ([{"id": 1}, 7], None, "row 1 of the input for .* is int"),
        ({"id": 1}, "id", r"put a single row into a list: \[\{'id': 1\}\]"),
        ({"id": [1], "name": "abc"}, "name", "a list of values for each column"),
        ({"id": [1, 2], "name": ["a"]}, None, "id has 2, name has 1"),
        ({1: [1]}, None, "names are text"),
        ("id", None, "not str"),
        (pa.chunked_array([[1]]), None, "cannot be read as Arrow"),
    ],
)
def test_what_is_refused(table: Table, data: object, column: str | None, message: str) -> None:
    with table.writer("u") as writer:
        with pytest.raises(InvalidRequestError, match=message) as raised:
            writer.write(data)
        assert raised.value.column == column
        writer.write([{"id": 9}])  # nothing was taken, and the writer goes on
        writer.commit()
    assert table.scan().to_arrow().column("id").to_pylist() == [9]


def failing_batches(last: pa.RecordBatch | Exception) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array([1]), "name": pa.array(["x" * (9 << 20)])})
    if isinstance(last, Exception):
        raise last
    yield last


@pytest.mark.parametrize(
    "last",
    [pa.record_batch({"id": pa.array([None], pa.int64()), "name": pa.array(["y"])}), OSError("the source is gone")],
    ids=["refused", "failed"],
)
def test_a_stream_that_fails_half_way_leaves_nothing_to_commit(table: Table, last: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with table.writer("u") as writer:
        with pytest.raises((InvalidRequestError, OSError)):
            writer.write(pa.RecordBatchReader.from_batches(schema, failing_batches(last)))
        with pytest.raises(InvalidRequestError, match="abort"):
            writer.commit()
        writer.abort()
        writer.write([{"id": 2}])
        writer.commit()
    assert table.scan().to_arrow().column("id").to_pylist() == [2]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(table: Table, library: str) -> None:
    frame = frame_library(library).DataFrame({"id": [1, 2], "name": ["a", None]})
    assert [(row["id"], row["name"]) for row in written(table, frame)] == [(1, "a"), (2, None)]
