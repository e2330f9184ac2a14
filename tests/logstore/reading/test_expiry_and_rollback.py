"""Readers of a log whose snapshots expire, whose records retention deletes, or whose table is rolled back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.logstore.exceptions import LogLostError, LogTruncatedError
from freshet.storage.exceptions import RetryableError
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import folded, lines, log_batch, make_logged, rolled_back, write
from tests.logstore.reading.query import Query


@pytest.mark.parametrize("kept", [1, 3, 10])
def test_snapshots_without_changes_may_expire(log: FakeLog, tmp_path: Path, kept: int) -> None:
    table = make_logged(tmp_path, snapshot__num_retained__min=str(kept), snapshot__num_retained__max=str(kept))
    write(table, "+I 1 a")
    query = Query(table, "committed")
    query()
    for number in range(1, 20):
        with table.writer("u") as writer:
            writer.commit(identifier=number)
        table.expire_snapshots(retain_max=kept, retain_min=kept, older_than_ms=0)
        assert query() == ""
        query.restart()


def test_what_was_planned_before_retention_came_is_read_from_files(log: FakeLog, table: Table) -> None:
    query = Query(table.with_options({"log.on-truncated": "fall-back"}), "committed", scan_mode="latest")
    write(table, "+I 1 a", "+I 1 b")
    end = query.plan()
    first = query.read(end)
    log.truncate("t", 0, 1)
    query.restart()
    assert query.read(end) == first == "+I 1 a | -U 1 a | +U 1 b"


def test_open_rows_that_retention_took_are_an_error(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table.with_options({"log.on-truncated": "fall-back"}), "speculative", scan_mode="latest")
    log_batch(table, "+I 2 b")
    assert query() == "+I 2 b"
    write(table, "+I 2 c")
    log.truncate("t", 0, 2)
    query.restart()
    with pytest.raises((LogTruncatedError, LogLostError)):
        query()


def test_a_consumer_keeps_what_was_not_read_and_goes_on_there(table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table, "committed", consumer_id="c")
    assert query() == "+I 1 a"
    write(table, "+I 1 b", "+I 1 c", "+I 1 d")
    query.plan()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert table.consumers() == {"c": 3} and table.snapshots()[0].id == 3
    other = Query(table, "committed", consumer_id="c")  # without a checkpoint, and without the snapshot before
    assert other() == query() == "-U 1 a | +U 1 b | -U 1 b | +U 1 c | -U 1 c | +U 1 d"
    write(table, "+I 1 e")
    assert other() == "-U 1 d | +U 1 e"


def test_a_reader_that_begins_at_a_commit_of_another_library_does_not_need_the_whole_log(
    log: FakeLog, table: Table
) -> None:
    write(table, "+I 1 a")
    write(table.with_options({"log.system": "none"}), "+I 1 b", user="loader")
    for number in (3, 4):
        file = Path(table.location) / "snapshot" / f"snapshot-{number}"
        file.write_text(json.dumps({**json.loads(file.read_text()), "properties": {}}))
    table = Table.open(table.location)
    write(table, "+I 1 c")
    table.reset_consumer("c", 3)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert table.snapshots()[0].id == 3
    log.truncate("t", 0, 1)
    query = Query(table, "committed", consumer_id="c")
    assert query() == "-U 1 a | +U 1 b | -U 1 b | +U 1 c"
    write(table, "+I 1 d")
    log.fetches = 0
    assert query() == "-U 1 c | +U 1 d" and log.fetches == 1


def test_the_snapshot_that_is_being_read_is_kept(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, bucket="2")
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    query = Query(table, "committed", consumer_id="c")
    first = query(StreamLimit(files=1))
    write(table, "+I 1 d", "+I 2 e")
    rest = query.plan(StreamLimit(files=1))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert table.consumers() == {"c.state": 2}
    text = query.read(rest)
    query.offset = rest
    assert folded(f"{first} | {text}") == {1: "d", 2: "e", 3: "c"}
    assert query() == ""
    assert table.consumers() == {"c": 7}


def test_what_a_consumer_cannot_keep_is_warned_of(log: FakeLog, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    write(table, "+I 1 a")
    log.topics["t"].settings = {"retention.ms": "3600000"}
    Query(table.with_options({"log.on-truncated": "fall-back"}), "committed", consumer_id="c")()
    assert caplog.messages == []
    Query(table, "committed", consumer_id="c")()
    assert "not the records of topic t, which its brokers delete after 3600000 ms" in caplog.messages[0]


def test_a_rollback_is_an_error(table: Table) -> None:
    write(table, "+I 1 a", "+I 1 b")
    query = Query(table, "committed")
    query()
    rolled_back(table, 2)
    query.restart()
    with pytest.raises(RetryableError, match="rolled back or created anew"):
        query()


def test_a_rollback_of_a_snapshot_that_was_read_in_part_is_an_error(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, bucket="2", changelog_producer="input")
    write(table, "+I 9 z")
    query = Query(table, "committed")
    query()
    write(table, "+I 1 a | +I 2 b | +I 3 c | +I 4 d")
    assert query(StreamLimit(rows=1))
    write(rolled_back(table, 1), "+I 5 e | +I 6 f | +I 7 g | +I 8 h")
    query.restart()
    with pytest.raises(RetryableError, match="snapshot 2 of table .* read in part: the table was rolled back"):
        query()


def test_a_batch_planned_again_over_another_history_is_an_error(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, changelog_producer="input")
    query = Query(table, "committed")
    write(table, "+I 1 a", "+I 1 b")
    end = query.plan()
    write(rolled_back(table, 1), "+I 5 e")
    query.restart()
    with pytest.raises(RetryableError, match="snapshot 2 of table .* rolled back or created anew"):
        query.read(end)


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_a_state_that_was_kept_is_not_of_a_history_that_grew_back(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path, changelog_producer="input")
    write(table, "+I 1 a", "+I 2 b")
    stream = table.stream(isolation=isolation, max_wait_s=0)
    list(stream)
    state = json.loads(json.dumps(stream.state))
    write(table, "+I 3 c")
    assert [lines(each) for each in table.stream(isolation=isolation, log_state=state, max_wait_s=0)] == [["+I 3 c"]]
    write(rolled_back(table, 1), "+I 5 e", "+I 6 f")
    with pytest.raises(RetryableError, match="snapshot 2 of table .* rolled back or created anew"):
        list(table.stream(isolation=isolation, log_state=state, max_wait_s=0))
