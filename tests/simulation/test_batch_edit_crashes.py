"""A batch job under a number whose processes die, or whose disk fails, at each mutation: one commit or nothing, and the
job that is started again completes it.

A job that is started again may bring other rows, as of a frame that is not deterministic: they count where nothing was
committed, and nowhere else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa
import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import CrashPoint
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.table import Table
from tests.kit.hand_made import assert_everything_named_is_there
from tests.kit.sim_env import Crash, Fault, FaultKind, SimEnv
from tests.kit.sim_world import LOCATION
from tests.storage.edits.sim_tables import KINDS, filled, rows_of

Rows = list[tuple[int, int]]

FIRST: Final = range(25, 60)
AGAIN: Final = range(28, 64)


def opened(env: SimEnv) -> Table:
    table = Table(open_table_store(env, LOCATION))
    return table.with_options(table.engine.dynamic_options)


def run(table: Table, ids: range, *, overwrite: bool) -> bool:
    """What `freshet.write` does, with one task; whether the table had the commit before."""
    edits = table.engine.edits
    edit = edits.begin(("nightly", 7), partitions=edits.partitions(None, None) if overwrite else None)
    if edit.earlier() is not None:
        return True
    base_id = None if overwrite or edit.latest is None else edit.latest.id
    writer = table.engine.task_writer(base_snapshot_id=base_id, upon_nothing=overwrite)
    try:
        writer.write(pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array([len(ids)] * len(ids), pa.int32())}))
        messages = writer.prepare_commit(edit.number)
    finally:
        writer.close()
    edit.commit(messages)
    return False


def after(before: Rows, ids: range, *, overwrite: bool, keyed: bool) -> Rows:
    new = [(key, len(ids)) for key in ids]
    if overwrite:
        return new
    return sorted([row for row in before if not keyed or row[0] not in ids] + new)


def test_rows_that_a_dead_job_left_hidden_show_when_it_is_started_again() -> None:
    """With deletion vectors readers see rows by the COMPACT snapshot of their commit, before which the job has died."""
    disk = filled("vectors")
    with suppress(Crash):
        run(opened(disk.boot(Fault(FaultKind.CRASH, point=CrashPoint.COMMIT_BEFORE_COMPACT))), FIRST, overwrite=False)
    assert (59, len(FIRST)) not in rows_of(opened(disk.boot()))
    assert run(opened(disk.boot()), FIRST, overwrite=False)
    assert rows_of(opened(disk.boot()))[-1] == (59, len(FIRST))
    last = opened(disk.boot()).snapshots()[-1]
    assert run(opened(disk.boot()), FIRST, overwrite=False)
    assert opened(disk.boot()).snapshots()[-1].id == last.id, "what shows is not compacted again"


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True], ids=["append", "overwrite"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_mutation(kind: str, overwrite: bool) -> None:
    disk = filled(kind)
    before = rows_of(opened(disk.copy().boot()))
    first, again = (after(before, ids, overwrite=overwrite, keyed=KINDS[kind][1]) for ids in (FIRST, AGAIN))
    number = committed = 0
    while True:
        hit = False
        for fault in (
            Fault(FaultKind.CRASH, at=number, takes_effect=number % 2 == 1),
            Fault(FaultKind.ERROR, at=number, takes_effect=number % 2 == 0),
            Fault(FaultKind.FULL, at=number),
        ):
            tried = disk.copy()
            env = tried.boot(fault)
            with suppress(StorageError, Crash):
                run(opened(env), FIRST, overwrite=overwrite)
            if env.file_io.mutation_count <= number:
                continue
            hit = True
            table = opened(tried.boot())
            found = rows_of(table)
            assert found in (before, first), f"{fault}: {found}"
            assert_everything_named_is_there(table.store)
            was_there = run(table, AGAIN, overwrite=overwrite)
            committed += was_there
            assert was_there or found == before, fault
            # Rows of a commit that died before its compaction may be hidden; they show with the second call.
            assert was_there == (found == first) or kind == "vectors", fault
            assert rows_of(opened(tried.boot())) == (first if was_there else again), f"{fault}, again"
            assert run(opened(tried.boot()), FIRST, overwrite=overwrite), fault
            table = opened(tried.boot())
            assert len([each for each in table.snapshots() if each.commit_user == "nightly"]) in (1, 2, 3)
            assert_everything_named_is_there(table.store)
            assert table.check().damage == []
        if not hit:
            break
        number += 1
    assert number >= 2
    assert committed >= 1
