"""Commits of tables that need lookup: level 0 goes up with them, or when the options say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.commit.committer import Committer
from freshet.storage.model.commit_message import decode_commit_messages, encode_commit_messages
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.write.task_writer import TaskWriter

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def create(folder: Path, **options: str) -> Table:
    spelled = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return Catalog(str(folder)).create_table(
        "db.t", schema=SCHEMA, primary_keys=["k"], options={"bucket": "1", **spelled}
    )


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": pa.array([v for _, v in pairs], pa.int64())})


def found(table: Table) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def kinds(table: Table) -> list[CommitKind]:
    return [snapshot.commit_kind for snapshot in table.snapshots()]


def levels(table: Table) -> list[int]:
    return sorted(entry.file.level for entry in table.files())


PAIR = [CommitKind.APPEND, CommitKind.COMPACT]
SUM = {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"}


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"merge_engine": "deduplicate"}, 50, 100),
        ({"merge_engine": "partial-update"}, None, 100),
        ({"merge_engine": "first-row"}, 100, 70),
        (SUM, 30, 70),
    ],
    ids=lambda value: value.get("merge_engine") if isinstance(value, dict) else "",
)
def test_vector_73(tmp_path: Path, options: dict[str, str], first: int | None, second: int) -> None:
    table = create(
        tmp_path,
        force_lookup="true",
        **{k.replace("aggregate_function", "aggregate-function"): v for k, v in options.items()},
    )
    with table.writer("u") as writer:
        writer.write(rows((10, first)))
        writer.commit(1)
        assert kinds(table) == PAIR
        writer.write(rows((10, second)))
        result = writer.commit(2)
    assert kinds(table) == PAIR * 2
    assert found(table) == {10: 100}
    assert result.snapshots[-1].delta_record_count == -1  # two files became one
    assert [(entry.file.level, entry.file.row_count) for entry in table.files()] == [(5, 1)]


def test_vector_68_the_state(tmp_path: Path) -> None:
    """A sum over rows at level 0 and above never adds a stale copy, in compactions and in reads."""
    table = create(tmp_path, force_lookup="true", num_sorted_run__compaction_trigger="50", **SUM)
    with table.writer("u") as writer:
        writer.write(rows(*((k, 1) for k in range(2000))))
        writer.commit(1)
        for identifier in (2, 3, 4):
            writer.write(rows((7, 10)))
            writer.commit(identifier)
    assert len(set(levels(table))) > 1  # the large file stays where it is, a copy of the key lies below it
    assert found(table)[7] == 31
    waits = table.with_options({"write-only": "true"})
    with waits.writer("u2") as writer:
        writer.write(rows((7, 100), (8, 100)))
        writer.commit(1)
    assert levels(table)[0] == 0
    assert (found(table)[7], found(table)[8], found(table)[9]) == (131, 101, 1)
    table.compact(full=True)
    assert set(levels(table)) == {table.store.options.num_levels - 1}
    assert (found(table)[7], found(table)[8], found(table)[9]) == (131, 101, 1)


@pytest.mark.parametrize("engine", ["sum", "first-row"])
def test_a_compaction_is_dropped_when_files_it_looked_into_were_replaced(tmp_path: Path, engine: str) -> None:
    """Rows of another writer came into the levels above meanwhile: what was found there is not all there is."""
    table = create(tmp_path, **(SUM | {"force_lookup": "true"} if engine == "sum" else {"merge_engine": "first-row"}))
    with table.writer("first") as writer:
        writer.write(rows(*((2 * k, 1) for k in range(2000))))
        writer.commit(1)
    late = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest())
    late.write(rows((8, 10), (7, 10)))
    messages = decode_commit_messages(encode_commit_messages(late.prepare_commit(1)))
    (looked_at,) = table.files()
    assert messages[0].compact_lookups == (looked_at.file.file_name,)
    with table.with_options({"write-only": "true"}).writer("other") as writer:
        writer.write(rows((8, 100), (7, 100)))
        writer.commit(1)
    table.compact(full=True)
    numbered = [replace(message, numbered_at=None) for message in messages]  # their numbers are not the point
    result = Committer(table.store, "late").commit(1, numbered)
    assert [snapshot.commit_kind for snapshot in result.snapshots] == [CommitKind.APPEND]
    assert "looked up" in result.aborted_compactions[0].reason
    late.rebase(table.store.snapshots.latest())
    late.compact(full=False)
    Committer(table.store, "late").commit(2, late.prepare_commit(2))
    late.close()
    wanted = {8: 111, 7: 110} if engine == "sum" else {8: 1, 7: 100}
    assert {k: v for k, v in found(table).items() if k in wanted} == wanted
    assert 0 not in levels(table)


def test_a_writer_forgets_a_compaction_when_files_it_looked_into_are_gone(tmp_path: Path) -> None:
    table = create(tmp_path, merge_engine="first-row")
    with table.writer("first") as writer:
        writer.write(rows(*((2 * k, 1) for k in range(2000))))
        writer.commit(1)
    late = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest())
    late.write(rows((7, 10)))
    late.compact(full=False)
    table.with_options({"compaction.force-rewrite-all-files": "true"}).compact(full=True)
    late.rebase(table.store.snapshots.latest())
    (message,) = late.prepare_commit(1)
    assert len(message.new_files) == 1
    assert message.compact_lookups == tuple(entry.file.file_name for entry in table.files())
    Committer(table.store, "late").commit(1, [message])
    late.close()
    assert found(table)[7] == 10


@pytest.mark.parametrize("has_store", [True, False])
def test_a_compaction_is_given_up_when_files_it_would_look_into_have_expired(tmp_path: Path, has_store: bool) -> None:
    """Where the file is read that is noticed at once; its store does not know, and the commit drops the compaction."""
    room = {} if has_store else {"lookup__cache_max_disk_size": "0"}
    table = create(tmp_path, merge_engine="first-row", lookup__cache_dir=str(tmp_path / "cache"), **room)
    with table.writer("first") as writer:
        writer.write(rows(*((2 * k, 1) for k in range(2000))))
        writer.commit(1)
    late = TaskWriter(table.store, base_snapshot=table.store.snapshots.latest())
    late.write(rows((7, 10), (8, 10)))
    table.with_options({"compaction.force-rewrite-all-files": "true"}).compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    (message,) = late.prepare_commit(1)
    assert message.has_compaction == has_store
    result = Committer(table.store, "late").commit(1, [message])
    assert bool(result.aborted_compactions) == has_store
    assert Path(table.store.paths.latest_hint).read_text() == str(result.snapshots[-1].id)
    late.close()
    assert len(found(table)) == 2000
    table.compact(full=False)
    assert (found(table)[7], found(table)[8]) == (10, 1)


def test_without_waiting_level_0_is_left_to_the_rules_of_other_tables(tmp_path: Path) -> None:
    table = create(tmp_path, merge_engine="first-row", lookup_wait="false")
    with table.writer("u") as writer:
        for identifier in range(1, 5):
            writer.write(rows((identifier, identifier)))
            writer.commit(identifier)
        assert kinds(table) == [CommitKind.APPEND] * 4
        assert found(table) == {}
        writer.write(rows((5, 5)))
        writer.commit(5)
    assert kinds(table)[-1] is CommitKind.COMPACT
    assert found(table) == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}


def test_gentle_compaction_waits_its_interval_over_commits(tmp_path: Path) -> None:
    table = create(
        tmp_path,
        merge_engine="first-row",
        lookup_compact="gentle",
        lookup_compact__max_interval="7",
        num_sorted_run__compaction_trigger="7",
    )
    seen = []
    with table.writer("u") as writer:
        for identifier in range(1, 7):
            writer.write(rows((identifier % 3, identifier)))
            writer.commit(identifier)
            seen.append(len(found(table)))
        assert seen == [0] * 6
        writer.write(rows((9, 9)))
        writer.commit(7)
    assert found(table) == {0: 3, 1: 1, 2: 2, 9: 9}


def test_gentle_compaction_counts_over_commits_of_one_writer(tmp_path: Path) -> None:
    """Runs stay below the trigger, so that only the count can have moved level 0 up."""
    table = create(
        tmp_path,
        force_lookup="true",
        lookup_compact="gentle",
        lookup_compact__max_interval="1",
        num_sorted_run__compaction_trigger="3",
    )
    interval = table.store.options.lookup_compact_max_interval
    assert interval == 3
    with table.writer("u") as writer:
        writer.write(rows(*((k, k) for k in range(5000))))
        writer.commit(0)
        writer.compact(full=True)
        writer.commit(1)
        assert levels(table) == [3]
        moved = []
        for identifier in range(2, 8):
            writer.write(rows((identifier, -1)))
            writer.commit(identifier)
            moved.append(0 not in levels(table))
    assert True in moved
    assert False in moved


def test_write_only_first_row_shows_nothing_until_it_is_compacted(tmp_path: Path) -> None:
    table = create(tmp_path, merge_engine="first-row", write_only="true")
    with table.writer("u") as writer:
        writer.write(rows((1, 1), (2, 2)))
        writer.commit(1)
        writer.write(rows((2, 3), (4, 4)))
        writer.commit(2)
    assert kinds(table) == [CommitKind.APPEND] * 2
    assert found(table) == {}
    table.compact(full=False)
    assert found(table) == {1: 1, 2: 2, 4: 4}
    assert 0 not in levels(table)


def test_a_first_row_table_of_old_keys_gets_no_file(tmp_path: Path) -> None:
    table = create(tmp_path, merge_engine="first-row")
    with table.writer("u") as writer:
        writer.write(rows(*((k, k) for k in range(1000))))
        writer.commit(1)
        before = table.files()
        writer.write(rows((3, -1), (4, -1)))
        writer.commit(2)
    assert table.files() == before
    assert kinds(table) == PAIR * 2
    assert found(table) == {k: k for k in range(1000)}


@pytest.mark.parametrize("function", ["sum", "first_value", "last_value"])
def test_a_tiny_write_buffer_changes_no_row_of_the_level_0_file(tmp_path: Path, function: str) -> None:
    """Rows are spilled after every write; what is flushed is what is flushed without."""
    stored = []
    for size in ("1 kb", "64 mb"):
        table = create(
            tmp_path / size.replace(" ", ""),
            merge_engine="aggregation",
            write_only="true",
            write_buffer_size=size,
            **{"fields__v__aggregate-function": function},
        )
        with table.writer("u") as writer:
            for at in range(20):
                writer.write(rows(*((k % 7, 1 + (k + at) % 3) for k in range(30)), (100 + at, at)))
            spilled = any(each.spilled_bytes for each in writer._writer._buckets.writers.values())
            writer.commit(1)
        assert spilled == (size == "1 kb")
        (entry,) = table.files()
        stored.append((entry.file.row_count, entry.file.min_sequence_number, table.scan().to_arrow().to_pylist()))
    assert stored[0] == stored[1]
    assert stored[0][0] == 27
