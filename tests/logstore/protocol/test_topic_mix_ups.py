"""Topics and tables that do not belong together: refused before anything is written, or an error once it is seen."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.protocol.client import TopicFacts
from freshet.logstore.protocol.control import control_topic, first_claim
from freshet.logstore.topic_logs import TOPIC_CHECK_S, TopicLogs
from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from freshet.storage.table_engine import TaskLog
from tests.kit.fake_log import FakeClient, FakeLog
from tests.logstore.logged_tables import Stream, held, make_logged, rows, write


def two_tables(tmp_path: Path) -> tuple[Table, Table]:
    one = make_logged(tmp_path / "1")
    made_ms = int(time.time() * 1000)
    while int(time.time() * 1000) == made_ms:
        pass
    return one, make_logged(tmp_path / "2")


def test_two_tables_cannot_share_a_topic(log: FakeLog, tmp_path: Path) -> None:
    one, other = two_tables(tmp_path)
    write(one, "+I 1 a")
    for user in ("u", "v"):
        with pytest.raises(LogConfigError, match=r"topic t has the log of another table.*Set kafka.topic to a name"):
            other.writer(user)
    with pytest.raises(LogConfigError, match="has the log of another table"):
        other.engine.log.open("u")
    assert other.latest_snapshot() is None
    stream = Stream(one)
    assert stream() == "+I 1 a"
    write(one, "+I 1 b")
    assert stream() == "-U 1 a | +U 1 b"


def test_of_two_tables_that_begin_at_once_the_first_has_the_topic(log: FakeLog, tmp_path: Path) -> None:
    one, other = two_tables(tmp_path)
    other_is_opened = False

    def open_other(place: object) -> None:
        nonlocal other_is_opened
        if place == control_topic("t") and not other_is_opened:
            other_is_opened = True
            other.engine.log.open("u")

    log.before_append = open_other
    with pytest.raises(LogConfigError, match="has the log of another table"):
        one.writer("u")
    log.before_append = lambda place: None
    write(other, "+I 1 a")
    assert held(other) == {1: "a"}


def test_a_log_of_an_older_version_names_no_table(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a")
    partition = log.partition(control_topic("t"))
    partition.records = [each for each in partition.records if b"recover" not in each.value]
    assert first_claim(log.client(), "t") is None
    write(table, "+I 1 b")
    assert held(table) == {1: "b"}


def test_a_topic_that_is_created_again_under_a_writer_is_seen_before_the_commit(log: FakeLog, table: Table) -> None:
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a | +I 2 b"))
        writer.commit()
        log.recreate("t")
        writer.write(rows("+I 1 c"))
        with pytest.raises(LogConfigError, match=r"offset 0, though those up to \d+ were given.*created again"):
            writer.commit()
        writer.abort()
    assert held(table) == {1: "a", 2: "b"}


def test_tasks_ask_for_their_topic_now_and_then(log: FakeLog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each batch: the answer takes longer than the log itself."""
    opened = table.engine.log.open("u")
    now, asked = 0.0, 0
    logs = TopicLogs(lambda options: log.client(), clock=lambda: now)
    topic = FakeClient.topic

    def counted(self: FakeClient, name: str) -> TopicFacts | None:
        nonlocal asked
        asked += 1
        return topic(self, name)

    monkeypatch.setattr(FakeClient, "topic", counted)
    task = TaskLog(opened.identity, opened.epoch, 0)
    logs.task_sink(table.engine.log.logged_table, task)
    log.recreate("t")
    now = TOPIC_CHECK_S - 1
    logs.task_sink(table.engine.log.logged_table, task)
    assert asked == 1
    now = TOPIC_CHECK_S
    with pytest.raises(LogConfigError, match="deleted and created again while it was written"):
        logs.task_sink(table.engine.log.logged_table, task)


