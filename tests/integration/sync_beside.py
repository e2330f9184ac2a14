"""Many tables by one query, and what an operator does beside it: another run, `resume`, `resync`, copies put back.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

import pytest

from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.exceptions import RetryableError
from tests.integration.other_driver import OtherDriver
from tests.integration.source_world import SyncWorld
from tests.integration.sync_deaths import damage
from tests.kit.source_database import SourceTable

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def send(world: SyncWorld, key: int, n: int) -> None:
    """A row into every table."""
    for table in world.tables.values():
        world.send(table, table.upsert({"id": key, "n": n}))


def add(world: SyncWorld, n: int, *names: str) -> None:
    """To the sums of `sums`: each record is an insert, so one that is applied twice shows."""
    for name in names or world.tables:
        table = SourceTable(world.db, "public", name, world.tables[name].columns)
        world.send(table, table.upsert({"id": 0, "n": n}))


def sums(world: SyncWorld, *names: str) -> None:
    options = "{bucket: 1, merge-engine: aggregation, fields.n.aggregate-function: sum}"
    world.rules = f"[{{from: '{world.db}.public.(.*)', to: 'lake.$1', options: {options}}}]"
    for name in names:
        world.table(name, {"id": "int", "n": "int"})


@pytest.mark.parametrize("before", ["lake", "ledger"])
def test_a_table_that_is_read_anew_while_a_batch_is_committed_loses_nothing(
    world: SyncWorld, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the batch has written into the table that is dropped is read again, or is missed loudly."""
    for name in ("a", "b"):
        world.table(name, {"id": "int", "n": "int"})
    for key in range(9):
        send(world, key, 1)
    world.run()
    commit, done = TableCommit.commit, []

    def beside(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name in ("lake.a", "lake._freshet_ledger_shop") and before in self.table.name and not done:
            done.append(self.table.name)  # first: what reads the table anew commits too
            world.resume("lake.a", anew=True)
        return commit(self, *arguments)

    send(world, 100, 2)
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", beside)
        with suppress(PipelineFailedError):
            world.run()
    assert done
    send(world, 101, 3)
    world.run()
    if world.ledger()["lake.a"]["state"] == "apart":
        with pytest.raises(InvalidRequestError, match="was dropped since batch 1"):
            world.resume("lake.a")
        world.resume("lake.a", anew=True)
        send(world, 102, 4)
        world.run()
    world.assert_equal()


def test_a_table_that_is_resumed_twice_at_once_gets_nothing_twice(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is over, and the pipeline has gone on, before the first says in the ledger that it is done."""
    sums(world, "a", "b")
    add(world, 1)
    world.run()
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damage)
        for n in (10, 100):
            add(world, n)
            world.run()
    commit, done = TableCommit.commit, []

    def twice(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.a" and not done:
            done.append(None)
            world.resume("lake.a")
            add(world, 1000)
            world.run()
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", twice)
        world.resume("lake.a")
    assert done
    add(world, 10_000)
    world.run()
    if world.ledger()["lake.a"]["state"] == "apart":
        world.resume("lake.a")
        world.run()
    assert [world.rows(name)[0]["n"] for name in "ab"] == [11_111, 11_111]


def test_a_table_that_is_rolled_back_while_it_is_resumed_is_read_anew(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches that are gone lie before those that `resume` reads."""
    sums(world, "a", "b")
    for n in (1, 10):
        add(world, n)
        world.run()
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damage)
        add(world, 100)
        world.run()
    commit = TableCommit.commit

    def rolled_back(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.a":
            world.target("a").rollback(to=1)
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", rolled_back)
        with pytest.raises(RetryableError, match="was rolled back to before commit 1 of user 'shop'"):
            world.resume("lake.a")
    assert world.rows("a")[0]["n"] == 1
    with pytest.raises(InvalidRequestError, match="lake.a does not hold batch 1 .* freshet resync FILE --table lake.a"):
        world.resume("lake.a")
    assert world.ledger()["lake.a"]["state"] == "apart"
    world.resume("lake.a", anew=True)
    add(world, 1000)
    world.run()
    assert [world.rows(name)[0]["n"] for name in "ab"] == [1111, 1111]


def test_two_runs_of_one_file_write_nothing_twice(
    world: SyncWorld, other_driver: OtherDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.more = "compaction: {background: true}"
    sums(world, "a", "b", "c")
    add(world, 1)
    world.run()
    commit, others = TableCommit.commit, []

    def overtaken(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.b" and not others:
            add(world, 1000, "c")
            others.append(other_driver.run(world.file))
        return commit(self, *arguments)

    add(world, 10)
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", overtaken)
        with pytest.raises(PipelineFailedError, match="another run of this pipeline is using its checkpoint"):
            world.run()
    assert others == [None]
    add(world, 100)
    world.run()
    assert [world.rows(name)[0]["n"] for name in "abc"] == [111, 111, 1111]


@pytest.mark.parametrize(
    ("restored", "message"),
    [
        (["c"], "A checkpoint was restored from a backup"),
        (["w/lake.db/_freshet_ledger_shop"], "ledger lake._freshet_ledger_shop does not hold batches 1 to 2"),
        (["c", "w/lake.db/_freshet_ledger_shop"], "A checkpoint was restored from a backup"),
    ],
)
def test_an_older_copy_that_is_put_back_is_refused(world: SyncWorld, restored: list[str], message: str) -> None:
    sums(world, "a", "b")
    add(world, 1)
    world.run()
    for name in restored:
        shutil.copytree(world.folder / name, world.folder / "copies" / name)
    for n in (10, 100):
        add(world, n)
        world.run()
    for name in restored:
        shutil.rmtree(world.folder / name)
        shutil.copytree(world.folder / "copies" / name, world.folder / name)
    add(world, 1000)
    for _ in range(2):
        with pytest.raises(PipelineFailedError, match=message):
            world.run()
    assert [world.rows(name)[0]["n"] for name in "ab"] == [111, 111]
