"""dead-letters --replay of a file with `sync`: each letter goes to its table once, whatever dies in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.pipeline.commands import replaying
from freshet.pipeline.commands.replaying import plan_replay_of_many, run_replay_of_many
from freshet.pipeline.config.pipeline_file import load_pipelines
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.driver.dead_letters import DeadLetterCommit, open_dead_letters
from freshet.pipeline.query.driver.table_commit import TableCommit
from freshet.pipeline.sync.ledger import APART, WHOLE, LedgerRow, read_ledger, write_rows
from freshet.pipeline.sync.letter_replay import LetterReplay
from tests.kit.engine import local_jobs
from tests.kit.quick import some_now
from tests.pipeline.commands.kit import Freshet
from tests.pipeline.sync.kit import source_table

TEXT = """\
name: shop
sync:
  source:
    kafka: {kafka.bootstrap.servers: "h:1", subscribePattern: ".*"}
    format: json
  schema: infer
  tables:
    - {exclude: "tmp.*"}
    - {from: "keyed.*", to: "lake.{table}", primary_key: [id], options: {bucket: 2}}
    - {from: "log", to: lake.log, without_key: append}
warehouse: "FOLDER/w"
checkpoint: "FOLDER/c"
dead_letters: lake.dead
"""
LEDGER = "lake._freshet_ledger_shop"


class World:
    """A pipeline that has written a batch into two tables, and its dead letters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.catalog = folder, Catalog(folder / "w")
        self.say()
        self.dead = open_dead_letters(self.catalog, "lake.dead")
        ledger = self.catalog.create_table(
            LEDGER, schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"}
        )
        self.catalog.create_table(
            "lake.keyed", schema={"id": "BIGINT", "n": "BIGINT"}, primary_keys=["id"], options={"bucket": "2"}
        )
        self.catalog.create_table("lake.log", schema={"n": "BIGINT"}, options={"bucket": "-1"})
        for name in ("lake.keyed", "lake.log"):
            ledger.engine.committer("shop", "q")
            with self.catalog.table(name).writer("shop") as writer:
                writer.write({"id": [9], "n": [9]} if name == "lake.keyed" else {"n": [9]})
                writer.commit(0)
        with ledger.writer("shop") as writer:
            writer.commit(0)
        rows = [LedgerRow(name, batch=0).with_sources([topic(name[5:])]) for name in ("lake.keyed", "lake.log")]
        write_rows(ledger, "shop", [LedgerRow(WHOLE, batch=0), *rows])

    def say(self, old: str = "", new: str = "") -> None:
        (self.folder / "p.yaml").write_text(TEXT.replace("FOLDER", str(self.folder)).replace(old, new))

    @property
    def config(self) -> SyncPipelineConfig:
        (config,) = load_pipelines([self.folder / "p.yaml"])
        assert isinstance(config, SyncPipelineConfig)
        return config

    @property
    def ledger(self) -> dict[str, LedgerRow]:
        return read_ledger(self.catalog.table(LEDGER))

    def add(self, *letters: tuple[str, Any]) -> None:
        """Topics and values."""
        rows = [
            {
                "pipeline": "shop", "topic": topic, "kafka_partition": 0, "log_offset": offset,
                "record_time": datetime(2026, 1, 1, tzinfo=UTC), "reason": "bad", "column_name": None, "raw_key": None,
                "raw_value": value if isinstance(value, bytes) else json.dumps(value).encode(), "micro_batch_id": 1,
            }
            for offset, (topic, value) in enumerate(letters)
        ]  # fmt: skip
        with self.dead.writer("shop") as writer:
            writer.write(pa.Table.from_pylist(rows, self.dead.arrow_schema))
            writer.commit()

    def replay(self, *, everything: bool = False) -> BatchReport | None:
        plan = plan_replay_of_many(self.config, everything=everything)
        return None if plan is None else run_replay_of_many(local_jobs(), self.config, plan)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = self.catalog.table(f"lake.{name}").scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row.get("id") or 0, row.get("n") or 0))

    def letters(self) -> Counter[tuple[str, bytes]]:
        return Counter((row["reason"], row["raw_value"]) for row in self.dead.scan().to_arrow().to_pylist())


def topic(name: str) -> Any:
    return source_table(f"..{name}")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.always("crossing: replay")
