"""Rescaling: another number of buckets is another topic and another generation, which readers follow."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshet.logstore.exceptions import LogConfigError
from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import UnsupportedFeatureError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.table_log import LogProgress, log_of
from freshet.storage.schema.change import ResetOption, SetOption
from freshet.storage.table import Table
from freshet.storage.table_engine import LoggedSplitStream, StreamLimit
from tests.kit.fake_log import FakeLog
from tests.kit.rescaled import with_buckets
from tests.logstore.logged_tables import Stream, folded, held, lines, make_logged, rows, write


def overwritten(table: Table, buckets: int) -> None:
    """Puts all rows into that many buckets, as an overwrite does."""
    unlogged = table.without_log()
    gone = tuple(unlogged.files())
    with closing(unlogged.engine.task_writer(base_snapshot_id=None)) as task:
        task.write(rows(" | ".join(f"+I {key} {value}" for key, value in held(table).items())))
        messages = list(task.prepare_commit(0))
    assert {message.total_buckets for message in messages} == {buckets}
    messages = [replace(message, changelog_files=()) for message in messages]  # overwrites have none
    messages += [
        CommitMessage(entry.partition, entry.bucket, entry.total_buckets, deleted_files=(entry.file,)) for entry in gone
    ]
    unlogged.engine.committer("rescale").commit(0, messages)


def progress(table: Table) -> LogProgress:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    found = log_of(snapshot.properties, snapshot.id)
    assert found is not None
    return found


def test_n19_readers_follow_a_table_into_more_buckets(log: FakeLog, table: Table, isolation: str) -> None:
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    stream = Stream(table, isolation)
    seen = folded(stream())
    more = with_buckets(table, "2")
    with pytest.raises(LogConfigError, match=r"has 2 buckets and topic t of its log 1 partitions.*to a new name"):
        more.writer("u")
    more = more.alter(SetOption("kafka.topic", "t2"))
    overwritten(more, 2)
    write(more, "+I 1 x | +I 4 d", "-D 2 b")
    seen = folded(stream(), seen)
    assert seen == held(more) == {1: "x", 3: "c", 4: "d"}
    assert len(log.topics["t2"].partitions) == 2
    assert (progress(more).generation, set(progress(more).next_offsets)) == (1, {0, 1})
    write(more, "+I 3 y")
    assert folded(stream(), seen) == held(more)
    assert folded(Stream(more, isolation)()) == held(more)


ALL_KEYS = range(20)


def filled(table: Table, value: str) -> None:
    write(table, " | ".join(f"+I {key} {value}" for key in ALL_KEYS))


def in_buckets(table: Table, count: int) -> Table:
    more = with_buckets(table, str(count)).alter(SetOption("kafka.topic", f"t{count}"))
    overwritten(more, count)
    return more


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", ["apply", "skip"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_keys_that_change_their_bucket_within_a_batch_keep_their_order(
    log: FakeLog, tmp_path: Path, isolation: str, policy: str, before: int, after: int
) -> None:
    table = make_logged(tmp_path, bucket=str(before), log__on_lake_only=policy)
    filled(table, "a")
    stream = table.engine.split_stream(StreamRequest(isolation=isolation))
    start = stream.first()
    filled(table, "b")
    more = in_buckets(table, after)
    filled(more, "c")
    assert folded(" | ".join(in_a_batch(stream, start))) == held(more)


def in_a_batch(stream: SplitStream | LoggedSplitStream, start: Any) -> list[str]:
    groups = stream.groups(start, stream.advance(start, StreamLimit()))
    return [line for group in groups for batch in stream.read_group(group) for line in lines(batch)]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (3, 2)])
def test_without_the_log_as_well(log: FakeLog, tmp_path: Path, before: int, after: int) -> None:
    table = make_logged(tmp_path, bucket=str(before))
    filled(table, "a")
    stream = table.engine.split_stream(StreamRequest(isolation="none"))
    start = stream.first()
    filled(table, "b")
    more = in_buckets(table, after)
    filled(more, "c")
    last = {int(key): (kind, value) for kind, key, value in (line.split() for line in in_a_batch(stream, start))}
    assert last == dict.fromkeys(ALL_KEYS, ("+U", "c"))  # overwrites are not emitted here


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_an_overwrite_into_other_buckets_takes_all_rows_away_first(
    log: FakeLog, tmp_path: Path, before: int, after: int
) -> None:
    table = make_logged(tmp_path, bucket=str(before), changelog_producer="input")
    filled(table, "a")
    stream = Stream(table)
    seen = folded(stream())
    more = in_buckets(table, after)
    text = stream()
    assert text.startswith("-D") and folded(text, seen) == held(more)
    filled(more, "b")
    again = more.engine.split_stream(StreamRequest(scan_mode="from-snapshot", from_snapshot=1))
    last = {int(key): (kind, value) for kind, key, value in (line.split() for line in in_a_batch(again, again.first()))}
    assert last == dict.fromkeys(ALL_KEYS, ("+I", "b"))


def test_a_rescale_goes_without_the_log_and_readers_follow(log: FakeLog, tmp_path: Path, isolation: str) -> None:
    table = make_logged(tmp_path, bucket="1")
    filled(table, "a")
    stream = Stream(table, isolation)
    seen = folded(stream())
    with pytest.raises(
        UnsupportedFeatureError, match=r"it has a log.*UNSET TBLPROP.*'log\.system'.*another kafka\.topic"
    ):
        table.rescale(4)
    with pytest.raises(UnsupportedFeatureError, match="it has a log"):
        table.without_log().rescale(4)
    unlogged = table.alter(ResetOption("log.system"))
    unlogged.rescale(4)
    more = Table.open(table.location).alter(SetOption("log.system", "kafka"), SetOption("kafka.topic", "t4"))
    assert folded(stream(), seen) == held(more) and not stream(), "no row changed"
    filled(more, "b")
    assert folded(stream(), seen) == held(more) == dict.fromkeys(ALL_KEYS, "b")
    assert len(log.topics["t4"].partitions) == 4
