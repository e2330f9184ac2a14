"""Tags as people manage them: made, replaced, renamed, deleted, with what only they name; races and crashes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.table_check import check_table
from freshet.storage.exceptions import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.branch_store import Branches
from freshet.storage.metadata.live_files import live_entries
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.metadata.tag_store import TagStore
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.model.manifest import EntryKind, ManifestEntry
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.tags.changes import TagRemoval
from freshet.storage.tags.table_tags import TableTags
from tests.kit.hand_made import (
    assert_everything_named_is_there,
    data_files_on_disk,
    force,
    live_names,
    make_table,
    message,
    new_file,
)
from tests.kit.sim_env import Crash, Fault, FaultKind, SimDisk
from tests.storage.tags.meanwhile import Meanwhile

LOCATION = "/warehouse/db.db/t"
KEEP_ALL = {"write-only": "true"}


def compacted(store: TableStore, rounds: int) -> TableTags:
    """Round n appends `a<n>` (snapshot 2n + 1) and compacts it with the file before into `c<n>` (2n + 2)."""
    before: list[DataFileMeta] = []
    committer = Committer(store, "u")
    for number in range(rounds):
        new = new_file(store, f"a{number}")
        after = new_file(store, f"c{number}", level=5)
        log = [new_file(store, f"log{number}")]
        committer.commit(number, [message(store, new=[new], before=[*before, new], after=[after], changelog=log)])
        before = [after]
    return TableTags(store)


def kept(tags: TableTags) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in tags.list()}


def test_a_tag_keeps_what_it_names_until_it_is_deleted() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    made = tags.create("mine", 3)
    assert (made.name, made.snapshot_id, made.created, made.retained_until) == ("mine", 3, None, None)
    assert tags.get("mine") == made
    assert made.commit_time.timestamp() * 1000 == store.snapshots.snapshot(3).time_ms
    expire_snapshots(store, retain_max=1)
    assert live_names(store, tags.get("mine").snapshot) == ["a1@0", "c0@5"]
    assert data_files_on_disk(store) == ["a1", "c0", "c3", "log1"]
    preview = tags.delete("mine", dry_run=True)
    assert (preview.data_file_count, preview.is_dry_run, kept(tags)) == (3, True, {"mine": 3})
    gone = tags.delete("mine")
    assert (gone.data_file_count, gone.metadata_file_count) == (3, preview.metadata_file_count)
    assert gone.failed_delete_count == 0
    assert data_files_on_disk(store) == ["c3"]
    assert not remove_orphan_files(store, older_than_ms=0).files
    assert_everything_named_is_there(store)


def test_a_tag_of_a_snapshot_that_is_there_goes_alone() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 3)
    tags.create("mine")
    names = set(store.env.file_io._disk.names())  # type: ignore[attr-defined]
    assert tags.delete("mine") == TagRemoval(gone := tags.create("mine")) and gone.snapshot_id == 6
    tags.delete("mine")
    assert names - set(store.env.file_io._disk.names()) == {store.paths.tag("mine")}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "others", [{"left": 3}, {"right": 5}, {"left": 2, "right": 5}, {"same": 4}, {"far": 1, "off": 8}]
)
def test_other_tags_keep_theirs(others: dict[str, int]) -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 5)
    for name, snapshot_id in {"mine": 4, **others}.items():
        tags.create(name, snapshot_id)
    rows = {tag.name: live_names(store, tag.snapshot) for tag in tags.list()}
    expire_snapshots(store, retain_max=1)
    tags.delete("mine")
    assert {tag.name: live_names(store, tag.snapshot) for tag in tags.list()} == {name: rows[name] for name in others}
    wanted = {name.split("@")[0] for each in (*(rows[name] for name in others), live_names(store)) for name in each}
    assert {name for name in data_files_on_disk(store) if not name.startswith("log")} == wanted
    assert not remove_orphan_files(store, older_than_ms=0).files
    assert_everything_named_is_there(store)


def test_branches_keep_theirs() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 5)
    tags.create("mine", 4)
    paths = store.paths.branch("side")
    data = encode_snapshot(store.snapshots.snapshot(3))
    store.env.file_io.create_exclusive(paths.snapshot(3), data)
    expire_snapshots(store, retain_max=1)
    tags.delete("mine")
    assert data_files_on_disk(store) == ["a1", "c0", "c4", "log1"]
    assert live_names(store, store.snapshots.branch("side").snapshot(3)) == ["a1@0", "c0@5"]


def test_changelogs_that_outlive_their_snapshots_keep_theirs() -> None:
    options = {**KEEP_ALL, "changelog-producer": "input", "changelog.num-retained.min": "100"}
    store = make_table(SimDisk().boot(), options=options)
    tags = compacted(store, 4)
    tags.create("mine", 3)
    expire_snapshots(store, retain_max=1)
    tags.delete("mine")
    assert data_files_on_disk(store) == ["c3", "log0", "log1", "log2", "log3"]
    assert not remove_orphan_files(store, older_than_ms=0).files


def test_what_a_later_overwrite_brought_back_stays() -> None:
    """A rollback that is a new snapshot has a base of its own, so that it can add again what was deleted."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    a, b = new_file(store, "a"), new_file(store, "b", level=5)
    committer = Committer(store, "u")
    committer.commit(0, [message(store, new=[a])])
    TableTags(store).create("mine", 1)
    committer.commit(1, [message(store, before=[a], after=[b])])
    expire_snapshots(store, retain_max=1)
    added = {name: ManifestEntry(EntryKind.ADD, bytes(12), 0, 2, file) for name, file in (("a", a), ("b", b))}
    base, base_size = store.manifests.write_manifest_list(store.manifests.write_manifests([added["b"]]))
    back = [replace(added["b"], kind=EntryKind.DELETE), added["a"]]
    force(store, back, base_manifest_list=base, base_manifest_list_size=base_size, commit_kind=CommitKind.OVERWRITE)
    c = new_file(store, "c", level=5)
    committer.commit(3, [message(store, before=[a], after=[c])])
    TableTags(store).delete("mine")
    assert data_files_on_disk(store) == ["a", "b", "c"]
    assert_everything_named_is_there(store)
    expire_snapshots(store, retain_max=1)
    assert data_files_on_disk(store) == ["c"]


