"""Rows by position, of few columns at once and of many one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.merge import gather
from freshet.storage.merge.gather import take_rows

ROWS = pa.table(
    {
        "a": pa.chunked_array([[1, None], [3, 4]]),
        "s": pa.chunked_array([["x", "y"], [None, "z"]]),
        "n": pa.chunked_array([[{"f": [1]}, None], [{"f": None}, {"f": [2, 3]}]]),
    },
    schema=pa.schema(
        [("a", pa.int64()), ("s", pa.string()), ("n", pa.struct([("f", pa.list_(pa.int32()))]))], metadata={"k": "v"}
    ),
)


@pytest.mark.parametrize("small_bytes", [-1, 10**6])
@pytest.mark.parametrize("columns", [None, ["n", "a"], []])
def test_rows_are_those_at_the_positions(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int, columns: list[str] | None
) -> None:
    monkeypatch.setattr(gather, "SMALL_BYTES", small_bytes)
    wanted = ROWS.replace_schema_metadata() if columns is None else ROWS.replace_schema_metadata().select(columns)
    for positions in ([3, 0, 0, 1], [2], []):
        found = take_rows(ROWS, np.array(positions, np.int64), columns)
        assert found.schema.equals(wanted.schema, check_metadata=True)
        assert found.to_pylist() == [wanted.to_pylist()[each] for each in positions if columns != []]
        assert all(column.num_chunks == 1 for column in found.columns)


@pytest.mark.parametrize("small_bytes", [-1, 10**6])
@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int, position: int
) -> None:
    monkeypatch.setattr(gather, "SMALL_BYTES", small_bytes)
    with pytest.raises(IndexError):
        take_rows(ROWS, np.array([0, position], np.int64))
