"""Expiry on a disk in memory: what goes, what stays, in which order, and what a crash leaves."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from freshet.storage.catalogs.claims import WON
from freshet.storage.cleaning.expire import ExpireResult, expire_later
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import NotFoundError, StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.io.file_io import Created
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    data_files_on_disk,
    live_names,
    make_table,
    message,
    new_file,
    partition,
)
from tests.kit.said_expiry import expire_as_said
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
KEEP_ALL = {"write-only": "true"}
"""Commits of such a table expire nothing by themselves."""


def compacted(store: TableStore, rounds: int) -> None:
    """Each round appends `a<n>` and compacts it with the file before into `c<n>`: one live file at the end."""
    before: list[DataFileMeta] = []
    committer = Committer(store, "u", after_commit=expire_later)
    for number in range(rounds):
        new = new_file(store, f"a{number}")
        after = new_file(store, f"c{number}", level=5)
        committer.commit(number, [message(store, new=[new], before=[*before, new], after=[after])])
        before = [after]


def tag(store: TableStore, name: str, snapshot_id: int) -> None:
    data = encode_snapshot(store.snapshots.snapshot(snapshot_id))
    assert store.env.file_io.create_exclusive(store.paths.tag(name), data) is Created.WON


def branch(store: TableStore, name: str, snapshot_id: int) -> None:
    paths = store.paths.branch(name)
    data = encode_snapshot(store.snapshots.snapshot(snapshot_id))
    assert store.env.file_io.create_exclusive(paths.snapshot(snapshot_id), data) is Created.WON


def keep_one(store: TableStore) -> ExpireResult:
    return expire_as_said(store, is_interrupted=True, retain_max=1)


def test_only_files_of_the_last_snapshot_stay() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 4)
    assert store.snapshots.list_ids() == [1, 2, 3, 4, 5, 6, 7, 8]
    result = keep_one(store)
    assert result.snapshot_ids == (1, 2, 3, 4, 5, 6, 7)
    assert (result.data_file_count, result.failed_delete_count) == (7, 0)
    assert store.snapshots.list_ids() == [8]
    assert live_names(store) == ["c3@5"]
    assert data_files_on_disk(store) == ["c3"]
    assert store.env.file_io.read_bytes(store.paths.earliest_hint) == b"8"
    assert not remove_orphan_files(store, older_than_ms=0).files, "expiry leaves no orphan"


def test_retained_snapshots_can_be_read() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 5)
    assert expire_as_said(store, retain_max=4).snapshot_ids == (1, 2, 3, 4, 5, 6)
    assert_everything_named_is_there(store)
    assert live_names(store, store.snapshots.snapshot(7)) == ["a3@0", "c2@5"]


def test_upgraded_file_stays() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    a = new_file(store, "a")
    upgraded = new_file(store, "b", level=0)
    Committer(store, "u").commit(0, [message(store, new=[a, upgraded])])
    from_level_0 = message(store, before=[a], after=[replace(a, level=5)])
    Committer(store, "u").commit(1, [from_level_0])
    keep_one(store)
    assert data_files_on_disk(store) == ["a", "b"]
    assert_everything_named_is_there(store)


def test_tag_protects_its_files_until_it_is_gone() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 4)
    tag(store, "mine", 3)
    keep_one(store)
    assert live_names(store, store.snapshots.tags.of("mine")) == ["a1@0", "c0@5"]
    assert data_files_on_disk(store) == ["a1", "c0", "c3"]
    assert_everything_named_is_there(store)
    store.env.file_io.delete(store.paths.tag("mine"))
    orphans = remove_orphan_files(store, older_than_ms=0)
    assert {"a1.parquet", "c0.parquet"} <= {file.path.rsplit("/", 1)[1] for file in orphans.files}
    assert data_files_on_disk(store) == ["c3"]


def test_a_tag_keeps_a_file_that_changed_its_level_after_it() -> None:
    """Expiry has forgotten by then which commit added the file; the change of level did not."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    committer = Committer(store, "u")
    a = new_file(store, "a")
    committer.commit(0, [message(store, new=[a])])
    tag(store, "mine", 1)
    committer.commit(1, [message(store, before=[a], after=[replace(a, level=5)])])
    expire_as_said(store, retain_max=1)
    first = store.snapshots.list_ids()[0]
    committer.commit(2, [message(store, before=[replace(a, level=5)], after=[new_file(store, "b", level=5)])])
    committer.commit(3, [message(store, new=[new_file(store, "c")])])
    assert store.snapshots.list_ids()[0] == first, "the change of level is the first that expires next"
    keep_one(store)
    assert data_files_on_disk(store) == ["a", "b", "c"]
    assert live_names(store, store.snapshots.tags.of("mine")) == ["a@0"]