def test_what_is_there_is_said_where_a_snapshot_is_not() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = TableTags(store)
    with pytest.raises(NotFoundError, match="has no snapshot; a tag names a snapshot that is there"):
        tags.create("early")
    compacted(store, 3)
    tags.create("held", 2)
    expire_snapshots(store, retain_max=2)
    with pytest.raises(
        NotFoundError, match=r"snapshot 3 is not there: .* has snapshots 5 to 6; .* tags hold 2 \(held\)"
    ):
        tags.create("late", 3)
    with pytest.raises(NotFoundError, match="at or before 5 ms"):
        tags.create("old", timestamp_ms=5)
    assert tags.create("again", 2).snapshot == tags.get("held").snapshot
    tags.delete("held")
    assert live_names(store, tags.get("again").snapshot) == ["c0@5"]
    assert tags.create("then", timestamp_ms=store.snapshots.snapshot(5).time_ms).snapshot_id == 5
    with pytest.raises(NotFoundError, match="no tag 'held'; tags there are: again, then"):
        tags.get("held")


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\nb", "x" * 201, "ü" * 101, "success-file", 7, None])
def test_names_that_no_tag_can_have(name: str) -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 1)
    tags.create("there")
    for call in (tags.create, tags.get, tags.delete, tags.replace, lambda each: tags.rename("there", each)):
        with pytest.raises(InvalidRequestError, match="cannot be the name of a tag"):
            call(name)
    assert kept(tags) == {"there": 2}


@pytest.mark.parametrize("name", ["2026-03-01 09", "ä b", " x", "tag-tag-", "%2F", "a" * 200])
def test_names_are_used_as_they_are(name: str) -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 1)
    tags.create(name)
    assert store.env.file_io.exists(f"{LOCATION}/tag/tag-{name}")
    assert kept(tags) == {name: 2}
    with pytest.raises(AlreadyExistsError, match="replace it, delete it"):
        tags.create(name, 1)
    assert kept(tags) == {name: 2}


def test_the_folder_of_success_files_is_no_tag() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 1)
    store.env.file_io.overwrite(f"{LOCATION}/tag/tag-success-file/a_SUCCESS", b"{}")
    assert kept(tags) == {}
    with pytest.raises(NotFoundError):
        store.snapshots.tags.tag("success-file")


