"""Snapshots expire after commits: expiry is handed to committers, and each one must have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.table import Table

FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}


def rows() -> pa.Table:
    return pa.table({"k": pa.array([1, 2], pa.int64())})


def by_a_session(table: Table) -> None:
    with table.writer("w") as writer:
        writer.write(rows())
        writer.commit()


def by_tasks(table: Table) -> None:
    latest = table.latest_snapshot()
    writer = table.engine.task_writer(base_snapshot_id=latest.id if latest else None)
    writer.write(rows())
    table.engine.committer("tasks").commit(0, writer.prepare_commit(0))
    writer.close()


def by_compaction(table: Table) -> None:
    assert table.compact(full=True).snapshots


def by_compaction_in_the_background(table: Table) -> None:
    background = table.engine.background_compaction("stream-compact")
    unit = background.next_unit()
    assert unit is not None
    assert background.commit(unit, table.engine.run_background_unit(unit)).snapshots


def by_sorting(table: Table) -> None:
    assert table.sort_compact(["k"]).snapshots


@pytest.mark.parametrize(
    ("commit", "keyed"),
    [
        (by_a_session, True),
        (by_tasks, True),
        (by_compaction, True),
        (by_compaction_in_the_background, True),
        (by_sorting, False),
    ],
)
def test_a_commit_lets_snapshots_expire(tmp_path: Path, commit: Callable[[Table], None], keyed: bool) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        schema={"k": "BIGINT"},
        primary_keys=["k"] if keyed else [],
        options={"bucket": "1"} if keyed else {"bucket": "-1"},
    )
    for _ in range(6):
        by_a_session(table.with_options({"write-only": "true"}))
    table = table.with_options(FEW)
    commit(table)
    table.store.env.finish_later()
    assert len(table.snapshots()) == 1
