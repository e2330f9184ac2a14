"""`TableEngine.split_stream` with a log: however it is cut and whoever reads it, it gives the changes of the table."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.logstore.exceptions import LogConfigError, LogLostError, LogTruncatedError
from freshet.logstore.reading.split_stream import SILENT_SNAPSHOTS_MAX, LogSplitStream
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.logs.writers import TaskLog
from freshet.storage.table import Table
from freshet.storage.table_engine import SplitStream, StreamLimit, StreamRequest
from tests.kit.fake_log import FakeLog
from tests.kit.log_model import Counts, run_schedule
from tests.kit.log_model_pieces import PieceReader
from tests.logstore.logged_tables import make_logged, rows, write
from tests.soak.counts import SPLIT_READERS, seeds_of

ISOLATIONS = ("committed", "speculative")
QUICK = 60


class Query:
    """A query over a table: each call is a batch, planned by one process and read by another."""

    def __init__(self, table: Table, isolation: str | None, **asked: Any) -> None:
        self.table, self.asked = table, {"isolation": isolation, **asked}
        self.start()
        self.offset = self.stream.first().to_document()

    def start(self) -> None:
        stream = self.table.engine.split_stream(StreamRequest(**self.asked))
        assert isinstance(stream, LogSplitStream)
        self.stream = stream

    def restart(self) -> None:
        self.start()
        self.offset = json.loads(json.dumps(self.offset))

    def plan(self, limit: StreamLimit = StreamLimit()) -> dict[str, Any]:  # noqa: B008 - a frozen value
        begin = self.stream.position(self.offset)
        self.stream.handed_over(begin)
        document: dict[str, Any] = self.stream.advance(begin, limit).to_document()
        return document

    def read(self, end: dict[str, Any]) -> str:
        groups = self.stream.groups(self.stream.position(self.offset), self.stream.position(end))
        reader = pickle.loads(pickle.dumps(self.stream))
        return " | ".join(line for group in groups for batch in reader.read_group(group) for line in lines(batch))

    def __call__(self, limit: StreamLimit = StreamLimit()) -> str:  # noqa: B008 - a frozen value
        end = self.plan(limit)
        text = self.read(end)
        self.offset = end
        return text


def lines(batch: pa.RecordBatch) -> list[str]:
    found = []
    for row in batch.to_pylist():
        kind = row.pop("_ROW_KIND")
        found.append(" ".join([kind, *("null" if value is None else str(value) for value in row.values())]))
    return found


def begun(table: Table, text: str, attempt: int = 1, batch: int = 1) -> Any:
    """A batch that is logged and not committed: called, it commits."""
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    task = table.engine.task_writer(
        base_snapshot_id=None if base is None else base.id, log=TaskLog(driver.identity, driver.epoch, attempt)
    )
    task.write(rows(text))
    messages = task.prepare_commit(batch)
    return lambda: table.engine.committer("u", log=driver.identity).commit(batch, messages)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_snapshot_then_the_log(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path)
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


def test_rows_are_there_before_their_commit_and_belong_to_no_snapshot(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    fast = Query(table, "speculative", with_snapshot_id=True)
    safe = Query(table, None, with_snapshot_id=True)
    assert (fast(), safe()) == ("+I 1 a 2", "+I 1 a 2")
    commit = begun(table, "+I 1 b")
    assert (fast(), safe()) == ("-U 1 a null | +U 1 b null", "")
    commit()
    assert (fast(), safe()) == ("", "-U 1 a 4 | +U 1 b 4")


def test_a_batch_that_was_planned_is_the_same_when_it_is_planned_again(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    query()
    begun(table, "+I 1 b | +I 2 x")
    end = query.plan()
    first = query.read(end)
    write(table, "+I 1 c", "+I 5 z")
    query.restart()
    assert query.read(end) == first == "-U 1 a | +U 1 b | +I 2 x"
    query.offset = end
    assert query() == "-D 2 x | -U 1 b | +U 1 c | +I 5 z"


def test_what_is_shown_and_taken_back_within_a_batch_is_not_told(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    query()
    begun(table, "+I 1 b")
    begun(table, "+I 1 c", attempt=2)
    assert query() == "-U 1 a | +U 1 c"


@pytest.mark.parametrize("isolation", ISOLATIONS)
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
    assert fold(seen) == {each["k"]: each["v"] for each in table.scan().to_arrow().to_pylist()}


def test_a_step_ends_though_more_is_logged_meanwhile(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.logstore.reading.split_stream.STEP_OFFSETS_MAX", 2)
    monkeypatch.setattr("freshet.logstore.writing.writer.RECORD_BYTES", 1)
    log.chunk = 1
    table = make_logged(tmp_path)
    write(table, "+I 9 z")
    query = Query(table, "speculative", scan_mode="latest")
    begun(table, "+I 1 a | +I 2 b | +I 3 c | +I 4 d | +I 5 e")
    assert [query() for _ in range(4)] == ["+I 1 a | +I 2 b", "+I 3 c | +I 4 d", "+I 5 e", ""]


def fold(texts: list[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for kind, key, value in (part.split() for text in texts for part in text.split(" | ")):
        if kind in ("-U", "-D"):
            assert found.pop(int(key)) == value
        else:
            assert int(key) not in found
            found[int(key)] = value
    return found


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_run_to_a_bound_reads_all_of_it_and_no_more(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    query = Query(table, isolation, scan_mode="from-snapshot", from_snapshot=1)
    begun(table, "+I 2 b")
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


def test_snapshots_without_changes_make_no_batches_until_there_are_many(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
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


def test_what_was_planned_before_retention_came_is_read_from_files(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    query = Query(table.with_options({"log.on-truncated": "fall-back"}), "committed", scan_mode="latest")
    write(table, "+I 1 a", "+I 1 b")
    end = query.plan()
    first = query.read(end)
    log.truncate("t", 0, 1)
    query.restart()
    assert query.read(end) == first == "+I 1 a | -U 1 a | +U 1 b"


def test_open_rows_that_retention_took_are_an_error(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    query = Query(table.with_options({"log.on-truncated": "fall-back"}), "speculative", scan_mode="latest")
    begun(table, "+I 2 b")
    assert query() == "+I 2 b"
    write(table, "+I 2 c")
    log.truncate("t", 0, 2)
    query.restart()
    with pytest.raises((LogTruncatedError, LogLostError)):
        query()


def test_a_consumer_keeps_what_was_not_read_and_goes_on_there(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
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
    log: FakeLog, tmp_path: Path
) -> None:
    table = make_logged(tmp_path)
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
    assert fold([first, text]) == {1: "d", 2: "e", 3: "c"}
    assert query() == ""
    assert table.consumers() == {"c": 7}


def test_what_a_consumer_cannot_keep_is_told(log: FakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    log.topics["t"].settings = {"retention.ms": "3600000"}
    Query(table.with_options({"log.on-truncated": "fall-back"}), "committed", consumer_id="c")()
    assert caplog.messages == []
    Query(table, "committed", consumer_id="c")()
    assert "not the records of topic t, which its brokers delete after 3600000 ms" in caplog.messages[0]


def test_the_former_name_of_a_value_is_warned_of_once(
    log: FakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_logged(tmp_path, log__on_truncated="hop")
    warning = "log.on-truncated=hop is now called fall-back"
    write(table, "+I 1 a")
    assert [warning in text for text in caplog.messages] == [True]
    caplog.clear()
    query = Query(table, "committed", scan_mode="latest")
    write(table, "+I 1 b", "+I 1 c")
    caplog.clear()
    log.truncate("t", 0, 2)
    assert query() == "-U 1 a | +U 1 b | -U 1 b | +U 1 c"
    assert query() == ""
    assert [warning in text for text in caplog.messages] == [True]


def test_a_rollback_is_told(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a", "+I 1 b")
    query = Query(table, "committed")
    query()
    folder = Path(table.location) / "snapshot"
    for name in ("snapshot-3", "snapshot-4"):
        (folder / name).unlink()
    (folder / "LATEST").write_text("2")
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
    folder = Path(table.location) / "snapshot"
    (folder / "snapshot-2").unlink()
    (folder / "LATEST").write_text("1")
    write(Table.open(table.location), "+I 5 e | +I 6 f | +I 7 g | +I 8 h")
    query.restart()
    with pytest.raises(RetryableError, match="snapshot 2 of table .* read in part: the table was rolled back"):
        query()


def test_a_batch_planned_again_over_another_history_is_an_error(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, changelog_producer="input")
    query = Query(table, "committed")
    write(table, "+I 1 a", "+I 1 b")
    end = query.plan()
    folder = Path(table.location) / "snapshot"
    (folder / "snapshot-2").unlink()
    (folder / "LATEST").write_text("1")
    write(Table.open(table.location), "+I 5 e")
    query.restart()
    with pytest.raises(RetryableError, match="snapshot 2 of table .* rolled back or created anew"):
        query.read(end)


def test_a_start_beyond_its_end_is_refused(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    query = Query(table, "speculative")
    states = [query.offset]
    query()
    states.append(query.offset)
    begun(table, "+I 1 b")
    query()
    states.append(query.offset)
    write(table, "+I 1 c")
    query()
    states.append(query.offset)
    for earlier, later in pairwise(states):
        query.offset = later
        with pytest.raises(InvalidRequestError, match="Begin with a new checkpoint"):
            query.read(earlier)


def test_a_reader_of_snapshots_alone_may_go_on_with_the_log(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
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


def test_an_isolation_may_be_changed_between_runs(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    fast = Query(table, "speculative")
    fast()
    begun(table, "+I 1 b | +I 2 x")
    assert fast() == "-U 1 a | +U 1 b | +I 2 x"
    safe = Query(table, "committed")
    safe.offset = fast.offset
    assert safe() == ""
    write(table, "+I 1 c")
    assert safe() == "-D 2 x | -U 1 b | +U 1 c"


def test_what_cannot_be_read_is_refused(log: FakeLog, tmp_path: Path) -> None:
    upserts = make_logged(tmp_path / "1", changelog_producer="none")
    with pytest.raises(InvalidRequestError, match="upserts=True"):
        upserts.engine.split_stream()
    with pytest.raises(LogConfigError, match="logs no rows before updates"):
        upserts.engine.split_stream(StreamRequest(isolation="speculative", upserts=True))
    with pytest.raises(InvalidRequestError, match="isolation is one of"):
        make_logged(tmp_path / "2", kafka__topic="t2").engine.split_stream(StreamRequest(isolation="serializable"))
    plain = make_logged(tmp_path / "3", log__system="none")
    assert isinstance(plain.engine.split_stream(), SplitStream)
    with pytest.raises(InvalidRequestError, match="has no log"):
        plain.engine.split_stream(StreamRequest(isolation="committed"))


def test_small_batches_carry_what_the_planning_reader_has_fetched(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, bucket="2")
    write(table, "+I 9 z")
    query = Query(table, "speculative")
    query()
    begun(table, "+I 1 a | +I 2 b | +I 3 c")
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


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_looking_for_more_reads_five_files_and_lists_none(
    log: FakeLog, tmp_path: Path, isolation: str, calls: list[str]
) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = table.engine.split_stream(StreamRequest(isolation=isolation, scan_mode="latest"))
    position = stream.first()
    for _ in range(2):
        calls.clear()
        assert stream.advance(position, StreamLimit(snapshots=1)) == position
        stream.wait(position, 0.0)
        assert sorted(calls) == ["changelog-3", "snapshot-2", "snapshot-2", "snapshot-3", "snapshot-3"]


def test_rows_that_wake_a_reader_are_shown_before_it_looks_for_snapshots(
    log: FakeLog, tmp_path: Path, calls: list[str]
) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = table.engine.split_stream(StreamRequest(isolation="speculative", scan_mode="latest"))
    position = stream.first()
    assert stream.advance(position, StreamLimit(snapshots=1)) == position
    commit = begun(table, "+I 1 b")
    stream.wait(position, 0.0)
    calls.clear()
    end = stream.advance(position, StreamLimit(snapshots=1))
    assert [line for batch in stream.read_between(position, end) for line in lines(batch)] == ["-U 1 a", "+U 1 b"]
    assert calls == []
    commit()
    stable = stream.advance(end, StreamLimit(snapshots=1))
    assert stable.next_id == 5 and list(stream.read_between(end, stable)) == []


def schedules(seeds: range, *, equal_replays: bool) -> Counts:
    counts = Counts()
    for seed in seeds:
        try:
            counts += run_schedule(seed, equal_replays=equal_replays, reader_kind=PieceReader)
        except Exception as error:
            raise AssertionError(f"seed {seed}, equal_replays={equal_replays}: {error!r}") from error
    return counts


@pytest.mark.parametrize("equal_replays", [True, False])
def test_random_schedules(equal_replays: bool) -> None:
    counts = schedules(range(QUICK), equal_replays=equal_replays)
    assert counts.stable > QUICK and counts.zombie_steps and (equal_replays or counts.retracted)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("equal_replays", [True, False])
def test_many_random_schedules(equal_replays: bool) -> None:
    seeds = seeds_of(SPLIT_READERS, "split readers", equal_replays)
    counts = schedules(seeds, equal_replays=equal_replays)
    assert counts.stable > len(seeds) and counts.zombie_steps > len(seeds) // 10