def test_each_letter_goes_to_its_table_by_the_rules_of_now(world: World) -> None:
    write_rows(
        world.catalog.table(LEDGER), "shop",
        [LedgerRow("lake.keyed_apart", APART, since_batch=0, cause="damaged").with_sources([topic("keyed_apart")])],
    )  # fmt: skip
    world.add(
        ("keyed", {"id": 1, "n": 1}), ("keyed", {"id": 9, "n": 0, "more": True}), ("keyed", {"id": None, "n": 1}),
        ("log", {"n": 1}), ("log", {"n": 1}), ("log", b"{"),
        ("keyed_new", {"id": 5, "t": "x"}), ("keyed_apart", {"id": 1}), ("tmp_1", {"id": 1}), ("other", {"id": 1}),
    )  # fmt: skip
    report = world.replay()
    assert report is not None
    assert (report.read_count, report.result.applied, report.result.dead_count) == (10, 5, 4)
    assert report.result.skipped == {"excluded by a rule: tmp_1": 1}
    assert world.rows("keyed") == [{"id": 1, "n": 1, "more": None}, {"id": 9, "n": 0, "more": True}]
    assert world.rows("log") == [{"n": 1}, {"n": 1}, {"n": 9}]
    assert world.rows("keyed_new") == [{"id": 5, "t": "x"}]
    assert set(report.table_events) == {
        "table lake.keyed follows keyed: new more BOOLEAN", "table lake.keyed_new is created for keyed_new",
    }  # fmt: skip
    assert world.ledger["lake.keyed_new"].source_tables == (topic("keyed_new"),)
    assert (world.ledger["lake.keyed"].batch, world.ledger["lake.keyed_apart"].state) == (0, APART)
    outstanding = dict(list(world.letters()))
    assert len(outstanding) == 4 == world.letters().total()
    assert outstanding["held back, its table is set apart: keyed_apart"] == b'{"id": 1}'
    assert outstanding["no rule takes its table: other"] == b'{"id": 1}'
    assert outstanding["the value is not a JSON object"] == b"{"
    (again,) = [world.replay()]
    assert again is not None and (again.result.applied, again.result.dead_count) == (0, 4)
    assert world.letters().total() == 4 and len(world.rows("log")) == 3
    world.say("tmp.*", ".*")
    (gone,) = [world.replay()]
    assert gone is not None and gone.result.skipped_count == 3, "excluded now; one table is set apart"
    assert world.letters().total() == 1


class _Death:
    """Lets the driver die at the n-th commit of a replay, or before its letters are removed."""

    def __init__(self, at: int, patch: pytest.MonkeyPatch) -> None:
        self._left = at
        for owner, name in (
            (LetterReplay, "_begin"), (DeadLetterCommit, "commit"), (TableCommit, "commit"), (LetterReplay, "_finish"),
            (replaying, "remove_replayed"),
        ):  # fmt: skip
            patch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise OSError("the driver dies")
            return call(*arguments, **named)

        return instead


@pytest.mark.few(1)
@pytest.mark.parametrize("at", some_now([4, 1, 2, 5, 3, 6], 3))
def test_a_replay_that_dies_is_gone_on_with(world: World, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add(("log", {"n": 1}), ("keyed", {"id": 1, "n": 1}), ("log", {"n": 2}), ("log", b"{"))
    with monkeypatch.context() as patch:
        _Death(at, patch)
        with pytest.raises(OSError, match="the driver dies"):
            world.replay()
    world.add(("log", {"n": 3}))
    for _ in range(3):
        world.replay()
    assert world.rows("log") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 9}]
    assert world.rows("keyed") == [{"id": 1, "n": 1}, {"id": 9, "n": 9}]
    assert world.letters() == {("the value is not a JSON object", b"{"): 1}


def test_rules_that_have_changed_do_not_finish_a_replay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add(("log", {"n": 1}), ("keyed", {"id": 1, "n": 1}))
    with monkeypatch.context() as patch:
        _Death(3, patch)  # behind its first table
        with pytest.raises(OSError, match="the driver dies"):
            world.replay()
    world.say("h:1", "elsewhere:2")
    assert plan_replay_of_many(world.config, everything=False) is not None, "it says nothing of where letters go"
    world.say("tmp.*", "log")
    with pytest.raises(InvalidRequestError, match="sync of the file says something else now. Put the file back"):
        world.replay()
    report = world.replay(everything=True)
    assert report is not None and (report.read_count, report.result.applied) == (2, 1)
    assert world.replay() is None and not world.letters()
    world.say()
    assert world.replay() is None


def test_the_same_replay_twice_says_so(world: World) -> None:
    world.add(("log", {"n": 1}))
    plan = plan_replay_of_many(world.config, everything=False)
    assert plan is not None
    assert not run_replay_of_many(local_jobs(), world.config, plan).is_replay
    assert run_replay_of_many(local_jobs(), world.config, plan).is_replay
    assert world.rows("log") == [{"n": 1}, {"n": 9}]


