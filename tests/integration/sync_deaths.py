"""Many tables by one query whose driver dies, or one of whose tables is lost, damaged or brought up again.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

import pytest

from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError, PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.exceptions import CorruptDataError
from freshet.storage.model.snapshot import CommitKind
from tests.integration.other_driver import OtherDriver
from tests.integration.source_world import SyncWorld
from tests.kit.source_database import SourceTable

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


FOLLOW = TableCommit.follow_schema


def damage(self: TableCommit, *, is_planned: bool) -> None:
    """In the place of `follow_schema`."""
    if self.table.name == "lake.a":
        raise CorruptDataError("a manifest is damaged")
    FOLLOW(self, is_planned=is_planned)


@pytest.mark.parametrize("dies_at", ["lake.b", "lake.c", "ledger"])
def test_a_batch_that_was_begun_is_finished(world: SyncWorld, dies_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    for table in world.tables.values():
        world.send(table, table.upsert(*({"id": i, "n": 2} for i in range(10))))
        world.send(table, table.delete(15))
    commit = TableCommit.commit

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == dies_at or (dies_at == "ledger" and "ledger" in self.table.name):
            raise OSError("the driver dies")
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()
    for name in world.tables:
        users = [each.commit_identifier for each in world.target(name).snapshots() if each.commit_user == "shop"]
        assert sorted(set(users)) == [0, 1], name


def test_a_table_that_is_dropped_is_set_apart_and_the_others_go_on(world: SyncWorld) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    world.catalog.drop_table("lake.a")
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 2, "n": 2}))
    (progress,) = world.run()
    assert any("lake.a is set apart from batch 1" in text for text in progress.report.table_events)
    world.assert_equal("b")
    row = world.ledger()["lake.a"]
    assert (row["state"], row["since_batch"]) == ("apart", 1)
    assert progress.report.result.skipped == {f"held back, its table is set apart: {world.tables['a'].topic}": 1}
    world.send(world.tables["a"], world.tables["a"].upsert({"id": 3, "n": 3}))
    world.run()  # by a new run too
    assert not world.catalog.has_table("lake.a")
    assert world.ledger()["lake.a"] == row


def test_a_table_that_was_restored_from_a_backup_stops_the_query(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    backup = world.folder / "backup"
    shutil.copytree(world.folder / "w/lake.db/a", backup)
    world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    shutil.rmtree(world.folder / "w/lake.db/a")
    shutil.copytree(backup, world.folder / "w/lake.db/a")
    world.send(table, table.upsert({"id": 3, "n": 3}))
    with pytest.raises(PipelineFailedError, match="lake.a does not hold batch 1"):
        world.run()


def test_a_table_that_is_rolled_back_during_a_batch_stops_the_query(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was committed upon the rollback, and the query went on without the batches that were gone."""
    table = world.table("a", {"id": "int", "n": "int"})
    for number in (1, 2):
        world.send(table, table.upsert({"id": number, "n": number}))
        world.run()
    commit = TableCommit.commit

    def behind_a_rollback(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.a":
            world.target("a").rollback(undo=("shop", 1))
        return commit(self, *arguments)

    world.send(table, table.upsert({"id": 3, "n": 3}))
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", behind_a_rollback)
        with pytest.raises(PipelineFailedError, match="rolled back to before commit 1 of user .shop."):
            world.run()
    with pytest.raises(PipelineFailedError, match="lake.a does not hold batch 1 .* --accept-loss-of 1..1"):
        world.run()
    assert set(world.rows("a")) == {1}
    for too_few in ((2, 2), (0, 0)):
        with pytest.raises(PipelineFailedError, match="lake.a does not hold batch 1"):
            world.run(accepted_loss=too_few)
    (progress,) = world.run(accepted_loss=(1, 1))
    assert progress.report.table_events == ("table lake.a goes on without its rows of batch 1, as it was told",)
    world.send(table, table.upsert({"id": 4, "n": 4}))
    world.run()  # as always from then on
    assert set(world.rows("a")) == {1, 3, 4}


def test_a_lost_ledger_is_refused(world: SyncWorld) -> None:
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()
    world.catalog.drop_table("lake._freshet_ledger_shop")
    with pytest.raises(ConfigurationError, match="ledger"):
        world.run()


def test_a_table_that_was_dropped_is_read_anew(world: SyncWorld) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    world.catalog.drop_table("lake.a")
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 2, "n": 2}))
    world.run()
    with pytest.raises(InvalidRequestError, match="freshet resync FILE --table lake.a"):
        world.resume("lake.a")
    done = world.resume("lake.a", anew=True)
    assert (done.batch, done.row_count, done.dead_count) == (1, 21, 0)
    world.assert_equal()
    assert world.ledger()["lake.a"]["state"] == "resumed"
    for table in world.tables.values():
        world.send(table, table.upsert({"id": 3, "n": 3}))
        world.send(table, table.delete(4))
    world.run()
    world.assert_equal()
    assert world.ledger()["lake.a"]["state"] == "active"


