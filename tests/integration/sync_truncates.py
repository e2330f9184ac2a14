"""Many tables by one query whose sources are truncated. Run by `test_own_sessions` in a process of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.model.snapshot import CommitKind
from tests.integration.other_driver import OtherDriver
from tests.integration.source_world import SyncWorld
from tests.kit.source_database import SourceTable

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def two_tables(world: SyncWorld) -> tuple[SourceTable, SourceTable]:
    world.source = "on_truncate: apply"
    found = [world.table(name, {"id": "int", "n": "int"}, kafka_partitions=1) for name in ("a", "b")]
    for table in found:
        world.send(table, table.upsert(*({"id": i, "n": i} for i in range(40))))
    world.run()
    return found[0], found[1]


@pytest.mark.parametrize("read", ["spark", "python"])
@pytest.mark.parametrize("bucket", [2, -1])
def test_a_truncate_is_applied_in_order_with_its_batch(world: SyncWorld, read: str, bucket: int) -> None:
    world.read = read
    world.rules = world.rules.replace("bucket: 2", f"bucket: {bucket}")
    a, b = two_tables(world)
    for table in (a, b):  # one batch: rows, a truncate, rows, a truncate, rows
        world.send(table, table.upsert({"id": 1, "n": 100}, {"id": 90, "n": 1}))
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 5, "n": 5}, {"id": 6, "n": 6}))
    world.send(a, a.delete(6))
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 7, "n": 7}, {"id": 1, "n": 2}))
    (progress,) = world.run()
    world.assert_equal()
    assert sorted(world.rows("a")) == [1, 7]
    assert progress.report.result.skipped == {"truncate": 2, "tombstone": 1, "before a truncate": 5}
    (event,) = (text for text in progress.report.table_events if "emptied" in text)
    assert event.startswith(f"table lake.a was emptied: its source was truncated ({a.topic} partition 0 offset 4")
    table = world.target("a")
    assert [each.commit_kind for each in table.snapshots()][-2:] == [CommitKind.OVERWRITE, CommitKind.APPEND]
    world.send(a, a.upsert({"id": 7, "n": 8}, {"id": 8, "n": 8}))
    world.run()
    world.assert_equal()
    world.send(a, a.truncate())  # and nothing behind it
    world.run()
    world.assert_equal()
    assert not world.rows("a")
    assert world.ledger()["lake.a"]["batch"] == 3


@pytest.mark.parametrize("dies_at", ["a behind", "b"])
def test_a_truncate_is_applied_once_whenever_the_driver_dies(
    world: SyncWorld, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = two_tables(world)
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100}, {"id": 90, "n": 1}))
        world.send(table, table.truncate())
        world.send(table, table.upsert({"id": 2, "n": 2}))
    commit, truncate = TableCommit.commit, TableCommit.truncate

    def dying_commit(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == f"lake.{dies_at}":
            raise OSError("the driver dies")
        return commit(self, *arguments)

    def dying_truncate(self: TableCommit, *arguments: Any) -> Any:
        truncate(self, *arguments)
        if self.table.name == "lake.a" and dies_at == "a behind":
            raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying_commit)
        patch.setattr(TableCommit, "truncate", dying_truncate)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()


def test_a_batch_of_too_many_dead_letters_empties_nothing(world: SyncWorld) -> None:
    a, b = two_tables(world)
    before = dict(a.rows)
    world.send(a, a.truncate())
    world.send(b, [(None, b"no change")])
    world.more = "max_dead_letters: {count: 0}"
    with pytest.raises(PipelineFailedError, match="nothing was committed, the dead letters neither"):
        world.run()
    assert world.rows("a") == before
    world.more = ""
    world.run()
    world.assert_equal()


def test_a_driver_that_was_declared_dead_takes_nothing_away(
    world: SyncWorld, other_driver: OtherDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = two_tables(world)
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 2, "n": 2}))
    truncate, others = TableCommit.truncate, []

    def overtaken(self: TableCommit, *arguments: Any) -> Any:
        others.append(other_driver.run(world.file_of_another_driver()))
        assert world.rows("a") == a.rows
        return truncate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "truncate", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others == [None]
    world.assert_equal()


def test_a_truncate_in_a_topic_of_several_partitions_stops_the_query(world: SyncWorld) -> None:
    world.source = "on_truncate: apply"
    table = world.table("a", {"id": "int", "n": "int"})
    world.send(table, table.upsert(*({"id": i, "n": i} for i in range(10))))
    world.run()
    before = dict(table.rows)
    world.send(table, table.truncate())
    with pytest.raises(PipelineFailedError, match="has 2 partitions, and what others hold has no order with it"):
        world.run()
    assert world.rows("a") == before


def test_resume_applies_the_truncates_that_were_held_back(world: SyncWorld) -> None:
    a, b = two_tables(world)
    name = world.take_manifest_list("a")
    world.send(a, a.upsert({"id": 1, "n": 9}))
    world.send(b, b.upsert({"id": 1, "n": 9}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    world.send(a, a.truncate())
    world.send(a, a.upsert({"id": 2, "n": 9}))
    world.send(b, b.upsert({"id": 2, "n": 9}))
    world.run()
    name.rename(name.with_suffix(""))
    world.resume("lake.a")
    world.assert_equal()
    world.send(a, a.upsert({"id": 3, "n": 9}))
    world.run()
    world.assert_equal()
