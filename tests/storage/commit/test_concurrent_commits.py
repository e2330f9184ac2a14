"""Several committers on one table, in threads and in processes: nothing lost, nothing twice, ids contiguous."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freshet.storage.cleaning.expire import expire_later
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import local_env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from freshet.storage.model.snapshot import CommitKind
from tests.kit.commit_worker import append, batch_of, run
from tests.kit.hand_made import assert_contiguous, assert_everything_named_is_there, live_names, make_table

COMMITS = 15
OPTIONS = {"commit.max-retries": "100"}


def check(store: TableStore, users: list[str], *, expired: bool = False) -> None:
    """Each commit of each appending user is there once."""
    assert_contiguous(store)
    assert_everything_named_is_there(store)
    expected = sorted(f"{user}-{number}" for user in users for number in range(COMMITS))
    assert sorted(batch_of(name) for name in live_names(store) if name.startswith("append")) == expected
    if not expired:
        snapshots = [store.snapshots.snapshot(snapshot_id) for snapshot_id in store.snapshots.list_ids()]
        appends = Counter(
            (item.commit_user, item.commit_identifier) for item in snapshots if item.commit_kind is CommitKind.APPEND
        )
        for user in users:
            assert [appends[user, number] for number in range(COMMITS)] == [1] * COMMITS
        assert [item.time_ms for item in snapshots] == sorted(item.time_ms for item in snapshots)
    latest = store.snapshots.latest()
    assert latest is not None
    assert latest.total_record_count == len(users) * COMMITS


@pytest.mark.parametrize("retain", [None, 1, 2])
def test_committers_in_threads(tmp_path: Path, retain: int | None) -> None:
    location = str(tmp_path / "t")
    expiry = {} if retain is None else {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": str(retain)}
    make_table(local_env(), location, options={**OPTIONS, **expiry})
    users = ["append-a", "append-b", "append-c"]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(run, location, user, COMMITS, compacts=False) for user in users]
        futures += [pool.submit(run, location, "compactor", COMMITS, compacts=True)]
        for future in futures:
            future.result(timeout=600)
    store = open_table_store(local_env(), location)
    check(store, users, expired=retain is not None)
    if retain is not None:
        assert len(store.snapshots.list_ids()) <= retain + 1
        remove_orphan_files(store, older_than_ms=-60_000)
        check(open_table_store(local_env(), location), users, expired=True)


@pytest.mark.slow
def test_committers_in_processes_with_two_compactors(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    make_table(local_env(), location, options=OPTIONS)
    users = ["append-a", "append-b"]
    commands = [[user, str(COMMITS)] for user in users]
    commands += [[user, str(COMMITS), "compact"] for user in ("rival-a", "rival-b")]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.kit.commit_worker", location, *command], stdout=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    aborted = [int(worker.communicate(timeout=600)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0]
    assert aborted[:2] == [0, 0]
    store = open_table_store(local_env(), location)
    check(store, users)
    snapshots = [store.snapshots.snapshot(snapshot_id) for snapshot_id in store.snapshots.list_ids()]
    compactions = sum(item.commit_kind is CommitKind.COMPACT for item in snapshots)
    assert compactions + sum(aborted) == 2 * COMMITS, "each compaction is there or was dropped"
    assert compactions >= 1


def test_expiry_that_lags_behind_commits_catches_up(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    make_table(local_env(), location, options={**OPTIONS, **kept})
    store = open_table_store(local_env(), location)
    is_busy, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_busy.set()
        goes_on.wait(300)

    store.env.run_later("another", wait)
    assert is_busy.wait(300)
    committer = Committer(store, "a", after_commit=expire_later)
    for number in range(5):
        committer.commit(number, [append(store, f"a-{number}")])
    assert store.snapshots.list_ids() == [1, 2, 3, 4, 5]
    goes_on.set()
    store.env.finish_later()
    assert store.snapshots.list_ids() == [5]
