"""Many tables of records that are rows, of a real broker: plain Avro, row kinds, rows that Debezium has unwrapped.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from freshet.pipeline.commands.replaying import plan_replay_of_many, run_replay_of_many
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.running.spark_pipeline import SparkJobs
from tests.integration.source_world import SyncWorld
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.source_database import Row
from tests.pipeline.avro_records import AvroTopic, decimal, optional, record_of
from tests.pipeline.records import flat_with_schema

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ID = {"type": "int64", "optional": False, "field": "id"}
N = {"type": "int32", "optional": True, "field": "n"}
WIDE_N = {"type": "int64", "optional": True, "field": "n"}
NOTE = {"type": "string", "optional": True, "field": "note"}


def octets(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def topics(world: SyncWorld, *names: str) -> list[str]:
    found = [f"{world.db}.public.{name}" for name in names]
    for topic in found:
        world.broker.create_topic(topic, kafka_partitions=2)
    return found


def rows(world: SyncWorld, name: str) -> list[Row]:
    return sorted(world.target(name).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


class _DyingCommit:
    """The driver dies where it would commit to one table."""

    def __init__(self, name: str) -> None:
        self._name, self._commit = name, TableCommit.commit

    def __get__(self, table: TableCommit, _: object) -> Any:
        if table.table.name == self._name:
            raise OSError("the driver dies")
        return partial(self._commit, table)


def test_plain_rows_in_avro(world: SyncWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose driver dies between two tables is finished, the table without a key has no row twice."""
    with SchemaRegistry() as registry:
        world.format, world.source = "avro", f"schema_registry: {{url: '{registry.url}'}}"
        world.more = "  metadata_columns: {_table: table}"
        world.rules = world.rules.replace("options", "without_key: append, options").replace("bucket: 2", "bucket: -1")
        a, b = topics(world, "a", "b")
        keys = AvroTopic(registry, record_of({"id": "long"}, "Key"), "key")
        first = AvroTopic(registry, record_of({"id": "long", "n": optional("int")}), "a")
        other = AvroTopic(registry, record_of({"id": "long", "d": optional(decimal(2, 9))}), "b")
        world.send_to(a, [(keys.value({"id": i}), first.value({"id": i, "n": i})) for i in range(20)])
        world.send_to(b, [(None, other.value({"id": i, "d": None})) for i in range(3)])
        world.send_to(b, [(keys.value({"id": 1}), None)])
        world.run()
        assert rows(world, "a") == [{"id": i, "n": i, "_table": a} for i in range(20)]
        assert world.types("b") == ["BIGINT", "DECIMAL(9, 2)", "STRING"]
        wide = AvroTopic(registry, record_of({"id": "long", "n": "long", "x": optional("string")}), "a")
        world.send_to(a, [(keys.value({"id": 3}), wide.value({"id": 3, "n": 1 << 40, "x": "späť"}))])
        world.send_to(a, [(keys.value({"id": 4}), first.value({"id": 4, "n": None})), (keys.value({"id": 5}), b"\0\0")])
        world.send_to(b, [(None, other.value({"id": i, "d": None})) for i in range(3, 5)])
        with monkeypatch.context() as patch:
            patch.setattr(TableCommit, "commit", _DyingCommit("lake.b"))
            with pytest.raises(PipelineFailedError, match="the driver dies"):
                world.run()
        (progress,) = world.run()
        assert progress.report.result.dead_count == 1 == world.target("dead_letters").scan().to_arrow().num_rows
        assert [row["id"] for row in rows(world, "b")] == list(range(5))
        assert world.types("a") == ["BIGINT NOT NULL", "BIGINT", "STRING", "STRING"]
        assert rows(world, "a")[3:6] == [
            {"id": 3, "n": 1 << 40, "_table": a, "x": "späť"}, {"id": 4, "n": None, "_table": a, "x": None},
            {"id": 5, "n": 5, "_table": a, "x": None},
        ]  # fmt: skip