def test_branch_snapshots_and_branch_tags_protect_files() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 5)
    branch(store, "side", 3)
    data = encode_snapshot(store.snapshots.snapshot(5))
    store.env.file_io.create_exclusive(store.paths.branch("side").tag("t"), data)
    keep_one(store)
    assert data_files_on_disk(store) == ["a1", "a2", "c0", "c1", "c4"]
    side = store.snapshots.branch("side")
    assert live_names(store, side.snapshot(3)) == ["a1@0", "c0@5"]
    assert live_names(store, side.tags.of("t")) == ["a2@0", "c1@5"]


def test_unreadable_tag_stops_everything() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 3)
    tag(store, "broken", 2)
    [list_name] = [store.snapshots.tags.of("broken").delta_manifest_list]
    store.env.file_io.delete(store.paths.manifest(list_name))
    store = open_table_store(store.env, LOCATION)
    names = set(data_files_on_disk(store))
    with pytest.raises(NotFoundError):
        keep_one(store)
    assert set(data_files_on_disk(store)) == names
    assert store.snapshots.list_ids() == [1, 2, 3, 4, 5, 6]


def test_consumer_protects_its_next_snapshot() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 4)
    store.env.file_io.overwrite(store.paths.consumer("reader"), json.dumps({"nextSnapshot": 4}).encode())
    assert keep_one(store).snapshot_ids == (1, 2, 3)
    store.env.file_io.delete(store.paths.consumer("reader"))
    assert keep_one(store).snapshot_ids == (4, 5, 6, 7)


def rolled_back(store: TableStore, a: DataFileMeta, b: DataFileMeta) -> None:
    """What a rollback writes: base = the live files of before, delta = the way back from b to a, kind OVERWRITE."""
    latest = store.snapshots.latest()
    assert latest is not None
    entry = {file.file_name: ManifestEntry(EntryKind.ADD, bytes(12), 0, 2, file) for file in (a, b)}
    base, base_size = store.manifests.write_manifest_list(store.manifests.write_manifests([entry["b.parquet"]]))
    back = [replace(entry["b.parquet"], kind=EntryKind.DELETE), entry["a.parquet"]]
    delta, delta_size = store.manifests.write_manifest_list(store.manifests.write_manifests(back))
    rollback = replace(
        latest,
        id=latest.id + 1,
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        commit_kind=CommitKind.OVERWRITE,
    )
    assert store.claims.claim_snapshot(rollback) == WON