@pytest.mark.parametrize("place", ["_begin", "_finish"])
def test_two_replays_at_the_same_time(world: World, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs from end to end while the other is about to commit, or has."""
    world.add(("log", {"n": 1}), ("keyed", {"id": 1, "n": 1}), ("log", b"{"))
    call, others = getattr(LetterReplay, place), []

    def late(self: LetterReplay) -> None:
        if not others:
            others.append(None)
            world.replay()
        call(self)

    monkeypatch.setattr(LetterReplay, place, late)
    world.replay()
    assert world.rows("log") == [{"n": 1}, {"n": 9}]
    assert world.rows("keyed") == [{"id": 1, "n": 1}, {"id": 9, "n": 9}]
    assert world.letters() == {("the value is not a JSON object", b"{"): 1}


def test_two_replays_of_letters_that_are_not_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, with a letter more, runs from end to end while the first is about to begin."""
    world.add(("log", {"n": 1}))
    begin, others = LetterReplay._begin, []

    def late(self: LetterReplay) -> None:
        if not others:
            others.append(None)
            world.add(("log", {"n": 2}))
            world.replay()
        begin(self)

    monkeypatch.setattr(LetterReplay, "_begin", late)
    with pytest.raises(InvalidRequestError, match="another replay of the dead letters of 'shop' began"):
        world.replay()
    assert world.rows("log") == [{"n": 1}, {"n": 2}, {"n": 9}] and not world.letters()


@pytest.mark.slow
def test_the_pipeline_writes_while_letters_are_replayed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the job of the replay and its commits, rows of the same buckets come."""
    world.add(("log", {"n": 1}), ("keyed", {"id": 1, "n": 1}))
    begin = LetterReplay._begin

    def late(self: LetterReplay) -> None:
        for name, rows in (("lake.keyed", {"id": [1, 2], "n": [5, 5]}), ("lake.log", {"n": [5]})):
            with world.catalog.table(name).writer("shop") as writer:
                writer.write(rows)
                writer.commit(1)
        begin(self)

    monkeypatch.setattr(LetterReplay, "_begin", late)
    world.replay()
    assert world.rows("log") == [{"n": 1}, {"n": 5}, {"n": 9}]
    assert world.rows("keyed") == [{"id": 1, "n": 1}, {"id": 2, "n": 5}, {"id": 9, "n": 9}], (
        "as all replays: it is later"
    )


def test_a_letter_is_older_where_the_table_knows_the_order(world: World) -> None:
    rule = '- {from: "keyed_new", to: "lake.{table}", primary_key: [id], options: {bucket: 2, sequence.field: n}}'
    world.say('- {from: "keyed.*"', f'{rule}\n    - {{from: "keyed.*"')
    world.add(("keyed_new", {"id": 1, "n": 7}))
    world.replay()
    world.add(("keyed_new", {"id": 1, "n": 3}), ("keyed_new", {"id": 2, "n": 3}))
    report = world.replay()
    assert report is not None and report.result.applied == 2
    assert world.rows("keyed_new") == [{"id": 1, "n": 7}, {"id": 2, "n": 3}]


def test_a_table_that_cannot_be_written_ends_the_replay(world: World) -> None:
    world.add(("log", {"n": 1}), ("keyed", {"id": 1, "n": 1}))
    world.catalog.drop_table("lake.keyed")
    with pytest.raises(PipelineFailedError, match=r"table lake.keyed: .*lake.keyed"):
        world.replay()
    assert world.letters().total() == 2 and world.rows("log") == [{"n": 9}]
    assert world.ledger["lake.keyed"].state == "active", "the pipeline sets it apart"


def test_files_that_cannot_be_replayed(freshet: Freshet, world: World, tmp_path: Path) -> None:
    said = freshet("dead-letters", tmp_path / "w", "lake.keyed", "--replay", tmp_path / "p.yaml")
    assert said.code == 2 and "writes the tables of a database with dead letters in lake.dead" in said.err
    empty = freshet.good("dead-letters", tmp_path / "w", "lake.dead", "--replay", tmp_path / "p.yaml")
    assert empty.out == "shop: no dead letters to replay\n"
    world.catalog.drop_table(LEDGER)
    with pytest.raises(InvalidRequestError, match="has no ledger .* it has not run yet"):
        plan_replay_of_many(world.config, everything=False)
