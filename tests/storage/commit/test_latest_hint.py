"""The LATEST hint that a commit leaves."""

from __future__ import annotations

from freshet.storage.commit.commit_files import LatestHint
from freshet.storage.commit.committer import Committer
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.sim_env import SimDisk


def test_a_hint_that_comes_after_its_table_was_made_again_is_taken_back() -> None:
    """Left there it says that a snapshot was lost, and nobody could open the new table."""
    env = SimDisk().boot()
    store = make_table(env, options={"write-only": "true"})
    for number in range(3):
        Committer(store, "u").commit(number, [message(store, new=[new_file(store, f"a{number}")])])
    last = store.snapshots.latest()
    assert last is not None and env.file_io.read_bytes(store.paths.latest_hint) == b"3"
    env.file_io.delete_prefix(store.location)
    again = make_table(env, options={"write-only": "true"})
    Committer(again, "u").commit(0, [message(again, new=[new_file(again, "b")])])
    LatestHint(store).write(last)
    assert not env.file_io.exists(store.paths.latest_hint)
    latest = again.snapshots.latest()
    assert latest is not None and latest.id == 1