def test_rolled_back_file_stays() -> None:
    """A file that was deleted and later added again by an overwrite is live, whatever the delta of then says."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    a = new_file(store, "a")
    b = new_file(store, "b", level=5)
    committer = Committer(store, "u")
    committer.commit(0, [message(store, new=[a])])
    committer.commit(1, [message(store, before=[a], after=[b])])
    committer.commit(2, [])
    rolled_back(store, a, b)
    committer.commit(3, [])
    committer.commit(4, [])
    expire_as_said(store, retain_max=4)
    assert live_names(store) == ["a@0"]
    assert "a" in data_files_on_disk(store)
    keep_one(store)
    assert "a" in data_files_on_disk(store)
    assert_everything_named_is_there(store)


def test_a_tag_keeps_a_file_that_a_rollback_brought_back_after_it() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    a = new_file(store, "a")
    b = new_file(store, "b", level=5)
    committer = Committer(store, "u")
    committer.commit(0, [message(store, new=[a])])
    tag(store, "mine", 1)
    committer.commit(1, [message(store, before=[a], after=[b])])
    rolled_back(store, a, b)
    expire_as_said(store, retain_max=1)
    first = store.snapshots.list_ids()[0]
    committer.commit(2, [message(store, before=[a], after=[new_file(store, "c", level=5)])])
    committer.commit(3, [message(store, new=[new_file(store, "d")])])
    assert store.snapshots.list_ids()[0] == first, "the rollback is the first that expires next"
    keep_one(store)
    assert "a" in data_files_on_disk(store)
    assert live_names(store, store.snapshots.tags.of("mine")) == ["a@0"]


def test_changelog_files_go_with_their_snapshot_and_stay_with_a_tag() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    committer = Committer(store, "u")
    for number in range(4):
        committer.commit(
            number,
            [message(store, new=[new_file(store, f"a{number}")], changelog=[new_file(store, f"log{number}")])],
        )
    tag(store, "mine", 2)
    keep_one(store)
    assert data_files_on_disk(store) == ["a0", "a1", "a2", "a3", "log1", "log3"]


def test_side_cars_go_with_their_file() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    a = new_file(store, "a", extra=["a.parquet.index"])
    Committer(store, "u").commit(0, [message(store, new=[a])])
    Committer(store, "u").commit(1, [message(store, before=[a], after=[new_file(store, "c", level=5)])])
    keep_one(store)
    assert data_files_on_disk(store) == ["c"]


@pytest.mark.parametrize("clean", [False, True])
def test_empty_folders_go_only_when_asked(clean: bool) -> None:
    options = {**KEEP_ALL, "snapshot.clean-empty-directories": str(clean).lower()}
    store = make_table(SimDisk().boot(), partitioned=True, options=options)
    p, q = partition(1), partition(2)
    a = new_file(store, "a", partition=p)
    Committer(store, "u").commit(0, [message(store, partition=p, new=[a])])
    Committer(store, "u").commit(
        1,
        [
            message(store, partition=p, deleted=[a]),
            message(store, partition=q, new=[new_file(store, "b", partition=q)]),
        ],
    )
    keep_one(store)
    assert store.env.file_io.exists_prefix(f"{LOCATION}/p=1/bucket-0") is not clean
    assert store.env.file_io.exists_prefix(f"{LOCATION}/p=1") is not clean
    assert store.env.file_io.exists_prefix(f"{LOCATION}/p=2/bucket-0")


def test_defaults_keep_ten_snapshots_and_an_hour() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options=KEEP_ALL)
    compacted(store, 10)
    assert expire_as_said(store).snapshot_ids == ()
    disk.now_ms += 3_600_001
    assert expire_as_said(store).snapshot_ids == tuple(range(1, 11))
    assert store.env.file_io.read_bytes(store.paths.earliest_hint) == b"11"


def test_hint_is_written_when_it_is_missing() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 1)
    assert not store.env.file_io.exists(store.paths.earliest_hint)
    assert expire_as_said(store).snapshot_ids == ()
    assert store.env.file_io.read_bytes(store.paths.earliest_hint) == b"1"


def test_commit_expires_a_bounded_number() -> None:
    disk = SimDisk()
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.expire.limit": "2"}
    store = make_table(disk.boot(), options=KEEP_ALL)
    compacted(store, 4)
    store = store.with_options({**options, "write-only": "false"})
    Committer(store, "u", after_commit=expire_later).commit(10, [])
    assert store.snapshots.list_ids() == list(range(3, 10))


def test_write_only_commits_never_expire() -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", **KEEP_ALL}
    store = make_table(SimDisk().boot(), options=options)
    compacted(store, 3)
    assert store.snapshots.list_ids() == [1, 2, 3, 4, 5, 6]


def test_files_named_by_a_kept_changelog_stay() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    committer = Committer(store, "u")
    a = new_file(store, "a")
    committer.commit(0, [message(store, new=[a], changelog=[new_file(store, "log")])])
    committer.commit(1, [message(store, before=[a], after=[new_file(store, "c", level=5)])])
    store.env.file_io.create_exclusive(store.paths.changelog(1), encode_snapshot(store.snapshots.snapshot(1)))
    keep_one(store)
    assert "log" in data_files_on_disk(store)
    assert not [file for file in remove_orphan_files(store, older_than_ms=0).files if "log" in file.path]


def crash_faults() -> list[Fault]:
    points = [
        Fault(point=point)
        for point in CrashPoint
        if point.value.startswith("expire") and point is not CrashPoint.EXPIRE_CHANGELOGS_KEPT
    ]
    return points + [Fault(at=number, takes_effect=effect) for number in range(45) for effect in (False, True)]


@functools.cache
def four_compactions() -> SimDisk:
    disk = SimDisk()
    store = make_table(disk.boot(), options=KEEP_ALL)
    compacted(store, 4)
    tag(store, "mine", 4)
    return disk


@pytest.mark.few(40)
@pytest.mark.parametrize("fault", crash_faults(), ids=str)
def test_crash_anywhere_leaves_readable_snapshots_and_orphans(fault: Fault) -> None:
    disk = four_compactions().copy()
    crashed = False
    try:
        keep_one(open_table_store(disk.boot(fault), LOCATION))
    except Crash:
        crashed = True
    assert crashed or (fault.at is not None and fault.at > 20)
    store = open_table_store(disk.boot(), LOCATION)
    assert_contiguous(store)
    assert_everything_named_is_there(store)
    assert live_names(store) == ["c3@5"]
    keep_one(store)
    remove_orphan_files(store, older_than_ms=0)
    assert data_files_on_disk(store) == ["c1", "c3"]
    assert_everything_named_is_there(store)
    assert not remove_orphan_files(store, older_than_ms=0).files


def test_failing_deletes_do_not_fail_the_commit_and_leave_orphans() -> None:
    disk = SimDisk()
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    store = make_table(disk.boot(), options={**KEEP_ALL, **options})
    compacted(store, 2)

    def fail(path: str) -> bool:
        raise StorageError(f"no delete of {path}")

    store = store.with_options({"write-only": "false"})
    patched: Callable[[str], bool] = fail
    store.env.file_io.delete = patched  # type: ignore[method-assign]
    result = Committer(store, "u", after_commit=expire_later).commit(10, [])
    assert len(result.snapshots) == 1
    store = open_table_store(disk.boot(), LOCATION)
    assert_contiguous(store)
    assert_everything_named_is_there(store)


def test_branch_that_lost_files_to_others_does_not_stop_expiry() -> None:
    """Other programs expire the main line without looking at branches; what is left of a branch stays."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 5)
    branch(store, "side", 3)
    branch(store, "side", 5)
    store.env.file_io.delete(store.paths.manifest(store.snapshots.snapshot(3).base_manifest_list))
    store.env.file_io.delete(store.paths.manifest(store.snapshots.snapshot(5).delta_manifest_list))
    store = open_table_store(store.env, LOCATION)
    assert len(keep_one(store).snapshot_ids) == 9
    assert data_files_on_disk(store) == ["a1", "c1", "c4"], "of snapshot 3 its delta, of snapshot 5 its base"
    remove_orphan_files(store, older_than_ms=0)
    assert data_files_on_disk(store) == ["a1", "c1", "c4"]