def test_rows_with_a_row_kind(world: SyncWorld) -> None:
    world.format = "row-kind"
    world.more = "  schema: infer\n  options: {rowkind.field: kind}"
    a, b = topics(world, "a", "b")
    world.rules = (
        f"[{{from: '{b}', to: lake.b, primary_key: [id], options: {{bucket: 1, rowkind.field: op}}}}, "
        f"{{from: '{world.db}.public.(.*)', to: 'lake.$1', options: {{bucket: 2}}}}]"
    )
    key = octets({"id": 1})
    world.send_to(a, [(key, octets({"id": 1, "n": n, "kind": kind})) for n, kind in ((1, "+I"), (2, "-U"), (3, "+U"))])
    world.send_to(b, [(None, octets({"id": i, "op": "+I"})) for i in range(3)])
    world.run()
    assert rows(world, "a") == [{"id": 1, "n": 3, "kind": "+U"}]
    world.send_to(b, [(None, octets({"id": 1, "op": "-D"})), (None, octets({"id": 2, "op": "+U", "x": True}))])
    (progress,) = world.run()
    assert progress.report.result.dead_count == 0
    assert rows(world, "b") == [{"id": 0, "op": "+I", "x": None}, {"id": 2, "op": "+U", "x": True}]


def test_rows_that_debezium_has_unwrapped(world: SyncWorld) -> None:
    """One topic is a table by its name, another has the rows of two, which name theirs."""
    world.format = "debezium-unwrapped"
    a, mixed = topics(world, "a", "mixed")
    names = [{"type": "string", "field": f"__{part}"} for part in ("db", "schema", "table", "deleted")]

    def sent(table: str | None, row: Row, *fields: Any, deleted: bool = False) -> tuple[bytes, bytes]:
        added = {"__deleted": str(deleted).lower()}
        if table is not None:
            added |= {"__db": world.db, "__schema": "public", "__table": table}
        value = flat_with_schema({**row, **added}, [*fields, *names])
        return octets(flat_with_schema({"id": row["id"]}, [ID])), octets(value)

    world.send_to(a, [sent(None, {"id": i, "n": i}, ID, N) for i in range(6)])
    world.send_to(mixed, [sent(table, {"id": i, "n": i}, ID, N) for table in ("b", "c") for i in range(3)])
    world.run()
    assert rows(world, "b") == rows(world, "c") == [{"id": i, "n": i} for i in range(3)]
    key = octets(flat_with_schema({"id": 4}, [ID]))
    world.send_to(a, [(key, None), sent(None, {"id": 5, "n": 1}, ID, N, deleted=True)])
    world.send_to(a, [sent(None, {"id": 1, "n": 1 << 40, "note": "x"}, ID, WIDE_N, NOTE)])
    world.send_to(mixed, [sent("b", {"id": 2, "n": 1}, ID, N, deleted=True), (key, None)])
    (progress,) = world.run()
    assert [row["id"] for row in rows(world, "a")] == [0, 1, 2, 3]
    assert rows(world, "a")[1] == {"id": 1, "n": 1 << 40, "note": "x"}
    assert [row["id"] for row in rows(world, "b")] == [0, 1] and len(rows(world, "c")) == 3
    ((reason, count),) = progress.report.result.dead.items()
    assert count == 1 and f"knows no table {mixed} of its topic" in reason
    replay = plan_replay_of_many(world.config, everything=False)
    assert replay is not None
    assert run_replay_of_many(SparkJobs(world.spark), world.config, replay).result.dead == {reason: 1}
    world.send_to(a, [sent(None, {"id": 7, "n": 7}, ID, N)])  # the pipeline goes on behind it
    world.run()
    assert [row["id"] for row in rows(world, "a")] == [0, 1, 2, 3, 7]
    assert world.target("dead_letters").scan().to_arrow().num_rows == 1