@pytest.mark.parametrize("retained", [timedelta(0), timedelta(seconds=-1), 5])
def test_a_tag_is_retained_for_some_time(retained: timedelta) -> None:
    tags = compacted(make_table(SimDisk().boot(), options=KEEP_ALL), 1)
    with pytest.raises(InvalidRequestError, match="more than 0"):
        tags.create("t", retained=retained)
    assert kept(tags) == {}


def test_a_tag_may_be_retained_as_long_as_can_be_said() -> None:
    tags = compacted(make_table(SimDisk().boot(), options=KEEP_ALL), 1)
    tags.create("t", retained=timedelta.max)
    assert [(tag.name, tag.retained) for tag in tags.list()] == [("t", timedelta.max)]


def test_arguments_are_checked_before_anything_is_written() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 1)
    calls: list[Callable[[], object]] = [
        lambda: tags.create("t", 1, timestamp_ms=1),
        lambda: tags.create("t", True),
        lambda: tags.create("t", "1"),  # type: ignore[arg-type]
        lambda: TableTags(store.with_options({"tag.callbacks": "x"})).create("t"),
    ]
    for call, error in zip(calls, [InvalidRequestError] * 3 + [UnsupportedFeatureError], strict=True):
        with pytest.raises(error):
            call()
    assert kept(tags) == {}


def test_tags_expire_by_their_time_or_by_when_they_were_made() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    tags.create("kept", 2)
    tags.create("for a day", 3, retained=timedelta(days=1))
    tags.create("for a month", 4, retained=timedelta(days=30))
    expire_snapshots(store, retain_max=1)
    assert tags.expire() == ()
    disk.now_ms += 2 * 24 * 3_600_000
    tags.create("late", 8)
    assert [each.tag.name for each in tags.expire(dry_run=True)] == ["for a day"]
    assert set(kept(tags)) == {"kept", "for a day", "for a month", "late"}
    [gone] = tags.expire()
    assert (gone.tag.name, gone.is_dry_run, gone.data_file_count > 0) == ("for a day", False, True)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=disk.now_ms - 24 * 3_600_000)
    assert [each.tag.name for each in tags.expire(older_than=moment, dry_run=True)] == ["for a month", "kept"]
    assert {each.tag.name for each in tags.expire(older_than=disk.now_ms - 24 * 3_600_000)} == {"for a month", "kept"}
    assert kept(tags) == {"late": 8}
    assert not remove_orphan_files(store, older_than_ms=0).files
    assert_everything_named_is_there(store)
    with pytest.raises(InvalidRequestError, match="older_than"):
        tags.expire(older_than=datetime(2026, 1, 1))
    assert tags.expire(older_than=0) == ()


def test_a_tag_that_is_replaced_while_tags_expire_stays() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options=KEEP_ALL)
    tags = compacted(store, 3)
    tags.create("a", 2, retained=timedelta(hours=1))
    tags.create("b", 3, retained=timedelta(hours=1))
    disk.now_ms += 24 * 3_600_000
    other, delete = TableTags(open_table_store(disk.boot(), LOCATION)), store.env.file_io.delete

    def then_b_is_replaced(path: str) -> bool:
        if path == store.paths.tag("a"):
            other.replace("b", 5, retained=timedelta(hours=1))
        return delete(path)

    store.env.file_io.delete = then_b_is_replaced  # type: ignore[method-assign]
    assert [each.tag.name for each in tags.expire()] == ["a"]
    assert kept(tags) == {"b": 5}


@pytest.mark.few(9)
@pytest.mark.parametrize("fault", [Fault(at=at, takes_effect=effect) for at in range(9) for effect in (False, True)])
def test_a_crash_while_tags_expire_leaves_each_whole_or_gone(fault: Fault) -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    for number in (2, 3, 5):
        tags.create(f"t{number}", number, retained=timedelta(hours=1))
    tags.create("kept", 4)
    expire_snapshots(store, retain_max=1)
    disk.now_ms += 24 * 3_600_000
    with contextlib.suppress(Crash):
        TableTags(open_table_store(disk.boot(fault), LOCATION)).expire()
    fresh = open_table_store(disk.boot(), LOCATION)
    assert_everything_named_is_there(fresh)
    TableTags(fresh).expire()
    assert kept(TableTags(fresh)) == {"kept": 4}
    remove_orphan_files(fresh, older_than_ms=-1_000_000)
    assert live_names(fresh, TableTags(fresh).get("kept").snapshot) == ["c1@5"]
    assert_everything_named_is_there(fresh)


