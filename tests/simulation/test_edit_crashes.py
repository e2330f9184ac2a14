"""Edits that crash, or whose disk fails, at each mutation: the table is as before or as after, and may be edited again.

A rollback that removes snapshots leaves one of those that were there, and ends when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.table import Table
from tests.kit.hand_made import assert_everything_named_is_there
from tests.kit.sim_env import Crash, Fault, FaultKind, SimDisk, SimEnv
from tests.kit.sim_world import LOCATION
from tests.storage.edits.sim_tables import KINDS, filled, rows_of

Rows = list[tuple[int, int]]

EDITS: dict[str, Callable[[Table], object]] = {
    "delete": lambda table: table.delete("id < 5 OR n = 2"),
    "update": lambda table: table.update({"n": 9}, "id BETWEEN 3 AND 30"),
    "overwrite": lambda table: table.overwrite([{"id": 1, "n": 7}]),
    "truncate": lambda table: table.truncate(),
    "append": lambda table: table.append([{"id": 100, "n": 7}]),
    "merge": lambda table: (
        table.merge([{"id": 3, "n": 9}, {"id": 25, "n": None}, {"id": 200, "n": 9}], "id")
        .when_matched_delete("source.n IS NULL")
        .when_matched_update_all()
        .when_not_matched_insert_all("source.n = 9")
        .execute()
    ),
    "overwrite by a filter": lambda table: table.overwrite([{"id": 25, "n": 2}], filter="n = 2"),
    "rollback": lambda table: table.rollback(2),
    "delete newer": lambda table: table.rollback(2, delete_newer=True),
}


def opened(env: SimEnv) -> Table:
    return Table(open_table_store(env, LOCATION))


SPARED = {("merge", "dynamic"), ("merge", "vectors"), ("overwrite by a filter", "dynamic")}
"""Of keyed tables they are written as updates and deletes are."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "kind"), [(edit, kind) for edit in EDITS for kind in KINDS if (edit, kind) not in SPARED]
)
def test_each_mutation(edit: str, kind: str) -> None:
    disk = filled(kind)
    before = rows_of(opened(disk.copy().boot()))
    states = {each.id: rows_of(opened(disk.copy().boot()), each.id) for each in opened(disk.copy().boot()).snapshots()}
    done = disk.copy()
    table = opened(done.boot())
    EDITS[edit](table)
    after = rows_of(opened(done.boot()))
    assert after != before
    allowed = [before, after] if edit != "delete newer" else [*states.values(), after]
    number = 0
    while True:
        hit = False
        for fault in (
            Fault(FaultKind.CRASH, at=number),
            Fault(FaultKind.CRASH, at=number, takes_effect=True),
            Fault(FaultKind.ERROR, at=number),
            Fault(FaultKind.ERROR, at=number, takes_effect=True),
        ):
            tried = disk.copy()
            env = tried.boot(fault)
            try:
                with suppress(StorageError):
                    EDITS[edit](opened(env))
            except Crash:
                pass
            if env.file_io.mutation_count <= number:
                continue
            hit = True
            table = opened(tried.boot())
            found = rows_of(table)
            assert found in allowed, f"{fault}: {found}"
            assert_everything_named_is_there(table.store)
            EDITS[edit](table)
            # Who appends again without looking has the row twice, where the table has no key.
            is_twice = edit == "append" and found == after and not table.schema.has_primary_key
            wanted = [*after, after[-1]] if is_twice else after
            assert rows_of(opened(tried.boot())) == wanted, f"{fault}, again"
            assert_everything_named_is_there(opened(tried.boot()).store)
        if not hit:
            break
        number += 1
    assert number >= 2


def test_the_disk_is_the_one_that_crashes() -> None:
    disk = filled("keyed")
    with pytest.raises(Crash):
        opened(disk.boot(Fault(FaultKind.CRASH, at=0))).truncate()
    assert isinstance(disk, SimDisk)
