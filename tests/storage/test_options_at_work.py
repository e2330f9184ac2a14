"""Options of Paimon that change what a commit, a file or a schema looks like: what each does, seen from outside."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import AddColumn, Catalog, Table
from freshet.storage.maintenance.background_compaction import why_not_in_background
from freshet.storage.model.data_file import EMPTY_STATS
from freshet.storage.model.manifest import EntryKind
from freshet.storage.model.snapshot import CommitKind


def create(folder: Path, **options: str) -> Table:
    schema = {"id": "BIGINT", "v": "STRING"}
    return Catalog(folder).create_table("db.t", schema=schema, primary_keys=["id"], options={"bucket": "1", **options})


def load(table: Table, *ids: int, commits: int = 1) -> None:
    with table.writer("loader") as writer:
        for number in range(commits):
            writer.write({"id": list(ids), "v": [f"{number}"] * len(ids)})
            writer.commit()


# --- snapshot.ignore-empty-commit


@pytest.mark.parametrize(
    ("options", "snapshots"),
    [
        ({}, 2),
        ({"snapshot.ignore-empty-commit": "false"}, 2),
        ({"snapshot.ignore-empty-commit": "true"}, 1),
        ({"snapshot.ignore-empty-commit": "true", "commit.force-create-snapshot": "true"}, 2),
    ],
)
def test_a_commit_without_files(tmp_path: Path, options: dict[str, str], snapshots: int) -> None:
    table = create(tmp_path).with_options(options)
    with table.writer("loader") as writer:
        empty = writer.commit(0)
        writer.write({"id": [1], "v": ["a"]})
        assert writer.commit(1).snapshots
    assert (len(empty.snapshots), empty.already_committed) == (snapshots - 1, False)
    assert len(table.snapshots()) == snapshots


def test_an_ignored_number_is_not_used_up(tmp_path: Path) -> None:
    table = create(tmp_path, **{"snapshot.ignore-empty-commit": "true"})
    with table.writer("loader") as writer:
        writer.commit(7)
        writer.write({"id": [1], "v": ["a"]})
        assert not writer.commit(7).already_committed
        assert writer.commit(7).already_committed
    assert table.scan().count() == 1


# --- commit.force-compact


@pytest.mark.parametrize(("force", "level_0"), [("false", {0}), ("true", {5})])
def test_a_forced_compaction_is_waited_for(tmp_path: Path, force: str, level_0: set[int]) -> None:
    options = {"changelog-producer": "lookup", "lookup-wait": "false", "commit.force-compact": force}
    table = create(tmp_path, **options)
    load(table, 1, 2)
    assert {entry.file.level for entry in table.files()} == level_0
    assert (table.snapshots()[-1].commit_kind is CommitKind.COMPACT) is (force == "true")
    assert bool(table.engine.warnings()) is (force == "false")
    assert ("commit.force-compact" in (why_not_in_background(table.options) or "")) is (force == "true")


# --- manifest.delete-file-drop-stats


@pytest.mark.parametrize("drops", ["false", "true"])
def test_statistics_of_deleted_files(tmp_path: Path, drops: str) -> None:
    table = create(tmp_path, **{"manifest.delete-file-drop-stats": drops, "changelog-producer": "input"})
    load(table, 1, 2, commits=3)
    table.compact(full=True)
    fresh = Table.open(table.location)
    snapshot = fresh.latest_snapshot()
    assert snapshot is not None
    store = fresh.store
    entries = [
        entry
        for manifest in store.manifests.read_manifest_list(snapshot.delta_manifest_list)
        for entry in store.manifests.read_manifest(manifest)
    ]
    deleted = [entry.file for entry in entries if entry.kind is EntryKind.DELETE]
    added = [entry.file for entry in entries if entry.kind is EntryKind.ADD]
    assert len(deleted) == 3
    assert all((file.value_stats == EMPTY_STATS) is (drops == "true") for file in deleted)
    assert all(file.value_stats != EMPTY_STATS for file in added)
    assert all(file.key_stats != EMPTY_STATS for file in deleted)
    load(fresh, 2, 3)
    for reader in (table, fresh):
        assert reader.scan(filter="id >= 2").to_arrow().sort_by("id").to_pylist() == [
            {"id": 2, "v": "0"}, {"id": 3, "v": "0"}
        ]  # fmt: skip
        assert reader.scan(filter="v = '2'").to_arrow().to_pylist() == [{"id": 1, "v": "2"}]
    fresh.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
    assert not fresh.remove_orphan_files(older_than_ms=-60_000).files
    assert Table.open(table.location).scan().count() == 3


# --- file.block-size


@pytest.mark.parametrize(("block", "groups"), [(None, 1), ("256 kb", 16), ("1 mb", 4)])
def test_the_size_of_a_row_group(tmp_path: Path, block: str | None, groups: int) -> None:
    options = {"file.block-size": block} if block else {}
    table = Catalog(tmp_path).create_table("db.log", schema={"id": "BIGINT", "n": "BIGINT"}, options=options)
    count = 4 * 1024 * 1024 // 16
    with table.writer("loader") as writer:
        writer.write(pa.table({"id": range(count), "n": range(count)}))
        writer.commit()
    [file] = Path(table.location).rglob("*.parquet")
    found = pq.read_metadata(file)
    assert groups * 0.8 <= found.num_row_groups <= groups * 1.3
    assert table.scan(filter=f"id = {count - 1}").to_arrow().to_pylist() == [{"id": count - 1, "n": count - 1}]


# --- add-column-before-partition


def test_the_position_of_a_new_column(tmp_path: Path) -> None:
    schema = {"id": "BIGINT", "dt": "STRING", "hh": "INT", "v": "STRING"}
    table = Catalog(tmp_path).create_table(
        "db.t", schema=schema, partition_keys=["hh", "dt"], options={"add-column-before-partition": "true"}
    )
    with table.writer("loader") as writer:
        writer.write([{"id": 1, "dt": "a", "hh": 1, "v": "x"}])
        writer.commit()
    table = table.alter(AddColumn("n", "INT"), AddColumn("m", "INT"))
    assert table.schema.column_names == ("id", "n", "m", "dt", "hh", "v")
    table = table.alter(AddColumn("o", "INT", after="v"), AddColumn("p", "INT", first=True))
    assert table.schema.column_names == ("p", "id", "n", "m", "dt", "hh", "v", "o")
    assert table.scan(columns=["id", "n", "dt", "v"]).to_arrow().to_pylist() == [
        {"id": 1, "n": None, "dt": "a", "v": "x"}
    ]


def test_the_position_of_a_new_column_without_partitions(tmp_path: Path) -> None:
    table = create(tmp_path, **{"add-column-before-partition": "true"}).alter(AddColumn("n", "INT"))
    assert table.schema.column_names == ("id", "v", "n")


# --- commit.user-prefix


@pytest.mark.parametrize(("prefix", "begin"), [(None, "freshet-compact-"), ("nightly", "nightly_")])
def test_users_that_nobody_named(tmp_path: Path, prefix: str | None, begin: str) -> None:
    table = create(tmp_path, **({"commit.user-prefix": prefix} if prefix else {}))
    load(table, 1, commits=2)
    table.compact(full=True)
    users = {snapshot.commit_user for snapshot in table.snapshots()}
    assert len(users) == 2
    assert "loader" in users
    assert all(user.startswith(begin) for user in users - {"loader"})
