"""Manifests and lists on disk: exact sizes, bounds, rolling, caching, and files that are not what was recorded."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from freshet.storage.codec.binary_row import encode_row
from freshet.storage.codec.manifest_avro import read_manifest
from freshet.storage.codec.stats import decode_stats
from freshet.storage.exceptions import CorruptDataError, NotFoundError
from freshet.storage.io import local_file_io
from freshet.storage.io.env import local_env
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.local_folders import LocalFolders
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.data_file import EMPTY_STATS, DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import TablePaths
from tests.storage.metadata.test_live_files import PARTITIONS, TYPES, data_file


def store_at(location: Path, **options: str) -> ManifestStore:
    core = CoreOptions.parse(
        {key.replace("_", "-"): value for key, value in options.items()}, has_primary_key=True, strict=False
    )
    return ManifestStore(local_env(), TablePaths(str(location)), core, TYPES)


def entries() -> list[ManifestEntry]:
    files = [
        dataclasses.replace(data_file(f"f{i}", level=i % 3), schema_id=i % 2, first_row_id=100 * i) for i in range(6)
    ]
    kinds = [EntryKind.DELETE if i == 4 else EntryKind.ADD for i in range(6)]
    return [
        ManifestEntry(kind, PARTITIONS[i % 3], i + 2, 9, file)
        for i, (kind, file) in enumerate(zip(kinds, files, strict=True))
    ]


def test_a_manifest_is_described_exactly(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    given = entries()
    (meta,) = store.write_manifests(given)
    data = (tmp_path / "manifest" / meta.file_name).read_bytes()
    assert meta.file_name.startswith("manifest-")
    assert meta.file_size_bytes == len(data)
    assert read_manifest(data, "m") == given
    assert (meta.num_added_files, meta.num_deleted_files) == (5, 1)
    assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (2, 7, 0, 2)
    assert meta.schema_id == 1
    assert (meta.min_row_id, meta.max_row_id) == (0, 509)
    (partition,) = decode_stats(meta.partition_stats, TYPES)
    assert (partition.min_value, partition.max_value, partition.null_count) == (1, 2, 2)


def test_row_ids_are_unknown_unless_every_file_has_one(tmp_path: Path) -> None:
    given = entries()
    given[2] = dataclasses.replace(given[2], file=dataclasses.replace(given[2].file, first_row_id=None))
    (meta,) = store_at(tmp_path).write_manifests(given)
    assert (meta.min_row_id, meta.max_row_id) == (None, None)


def test_an_unpartitioned_table_has_empty_partition_statistics(tmp_path: Path) -> None:
    store = ManifestStore(local_env(), TablePaths(str(tmp_path)), CoreOptions.parse({}, has_primary_key=True))
    entry = ManifestEntry(EntryKind.ADD, encode_row([], []), 0, 1, data_file("f"))
    (meta,) = store.write_manifests([entry])
    assert meta.partition_stats == EMPTY_STATS


def test_no_entries_no_manifest_but_an_empty_list_is_a_file(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert store.write_manifests([]) == []
    name, size = store.write_manifest_list([])
    assert (tmp_path / "manifest" / name).stat().st_size == size
    assert name.startswith("manifest-list-")
    assert store_at(tmp_path).read_manifest_list(name, size) == ()


def test_lists_read_back(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    metas = store.write_manifests(entries())
    name, size = store.write_manifest_list(metas)
    again = store_at(tmp_path)
    assert list(again.read_manifest_list(name, size)) == metas
    assert list(again.read_manifest(metas[0])) == entries()
    assert again.read_manifest(metas[0].file_name) is again.read_manifest(metas[0])


@pytest.mark.dear("twenty thousand entries")
def test_manifests_roll_at_the_target_size(tmp_path: Path) -> None:
    core = CoreOptions.parse({"manifest.target-file-size": "64 kb"}, has_primary_key=True)
    store = ManifestStore(local_env(), TablePaths(str(tmp_path)), core, TYPES)
    names = [f"data-{i * 7919 % 100003:06}-{i * 104729 % 999983:06}" for i in range(20_000)]
    given = [ManifestEntry(EntryKind.ADD, PARTITIONS[0], 0, 1, data_file(name)) for name in names]
    metas = store.write_manifests(given)
    assert sum(meta.num_added_files for meta in metas) == len(given)
    assert len(metas) > 2
    assert len({meta.file_name for meta in metas}) == len(metas)
    assert all(meta.file_size_bytes <= 2 * 64 * 1024 for meta in metas)
    assert [entry for meta in metas for entry in store.read_manifest(meta)] == given


@pytest.mark.parametrize("change", [b"x", b""], ids=["longer", "shorter"])
def test_a_file_of_another_size_is_corrupt_and_named(tmp_path: Path, change: bytes) -> None:
    store = store_at(tmp_path)
    metas = store.write_manifests(entries())
    name, size = store.write_manifest_list(metas)
    for path in (tmp_path / "manifest" / name, tmp_path / "manifest" / metas[0].file_name):
        data = path.read_bytes()
        path.write_bytes(data + change if change else data[:-1])
    again = store_at(tmp_path)
    with pytest.raises(CorruptDataError, match=rf"{size} are recorded.*{name}"):
        again.read_manifest_list(name, size)
    with pytest.raises(CorruptDataError, match=metas[0].file_name):
        again.read_manifest(metas[0])
    with pytest.raises(CorruptDataError, match=name):
        again.read_manifest_list(name)  # a snapshot of an old version has no size; the Avro file shows by itself


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "schema-0").write_bytes(b"{}")
    with pytest.raises(NotFoundError, match="although a snapshot names it.*manifest-u-0"):
        store_at(tmp_path).read_manifest("manifest-u-0")


def test_deleting_forgets(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    metas = store.write_manifests(entries())
    name, _ = store.write_manifest_list(metas)
    store.delete([metas[0].file_name, name])
    store.delete([name])
    with pytest.raises(NotFoundError):
        store.read_manifest(metas[0])
    with pytest.raises(NotFoundError):
        store.read_manifest_list(name)


@pytest.mark.parametrize("small", [0, 100])
def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    room = "freshet.storage.metadata.manifest_store"
    monkeypatch.setattr(f"{room}.SMALL_ENTRIES", small)
    monkeypatch.setattr(f"{room}.CACHED_SMALL_ENTRIES" if small else f"{room}.CACHED_ENTRIES", 10)
    store = store_at(tmp_path)
    metas = [meta for _ in range(4) for meta in store.write_manifests(entries())]
    held, other = store._manifests._small, store._manifests._large
    assert (held if small else other)._size <= 10 + 6 and not (other if small else held)._size
    first = store.read_manifest(metas[0])
    assert list(first) == entries()
    assert isinstance(first[0].file, DataFileMeta)


@pytest.mark.few(2)
@pytest.mark.parametrize("codec", ["zstd", "none", "snappy", "deflate"])
def test_a_large_manifest_is_searched_block_by_block(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.storage.metadata.manifest_store.READ_WHOLE_MAX", 0)
    rows = [encode_row([1_000_000 + number], TYPES) for number in range(40)]
    given = [
        ManifestEntry(EntryKind.ADD, row, 0, 1, data_file(f"data-{number}-{copy}.parquet"))
        for number, row in enumerate(rows)
        for copy in range(100)
    ]
    (meta,) = store_at(tmp_path, manifest_compression=codec).write_manifests(given)
    store = store_at(tmp_path, manifest_compression=codec)
    found = store.read_manifest_with(meta, [rows[7], rows[31]])
    assert [item for item in found if item.partition in (rows[7], rows[31])] == given[700:800] + given[3100:3200]
    if codec != "snappy":  # its blocks are not looked into
        assert len(found) < 1_000
    [named] = [
        item
        for item in store.read_manifest_with(meta, [b"data-9-50.parquet"])
        if item.file.file_name == "data-9-50.parquet"
    ]
    assert named == given[950]
    assert not list(store.read_manifest_with(meta, [b"none of them"])) or codec == "snappy"
    path = tmp_path / "manifest" / meta.file_name
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(CorruptDataError):
        store_at(tmp_path).read_manifest_with(meta, [rows[7]])


def test_bounds_of_partitions_leave_manifests_out(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    one, two, null = PARTITIONS
    (meta,) = store.write_manifests([dataclasses.replace(item, partition=one) for item in entries()])
    assert [store.may_hold(meta, [row]) for row in (one, two, null)] == [True, False, False]
    assert store.may_hold(meta, [two, one])
    (mixed,) = store.write_manifests(entries())
    assert all(store.may_hold(mixed, [row]) for row in PARTITIONS)
    beyond = encode_row([3], TYPES)
    assert not store.may_hold(mixed, [beyond])
    unknown = dataclasses.replace(mixed, partition_stats=EMPTY_STATS)
    assert store.may_hold(unknown, [beyond]), "bounds that are not there leave nothing out"


def test_manifest_of_a_dropped_table_says_so(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    (meta,) = store.write_manifests(entries())
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "schema-0").write_bytes(b"{}")
    fresh = store_at(tmp_path)
    (tmp_path / "manifest" / meta.file_name).unlink()
    with pytest.raises(NotFoundError, match=r"expired meanwhile.*snapshot\.time-retained"):
        fresh.read_manifest(meta)
    (tmp_path / "schema" / "schema-0").unlink()
    with pytest.raises(NotFoundError, match=r"was dropped or renamed while it was open"):
        fresh.read_manifest(meta)


class _SyncedFolders(LocalFolders):
    """Keeps what was in a folder whenever it was synced."""

    def __init__(self) -> None:
        self.synced: list[int] = []

    def sync(self, path: str) -> None:
        super().sync(path)
        self.synced.append(len(os.listdir(path)))


def test_the_files_of_a_snapshot_share_a_sync_of_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, of_files = _SyncedFolders(), list[str]()
    monkeypatch.setattr(LocalFileIO, "folders", folders)
    monkeypatch.setattr(local_file_io, "fsync_folder", of_files.append)
    store, queue = store_at(tmp_path), list[tuple[str, bytes]]()
    (meta,) = store.write_manifests(entries(), queue)
    store.write_manifest_list([meta], queue)
    store.write_manifest_list([], queue)
    store.create(queue)
    assert (folders.synced, of_files) == ([3], [])
    store.create([])
    assert folders.synced == [3]
