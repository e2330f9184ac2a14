"""The tables of a pipeline on the driver: created and changed, set apart, taken up again by another run. No Spark."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet import Catalog, sql
from freshet.pipeline.config.sections import CompactionConfig
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.decode.described_table import DescribedTable
from freshet.pipeline.decode.outcomes import SeenSchema
from freshet.pipeline.exceptions import InvalidRequestError, PipelineError, PipelineFailedError
from freshet.pipeline.query.driver.background_rounds import ONE_CORE
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.sync.ledger import APART, WHOLE, LedgerRow, read_ledger, write_rows
from freshet.pipeline.sync.sync_tables import SyncTables
from freshet.pipeline.sync.table_decoding import NOTHING, Held, TableDecoding
from freshet.storage import exceptions as storage
from freshet.storage.exceptions import CorruptDataError, RetryableError
from freshet.storage.schema.change import AddColumn, SetOption
from freshet.storage.table import Table
from freshet.storage.table_engine import CommitCheck, CommitTrace
from tests.pipeline.sync.kit import source_table, sync_config

LEDGER = "lake._freshet_ledger_shop"
COLUMNS = {"id": "BIGINT", "n": "INT"}
STARTS = {"t": {"0": 5}}


class World:
    """A warehouse, and runs of its pipeline one after the other."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder)
        self.folder = folder
        self.catalog.create_table(LEDGER, schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"})
        self.dead_letters = open_dead_letters(self.catalog, "lake.dead_letters")

    @property
    def ledger(self) -> Table:
        return self.catalog.table(LEDGER)

    def config(self, *rules: Mapping[str, Any], **section: Any) -> SyncPipelineConfig:
        given = rules or ({"from": "shop.public.(.*)", "to": "lake.$1"},)
        config = sync_config(given, **{"options": {"bucket": 2}, **section})
        table = config.table.model_copy(update={"warehouse": str(self.folder)})
        return config.model_copy(update={"warehouse": str(self.folder), "table": table})

    def run(self, *rules: Mapping[str, Any], number: int = 0, **section: Any) -> SyncTables:
        """A run that begins a batch."""
        tables = SyncTables(self.config(*rules, **section), self.ledger, self.dead_letters, 2)
        self.begin(tables, number)
        return tables

    def begin(self, tables: SyncTables, number: int) -> Sequence[str]:
        whole = self.state().get(WHOLE, LedgerRow(WHOLE)).batch
        last = None if whole is None else CommitTrace(whole, None, 0)
        check = CommitCheck(is_committed=False, last=last, latest=self.ledger.latest_snapshot())
        tables.begin(number, check, STARTS)
        return [each.table.name for each in tables.round(number, STARTS)]

    def columns(self, name: str) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.catalog.table(name).schema.fields}

    def state(self) -> dict[str, LedgerRow]:
        return read_ledger(self.ledger)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def seen(
    name: str, columns: Mapping[str, str] = COLUMNS, keys: Sequence[str] = ("id",), *, typed: bool = True
) -> SeenSchema:
    described = DescribedTable(dict(columns), tuple(keys), typed, "t partition 0 offset 7")
    return SeenSchema(source_table(name), described.to_document())


def written(world: World, tables: SyncTables, number: int, *names: str) -> None:
    """What the ledger gets of a batch that these tables have rows of."""
    rows = []
    for name in names:
        table = world.catalog.table(name)
        source = source_table(f"shop.public.{name.removeprefix('lake.')}")
        row = LedgerRow(name, batch=number, created_ms=table.engine.created_ms(), schema_id=table.schema.id)
        rows.append(row.with_sources([source]))
    write_rows(world.ledger, "shop", [LedgerRow("", batch=number), *rows])


# --- created and changed ----------------------------------------------------------------------------------------------


def test_a_table_is_created_once(world: World) -> None:
    tables = world.run()
    for _ in range(2):
        tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "INT"}
    assert [each.table.name for each in tables.round(0, STARTS)] == [LEDGER, "lake.a", "lake.b"]
    assert tables.take_events({}) == (
        "table lake.a is created for shop.public.a", "table lake.b is created for shop.public.b",
    )  # fmt: skip
    assert tables.take_events({}) == ()
    plan = tables.plan()
    assert {str(name) for name in plan.tables} == {"shop.public.a", "shop.public.b"}
    assert len(plan.rules) == 3 and set(tables.now().value.tables) == {0, 1, 2}


