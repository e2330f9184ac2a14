"""The history of commits: no fact lost or doubled wherever a program dies, and bounded in time and bytes."""

from __future__ import annotations

import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import CorruptDataError, StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata import expired_snapshots
from freshet.storage.metadata.expired_snapshots import HistoryStore
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.system_tables.commits import commits_of
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.sim_env import Crash, Fault, FaultKind, SimDisk

LOCATION = "/warehouse/db.db/t"
DAY_MS = 24 * 3_600_000


def committed(store: TableStore, first: int, count: int) -> None:
    committer = Committer(store, "u")
    for number in range(first, first + count):
        committer.commit(number, [message(store, new=[new_file(store, f"a{number}", sequence=number)])])


def opened(disk: SimDisk, fault: Fault | None = None) -> TableStore:
    return open_table_store(disk.boot(fault), LOCATION)


def numbers(store: TableStore) -> list[int]:
    """The commits that are known; each has its facts."""
    found = commits_of(store)
    assert all(each.facts is not None and each.facts.rows_written == 1 for each in found)
    return [each.snapshot.commit_identifier for each in found]


def expire(store: TableStore) -> None:
    expire_snapshots(store, retain_max=1, retain_min=1)


def files(store: TableStore) -> list[str]:
    return sorted(status.name for status in store.env.file_io.entries(store.paths.history_folder))


def made(count: int) -> SimDisk:
    """Thirty snapshots that have expired one by one, and others."""
    disk = SimDisk()
    store = make_table(disk.boot(), LOCATION, options={"write-only": "true"})
    for number in range(30):
        committed(store, number, 1)
        expire(store)
    committed(store, 30, count - 30)
    return disk


def test_small_files_become_one_a_day() -> None:
    disk = made(33)
    store = opened(disk)
    assert len(files(store)) == 29
    expire(store)
    assert len(files(store)) == 1
    assert numbers(store) == list(range(33))
    assert not remove_orphan_files(store, older_than_ms=0).files
    assert numbers(store) == list(range(33))


@pytest.mark.parametrize("point", [CrashPoint.EXPIRE_HISTORY_KEPT, CrashPoint.HISTORY_JOINED])
def test_crash_points(point: CrashPoint) -> None:
    disk = made(33)
    with pytest.raises(Crash):
        expire(opened(disk, Fault(point=point)))
    store = opened(disk)
    assert numbers(store) == list(range(33))
    expire(store)
    assert numbers(store) == list(range(33))
    assert len(store.snapshots.list_ids()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("takes_effect", [False, True])
def test_crash_at_each_change_of_the_disk(takes_effect: bool) -> None:
    disk = made(33)
    at = 0
    while True:
        trial = disk.copy()
        try:
            expire(opened(trial, Fault(at=at, takes_effect=takes_effect)))
        except Crash:
            at += 1
        else:
            break
        assert numbers(opened(trial)) == list(range(33)), at
        expire(opened(trial))
        assert numbers(opened(trial)) == list(range(33)), at
    assert at > 30


def test_two_programs_that_join_the_same_files() -> None:
    disk = made(33)
    one, other = opened(disk), opened(disk)
    before = files(one)
    other.history.tidy(30 * DAY_MS)
    assert len(before) == 29
    assert len(files(one)) == 1
    one.history.tidy(30 * DAY_MS)
    assert numbers(one) == list(range(33))


def test_old_days_go_and_the_option_says_when() -> None:
    disk = SimDisk()
    store = make_table(disk.boot(), LOCATION, options={"write-only": "true", "freshet.history-retained": "2 d"})
    for day in range(5):
        committed(store, 20 * day, 20)
        disk.now_ms += DAY_MS
    expire(store)
    assert numbers(store) == list(range(60, 100))
    assert len(files(store)) == 2


def test_none_is_kept_where_nobody_wants_it() -> None:
    store = make_table(SimDisk().boot(), LOCATION, options={"write-only": "true", "freshet.history-retained": "0 s"})
    committed(store, 0, 5)
    expire(store)
    assert (numbers(store), files(store)) == ([4], [])


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_snapshots, "HISTORY_BYTES_MAX", 2000)
    monkeypatch.setattr(expired_snapshots, "JOINED_BYTES_MAX", 500)
    store = make_table(SimDisk().boot(), LOCATION, options={"write-only": "true"})
    for number in range(130):
        committed(store, number, 1)
        expire(store)
    known = numbers(store)
    assert known == list(range(known[0], 130))
    assert known[0] > 0
    assert sum(each.size_bytes for each in store.env.file_io.entries(store.paths.history_folder)) < 20_000


def test_a_full_disk_expires_nevertheless() -> None:
    disk = made(33)
    with pytest.raises(StorageError, match="EARLIEST"):
        expire(opened(disk, Fault(FaultKind.FULL, at=0)))
    store = opened(disk)
    assert len(store.snapshots.list_ids()) == 1
    assert numbers(store) == [*range(29), 32]


def test_a_damaged_file_is_named() -> None:
    store = opened(made(33))
    store.env.file_io.overwrite(f"{store.paths.history_folder}/{files(store)[0]}", b"no gzip")
    with pytest.raises(CorruptDataError, match="the history of commits is damaged"):
        commits_of(store)


def test_snapshots_of_one_id_are_told_apart() -> None:
    """A rollback that cuts uses ids a second time."""
    disk = SimDisk()
    store = make_table(disk.boot(), LOCATION, options={"write-only": "true"})
    committed(store, 0, 3)
    gone = store.snapshots.all()[1:]
    store.history.keep(gone)
    store.history.keep(gone)
    assert numbers(store) == [0, 1, 2]
    Committer(store, "v").commit(0, [], batch=BatchFacts(1))
    assert len(commits_of(store)) == 4


def test_files_that_are_joined_meanwhile_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = made(33)
    store = opened(disk)
    listed = store.history._files()
    expire(opened(disk))  # joins them
    listings = iter([listed])
    monkeypatch.setattr(store.history, "_files", lambda: next(listings, None) or HistoryStore._files(store.history))
    assert numbers(store) == list(range(33))


def test_expiry_goes_on_where_another_program_died_before_it_moved_the_hint() -> None:
    disk = SimDisk()
    committed(make_table(disk.boot(), LOCATION, options={"write-only": "true"}), 0, 6)
    store = opened(disk)
    assert store.snapshots.earliest_id() == 1
    opened(disk).env.file_io.overwrite(store.paths.earliest_hint, b"1")
    assert store.snapshots.earliest_id() == 1, "known by the hint from here on"
    other = opened(disk)
    other.history.keep(other.snapshots.all()[:2])
    for number in (1, 2):
        other.env.file_io.delete(store.paths.snapshot(number))
    expire(store)
    assert numbers(store) == list(range(6))
    assert store.snapshots.earliest_id() == 6
