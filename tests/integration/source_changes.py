"""A pipeline with one table whose source changes: new fields become columns, truncates empty the table.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.jobs.demo.kafka_broker import ForeignBroker
from freshet.pipeline.config.model import MaxDeadLetters
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from tests.integration.source_world import TableWorld

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

pytest_plugins = ["tests.integration.source_fixtures"]


@pytest.fixture
def world(kafka_spark: SparkSession, kafka_broker: ForeignBroker, tmp_path: Path) -> TableWorld:
    return TableWorld(kafka_spark, kafka_broker, tmp_path)


# --- new fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["spark", "python"])
def test_new_fields_become_columns_of_the_types_that_the_schema_says(world: TableWorld, read: str) -> None:
    world.read = read
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(20))))
    world.run()
    world.source.add_column("born", "date")
    world.source.add_column("note", "text")
    rows = ({"id": i, "n": 2 * i, "born": None, "note": f"späť {i}"} for i in range(5))
    world.send(world.source.upsert(*rows))
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert world.types() == {"id": "INT NOT NULL", "n": "INT", "born": "DATE", "note": "STRING"}
    (event,) = progress.report.table_events
    assert event.startswith("table db.t follows its source: new born DATE, note STRING (")
    assert not any("new born" in text or "started again" in text for text in world.said), "it is printed with the batch"
    world.source.add_column("total", "double")
    world.send(world.source.upsert({"id": 3, "n": 0, "born": None, "note": None, "total": 0.5}))
    world.run()  # by a new run, whose file says nothing of the columns
    assert world.rows() == world.source.rows
    assert len([each for each in world.table.snapshots() if each.commit_kind is CommitKind.APPEND]) == 3


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_row_whose_key_has_changed_keeps_what_the_change_does_not_carry(world: TableWorld, read: str) -> None:
    world.read, world.options = read, "bucket: 1"
    world.source.add_column("note", "text")
    world.send(world.source.upsert(*({"id": i, "n": i, "note": f"note of {i}"} for i in range(1, 5))))
    world.run()
    context = {"__debezium.context.connectorName": b"postgresql"}
    for old, new in ((1, 11), (2, 12)):
        world.send(world.source.delete(old))
        moved = world.source.upsert({"id": new, "n": new, "note": "__debezium_unavailable_value"})
        world.send_to(world.source.topic, moved, {**context, "__debezium.oldkey": b'{"id":%d}' % old})
        world.source.rows[new]["note"] = f"note of {old}"
    lost = world.source.upsert({"id": 13, "n": 13, "note": "__debezium_unavailable_value"})
    world.send_to(world.source.topic, lost, {**context, "__debezium.oldkey": b'{"id":99}'})
    del world.source.rows[13]
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert (progress.report.result.dead_count, progress.report.result.restored) == (1, 2)


def test_types_of_plain_records_are_guessed(world: TableWorld) -> None:
    world.format = "json"
    world.send_json({"id": 1, "n": 1})
    world.run()
    world.send_json(
        {"id": 2, "n": 2, "whole": 7, "yes": True, "text": "a", "part": 1.5, "empty": None, "large": 2**63},
        {"id": 3, "n": 3, "whole": "no number", "a`b": 1, "_ROW_ID": 2, "": 3},
    )
    (progress,) = world.run()
    assert world.types() == {
        "id": "INT NOT NULL", "n": "INT", "whole": "STRING", "yes": "BOOLEAN", "text": "STRING", "part": "STRING",
        "large": "STRING",
    }  # fmt: skip
    row = {"id": 2, "n": 2, "whole": "7", "yes": True, "text": "a", "part": "1.5", "large": "9223372036854775808"}
    assert world.rows()[2] == row
    notes = progress.report.result.notes
    assert {"unknown field empty", "unknown field a`b", "unknown field _ROW_ID"} <= notes.keys()


def test_of_names_that_differ_in_case_the_first_is_the_column_and_the_batch_goes_on(world: TableWorld) -> None:
    world.format = "json"
    world.send_json({"id": 1, "n": 1}, {"id": 2, "n": 2, "N": 3}, {"id": 3, "n": 3, "spät": "x", "SPÄT": "y"})
    (progress,) = world.run()
    assert world.rows() == {
        1: {"id": 1, "n": 1, "spät": None}, 2: {"id": 2, "n": 2, "spät": None},
        3: {"id": 3, "n": 3, "spät": "x"},
    }  # fmt: skip
    assert {"unknown field N": 1, "unknown field SPÄT": 1}.items() <= progress.report.result.notes.items()
    events = progress.report.table_events
    for name, column in (("N", "n"), ("SPÄT", "spät")):
        assert sum(f"field {name!r} cannot be a column of db.t beside {column}: " in text for text in events) == 1


def test_a_column_that_another_program_adds_is_filled(world: TableWorld) -> None:
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.table.alter(AddColumn("note", "STRING"))
    world.source.add_column("note", "text")
    world.send(world.source.upsert({"id": 2, "n": 2, "note": "x"}))
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert not progress.report.table_events


def test_a_driver_that_dies_between_the_columns_and_the_batch_loses_nothing(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.source.add_column("note", "text")
    world.send(world.source.upsert({"id": 2, "n": 2, "note": "x"}))
    alter = Table.alter

    def dying(self: Table, *changes: Any, **more: Any) -> Any:
        alter(self, *changes, **more)
        raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "alter", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    assert world.rows() == world.source.rows


def test_too_many_new_fields_stop_the_run_and_nothing_is_written(world: TableWorld) -> None:
    world.format = "json"
    world.send_json({"id": 1, "n": 1, **{f"c{number}": number for number in range(101)}})
    with pytest.raises(PipelineFailedError, match="bring 101 new fields at once"):
        world.run()
    assert world.table.latest_snapshot() is None


# --- truncates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "options"),
    [
        ("spark", "bucket: 2"),
        ("python", "bucket: 2, changelog-producer: lookup"),
        ("python", "bucket: -1"),
        ("spark", "bucket: -1"),
        ("python", "bucket: -2"),
        ("python", "bucket: 1, deletion-vectors.enabled: true"),
        ("python", "bucket: 1, merge-engine: aggregation, fields.n.aggregate-function: sum"),
    ],
)
def test_a_truncate_is_applied_in_order(world: TableWorld, read: str, options: str) -> None:
    world.read, world.options, world.keys = read, options, "on_truncate: apply"
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(30))))
    world.run()
    world.send(world.source.upsert({"id": 1, "n": 1000}, {"id": 40, "n": 1}))
    world.send(world.source.truncate())
    world.send(world.source.upsert({"id": 1, "n": 1}, {"id": 2, "n": 2}))
    (progress,) = world.run()
    if "bucket: -2" in options:
        world.table.compact()
    assert world.rows() == world.source.rows
    assert progress.report.result.skipped == {"truncate": 1, "before a truncate": 2}
    world.send(world.source.upsert({"id": 3, "n": 3}))
    world.run()
    if "bucket: -2" in options:
        world.table.compact()
    assert world.rows() == world.source.rows


@pytest.mark.parametrize("read", ["spark", "python"])
def test_dynamic_buckets_of_partitions_begin_anew_behind_a_truncate(world: TableWorld, read: str) -> None:
    world.read, world.options, world.keys = read, "bucket: -1", "on_truncate: apply"
    world.layout = "primary_key: [id, n], partition_by: [n]"
    world.send(world.source.upsert(*({"id": i, "n": i % 3} for i in range(30))))
    world.run()
    world.send(world.source.upsert({"id": 3, "n": 0}, {"id": 40, "n": 7}))
    world.send(world.source.delete(5))
    world.send(world.source.truncate())
    world.send(world.source.upsert({"id": 1, "n": 1}, {"id": 3, "n": 0}))
    (progress,) = world.run()
    assert world.rows() == world.source.rows
    assert progress.report.result.skipped == {"tombstone": 1, "truncate": 1, "before a truncate": 3}
    world.send(world.source.upsert({"id": 1, "n": 1}, {"id": 40, "n": 8}, {"id": 4, "n": 7}))
    world.run()
    assert world.rows() == world.source.rows
    assert world.table.scan().to_arrow().num_rows == 4


def test_a_truncate_where_several_topics_are_read_stops_the_run(world: TableWorld) -> None:
    world.keys = "on_truncate: apply"
    world.topics.append(world.source.topic + ".more")
    world.broker.create_topic(world.topics[1], kafka_partitions=1)
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.send(world.source.truncate())
    with pytest.raises(PipelineFailedError, match="2 topics are read, and what others hold has no order"):
        world.run()
    assert sorted(world.rows()) == [1]


@pytest.mark.parametrize("read", ["spark", "python"])
def test_a_batch_of_too_many_dead_letters_empties_nothing(world: TableWorld, read: str) -> None:
    world.read, world.keys, world.more = read, "on_truncate: apply", "max_dead_letters: {count: 1}"
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(10))))
    world.run()
    before = dict(world.source.rows)
    world.send(world.source.truncate())
    world.send([(None, b"no change"), (None, b"none either")])
    with pytest.raises(PipelineFailedError, match="2 of the 3 records .* nothing was committed, the dead letters"):
        world.run()
    assert world.rows() == before
    world.more = "max_dead_letters: {count: 2}"
    (progress,) = world.run()
    assert not world.rows()
    (event,) = progress.report.table_events
    assert event.startswith("table db.t was emptied: its source was truncated (")


def test_dead_letters_that_only_the_emptied_table_makes_are_said_with_the_truncate(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keys, world.more = "on_truncate: apply", "max_dead_letters: {count: 0}"
    world.send(world.source.upsert({"id": 1, "n": 1}))
    world.run()
    world.send(world.source.truncate())
    world.send([(None, b"no change")])
    judged = iter([False, True])
    monkeypatch.setattr(MaxDeadLetters, "is_exceeded", lambda *_: next(judged))
    with pytest.raises(PipelineFailedError, match="nothing was committed but this: table db.t was emptied: its source"):
        world.run()
    monkeypatch.undo()
    world.more = ""
    world.run()
    assert not world.rows()


def test_a_driver_that_dies_behind_the_truncate_loses_nothing(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keys = "on_truncate: apply"
    world.send(world.source.upsert(*({"id": i, "n": i} for i in range(30))))
    world.run()
    world.send(world.source.truncate())
    world.send(world.source.upsert({"id": 1, "n": 1}))
    truncate = TableCommit.truncate

    def dying(self: TableCommit, *arguments: Any) -> None:
        truncate(self, *arguments)
        raise OSError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "truncate", dying)
        with pytest.raises(PipelineFailedError):
            world.run()
    world.run()
    assert world.rows() == world.source.rows
