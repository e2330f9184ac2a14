"""Live files: the full scan, its pruning, and the step from one snapshot to the next against the full scan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from freshet.storage.catalogs.claims import WON, FileClaims
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import (
    changelog_entries,
    delta_entries,
    live_entries,
)
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from freshet.storage.model.data_type import parse_data_type
from freshet.storage.model.manifest import DeletionVectorRange, EntryKind, ManifestEntry, ManifestFileMeta
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.core import CoreOptions
from freshet.storage.paths import TablePaths

TYPES = (parse_data_type("INT"),)
PARTITIONS = [encode_row([value], TYPES) for value in (1, 2, None)]


def data_file(name: str, level: int = 0) -> DataFileMeta:
    return DataFileMeta(
        name,
        1000,
        10,
        EMPTY_ROW,
        EMPTY_ROW,
        EMPTY_STATS,
        EMPTY_STATS,
        0,
        9,
        0,
        level,
        (),
        1,
        0,
        None,
        FileSource.APPEND,
    )


def entry(kind: EntryKind, name: str, partition: int = 0, bucket: int = 0, level: int = 0) -> ManifestEntry:
    return ManifestEntry(kind, PARTITIONS[partition], bucket, 4, data_file(name, level))


class World:
    """A table whose commits are lists of entries."""

    def __init__(self, location: Path, options: dict[str, str] | None = None) -> None:
        self.env = local_env()
        self.paths = TablePaths(str(location))
        self.options = CoreOptions.parse(options or {}, has_primary_key=True)
        self.reopen()
        self.base: list[ManifestFileMeta] = []

    def reopen(self) -> None:
        self.snapshots = SnapshotStore(self.env, self.paths)
        self.manifests = ManifestStore(self.env, self.paths, self.options, TYPES)

    def commit(self, entries: list[ManifestEntry], changelog: list[ManifestEntry] | None = None) -> Snapshot:
        previous = self.snapshots.latest()
        base_name, base_size = self.manifests.write_manifest_list(self.base)
        delta = self.manifests.write_manifests(entries)
        delta_name, delta_size = self.manifests.write_manifest_list(delta)
        log_name, log_size = None, None
        if changelog is not None:
            log_name, log_size = self.manifests.write_manifest_list(self.manifests.write_manifests(changelog))
        self.base = [*self.base, *delta]
        snapshot = Snapshot(
            id=previous.id + 1 if previous else 1,
            schema_id=0,
            base_manifest_list=base_name,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_name,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=log_name,
            changelog_manifest_list_size=log_size,
            commit_user="test",
            commit_identifier=1,
            commit_kind=CommitKind.APPEND,
            time_ms=1,
            total_record_count=0,
            delta_record_count=0,
        )
        assert FileClaims(self.env.file_io, self.paths).claim_snapshot(snapshot) == WON
        self.snapshots.write_latest_hint(snapshot.id)
        return snapshot


def names(entries: list[ManifestEntry]) -> list[str]:
    return [found.file.file_name for found in entries]


def test_a_deleted_file_is_dead_wherever_its_delete_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, "a"), entry(EntryKind.ADD, "b")])
    latest = world.commit([entry(EntryKind.DELETE, "a"), entry(EntryKind.DELETE, "c"), entry(EntryKind.ADD, "c")])
    assert names(live_entries(world.manifests, latest)) == ["b"]
    assert names(delta_entries(world.manifests, latest)) == ["a", "c", "c"]
    assert changelog_entries(world.manifests, latest) == []
    assert live_entries(world.manifests, None) == []


def test_an_upgrade_keeps_the_file_at_its_new_level(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, "a")])
    latest = world.commit([entry(EntryKind.DELETE, "a", level=0), entry(EntryKind.ADD, "a", level=5)])
    assert [found.file.level for found in live_entries(world.manifests, latest)] == [5]


def test_pruning_gives_the_files_of_the_buckets_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, f"p{p}b{b}", p, b) for p in range(3) for b in range(4)])
    latest = world.commit([entry(EntryKind.DELETE, "p0b1", 0, 1)])
    world.reopen()
    assert names(live_entries(world.manifests, latest, buckets=[1])) == ["p1b1", "p2b1"]
    assert names(live_entries(world.manifests, latest, partition=lambda row: row == PARTITIONS[2], buckets={0, 3})) == [
        "p2b0",
        "p2b3",
    ]
    assert names(live_entries(world.manifests, latest, bucket_ids=[(PARTITIONS[0], 0), (PARTITIONS[0], 1)])) == ["p0b0"]
    assert live_entries(world.manifests, latest, partition_stats=lambda stats: False) == []


def test_manifests_of_other_buckets_are_not_even_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, "b0", 0, 0)])
    latest = world.commit([entry(EntryKind.ADD, "b3", 0, 3)])
    world.reopen()
    victim = world.manifests.read_manifest_list(latest.base_manifest_list)[0].file_name
    Path(world.paths.manifest(victim)).unlink()
    assert names(live_entries(world.manifests, latest, buckets=[3])) == ["b3"]
    with pytest.raises(NotFoundError, match=victim):
        live_entries(world.manifests, latest, buckets=[0])


def test_changelog_files_are_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    latest = world.commit([entry(EntryKind.ADD, "a")], changelog=[entry(EntryKind.ADD, "changelog-a")])
    assert names(changelog_entries(world.manifests, latest)) == ["changelog-a"]


INDEX_SCHEMA = json.loads(
    (Path(__file__).parents[2] / "golden" / "manifest_avro_schemas.jsonl").read_text().splitlines()[2]
)


def write_index_manifest(world: World, name: str, index_type: str, ranges: list[dict[str, Any]] | None) -> None:
    record = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": PARTITIONS[0],
        "_BUCKET": 0,
        "_INDEX_TYPE": index_type,
        "_FILE_NAME": "index-u-0",
        "_FILE_SIZE": 33,
        "_ROW_COUNT": 1,
        "_DELETIONS_VECTORS_RANGES": ranges,
    }
    with Path(world.paths.manifest(name)).open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(INDEX_SCHEMA), [record])


def test_index_files_that_mark_rows_are_distinguished_from_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, "a")])
    dv = [{"f0": "a", "f1": 1, "f2": 24, "_CARDINALITY": 2}]
    write_index_manifest(world, "index-manifest-hash", "HASH", None)
    write_index_manifest(world, "index-manifest-empty", "DELETION_VECTORS", [])
    write_index_manifest(world, "index-manifest-dv", "DELETION_VECTORS", dv)
    for name in (None, "index-manifest-hash", "index-manifest-empty"):
        assert world.manifests.marking_files(name) == {}
    ((place, (marking,)),) = world.manifests.marking_files("index-manifest-dv").items()
    assert place == (PARTITIONS[0], 0)
    assert marking.deletion_vectors == (DeletionVectorRange("a", 1, 24, 2),)


# ------------------------------------------------------------------------------------------------ single buckets


def counted_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[World, list[str]]:
    """A table that is too large to be held as a whole, and the manifests that are read of it."""
    monkeypatch.setattr("freshet.storage.metadata.live_file_index.SMALL_ENTRIES_MAX", 0)
    monkeypatch.setattr("freshet.storage.metadata.manifest_store.READ_WHOLE_MAX", 0)
    world = World(tmp_path)
    for number in range(3):
        entries = [entry(EntryKind.ADD, f"{number}-{p}-{b}", p, b) for p in range(3) for b in range(4)]
        world.commit(entries)
    world.commit([entry(EntryKind.DELETE, "1-0-2", 0, 2), entry(EntryKind.ADD, "late", 0, 2, level=5)])
    world.commit([entry(EntryKind.ADD, "elsewhere", 1, 0)])
    world.reopen()
    decoded: list[str] = []
    read = world.manifests.read_manifest

    def counting(manifest: ManifestFileMeta | str) -> tuple[ManifestEntry, ...]:
        decoded.append(manifest if isinstance(manifest, str) else manifest.file_name)
        return read(manifest)

    monkeypatch.setattr(world.manifests, "read_manifest", counting)
    return world, decoded


def test_a_bucket_is_restored_from_the_manifests_that_can_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, decoded = counted_world(tmp_path, monkeypatch)
    searched: list[str] = []
    search = world.manifests.read_manifest_with

    def counting(manifest: ManifestFileMeta, values: Any) -> Any:
        searched.append(manifest.file_name)
        return search(manifest, values)

    monkeypatch.setattr(world.manifests, "read_manifest_with", counting)
    snapshot = world.snapshots.latest()
    found = live_entries(world.manifests, snapshot, bucket_ids=[(PARTITIONS[0], 2)])
    assert sorted(names(found)) == ["0-0-2", "2-0-2", "late"]
    assert decoded == [], "blocks without the partition are skipped, nothing is kept in memory"
    assert len(searched) == 4, "the manifest of the other partition alone is out of bounds"