def test_changelog_whose_other_lists_are_gone_does_not_stop_expiry() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    committer = Committer(store, "u")
    for number in range(3):
        committer.commit(
            number, [message(store, new=[new_file(store, f"a{number}")], changelog=[new_file(store, f"log{number}")])]
        )
    first = store.snapshots.snapshot(1)
    store.env.file_io.create_exclusive(store.paths.changelog(1), encode_snapshot(first))
    store.env.file_io.delete(store.paths.snapshot(1))
    for name in (first.base_manifest_list, first.delta_manifest_list):
        store.env.file_io.delete(store.paths.manifest(name))
    store = open_table_store(store.env, LOCATION)
    result = keep_one(store)
    assert (result.snapshot_ids, result.changelog_ids) == ((2,), (1,)), "no option asks for the copy"
    assert data_files_on_disk(store) == ["a0", "a1", "a2", "log2"]
    assert not remove_orphan_files(store, older_than_ms=-1, dry_run=True).files


def test_expiry_says_which_consumers_hold_it_back() -> None:
    """Those alone without which more would go; the oldest first."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 4)
    for name, wanted in (("late", 6), ("lost", 4), ("new", 8)):
        store.consumers.reset(name, wanted)
    held = keep_one(store)
    assert held.snapshot_ids == (1, 2, 3)
    assert [(each.consumer, each.next_snapshot_id) for each in held.held_by] == [("lost", 4), ("late", 6)]
    lost, late = held.held_by
    assert re.search(
        r"held back by consumer 'lost' at snapshot 4 since .* UTC \(\d+ snapshots, .*B\), cons", repr(held)
    )
    moved = {each.name: each.moved_ms for each in store.consumers.all()}
    assert (lost.moved_ms, late.moved_ms) == (moved["lost"], moved["late"])
    store.consumers.delete("lost")
    store.consumers.delete("late")
    assert keep_one(store).held_by == ()


@pytest.mark.parametrize("wanted", range(1, 8))
def test_expiry_says_what_a_consumer_costs(wanted: int) -> None:
    """As many files and snapshots as go when it is gone, and those who are behind with it."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 4)
    tag(store, "kept", 5)
    store.consumers.reset("lost", wanted)
    store.consumers.reset("late", 7)
    holders = {each.consumer: each for each in keep_one(store).held_by}
    ids, files = {each.id for each in store.snapshots.all()}, set(data_files_on_disk(store))
    store.consumers.delete("late")
    store.consumers.delete("lost")
    keep_one(store)
    gone = files - set(data_files_on_disk(store))
    assert holders["lost"].snapshot_count == len(ids - {each.id for each in store.snapshots.all()})
    assert holders["lost"].data_bytes == sum(new_file(store, name).file_size_bytes for name in gone)
    assert holders["late"].snapshot_count == 1
    assert holders["late"].data_bytes <= holders["lost"].data_bytes
