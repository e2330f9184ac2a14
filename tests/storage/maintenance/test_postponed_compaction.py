"""Compaction of rows that wait for their bucket: what a crash leaves, what others commit meanwhile, what is removed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from freshet import AddColumn, ConflictError, Table
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.spill_file import SpillFile
from freshet.storage.maintenance import table_compaction
from freshet.storage.maintenance.table_compaction import CompactionBudget, CompactionProgress, Elsewhere
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import CommitKind
from tests.storage.write.test_postponed_buckets import a_table, commit, held, rows, staged, totals


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def live_names(table: Table) -> set[str]:
    return {entry.file.file_name for entry in table.files()}


@pytest.mark.few(2)
@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("visit", [1, 2, 3])
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.DATA_FILE_CLOSED,
        CrashPoint.WRITE_FLUSHED,
        CrashPoint.COMPACT_BEFORE_OUTPUT,
        CrashPoint.COMPACT_OUTPUT_WRITTEN,
        CrashPoint.COMMIT_MANIFESTS_WRITTEN,
        CrashPoint.COMMIT_SNAPSHOT_CREATED,
    ],
)
def test_a_crash_leaves_what_was_or_what_is_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: CrashPoint, visit: int, producer: str
) -> None:
    class Died(BaseException):
        pass

    monkeypatch.setattr(table_compaction, "COMMIT_BUCKETS", 1)
    table = a_table(tmp_path, **{"changelog-producer": producer})
    staged(table, rows("a", 1, *range(9)), rows("b", 1, *range(9)))
    table.compact()
    staged(table, rows("a", 2, *range(5)), rows("b", 2, *range(4)), rows("a", 0, 8, kind="-D"))
    visits = 0

    def reach(_env: Env, reached: CrashPoint) -> None:
        nonlocal visits
        visits += reached is point
        if visits >= visit and reached is point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Env, "reach", reach)
        if point.startswith("commit") and visit == 3:
            table.compact()  # two partitions, two commits
        else:
            with pytest.raises(Died):
                table.compact()
    table = Table.open(table.location)
    before = {part: [(part, key, 1) for key in range(9)] for part in "ab"}
    after = {
        "a": [("a", key, 2 if key < 5 else 1) for key in range(8)],
        "b": [("b", key, 2 if key < 4 else 1) for key in range(9)],
    }
    for part in "ab":
        found = [row for row in held(table) if row[0] == part]
        assert found == (before if -2 in totals(table)[part] else after)[part]
    assert not table.check().damage
    table.compact()
    assert held(table) == after["a"] + after["b"]
    assert totals(table) == {"a": {3}, "b": {3}}
    if producer == "lookup":
        changes = [tuple(row.values())[1:4] for row in table.changelog().to_arrow().to_pylist()]
        assert len(changes) == 18 + 2 * 9 + 1, "each change is emitted once"
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    for path in Path(table.location).rglob("data-*"):
        os.utime(path, (0, 0))
    table.remove_orphan_files(older_than_ms=0)
    assert data_files(table) == live_names(table)


def between(monkeypatch: pytest.MonkeyPatch, *others: Callable[[], object]) -> None:
    """Has others commit after the rows of a partition were written and before they are committed, one each time."""
    waiting = iter(others)
    made = Committer.commit

    def meanwhile(self: Committer, identifier: int, messages: Any, **more: Any) -> Any:
        if any(message.bucket == -2 and message.compact_before for message in messages):
            next(waiting, lambda: None)()
        return made(self, identifier, messages, **more)

    monkeypatch.setattr(Committer, "commit", meanwhile)


def test_rows_that_come_meanwhile_stay_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path)
    staged(table, rows("a", 1, *range(9)))
    between(monkeypatch, lambda: staged(table, rows("a", 2, 3, 4), rows("c", 1, 1), user="other"))
    result = table.compact()
    assert not result.aborted_compactions and result.buckets_done == 1
    assert held(table) == [("a", key, 1) for key in range(9)]
    assert totals(table) == {"a": {-2, 3}, "c": {-2}}
    table.compact()
    assert held(table) == [("a", key, 2 if key in (3, 4) else 1) for key in range(9)] + [("c", 1, 1)]


@pytest.mark.parametrize("full", [True, False])
def test_a_commit_into_the_buckets_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """Its rows are numbered as those of the compaction: the partition is done again, above them."""
    table = a_table(tmp_path, **{"postpone.default-bucket-num": "1"})
    commit(table, rows("a", 1, *range(9)))
    staged(table, rows("a", 2, *range(5)), rows("b", 2, 1))
    between(monkeypatch, lambda: commit(table, rows("a", 3, 4, 5), user="other"))
    result = table.compact(full=full)
    assert not result.aborted_compactions
    assert held(table) == [("a", key, 2 if key < 5 else 3 if key == 5 else 1) for key in range(9)] + [("b", 1, 2)]
    assert totals(table) == {"a": {1}, "b": {1}}
    assert not table.check(all_snapshots=True).damage


def test_another_number_of_buckets_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path)
    staged(table, rows("a", 1, *range(9)))
    fewer = table.with_options({"postpone.target-row-num-per-bucket": "100"})
    between(monkeypatch, lambda: commit(fewer, rows("a", 2, 20), user="other"))
    table.compact()
    assert totals(table) == {"a": {1}}
    assert held(table) == [("a", key, 1) for key in range(9)] + [("a", 20, 2)]


def test_two_compactions_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows go to the buckets once: the sum tells."""
    table = a_table(tmp_path, **{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    for _ in range(3):
        staged(table, rows("a", 1, *range(5)), rows("b", 1, *range(5)))
    other = Table.open(table.location)
    between(monkeypatch, lambda: other.compact(partition={"p": "a"}), lambda: None)
    result = table.compact()
    assert {conflict.partition for conflict in result.aborted_compactions} == {table.scan().plan()[0].partition}
    assert held(table) == [(part, key, 3) for part in "ab" for key in range(5)]
    assert not table.check(all_snapshots=True).damage


def test_others_that_never_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path)
    commit(table, rows("a", 1, *range(9)))
    staged(table, rows("a", 2, *range(9)))
    between(monkeypatch, *[lambda: commit(table, rows("a", 3, *range(9)), user="other")] * 5)
    result = table.compact(full=False)
    assert {conflict.bucket for conflict in result.aborted_compactions} >= {-2}
    assert held(table) == [("a", key, 3) for key in range(9)], "nothing is lost, and the rows wait on"
    files = live_names(table)
    assert data_files(table) == files, "what a lost compaction wrote is removed"
    table.compact()
    assert held(table) == [("a", key, 2) for key in range(9)]


def test_partitions_and_budget(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    staged(table, *(rows(part, 1, *range(9 if part == "a" else 2)) for part in "abc"))
    seen: list[CompactionProgress] = []
    table.compact(partition={"p": "b"}, progress=seen.append)
    assert totals(table) == {"a": {-2}, "b": {3}, "c": {-2}}
    assert (seen[0].buckets_done, seen[-1].buckets_done) == (0, 1)
    assert seen[-1].bytes_done == seen[-1].bytes_planned > 0
    result = table.compact(budget=CompactionBudget(input_bytes=1))
    assert (result.buckets_done, result.buckets_left) == (1, 1), "the first is begun whatever its size"
    assert totals(table) == {"a": {3}, "b": {3}, "c": {-2}}
    commit(table, rows("b", 2, 1, 2))
    result = table.compact(budget=CompactionBudget(input_bytes=1))
    assert (result.buckets_done, result.buckets_left > 0) == (1, True), "then nothing is left for the buckets"
    assert totals(table) == {"a": {3}, "b": {3}, "c": {3}}


def test_more_rows_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(tmp_path, **{"write-buffer-size": "256 kb", "postpone.default-bucket-num": "2"})
    for number in range(3):
        staged(table, rows("a", number, *range(number, 60_000, number + 1)))
    spilled: list[str] = []
    write = SpillFile.__init__

    def spy(self: SpillFile, path: str, *more: Any) -> None:
        spilled.append(path)
        write(self, path, *more)

    monkeypatch.setattr(SpillFile, "__init__", spy)
    table.compact()
    assert len(spilled) > 4
    last = {key: number for number in range(3) for key in range(number, 60_000, number + 1)}
    assert held(table) == [("a", key, number) for key, number in sorted(last.items())]


def test_partitions_are_compacted_elsewhere(tmp_path: Path) -> None:
    table = a_table(tmp_path, **{"changelog-producer": "lookup"})
    staged(table, *(rows(part, 1, *range(9)) for part in "abc"))
    sent: list[int] = []

    def send(handle: Any, works: Any) -> list[list[CommitMessage]]:
        sent.append(len(works))
        return [Table.of(handle).engine.run_piece(work) for work in works]

    result = table.compact(elsewhere=Elsewhere(send, 2))
    assert sent == [2, 1] and result.buckets_done == 3
    assert held(table) == [(part, key, 1) for part in "abc" for key in range(9)]


def test_only_compactions_expire_snapshots(tmp_path: Path) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = a_table(tmp_path, **options)
    for number in range(5):
        staged(table, rows("a", number, 1))
        commit(table, rows("b", number, 1))
    assert len(table.snapshots()) == 10
    table.compact()
    assert len(table.snapshots()) <= 2
    assert held(table) == [("a", 1, 4), ("b", 1, 4)]
    named = [table.files(snapshot_id=each.id) for each in table.snapshots()]
    assert data_files(table) == {entry.file.file_name for files in named for entry in files}
    assert [each.commit_kind for each in table.snapshots()][-1] is CommitKind.COMPACT


def test_rows_in_an_older_schema(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    staged(table, rows("a", 1, 1, 2))
    table = table.alter(AddColumn("more", "STRING"))
    staged(table, rows("a", 2, 2))
    table.compact()
    assert held(table) == [("a", 1, 1, None), ("a", 2, 2, None)]


@pytest.mark.dear("four that work at once")
def test_two_writers_and_two_compactions_at_the_same_time(tmp_path: Path) -> None:
    """Each row is added once: into the buckets, or after it has waited."""
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "changelog-producer": "lookup"}
    location = a_table(tmp_path, **options, **{"postpone.target-row-num-per-bucket": "4"}).location
    writing = threading.Event()
    commits = 12

    def write(user: str, makes: Callable[..., None]) -> None:
        table = Table.open(location)
        for number in range(commits):
            part = "abc"[number % 3]
            try:
                makes(table, rows(part, 1, *range(6)), user=user)
            except ConflictError:  # another number of buckets was chosen for a new partition
                makes(table, rows(part, 1, *range(6)), user=user)

    def compact() -> None:
        table = Table.open(location)
        while not writing.is_set():
            table.compact(full=False)

    with ThreadPoolExecutor(4) as pool:
        compactions = [pool.submit(compact) for _ in range(2)]
        writers = [pool.submit(write, "plain", commit), pool.submit(write, "stream", staged)]
        for writer in writers:
            writer.exception()
        writing.set()
        for each in (*writers, *compactions):
            each.result()
    table = Table.open(location)
    table.compact()
    assert held(table) == [(part, key, 2 * commits // 3) for part in "abc" for key in range(6)]
    last = {tuple(row.values())[:2]: row for row in table.changelog().to_arrow().to_pylist()}
    assert {row["n"] for row in last.values()} == {2 * commits // 3}
    assert not table.check(all_snapshots=True).damage
