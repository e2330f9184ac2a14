"""log.consistency=transactional: consumers that read what is committed see each committed change once, in order.

The log is one in memory; tables, writers, files and the publisher are the real ones.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.logstore.exceptions import LogConfigError, LogUnavailableError
from freshet.logstore.writing.publisher import log_rows, transaction_groups, whole_updates
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.log_systems import PUBLISHER_CONSUMER
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import folded, held, lines, make_logged, overwrite, rolled_back, rows, write
from tests.logstore.writing.published import changelog, changes, dying_at, make, make_append, published

UPSERT = {"log.changelog-mode": "upsert"}


@pytest.fixture
def table(log: FakeLog, tmp_path: Path) -> Table:
    """An empty table that publishes into a topic in memory."""
    return make(tmp_path)


@pytest.mark.parametrize(
    ("after", "latest", "changed", "groups"),
    [
        (0, 0, set(), []),
        (3, 3, {3}, []),
        (0, 1, {1}, [[1]]),
        (0, 2, {2}, [[1, 2]]),
        (2, 7, {4, 5}, [[3, 4], [5], [6, 7]]),
        (4, 6, set(), [[5, 6]]),
    ],
)
def test_snapshots_without_changes_go_with_the_next(
    after: int, latest: int, changed: set[int], groups: list[list[int]]
) -> None:
    assert [list(ids) for ids in transaction_groups(after, latest, changed.__contains__)] == groups


def test_updates_stay_whole_and_before_images_may_be_left_out() -> None:
    def batch(*kinds: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"k": pa.array(range(len(kinds)), pa.int64()), "_ROW_KIND": list(kinds)})

    cut = [
        part.column("_ROW_KIND").to_pylist() for part in whole_updates([batch("+I", "-U"), batch("+U"), batch("-U")])
    ]
    assert cut == [["+I"], ["-U", "+U"], [], ["-U"]]
    source = pa.Table.from_batches([batch("+I", "-U", "+U", "-D")])
    assert log_rows(source, has_before_images=True).to_pydict() == {"_ROW_KIND": [0, 1, 2, 3], "k": [0, 1, 2, 3]}
    assert log_rows(source, has_before_images=False).to_pydict() == {"_ROW_KIND": [0, 2, 3], "k": [0, 2, 3]}


def test_each_commit_is_published_in_one_transaction(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a | +I 2 b", "+U 1 c | -D 2 b")
    assert changes(log) == ["+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b"] == [changelog(table)]
    assert published(log) == [0, 2, 4]  # each with the snapshot of its rows, whose changes the compaction emits
    assert [each.key for each in log.seen("t")[0]] == [b'{"k":1}', b'{"k":2}', b'{"k":1}', b'{"k":2}']
    assert table.consumers() == {PUBLISHER_CONSUMER: 4}


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, "+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b"),
        ({"changelog_producer": "input"}, "+I 1 a | +I 2 b | +U 1 c | -D 2 b"),
        (
            {"changelog_producer": "full-compaction", "full_compaction__delta_commits": "1"},
            "+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b",
        ),
        ({"changelog_producer": "none"}, "+I 1 a | +I 2 b | +I 1 c | -D 2 b"),
        ({"log__changelog_mode": "upsert"}, "+I 1 a | +I 2 b | +I 1 c | -D 2 b"),
        ({"log__ignore_delete": "true"}, "+I 1 a | +I 2 b | +I 1 c"),
        ({"merge_engine": "first-row"}, "+I 1 a | +I 2 b"),
    ],
)
def test_what_is_published_is_what_a_log_of_the_table_would_have(
    log: FakeLog, tmp_path: Path, options: dict[str, str], seen: str
) -> None:
    table = make(tmp_path, **options)
    rest = "" if "merge_engine" in options else " | -D 2 b"
    write(table, "+I 1 a | +I 2 b", f"+U 1 c{rest}")
    table.writer("last").close()
    # An update without the row before it is op c, as a log without it has it.
    assert changes(log) == [seen.replace("+U 1 c", "+I 1 c") if "-U" not in seen else seen]


def test_compactions_may_run_elsewhere(log: FakeLog, tmp_path: Path) -> None:
    table = make(tmp_path, write_only="true")
    write(table, "+I 1 a | +I 2 b")
    compacting = table.without_log().with_options({"write-only": "false", "log.system": "none"})
    compacting.compact()
    write(table, "+I 1 c")
    assert changes(log) == ["+I 1 a | +I 2 b"]
    compacting.compact()
    table.engine.log.open_publisher().close()
    assert changes(log) == ["+I 1 a | +I 2 b | -U 1 a | +U 1 c"] == [changelog(table)]


def test_kafka_partition_is_bucket(log: FakeLog, tmp_path: Path) -> None:
    table = make(tmp_path, bucket="3")
    write(table, " | ".join(f"+I {key} a" for key in range(20)), " | ".join(f"+U {key} b" for key in range(20)))
    parts = changes(log)
    assert len(parts) == 3 and all(parts)
    found: dict[int, str] = {}
    for part in parts:
        found |= folded(part)
    assert found == held(table)


def test_a_table_with_rows_begins_with_the_changes_to_come(
    log: FakeLog, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    write(table.without_log(), "+I 1 a", "+I 1 b")
    assert not log.topics
    with caplog.at_level(logging.WARNING):
        write(table, "+I 1 c")
    assert changes(log) == ["-U 1 b | +U 1 c"]
    assert "topic t begins with the changes after snapshot 4: rows that were in the table before" in caplog.text
    write(table.without_log(), "+I 1 d")  # of another program: published by the next publisher
    assert changes(log) == ["-U 1 b | +U 1 c"]
    table.engine.log.open_publisher().close()
    assert changes(log) == ["-U 1 b | +U 1 c | -U 1 c | +U 1 d"]


def test_brokers_that_are_away_fail_no_commit(log: FakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    retained = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
    table = make(tmp_path, **retained)
    with table.writer("u") as writer, caplog.at_level(logging.WARNING):
        writer.write(rows("+I 1 a"))
        writer.commit()
        log.is_down = True
        for value in "bcde":
            writer.write(rows(f"+I 1 {value}"))
            writer.commit()
        assert held(table) == {1: "e"}
        assert "what is committed after snapshot 2 is not yet published to topic t: no broker answered" in caplog.text
        table.store.env.finish_later()  # expiry runs behind the commits
        assert table.consumers() == {PUBLISHER_CONSUMER: 2} and table.snapshots()[0].id == 2  # nothing expires
        log.is_down = False
    # Closing tries once more.
    assert folded(changes(log)[0]) == held(table)
    assert changes(log)[0].count("+U") == 4
    write(table, "+I 1 f")
    write(table, "+I 1 g")
    assert table.snapshots()[0].id > 2


def test_brokers_that_are_away_at_the_start_are_an_error(log: FakeLog, table: Table) -> None:
    log.is_down = True
    with pytest.raises(LogUnavailableError):
        table.writer("u")


def test_schemas_may_change(log: FakeLog, table: Table) -> None:
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a"))
        writer.commit()
        table.alter(AddColumn("w", parse_data_type("INT")))
        writer.write(rows("+I 1 b"))
        writer.commit()
        writer.write({"k": [1], "v": ["c"], "w": [7]})
        writer.commit()
    assert [json.loads(each.value)["after"] for each in log.seen("t")[0]] == [
        {"k": 1, "v": "a"},
        {"k": 1, "v": "b", "w": None},
        {"k": 1, "v": "c", "w": 7},
    ]


def test_a_crash_between_commit_and_publication_loses_nothing(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a")
    for step, value in zip(("begin", "send", "commit", "committed"), "bcde", strict=True):
        writer = table.writer("u")
        writer.write(rows(f"+I 1 {value}"))
        with dying_at(log, step):
            writer.commit()
        assert held(table) == {1: value}
    table.engine.log.open_publisher()
    assert changes(log) == [changelog(table)]
    [partition] = log.topics["t"].partitions
    assert len(partition.records) > len(partition.committed())  # what was aborted is there, and not seen


@pytest.mark.parametrize("step", ["begin", "send", "commit", "committed"])
def test_a_session_goes_on_after_it_was_interrupted(log: FakeLog, table: Table, step: str) -> None:
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a"))
        writer.commit()
        writer.write(rows("+I 1 b"))
        with dying_at(log, step, KeyboardInterrupt):
            writer.commit()
        writer.abort()
        writer.write(rows("+I 1 c"))
        writer.commit()
    assert changes(log) == [changelog(table)]


@pytest.mark.parametrize("step", ["begin", "send", "commit", "committed"])
def test_a_crash_in_the_very_first_transaction_keeps_no_writer_out(log: FakeLog, table: Table, step: str) -> None:
    with dying_at(log, step):
        table.writer("u")
    write(table, "+I 1 a")
    assert changes(log) == [changelog(table)] == ["+I 1 a"]


def test_a_zombie_publishes_nothing_twice(log: FakeLog, table: Table) -> None:
    zombie = table.writer("u")
    zombie.write(rows("+I 1 a"))
    zombie.commit()
    write(table, "+I 1 b")
    session = dict(log.sessions)
    zombie.write(rows("+I 1 c"))
    zombie.commit()
    assert log.sessions != session  # it was fenced, and has looked again how far the log is
    assert changes(log) == [changelog(table)]
    assert folded(changes(log)[0]) == {1: "c"}


def test_topics_that_do_not_fit_are_refused(log: FakeLog, tmp_path: Path) -> None:
    eventual = make_logged(tmp_path / "1")
    write(eventual, "+I 1 a")
    switched = eventual.with_options({"log.consistency": "transactional", "log.format": "json", **UPSERT})
    with pytest.raises(LogConfigError, match="were written with log.consistency=eventual.*set kafka.topic to a new"):
        switched.writer("u")
    table = make(tmp_path / "2", kafka__topic="t2")
    write(table, "+I 1 a")
    with pytest.raises(LogConfigError, match="were written with log.consistency=transactional"):
        table.with_options({"log.consistency": "eventual", "log.format": "arrow"}).writer("u")
    other = make(tmp_path / "3", kafka__topic="t2")
    with pytest.raises(LogConfigError, match="topic t2 has the log of another table"):
        other.writer("u")
    client = log.client()
    client.create_topic("t4", 1, {})
    client.create_topic("t5", 2, {})
    log.topics["t4"].partitions[0].append(None, b"of others", 0)
    with pytest.raises(LogConfigError, match="topic t4 has records of which it is not known what they are"):
        make(tmp_path / "4", kafka__topic="t4").writer("u")
    with pytest.raises(LogConfigError, match="has 1 buckets and topic t5 of its log 2 partitions"):
        make(tmp_path / "5", kafka__topic="t5").writer("u")
    log.recreate("t2")
    with pytest.raises(LogConfigError, match="topic t2 was deleted and created again"):
        table.writer("u")
    begun = table.with_options({"kafka.topic": "t6"})
    write(begun, "+I 1 b")
    assert changes(log, "t6") == ["-U 1 a | +U 1 b"]


def test_a_topic_that_is_created_again_under_a_writer_is_warned_of(
    log: FakeLog, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    with table.writer("u") as writer:
        for value in "ab":
            writer.write(rows(f"+I 1 {value}"))
            writer.commit()
        log.recreate("t")
        for value in "cd":  # the first try knows by the offset, which later ones have nothing to compare with
            caplog.clear()
            writer.write(rows(f"+I 1 {value}"))
            writer.commit()
            assert "not yet published to topic t" in caplog.text and "deleted and created again" in caplog.text
    assert changes(log) == [""]
    assert held(table) == {1: "d"}


def test_what_expired_unpublished_and_what_was_rolled_back_is_refused(log: FakeLog, tmp_path: Path) -> None:
    table = make(tmp_path / "1")
    write(table, "+I 1 a")
    write(table.without_log(), "+I 1 b", "+I 1 c")
    assert table.delete_consumer(PUBLISHER_CONSUMER)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    expired = (
        r"topic t has the changes up to snapshot 2, and those of snapshot 3 have expired unpublished; set kafka.to"
    )
    with pytest.raises(LogConfigError, match=expired):
        table.writer("u")
    back = make(tmp_path / "2", kafka__topic="t2")
    write(back, "+I 1 a", "+I 1 b")
    with pytest.raises(LogConfigError, match="topic t2 has the changes up to snapshot 4, and since then the table was"):
        rolled_back(back, 2).writer("u")


def test_an_overwrite_is_published_as_deletes_and_inserts(
    log: FakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(tmp_path / "1", changelog_producer="input")
    write(table, "+I 1 a | +I 2 b")
    overwrite(table, "+I 3 q")
    write(table, "+I 4 r")
    assert changes(log) == ["+I 1 a | +I 2 b | -D 1 a | -D 2 b | +I 3 q | +I 4 r"]
    append = make_append(tmp_path / "2", kafka__topic="t2", log__format="json")
    write(append, "+I 1 a")
    overwrite(append, "+I 3 q")
    write(append, "+I 4 r")
    assert "snapshot 2 of table db.t deletes rows, which log.format=json cannot express" in caplog.text
    write(append.with_options({"log.format": "debezium-json"}), "+I 5 s")
    assert [each.value[:1] for each in log.seen("t2")[0]] == [b"{"] * 5


def test_readers_of_this_library_follow_the_snapshots(table: Table) -> None:
    write(table, "+I 1 a", "+I 1 b")
    stream = table.stream(isolation="committed", scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0.0)
    assert [line for batch in stream for line in lines(batch)] == ["+I 1 a", "-U 1 a", "+U 1 b"]
    assert table.engine.split_stream(StreamRequest(isolation="committed")).schema == table.engine.split_stream().schema
    refused = "changes are published after their commit.*isolation is committed"
    with pytest.raises(InvalidRequestError, match=refused):
        table.stream(isolation="speculative")
    with pytest.raises(InvalidRequestError, match=refused):
        table.engine.split_stream(StreamRequest(isolation="speculative"))
    with pytest.raises(InvalidRequestError, match="tasks log nothing"):
        table.engine.log.open("u")
    with pytest.raises(InvalidRequestError, match="publishes nothing; set log.system=kafka"):
        table.with_options({"log.system": "none"}).engine.log.open_publisher()
    with pytest.raises(InvalidRequestError, match="have no log_state"):
        table.stream(isolation="committed", log_state={})


def test_arrow_is_not_for_other_consumers(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"cannot read log.format=arrow; set log.format=debezium-json or json"
    ):
        make(tmp_path, log__format="arrow")
