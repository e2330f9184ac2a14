"""Tables with a log, written and read through the façade: what is logged is what the table holds.

Beside N14 to N20, the scenarios of the old log store (V01 …) that are about what a reader of a log sees.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from freshet.logstore.exceptions import (
    LogConfigError,
    LogLakeOnlyError,
    LogLostError,
    LogTruncatedError,
    LogUnavailableError,
)
from freshet.logstore.protocol.client import Fetched, TopicPartition
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.logs.writers import TableLog, TaskLog
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.table import RenameColumn, SetOption, Table
from tests.kit.fake_log import FakeClient, FakeLog, FakeProducer
from tests.logstore.logged_tables import make_logged, rows, told, write


def held(table: Table) -> dict[int, str]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def folded(text: str, before: dict[int, str] | None = None) -> dict[int, str]:
    found = dict(before or {})
    for kind, key, value in (part.split() for part in text.split(" | ") if part):
        if kind in ("-U", "-D"):
            assert found.pop(int(key)) == value
        else:
            assert int(key) not in found
            found[int(key)] = value
    return found


ISOLATIONS = ("committed", "speculative")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_lookup_tables_tell_what_compaction_tells(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path)
    stream = told(table, isolation)
    assert stream() == ""
    write(table, "+I 1 a | +I 2 b")
    assert stream() == "+I 1 a | +I 2 b"
    write(table, "+I 1 c | -D 2 x | +I 3 d", "+I 3 e")
    text = stream()
    assert text == "-U 1 a | +U 1 c | -D 2 b | +I 3 d | -U 3 d | +U 3 e"
    assert folded(text, {1: "a", 2: "b"}) == held(table)
    assert told(table, isolation)() == "+I 1 c | +I 3 e"  # latest-full


def test_input_and_append_tables_tell_what_is_written(log: FakeLog, tmp_path: Path) -> None:
    fed = make_logged(tmp_path / "1", changelog_producer="input")
    write(fed, "+I 1 a | +I 2 b", "-U 1 a | +U 1 c | -D 2 b")
    assert told(fed, from_snapshot=1)() == "+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b"
    append = make_logged(tmp_path / "2", keyed=False, kafka__topic="t2")
    write(append, "+I 2 b | +I 1 a", "+I 1 a")
    assert told(append, "speculative", from_snapshot=1)() == "+I 2 b | +I 1 a | +I 1 a"


def test_without_lookup_the_last_row_of_each_key_is_logged(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, changelog_producer="none")
    stream = told(table)
    stream()
    write(table, "+I 1 a | +I 1 b | +I 2 c | -D 3 x")
    assert stream() == "+I 1 b | +I 2 c | -D 3 x"
    with pytest.raises(LogConfigError, match="logs no rows before updates"):
        told(table, "speculative")


def test_merging_engines_log_whole_rows(log: FakeLog, tmp_path: Path) -> None:  # N18
    table = make_logged(tmp_path, merge_engine="aggregation", fields__v__aggregate_function="listagg")
    write(table, "+I 1 a", "+I 1 b")
    assert told(table, from_snapshot=1)() == "+I 1 a | -U 1 a | +U 1 a,b"


def test_rows_are_there_before_their_commit(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    fast, safe = told(table, "speculative"), told(table)
    assert fast() == safe() == "+I 1 a"
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=_task_log(driver, 1))
    task.write(rows("+I 1 b"))
    messages = task.prepare_commit(1)
    assert (fast(), safe()) == ("-U 1 a | +U 1 b", "")
    table.engine.committer("u", log=driver.identity).commit(1, messages)
    assert (fast(), safe()) == ("", "-U 1 a | +U 1 b")


def _task_log(driver: TableLog, attempt: int) -> TaskLog:
    return TaskLog(driver.identity, driver.epoch, attempt)


def test_a_crash_between_log_and_commit_is_healed(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    fast, safe = told(table, "speculative"), told(table)
    fast(), safe()
    dead = table.engine.log.open("u")
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=_task_log(dead, 1))
    task.write(rows("+I 1 b | +I 2 x"))
    task.prepare_commit(1)
    assert (fast(), safe()) == ("-U 1 a | +U 1 b | +I 2 x", "")
    write(table, "+I 1 b")  # the replay has other rows
    assert (fast(), safe()) == ("-D 2 x", "-U 1 a | +U 1 b")
    assert held(table) == {1: "b"}


def test_filters_and_projections_give_well_formed_streams(log: FakeLog, tmp_path: Path) -> None:  # N14 to N16
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    streams = {
        name: told(table, "speculative", scan_mode="latest", **how)
        for name, how in {
            "a": {"filter": "v = 'a'"}, "b": {"filter": "v = 'b'"}, "k": {"columns": ["k"]}, "v": {"columns": ["v"]},
        }.items()
    }  # fmt: skip
    for stream in streams.values():
        assert stream() == ""
    write(table, "+I 1 b")
    assert {name: stream() for name, stream in streams.items()} == {
        "a": "-D 1 a",
        "b": "+I 1 b",
        "k": "",
        "v": "-U a | +U b",
    }


def test_a_replay_that_differs_after_a_minus_u_is_well_formed_when_filtered(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = told(table, "speculative", scan_mode="latest", filter="v = 'c'")
    stream()
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=_task_log(table.engine.log.open("u"), 1))
    task.write(rows("+I 1 b"))
    task.prepare_commit(1)
    assert stream() == ""
    write(table, "+I 1 c")
    assert stream() == "+I 1 c"


def test_schemas_may_change_under_a_reader(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = told(table, "speculative", scan_mode="latest")
    stream()
    later = table.alter(RenameColumn("v", "w"))
    with later.writer("u") as writer:
        writer.write({"k": [1], "w": ["b"]})
        writer.commit()
    assert stream() == "-U 1 a | +U 1 b"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_starts(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a", "+I 1 b", "+I 2 c")
    snapshots = [each.id for each in table.snapshots() if each.commit_kind == "COMPACT"]
    updates = "-U 1 a | +U 1 b | +I 2 c"
    assert told(table, isolation, scan_mode="latest")() == ""
    assert told(table, isolation, from_snapshot=snapshots[1])() == updates
    assert told(table, isolation, scan_mode="from-snapshot-full", from_snapshot=snapshots[0])() == f"+I 1 a | {updates}"
    assert told(table, isolation, from_timestamp=0)() == f"+I 1 a | {updates}"
    assert told(table, isolation, from_timestamp=2**62)() == ""  # V32
    with pytest.raises(NotFoundError, match="snapshot 99 was not committed yet"):
        told(table, isolation, from_snapshot=99)
    with pytest.raises(InvalidRequestError, match="needs from_snapshot"):
        told(table, isolation, scan_mode="from-snapshot")
    with pytest.raises(InvalidRequestError, match="isolation is one of committed, speculative"):
        told(table, "serializable")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_compacted_full_begins_with_the_rows_of_the_last_compaction(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make_logged(tmp_path, changelog_producer="input")
    write(table, "+I 1 a | +I 2 b")
    table.without_log().compact(full=True)
    write(table, "-U 1 a | +U 1 c")
    stream = told(table, isolation, scan_mode="compacted-full", with_snapshot_id=True)
    assert stream() == "+I 1 a 2 | +I 2 b 2 | -U 1 a 3 | +U 1 c 3"


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_consumer_goes_on_where_it_stopped_and_holds_back_expiry(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    asked = {"isolation": isolation, "consumer_id": "c", "max_wait_s": 0.0}
    first = table.stream(**asked)
    assert table.consumers() == {"c.state": 2}, "the rows that come first are kept"
    assert [batch.to_pylist() for batch in first] == [[{"k": 1, "v": "a", "_ROW_KIND": "+I"}]]
    assert table.consumers() == {"c": 3} and first.next_snapshot_id == 3
    write(table, "+I 1 b")
    stopped = table.stream(**asked)
    assert next(stopped).num_rows == 2
    stopped.close()
    assert table.consumers() == {"c": 3}, "not come back from"
    write(table, "+I 2 c")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert [each.id for each in table.snapshots()] == [3, 4, 5, 6]
    again = told(table, isolation, consumer_id="c", scan_mode="latest", with_snapshot_id=True)
    assert again() == "-U 1 a 4 | +U 1 b 4 | +I 2 c 6"
    assert table.consumers() == {"c": 7}


def test_a_lost_record_is_never_a_gap(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    log.lose("t", 0, 0)
    for isolation in ISOLATIONS:
        with pytest.raises(LogLostError, match="topic t partition 0"):
            told(table, isolation, from_snapshot=1)()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_retention_that_overtakes_a_reader_is_an_error_or_read_from_files(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make_logged(tmp_path)
    stream = told(table, isolation)
    stream()
    write(table, "+I 1 a", "+I 1 b", "+I 2 c")
    log.truncate("t", 0, 2)
    with pytest.raises(LogTruncatedError, match="topic t partition 0 has offsets 2 to 3"):
        stream()
    falling_back = told(table.with_options({"log.on-truncated": "fall-back"}), isolation, from_snapshot=1)
    assert falling_back() == "+I 1 a | -U 1 a | +U 1 b | +I 2 c"
    write(table, "+I 3 d")
    assert falling_back() == "+I 3 d"


def test_a_topic_that_was_created_again_is_refused(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    log.recreate("t")
    for isolation in ISOLATIONS:
        with pytest.raises(LogConfigError, match="deleted and created again"):
            told(table, isolation)()
    with pytest.raises(InvalidRequestError, match="Set kafka.topic to a new name"):
        table.writer("u")
    other = table.alter(SetOption("kafka.topic", "t2"))
    write(other, "+I 1 b", user="somebody-else")
    stream = told(other, scan_mode="latest")
    write(other, "+I 1 c", user="somebody-else")
    assert stream() == "-U 1 b | +U 1 c"


def test_a_second_user_is_refused(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    with pytest.raises(InvalidRequestError, match="a log has one commit user; 'v' cannot"):
        table.writer("v")
    with pytest.raises(InvalidRequestError, match="this writer does not write it"):
        table.engine.task_writer(base_snapshot_id=None)
    with pytest.raises(InvalidRequestError, match="this writer does not write it"):
        table.engine.committer("u")


def test_commits_without_a_log_follow_the_policy(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = told(table.with_options({"log.on-lake-only": "fail"}))
    stream()
    write(table.with_options({"log.system": "none"}), "+I 1 b", user="loader")
    write(table, "+I 1 c")
    with pytest.raises(LogLakeOnlyError, match="snapshot 4 .COMPACT by 'loader'. changes rows and was not logged"):
        stream()
    policies = {
        policy: told(table.with_options({"log.on-lake-only": policy}), from_snapshot=3)()
        for policy in ("apply", "skip")
    }
    assert policies == {"apply": "-U 1 a | +U 1 b | -U 1 b | +U 1 c", "skip": "-U 1 b | +U 1 c"}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("producer", ["lookup", "input"])
def test_n17_an_overwrite_is_read_from_its_files(log: FakeLog, tmp_path: Path, isolation: str, producer: str) -> None:
    table = make_logged(tmp_path, changelog_producer=producer)
    write(table, "+I 1 a | +I 2 b")
    stream = told(table, isolation, scan_mode="latest")
    unlogged = table.with_options({"log.system": "none"})
    task = unlogged.engine.task_writer(base_snapshot_id=None)
    task.write(rows("+I 3 q"))
    [message] = task.prepare_commit(0)
    gone = tuple(entry.file for entry in table.files())
    overwrite = CommitMessage(message.partition, 0, 1, new_files=message.new_files, deleted_files=gone)
    unlogged.engine.committer("loader").commit(0, [overwrite])
    text = stream()
    write(table, "+I 4 r")
    text = " | ".join(part for part in (text, stream()) if part)
    assert text.startswith("-D 1 a | -D 2 b | +I 3 q")
    assert folded(text, {1: "a", 2: "b"}) == held(table) == {3: "q", 4: "r"}


def test_an_overwrite_of_an_append_table_is_read_from_its_files(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, keyed=False)
    write(table, "+I 1 a | +I 2 b")
    stream = told(table, scan_mode="latest")
    unlogged = table.with_options({"log.system": "none"})
    task = unlogged.engine.task_writer(base_snapshot_id=None)
    task.write(rows("+I 3 q"))
    [message] = task.prepare_commit(0)
    gone = tuple(entry.file for entry in table.files())
    overwrite = CommitMessage(message.partition, 0, 1, new_files=message.new_files, deleted_files=gone)
    unlogged.engine.committer("loader").commit(0, [overwrite])
    assert stream() == "-D 1 a | -D 2 b | +I 3 q"


def test_a_log_may_be_switched_on_for_a_table_with_data(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table.with_options({"log.system": "none"}), "+I 1 a", user="loader")
    stream = told(table)
    assert stream() == "+I 1 a"
    write(table, "+I 1 b")
    assert stream() == "-U 1 a | +U 1 b"


@pytest.mark.parametrize("isolation", ["committed", "speculative"])
def test_a_reader_begins_where_no_log_was_and_older_snapshots_have_expired(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    """None of the snapshots that are left says where the log stands, and those before cannot be asked."""
    table = make_logged(tmp_path, snapshot__num_retained__min="1", snapshot__num_retained__max="2")
    loaded = table.with_options({"log.system": "none"})
    for letter in "abcdef":
        write(loaded, f"+I 1 {letter}", user="loader")
    loaded.expire_snapshots(retain_max=2, retain_min=1, older_than_ms=0)
    assert min(snapshot.id for snapshot in table.snapshots()) > 1
    stream = told(table, isolation)
    assert stream() == "+I 1 f"
    write(table, "+I 1 g")
    assert stream() == "-U 1 f | +U 1 g"


def test_a_commit_that_cannot_be_logged_is_not_made(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a"))
        log.is_down = True
        with pytest.raises(LogUnavailableError):
            writer.commit()
        log.is_down = False
        writer.abort()
        writer.write(rows("+I 1 b"))
        writer.commit()
    assert held(table) == {1: "b"} and told(table, from_snapshot=1)() == "+I 1 b"


def test_many_rows_are_logged_from_their_files(log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.increment.EMITTED_BYTES_MAX", 10)
    for number, options in enumerate([{}, {"changelog_producer": "input"}, {"changelog_producer": "none"}]):
        table = make_logged(tmp_path / str(number), kafka__topic=f"t{number}", **options)
        write(table, "+I 1 a | +I 2 b | +I 3 c")
        assert told(table, from_snapshot=1)() == "+I 1 a | +I 2 b | +I 3 c"
    table = make_logged(tmp_path / "append", keyed=False, kafka__topic="append")
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    assert told(table, from_snapshot=1)() == "+I 1 a | +I 2 b | +I 3 c"


def test_a_compaction_that_gives_way_takes_what_it_logged_along(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__on_lake_only="apply")
    write(table, "+I 1 a | +I 2 b", "+I 9 z")
    fast, safe = told(table, "speculative"), told(table)
    before = folded(fast())
    assert folded(safe()) == before
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=_task_log(driver, 1))
    task.write(rows("+I 1 c"))
    messages = task.prepare_commit(2)
    shown = fast()
    table.with_options({"log.system": "none"}).compact(full=True)
    result = table.engine.committer("u", log=driver.identity).commit(2, messages)
    assert result.aborted_compactions
    write(table, "+I 3 e")
    assert folded(shown + " | " + fast(), before) == held(table) == folded(safe(), before)
    assert held(table) == {1: "c", 2: "b", 3: "e", 9: "z"}


@pytest.mark.parametrize("is_read_early", [True, False])
def test_what_a_lost_compaction_logged_is_not_shown_again_once_files_have_told_it(
    log: FakeLog, tmp_path: Path, *, is_read_early: bool
) -> None:
    """The log's writer stays silent afterwards: no later batch of it takes anything back."""
    table = make_logged(tmp_path, log__on_lake_only="apply")
    write(table, "+I 1 a | +I 2 b", "+I 9 z")
    fast = told(table, "speculative")
    before = folded(fast())
    driver = table.engine.log.open("u")
    base = table.latest_snapshot()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id, log=_task_log(driver, 1))
    task.write(rows("+I 1 c"))
    messages = task.prepare_commit(2)
    shown = fast() if is_read_early else ""
    unlogged = table.without_log()
    unlogged.compact(full=True)
    assert table.engine.committer("u", log=driver.identity).commit(2, messages).aborted_compactions
    for text in ("+I 1 d", "+I 5 e"):
        write(unlogged, text)
        shown = " | ".join(filter(None, [shown, fast()]))
        assert folded(shown, before) == held(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"changelog_producer": "none", "log__changelog_mode": "all"}, "needs changelog-producer=lookup or input"),
        ({"changelog_producer": "full-compaction", "log__changelog_mode": "all"}, "needs changelog-producer=lookup"),
        ({"changelog_producer": "none", "merge_engine": "partial-update"}, "merge-engine=partial-update needs"),
        ({"changelog_producer": "none", "merge_engine": "first-row"}, "merge-engine=first-row needs"),
        ({"changelog_producer": "input", "sequence__field": "v"}, "sequence.field needs changelog-producer=lookup"),
        ({"lookup_wait": "false"}, "needs lookup-wait=true"),
        ({"lookup_compact": "gentle"}, "lookup-compact=radical"),
        ({"write_only": "true"}, "write-only tables cannot have a log"),
        ({"kafka__topic": " "}, "needs the option kafka.topic"),
        ({"kafka__topic": "a topic"}, "kafka.topic=a topic: a topic has letters"),
        ({"kafka__topic": ".."}, "a topic has letters"),
        ({"kafka__topic": "t" * 242}, "241 of them at most"),
        ({"kafka__acks": "1"}, "kafka.acks=1: .* leave the option out, it is all"),
        ({"kafka__enable__idempotence": "false"}, "kafka.enable.idempotence=false"),
        ({"log__system": "none", "log__changelog_mode": "upsert"}, "log.changelog-mode=upsert needs a log"),  # V43
        ({"log__system": "none", "log__consistency": "eventual"}, "log.consistency=eventual needs a log"),  # V43
    ],
)
def test_combinations_that_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_logged(tmp_path, **options)


