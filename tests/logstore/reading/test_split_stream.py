"""`TableEngine.split_stream` with a log: however and wherever it is read, it gives the changes of the table."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import pytest

from freshet.logstore.reading.split_stream import SILENT_SNAPSHOTS_MAX
from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit
from tests.kit.fake_log import FakeClient, FakeLog
from tests.logstore.logged_tables import folded, held, lines, log_batch, make_logged, write
from tests.logstore.reading.query import Query

QUICK = 60


def test_a_snapshot_then_the_log(table: Table, isolation: str) -> None:
    write(table, "+I 1 a | +I 2 b")
    query = Query(table, isolation, scan_mode="latest-full", with_snapshot_id=True)
    assert query() == "+I 1 a 2 | +I 2 b 2"
    write(table, "+I 1 c | -D 2 x", "+I 3 d")
    query.restart()
    assert query() == "-U 1 a 4 | +U 1 c 4 | -D 2 b 4 | +I 3 d 6"
    assert query() == ""


def test_options_may_be_spelled_in_capitals_and_with_spaces(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__system="KAFKA", kafka__topic=" t ")
    write(table, "+I 1 a")
    assert Query(table, "committed", scan_mode="from-snapshot", from_snapshot=1)() == "+I 1 a"
    assert table.engine.log.user() == "u"


def test_rows_are_there_before_their_commit_and_belong_to_no_snapshot(table: Table) -> None:
    write(table, "+I 1 a")
    fast = Query(table, "speculative", with_snapshot_id=True)
    safe = Query(table, None, with_snapshot_id=True)
    assert (fast(), safe()) == ("+I 1 a 2", "+I 1 a 2")
    commit = log_batch(table, "+I 1 b")
    assert (fast(), safe()) == ("-U 1 a null | +U 1 b null", "")
    commit()
    assert (fast(), safe()) == ("", "-U 1 a 4 | +U 1 b 4")


def test_a_batch_that_was_planned_is_the_same_when_it_is_planned_again(table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    query()
    log_batch(table, "+I 1 b | +I 2 x")
    end = query.plan()
    first = query.read(end)
    write(table, "+I 1 c", "+I 5 z")
    query.restart()
    assert query.read(end) == first == "-U 1 a | +U 1 b | +I 2 x"
    query.offset = end
    assert query() == "-D 2 x | -U 1 b | +U 1 c | +I 5 z"


def test_what_is_shown_and_retracted_within_a_batch_is_not_returned(table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    query()
    log_batch(table, "+I 1 b")
    log_batch(table, "+I 1 c", attempt=2)
    assert query() == "-U 1 a | +U 1 c"


@pytest.mark.parametrize("limit", [StreamLimit(offsets=1), StreamLimit(rows=1), StreamLimit(files=1)])
def test_limits_cut_states_and_logs(log: FakeLog, tmp_path: Path, isolation: str, limit: StreamLimit) -> None:
    table = make_logged(tmp_path, bucket="2")
    write(table, "+I 1 a | +I 2 b | +I 3 c | +I 4 d")
    query = Query(table, isolation)
    write(table, "+I 1 e | +I 2 f", "+I 3 g | +I 4 h")
    seen = []
    while text := query(limit):
        seen.append(text)
        query.restart()
    assert len(seen) >= (2 if limit.files else 3)
    assert folded(" | ".join(seen)) == held(table)


def test_a_step_ends_though_more_is_logged_meanwhile(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.logstore.reading.split_stream.STEP_OFFSETS_MAX", 2)
    monkeypatch.setattr("freshet.logstore.writing.writer.RECORD_BYTES", 1)
    log.chunk = 1
    table = make_logged(tmp_path)
    write(table, "+I 9 z")
    query = Query(table, "speculative", scan_mode="latest")
    log_batch(table, "+I 1 a | +I 2 b | +I 3 c | +I 4 d | +I 5 e")
    assert [query() for _ in range(4)] == ["+I 1 a | +I 2 b", "+I 3 c | +I 4 d", "+I 5 e", ""]


def test_a_run_to_a_bound_reads_all_of_it_and_no_more(log: FakeLog, table: Table, isolation: str) -> None:
    write(table, "+I 1 a")
    query = Query(table, isolation, scan_mode="from-snapshot", from_snapshot=1)
    log_batch(table, "+I 2 b")
    bound = query.stream.bound()
    write(table, "+I 3 c")
    log.chunk = 1
    position = query.stream.first()
    seen = []
    while (end := query.stream.advance(position, StreamLimit(offsets=1), bound)) != position:
        groups = query.stream.groups(position, end)
        seen += [line for group in groups for batch in query.stream.read_group(group) for line in lines(batch)]
        position = end
    assert seen == ["+I 1 a", "+I 2 b"][: 1 if isolation == "committed" else 2]


def test_snapshots_without_changes_make_no_batches_until_there_are_many(table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table, "committed", consumer_id="c")
    query()
    before = query.offset
    for number in range(1, SILENT_SNAPSHOTS_MAX):
        with table.writer("u") as writer:
            writer.commit(identifier=number)
        assert query() == "" and query.offset == before
    with table.writer("u") as writer:
        writer.commit(identifier=SILENT_SNAPSHOTS_MAX)
    assert query() == "" and query.offset != before
    query()
    latest = table.latest_snapshot()
    assert latest is not None and table.consumers() == {"c": latest.id + 1}


def test_a_start_beyond_its_end_is_refused(table: Table) -> None:
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    states = [query.offset]
    query()
    states.append(query.offset)
    log_batch(table, "+I 1 b")
    query()
    states.append(query.offset)
    write(table, "+I 1 c")
    query()
    states.append(query.offset)
    for earlier, later in pairwise(states):
        query.offset = later
        with pytest.raises(InvalidRequestError, match="Begin with a new checkpoint"):
            query.read(earlier)


def test_a_reader_of_snapshots_alone_may_go_on_with_the_log(table: Table) -> None:
    write(table, "+I 1 a")
    alone = table.engine.split_stream(StreamRequest(isolation="none"))
    assert isinstance(alone, SplitStream)
    within = alone.first().to_document()
    after = alone.advance(alone.first(), StreamLimit()).to_document()
    write(table, "+I 1 b")
    query = Query(table, "committed")
    query.offset = after
    assert query() == "-U 1 a | +U 1 b"
    with pytest.raises(InvalidRequestError, match="go on with log.read.isolation=committed or speculative"):
        alone.position(query.offset)
    with pytest.raises(InvalidRequestError, match="go on with log.read.isolation=none"):
        query.stream.position(within)
    with pytest.raises(InvalidRequestError, match="is no position"):
        query.stream.position({"x": 1})


def test_an_isolation_may_be_changed_between_runs(table: Table) -> None:
    write(table, "+I 1 a")
    fast = Query(table, "speculative")
    fast()
    log_batch(table, "+I 1 b | +I 2 x")
    assert fast() == "-U 1 a | +U 1 b | +I 2 x"
    safe = Query(table, "committed")
    safe.offset = fast.offset
    assert safe() == ""
    write(table, "+I 1 c")
    assert safe() == "-D 2 x | -U 1 b | +U 1 c"


def test_small_batches_carry_what_the_planning_reader_has_fetched(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, bucket="2")
    write(table, "+I 9 z")
    query = Query(table, "speculative")
    query()
    log_batch(table, "+I 1 a | +I 2 b | +I 3 c")
    end = query.plan()
    [group] = query.stream.groups(query.stream.position(query.offset), query.stream.position(end))
    assert len(group.carried) == 2
    fetches = log.fetches
    reader = pickle.loads(pickle.dumps(query.stream))
    assert sum(batch.num_rows for batch in reader.read_group(group)) == 3
    assert log.fetches == fetches


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that are read, and folders that are listed."""
    found: list[str] = []
    read, listed = LocalFileIO.read_bytes, LocalFileIO.entries
    monkeypatch.setattr(LocalFileIO, "read_bytes", lambda self, path: found.append(Path(path).name) or read(self, path))
    monkeypatch.setattr(LocalFileIO, "entries", lambda self, path: found.append(path) or listed(self, path))
    return found


