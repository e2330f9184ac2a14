"""Many tables by one query whose sources rename columns. Run by `test_own_sessions` in a process of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from freshet.pipeline.batch.table_commit import TableCommit
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.sync.routing_report import routed_tables, warnings_of_renames
from freshet.storage.table import Table
from tests.integration.other_driver import OtherDriver
from tests.integration.source_world import SyncWorld
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.source_database import Row, SourceTable, schema_change
from tests.pipeline.avro_records import (
    AvroTopic,
    avro_change,
    envelope_of,
    optional,
    record_of,
    schema_change_record,
)

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def renamed_tables(world: SyncWorld, *names: str) -> list[SourceTable]:
    """Tables whose schema change topic is subscribed, each with some rows."""
    world.more = "  schema_evolution: evolve"
    world.broker.create_topic(world.db, kafka_partitions=1)
    found = [world.table(name, {"id": "int", "n": "int", "t": "text"}) for name in names]
    for table in found:
        world.send(table, table.upsert(*({"id": i, "n": i, "t": f"{i}"} for i in range(20))))
    world.run()
    return found


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_column_is_renamed_in_the_middle_of_a_batch(world: SyncWorld, read: str) -> None:
    world.read = read
    (a,) = renamed_tables(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 100, "t": "before"}, {"id": 50, "n": 50, "t": "before"}))
    world.send(a, a.delete(2))
    world.send(a, [a.rename_columns({"n": "amount"})], world.db)
    world.send(a, a.upsert({"id": 1, "amount": 101, "t": "after"}, {"id": 51, "amount": 51, "t": "after"}))
    world.send(a, a.delete(3))
    (progress,) = world.run()
    world.assert_equal()
    assert world.columns("a") == [(0, "id"), (1, "amount"), (2, "t")]
    assert progress.report.result.skipped == {"schema change": 1, "tombstone": 2}
    assert progress.report.table_events == ("table lake.a follows its source: column n is amount now",)
    assert progress.report.read_count == progress.report.result.record_count
    world.send(a, a.upsert({"id": 52, "amount": 52, "t": "later"}))
    (progress,) = world.run()
    world.assert_equal()
    assert not progress.report.table_events


def test_a_rename_is_known_before_its_name_comes_and_old_records_come_after_it(world: SyncWorld) -> None:
    (a,) = renamed_tables(world, "a")
    late = a.upsert({"id": 7, "n": 700, "t": "late"}, {"id": 60, "n": 60, "t": "late"})
    world.send(a, [a.rename_columns({"n": "amount"})], world.db)
    world.run()
    assert world.columns("a") == [(0, "id"), (1, "amount"), (2, "t")]
    a.rename_columns({})
    world.send(a, a.upsert({"id": 8, "amount": 800, "t": "after"}))
    world.run()
    world.send(a, late)
    world.run()
    world.assert_equal()
    a.add_column("n", "text")  # the name is used again, for another column
    world.send(a, [a.schema_change("ALTER TABLE a ADD COLUMN n TEXT")], world.db)
    world.send(a, a.upsert({"id": 9, "amount": 9, "t": "x", "n": "new"}))
    world.run()
    world.assert_equal()
    assert world.columns("a") == [(0, "id"), (1, "amount"), (2, "t"), (3, "n")]


def test_the_key_is_renamed(world: SyncWorld) -> None:
    (a,) = renamed_tables(world, "a")
    world.send(a, a.upsert({"id": 1, "n": 100, "t": "before"}))
    world.send(a, a.delete(2))
    world.send(a, [a.rename_columns({"id": "number"}, "ALTER TABLE a CHANGE id number INT")], world.db)
    world.send(a, a.upsert({"number": 1, "n": 101, "t": "after"}, {"number": 50, "n": 50, "t": "after"}))
    world.send(a, a.delete(3))
    world.run()
    world.assert_equal()
    assert world.target("a").schema.primary_keys == ("number",)


def test_chains_and_swaps_of_names_in_one_batch(world: SyncWorld) -> None:
    (a,) = renamed_tables(world, "a")
    for number, names in enumerate(
        ({"n": "x"}, {"x": "y"}, {"y": "t", "t": "y"}, {"t": "z"}, {"y": "t"}, {"z": "y"}, {"y": "z"}), 100
    ):
        one, other = list(a.columns)[1:]
        world.send(a, a.upsert({"id": number, one: number, other: "x"}, {"id": 1, one: number, other: "one"}))
        world.send(a, [a.rename_columns(names)], world.db)
    one, other = list(a.columns)[1:]
    world.send(a, a.upsert({"id": 2, one: 2, other: "two"}))
    world.run()
    world.assert_equal()
    assert world.columns("a") == [(0, "id"), (1, "z"), (2, "t")]


@pytest.mark.parametrize("dies_at", ["alter before", "alter behind", "lake.a", "ledger"])
def test_a_rename_is_followed_whenever_the_driver_dies(
    world: SyncWorld, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = renamed_tables(world, "a", "b")
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100, "t": "before"}))
        world.send(table, [table.rename_columns({"n": "t", "t": "n"})], world.db)
        world.send(table, table.upsert({"id": 2, "t": 200, "n": "after"}))
    commit, alter, died = TableCommit.commit, Table.alter, []

    def dying(self: TableCommit, *arguments: Any) -> Any:
        if self.table.name == dies_at or (dies_at == "ledger" and "ledger" in self.table.name):
            raise OSError("the driver dies")
        return commit(self, *arguments)

    def dying_alter(self: Table, *changes: Any) -> Any:
        if dies_at == "alter before" and self.name == "lake.a":
            raise OSError("the driver dies")
        found = alter(self, *changes)
        if dies_at == "alter behind" and self.name == "lake.a" and not died:
            died.append(self.name)
            raise OSError("the driver dies")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", dying)
        patch.setattr(Table, "alter", dying_alter)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    world.assert_equal()
    assert world.columns("a") == world.columns("b") == [(0, "id"), (1, "t"), (2, "n")]


def test_a_rename_is_followed_once_by_two_drivers(
    world: SyncWorld, other_driver: OtherDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = renamed_tables(world, "a", "b")
    for table in (a, b):
        world.send(table, table.upsert({"id": 1, "n": 100, "t": "before"}))
        world.send(table, [table.rename_columns({"n": "t", "t": "n"})], world.db)
        world.send(table, table.upsert({"id": 2, "t": 200, "n": "after"}))
    alter, others = Table.alter, []

    def overtaken(self: Table, *changes: Any) -> Any:
        if self.name == "lake.b" and not others:
            others.append(other_driver.run(world.file_of_another_driver()))
        return alter(self, *changes)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "alter", overtaken)
        with suppress(PipelineFailedError):
            world.run()
    assert others == [None]
    world.run()
    world.assert_equal()
    assert world.columns("a") == world.columns("b") == [(0, "id"), (1, "t"), (2, "n")]


def test_a_table_that_is_resumed_or_read_anew_has_the_new_names(world: SyncWorld) -> None:
    a, b = renamed_tables(world, "a", "b")
    name = world.take_manifest_list("a")
    world.send(a, a.upsert({"id": 1, "n": 9, "t": "x"}))
    world.run()
    assert world.ledger()["lake.a"]["state"] == "apart"
    for table in (a, b):
        world.send(table, [table.rename_columns({"n": "amount"})], world.db)
        world.send(table, table.upsert({"id": 2, "amount": 9, "t": "x"}))
    world.run()
    world.assert_equal("b")
    name.rename(name.with_suffix(""))
    world.resume("lake.a")
    world.assert_equal()
    assert world.columns("a") == [(0, "id"), (1, "amount"), (2, "t")]
    world.send(a, a.upsert({"id": 3, "amount": 9, "t": "y"}))
    world.run()
    world.assert_equal()
    world.resume("lake.a", anew=True)
    world.send(a, [a.rename_columns({"amount": "n"})], world.db)
    world.send(a, a.upsert({"id": 4, "n": 9, "t": "y"}))
    world.run()
    world.assert_equal()
    assert world.columns("a") == [(0, "id"), (1, "n"), (2, "t")]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_column_is_renamed_in_avro(world: SyncWorld, read: str) -> None:
    with SchemaRegistry() as registry:
        world.read, world.format, world.source = read, "debezium-avro", f"schema_registry: {{url: '{registry.url}'}}"
        world.more = "  schema_evolution: evolve"
        table = world.tables["a"] = SourceTable(world.db, "public", "a", {"id": "bigint", "n": "bigint"})
        world.broker.create_topic(table.topic, kafka_partitions=2)
        world.broker.create_topic(world.db, kafka_partitions=1)
        keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), f"{table.topic}-key")
        statements = AvroTopic(registry, schema_change_record(), f"{world.db}-value")

        def send(*rows: Row) -> None:
            fields = {"id": "long", **{name: optional("long") for name in list(table.columns)[1:]}}
            values = AvroTopic(registry, envelope_of(fields), f"{table.topic}-value")
            for row in rows:
                table.rows[row["id"]] = row
                datum = avro_change("c", None, row, db=table.db, schema="public", table=table.name)
                world.send(table, [(keys.value({"id": row["id"]}), values.value(datum))])

        send(*({"id": number, "n": number} for number in range(10)))
        world.run()
        send({"id": 1, "n": 100})
        table.rename_columns({"n": "amount"})
        statement = schema_change(table, "ALTER TABLE `a` CHANGE `n` `amount` BIGINT")
        world.send(table, [(None, statements.value(statement))], world.db)
        send({"id": 2, "amount": 200})
        (progress,) = world.run()
        world.assert_equal()
        assert world.columns("a") == [(0, "id"), (1, "amount")]
        assert progress.report.result.skipped == {"schema change": 1}


def test_a_rename_that_came_too_late_and_an_earlier_ledger(world: SyncWorld) -> None:
    a, b = renamed_tables(world, "a", "b")
    assert "renames" not in world.target("_freshet_ledger_shop").schema.by_name
    statement = a.rename_columns({"n": "amount"})
    world.send(a, a.upsert({"id": 1, "amount": 1, "t": "x"}))
    world.run()
    world.send(a, [statement], world.db)
    world.send(b, [b.rename_columns({"n": "amount"})], world.db)
    world.send(b, b.upsert({"id": 1, "amount": 1, "t": "x"}))
    (progress,) = world.run()
    (event,) = (text for text in progress.report.table_events if "lake.a" in text)
    assert event == (
        f"table lake.a: column n is not renamed to amount ({world.db} partition 0 offset 0): it came too late, the "
        "table has a column amount already; both stay"
    )
    world.assert_equal("b")
    assert world.columns("a") == [(0, "id"), (1, "n"), (2, "t"), (3, "amount")]
    assert world.columns("b") == [(0, "id"), (1, "amount"), (2, "t")]
    world.more = "  schema_evolution: lenient"  # and what is known stays in the ledger
    world.send(b, b.upsert({"id": 3, "amount": 3, "t": "x"}))
    world.run()
    world.assert_equal("b")
    assert "amount" in world.ledger()["lake.b"]["renames"]


def test_check_says_where_renames_are_not_followed(world: SyncWorld) -> None:
    renamed_tables(world, "a")
    assert list(warnings_of_renames(world.config)) == []
    topics = {each.source: each.text for each in routed_tables(world.config) or ()}
    assert topics[f"topic {world.db}"] == "schema changes: renamed columns are read there"
    text = world.file.read_text().replace(f"'{world.db}([.].*)?'", f"'{world.db}[.].*'")
    world.file.with_name("other.yaml").write_text(text)
    (config,) = load_pipelines([world.file.with_name("other.yaml")])
    assert isinstance(config, SyncPipelineConfig)
    (said,) = warnings_of_renames(config)
    assert f"the schema change topic {world.db} is not among the topics that are read" in said