def test_append_tables_without_buckets_or_with_upsert_are_refused(tmp_path: Path) -> None:  # V35, V37
    with pytest.raises(InvalidRequestError, match="upsert needs a primary key"):
        make_logged(tmp_path, keyed=False, log__changelog_mode="upsert")
    with pytest.raises(InvalidRequestError, match="fixed number of buckets|bucket"):
        make_logged(tmp_path, keyed=False, bucket="-1")


def test_a_topic_that_does_not_fit_is_refused(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    log.client().create_topic("t", 3, {})
    with pytest.raises(LogConfigError, match="has 1 buckets and topic t of its log 3 partitions"):
        table.writer("u")
    log.topics.clear()
    log.client().create_topic("t", 1, {"cleanup.policy": "compact"})
    with pytest.raises(LogConfigError, match="cleanup.policy=compact"):
        table.writer("u")


def test_the_state_is_plain_json_and_headroom_is_told(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    stream = table.stream(isolation="committed", max_wait_s=0.0)
    list(stream)
    assert json.loads(json.dumps(stream.state)) == stream.state
    assert stream.headroom() == {0: 1}
    log.truncate("t", 0, 1)
    assert stream.headroom() == {0: 0}


def test_batches_of_a_future_that_was_rolled_back_do_not_keep_a_reader_busy(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes further than a table that was restored from a backup. Of that only the next batch can be shown, and
    it is taken back when the table gets another one."""
    table = make_logged(tmp_path)
    write(table, "+I 1 a")
    shutil.copytree(tmp_path / "db.db", tmp_path / "backup")
    write(table, "+I 1 b", "+I 1 c")
    shutil.rmtree(tmp_path / "db.db")
    shutil.copytree(tmp_path / "backup", tmp_path / "db.db")
    table = Table.open(table.location)
    fetch, fetched = FakeClient.fetch, itertools.count()

    def counted(self: FakeClient, *args: Any, **kwargs: Any) -> Mapping[TopicPartition, Fetched]:
        assert next(fetched) < 100, "it asks again and again for records that it cannot show"
        return fetch(self, *args, **kwargs)

    monkeypatch.setattr(FakeClient, "fetch", counted)
    stream = told(table, "speculative", max_wait_s=0.01)
    assert stream() == "+I 1 a | -U 1 a | +U 1 b"
    monkeypatch.setattr(FakeClient, "fetch", fetch)
    write(table, "+I 1 x")
    assert stream() == "-U 1 b | +U 1 x"


def test_a_commit_does_not_wait_for_its_note(log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = make_logged(tmp_path).engine.log.open("u")
    flushed = 0
    flush = FakeProducer.flush

    def counted(self: FakeProducer) -> list[tuple[object, int]]:
        nonlocal flushed
        flushed += len(self._sent)
        return flush(self)

    monkeypatch.setattr(FakeProducer, "flush", counted)
    opened.committed(1, 1)
    assert flushed == 0
    opened.committed(2, 2)
    assert flushed == 1
    opened.close()
    assert flushed == 2
