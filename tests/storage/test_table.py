"""A table in the hands of a user: write, commit, read, look, compact, expire, clean, alter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from freshet import (
    AddColumn,
    Catalog,
    ChangeType,
    ConflictError,
    DropColumn,
    InvalidRequestError,
    MoveColumn,
    RenameColumn,
    ResetOption,
    RetryableError,
    SetColumnComment,
    SetComment,
    SetOption,
    Table,
    col,
)
from freshet.storage.catalogs.claims import LOST, ClaimAnswer
from freshet.storage.metadata.live_file_index import LiveFileIndex
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.snapshot import CommitKind, Snapshot


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path))


def create(catalog: Catalog, **options: object) -> Table:
    return catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "status": "STRING", "total": "INT"},
        primary_keys=["id"],
        options={"bucket": 2, **{key.replace("_", "-"): value for key, value in options.items()}},
    )


def rows(*values: tuple[int, str, int], kinds: list[str] | None = None) -> pa.Table:
    table = pa.table(
        {
            "id": pa.array([value[0] for value in values], pa.int64()),
            "status": [value[1] for value in values],
            "total": pa.array([value[2] for value in values], pa.int32()),
        }
    )
    return table if kinds is None else table.append_column("_ROW_KIND", pa.array(kinds))


def held(table: Table, **arguments: object) -> list[tuple[object, ...]]:
    found = table.scan(**arguments).to_arrow()  # type: ignore[arg-type]
    return sorted(tuple(row.values()) for row in found.to_pylist())


def load(table: Table, commits: int = 3, user: str = "loader") -> None:
    with table.writer(user) as writer:
        for number in range(commits):
            writer.write(rows((number, "new", number), (number + 1, "next", number)))
            writer.commit(number)


def test_write_commit_read(catalog: Catalog) -> None:
    table = create(catalog)
    with table.writer("loader") as writer:
        assert writer.write(rows((1, "new", 10), (2, "new", 20))) == 2
        assert held(table) == [], "not committed yet"
        [snapshot] = writer.commit(7).snapshots
        assert (snapshot.id, snapshot.commit_user, snapshot.commit_identifier) == (1, "loader", 7)
        assert held(table) == [(1, "new", 10), (2, "new", 20)]
        writer.write(rows((1, "paid", 11), (2, "", 0), kinds=["+U", "-D"]))
        writer.commit(8)
    assert held(catalog.table("shop.orders")) == [(1, "paid", 11)]
    assert held(table, snapshot_id=1) == [(1, "new", 10), (2, "new", 20)]
    assert held(table, columns=["total"], filter=col("total") > 10) == [(11,)]
    assert table.scan(limit=0).to_arrow().num_rows == 0


def test_identifier_commits_once_in_any_process(catalog: Catalog) -> None:
    table = create(catalog)
    for _ in range(3):
        with table.writer("loader") as writer:
            writer.write(rows((1, "new", 1)))
            result = writer.commit(identifier=0)
    assert result.already_committed
    assert len(table.snapshots()) == 1
    assert not table.remove_orphan_files(older_than_ms=-60_000).files, "rows of known commits leave no files"


def test_identifiers_count_on_by_themselves(catalog: Catalog) -> None:
    table = create(catalog)
    with table.writer("loader") as writer:
        for number in range(3):
            writer.write(rows((number, "x", 0)))
            assert writer.commit().snapshots[0].commit_identifier == number
    with table.writer("loader") as writer:
        assert writer.commit().snapshots[0].commit_identifier == 3


def load_and_fail(table: Table) -> None:
    with table.writer("loader") as writer:
        writer.write(rows((9, "lost", 0)))
        writer.compact(full=True)
        raise RuntimeError("of the program")


def test_uncommitted_rows_are_gone_without_a_trace(catalog: Catalog) -> None:
    table = create(catalog)
    load(table, 1)
    with pytest.raises(RuntimeError, match="of the program"):
        load_and_fail(table)
    with table.writer("loader") as writer:
        writer.write(rows((9, "lost", 0)))
        writer.abort()
        writer.commit(5)
    assert held(table) == [(0, "new", 0), (1, "next", 0)]
    assert not table.remove_orphan_files(older_than_ms=-60_000).files


class FailsTwice:
    """A claim that is lost to another writer until the budget is spent, for two commits."""

    def __init__(self, table: Table) -> None:
        self._claim = table.store.claims.claim_snapshot
        self.left = 2

    def __call__(self, snapshot: Snapshot) -> ClaimAnswer:
        if self.left:
            self.left -= 1
            return LOST
        return self._claim(snapshot)


def test_commit_that_failed_keeps_its_rows_for_the_next_try(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog, **{"commit.max-retries": 0})
    with table.writer("loader") as writer:
        writer.write(rows((1, "old", 1)))
        monkeypatch.setattr(table.store.claims, "claim_snapshot", FailsTwice(table))
        with pytest.raises(RetryableError):
            writer.commit(0)
        with pytest.raises(InvalidRequestError, match="commit again, or abort"):
            writer.write(rows((1, "newer", 2)))
        with pytest.raises(RetryableError):
            writer.commit(0)
        assert writer.commit(0).snapshots
        writer.write(rows((1, "newer", 2)))
        writer.commit(1)
    assert held(table) == [(1, "newer", 2)]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 1]


def test_two_sessions_take_turns(catalog: Catalog) -> None:
    table = create(catalog)
    with table.writer("a") as first, table.writer("b") as second:
        for number in range(6):
            first.write(rows((1, f"a{number}", number)))
            first.commit(number)
            second.write(rows((1, f"b{number}", number)))
            second.commit(number)
            assert held(table) == [(1, f"b{number}", number)], "the later commit wins"


@pytest.mark.parametrize("first_to_commit", [0, 1])
def test_of_two_sessions_the_one_that_commits_last_wins(catalog: Catalog, first_to_commit: int) -> None:
    """Both have written before either commits. (Paimon numbers rows at the write: there the later write wins.)"""
    table = create(catalog)
    load(table, 1)
    with table.writer("a") as one, catalog.table("shop.orders").writer("b") as two:
        one.write(rows((1, "one", 1), (2, "", 0), kinds=["+U", "-D"]))
        two.write(rows((1, "", 0), (2, "two", 2), kinds=["-D", "+U"]))
        for session in (one, two) if first_to_commit == 0 else (two, one):
            session.commit()
    expected = (2, "two", 2) if first_to_commit == 0 else (1, "one", 1)
    assert [row for row in held(table) if row[0] in (1, 2)] == [expected]


def test_time_travel(catalog: Catalog) -> None:
    table = create(catalog)
    load(table, 2)
    first, second = table.snapshots()
    assert held(table, timestamp_ms=second.time_ms) == held(table)
    assert held(table, snapshot_id=first.id) == [(0, "new", 0), (1, "next", 0)]


def test_compaction_has_a_user_of_its_own_and_changes_no_row(catalog: Catalog) -> None:
    table = create(catalog)
    load(table)
    before = held(table)
    [snapshot] = table.compact(full=True).snapshots
    assert snapshot.commit_kind is CommitKind.COMPACT
    assert snapshot.commit_user != "loader"
    assert held(table) == before
    assert {entry.file.level for entry in table.files()} == {5}
    assert table.compact(full=True).snapshots == (), "nothing left to do"
    with table.writer("loader") as writer:
        assert writer.commit(2).already_committed, "the compaction did not hide the loader's identity"


def test_writer_goes_on_after_its_files_were_compacted_away(catalog: Catalog) -> None:
    table = create(catalog, **{"num-sorted-run.compaction-trigger": 2})
    with table.writer("loader") as writer:
        for number in range(8):
            writer.write(rows((1, f"s{number}", number), (number + 10, "x", 0)))
            writer.commit(number)
            if number % 2:
                catalog.table("shop.orders").compact()
    assert (1, "s7", 7) in held(table)
    assert len(held(table)) == 9


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
def test_writer_goes_on_when_its_files_were_compacted_away_and_expired(catalog: Catalog, keyed: bool) -> None:
    """Between its first row and its commit another writer compacts everything and expires what was there before."""
    options = {"bucket": 1, "num-sorted-run.compaction-trigger": 2, "compaction.min.file-num": 2}
    table = catalog.create_table(
        "shop.hasty",
        schema={"id": "BIGINT", "v": "INT"},
        primary_keys=["id"] if keyed else [],
        options=options if keyed else {**options, "bucket-key": "id"},
    )
    with table.writer("loader") as writer:
        for number in range(7):
            ids = range(number * 5, number * 5 + 10)
            writer.write(pa.table({"id": list(ids), "v": pa.array([number] * 10, pa.int32())}))
            other = catalog.table("shop.hasty")
            other.compact(full=True)
            other.expire_snapshots(retain_max=1)
            assert writer.commit(number).snapshots[0].commit_kind is CommitKind.APPEND
    expected = [(key, number) for number in range(7) for key in range(number * 5, number * 5 + 10)]
    assert held(table) == (sorted(dict(expected).items()) if keyed else sorted(expected))
    table.remove_orphan_files(older_than_ms=-60_000)
    assert len(held(catalog.table("shop.hasty"))) == (40 if keyed else 70)


def test_describe_draws_the_levels(catalog: Catalog) -> None:
    table = create(catalog)
    assert "no snapshot yet" in table.describe()
    load(table)
    table.compact(full=True)
    with table.writer("late") as writer:
        writer.write(rows((1, "late", 1)))
        writer.commit(0)
    text = table.describe()
    assert "shop.orders: primary key (id)" in text
    levels = [line.split()[0] for line in text.splitlines() if line.strip().startswith("L")]
    assert levels.count("L0") == 1
    assert levels.count("L5") == 2
    assert "bucket-0" in text
    assert "bucket-1" in text


def test_describe_shows_comments(catalog: Catalog) -> None:
    table = catalog.create_table("shop.notes", schema={"id": "BIGINT", "text": "STRING"}, comment="what people say")
    table.alter(SetColumnComment("text", "as they\nwrote it"))
    lines = catalog.table("shop.notes").describe().splitlines()
    assert lines[0] == "shop.notes: append-only  -- what people say"
    assert "  id    BIGINT" in lines and "  text  STRING  -- as they\\nwrote it" in lines


@pytest.mark.parametrize(("count", "lines"), [(20, 20), (21, 21), (300, 21)])
def test_describe_leaves_out_runs_in_the_middle(
    catalog: Catalog, unchecked_claims: None, count: int, lines: int
) -> None:
    """Many small commits without a compaction: the newest and the oldest runs, and how many lie between them."""
    table = catalog.create_table("shop.log", schema={"id": "BIGINT"}, options={"bucket": "-1"})
    with table.writer("loader") as writer:
        writer.write({"id": [1]})
        writer.commit()
    [entry] = table.files()
    copies = [replace(entry.file, file_name=f"data-{number}-0.parquet") for number in range(count - 1)]
    table.engine.committer("copier").commit(0, [CommitMessage(entry.partition, 0, -1, new_files=tuple(copies))])
    drawn = table.describe().partition("bucket-0")[2].splitlines()
    assert f"  {count} runs, {count} rows" in drawn[0]
    assert len(drawn) == 1 + lines
    if count > 20:
        assert drawn[11].startswith(f"  … {count - 20} more run")


def test_expire_and_clean(catalog: Catalog) -> None:
    table = create(catalog)
    load(table, 5)
    table.compact()
    ids = [snapshot.id for snapshot in table.snapshots()]
    assert ids == list(range(1, len(ids) + 1))
    assert table.expire_snapshots(retain_max=2).snapshot_ids == tuple(ids[:-2])
    assert [snapshot.id for snapshot in table.snapshots()] == ids[-2:]
    stray = Path(table.location) / "bucket-0" / "data-stray-0.parquet"
    stray.write_bytes(b"x" * 10)
    found = table.remove_orphan_files(older_than_ms=-60_000, dry_run=True)
    assert [file.path for file in found.files] == [str(stray)]
    assert found.size_bytes == 10
    assert not table.remove_orphan_files().files, "younger than a day"
    table.remove_orphan_files(older_than_ms=-60_000)
    assert not stray.exists()
    assert len(held(table)) == 6


def test_alter_columns_and_read_old_files(catalog: Catalog) -> None:
    table = create(catalog)
    load(table, 1)
    changed = table.alter(
        AddColumn("note", "STRING", comment="free text", after="id"),
        RenameColumn("status", "state"),
        ChangeType("total", "BIGINT"),
        SetComment("orders of the shop"),
    )
    assert changed.schema.id == 1
    assert changed.schema.column_names == ("id", "note", "state", "total")
    assert held(changed) == [(0, None, "new", 0), (1, None, "next", 0)]
    with changed.writer("loader") as writer:
        writer.write(pa.table({"id": [1], "note": ["n"], "state": ["s"], "total": [2**40]}))
        [snapshot] = writer.commit(1).snapshots
    assert snapshot.schema_id == 1
    assert held(changed) == [(0, None, "new", 0), (1, "n", "s", 2**40)]
    dropped = changed.alter(DropColumn("note"), MoveColumn("total", first=True))
    assert held(dropped) == [(0, 0, "new"), (2**40, 1, "s")]
    again = dropped.alter(AddColumn("note", "STRING"))
    assert [row[-1] for row in held(again)] == [None, None], "a new column of an old name is another column"
    assert held(again, snapshot_id=1) == [(0, "new", 0), (1, "next", 0)], "a snapshot in the columns it had"


def test_alter_options(catalog: Catalog) -> None:
    table = create(catalog)
    changed = table.alter(SetOption("write-buffer-size", "32 mb"), SetOption("num-levels", "4"))
    assert dict(changed.schema.options)["write-buffer-size"] == "32 mb"
    assert "num-levels" not in dict(changed.alter(ResetOption("num-levels")).schema.options)


def test_alter_against_another_writer(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog)
    other = catalog.table("shop.orders")
    other.alter(AddColumn("theirs", "INT"))
    assert table.alter(AddColumn("ours", "INT")).schema.column_names[-2:] == ("theirs", "ours")
    monkeypatch.setattr(table.store.claims, "claim_schema", lambda schema: False)
    with pytest.raises(ConflictError, match="changed by others"):
        table.alter(AddColumn("never", "INT"))


def test_session_of_an_old_schema_goes_on(catalog: Catalog) -> None:
    table = create(catalog)
    with table.writer("loader") as writer:
        writer.write(rows((1, "a", 1)))
        changed = table.alter(AddColumn("note", "STRING"))
        [snapshot] = writer.commit(0).snapshots
    assert snapshot.schema_id == 1, "the latest schema at the commit"
    assert held(changed) == [(1, "a", 1, None)]


def test_a_session_takes_up_an_altered_schema_and_compacts_on(catalog: Catalog) -> None:
    table = create(catalog, **{"bucket": 1, "num-sorted-run.compaction-trigger": 3})
    with table.writer("loader") as writer:
        writer.write(rows((0, "old", 0)))
        table.alter(AddColumn("note", "STRING"))
        writer.commit()
        for number in range(1, 4):
            writer.write(rows((number, "new", number)).append_column("note", pa.array(["x"])))
            writer.commit()
    changed = catalog.table("shop.orders")
    assert max(entry.file.level for entry in changed.files()) > 0
    assert held(changed) == [(0, "old", 0, None), *((n, "new", n, "x") for n in (1, 2, 3))]


def test_a_session_whose_table_another_one_writes_at_a_later_schema_compacts_on(catalog: Catalog) -> None:
    table = create(catalog, **{"bucket": 1, "num-sorted-run.compaction-trigger": 3})
    with table.writer("loader") as writer:
        with table.alter(AddColumn("note", "STRING")).writer("other") as other:
            other.write(rows((9, "other", 9)))
            other.commit()
        for number in range(1, 5):
            writer.write(rows((number, "mine", number)))
            writer.commit()
    assert max(entry.file.level for entry in catalog.table("shop.orders").files()) > 0


def test_lookup_gives_rows_by_key_at_a_snapshot(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.found", schema={"id": "BIGINT", "v": "STRING"}, primary_keys=["id"], options={"bucket": "3"}
    )
    keys = pa.table({"id": pa.array([7, 2, 99, 7], pa.int64())})
    assert table.lookup(keys).by_key().to_pylist() == [{"id": None, "v": None}] * 4
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": range(10), "v": [f"old {key}" for key in range(10)]}))
        first = writer.commit(1).snapshots[0].id
        writer.write(pa.table({"id": [2, 7], "v": ["x", "new 7"], "_ROW_KIND": ["-D", "+U"]}))
        writer.commit(2)
    assert table.lookup(keys, ["v"]).by_key()["v"].to_pylist() == ["new 7", None, None, "new 7"]
    found = table.lookup(keys, ["v"], snapshot_id=first)
    assert found.rows.num_rows == 2
    assert found.by_key()["v"].to_pylist() == ["old 7", "old 2", None, "old 7"]


def test_level_0_is_counted_without_a_look_at_all_files(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog, write_only="true")
    for number in range(3):
        with table.writer("loader") as writer:
            writer.write(rows(*((key, "new", number) for key in range(20))))
            writer.commit(number)
    latest = table.latest_snapshot()
    assert latest is not None
    fresh = catalog.table("shop.orders")
    partition = table.files()[0].partition

    def everything(*_: object) -> None:
        raise AssertionError("all live files were asked for")

    monkeypatch.setattr("freshet.storage.metadata.live_file_index.SMALL_ENTRIES_MAX", 0)
    monkeypatch.setattr(LiveFileIndex, "at", everything)
    assert fresh.engine.level0_counts(latest, iter([(partition, 1), (partition, 7)])) == [3, 0]
