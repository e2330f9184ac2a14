"""Rows kept for the log: within bounds, joined in order, logged ahead of their files, and which of a table they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.exceptions import RetryableError
from freshet.storage.options.core import CoreOptions
from freshet.storage.write.increment import EmittedRows, Increment, Logged, logged_rows
from freshet.storage.write.open_buckets import rows_from
from tests.storage.compact.shapes import a_file


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


def test_rows_are_logged_ahead_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.increment.EMITTED_BYTES_MAX", 8 * 10)
    increment, logged, computed = Increment(), [], EmittedRows()
    increment.append.emitted.add(table(2))
    computed.add(table(3))
    increment.log_ahead(computed)
    assert increment.append.emitted.tables and not increment.append.emitted.logged  # nobody logs yet
    increment.log = lambda rows: logged.append(rows.num_rows)
    increment.log_ahead(computed)
    increment.log_ahead(computed)
    assert (logged, computed.tables, computed.logged) == ([2, 3], [], 3)
    computed.add(table(8))  # too many: all are read from the files, without those
    assert not computed.is_complete and computed.logged == 3
    increment.log_ahead(computed)
    assert logged == [2, 3]


def test_stored_rows_go_on_behind_those_that_are_logged() -> None:
    batches = [each for count in (2, 3, 4) for each in table(count).to_batches()]
    left = [batch.column(0).to_pylist() for batch in rows_from(iter(batches), 3)]
    assert left == [[1, 2], [0, 1, 2, 3]]
    assert len(list(rows_from(iter(batches), 0))) == 3 and not list(rows_from(iter(batches), 9))


def test_a_round_that_is_logged_is_not_dropped_silently() -> None:
    increment, emitted = Increment(), EmittedRows()
    increment.log = lambda rows: None
    emitted.add(table(1))
    increment.log_ahead(emitted)
    increment.add_compaction(CompactedFiles((a_file("gone"),), (a_file("out", level=5),)), emitted=emitted)
    with pytest.raises(RetryableError, match="in the log already"):
        increment.drop_unfit([a_file("other")])


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