def test_the_time_to_stay_is_the_callers_or_the_tables() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={**KEEP_ALL, "tag.default-time-retained": "2 h"})
    tags = compacted(store, 1)
    now = datetime(1970, 1, 1) + timedelta(milliseconds=disk.now_ms)
    default, own = tags.create("default"), tags.create("own", retained=timedelta(days=2))
    assert default.retained == timedelta(hours=2)
    assert own.retained == timedelta(days=2)
    assert default.created is not None and abs(default.created - now) < timedelta(seconds=1)
    assert tags.rename("own", "owned").retained_until == own.retained_until
    assert tags.get("owned").created == own.created
    assert repr(tags.get("owned")).startswith("Tag('owned', snapshot 2, ")
    assert repr(tags) == f"TableTags({store.name!r})"


def test_a_second_automatic_name_of_a_snapshot_is_refused() -> None:
    options = {**KEEP_ALL, "tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}
    tags = compacted(make_table(SimDisk().boot(), options=options), 1)
    tags.create("2026-01-01", 1)
    with pytest.raises(InvalidRequestError, match="has the automatic tag '2026-01-01'"):
        tags.create("2026-01-02", 1)
    tags.create("2026-01-02", 2)
    with pytest.raises(InvalidRequestError, match="has the automatic tag '2026-01-01'"):
        tags.replace("2026-01-02", 1)
    tags.create("by hand", 1)
    tags.replace("2026-01-02", 2)


def test_replace_takes_away_what_only_the_tag_named() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    tags.create("mine", 3)
    expire_snapshots(store, retain_max=1)
    assert tags.replace("mine").snapshot_id == 8
    assert data_files_on_disk(store) == ["c3"]
    assert not remove_orphan_files(store, older_than_ms=0).files
    with pytest.raises(NotFoundError, match="no tag 'other'"):
        tags.replace("other")
    assert kept(tags) == {"mine": 8}


def test_a_tag_of_a_snapshot_that_has_expired_gets_a_new_time() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    tags.create("mine", 3, retained=timedelta(days=1))
    expire_snapshots(store, retain_max=1)
    assert tags.replace("mine", 3, retained=timedelta(days=90)).retained == timedelta(days=90)
    assert tags.get("mine").retained == timedelta(days=90)
    assert_everything_named_is_there(store)


def test_rename_keeps_what_the_tag_names() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    tags.create("mine", 3)
    tags.create("taken", 8)
    expire_snapshots(store, retain_max=1)
    files = data_files_on_disk(store)
    with pytest.raises(AlreadyExistsError, match="'taken' already"):
        tags.rename("mine", "taken")
    with pytest.raises(AlreadyExistsError):
        tags.rename("mine", "mine")
    with pytest.raises(NotFoundError, match="no tag 'nobody'"):
        tags.rename("nobody", "somebody")
    tags.rename("mine", "yours")
    assert kept(tags) == {"yours": 3, "taken": 8}
    assert data_files_on_disk(store) == files


# ------------------------------------------------------------------------------------------------- two at the same time


def two_programs() -> tuple[TableStore, TableStore, Meanwhile]:
    """One that can be interrupted, and another one."""
    disk = SimDisk()
    make_table(disk.boot(), options=KEEP_ALL)
    env = Meanwhile(disk, None, random.Random(1))
    return open_table_store(env, LOCATION), open_table_store(disk.boot(), LOCATION), env


def assert_whole(store: TableStore) -> None:
    """Every tag can be read."""
    fresh = open_table_store(store.env, LOCATION)
    for tag in TableTags(fresh).list():
        assert {name.split("@")[0] for name in live_names(fresh, tag.snapshot)} <= set(data_files_on_disk(fresh))
    assert_everything_named_is_there(fresh)


@pytest.mark.parametrize(
    "point", [CrashPoint.EXPIRE_PLANNED, CrashPoint.EXPIRE_SNAPSHOTS_REMOVED, CrashPoint.EXPIRE_DATA_REMOVED]
)
def test_a_tag_made_while_an_expiry_runs_is_whole_or_refused(point: CrashPoint) -> None:
    expiring, tagging, env = two_programs()
    compacted(expiring, 4)
    assert len(tagging.snapshots.all()) == 8  # in memory
    tags, outcome = TableTags(tagging), []

    def create() -> None:
        try:
            outcome.append(tags.create("mine", 3).snapshot_id)
        except NotFoundError:
            outcome.append(0)

    env.do_at(point, create)
    expire_snapshots(expiring, retain_max=1)
    assert outcome == [3 if point is CrashPoint.EXPIRE_PLANNED else 0]
    assert kept(tags) == ({"mine": 3} if outcome == [3] else {})
    assert_whole(expiring)
    if outcome == [3]:
        tags.delete("mine")
    assert data_files_on_disk(expiring) == ["c3"]
    assert not remove_orphan_files(expiring, older_than_ms=0).files


def test_a_tag_whose_snapshot_expires_before_the_second_look_is_taken_back() -> None:
    tagging, expiring, env = two_programs()
    compacted(tagging, 4)
    # An expiry that has looked at the tags for the last time before the tag was there.
    snapshots = [tagging.paths.snapshot(each) for each in range(1, 8)]
    env.do_at(CrashPoint.TAG_WRITTEN, lambda: expiring.env.file_io.delete_all(snapshots))
    with pytest.raises(NotFoundError, match="snapshot 3 of .* expired while tag 'mine' was made of it; .* taken back"):
        TableTags(tagging).create("mine", 3)
    assert kept(TableTags(expiring)) == {}


def test_two_creators_of_one_name() -> None:
    first, second, env = two_programs()
    compacted(first, 3)
    refused = []

    def create() -> None:
        with pytest.raises(AlreadyExistsError) as caught:
            TableTags(second).create("mine", 2)
        refused.append(caught.value)

    env.do_at(CrashPoint.TAG_WRITTEN, create)
    TableTags(first).create("mine", 4)
    assert len(refused) == 1
    assert kept(TableTags(second)) == {"mine": 4}


def test_a_tag_made_of_one_that_is_deleted_meanwhile_keeps_the_files() -> None:
    deleting, tagging, env = two_programs()
    compacted(deleting, 4)
    TableTags(deleting).create("mine", 3)
    expire_snapshots(deleting, retain_max=1)
    copy = TableTags(tagging).get("mine")
    outcome = []

    def create() -> None:
        tagging.snapshots.tags.create(type(copy)("copy", copy.snapshot))
        outcome.append(True)

    env.do_at(CrashPoint.TAG_REMOVED, create)
    TableTags(deleting).delete("mine")
    assert outcome
    assert kept(TableTags(tagging)) == {"copy": 3}
    assert_whole(tagging)


def test_a_tag_made_of_one_that_is_gone_is_taken_back() -> None:
    tagging, deleting, env = two_programs()
    compacted(tagging, 4)
    TableTags(tagging).create("mine", 3)
    expire_snapshots(tagging, retain_max=1)
    env.do_at(CrashPoint.TAG_WRITTEN, lambda: deleting.snapshots.tags.remove("mine"))
    with pytest.raises(NotFoundError, match="taken back"):
        TableTags(tagging).rename("mine", "yours")
    assert kept(TableTags(deleting)) == {}
    assert data_files_on_disk(tagging) == ["c3"]


def test_a_snapshot_that_expires_while_its_tag_is_deleted_leaves_no_orphans() -> None:
    deleting, expiring, env = two_programs()
    compacted(deleting, 4)
    TableTags(deleting).create("mine", 3)
    env.do_at(CrashPoint.TAG_REMOVED, lambda: expire_snapshots(expiring, retain_max=1))
    TableTags(deleting).delete("mine")
    assert data_files_on_disk(deleting) == ["c3"]
    assert not remove_orphan_files(deleting, older_than_ms=0).files


def test_a_tag_that_cannot_be_read_stops_the_deletion_of_others_but_not_its_own() -> None:
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 4)
    tags.create("broken", 2)
    tags.create("mine", 3)
    expire_snapshots(store, retain_max=1)
    broken = tags.get("broken").snapshot
    assert broken.delta_manifest_list not in {tags.get("mine").snapshot.base_manifest_list}
    store.env.file_io.delete(store.paths.manifest(broken.delta_manifest_list))
    store = open_table_store(store.env, LOCATION)
    tags, files = TableTags(store), data_files_on_disk(store)
    with pytest.raises(CorruptDataError, match=r"tag 'mine' .*nothing was removed. If another tag is damaged, delete"):
        tags.delete("mine")
    assert (kept(tags), data_files_on_disk(store)) == ({"broken": 2, "mine": 3}, files)
    tags.delete("broken")
    tags.delete("mine")
    assert data_files_on_disk(store)[-1] == "c3"
    assert kept(tags) == {}


