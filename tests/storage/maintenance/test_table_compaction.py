"""Compaction of a table, bucket by bucket: committed as it goes, within a budget, dropped on conflict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import AddColumn, Catalog, ConflictError, DropColumn, NotFoundError, Table
from freshet.storage.codec.binary_row import decode_row
from freshet.storage.commit.committer import Committer
from freshet.storage.maintenance import table_compaction
from freshet.storage.maintenance.compaction_plan import plan_compaction
from freshet.storage.maintenance.table_compaction import (
    CompactionBudget,
    CompactionProgress,
    compact_bucket,
)
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import CommitKind
from tests.kit.changelog_files import changelog, folded

COLUMNS = {"day": "INT NOT NULL", "k": "INT NOT NULL", "v": "STRING"}


def a_table(folder: Path, *, days: int = 4, commits: int = 3, **options: str) -> Table:
    """`commits` files at level 0 in the one bucket of each day; later days have more rows."""
    table = Catalog(str(folder)).create_table(
        "db.t",
        schema=COLUMNS,
        primary_keys=["day", "k"],
        partition_keys=["day"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "50", **options},
    )
    with table.writer("w") as writer:
        for number in range(commits):
            for day in range(days):
                keys = list(range(200 * (day + 1)))
                texts = [str((key + number) ** 5) for key in keys]
                writer.write(pa.table({"day": [day] * len(keys), "k": keys, "v": texts}))
            writer.commit()
    return table


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def levels(table: Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in table.files():
        day = decode_row(entry.partition, table.store.partition_types)[0]
        found.setdefault(day, []).append(entry.file.level)
    return found


def test_the_plan_names_what_each_bucket_would_compact(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    works = plan_compaction(table.store, full=True)
    days = [decode_row(work.partition, table.store.partition_types)[0] for work in works]
    assert days == [3, 2, 1, 0], "the largest first"
    assert all(len(work.inputs) == 3 for work in works)
    assert plan_compaction(table.store, full=False) == [], "below the trigger nothing is due"
    table.compact()
    assert plan_compaction(table.store, full=True) == []


def test_it_commits_as_it_goes_and_shows_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_compaction, "COMMIT_BUCKETS", 2)
    table = a_table(tmp_path)
    before = held(table)
    seen: list[CompactionProgress] = []
    result = table.compact(progress=seen.append)
    assert [snapshot.commit_kind for snapshot in result.snapshots] == ["COMPACT", "COMPACT"]
    assert len({snapshot.commit_user for snapshot in result.snapshots}) == 1
    assert [step.buckets_done for step in seen] == [0, 1, 2, 3, 4]
    assert seen[-1].bytes_done == seen[-1].bytes_planned == result.input_bytes > 0
    assert levels(table) == {day: [49 + 1] for day in range(4)}
    assert held(table) == before


def test_what_was_committed_stays_when_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_compaction, "COMMIT_BUCKETS", 1)
    table = a_table(tmp_path)
    before = held(table)

    def interrupt(step: CompactionProgress) -> None:
        if step.buckets_done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.compact(progress=interrupt)
    assert sorted(day for day, found in levels(table).items() if len(found) == 1) == [2, 3]
    assert held(table) == before
    files = {entry.file.file_name for entry in table.files()}
    on_disk = {path.name for path in Path(table.location).rglob("data-*")}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert {path.name for path in Path(table.location).rglob("data-*")} == files
    assert files <= on_disk


def test_a_budget_of_bytes_takes_the_largest_and_what_fits_as_well(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    works = plan_compaction(table.store, full=True)
    limit = works[0].input_bytes + works[3].input_bytes
    result = table.compact(budget=CompactionBudget(input_bytes=limit))
    assert (result.buckets_done, result.buckets_left, result.input_bytes) == (2, 2, limit)
    assert sorted(day for day, found in levels(table).items() if len(found) == 1) == [0, 3]
    small = table.compact(budget=CompactionBudget(input_bytes=1))
    assert (small.buckets_done, small.buckets_left) == (1, 1), "one at least"


def test_no_time_left_means_nothing_begun(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    result = table.compact(budget=CompactionBudget(seconds=0))
    assert (result.snapshots, result.buckets_done, result.buckets_left) == ((), 0, 4)


def test_one_partition(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    (partition,) = {e.partition for e in table.files() if decode_row(e.partition, table.store.partition_types) == (2,)}
    table.compact(partition=partition)
    assert [day for day, found in levels(table).items() if len(found) == 1] == [2]


def test_a_bucket_compacted_elsewhere_is_dropped_on_conflict(tmp_path: Path) -> None:
    table = a_table(tmp_path, days=2)
    before = held(table)
    works = plan_compaction(table.store, full=True)
    elsewhere = Catalog(str(tmp_path)).table("db.t")
    messages = [message for work in works for message in compact_bucket(elsewhere.store, work)]
    quicker = works[0].partition
    assert len(Catalog(str(tmp_path)).table("db.t").compact(partition=quicker).snapshots) == 1
    result = Committer(table.store, "night").commit(0, messages, force_empty=False)
    assert {conflict.partition for conflict in result.aborted_compactions} == {quicker}
    assert len(result.snapshots) == 1
    assert all(len(found) == 1 for found in levels(table).values())
    assert held(table) == before


def test_compactions_concurrent_with_a_stream_do_not_conflict(tmp_path: Path) -> None:
    """The stream's rows, written before and committed after the compaction, are all there."""
    table = a_table(tmp_path, days=2)
    with Catalog(str(tmp_path)).table("db.t").writer("stream") as writer:
        for number in range(5):
            writer.write(pa.table({"day": [0, 1], "k": [number, number], "v": ["stream"] * 2}))
            assert table.compact().aborted_compactions == ()
            assert writer.commit().aborted_compactions == ()
    assert [row for row in held(table) if row[2] == "stream"] == [(d, n, "stream") for d in (0, 1) for n in range(5)]


