"""The index of live files is what a full scan finds, whatever was asked for before, and bounded."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.metadata import live_file_index
from freshet.storage.metadata.live_file_index import LiveFileIndex
from freshet.storage.metadata.live_files import NO_FILES, live_entries, scan_live_files
from freshet.storage.metadata.manifest_store import ManifestStore
from freshet.storage.model.manifest import BucketId, EntryKind, ManifestEntry
from freshet.storage.model.snapshot import Snapshot
from tests.storage.metadata.test_live_files import PARTITIONS, TYPES, World, counted_world, entry, names


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


def test_the_maker_of_a_snapshot_hands_in_its_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def check(index: LiveFileIndex, world: World, snapshot: Snapshot, wanted: list[BucketId]) -> None:
    """The files of these buckets are what a scan of the manifests finds."""
    found = {(each.identity, each) for each in index.of_buckets(snapshot, wanted).entries()}
    scanned = live_entries(world.manifests, snapshot, bucket_ids=wanted)
    assert found == {(each.identity, each) for each in scanned}


ALL = [(partition, bucket) for partition in PARTITIONS for bucket in range(4)]


@pytest.mark.parametrize("is_small", [True, False])
def test_buckets_that_were_empty_when_they_were_first_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    monkeypatch.setattr(live_file_index, "SMALL_ENTRIES_MAX", 1000 if is_small else 0)
    world = World(tmp_path)
    index = LiveFileIndex(world.snapshots, world.manifests)
    for number, bucket in enumerate((0, 1, 2, 1)):
        snapshot = world.commit([entry(EntryKind.ADD, f"f{number}", bucket % 3, bucket)])
        check(index, world, snapshot, ALL[: 8 if number < 3 else 12])


def test_of_a_small_table_all_buckets_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    latest = world.commit([entry(EntryKind.ADD, f"p{p}b{b}", p, b) for p in range(3) for b in range(4)])
    index = LiveFileIndex(world.snapshots, world.manifests)
    index.of_buckets(latest, ALL[:1])
    monkeypatch.setattr(live_file_index, "live_entries", lambda *_, **__: pytest.fail("read a second time"))
    assert len(list(index.at(latest).entries())) == len(ALL)


def test_after_a_failed_read_no_bucket_is_taken_for_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a bucket taken for empty would be numbered from 0 on: those that are live would win over them."""
    world = World(tmp_path)
    latest = world.commit([entry(EntryKind.ADD, "a")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise StorageError("the disk does not answer")

        patch.setattr(live_file_index, "live_entries", fail)
        with pytest.raises(StorageError, match="does not answer"):
            index.of_buckets(latest, ALL)
    check(index, world, latest, ALL)


def test_at_an_earlier_snapshot_only_buckets_changed_since_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = counted_world(tmp_path, monkeypatch)
    index = LiveFileIndex(world.snapshots, world.manifests)
    first = world.snapshots.latest()
    assert first is not None
    second = world.commit([entry(EntryKind.DELETE, "0-1-1", 1, 1), entry(EntryKind.ADD, "new", 2, 3)])
    check(index, world, second, ALL)
    asked: list[Any] = []

    def noted(*args: Any, bucket_ids: Any) -> list[ManifestEntry]:
        asked.append(set(bucket_ids))
        return live_entries(*args, bucket_ids=bucket_ids)

    monkeypatch.setattr(live_file_index, "live_entries", noted)
    check(index, world, first, ALL)
    assert asked == [{(PARTITIONS[1], 1), (PARTITIONS[2], 3)}]
    check(index, world, second, ALL)
    assert len(asked) == 1, "what is known stays at the later snapshot"


@pytest.mark.parametrize("has_expired", [True, False])
def test_an_earlier_snapshot_that_is_another_by_now_shares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_expired: bool
) -> None:
    world, _ = counted_world(tmp_path, monkeypatch)
    index = LiveFileIndex(world.snapshots, world.manifests)
    first = world.snapshots.latest()
    assert first is not None
    second = world.commit([entry(EntryKind.ADD, "new", 2, 3)])
    check(index, world, second, ALL)
    if has_expired:
        Path(world.paths.snapshot(first.id)).unlink()
        earlier = first
    else:  # a table made anew in the folder, at its first snapshots
        earlier = dataclasses.replace(
            first, base_manifest_list=second.base_manifest_list, delta_manifest_list=second.delta_manifest_list
        )
    check(index, world, earlier, ALL)
    check(index, world, second, ALL)


def test_buckets_not_asked_for_longest_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = counted_world(tmp_path, monkeypatch)
    index = LiveFileIndex(world.snapshots, world.manifests, files_max=12)
    latest = world.snapshots.latest()
    assert latest is not None
    for bucket in ALL:
        check(index, world, latest, [bucket])
    assert list(index._known) == ALL[-4:]
    check(index, world, latest, [*ALL, *ALL[:1]])
    assert len(list(index.at(latest).entries())) > 12, "more files than are kept are given all the same"
    assert sum(map(len, index._known.values())) <= 12
    following = world.commit([entry(EntryKind.ADD, f"new{b}", p, b) for p in range(3) for b in range(4)])
    check(index, world, following, ALL)


def test_a_forked_process_starts_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    latest = world.commit([entry(EntryKind.ADD, "a")])
    index = LiveFileIndex(world.snapshots, world.manifests)
    index.at(latest)
    index._lock.acquire()  # by a thread that the child does not have
    parent = os.getpid()
    monkeypatch.setattr(live_file_index.os, "getpid", lambda: parent + 1)
    assert names(list(index.at(latest).entries())) == ["a"]