# ------------------------------------------------------------------------------------------------------------- crashes


def story() -> SimDisk:
    """Three tags, the snapshots of two of them expired."""
    disk = SimDisk()
    tags = compacted(store := make_table(disk.boot(), options=KEEP_ALL), 4)
    tags.create("one", 3)
    tags.create("two", 5)
    tags.create("three", 8)
    expire_snapshots(store, retain_max=1)
    return disk


ACTS: dict[str, Callable[[TableTags], object]] = {
    "create": lambda tags: tags.create("new", 8),
    "copy": lambda tags: tags.create("new", 3),
    "delete": lambda tags: tags.delete("one"),
    "replace": lambda tags: tags.replace("one", 5),
    "rename": lambda tags: tags.rename("one", "new"),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("takes_effect", [False, True])
def test_after_each_fault_every_tag_can_be_read(act: str, kind: FaultKind, *, takes_effect: bool) -> None:
    began, at = story(), 0
    while True:
        disk = began.copy()
        env = disk.boot(Fault(kind, at=at, takes_effect=takes_effect))
        tags = TableTags(open_table_store(env, LOCATION))
        with contextlib.suppress(Crash, StorageError):
            ACTS[act](tags)
        if at >= env.file_io.mutation_count:
            break
        store = open_table_store(disk.boot(), LOCATION)
        tags = TableTags(store)
        assert {"two", "three"} <= set(kept(tags)) <= {"one", "two", "three", "new"}
        assert act in ("delete", "rename") or "one" in kept(tags)
        assert act == "delete" or {"one", "new"} & set(kept(tags)), "a rename leaves one of the names"
        assert_whole(store)
        for tag in tags.list():
            tags.delete(tag.name)
        remove_orphan_files(store, older_than_ms=-1_000_000)
        assert data_files_on_disk(store) == ["c3"]
        at += 1
    assert at > 0


@pytest.mark.parametrize("point", [CrashPoint.TAG_WRITTEN, CrashPoint.TAG_REMOVED])
def test_crash_points(point: CrashPoint) -> None:
    act = "delete" if point is CrashPoint.TAG_REMOVED else "create"
    disk = story()
    tags = TableTags(open_table_store(disk.boot(Fault(point=point)), LOCATION))
    with pytest.raises(Crash):
        ACTS[act](tags)
    store = open_table_store(disk.boot(), LOCATION)
    there = {"two": 5, "three": 8, **({} if act == "delete" else {"one": 3, "new": 8})}
    assert kept(TableTags(store)) == there
    assert_whole(store)


# ----------------------------------------------------------------------------------------------------------- histories


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(30))
def test_histories(seed: int) -> None:
    """Commits, compactions, overwrites, tags, expiries: each tag has its files, and at the end nothing is left over."""
    chance = random.Random(seed)
    disk = SimDisk(seed)
    producer = chance.choice([{}, {"changelog-producer": "input"}])
    longer = chance.choice([{}, {"changelog.num-retained.min": "3", "snapshot.num-retained.min": "1"}])
    store = make_table(disk.boot(), options={**KEEP_ALL, **producer, **longer})
    tags, committer = TableTags(store), Committer(store, "u")
    live: list[DataFileMeta] = []
    oracle: dict[str, list[str]] = {}
    history: dict[int, list[str]] = {}
    for number in range(60):
        match chance.choice(
            ["append", "append", "compact", "overwrite", "tag", "tag", "delete", "replace", "rename", "expire"]
        ):
            case "append":
                new = new_file(store, f"f{number}", sequence=1000 * number)
                log = [new_file(store, f"log{number}")] if producer else []
                committer.commit(number, [message(store, new=[new], changelog=log)])
                live = [*live, new]
            case "compact" if len(live) > 1:
                after = new_file(store, f"f{number}", level=5, sequence=1000 * number)
                committer.commit(number, [message(store, before=live, after=[after])], force_empty=False)
                live = [after]
            case "overwrite" if live:
                gone, new = live[-1], new_file(store, f"f{number}", sequence=1000 * number)
                committer.commit(number, [message(store, deleted=[gone], new=[new])])
                live = [*live[:-1], new]
            case "tag" if history:
                chosen = chance.choice([None, *[each.id for each in store.snapshots.all()], *kept(tags).values()])
                made = tags.create(f"t{number}", chosen)
                oracle[made.name] = history[made.snapshot_id]
            case "delete" if oracle:
                name = chance.choice(sorted(oracle))
                del oracle[name]
                tags.delete(name)
            case "replace" if oracle:
                name = chance.choice(sorted(oracle))
                oracle[name] = history[
                    tags.replace(name, chance.choice([None, store.snapshots.earliest_id()])).snapshot_id
                ]
            case "rename" if oracle:
                name = chance.choice(sorted(oracle))
                oracle[f"r{number}"] = oracle.pop(name)
                tags.rename(name, f"r{number}")
            case "expire":
                expire_snapshots(store, retain_max=chance.choice([1, 1, 2, 4]))
        latest = store.snapshots.latest_id()
        if latest is not None:
            for snapshot_id in range(1, latest + 1):
                if snapshot_id not in history:
                    history[snapshot_id] = live_names(store, store.snapshots.snapshot(snapshot_id))
        assert {tag.name: live_names(store, tag.snapshot) for tag in tags.list()} == oracle, f"seed {seed}"
        on_disk = set(data_files_on_disk(store))
        assert {file.split("@")[0] for names in oracle.values() for file in names} <= on_disk, f"seed {seed}"
        assert_everything_named_is_there(store)
    for name in oracle:
        tags.delete(name)
    expire_snapshots(store.with_options({"changelog.num-retained.min": "1"}), retain_max=1)
    left = remove_orphan_files(store, older_than_ms=-1_000_000, dry_run=True).files
    assert [file.path for file in left] == [], f"seed {seed}"