EMITTING = {
    "lookup": {"changelog-producer": "lookup"},
    "lookup, vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
    "full-compaction": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1000"},
}


def emitted(table: Table) -> list[tuple[Any, ...]]:
    """What the changelog adds up to."""
    return sorted(tuple(row.values()) for row in folded(changelog(table).values(), ["day", "k"]).values())


@pytest.mark.parametrize("options", EMITTING.values(), ids=EMITTING)
def test_a_compaction_that_an_overwrite_overtook_is_dropped(tmp_path: Path, options: dict[str, str]) -> None:
    """Its files and its changelog are of rows that are not there any more."""
    table = a_table(tmp_path, days=2, **options, **{"write-only": "true"})
    table = table.with_options({"write-only": "false"})
    before = held(table.with_options({"deletion-vectors.merge-on-read": "true"}))
    works = plan_compaction(table.store, full=True)
    messages = [message for work in works for message in compact_bucket(table.store, work)]
    overwritten = next(message for message in messages if message.partition == works[0].partition)
    day = decode_row(overwritten.partition, table.store.partition_types)[0]
    gone = tuple(entry.file for entry in table.files() if entry.partition == overwritten.partition)
    overwrite = CommitMessage(overwritten.partition, 0, overwritten.total_buckets, deleted_files=gone)
    done = Committer(table.store, "other").commit(1, [overwrite])
    assert done.snapshots[-1].commit_kind is CommitKind.OVERWRITE
    result = Committer(table.store, "night").commit(0, messages, force_empty=False)
    assert {conflict.partition for conflict in result.aborted_compactions} == {overwritten.partition}
    table.compact()
    assert held(table) == [row for row in before if row[0] != day] == emitted(table)
    files = {entry.file.file_name for entry in table.files()}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    table.remove_orphan_files(older_than_ms=-1_000_000)
    assert {path.name for path in Path(table.location).rglob("data-*")} == files, "nothing of it is left"


@pytest.mark.parametrize("options", EMITTING.values(), ids=EMITTING)
def test_a_compaction_that_a_change_of_the_schema_overtook(tmp_path: Path, options: dict[str, str]) -> None:
    """Its files have the columns of their schema; rows written since have the new one."""
    table = a_table(tmp_path, days=2, **options, **{"write-only": "true"})
    works = plan_compaction(table.with_options({"write-only": "false"}).store, full=True)
    messages = [message for work in works for message in compact_bucket(table.store, work)]
    changed = table.alter(AddColumn("more", "STRING"))
    with changed.writer("w") as writer:
        writer.write(pa.table({"day": [0], "k": [0], "v": ["new"], "more": ["m"]}))
        writer.commit()
    Committer(table.store, "night").commit(0, messages, force_empty=False)
    with changed.with_options({"write-only": "false"}).writer("w") as writer:
        writer.write(pa.table({"day": [1], "k": [1], "v": ["new"], "more": ["n"]}))
        writer.commit()
    changed.with_options({"write-only": "false"}).compact()
    rows = {row[:2]: row[2:] for row in held(changed)}
    assert (rows.pop((0, 0)), rows.pop((1, 1))) == (("new", "m"), ("new", "n"))
    assert len(rows) == 200 + 400 - 2
    assert {row[1] for row in rows.values()} == {None}
    assert emitted(changed) == held(changed)


def more(table: Table, day: int) -> None:
    """A row of the schema with one column more."""
    with table.writer("w") as writer:
        writer.write(pa.table({"day": [day], "k": [0], "v": ["new"], "more": ["m"]}))
        writer.commit()


def test_a_table_that_was_altered_since_it_was_opened(tmp_path: Path) -> None:
    """The compaction uses the new schema, as writers do."""
    table = a_table(tmp_path, days=2, **{"write-only": "true"})
    changed = table.alter(AddColumn("more", "STRING"))
    more(changed, 0)
    before = held(changed)
    assert len(table.compact().snapshots) == 1
    assert held(changed) == before
    assert [len(found) for found in levels(table).values()] == [1, 1]
    assert table.schema.id == 0, "the object is what it was"
    changed.alter(DropColumn("more"))
    assert table.compact().snapshots == (), "nothing is left to do"


def test_a_schema_that_changes_while_a_table_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays; the next compaction uses the new schema, so it is no mistake of the caller."""
    monkeypatch.setattr(table_compaction, "COMMIT_BUCKETS", 1)
    table = a_table(tmp_path, days=2, **{"write-only": "true"})

    def change(progress: CompactionProgress) -> None:
        if progress.buckets_done == 1:
            more(table.alter(AddColumn("more", "STRING")), 0)

    with pytest.raises(ConflictError, match="compact it again"):
        table.compact(progress=change)
    assert sorted(map(len, levels(table).values())) == [1, 4], "the larger one was compacted before"
    table.compact()
    assert [len(found) for found in levels(table).values()] == [1, 1]


def test_a_table_that_was_dropped_since_it_was_opened(tmp_path: Path) -> None:
    table = a_table(tmp_path, days=1)
    Catalog(str(tmp_path)).drop_table("db.t")
    with pytest.raises(NotFoundError, match="was dropped or renamed while it was open"):
        table.compact()
    a_table(tmp_path, days=1)
    with pytest.raises(ConflictError, match="dropped and created again"):
        table.compact()