def test_looking_for_more_reads_five_files_and_lists_none(table: Table, isolation: str, calls: list[str]) -> None:
    write(table, "+I 1 a")
    stream = table.engine.split_stream(StreamRequest(isolation=isolation, scan_mode="latest"))
    position = stream.first()
    for _ in range(2):
        calls.clear()
        assert stream.advance(position, StreamLimit(snapshots=1)) == position
        stream.wait(position, 0.0)
        assert sorted(calls) == ["changelog-3", "snapshot-2", "snapshot-2", "snapshot-3", "snapshot-3"]


def test_a_reader_asks_for_its_topic_only_while_nothing_comes(
    table: Table, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    write(table, "+I 1 a")
    stream = table.engine.split_stream(StreamRequest(isolation=isolation, scan_mode="latest"))
    position, asked = stream.first(), []
    stream.wait(position, 0.0)
    topic = FakeClient.topic
    monkeypatch.setattr(FakeClient, "topic", lambda self, name: asked.append(name) or topic(self, name))
    for number in range(4):
        write(table, f"+I 1 {number}")
        asked.clear()  # the writer's
        stream.wait(position, 6.0)
        position = stream.advance(position, StreamLimit())
    assert asked == []


def test_rows_that_wake_a_reader_are_shown_before_it_looks_for_snapshots(table: Table, calls: list[str]) -> None:
    write(table, "+I 1 a")
    stream = table.engine.split_stream(StreamRequest(isolation="speculative", scan_mode="latest"))
    position = stream.first()
    assert stream.advance(position, StreamLimit(snapshots=1)) == position
    commit = log_batch(table, "+I 1 b")
    stream.wait(position, 0.0)
    calls.clear()
    end = stream.advance(position, StreamLimit(snapshots=1))
    assert [line for batch in stream.read_between(position, end) for line in lines(batch)] == ["-U 1 a", "+U 1 b"]
    assert calls == []
    commit()
    stable = stream.advance(end, StreamLimit(snapshots=1))
    assert stable.next_id == 5 and list(stream.read_between(end, stable)) == []
