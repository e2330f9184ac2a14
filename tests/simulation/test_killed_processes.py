"""Committers in real processes, killed again and again (SIGKILL), while others compact and expire."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from freshet.jobs.demo.child_process import start_child, tail
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.io.env import local_env
from freshet.storage.metadata.table_store import TableStore, open_table_store
from tests.kit.commit_worker import batch_of
from tests.kit.hand_made import (
    assert_contiguous,
    assert_everything_named_is_there,
    data_files_on_disk,
    live_names,
    make_table,
)
from tests.soak.counts import KILLED_COMMITTERS, chance_of

COMMITS = 40
COMMITS_PER_ROUND = 3
"""Of each process that is killed: then it waits for that, so that work is left for all rounds on every machine."""
OPTIONS = {
    "commit.max-retries": "1000",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "manifest.merge-min-count": "4",
}


@pytest.mark.always("a kill for each producer")
@pytest.mark.soak
def test_killed_committers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    make_table(local_env(), location, options=OPTIONS)
    store = open_table_store(local_env(), location)
    chance = chance_of("killed committers")
    killed_rounds = KILLED_COMMITTERS.now()
    users = ["append-a", "append-b"]
    commands = [[user, str(COMMITS)] for user in users] + [["compactor", str(COMMITS), "compact"]]
    kills = 0
    for round_number in range(40):
        is_killed = round_number < killed_rounds
        limit = [str(COMMITS_PER_ROUND)] if is_killed else []
        before = _latest_id(store)
        with (tmp_path / "log").open("ab") as log:
            workers = [
                start_child([sys.executable, "-m", "tests.kit.commit_worker", location, *command, *limit], log=log)
                for command in commands
            ]
        if is_killed:
            _wait_for_commits(store, before + chance.randint(1, COMMITS // 8), workers)
            time.sleep(chance.random() / 50)
            for worker in workers:
                worker.kill()
        codes = [worker.wait(timeout=300) for worker in workers]
        kills += sum(code == -9 for code in codes)
        if not is_killed and codes == [0, 0, 0]:
            break
    assert kills == killed_rounds * len(commands), f"only {kills} were killed\n{tail(tmp_path / 'log')}"
    store = open_table_store(local_env(), location)
    assert_contiguous(store)
    assert_everything_named_is_there(store)
    expected = sorted(f"{user}-{number}" for user in users for number in range(COMMITS))
    assert sorted(batch_of(name) for name in live_names(store) if name.startswith("append")) == expected
    latest = store.snapshots.latest()
    assert latest is not None
    assert latest.total_record_count == len(expected)
    remove_orphan_files(store, older_than_ms=-60_000)
    assert_everything_named_is_there(open_table_store(local_env(), location))
    assert len([name for name in data_files_on_disk(store) if name.startswith("append")]) == len(expected)


def _wait_for_commits(store: TableStore, snapshot_id: int, workers: list[subprocess.Popen[Any]]) -> None:
    """Until the table has come so far: kills fall amid work."""
    deadline = time.monotonic() + 300
    while _latest_id(store) < snapshot_id and any(worker.poll() is None for worker in workers):
        assert time.monotonic() < deadline, f"the committers make no progress at snapshot {_latest_id(store)}"
        time.sleep(0.002)


def _latest_id(store: TableStore) -> int:
    latest = store.snapshots.latest()
    return latest.id if latest else 0