def test_a_table_has_the_folders_of_this_machine_that_its_rule_names(world: World) -> None:
    """Also where another run has created it: those of its schema are a stranger's."""
    rule = {"from": "shop.public.(.*)", "to": "lake.$1", "options": {"lookup.cache-dir": "/of-the-rule"}}
    of_all = {"options": {"bucket": 2, "lookup.cache-dir": "/of-all", "cross-partition-upsert.index-dir": "/of-all"}}
    own = {"lookup.cache-dir": "/of-the-rule", "cross-partition-upsert.index-dir": "/of-all"}
    for section, expected in ((of_all, own), ({}, {"lookup.cache-dir": "/of-the-rule"})):
        tables = world.run(rule, **section)
        tables.follow([seen("shop.public.a")], 0, STARTS)
        assert tables.round(0, STARTS)[1].table.engine.dynamic_options == expected
        written(world, tables, 0, "lake.a")


def test_tables_are_created_side_by_side(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    both, create = threading.Barrier(2), Catalog.create_table

    def together(catalog: Catalog, name: str, **given: Any) -> Table:
        both.wait(300)
        return create(catalog, name, **given)

    monkeypatch.setattr(Catalog, "create_table", together)
    world.run().follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    assert world.columns("lake.a") == world.columns("lake.b") == {"id": "BIGINT NOT NULL", "n": "INT"}


def test_what_one_of_several_new_tables_is_refused_for_is_told(world: World) -> None:
    tables = world.run()
    with pytest.raises(PipelineFailedError, match=r"shop\.public\.b|lake\.b"):
        tables.follow([seen("shop.public.a"), seen("shop.public.b", keys=())], 0, STARTS)
    assert world.columns("lake.a") and not world.catalog.has_table("lake.b")


def test_a_name_of_a_source_is_no_branch(world: World) -> None:
    world.run().follow([seen("shop.public.a")], 0, STARTS)
    world.catalog.table("lake.a").branches.create("b")
    with pytest.raises(PipelineFailedError, match=r"shop\.public\.a\$branch_b.*is a branch of lake\.a"):
        world.run().follow([seen("shop.public.a$branch_b")], 0, STARTS)
    to_branch = {"from": "shop.public.a", "to": "lake.a$branch_b"}
    tables = world.run(to_branch)
    tables.follow([seen("shop.public.a")], 0, STARTS)
    assert [each.table.name for each in tables.round(0, STARTS)] == [LEDGER, "lake.a$branch_b"]


@pytest.mark.parametrize(
    "name", ["$ref", "a$b", "a$files", "$branch_b", "a$branch_", "a$branch_1", "a$branch_b$c", "$"]
)
def test_a_name_that_has_a_dollar_stops_the_query_with_its_rule(world: World, name: str) -> None:
    """Whether it means a system table, a branch, or nothing."""
    world.run().follow([seen("shop.public.a")], 0, STARTS)
    tables = world.run()
    with pytest.raises(PipelineFailedError) as failed:
        tables.follow([seen(f"shop.public.{name}")], 0, STARTS)
    text = str(failed.value)
    assert f"rule 0 of sync.tables sends shop.public.{name} to 'lake.{name}': " in text
    assert text.endswith("Exclude it, or give it a rule of its own") and "'lake.'" not in text
    assert world.state() == {}


def test_another_run_finds_what_was_created_before_its_batch_was_committed(world: World) -> None:
    world.run().follow([seen("shop.public.a")], 0, STARTS)
    again = world.run()
    again.follow([seen("shop.public.a")], 0, STARTS)
    assert [each.table.name for each in again.round(0, STARTS)] == [LEDGER, "lake.a"]
    assert world.catalog.table("lake.a").schema.id == 0


def test_what_tasks_saw_of_one_table_is_joined(world: World) -> None:
    tables = world.run()
    one, other = {"id": "INT", "a": "INT"}, {"id": "BIGINT", "b": "DATE"}
    tables.follow([seen("shop.public.a", one), seen("shop.public.a", other)], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "a": "INT", "b": "DATE"}


def test_columns_come_and_types_become_wider(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    tables.take_events({})
    wide = {"id": "BIGINT", "n": "BIGINT", "note": "STRING"}
    for _ in range(2):
        tables.follow([seen("shop.public.a", wide)], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "BIGINT", "note": "STRING"}
    (event,) = tables.take_events({})
    tables.round(0, STARTS)
    assert event == "table lake.a follows shop.public.a: new note STRING; wider n BIGINT"
    (decoding,) = tables.plan().tables.values()
    assert isinstance(decoding, TableDecoding) and decoding.known["note"] == "STRING"


def test_two_drivers_end_with_the_same_table(world: World) -> None:
    one, other = world.run(), world.run()
    for tables in (one, other):
        tables.follow([seen("shop.public.a")], 0, STARTS)
    more = [seen("shop.public.a", {**COLUMNS, "x": "INT"})]
    one.follow(more, 0, STARTS)
    other.follow(more, 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "INT", "x": "INT"}
    assert world.state() == {}, "nothing is set apart"


def test_a_table_that_is_altered_between_a_look_and_its_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    alter, others = Table.alter, []

    def late(self: Table, *changes: Any, **options: Any) -> Table:
        if not others:
            others.append(alter(world.catalog.table("lake.a"), AddColumn("x", "INT")))
        return alter(self, *changes, **options)

    monkeypatch.setattr(Table, "alter", late)
    tables.follow([seen("shop.public.a", {**COLUMNS, "x": "INT", "y": "INT"})], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "INT", "x": "INT", "y": "INT"}
    assert world.state() == {} and tables.take_events({})[-1] == "table lake.a follows shop.public.a: new y INT"


def test_a_column_that_somebody_else_has_added_meanwhile(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    tables.round(0, STARTS)
    world.catalog.table("lake.a").alter(AddColumn("x", "INT"))
    tables.round(0, STARTS)
    (decoding,) = tables.plan().tables.values()
    assert isinstance(decoding, TableDecoding) and "x" in decoding.known


@pytest.mark.parametrize("name", ["_KEY_x", "_op", "_offset"])
def test_a_field_that_cannot_be_a_column_is_said_once(world: World, name: str) -> None:
    """The second and the third would be filled with metadata."""
    tables = world.run()
    odd = {**COLUMNS, name: "INT"}
    tables.follow([seen("shop.public.a", odd)], 0, STARTS)
    tables.follow([seen("shop.public.a", odd)], 0, STARTS)
    assert "_" not in {each[0] for each in world.catalog.table("lake.a").schema.column_names}
    assert sum(f"'{name}' of shop.public.a cannot be a column" in text for text in tables.take_events({})) == 1
    tables.round(0, STARTS)
    (decoding,) = tables.plan().tables.values()
    assert isinstance(decoding, TableDecoding) and decoding.known[name] == ""


@pytest.mark.parametrize(
    ("rules", "section", "schemas", "message"),
    [
        ([], {}, [seen("shop.public.a", typed=False)], "bring no schema .t partition 0 offset 7.: set schema: infer"),
        ([], {}, [seen("shop.public.a", keys=[])], "lake.a name no key .first record: t partition 0 offset 7."),
        ([{"from": "shop.public.(.*)", "to": "lake.all"}], {}, [seen("shop.public.a"), seen("shop.public.b")],
         "shop.public.a and shop.public.b both go to table lake.all: .* set merge: true"),
        ([{"from": "shop.public.(.*)", "to": "lake.$1"}], {}, [seen("shop.public.a/b")],
         "rule 0 of sync.tables sends shop.public.a/b to 'lake.a/b'"),
        ([{"from": "shop.public.(.*)", "to": "lake.$1", "partition_by": ["n"], "options": {"bucket": -1}}], {},
         [seen("shop.public.a")], "is to be partitioned by n, which its key .id. does not have"),
    ],
)  # fmt: skip
def test_what_stops_the_query(
    world: World, rules: list[Any], section: dict[str, Any], schemas: list[SeenSchema], message: str
) -> None:
    tables = world.run(*rules, **section)
    with pytest.raises(PipelineFailedError, match=message):
        tables.follow(schemas, 0, STARTS)
    assert world.state() == {}


def test_frozen_tables_are_created_and_not_changed(world: World) -> None:
    tables = world.run(schema_evolution="freeze")
    tables.follow([seen("shop.public.a")], 0, STARTS)
    with pytest.raises(PipelineFailedError, match="has changed .* new x INT, and schema_evolution is freeze"):
        tables.follow([seen("shop.public.a", {**COLUMNS, "x": "INT"})], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "INT"}


def test_shards(world: World) -> None:
    rule = {"from": "shop.public.([a-z]*)_\\d", "to": "lake.$1", "merge": True}
    tables = world.run(rule)
    tables.follow([seen("shop.public.a_1"), seen("shop.public.a_2", {**COLUMNS, "x": "INT"})], 0, STARTS)
    assert world.columns("lake.a") == {"id": "BIGINT NOT NULL", "n": "INT", "x": "INT"}
    tables.round(0, STARTS)
    one, other = tables.plan().tables.values()
    assert one == other


def test_shards_by_two_rules_both_say_merge(world: World) -> None:
    """In whichever order their records come."""
    rules = [{"from": "shop.public.a", "to": "{table}", "merge": True}, {"from": "shop.public.b", "to": "{table}"}]
    for number, (first, second) in enumerate((("a", "b"), ("b", "a"))):
        tables = world.run(*({**rule, "to": f"lake.t{number}"} for rule in rules))
        tables.follow([seen(f"shop.public.{first}")], 0, STARTS)
        with pytest.raises(PipelineFailedError, match="both go to table lake.t"):
            tables.follow([seen(f"shop.public.{second}")], 0, STARTS)


def test_deletions_alone_of_a_table_that_there_is_not(world: World) -> None:
    """They have nothing to delete: counted, for this batch."""
    tables = world.run()
    tables.follow([seen("shop.public.a", {}, [])], 0, STARTS)
    assert not world.catalog.has_table("lake.a")
    assert tables.plan().tables == {source_table("shop.public.a"): Held(NOTHING, is_nothing=True)}
    world.begin(tables, 1)
    assert not tables.plan().tables


def test_deletions_alone_in_a_first_look_hold_nothing_back(world: World) -> None:
    """Rows may come behind them in the same batch."""
    tables = world.run()
    tables.follow([seen("shop.public.a", {}, [])], 0, STARTS)
    tables.forget_deletions()
    assert not tables.plan().tables


# --- a rule that says otherwise than its table ------------------------------------------------------------------------

OTHER_RULES = [
    ({"primary_key": ["id", "n"]}, r"its primary key is \(id\), not \(id, n\)", None),
    ({"partition_by": ["id"]}, r"its partition key is \(\), not \(id\)", None),
    ({"options": {"bucket-key": "id"}}, "option bucket-key is not set there and id in the file", None),
    ({"options": {"merge-engine": "first-row"}}, "merge-engine is not set there and first-row in the file", None),
    ({"options": {"bucket": -1}}, "option bucket is 2 there and -1 in the file", None),
    ({"options": {"bucket": 4}}, None, r"bucket is 2 there, so bucket=4 .* freshet rescale .* lake.a --bucket 4"),
    ({"options": {"file.format": "orc"}}, None, "file.format is not set there, so file.format=orc .*: freshet sql"),
    ({"types": {"n": "BIGINT"}}, None, "column n is INT there, so BIGINT of rule 0 .* ALTER COLUMN n TYPE BIGINT"),
    (
        {"computed_columns": {"n": "cast(id, STRING)"}},
        None,
        "column n is INT there, so STRING of rule 0 .* TYPE STRING",
    ),
    ({"primary_key": ["id"], "options": {"bucket": 2}, "types": {"n": "INT", "new": "DATE"}}, None, None),
]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("said", "refused", "told"), OTHER_RULES)
def test_a_rule_that_says_otherwise_than_its_table(
    world: World, said: dict[str, Any], refused: str | None, told: str | None, is_known: bool
) -> None:
    """By the ledger, or met for the first time: what was declared later has no effect in silence."""
    before = world.run()
    before.follow([seen("shop.public.a")], 0, STARTS)
    if is_known:
        written(world, before, 0, "lake.a")
    rule, snapshots = {"from": "shop.public.(.*)", "to": "lake.$1", **said}, world.ledger.latest_snapshot()

    def started() -> Sequence[str]:
        tables = world.run(rule, number=1)
        tables.follow([seen("shop.public.a")], 1, STARTS)
        return tables.take_events({})

    if refused is None:
        assert [re.search(told or "", text) is not None for text in started()] == [True] * (told is not None)
    else:
        with pytest.raises(PipelineError, match=f"table lake.a exists and differs from rule 0 .*{refused}.*resync"):
            started()
    assert world.ledger.latest_snapshot() == snapshots and world.catalog.table("lake.a").schema.id == 0


# --- renamed columns --------------------------------------------------------------------------------------------------


def without(name: str, lacks: Sequence[str], columns: Mapping[str, str]) -> SeenSchema:
    """What is new in records that have no field of some columns of the table."""
    return SeenSchema(source_table(name), DescribedTable(columns, ("id",), True, "t", tuple(lacks)).to_document())


def test_a_renamed_column_is_a_new_one_and_an_event_says_how_to_join_both(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a", {**COLUMNS, "t": "STRING", "gone": "DATE"})], 0, STARTS)
    tables.take_events({})
    world.catalog.table("lake.a").append([{"id": 1, "n": 1, "t": "x"}, {"id": 2, "n": 2, "t": "x"}])
    new = {"odd name": "STRING", "other": "BOOLEAN", "m": "BIGINT"}
    for _ in range(2):
        tables.follow([without("shop.public.a", ["n", "t", "gone"], new)], 0, STARTS)
    _, said = tables.take_events({})
    assert said.startswith(
        "shop.public.a may have renamed n (now m) and t (now odd name), which its records lack: of table lake.a both "
        "columns stay. To join them, stop the pipeline and run, by freshet sql: UPDATE lake.a SET n = m WHERE m IS NOT "
        "NULL; ALTER TABLE lake.a DROP COLUMN m; ALTER TABLE lake.a RENAME COLUMN n TO m; UPDATE "
    )
    world.catalog.table("lake.a").append([{"id": 2, "m": 20, "odd name": "y"}, {"id": 3, "m": 30}])
    for statement in said.partition("freshet sql: ")[2].split("; "):
        sql(statement, world.catalog)
    assert world.catalog.table("lake.a").scan(["id", "m", "odd name"]).to_arrow().to_pylist() == [
        {"id": 1, "m": 1, "odd name": "x"}, {"id": 2, "m": 20, "odd name": "y"}, {"id": 3, "m": 30, "odd name": None},
    ]  # fmt: skip
    world.begin(tables, 1)
    assert isinstance(tables.plan().tables[source_table("shop.public.a")], TableDecoding)


def test_a_renamed_column_of_the_key_has_nothing_to_join(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    tables.take_events({})
    tables.follow([without("shop.public.a", ["id"], {"no": "BIGINT"})], 0, STARTS)
    for statement in tables.take_events({})[1].partition("freshet sql: ")[2].split("; "):
        sql(statement, world.catalog)
    assert world.columns("lake.a") == {"no": "BIGINT NOT NULL", "n": "INT"}


def test_freeze_says_how_a_column_is_renamed(world: World) -> None:
    tables = world.run(schema_evolution="freeze")
    tables.follow([seen("shop.public.a")], 0, STARTS)
    with pytest.raises(PipelineFailedError, match="If n is m now: ALTER TABLE lake.a RENAME COLUMN n TO m$"):
        tables.follow([without("shop.public.a", ["n"], {"m": "INT"})], 0, STARTS)


# --- set apart --------------------------------------------------------------------------------------------------------


def test_a_table_is_set_apart_for_good_causes_alone(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    tables.round(0, STARTS)
    assert not tables.set_apart(0, CorruptDataError("the ledger"), 0, STARTS)
    assert not tables.set_apart(1, RetryableError("the store is away"), 0, STARTS)
    assert not tables.set_apart(1, ValueError("a bug"), 0, STARTS)
    missing = storage.InvalidRequestError("a library that all tables need is not installed")
    assert not tables.set_apart(1, missing, 0, STARTS)
    assert world.state() == {}
    assert tables.set_apart(1, CorruptDataError("a file is damaged"), 3, STARTS)
    (row,) = world.state().values()
    assert (row.table_name, row.state, row.since_batch, row.since) == ("lake.a", APART, 3, STARTS)
    assert row.cause == "a file is damaged" and row.source_tables == (source_table("shop.public.a"),)
    assert [each.table.name for each in tables.round(3, STARTS)] == [LEDGER, "lake.b"]
    assert isinstance(tables.plan().tables[source_table("shop.public.a")], Held)
    assert any("freshet resume FILE --table lake.a" in text for text in tables.take_events({}))


def test_a_replay_and_later_runs_obey(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    written(world, tables, 0, "lake.a", "lake.b")
    world.begin(tables, 1)
    tables.set_apart(1, CorruptDataError("a file is damaged"), 1, STARTS)
    for number in (1, 2):
        again = world.run(number=number)
        assert [each.table.name for each in again.round(number, STARTS)] == [LEDGER, "lake.b"]
        assert isinstance(again.plan().tables[source_table("shop.public.a")], Held)
    assert world.state()["lake.a"].since_batch == 1, "the first batch stays the first"
    assert world.state()["lake.a"].batch == 0


def test_another_source_of_a_table_that_is_set_apart_is_held_back_too(world: World) -> None:
    rule = {"from": "shop.public.([a-z]*)_\\d", "to": "lake.$1", "merge": True}
    tables = world.run(rule)
    tables.follow([seen("shop.public.a_1")], 0, STARTS)
    tables.round(0, STARTS)
    tables.set_apart(1, CorruptDataError("a file is damaged"), 0, STARTS)
    world.catalog.drop_table("lake.a")
    tables.follow([seen("shop.public.a_2")], 0, STARTS)
    assert [each.table.name for each in tables.round(0, STARTS)] == [LEDGER]
    assert not world.catalog.has_table("lake.a")
    row = world.state()["lake.a"]
    assert (row.state, row.since_batch, len(row.source_tables)) == (APART, 0, 2)
    assert {str(name) for name, each in tables.plan().tables.items() if isinstance(each, Held)} == {
        "shop.public.a_1", "shop.public.a_2",
    }  # fmt: skip


def test_a_table_that_was_dropped_or_created_again_is_set_apart(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a"), seen("shop.public.b"), seen("shop.public.c")], 0, STARTS)
    written(world, tables, 0, "lake.a", "lake.b", "lake.c")
    world.catalog.drop_table("lake.a")
    world.catalog.drop_table("lake.b")
    world.catalog.create_table("lake.b", schema=COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    again = world.run(number=1)
    assert [each.table.name for each in again.round(1, STARTS)] == [LEDGER, "lake.c"]
    causes = {name: row.cause or "" for name, row in world.state().items() if row.state == APART}
    assert set(causes) == {"lake.a", "lake.b"}
    assert "was dropped and created again" in causes["lake.b"]


def test_a_table_that_was_restored_stops_the_query(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    written(world, tables, 0, "lake.a")
    again = world.run(number=1)
    check = CommitCheck(is_committed=False, last=None, latest=None)
    with pytest.raises(PipelineFailedError, match="does not hold batch 0 .* freshet resync FILE --table lake.a"):
        again.judged(1, check)


@pytest.mark.parametrize(
    ("ledgers", "said"),
    [
        (None, "ledger of 'shop', does not say any more that its last batch was 3.*rollback.*nothing was written"),
        (LedgerRow(WHOLE), "ledger of 'shop', does not say any more that its last batch was 3"),
        (LedgerRow(WHOLE, batch=2), "is the ledger of another pipeline: its last batch is 2, and its batch 3"),
    ],
)
def test_a_ledger_that_says_something_else(world: World, ledgers: LedgerRow | None, said: str) -> None:
    write_rows(world.ledger, "shop", [] if ledgers is None else [ledgers])
    tables = SyncTables(world.config(), world.ledger, world.dead_letters, 2)
    check = CommitCheck(is_committed=False, last=CommitTrace(3, None, 0), latest=world.ledger.latest_snapshot())
    with pytest.raises(InvalidRequestError, match=said):
        tables.begin(4, check, STARTS)


@pytest.mark.parametrize("state", ["active", APART])
def test_a_loss_that_is_accepted_is_what_the_ledger_says_from_then_on(world: World, state: str) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    for name, last in (("lake.a", 3), ("lake.b", 5)):
        world.catalog.table(name).engine.committer("shop").commit(last, ())
    written(world, tables, 5, "lake.a", "lake.b")
    write_rows(world.ledger, "shop", [replace(world.state()["lake.a"], state=state)])
    for accepted, held in (((5, 5), 5), ((0, 4), 5), ((4, 4), 5), ((4, 5), 3)):
        again = SyncTables(world.config().accepting_loss(*accepted), world.ledger, world.dead_letters, 2)
        world.begin(again, 6)
        assert (world.state()["lake.a"].batch, world.state()["lake.b"].batch) == (held, 5)
        assert world.state()["lake.a"].state == state
    assert again.take_events({}) == ("table lake.a goes on without its rows of batches 4 to 5, as it was told",)


def test_a_table_of_which_the_rules_say_something_else_now(world: World) -> None:
    tables = world.run()
    tables.follow([seen("shop.public.a")], 0, STARTS)
    written(world, tables, 0, "lake.a")
    again = world.run({"from": "shop.public.(.*)", "to": "other.$1"}, number=1)
    assert [each.table.name for each in again.round(1, STARTS)] == [LEDGER]
    again.follow([seen("shop.public.a")], 1, STARTS)
    assert [each.table.name for each in again.round(1, STARTS)] == [LEDGER, "other.a"]


# --- compaction in the background -------------------------------------------------------------------------------------


ALONE: Any = SimpleNamespace(parallelism=1)
"""An engine of one core, whose workers are never asked for."""


def compacting(world: World, **options: Any) -> SyncTables:
    config = world.config()
    config = config.model_copy(update={"compaction": CompactionConfig(background=True)})
    tables = SyncTables(config, world.ledger, world.dead_letters, 2, **options)
    world.begin(tables, 0)
    return tables


def test_the_tables_of_a_query_are_compacted_by_one_thread(world: World) -> None:
    tables = compacting(world)
    tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    with ExitStack() as turns:
        for each in tables.round(0, STARTS)[1:]:
            turns.enter_context(each.turn())
    report = tables.after_batch(ALONE, {})
    assert report is not None and report.failure == f"table lake.a: {ONE_CORE} (1 other table fails too)"
    world.catalog.drop_table("lake.a")  # is set apart in the next round
    assert [each.table.name for each in tables.round(1, STARTS)] == [LEDGER, "lake.b"]
    report = tables.after_batch(ALONE, {})
    assert report is not None and report.failure == ONE_CORE
    tables.close()


def test_what_is_brought_up_or_replayed_is_compacted_by_its_commits(world: World) -> None:
    for options in ({"only": "lake.a"}, {"commit_user": "shop (replay)"}):
        tables = compacting(world, **options)
        tables.follow([seen("shop.public.a")], 0, STARTS)
        with tables.round(0, STARTS)[1].turn() as limit:
            assert limit is None
        assert tables.after_batch(ALONE, {}) is None
        tables.close()


def test_a_table_that_cannot_be_compacted_in_the_background(world: World, caplog: pytest.LogCaptureFixture) -> None:
    tables = compacting(world)
    tables.follow([seen("shop.public.a"), seen("shop.public.b")], 0, STARTS)
    world.catalog.table("lake.a").alter(SetOption("write-only", "true"))
    for _ in range(2):
        with ExitStack() as turns:
            limits = [turns.enter_context(each.turn()) for each in tables.round(0, STARTS)[1:]]
        assert [limit is None for limit in limits] == [True, False]
    told = [
        each.getMessage() for each in caplog.records if "cannot be compacted in the background" in each.getMessage()
    ]
    assert len(told) == 1 and "lake.db/a" in told[0]
    tables.close()
