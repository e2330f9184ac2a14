"""Writers, committers and compactions whose snapshot expires each time before they have read it to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from freshet import Catalog, Table
from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import NotFoundError, RetryableError
from freshet.storage.metadata.table_store import EXPIRED_MAX, TableStore, open_table_store
from freshet.storage.model.snapshot import Snapshot
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    live_names,
    make_table,
    message,
    new_file,
)
from tests.kit.sim_env import SimDisk

T = TypeVar("T")

LOCATION = "/warehouse/db.db/t"
ROWS = pa.table({"day": [1, 2], "k": [1, 1], "v": [0, 0]})


class Overtaken:
    """After each of the next `times` looks at the latest snapshot, a writer commits and lets all others expire."""

    def __init__(self, store: TableStore, commit: Callable[[int], None], times: int) -> None:
        self._look = store.snapshots.latest_with
        self._other = open_table_store(store.env, store.location)
        self._commit = commit
        self._times = times
        self._lock = threading.Lock()
        self.looks = 0

    def __call__(self, other: Callable[[], T]) -> tuple[Snapshot | None, T]:
        with self._lock:  # a writer may look from several threads
            seen = self._look(other)
            self.looks += 1
            if self.looks <= self._times:
                self._commit(self.looks)
                expire_snapshots(self._other, retain_max=1, retain_min=1, time_retained_ms=0)
            return seen


def hand_made(*, options: dict[str, str] | None = None) -> TableStore:
    store = make_table(SimDisk().boot(), options={"write-only": "true", **(options or {})})
    for number in range(2):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"before{number}")])])
    return open_table_store(store.env, LOCATION)  # which has none of their manifests in memory


def by_another(store: TableStore) -> Callable[[int], None]:
    other = open_table_store(store.env, LOCATION)

    def commit(number: int) -> None:
        Committer(other, "other").commit(number, [message(other, new=[new_file(other, f"other{number}")])])

    return commit


@pytest.mark.parametrize("times", [1, 2, 8])
def test_a_commit_goes_on_however_often_it_is_overtaken(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = hand_made()
    overtaken = Overtaken(store, by_another(store), times)
    monkeypatch.setattr(store.snapshots, "latest_with", overtaken)
    result = Committer(store, "u").commit(2, [message(store, new=[new_file(store, "mine")])])
    assert (len(result.snapshots), overtaken.looks > times) == (1, True)
    fresh = open_table_store(store.env, LOCATION)
    assert_contiguous(fresh)
    assert_everything_named_is_there(fresh)
    others = [f"other{number}@0" for number in range(1, times + 1)]
    assert sorted(live_names(fresh)) == sorted(["before0@0", "before1@0", "mine@0", *others])


def test_a_commit_that_is_overtaken_in_every_round_says_so_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = hand_made(options={"commit.max-retries": "3"})
    monkeypatch.setattr(store.snapshots, "latest_with", Overtaken(store, by_another(store), times=1000))
    with pytest.raises(RetryableError, match=r"not made after 3 retries: each snapshot .* expired meanwhile.*retained"):
        Committer(store, "u").commit(2, [message(store, new=[new_file(store, "mine")])])
    fresh = open_table_store(store.env, LOCATION)
    assert_everything_named_is_there(fresh)
    assert "mine@0" not in live_names(fresh)


def test_a_manifest_that_is_lost_is_missed_twice_at_the_same_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    store = hand_made()
    latest = store.snapshots.latest()
    assert latest is not None
    store.env.file_io.delete(store.paths.manifest(latest.base_manifest_list))
    overtaken = Overtaken(store, by_another(store), times=0)
    monkeypatch.setattr(store.snapshots, "latest_with", overtaken)
    with pytest.raises(NotFoundError, match=latest.base_manifest_list):
        Committer(store, "u").commit(2, [message(store, new=[new_file(store, "mine")])])
    assert overtaken.looks == 4, "two rounds, and a look whether others have gone on after each"


def a_table(folder: Path, **options: str) -> Table:
    table = Catalog(str(folder)).create_table(
        "db.t",
        schema={"day": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"},
        primary_keys=["day", "k"],
        partition_keys=["day"],
        options={"bucket": "1", "snapshot.time-retained": "1 d", **options},
    )
    for number in range(2):
        write(table, "first", number)
    return Catalog(str(folder)).table("db.t")


def write(table: Table, user: str, value: int) -> None:
    with table.writer(user) as writer:
        writer.write(ROWS.set_column(2, "v", pa.array([value] * 2)))
        writer.commit()


def written_by_another(folder: Path) -> Callable[[int], None]:
    other = Catalog(str(folder)).table("db.t")
    return lambda number: write(other, "other", 100 + number)


@pytest.mark.few(3)
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("options", [{}, {"write-buffer-spillable": "false"}, {"changelog-producer": "lookup"}])
def test_a_writer_goes_on_and_no_row_is_lost(
    options: dict[str, str], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the first key are written by both: ours is numbered after all that was committed before our flush."""
    table = a_table(tmp_path, **options)
    overtaken = Overtaken(table.store, written_by_another(tmp_path), times)
    with table.writer("w") as writer:
        monkeypatch.setattr(table.store.snapshots, "latest_with", overtaken)
        writer.write(pa.table({"day": [1, 2, 1, 2], "k": [1, 1, 2, 2], "v": [7, 7, 8, 8]}))
        writer.commit()
    assert overtaken.looks > times
    fresh = Catalog(str(tmp_path)).table("db.t")
    found = {(row["day"], row["k"]): row["v"] for row in fresh.scan().to_arrow().to_pylist()}
    assert found.keys() == {(1, 1), (2, 1), (1, 2), (2, 2)}
    assert (found[1, 2], found[2, 2]) == (8, 8)
    last_by_others = 100 + times
    assert {found[1, 1], found[2, 1]} <= ({7} if times == 1 else {7, last_by_others})
    assert_contiguous(fresh.store)


def test_a_task_whose_base_expires_before_its_first_row_goes_on(tmp_path: Path) -> None:
    """Buckets are restored when rows come; the snapshot that the job chose may be gone by then."""
    table = a_table(tmp_path)
    base = table.store.snapshots.latest()
    assert base is not None
    task = table.engine.task_writer(base_snapshot_id=base.id)
    written_by_another(tmp_path)(1)
    other = open_table_store(table.store.env, table.location)
    expire_snapshots(other, retain_max=1, retain_min=1, time_retained_ms=0)
    task.write(ROWS)
    messages = task.prepare_commit(1)
    assert task.base_snapshot_id == base.id + 1
    assert [file.min_sequence_number for message in messages for file in message.new_files] == [3, 3]
    task.close()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "call", [lambda table: table.compact(full=True), Table.describe, Table.facts], ids=["compact", "describe", "facts"]
)
def test_who_looks_at_the_latest_snapshot_looks_again(
    call: Callable[[Table], object], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path, **{"num-sorted-run.compaction-trigger": "100"})
    overtaken = Overtaken(table.store, written_by_another(tmp_path), times)
    monkeypatch.setattr(table.store.snapshots, "latest_with", overtaken)
    call(table)
    assert overtaken.looks > times
    assert_contiguous(open_table_store(table.store.env, table.location))


def test_a_look_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the table, nobody looks for ever."""
    table = a_table(tmp_path)
    looks = iter(range(1, 1000))
    (latest,) = (table.store.snapshots.latest(),)
    assert latest is not None

    def read(_: Snapshot | None) -> None:
        write(table, "other", next(looks))
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError, match="gone"):
        table.store.at_latest(read)
    assert next(looks) == EXPIRED_MAX + 2
