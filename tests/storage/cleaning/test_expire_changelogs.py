"""Changelogs that outlive their snapshots, on a disk in memory: what is kept, for how long, and what a crash leaves."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import pytest

from freshet.storage.changes.change_source import ChangeSource
from freshet.storage.changes.planner import ChangePlanner
from freshet.storage.cleaning.expire import ExpireResult, expire_later
from freshet.storage.cleaning.expire_changelogs import changelogs_end
from freshet.storage.cleaning.expiry_plan import Retention
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.data_file import DataFileMeta
from tests.kit.hand_made import data_files_on_disk, live_names, make_table, message, new_file
from tests.kit.said_expiry import expire_as_said
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
LONG = {
    "write-only": "true",
    "snapshot.num-retained.min": "1",
    "changelog.num-retained.min": "6",
    "changelog.time-retained": "0 s",
}


def end(retention: Retention, **given: Any) -> int:
    facts = {"earliest": 1, "newest": 10, "latest": 20, "now_ms": 10_000, "consumer_next": None}
    return changelogs_end(retention, **{**facts, "time_of": lambda snapshot_id: snapshot_id * 100, **given})


@pytest.mark.parametrize(
    ("retention", "given", "expected"),
    [
        (Retention(1, None, 0, None), {}, 10),
        (Retention(15, None, 0, None), {}, 6),
        (Retention(20, None, 0, None), {}, 1),
        (Retention(99, None, 0, None), {}, 1),
        (Retention(1, None, 9_500, None), {}, 5),
        (Retention(1, 12, 10_000, None), {}, 9),
        (Retention(1, None, 0, 3), {}, 4),
        (Retention(1, None, 0, None), {"consumer_next": 4}, 4),
        (Retention(1, None, 0, None), {"earliest": 10}, 10),
        (Retention(1, None, 9_500, None), {"time_of": lambda _: None}, 10),
    ],
)
def test_which_copies_may_go(retention: Retention, given: dict[str, Any], expected: int) -> None:
    assert end(retention, **given) == expected


def keep_one(store: TableStore) -> ExpireResult:
    return expire_as_said(store, is_interrupted=True, retain_max=1)


def names(store: TableStore, snapshot_id: int, source: ChangeSource) -> list[str]:
    copy = store.changelogs.find(snapshot_id)
    assert copy is not None
    return [
        file.file_name.removesuffix(".parquet")
        for split in ChangePlanner(store).plan(copy, source)
        for file in split.files
    ]


def logged(store: TableStore, rounds: Sequence[int], before: Sequence[DataFileMeta] = ()) -> list[DataFileMeta]:
    """Each round appends `a<n>` with changelog `l<n>`, then compacts it with the file before: two snapshots.

    Returns the file that is live at the end.
    """
    committer = Committer(store, "u", after_commit=expire_later)
    for number in rounds:
        new, after = new_file(store, f"a{number}"), new_file(store, f"c{number}", level=5)
        log = [new_file(store, f"l{number}")] if store.options.given.get("changelog-producer") == "input" else []
        committer.commit(number, [message(store, new=[new], changelog=log, before=[*before, new], after=[after])])
        before = [after]
    return list(before)


def test_changelog_files_outlive_their_snapshots() -> None:
    store = make_table(SimDisk().boot(), options={**LONG, "changelog-producer": "input"})
    logged(store, range(5))
    result = keep_one(store)
    assert result.snapshot_ids == tuple(range(1, 10))
    assert result.changelog_ids == (1, 2, 3, 4), "10 is the latest, 5 to 10 are the six that stay"
    assert store.changelogs.list_ids() == [5, 6, 7, 8, 9]
    assert store.env.file_io.read_bytes(store.paths.changelog_earliest_hint) == b"5"
    assert store.env.file_io.read_bytes(store.paths.changelog_latest_hint) == b"9"
    assert data_files_on_disk(store) == ["c4", "l2", "l3", "l4"]
    assert [names(store, each, ChangeSource.CHANGELOG) for each in (5, 7, 9)] == [["l2"], ["l3"], ["l4"]]
    assert live_names(store) == ["c4@5"]
    assert not remove_orphan_files(store, older_than_ms=0).files, "neither left over nor taken for an orphan"
    logged_again = open_table_store(store.env, LOCATION)
    assert names(logged_again, 5, ChangeSource.CHANGELOG) == ["l2"], "also for who has nothing in memory"


def test_data_files_are_the_changelog_of_a_table_without_a_producer() -> None:
    store = make_table(SimDisk().boot(), options=LONG)
    logged(store, range(5))
    assert keep_one(store).changelog_ids == (1, 2, 3, 4)
    assert store.changelogs.list_ids() == [5, 6, 7, 8, 9]
    assert data_files_on_disk(store) == ["a2", "a3", "a4", "c4"], "what appends wrote stays with their copies"
    fresh = open_table_store(store.env, LOCATION)
    assert [names(fresh, each, ChangeSource.DELTA) for each in (5, 7, 9)] == [["a2"], ["a3"], ["a4"]]
    assert live_names(fresh) == ["c4@5"]
    assert not remove_orphan_files(fresh, older_than_ms=0).files


def test_copies_go_in_later_rounds_and_leave_nothing() -> None:
    for producer in ("none", "input"):
        store = make_table(SimDisk().boot(), options={**LONG, "changelog-producer": producer})
        last = logged(store, range(5))
        keep_one(store)
        logged(store, range(5, 7), last)
        assert keep_one(store).changelog_ids == (5, 6, 7, 8)
        assert store.changelogs.list_ids() == [9, 10, 11, 12, 13]
        assert not remove_orphan_files(store, older_than_ms=0, dry_run=True).files
        short = store.with_options({"changelog.num-retained.min": "1", "changelog.time-retained": "3650 d"})
        assert expire_as_said(short, retain_max=1).changelog_ids == (), "too young"


NONE_KEPT = {"changelog.num-retained.min": "1"}


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_copies_go_when_the_options_do_not_ask_for_them_any_more(producer: str, goes_on: bool) -> None:
    store = make_table(SimDisk().boot(), options={**LONG, "changelog-producer": producer})
    last = logged(store, range(5))
    keep_one(store)
    if goes_on:  # more history, which deletes what the copies name
        logged(store, range(5, 8), last)
    short = store.with_options(NONE_KEPT)
    assert keep_one(short).changelog_ids == (5, 6, 7, 8, 9)
    assert store.changelogs.list_ids() == []
    assert data_files_on_disk(store) == ["c7" if goes_on else "c4"]
    assert not list(store.env.file_io.entries(store.paths.changelog_folder)), "no hints either"
    fresh = open_table_store(store.env, LOCATION)
    assert live_names(fresh) == ["c7@5" if goes_on else "c4@5"]
    assert not remove_orphan_files(fresh, older_than_ms=-1, dry_run=True).files
    assert keep_one(short).changelog_ids == ()


def test_copies_that_nobody_asks_for_stay_as_long_as_a_consumer_wants_them() -> None:
    store = make_table(SimDisk().boot(), options={**LONG, "consumer.changelog-only": "true"})
    logged(store, range(5))
    keep_one(store)
    store.consumers.reset("reader", 7)
    short = store.with_options(NONE_KEPT)
    assert keep_one(short).changelog_ids == (5, 6)
    assert data_files_on_disk(store) == ["a3", "a4", "c4"]
    assert names(store, 7, ChangeSource.DELTA) == ["a3"]
    assert keep_one(short).changelog_ids == ()
    store.consumers.delete("reader")
    assert expire_as_said(short, retain_max=1, limit=2).changelog_ids == (7, 8)
    assert keep_one(short).changelog_ids == (9,)
    assert data_files_on_disk(store) == ["c4"]


def test_commits_release_copies_that_nobody_asks_for() -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "changelog.num-retained.max": "3"}
    store = make_table(SimDisk().boot(), options={**options, "changelog.num-retained.min": "3"})
    last = logged(store, range(6))
    assert store.changelogs.list_ids() == [10, 11]
    logged(store.with_options({**NONE_KEPT, "changelog.num-retained.max": "1"}), range(6, 8), last)
    assert store.changelogs.list_ids() == []
    assert data_files_on_disk(store) == ["c7"]


def test_a_tag_keeps_what_copies_named() -> None:
    store = make_table(SimDisk().boot(), options={**LONG})
    logged(store, range(5))
    data = store.env.file_io.read_bytes(store.paths.snapshot(7))
    keep_one(store)
    store.env.file_io.overwrite(store.paths.tag("held"), data)
    keep_one(store.with_options(NONE_KEPT))
    assert "a3" in data_files_on_disk(store), "live in snapshot 7"
    assert not remove_orphan_files(store, older_than_ms=-1, dry_run=True).files


def test_a_consumer_holds_back_changelogs() -> None:
    store = make_table(SimDisk().boot(), options={**LONG, "consumer.changelog-only": "true"})
    logged(store, range(5))
    store.consumers.reset("reader", 3)
    result = keep_one(store)
    assert (result.snapshot_ids, result.changelog_ids) == (tuple(range(1, 10)), (1, 2))
    store.consumers.delete("reader")
    assert keep_one(store).changelog_ids == (3, 4)


def test_commits_expire_copies_too() -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "changelog.num-retained.min": "3"}
    store = make_table(SimDisk().boot(), options={**options, "changelog.num-retained.max": "3"})
    logged(store, range(6))
    assert store.snapshots.list_ids() == [12]
    assert store.changelogs.list_ids() == [10, 11]


def test_readers_that_are_gone_hold_back_nothing() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), options={"write-only": "true", "consumer.expiration-time": "1 h"})
    logged(store, range(2))
    store.consumers.reset("reader", 2)
    assert keep_one(store).snapshot_ids == (1,)
    disk.now_ms += 3_700_000
    assert keep_one(store).snapshot_ids == (2, 3)
    assert store.consumers.positions() == {}


FAULTS = [
    *(Fault(point=point) for point in CrashPoint if point.value.startswith("expire")),
    *(Fault(at=number, takes_effect=effect) for number in range(0, 60, 2) for effect in (False, True)),
]


@functools.cache
def five_rounds(producer: str) -> SimDisk:
    disk = SimDisk()
    logged(make_table(disk.boot(), options={**LONG, "changelog-producer": producer}), range(5))
    return disk


@pytest.mark.few(20)
@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_crash_anywhere_leaves_readable_changes(fault: Fault, producer: str) -> None:
    disk = five_rounds(producer).copy()
    with contextlib.suppress(Crash, StorageError):
        keep_one(open_table_store(disk.boot(fault), LOCATION))
    source = ChangeSource.DELTA if producer == "none" else ChangeSource.CHANGELOG
    for _ in range(2):
        fresh = open_table_store(disk.boot(), LOCATION)
        ids = {*fresh.changelogs.list_ids(), *fresh.snapshots.list_ids()}
        assert ids == set(range(min(ids), 11)), "no gap"
        for snapshot_id in fresh.changelogs.list_ids():
            for name in names(fresh, snapshot_id, source) if snapshot_id % 2 else ():
                assert name in data_files_on_disk(fresh)
        keep_one(fresh)
    assert fresh.changelogs.list_ids() == [5, 6, 7, 8, 9]
    remove_orphan_files(fresh, older_than_ms=-1)
    assert data_files_on_disk(fresh) == (["a2", "a3", "a4", "c4"] if producer == "none" else ["c4", "l2", "l3", "l4"])