def test_a_topic_that_goes_away_under_a_reader_that_waits_is_an_error(
    table: Table, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, "+I 1 a")
    stream = table.stream(isolation=isolation, max_wait_s=60.0)
    assert next(stream).num_rows == 1
    seen: list[str] = []
    known = FakeClient.topic

    def facts(self: FakeClient, name: str) -> TopicFacts | None:
        if name != "t":
            return known(self, name)
        seen.append(name)
        if len(seen) == 1:
            raise LogUnavailableError("the brokers are away for a moment")
        return None

    monkeypatch.setattr(FakeClient, "topic", facts)
    with pytest.raises(LogConfigError, match="topic t of its log is not there"):
        next(stream)
    assert len(seen) == 4  # away, missing once, missing twice: an error


def test_a_topic_that_is_another_one_is_an_error_for_a_reader_that_waits(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a")
    stream = table.stream(isolation="committed", max_wait_s=60.0)
    assert next(stream).num_rows == 1
    log.recreate("t")
    with pytest.raises(LogConfigError, match="deleted and created again"):
        next(stream)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log__consistency": "transactional", "log__format": "json", "log__changelog_mode": "upsert"},
    ],
    ids=["eventual", "transactional"],
)
@pytest.mark.parametrize("place", ["t", "t-control"])
def test_a_topic_with_records_of_others_is_refused_before_anything_is_made(
    log: FakeLog, tmp_path: Path, options: dict[str, str], place: str
) -> None:
    log.client().create_topic(place, 1, {})
    log.topics[place].partitions[0].append(None, b'{"id": 1}', 0)
    table = make_logged(tmp_path, **options)
    open_log = (
        table.engine.log.open_publisher if table.options.publishes_changes else lambda: table.engine.log.open("u")
    )
    for ask in (table.engine.log.check, lambda: table.writer("u"), open_log):
        with pytest.raises(
            LogConfigError, match=rf"topic ({place} has records of which|t has a control topic, {place}, of)"
        ):
            ask()
        assert len(log.topics[place].partitions[0].records) == 1
        if place == "t":
            assert list(log.topics) == [place]


@pytest.mark.parametrize("consistency", ["eventual", "transactional"])
def test_a_topic_of_its_own_and_an_empty_one_are_right(log: FakeLog, tmp_path: Path, consistency: str) -> None:
    formats = {"eventual": "arrow", "transactional": "debezium-json"}
    given = {"log__format": formats[consistency], "log__consistency": consistency}
    table = make_logged(tmp_path / "1", **given)
    time.sleep(0.002)  # tables are distinguished by the millisecond in which they were made
    other = make_logged(tmp_path / "2", kafka__topic="u", **given)
    table.engine.log.check()
    assert not log.topics, "asking makes nothing"
    log.client().create_topic("t", 1, {})
    log.topics["t"].partitions[0].append(None, b"expired", 0)
    log.truncate("t", 0, 1)
    table.engine.log.check()
    if consistency == "transactional":
        log.topics.clear()
    write(table, "+I 1 a")
    for again in (table, Catalog(str(tmp_path / "1")).table("db.t")):
        again.engine.log.check()
        write(again, "+I 1 b")
    with pytest.raises(LogConfigError, match="has the log of another table"):
        other.with_options({"kafka.topic": "t"}).engine.log.check()
    switched = {"eventual": "transactional", "transactional": "eventual"}[consistency]
    with pytest.raises(LogConfigError, match=f"were written with log.consistency={consistency}"):
        table.with_options({"log.consistency": switched, "log.format": formats[switched]}).engine.log.check()


def test_a_claim_without_a_commit_keeps_its_table_in(table: Table) -> None:
    """It named itself, logged rows, and died before its first commit: what is in the topic is its own."""
    sink = table.engine.log.open("u").sink(table.schema.id)
    sink.begin(0, 0)
    sink.log(b"", 0, logged_rows())
    sink.finish()
    table.engine.log.check()
    write(table, "+I 1 a")
    assert held(table) == {1: "a"}


def logged_rows() -> pa.Table:
    return pa.table({"_ROW_KIND": pa.array([0], pa.int8()), "k": pa.array([1], pa.int64()), "v": ["a"]})