def test_what_is_live_is_what_the_files_say() -> None:
    """The helper of these tests is no echo of what they test."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    compacted(store, 2)
    snapshot = store.snapshots.snapshot(3)
    assert len(list(live_entries(store.manifests, snapshot))) == len(live_names(store, snapshot)) == 2


def test_a_branch_of_a_tag_without_its_changelog_is_whole() -> None:
    """Apache Paimon removes the changelog of a snapshot that expires, although a tag has it."""
    store = make_table(SimDisk().boot(), options=KEEP_ALL)
    tags = compacted(store, 3)
    changelog = tags.create("mine", 3).snapshot.changelog_manifest_list
    assert changelog is not None
    expire_snapshots(store, retain_max=1)
    Branches(store).create("b", from_tag="mine")
    branch = open_table_store(store.env, LOCATION, branch="b")
    assert not check_table(branch).damage
    store.env.file_io.delete(store.paths.manifest(changelog))
    assert not check_table(branch).damage
    branch.snapshots.tags.remove("mine")
    assert check_table(branch).damage, "without the tag it is not known whether the changelog was lost"


def test_a_tag_that_is_listed_and_never_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags that went while they were read are listed again, but not for ever."""
    table = Catalog(str(tmp_path)).create_table("db.t", schema={"id": "INT"})
    table.append([{"id": 1}])
    for name in ("a", "b"):
        table.tags.create(name)
    find = TagStore.find
    monkeypatch.setattr(TagStore, "find", lambda self, name: None if name == "b" else find(self, name))
    again = Catalog(str(tmp_path)).table("db.t")
    assert [tag.name for tag in again.tags.list()] == ["a"]
