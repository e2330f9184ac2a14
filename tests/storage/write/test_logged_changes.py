"""Rows kept for the log: within bounds, joined in order, and which of a table they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from freshet.storage.options.core import CoreOptions
from freshet.storage.write.increment import EmittedRows, Logged, logged_rows


def table(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def test_rows_are_kept_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.increment.EMITTED_BYTES_MAX", 8 * 10)
    emitted = EmittedRows()
    emitted.add(table(0))
    emitted.add(table(4))
    assert emitted.is_complete and [rows.num_rows for rows in emitted.tables] == [4]
    emitted.add(table(7))
    assert not emitted.is_complete and emitted.tables == []
    emitted.add(table(1))
    assert not emitted.is_complete and emitted.tables == []


def test_joined_rows_are_in_order_or_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.increment.EMITTED_BYTES_MAX", 8 * 10)
    emitted, more = EmittedRows(), EmittedRows()
    emitted.add(table(2))
    more.add(table(3))
    emitted.join(more)
    assert [rows.num_rows for rows in emitted.tables] == [2, 3] and [rows.num_rows for rows in more.tables] == [3]
    much = EmittedRows()
    much.add(table(11))
    emitted.join(much)
    assert not emitted.is_complete and emitted.tables == []


@pytest.mark.parametrize(
    ("keyed", "options", "wanted"),
    [
        (True, {}, Logged.NOTHING),
        (True, {"log.system": "kafka"}, Logged.ROWS),
        (True, {"log.system": "kafka", "changelog-producer": "full-compaction"}, Logged.ROWS),
        (True, {"log.system": "kafka", "changelog-producer": "input"}, Logged.CHANGELOG),
        (True, {"log.system": "KAFKA", "changelog-producer": "lookup"}, Logged.CHANGELOG),
        (False, {"log.system": "kafka"}, Logged.ROWS),
    ],
)
def test_which_rows_are_logged(keyed: bool, options: dict[str, str], wanted: Logged) -> None:
    assert logged_rows(CoreOptions.parse(options, has_primary_key=keyed)) is wanted
