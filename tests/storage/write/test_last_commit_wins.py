"""Of two writers of a key the one that commits last wins, whenever its rows were numbered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit.committer import HEADROOM_PER_ROW, Committer
from freshet.storage.exceptions import RetryableError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table import Table
from freshet.storage.write.bucket_writer import CALM_COMMITS, ROOM_PER_ROW
from freshet.storage.write.task_writer import TaskWriter

COLUMNS = {"k": "INT NOT NULL", "v": "BIGINT", "w": "STRING"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


def create(path: Path, bucket: int = 1, keys: Sequence[str] = ("k",), **options: str) -> Table:
    given = {"bucket": str(bucket), **{key.replace("_", "-"): value for key, value in options.items()}}
    return Catalog(str(path)).create_table("db.t", schema=COLUMNS, primary_keys=list(keys), options=given)


def rows(*values: tuple[int, int | None, str | None]) -> pa.Table:
    names = ("k", "v", "w")
    return pa.Table.from_pylist([dict(zip(names, value, strict=True)) for value in values])


def prepared(table: Table, identifier: int, *values: tuple[int, int | None, str | None]) -> list[CommitMessage]:
    """Files of rows, made and not committed."""
    writer = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest(), parallelism=1)
    writer.write(rows(*values))
    messages = writer.prepare_commit(identifier)
    writer.close()
    return messages


def found(table: Table) -> dict[int, tuple[int | None, str | None]]:
    return {row["k"]: (row["v"], row["w"]) for row in table.scan().to_arrow().to_pylist()}


def folded(table: Table) -> dict[int, tuple[int | None, str | None]]:
    """What the changelog makes; each row that goes must be the one that was there."""
    state: dict[int, tuple[int | None, str | None]] = {}
    for row in table.changelog().to_arrow().to_pylist():
        value = (row["v"], row["w"])
        if row["_ROW_KIND"] in ("-U", "-D"):
            assert state.pop(row["k"]) == value
        else:
            assert row["k"] not in state
            state[row["k"]] = value
    return state


def write_as(table: Table, user: str, *values: tuple[int, int | None, str | None]) -> None:
    with table.writer(user, parallelism=1) as writer:
        writer.write(rows(*values))
        writer.commit()


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_the_commit_that_comes_last_is_seen_though_it_was_numbered_first(tmp_path: Path, producer: str) -> None:
    table = create(tmp_path, changelog_producer=producer)
    late = prepared(table, 0, (1, 1, "late"))
    for number in range(3):
        write_as(table, "quick", (1, number, "quick"), (2, number, "quick"))
    result = table.engine.committer("late").commit(0, late)
    assert found(table)[1] == (1, "late")
    assert result.rewrite_count == 1
    assert result.rewritten_bytes > 0
    if producer in ("lookup", "full-compaction"):
        assert folded(table) == found(table)
    names = {file.file_name for message in late for file in message.new_files}
    assert not names & {entry.file.file_name for entry in table.files()}
    assert not any((Path(table.location) / "bucket-0" / name).exists() for name in names), "the first files are gone"


def test_files_that_need_no_new_numbers_after_all_keep_their_changelog(tmp_path: Path) -> None:
    """A row of another writer had the number of ours, and is gone: the row that it did not replace is older."""
    options = {"bucket": "1", "changelog-producer": "input", "sequence.field": "v"}
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, primary_keys=["k"], options=options)
    write_as(table, "quick", (1, 100, "newest"))
    late = prepared(table, 0, (2, 1, "late"))
    write_as(table, "quick", (1, 50, "older"))
    table.compact(full=True)
    table.engine.committer("late").commit(0, late)
    assert found(table) == {1: (100, "newest"), 2: (1, "late")}
    assert table.changelog().to_arrow()["w"].to_pylist() == ["newest", "older", "late"]


def test_renumbered_rows_leave_room_for_commits_that_come_meanwhile(tmp_path: Path) -> None:
    """A rewrite that takes longer than the commits of others would otherwise never come to its end."""
    table = create(tmp_path)
    late = prepared(table, 0, (1, 1, "late"))
    write_as(table, "quick", (1, 2, "quick"))
    asked: list[int] = []

    def renumber(
        identifier: int, messages: Sequence[CommitMessage], base_id: int, headroom: int
    ) -> list[CommitMessage]:
        made = table.engine.renumbered(identifier, messages, base_snapshot_id=base_id, headroom=headroom)
        asked.append(headroom)
        write_as(table, "quick", (1, 3, "quick"))
        return made

    result = table.engine.committer("late", renumber=renumber).commit(0, late)
    assert asked == [HEADROOM_PER_ROW]
    assert result.rewrite_count == 1
    assert found(table) == {1: (1, "late")}
    write_as(table, "quick", (1, 4, "quick"))
    assert found(table) == {1: (4, "quick")}


def test_only_buckets_that_were_overtaken_are_written_again(tmp_path: Path) -> None:
    table = create(tmp_path, bucket=4)
    late = prepared(table, 0, *((key, 1, "late") for key in range(40)))
    write_as(table, "quick", (7, 2, "quick"))
    (touched,) = {(entry.partition, entry.bucket) for entry in table.files()}
    given = {message.bucket_id: message.new_files for message in late}
    result = table.engine.committer("late").commit(0, late)
    kept = {message.bucket_id: message.new_files for message in result.messages}
    assert {bucket for bucket in given if kept[bucket] != given[bucket]} == {touched}
    assert found(table) == dict.fromkeys(range(40), (1, "late"))


def test_other_partitions_and_compactions_cost_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    write_as(table, "quick", *((key, 0, "old") for key in range(10)))
    late = prepared(table, 0, (1, 1, "late"))
    table.compact(full=True)
    assert table.engine.committer("late").commit(0, late).rewrite_count == 0
    assert found(table)[1] == (1, "late")


def test_snapshots_that_expired_meanwhile_do_not_hide_what_they_brought(tmp_path: Path) -> None:
    table = create(tmp_path)
    late = prepared(table, 0, (1, 1, "late"))
    for number in range(4):
        write_as(table, "quick", (1, number, "quick"))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    assert table.engine.committer("late").commit(0, late).rewrite_count == 1
    assert found(table) == {1: (1, "late")}


def test_a_committer_that_cannot_renumber_refuses_and_commits_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    late = prepared(table, 0, (1, 1, "late"))
    write_as(table, "quick", (1, 2, "quick"))
    with pytest.raises(RetryableError, match="sequence numbers"):
        Committer(table.store, "late").commit(0, late)
    assert found(table) == {1: (2, "quick")}
    assert table.engine.committer("late").commit(0, late).rewrite_count == 1, "its files are still there"
    assert found(table) == {1: (1, "late")}


def test_columns_of_two_writers_are_both_kept(tmp_path: Path) -> None:
    """Plain partial-update: each writer fills a column of its own, and the slow one is numbered early."""
    table = create(tmp_path, merge_engine="partial-update")
    late = prepared(table, 0, (1, None, "slow"), (2, None, "slow"))
    write_as(table, "quick", (1, 5, None), (2, 6, None))
    write_as(table, "other", (1, None, "older"))
    table.engine.committer("late").commit(0, late)
    assert found(table) == {1: (5, "slow"), 2: (6, "slow")}


def test_sums_with_lookup_are_whole_and_so_is_their_changelog(tmp_path: Path) -> None:
    table = create(tmp_path, bucket=2, changelog_producer="lookup", **SUM)
    late = [prepared(table, 0, *((key, 1, "x") for key in range(20))) for _ in range(3)]
    write_as(table, "quick", *((key, 10, "y") for key in range(20)))
    for number, messages in enumerate(late):
        table.engine.committer(f"late-{number}").commit(0, messages)
    assert found(table) == dict.fromkeys(range(20), (13, "x"))
    assert folded(table) == found(table)


def test_rows_that_became_files_early_are_numbered_again_before_the_commit(tmp_path: Path) -> None:
    table = create(tmp_path, write_buffer_spillable="false")
    writer = TaskWriter(table.store, base_snapshot=None, parallelism=1)
    writer.write(rows((1, 1, "late"), (2, 1, "late")))
    for bucket in writer._buckets.writers.values():
        bucket.release_memory()
    write_as(table, "quick", (1, 2, "quick"))
    writer.rebase(table.latest_snapshot())
    writer.write(rows((2, 2, "late")))
    messages = writer.prepare_commit(0)
    assert table.engine.committer("late").commit(0, messages).rewrite_count == 0
    writer.close()
    assert found(table) == {1: (1, "late"), 2: (2, "late")}


def test_append_tables_with_buckets_keep_the_order_of_their_commits(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS, options={"bucket": "1", "bucket-key": "k"})
    late = prepared(table, 0, (1, 1, "late"))
    write_as(table, "quick", (1, 2, "quick"))
    result = table.engine.committer("late").commit(0, late)
    assert result.rewrite_count == 1
    assert [row["w"] for row in table.scan().to_arrow().to_pylist()] == ["quick", "late"]
    assert [file.file_name for file in result.messages[0].new_files] == [
        file.file_name for file in late[0].new_files
    ], "only the entry has the numbers"


def test_append_tables_without_buckets_are_never_renumbered(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", schema=COLUMNS)
    late = prepared(table, 0, (1, 1, "late"))
    write_as(table, "quick", (1, 2, "quick"))
    assert table.engine.committer("late").commit(0, late).rewrite_count == 0
    assert len(found(table)) == 1


def test_a_session_goes_on_after_a_claim_that_failed_behind_a_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the first try are gone: the second try commits those that took their place."""
    table = create(tmp_path)
    session = table.writer("late", parallelism=1)
    session.write(rows((1, 1, "late")))
    pending = session._prepare(None)
    assert pending is not None
    write_as(table, "quick", (1, 2, "quick"))
    commit = session._committer._snapshot_commit.commit
    calls = []

    def fails_once(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise RetryableError("the disk is busy")
        return commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(session._committer._snapshot_commit, "commit", fails_once)
    with pytest.raises(RetryableError):
        session.commit()
    session.commit()
    session.close()
    assert found(table) == {1: (1, "late")}


def test_a_message_that_says_nothing_of_its_numbers_is_taken_as_it_is(tmp_path: Path) -> None:
    table = create(tmp_path)
    late = [replace(message, numbered_at=None) for message in prepared(table, 0, (1, 1, "late"))]
    write_as(table, "quick", (1, 2, "quick"))
    result = table.engine.committer("late").commit(0, late)
    assert result.rewrite_count == 0
    assert [snapshot.commit_kind for snapshot in result.snapshots] == [CommitKind.APPEND]


def test_a_session_that_was_overtaken_leaves_room_below_its_next_commits(tmp_path: Path) -> None:
    """In proportion to its rows, until nobody has overtaken it for a while."""
    table = create(tmp_path)
    with table.writer("busy", parallelism=1) as session:
        session.write(rows((1, 1, "busy")))
        session._prepare(None)
        write_as(table, "quick", (1, 2, "quick"))
        assert session.commit().rewrite_count == 1
        for commits_ago in range(1, CALM_COMMITS + 3):
            highest = max(entry.file.max_sequence_number for entry in table.files())
            session.write(rows((1, 1, "busy"), (2, 1, "busy")))
            assert session.commit().rewrite_count == 0
            gap = max(entry.file.min_sequence_number for entry in table.files()) - highest
            assert (gap >= 2 * ROOM_PER_ROW) == (commits_ago <= CALM_COMMITS), commits_ago
