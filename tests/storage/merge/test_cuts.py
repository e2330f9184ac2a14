"""Where the rows of a run end that take part in a round, and rows gathered by positions that are no rows."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from freshet.storage.merge.gather import take_rows
from freshet.storage.merge.key_order import rows_tied
from freshet.storage.merge.merge_reader import RunBuffer

DAY = datetime.date(2026, 11, 25)
KEYS = {
    "int8": pa.array([-3, -1, 0, 5, 5, 100], pa.int8()),
    "int64": pa.array([-(1 << 62), -1, 0, 5, 5, 1 << 62], pa.int64()),
    "date": pa.array([DAY + datetime.timedelta(days) for days in (-40000, 0, 1, 5, 5, 9)], pa.date32()),
    "timestamp": pa.array([-7, -1, 0, 5, 5, 9], pa.timestamp("us")),
    "text": pa.array(["", "a", "b", "c", "c", "d"]),
    "double": pa.array([-7.5, -0.0, 0.0, 5.0, 5.0, float("nan")]),
    "decimal": pa.array([-3, -1, 0, 5, 5, 9], pa.int32()).cast(pa.decimal128(12, 2)),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("strictly", [False, True])
def test_rows_up_to_each_key(keys: pa.Array, strictly: bool) -> None:
    batch = pa.record_batch({"k": keys})
    for row in range(len(keys)):
        buffer = buffer_of(batch.slice(0, 2), batch.slice(2))
        watermark = buffer.key(batch, row)
        expected = [at for at in range(len(keys)) if is_within(buffer.key(batch, at), watermark, strictly)]
        taken = sum(part.num_rows for part in buffer.cut(watermark, strictly=strictly))
        assert taken == len(expected), f"row {row}"
        assert buffer.row_count == len(keys) - taken


@pytest.mark.parametrize("strictly", [False, True])
def test_rows_up_to_each_key_of_two_columns(strictly: bool) -> None:
    batch = pa.record_batch({"k": pa.array([1, 1, 1, 2, 2, 4]), "l": pa.array(["a", "b", "b", "a", "c", ""])})
    for row in range(batch.num_rows):
        buffer = RunBuffer([batch], ["k", "l"])
        buffer.fill(6)
        watermark = buffer.key(batch, row)
        expected = [at for at in range(6) if is_within(buffer.key(batch, at), watermark, strictly)]
        assert sum(part.num_rows for part in buffer.cut(watermark, strictly=strictly)) == len(expected)


def test_rows_of_a_slice_are_found_in_the_slice() -> None:
    column = pa.array([0, 1, 2, 3, 3, 3, 4], pa.int32()).slice(2, 4)
    assert rows_tied(column, 3) == (1, 4)
    assert rows_tied(column, 4) == (4, 4)
    assert rows_tied(KEYS["text"], "c") == (0, 6)


@pytest.mark.parametrize("positions", [[0, 3], [-1], [0, 1 << 33]])
def test_positions_that_are_no_rows_are_refused(positions: list[int]) -> None:
    rows = pa.table({"k": [1, 2, 3], "t": ["a", "b", "c"]})
    with pytest.raises(IndexError):
        take_rows(rows, np.array(positions, np.int64))


def buffer_of(*batches: pa.RecordBatch) -> RunBuffer:
    buffer = RunBuffer(batches, ["k"])
    buffer.fill(sum(batch.num_rows for batch in batches))
    return buffer


def is_within(key: Any, watermark: Any, strictly: bool) -> bool:
    return bool(key < watermark if strictly else key <= watermark)
