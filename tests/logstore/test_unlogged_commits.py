"""Commits to a table with a log that are not logged, and compactions whose log was dropped: readers take the files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from freshet.logstore.exceptions import LogLakeOnlyError
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import Stream, folded, held, log_batch, make_logged, overwrite, write


def test_commits_without_a_log_follow_the_policy(table: Table) -> None:
    write(table, "+I 1 a")
    stream = Stream(table.with_options({"log.on-lake-only": "fail"}))
    stream()
    write(table.with_options({"log.system": "none"}), "+I 1 b", user="loader")
    write(table, "+I 1 c")
    with pytest.raises(LogLakeOnlyError, match="snapshot 4 .COMPACT by 'loader'. changes rows and was not logged"):
        stream()
    policies = {
        policy: Stream(table.with_options({"log.on-lake-only": policy}), from_snapshot=3)()
        for policy in ("apply", "skip")
    }
    assert policies == {"apply": "-U 1 a | +U 1 b | -U 1 b | +U 1 c", "skip": "-U 1 b | +U 1 c"}


@pytest.mark.parametrize("producer", ["lookup", "input"])
def test_n17_an_overwrite_is_read_from_its_files(log: FakeLog, tmp_path: Path, isolation: str, producer: str) -> None:
    table = make_logged(tmp_path, changelog_producer=producer)
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table, isolation, scan_mode="latest")
    overwrite(table, "+I 3 q")
    text = stream()
    write(table, "+I 4 r")
    text = " | ".join(part for part in (text, stream()) if part)
    assert text.startswith("-D 1 a | -D 2 b | +I 3 q")
    assert folded(text, {1: "a", 2: "b"}) == held(table) == {3: "q", 4: "r"}


def test_an_overwrite_of_an_append_table_is_read_from_its_files(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, keyed=False)
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table, scan_mode="latest")
    overwrite(table, "+I 3 q")
    assert stream() == "-D 1 a | -D 2 b | +I 3 q"


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_edits_of_an_append_table_are_read_from_their_files(log: FakeLog, tmp_path: Path, vectors: str) -> None:
    """All of them were refused: what an edit adds was written upon the table with its log."""
    table = make_logged(tmp_path, keyed=False, deletion_vectors__enabled=vectors)
    write(table, "+I 1 a | +I 2 b")
    stream = Stream(table, scan_mode="latest")
    table.delete("k = 1")
    table.update({"v": "c"}, "k = 2")
    table.overwrite(pa.table({"k": [2], "v": ["d"]}), filter="k = 2")
    rows = pa.table({"k": [2, 3], "v": ["e", "f"]})
    table.merge(rows, on=["k"]).when_matched_update_all().when_not_matched_insert_all().execute()
    write(table, "+I 4 g")
    text = stream()
    assert folded(text, {1: "a", 2: "b"}) == held(table) == {2: "e", 3: "f", 4: "g"}
    for snapshot_id, rows_then in ((2, {2: "b"}), (1, {1: "a", 2: "b"}), (3, {2: "c"})):
        table.rollback(to=snapshot_id)
        text = f"{text} | {stream()}"
        assert folded(text, {1: "a", 2: "b"}) == held(table) == rows_then


def test_of_a_file_that_is_marked_the_rows_marked_since_are_told(log: FakeLog, tmp_path: Path) -> None:
    """Not those that were gone before, nor all others once more."""
    table = make_logged(tmp_path, keyed=False, deletion_vectors__enabled="true")
    write(table, "+I 1 a | +I 2 b | +I 3 c | +I 4 d")
    stream = Stream(table, scan_mode="latest")
    table.delete("k = 2")
    table.update({"v": "x"}, "k = 3")
    assert stream() == "-D 2 b | -D 3 c | +I 3 x"
    table.rollback(to=2)
    assert stream() == "+I 3 c | -D 3 x"


def test_a_log_may_be_switched_on_for_a_table_with_data(table: Table) -> None:
    write(table.with_options({"log.system": "none"}), "+I 1 a", user="loader")
    stream = Stream(table)
    assert stream() == "+I 1 a"
    write(table, "+I 1 b")
    assert stream() == "-U 1 a | +U 1 b"


def test_a_reader_begins_where_no_log_was_and_older_snapshots_have_expired(
    log: FakeLog, tmp_path: Path, isolation: str
) -> None:
    """None of the snapshots that are left says how far the log has come, and those before are gone."""
    table = make_logged(tmp_path, snapshot__num_retained__min="1", snapshot__num_retained__max="2")
    loaded = table.with_options({"log.system": "none"})
    for letter in "abcdef":
        write(loaded, f"+I 1 {letter}", user="loader")
    loaded.expire_snapshots(retain_max=2, retain_min=1, older_than_ms=0)
    assert min(snapshot.id for snapshot in table.snapshots()) > 1
    stream = Stream(table, isolation)
    assert stream() == "+I 1 f"
    write(table, "+I 1 g")
    assert stream() == "-U 1 f | +U 1 g"


def test_what_a_dropped_compaction_logged_is_retracted(log: FakeLog, tmp_path: Path) -> None:
    table = make_logged(tmp_path, log__on_lake_only="apply")
    write(table, "+I 1 a | +I 2 b", "+I 9 z")
    fast, safe = Stream(table, "speculative"), Stream(table)
    before = folded(fast())
    assert folded(safe()) == before
    commit = log_batch(table, "+I 1 c", batch=2)
    shown = fast()
    table.with_options({"log.system": "none"}).compact(full=True)
    assert commit().aborted_compactions
    write(table, "+I 3 e")
    assert folded(shown + " | " + fast(), before) == held(table) == folded(safe(), before)
    assert held(table) == {1: "c", 2: "b", 3: "e", 9: "z"}


@pytest.mark.parametrize("is_read_early", [True, False])
def test_what_a_lost_compaction_logged_is_not_shown_again_once_files_have_emitted_it(
    log: FakeLog, tmp_path: Path, *, is_read_early: bool
) -> None:
    """The log's writer stays silent afterwards: no later batch of it takes anything back."""
    table = make_logged(tmp_path, log__on_lake_only="apply")
    write(table, "+I 1 a | +I 2 b", "+I 9 z")
    fast = Stream(table, "speculative")
    before = folded(fast())
    commit = log_batch(table, "+I 1 c", batch=2)
    shown = fast() if is_read_early else ""
    unlogged = table.without_log()
    unlogged.compact(full=True)
    assert commit().aborted_compactions
    for text in ("+I 1 d", "+I 5 e"):
        write(unlogged, text)
        shown = " | ".join(filter(None, [shown, fast()]))
        assert folded(shown, before) == held(table)


def test_a_log_may_be_switched_off_and_on_again(table: Table, isolation: str) -> None:
    unlogged = table.with_options({"log.system": "none"})
    write(table, "+I 1 a")
    stream = Stream(table, isolation)
    seen = folded(stream())
    write(unlogged, "+I 1 b | +I 2 x")  # the same user, without the log
    seen = folded(stream(), seen)
    assert seen == held(table) == {1: "b", 2: "x"}
    write(table, "+I 1 c")
    write(unlogged, "-D 2 x", user="loader")
    write(table, "+I 3 y")
    assert folded(stream(), seen) == held(table) == {1: "c", 3: "y"}
    assert folded(Stream(table, isolation, from_snapshot=1)()) == held(table)
