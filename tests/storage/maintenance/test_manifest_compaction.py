"""Manifests merged by hand: a snapshot without a change, when there is one, and what others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.committer import Committer
from freshet.storage.maintenance.manifest_compaction import ManifestFacts, compact_manifests
from freshet.storage.metadata.live_files import data_manifests
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hand_made import assert_everything_named_is_there, live_names, make_table, message, new_file
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
KEEP_ALL = {"write-only": "true"}


def written(disk: SimDisk, commits: int = 4, **options: str) -> tuple[TableStore, list[DataFileMeta]]:
    """A file each commit; the first is taken away again."""
    store = make_table(disk.boot(), options={**KEEP_ALL, **options})
    committer, files = Committer(store, "u"), []
    for number in range(commits):
        files.append(new_file(store, f"a{number}", sequence=number))
        committer.commit(number, [message(store, new=files[-1:])])
    committer.commit(commits, [message(store, deleted=files[:1])])
    return store, files


def manifests(store: TableStore) -> list[tuple[int, int]]:
    latest = store.snapshots.latest()
    assert latest is not None
    metas = data_manifests(store.manifests, latest)
    return [(meta.num_added_files, meta.num_deleted_files) for meta in metas]


def test_all_become_one_without_deletes() -> None:
    store, _ = written(SimDisk())
    rows, last = live_names(store), store.snapshots.latest()
    assert last is not None
    assert len(manifests(store)) == 5
    tried = compact_manifests(store, dry_run=True)
    assert (tried.snapshot_id, tried.is_due, tried.is_dry_run) == (None, True, True)
    assert (tried.before.count, tried.before.deleted_count, tried.before.small_count) == (5, 1, 5)
    assert tried.before.size_bytes > 0
    assert store.snapshots.latest() == last
    done = compact_manifests(store)
    assert done.before == tried.before
    assert (done.after.count, done.after.deleted_count, done.snapshot_id) == (1, 0, last.id + 1)
    assert manifests(store) == [(3, 0)]
    assert live_names(store) == rows == ["a1@0", "a2@0", "a3@0"]
    made = store.snapshots.snapshot(last.id + 1)
    assert (made.commit_kind, made.delta_record_count) == (CommitKind.COMPACT, 0)
    assert (made.total_record_count, made.schema_id) == (last.total_record_count, last.schema_id)
    assert made.changelog_manifest_list is None
    assert_everything_named_is_there(store)


def test_again_there_is_nothing_to_do() -> None:
    store, _ = written(SimDisk())
    first = compact_manifests(store)
    again = compact_manifests(store)
    assert (again.snapshot_id, again.is_due) == (None, False)
    assert again.before == again.after == first.after
    latest = store.snapshots.latest()
    assert latest is not None and latest.id == first.snapshot_id


def test_a_table_without_snapshots_and_one_without_rows() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    assert compact_manifests(store).before == ManifestFacts()
    assert store.snapshots.latest() is None
    store, _ = written(SimDisk())
    Committer(store, "u").truncate(9)
    assert compact_manifests(store).after.count == 0
    assert live_names(store) == manifests(store) == []


def test_what_was_committed_is_known_after_it() -> None:
    disk = SimDisk()
    store, _ = written(disk)
    compact_manifests(store)
    for snapshot_id in range(1, 6):
        store.env.file_io.delete(store.paths.snapshot(snapshot_id))
    fresh = open_table_store(disk.boot(), LOCATION)
    assert Committer(fresh, "u").has_committed(3).is_committed
    assert Committer(fresh, "u").commit(4, []).already_committed


class Meanwhile:
    """Lets something happen just before the claim of a snapshot."""

    def __init__(self, store: TableStore, act: Callable[[], object]) -> None:
        self._create = store.env.file_io.create_exclusive
        self._act: Callable[[], object] | None = act
        store.env.file_io.create_exclusive = self  # type: ignore[method-assign, assignment]

    def __call__(self, path: str, data: bytes) -> object:
        act = self._act
        if "/snapshot/snapshot-" in path and act is not None:
            self._act = None
            act()
        return self._create(path, data)


def test_a_commit_meanwhile_stays() -> None:
    disk = SimDisk()
    store, _ = written(disk)
    other = open_table_store(disk.boot(), LOCATION)
    Meanwhile(
        store, lambda: Committer(other, "v").commit(0, [message(other, new=[new_file(other, "late", sequence=9)])])
    )
    done = compact_manifests(store)
    assert done.snapshot_id == 7
    assert manifests(store) == [(3, 0), (1, 0)]
    assert live_names(store) == ["a1@0", "a2@0", "a3@0", "late@0"]


def test_two_who_merge_make_one_snapshot() -> None:
    disk = SimDisk()
    store, _ = written(disk)
    other = open_table_store(disk.boot(), LOCATION)
    Meanwhile(store, lambda: compact_manifests(other))
    assert compact_manifests(store).snapshot_id is None
    latest = open_table_store(disk.boot(), LOCATION).snapshots.latest()
    assert latest is not None and latest.id == 6
    assert manifests(store) == [(3, 0)]
    assert remove_orphan_files(store, older_than_ms=-1_000_000, dry_run=True).files == ()


def test_where_others_merged_and_went_on_it_is_merged_again() -> None:
    disk = SimDisk()
    store, _ = written(disk)
    other = open_table_store(disk.boot(), LOCATION)

    def merged_and_went_on() -> None:
        compact_manifests(other)
        Committer(other, "v").commit(0, [message(other, new=[new_file(other, "late", sequence=9)])])

    Meanwhile(store, merged_and_went_on)
    assert compact_manifests(store).snapshot_id == 8
    assert manifests(store) == [(4, 0)]
    assert live_names(store) == ["a1@0", "a2@0", "a3@0", "late@0"]
    assert remove_orphan_files(store, older_than_ms=-1_000_000, dry_run=True).files == ()
    assert_everything_named_is_there(store)


@pytest.mark.parametrize("fault", [Fault(at=at, takes_effect=effect) for at in range(6) for effect in (False, True)])
def test_a_crash_leaves_the_table_as_it_was_or_merged(fault: Fault) -> None:
    disk = SimDisk()
    written(disk)
    try:
        compact_manifests(open_table_store(disk.boot(fault), LOCATION))
    except Crash:
        pass
    else:
        assert fault.at == 5
    store = open_table_store(disk.boot(), LOCATION)
    assert live_names(store) == ["a1@0", "a2@0", "a3@0"]
    compact_manifests(store)
    remove_orphan_files(store, older_than_ms=-1_000_000)
    assert manifests(store) == [(3, 0)]
    assert_everything_named_is_there(store)
