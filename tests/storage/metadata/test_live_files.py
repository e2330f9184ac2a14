"""Live files: the full scan, its pruning, and the step from one snapshot to the next against the full scan."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import fastavro
import pytest

from freshet.storage.catalogs.claims import WON, FileClaims
from freshet.storage.codec.binary_row import encode_row
from freshet.storage.exceptions import NotFoundError
from freshet.storage.io.env import local_env
from freshet.storage.metadata.live_files import (
    NO_FILES,
    LiveFileIndex,
    changelog_entries,
    delta_entries,
    live_entries,
    scan_live_files,
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


def test_a_deleted_file_is_dead_wherever_its_delete_stands(tmp_path: Path) -> None:
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


def by_name(world: World, snapshot: Snapshot, index: LiveFileIndex) -> tuple[set[Any], set[Any]]:
    stepped = {(found.identity, found) for found in index.at(snapshot).entries()}
    scanned = {(found.identity, found) for found in live_entries(world.manifests, snapshot)}
    return stepped, scanned


@pytest.mark.parametrize("seed", range(6))
def test_stepping_equals_scanning(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path)
    index = LiveFileIndex(world.snapshots, world.manifests)
    assert index.at(None) is NO_FILES
    live: list[ManifestEntry] = []
    for number in range(40):
        entries: list[ManifestEntry] = []
        for _ in range(chance.randrange(4)):
            if live and chance.random() < 0.5:
                dead = live.pop(chance.randrange(len(live)))
                entries.append(dataclasses.replace(dead, kind=EntryKind.DELETE))
                if chance.random() < 0.3:  # an upgrade
                    live.append(
                        dataclasses.replace(dead, file=dataclasses.replace(dead.file, level=dead.file.level + 1))
                    )
                    entries.append(live[-1])
            else:
                live.append(entry(EntryKind.ADD, f"f{number}-{len(entries)}", chance.randrange(3), chance.randrange(4)))
                entries.append(live[-1])
        snapshot = world.commit(entries)
        if chance.random() < 0.5:
            stepped, scanned = by_name(world, snapshot, index)
            assert stepped == scanned == {(found.identity, found) for found in live}, f"seed {seed}"
    latest = world.snapshots.latest()
    assert latest is not None
    full = scan_live_files(world.manifests, latest)
    assert full.partitions() == {found.partition for found in live}
    for partition in PARTITIONS:
        for bucket in range(4):
            expected = {found.file for found in live if (found.partition, found.bucket) == (partition, bucket)}
            assert (
                set(full.files_of(partition, bucket)) == set(index.at(latest).files_of(partition, bucket)) == expected
            )


def test_a_step_over_an_expired_snapshot_becomes_a_scan(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.commit([entry(EntryKind.ADD, "a")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    index.at(first)
    world.commit([entry(EntryKind.ADD, "b")])
    latest = world.commit([entry(EntryKind.ADD, "c")])
    Path(world.paths.snapshot(2)).unlink()
    assert sorted(names(list(index.at(latest).entries()))) == ["a", "b", "c"]


def test_stepping_reads_only_what_changed(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.commit([entry(EntryKind.ADD, "a")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    index.at(first)
    latest = world.commit([entry(EntryKind.ADD, "b")])
    Path(world.paths.manifest(latest.base_manifest_list)).unlink()
    world.manifests = ManifestStore(world.env, world.paths, world.options, TYPES)
    index._manifests = world.manifests
    assert sorted(names(list(index.at(latest).entries()))) == ["a", "b"]


def test_an_older_snapshot_can_be_asked_for_after_a_newer_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.commit([entry(EntryKind.ADD, "a")])
    latest = world.commit([entry(EntryKind.DELETE, "a"), entry(EntryKind.ADD, "b")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    assert names(list(index.at(latest).entries())) == ["b"]
    assert names(list(index.at(first).entries())) == ["a"]
    assert names(list(index.at(latest).entries())) == ["b"]


def test_a_rolled_back_table_that_went_on_is_scanned_afresh(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit([entry(EntryKind.ADD, "a")])
    base = list(world.base)
    second = world.commit([entry(EntryKind.ADD, "lost")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    assert sorted(names(list(index.at(second).entries()))) == ["a", "lost"]
    Path(world.paths.snapshot(2)).unlink()
    world.snapshots.write_latest_hint(1)
    world.base = base
    other = world.commit([entry(EntryKind.ADD, "b")])
    third = world.commit([entry(EntryKind.ADD, "c")])
    assert other.id == 2
    assert sorted(names(list(index.at(third).entries()))) == ["a", "b", "c"]
    assert sorted(names(list(index.at(other).entries()))) == ["a", "b"]


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


def test_index_files_that_mark_rows_are_told_from_others(tmp_path: Path) -> None:
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
    monkeypatch.setattr("freshet.storage.metadata.live_files.SCANNED_WHOLE_MAX", 0)
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


@pytest.mark.parametrize("seed", range(4))
def test_buckets_asked_for_follow_the_table(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was asked for before, single buckets are those of a full scan."""
    world, _ = counted_world(tmp_path, monkeypatch)
    chance = random.Random(seed)
    index = LiveFileIndex(world.snapshots, world.manifests)
    alive = [found for found in live_entries(world.manifests, world.snapshots.latest()) if found.file.level == 0]
    for number in range(12):
        parent = world.snapshots.latest()
        gone = chance.sample(alive, 2)
        alive = [found for found in alive if found not in gone]
        new = [entry(EntryKind.ADD, f"new-{number}-{i}", chance.randrange(3), chance.randrange(4)) for i in range(3)]
        changes = [dataclasses.replace(found, kind=EntryKind.DELETE) for found in gone] + new
        snapshot = world.commit(changes)
        alive += new
        if chance.random() < 0.5:
            index.advance(parent, snapshot, changes)
        if chance.random() < 0.7:
            buckets = [(chance.choice(PARTITIONS), chance.randrange(4)) for _ in range(2)]
            found = index.of_buckets(snapshot, buckets)
            whole = scan_live_files(world.manifests, snapshot)
            for bucket in buckets:
                assert found.of_bucket(*bucket) == whole.of_bucket(*bucket) or sorted(
                    names(found.of_bucket(*bucket))
                ) == sorted(names(whole.of_bucket(*bucket)))
    latest = world.snapshots.latest()
    assert sorted(names(list(index.at(latest).entries()))) == sorted(names(live_entries(world.manifests, latest)))


