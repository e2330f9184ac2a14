"""Results of tasks as rows: one or several in a row, compressed where they are long."""

from __future__ import annotations

import pytest

from freshet.pipeline.query.wire.task_result import (
    PLAIN_BYTES_MAX,
    TableFailedError,
    TaskResult,
    encode_error,
    encode_results,
    sum_results,
)
from freshet.storage.exceptions import CorruptDataError


def content(batch: object) -> bytes:
    value: bytes = batch.column(0)[0].as_py()  # type: ignore[attr-defined]
    return value


def test_several_results_in_a_row_are_added_up() -> None:
    results = [TaskResult(applied=number, notes={f"note {number}": 1}) for number in range(4)]
    found = sum_results([content(encode_results(results[:3])), content(encode_results(results[3:]))])
    assert (found.applied, sorted(found.notes)) == (6, ["note 0", "note 1", "note 2", "note 3"])


def test_long_results_are_compressed_and_come_back() -> None:
    long = TaskResult(applied=1, notes={f"note {number}": number for number in range(1000)})
    row = content(encode_results([long]))
    assert len(row) < 2 * PLAIN_BYTES_MAX
    assert sum_results([row, row]).notes["note 999"] == 2 * 999


def test_an_error_says_its_table() -> None:
    row = content(encode_error(CorruptDataError("x" * 10_000), 3))
    with pytest.raises(TableFailedError) as found:
        sum_results([content(encode_results([TaskResult()])), row])
    assert found.value.table_index == 3
    assert isinstance(found.value.cause, CorruptDataError)