def test_a_damaged_table_is_set_apart_and_brought_up_again(world: SyncWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damage)
        for number in range(2, 5):
            for table in world.tables.values():
                world.send(table, table.upsert({"id": number, "n": number}))
            world.run()
    assert world.rows("a")[3]["n"] == 1
    world.assert_equal("b")
    a = world.tables["a"]
    a.add_column("more", "text")
    world.send(a, a.upsert({"id": 9, "n": 9, "more": "x"}))  # not in a batch yet
    done = world.resume("lake.a")
    assert (done.batch, done.row_count) == (3, 3)
    with pytest.raises(InvalidRequestError, match="is not set apart"):
        world.resume("lake.a")
    world.run()
    world.assert_equal()
    users = [each.commit_user for each in world.target("a").snapshots()]
    assert set(users) == {"shop"}


def test_a_table_that_was_resumed_while_its_pipeline_ran_loses_nothing(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    world.send(table, table.upsert({"id": 1, "n": 1}))
    world.run()

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damage)
        world.send(table, table.upsert({"id": 2, "n": 2}))
        world.run()
    commit, resumed = TableCommit.commit, []

    def resuming(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.b" and not resumed:  # between the start of a batch and its end
            resumed.append(world.resume("lake.a"))
        return commit(self, *arguments)

    monkeypatch.setattr(TableCommit, "commit", resuming)
    world.send(table, table.upsert({"id": 3, "n": 3}))
    world.send(other, other.upsert({"id": 3, "n": 3}))
    world.run()
    assert resumed
    world.send(table, table.upsert({"id": 4, "n": 4}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    world.resume("lake.a")
    world.send(table, table.upsert({"id": 5, "n": 5}))
    world.run()
    world.assert_equal()


def test_a_driver_that_was_declared_dead_commits_nothing_twice(
    world: SyncWorld, other_driver: OtherDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        table = world.table(name, {"id": "int", "n": "int"})
        world.send(table, table.upsert(*({"id": i, "n": 1} for i in range(20))))
    world.run()
    for table in world.tables.values():
        table.add_column("more", "text")
        world.send(table, table.upsert(*({"id": i, "n": 2, "more": "x"} for i in range(5))))
    commit, others = TableCommit.commit, []

    def overtaken(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == "lake.b" and not others:
            world.send(world.tables["c"], world.tables["c"].upsert({"id": 7, "n": 7, "more": "later"}))
            others.append(other_driver.run(world.file_of_another_driver()))
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others == [None]
    world.assert_equal()
    for name in world.tables:
        snapshots = [each for each in world.target(name).snapshots() if each.commit_user == "shop"]
        appended = [each.commit_identifier for each in snapshots if each.commit_kind is CommitKind.APPEND]
        assert sorted(set(appended)) == sorted(appended), name


def test_what_a_table_has_of_the_batch_that_it_was_set_apart_in_is_not_read_again(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (world.table(name, {"id": "int", "n": "int"}) for name in ("a", "b"))
    options = "{bucket: 2, merge-engine: aggregation, fields.n.aggregate-function: sum}"
    world.rules = f"[{{from: '{world.db}.public.(.*)', to: 'lake.$1', options: {options}}}]"
    world.send(a, a.upsert({"id": 1, "n": 1}))
    world.send(b, b.upsert({"id": 1, "n": 1}))
    world.run()
    world.send(a, SourceTable(world.db, "public", "a", a.columns).upsert({"id": 1, "n": 10}))
    commit = TableCommit.commit

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if "ledger" in self.table.name:
            raise OSError("the driver dies")
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    assert world.rows("a")[1]["n"] == 11
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "follow_schema", damage)
        world.run()
        world.send(a, SourceTable(world.db, "public", "a", a.columns).upsert({"id": 1, "n": 100}))
        world.run()
    assert (world.ledger()["lake.a"]["state"], world.ledger()["lake.a"]["since_batch"]) == ("apart", 1)
    world.resume("lake.a")
    assert world.rows("a")[1]["n"] == 111