def test_a_start_that_expired_is_stepped_from_when_the_successor_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, decoded = counted_world(tmp_path, monkeypatch)
    index = LiveFileIndex(world.snapshots, world.manifests)
    bucket = (PARTITIONS[0], 2)
    start = world.snapshots.latest()
    assert start is not None
    index.of_buckets(start, [bucket])
    following = world.commit([entry(EntryKind.ADD, "next", 0, 2)])
    world.env.file_io.delete(world.paths.snapshot(start.id))
    world.snapshots.forget(start.id)
    monkeypatch.setattr(world.manifests, "read_manifest_with", None)  # nothing is restored again
    assert sorted(names(index.of_buckets(following, [bucket]).of_bucket(*bucket))) == ["0-0-2", "2-0-2", "late", "next"]
    assert len(decoded) == 1, "the delta of one commit"


def test_the_maker_of_a_snapshot_tells_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = counted_world(tmp_path, monkeypatch)
    index = LiveFileIndex(world.snapshots, world.manifests)
    bucket = (PARTITIONS[0], 2)
    start = world.snapshots.latest()
    index.of_buckets(start, [bucket])
    made = [entry(EntryKind.ADD, "own", 0, 2), entry(EntryKind.ADD, "other", 1, 1)]
    snapshot = world.commit(made)
    index.advance(start, snapshot, made)
    for name in ("read_manifest", "read_manifest_with"):
        monkeypatch.setattr(world.manifests, name, None)
    monkeypatch.setattr(world.env.file_io, "read_bytes", None)
    assert "own" in names(index.of_buckets(snapshot, [bucket]).of_bucket(*bucket))
