"""Expiring partitions on a disk in memory: what goes in which commit, what others commit meanwhile, when it is time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.cleaning.partition_expiry import expire_partitions, expire_partitions_at_end
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.table_check import check_table
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.snapshot import CommitKind
from tests.kit.hand_made import (
    assert_everything_named_is_there,
    live_names,
    make_table,
    message,
    new_file,
    partition,
)
from tests.kit.sim_env import Crash, Fault, SimDisk

LOCATION = "/warehouse/db.db/t"
DAY_MS = 86_400_000
YEARS = {"write-only": "true", "partition.expiration-time": "365 d", "partition.timestamp-pattern": "$p-01-01"}
"""The partition is a year; the clock of the disk is in 2023."""
BY_FILES = {"write-only": "true", "partition.expiration-time": "30 d", "partition.expiration-strategy": "update-time"}


def table(disk: SimDisk, options: dict[str, str], *years: int) -> TableStore:
    """A file in each partition, all of one commit."""
    store = make_table(disk.boot(), partitioned=True, options=options)
    append(store, 0, *years)
    return store


def append(store: TableStore, number: int, *years: int, name: str = "a", user: str = "u") -> None:
    messages = [
        message(store, partition=partition(year), new=[new_file(store, f"{name}{year}", partition=partition(year))])
        for year in years
    ]
    Committer(store, user).commit(number, messages)


def kinds(store: TableStore) -> list[CommitKind]:
    return [snapshot.commit_kind for snapshot in store.snapshots.all()]


def test_partitions_go_in_one_overwrite() -> None:
    store = table(SimDisk(), YEARS, 2019, 2020, 2021, 2023)
    expiry = expire_partitions(store)
    assert [dict(each) for each in expiry.partitions] == [{"p": "2019"}, {"p": "2020"}, {"p": "2021"}]
    assert (expiry.snapshot_ids, expiry.unclear, expiry.dry_run) == ((2,), (), False)
    assert live_names(store) == ["a2023@0"]
    assert kinds(store) == [CommitKind.APPEND, CommitKind.OVERWRITE]
    assert expire_partitions(store).snapshot_ids == (), "nothing is left, so no snapshot is made"
    assert not check_table(open_table_store(store.env, LOCATION)).damage
    append(store, 1, 2020, name="late")
    assert expire_partitions(store).snapshot_ids == (4,), "late rows go with the next look"


def test_a_dry_run_changes_nothing_and_arguments_count_before_options() -> None:
    store = table(SimDisk(), YEARS, 2019, 2020, 2021, 2023)
    expiry = expire_partitions(store, dry_run=True, max_num=2)
    assert ([dict(each) for each in expiry.partitions], expiry.dry_run) == ([{"p": "2019"}, {"p": "2020"}], True)
    assert expire_partitions(store, dry_run=True, older_than_ms=0).partitions == (
        {"p": "2019"}, {"p": "2020"}, {"p": "2021"}, {"p": "2023"},
    )  # fmt: skip
    assert len(kinds(store)) == 1
    assert expire_partitions(store.with_options({"partition.expiration-max-num": "1"})).partitions == ({"p": "2019"},)


def test_what_is_refused() -> None:
    store = table(SimDisk(), {"write-only": "true"}, 2019)
    with pytest.raises(InvalidRequestError, match=r"has no partition\.expiration-time"):
        expire_partitions(store)
    with pytest.raises(InvalidRequestError, match="0 or more"):
        expire_partitions(store, older_than_ms=-1)
    with pytest.raises(InvalidRequestError, match="1 or more"):
        expire_partitions(store, older_than_ms=1, max_num=0)
    with pytest.raises(InvalidRequestError, match="has no partitions"):
        expire_partitions(make_table(SimDisk().boot()), older_than_ms=1)
    assert live_names(store) == ["a2019@0"]


BATCHES = {**YEARS, "partition.expiration-batch-size": "2"}


def test_batches_are_commits_of_their_own() -> None:
    store = table(SimDisk(), BATCHES, 2015, 2016, 2017, 2018, 2019)
    assert expire_partitions(store).snapshot_ids == (2, 3, 4)
    assert live_names(store) == []
    assert not check_table(open_table_store(store.env, LOCATION), all_snapshots=True).damage


@pytest.mark.parametrize("visit", [1, 2, 3])
def test_a_crash_between_batches_leaves_the_rest_to_the_next_look(visit: int) -> None:
    disk = SimDisk()
    table(disk, BATCHES, 2015, 2016, 2017, 2018, 2019, 2023)
    fault = Fault(point=CrashPoint.PARTITIONS_REMOVED, visit=visit)
    with pytest.raises(Crash):
        expire_partitions(open_table_store(disk.boot(fault), LOCATION))
    store = open_table_store(disk.boot(), LOCATION)
    assert len(live_names(store)) == max(1, 6 - 2 * visit)
    assert_everything_named_is_there(store)
    assert len(expire_partitions(store).snapshot_ids) == 3 - visit
    assert live_names(store) == ["a2023@0"]


def meanwhile(store: TableStore, act: Callable[[], None]) -> None:
    """Acts before the first snapshot that the store claims, which loses it its id."""
    create = store.env.file_io.create_exclusive

    def create_exclusive(path: str, data: bytes) -> object:
        store.env.file_io.create_exclusive = create  # type: ignore[method-assign]
        act()
        return create(path, data)

    store.env.file_io.create_exclusive = create_exclusive  # type: ignore[method-assign, assignment]


def test_rows_that_come_meanwhile_go_with_a_partition_that_its_values_chose() -> None:
    disk = SimDisk()
    store = table(disk, YEARS, 2019, 2023)
    other = open_table_store(disk.boot(), LOCATION)
    meanwhile(store, lambda: append(other, 0, 2019, 2023, name="new", user="other"))
    assert expire_partitions(store).snapshot_ids == (3,)
    assert live_names(store) == ["a2023@0", "new2023@0"]


def test_a_partition_that_gets_rows_meanwhile_is_not_old_by_its_files() -> None:
    disk = SimDisk()
    store = table(disk, BY_FILES, 1, 2, 3)
    disk.now_ms += 31 * DAY_MS
    append(store, 1, 3, name="young")
    other = open_table_store(disk.boot(), LOCATION)
    meanwhile(store, lambda: append(other, 0, 1, name="new", user="other"))
    expiry = expire_partitions(store)
    assert expiry.partitions == ({"p": "2"},)
    assert live_names(store) == ["a1@0", "a3@0", "new1@0", "young3@0"]


def test_nothing_is_left_to_expire_when_the_claim_is_made() -> None:
    disk = SimDisk()
    store = table(disk, YEARS, 2019)
    other = open_table_store(disk.boot(), LOCATION)
    meanwhile(store, lambda: expire_partitions(other) and None)
    assert expire_partitions(store).partitions == (), "another program has taken them away"
    assert kinds(open_table_store(disk.boot(), LOCATION)) == [CommitKind.APPEND, CommitKind.OVERWRITE]


def committed(store: TableStore, number: int, *years: int) -> None:
    """As a writer of the table commits."""
    messages = [
        message(store, partition=partition(year), new=[new_file(store, f"w{number}-{year}", partition=partition(year))])
        for year in years
    ]
    committer = Committer(store, "w", after_commit=expire_later, at_end=expire_partitions_at_end)
    committer.commit(number, messages)
    committer.finish()


@pytest.mark.parametrize(
    ("options", "goes"),
    [
        ({"partition.expiration-check-interval": "0 s"}, True),
        ({"partition.expiration-check-interval": "1 d"}, False),
        ({"partition.expiration-check-interval": "1 d", "end-input.check-partition-expire": "true"}, True),
        ({"partition.expiration-check-interval": "0 s", "write-only": "true"}, False),
        ({"end-input.check-partition-expire": "true", "write-only": "true"}, False),
    ],
)
def test_who_commits_takes_partitions_away(options: dict[str, str], goes: bool) -> None:
    store = make_table(SimDisk().boot(), partitioned=True, options={**YEARS, "write-only": "false", **options})
    committed(store, 0, 2019, 2023)
    expected = ["w0-2023@0"] if goes else ["w0-2019@0", "w0-2023@0"]
    assert live_names(store) == expected
    assert store.snapshots.latest() == store.snapshots.listed_latest()


def test_partitions_expire_before_snapshots() -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    options = {**YEARS, **kept, "write-only": "false", "partition.expiration-check-interval": "0 s"}
    store = make_table(SimDisk().boot(), partitioned=True, options=options)
    committed(store, 0, 2019, 2023)
    assert kinds(store) == [CommitKind.OVERWRITE]
    assert live_names(store) == ["w0-2023@0"]


def test_a_program_looks_once_in_an_interval() -> None:
    disk = SimDisk()
    options = {**YEARS, "write-only": "false", "partition.expiration-check-interval": "1 h"}
    store = make_table(disk.boot(), partitioned=True, options=options)
    committed(store, 0, 2019)
    disk.now_ms += 3_600_000
    committed(store, 1, 2018)
    assert live_names(store) == [], "an hour after its first commit at the latest"
    disk.now_ms += 3_500_000
    committed(store, 2, 2018)
    assert live_names(store) == ["w2-2018@0"]
    disk.now_ms += 200_000
    committed(store, 3, 2023)
    assert live_names(store) == ["w3-2023@0"]


def test_partitions_without_a_time_stay_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = {**YEARS, "write-only": "false", "partition.expiration-check-interval": "0 s"}
    store = make_table(
        SimDisk().boot(), partitioned=True, options={**options, "partition.timestamp-pattern": "$p-month-01"}
    )
    with caplog.at_level(logging.WARNING):
        committed(store, 0, 2015, 2016, 2017, 2018)
    [record] = caplog.records
    assert "4 partitions never expire" in record.getMessage()
    assert "(2015; 2016; 2017)" in record.getMessage()
    assert len(live_names(store)) == 4


def test_a_failure_does_not_fail_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    options = {**YEARS, "write-only": "false", "partition.expiration-check-interval": "0 s"}
    store = make_table(
        SimDisk().boot(), partitioned=True, options={**options, "partition.expiration-strategy": "custom"}
    )
    committed(store, 0, 2019)
    assert "partitions were not expired: option partition.expiration-strategy=custom" in caplog.text
    assert live_names(store) == ["w0-2019@0"]
