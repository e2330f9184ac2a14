"""What a process remembers of a table does not grow with its commits: it is of what lives, or within bounds."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.io import sized_cache
from freshet.storage.io.sized_cache import SharedBound
from freshet.storage.metadata import manifest_store, snapshot_store
from freshet.storage.table import Table

OPTIONS = {
    "bucket": "1",
    "changelog-producer": "lookup",
    "manifest.merge-min-count": "3",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "3",
}
COMMITS = 16
LEFT_BLOCKS = 20
"""Of memory, for each commit: what is remembered of each takes 35 and more."""

Commit = Callable[[int, pa.Table], None]


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that are bounded are full soon."""
    monkeypatch.setattr(sized_cache, "OTHERS_MAX", 8)
    for module, name in (
        (snapshot_store, "CACHED_SNAPSHOTS"),
        (manifest_store, "CACHED_SMALL_ENTRIES"),
        (manifest_store, "CACHED_METAS"),
    ):
        monkeypatch.setattr(module, name, SharedBound(20, 20))


def by_a_session(table: Table) -> Commit:
    writer = table.writer("w")

    def commit(number: int, rows: pa.Table) -> None:
        writer.write(rows)
        writer.commit(number)

    return commit


def by_tasks(table: Table) -> Commit:
    """Those who write do not commit, and let nothing expire."""
    worker, committer = Table.of(table.store.handle), table.engine.committer("w")

    def commit(number: int, rows: pa.Table) -> None:
        latest = table.latest_snapshot()
        writer = worker.engine.task_writer(base_snapshot_id=latest.id if latest else None)
        writer.write(rows)
        committer.commit(number, writer.prepare_commit(number))
        writer.close()

    return commit


@pytest.mark.dear("commits with lookups and expiry, until caches are full, and as many again")
@pytest.mark.parametrize("kind", [by_a_session, by_tasks])
def test_commits_leave_nothing_behind(kind: Callable[[Table], Commit], tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "s.t", schema={"k": "BIGINT", "v": "BIGINT"}, primary_keys=["k"], options=OPTIONS
    )
    commit, counts = kind(table), []
    for number in range(2 * COMMITS):
        commit(number, pa.table({"k": [number % 7, 7 + number % 11], "v": [number, number]}))
        table.store.env.finish_later()
        if number % COMMITS == COMMITS - 1:
            gc.collect()
            counts.append(sys.getallocatedblocks())
    assert counts[1] - counts[0] < LEFT_BLOCKS * COMMITS
