"""Tables with a log, written and read through the façade: what is logged is what the table holds.

Besides N14 to N16, N18 and N20, the scenarios of the old log store (V01 …) that are about what a reader of a log sees.
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
    LogLostError,
    LogTruncatedError,
    LogUnavailableError,
)
from freshet.logstore.protocol.client import Fetched, TopicPartition
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.files.data_file_writer import DataFileWriter
from freshet.storage.schema.change import RenameColumn, SetOption
from freshet.storage.table import Table
from tests.kit.fake_log import FakeClient, FakeLog, FakeProducer
from tests.logstore.logged_tables import Stream, folded, held, log_batch, make_logged, rows, write


def test_lookup_tables_emit_what_compaction_emits(table: Table, isolation: str) -> None:
    stream = Stream(table, isolation)
    assert stream() == ""
    write(table, "+I 1 a | +I 2 b")
    assert stream() == "+I 1 a | +I 2 b"
    write(table, "+I 1 c | -D 2 x | +I 3 d", "+I 3 e")
    text = stream()
    assert text == "-U 1 a | +U 1 c | -D 2 b | +I 3 d | -U 3 d | +U 3 e"
    assert folded(text, {1: "a", 2: "b"}) == held(table)
    assert Stream(table, isolation)() == "+I 1 c | +I 3 e"  # latest-full


def test_input_and_append_tables_emit_what_is_written(log: FakeLog, tmp_path: Path) -> None:
    fed = make_logged(tmp_path / "1", changelog_producer="input")
    write(fed, "+I 1 a | +I 2 b", "-U 1 a | +U 1 c | -D 2 b")
    assert Stream(fed, from_snapshot=1)() == "+I 1 a | +I 2 b | -U 1 a | +U 1 c | -D 2 b"
    append = make_logged(tmp_path / "2", keyed=False, kafka__topic="t2")
    write(append, "+I 2 b | +I 1 a", "+I 1 a")
    assert Stream(append, "speculative", from_snapshot=1)() == "+I 2 b | +I 1 a | +I 1 a"


@pytest.mark.parametrize(("producer", "files"), [("lookup", 3), ("input", 2), ("none", 1), (None, 1)])
def test_changes_are_logged_before_the_files_that_hold_them(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: str | None, files: int
) -> None:
    table = make_logged(tmp_path, changelog_producer=producer) if producer else make_logged(tmp_path, keyed=False)
    write(table, "+I 1 a")
    steps: list[str] = []
    close = DataFileWriter.close
    monkeypatch.setattr(DataFileWriter, "close", lambda self: steps.append("file") or close(self))
    log.before_append = lambda place: None if place.topic.endswith("control") else steps.append("log")
    write(table, "+I 1 b")
    ahead = 1 if producer == "lookup" else 0  # the file of level 0 says what is compacted
    assert steps == ["file"] * ahead + ["log"] + ["file"] * (files - ahead)


def test_without_lookup_the_last_row_of_each_key_is_logged(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, changelog_producer="none")
    stream = Stream(table)
    stream()
    write(table, "+I 1 a | +I 1 b | +I 2 c | -D 3 x")
    assert stream() == "+I 1 b | +I 2 c | -D 3 x"
    with pytest.raises(LogConfigError, match="logs no rows before updates"):
        Stream(table, "speculative")


def test_merging_engines_log_whole_rows(log: FakeLog, tmp_path: Path) -> None:  # N18
    table = make_logged(tmp_path, merge_engine="aggregation", fields__v__aggregate_function="listagg")
    write(table, "+I 1 a", "+I 1 b")
    assert Stream(table, from_snapshot=1)() == "+I 1 a | -U 1 a | +U 1 a,b"


def test_a_crash_between_log_and_commit_is_healed(table: Table) -> None:
    write(table, "+I 1 a")
    fast, safe = Stream(table, "speculative"), Stream(table)
    fast(), safe()
    log_batch(table, "+I 1 b | +I 2 x")  # and dies
    assert (fast(), safe()) == ("-U 1 a | +U 1 b | +I 2 x", "")
    write(table, "+I 1 b")  # the replay has other rows
    assert (fast(), safe()) == ("-D 2 x", "-U 1 a | +U 1 b")
    assert held(table) == {1: "b"}


def test_filters_and_projections_give_well_formed_streams(table: Table) -> None:  # N14 to N16
    write(table, "+I 1 a")
    streams = {
        name: Stream(table, "speculative", scan_mode="latest", **how)
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


def test_a_replay_that_differs_after_a_minus_u_is_well_formed_when_filtered(table: Table) -> None:
    write(table, "+I 1 a")
    stream = Stream(table, "speculative", scan_mode="latest", filter="v = 'c'")
    stream()
    log_batch(table, "+I 1 b")
    assert stream() == ""
    write(table, "+I 1 c")
    assert stream() == "+I 1 c"


def test_schemas_may_change_under_a_reader(table: Table) -> None:
    write(table, "+I 1 a")
    stream = Stream(table, "speculative", scan_mode="latest")
    stream()
    later = table.alter(RenameColumn("v", "w"))
    with later.writer("u") as writer:
        writer.write({"k": [1], "w": ["b"]})
        writer.commit()
    assert stream() == "-U 1 a | +U 1 b"


def test_starts(table: Table, isolation: str) -> None:
    write(table, "+I 1 a", "+I 1 b", "+I 2 c")
    snapshots = [each.id for each in table.snapshots() if each.commit_kind == "COMPACT"]
    updates = "-U 1 a | +U 1 b | +I 2 c"
    assert Stream(table, isolation, scan_mode="latest")() == ""
    assert Stream(table, isolation, from_snapshot=snapshots[1])() == updates
    assert (
        Stream(table, isolation, scan_mode="from-snapshot-full", from_snapshot=snapshots[0])() == f"+I 1 a | {updates}"
    )
    assert Stream(table, isolation, from_timestamp=0)() == f"+I 1 a | {updates}"
    assert Stream(table, isolation, from_timestamp=2**62)() == ""  # V32
    with pytest.raises(NotFoundError, match="snapshot 99 was not committed yet"):
        Stream(table, isolation, from_snapshot=99)
    with pytest.raises(InvalidRequestError, match="needs from_snapshot"):
        Stream(table, isolation, scan_mode="from-snapshot")
    with pytest.raises(InvalidRequestError, match="isolation is one of committed, speculative"):
        Stream(table, "serializable")


def test_compacted_full_begins_with_the_rows_of_the_last_compaction(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    table = make_logged(tmp_path, changelog_producer="input")
    write(table, "+I 1 a | +I 2 b")
    table.without_log().compact(full=True)
    write(table, "-U 1 a | +U 1 c")
    stream = Stream(table, isolation, scan_mode="compacted-full", with_snapshot_id=True)
    assert stream() == "+I 1 a 2 | +I 2 b 2 | -U 1 a 3 | +U 1 c 3"


def test_a_consumer_goes_on_where_it_stopped_and_holds_back_expiry(table: Table, isolation: str) -> None:
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
    again = Stream(table, isolation, consumer_id="c", scan_mode="latest", with_snapshot_id=True)
    assert again() == "-U 1 a 4 | +U 1 b 4 | +I 2 c 6"
    assert table.consumers() == {"c": 7}


def test_a_lost_record_is_never_a_gap(log: FakeLog, table: Table, isolation: str) -> None:
    write(table, "+I 1 a")
    log.lose("t", 0, 0)
    with pytest.raises(LogLostError, match="topic t partition 0"):
        Stream(table, isolation, from_snapshot=1)()


def test_retention_that_overtakes_a_reader_is_an_error_or_read_from_files(
    log: FakeLog, table: Table, isolation: str
) -> None:
    stream = Stream(table, isolation)
    stream()
    write(table, "+I 1 a", "+I 1 b", "+I 2 c")
    log.truncate("t", 0, 2)
    with pytest.raises(LogTruncatedError, match="topic t partition 0 has offsets 2 to 3"):
        stream()
    falling_back = Stream(table.with_options({"log.on-truncated": "fall-back"}), isolation, from_snapshot=1)
    assert falling_back() == "+I 1 a | -U 1 a | +U 1 b | +I 2 c"
    write(table, "+I 3 d")
    assert falling_back() == "+I 3 d"


def test_a_topic_that_was_created_again_is_refused(log: FakeLog, table: Table, isolation: str) -> None:
    write(table, "+I 1 a")
    log.recreate("t")
    with pytest.raises(LogConfigError, match="deleted and created again"):
        Stream(table, isolation)()
    with pytest.raises(InvalidRequestError, match="Set kafka.topic to a new name"):
        table.writer("u")
    other = table.alter(SetOption("kafka.topic", "t2"))
    write(other, "+I 1 b", user="another")
    stream = Stream(other, isolation, scan_mode="latest")
    write(other, "+I 1 c", user="another")
    assert stream() == "-U 1 b | +U 1 c"


def test_a_commit_that_cannot_be_logged_is_not_made(log: FakeLog, table: Table) -> None:
    with table.writer("u") as writer:
        writer.write(rows("+I 1 a"))
        log.is_down = True
        with pytest.raises(LogUnavailableError):
            writer.commit()
        log.is_down = False
        writer.abort()
        writer.write(rows("+I 1 b"))
        writer.commit()
    assert held(table) == {1: "b"} and Stream(table, from_snapshot=1)() == "+I 1 b"


def test_many_rows_are_logged_from_their_files(log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.write.increment.EMITTED_BYTES_MAX", 10)
    for number, options in enumerate([{}, {"changelog_producer": "input"}, {"changelog_producer": "none"}]):
        table = make_logged(tmp_path / str(number), kafka__topic=f"t{number}", **options)
        write(table, "+I 1 a | +I 2 b | +I 3 c")
        assert Stream(table, from_snapshot=1)() == "+I 1 a | +I 2 b | +I 3 c"
    table = make_logged(tmp_path / "append", keyed=False, kafka__topic="append")
    write(table, "+I 1 a | +I 2 b | +I 3 c")
    assert Stream(table, from_snapshot=1)() == "+I 1 a | +I 2 b | +I 3 c"


def test_the_state_is_plain_json_and_headroom_is_reported(log: FakeLog, table: Table) -> None:
    write(table, "+I 1 a")
    stream = table.stream(isolation="committed", max_wait_s=0.0)
    list(stream)
    assert json.loads(json.dumps(stream.state)) == stream.state
    assert stream.headroom() == {0: 1}
    log.truncate("t", 0, 1)
    assert stream.headroom() == {0: 0}


def test_batches_of_a_future_that_was_rolled_back_do_not_keep_a_reader_busy(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes further than a table that was restored from a backup. Of that only the next batch can be shown, and
    it is retracted when the table gets another one."""
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
    stream = Stream(table, "speculative", max_wait_s=0.01)
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
