"""Orphan cleaning: what counts as a candidate, what is in use, and when nothing may be removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import DEFAULT_AGE_MS, remove_orphan_files
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.metadata.table_store import TableStore, open_table_store
from tests.kit.hand_made import (
    assert_everything_named_is_there,
    data_files_on_disk,
    make_table,
    message,
    new_file,
    partition,
)
from tests.kit.sim_env import SimDisk

LOCATION = "/warehouse/db.db/t"


def names(store: TableStore, **arguments: object) -> list[str]:
    result = remove_orphan_files(store, **arguments)  # type: ignore[arg-type]
    return sorted(file.path.removeprefix(f"{LOCATION}/") for file in result.files)


def put(store: TableStore, path: str, data: bytes = b"xyz") -> None:
    store.env.file_io.overwrite(f"{LOCATION}/{path}", data)


def table(disk: SimDisk) -> TableStore:
    store = make_table(disk.boot())
    Committer(store, "u").commit(0, [message(store, new=[new_file(store, "used")])])
    return store


def test_finds_files_nobody_names_in_every_folder() -> None:
    disk = SimDisk()
    store = table(disk)
    strays = [
        "bucket-0/data-x-0.parquet",
        "bucket-7/.data.tmp",
        "manifest/manifest-x-0",
        "manifest/manifest-list-x-0",
        "index/index-x-0",
        "statistics/stat-x-0",
        "snapshot/.snapshot-2.u.tmp",
        "snapshot/snapshot-2.bak",
        "schema/.schema-1.u.tmp",
        "changelog/rest",
        "tag/.tag-a.u.tmp",
    ]
    for path in strays:
        put(store, path)
    result = remove_orphan_files(store, older_than_ms=0, dry_run=True)
    assert sorted(file.path.removeprefix(f"{LOCATION}/") for file in result.files) == sorted(strays)
    assert result.size_bytes == 3 * len(strays)
    assert result.dry_run
    assert names(store, older_than_ms=0, dry_run=True) == sorted(strays), "a dry run removes nothing"
    assert names(store, older_than_ms=0) == sorted(strays)
    assert names(store, older_than_ms=0) == []
    assert_everything_named_is_there(store)


def test_never_touches_what_is_no_candidate() -> None:
    disk = SimDisk()
    store = table(disk)
    kept = ["notes.txt", "mine/bucket-0/a.parquet", "schema/schema-0.bak", "consumer/consumer-a", "snapshot/EARLIEST"]
    for path in kept:
        put(store, path, b'{"nextSnapshot": 1}')
    assert names(store, older_than_ms=0) == []


def test_young_files_stay_one_day() -> None:
    disk = SimDisk()
    store = table(disk)
    put(store, "bucket-0/data-x-0.parquet")
    disk.now_ms += DEFAULT_AGE_MS - 10_000
    assert names(store) == []
    disk.now_ms += 20_000
    assert names(store) == ["bucket-0/data-x-0.parquet"]


def test_partition_folders_are_searched() -> None:
    store = make_table(SimDisk().boot(), partitioned=True)
    p = partition(1)
    used = new_file(store, "used", partition=p)
    new_file(store, "stray", partition=partition(2))
    Committer(store, "u").commit(0, [message(store, partition=p, new=[used])])
    assert names(store, older_than_ms=0) == ["p=2/bucket-0/stray.parquet"]


def test_branches_and_tags_are_in_use() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    a = new_file(store, "a")
    Committer(store, "u").commit(0, [message(store, new=[a])])
    compaction = message(store, before=[a], after=[new_file(store, "c", level=5)])
    Committer(store, "u").commit(1, [compaction], force_empty=False)
    data = encode_snapshot(store.snapshots.snapshot(1))
    store.env.file_io.create_exclusive(store.paths.branch("b").snapshot(1), data)
    store.env.file_io.delete(store.paths.snapshot(1))
    store = open_table_store(store.env, LOCATION)
    assert names(store, older_than_ms=0) == []
    put(store, "branch/branch-b/snapshot/.snapshot-2.u.tmp")
    assert names(store, older_than_ms=0) == ["branch/branch-b/snapshot/.snapshot-2.u.tmp"]
    store.env.file_io.delete(store.paths.branch("b").snapshot(1))
    assert "bucket-0/a.parquet" in names(store, older_than_ms=0)
    assert data_files_on_disk(store) == ["c"]


def test_a_hint_that_a_late_writer_left_in_a_dropped_branch_stops_nothing() -> None:
    store = table(SimDisk())
    put(store, "bucket-0/data-x-0.parquet")
    store.snapshots.branch("gone").write_latest_hint(3)
    assert names(store, older_than_ms=0) == ["bucket-0/data-x-0.parquet"]
    assert_everything_named_is_there(store)


def test_unreadable_snapshot_stops_everything() -> None:
    disk = SimDisk()
    store = table(disk)
    put(store, "bucket-0/data-x-0.parquet")
    latest = store.snapshots.latest()
    assert latest is not None
    store.env.file_io.delete(store.paths.manifest(latest.delta_manifest_list))
    with pytest.raises(CorruptDataError, match=r"snapshot 1 names a file that is missing.*no orphan was removed"):
        remove_orphan_files(open_table_store(store.env, LOCATION), older_than_ms=0)
    assert "data-x-0" in data_files_on_disk(store)


def test_lost_compaction_of_a_crash_is_cleaned() -> None:
    """APPEND is there, COMPACT is not: the files of the compaction are orphans, those of the append are not."""
    disk = SimDisk()
    store = make_table(disk.boot())
    a = new_file(store, "a")
    new_file(store, "lost", level=5)
    Committer(store, "u").commit(0, [message(store, new=[a])])
    assert names(store, older_than_ms=0) == ["bucket-0/lost.parquet"]
    assert_everything_named_is_there(store)


def test_gap_in_the_ids_hides_no_file_and_a_late_claim_goes() -> None:
    """snapshot-2 was claimed after its id had expired, and the claimer died: files of the history must all stay."""
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    for number in range(3):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"a{number}")])])
    late = replace(store.snapshots.snapshot(2), uuid="late", delta_manifest_list="manifest-list-expired-0")
    new_file(store, "of-the-late-one")
    for number in range(3, 6):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"a{number}")])])
    expire_snapshots(store, retain_max=2)
    store.env.file_io.create_exclusive(store.paths.snapshot(2), encode_snapshot(late))
    store = open_table_store(store.env, LOCATION)
    assert store.snapshots.list_ids() == [2, 5, 6]
    assert names(store, older_than_ms=0) == ["bucket-0/of-the-late-one.parquet", "snapshot/snapshot-2"]
    assert data_files_on_disk(store) == [f"a{number}" for number in range(6)]
    assert store.snapshots.list_ids() == [5, 6]
    assert_everything_named_is_there(store)


def test_gap_above_a_readable_snapshot_keeps_both_sides() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true"})
    committer = Committer(store, "u")
    files = [new_file(store, f"a{number}") for number in range(3)]
    committer.commit(0, [message(store, new=files)])
    committer.commit(1, [])
    committer.commit(2, [message(store, deleted=files[:1])])
    committer.commit(3, [])
    store.env.file_io.delete(store.paths.snapshot(2))
    store = open_table_store(store.env, LOCATION)
    assert store.snapshots.list_ids() == [1, 3, 4]
    removed = names(store, older_than_ms=0)
    assert all(name.startswith("manifest/") for name in removed)
    assert data_files_on_disk(store) == ["a0", "a1", "a2"]
    assert_everything_named_is_there(store)
