"""Expiry that is said first: a dry run changes nothing, and says what the round after it does."""

from __future__ import annotations

from typing import Any

from freshet.storage.cleaning.expire import ExpireResult, expire_snapshots
from freshet.storage.metadata.table_store import TableStore
from tests.kit.sim_env import SimFileIO


def expire_as_said(store: TableStore, *, is_interrupted: bool = False, **retention: Any) -> ExpireResult:
    """A round of a table on a `SimDisk`. `is_interrupted`: an earlier round may have left some of the work."""
    file_io = store.env.file_io
    assert isinstance(file_io, SimFileIO)
    before = file_io.mutation_count
    said = expire_snapshots(store, **retention, is_dry_run=True)
    assert file_io.mutation_count == before, "a dry run writes and deletes nothing"
    done = expire_snapshots(store, **retention)
    assert (said.is_dry_run, done.is_dry_run) == (True, False)
    assert (said.snapshot_ids, said.held_by) == (done.snapshot_ids, done.held_by)
    if store.options.changelog_is_decoupled:
        # What this round keeps of the snapshots that go may be of changelogs that go with it.
        assert set(said.changelog_ids) <= set(done.changelog_ids)
    else:
        assert said.changelog_ids == done.changelog_ids
        counts = (said.data_file_count, said.metadata_file_count), (done.data_file_count, done.metadata_file_count)
        is_at_most = is_interrupted or bool(done.changelog_ids)
        assert counts[0] == counts[1] or (is_at_most and counts[0] > counts[1]), counts
    return done
