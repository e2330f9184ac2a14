"""Many tables by one query on both engines in turns: tables are altered and appear between the runs and under them.

Run by `test_own_sessions` in a process of its own.
"""

from __future__ import annotations

import random

import pytest

from freshet.storage.model.snapshot import CommitKind
from tests.integration.source_world import SyncWorld
from tests.kit.dying_runs import ENGINES, SYNC_POINTS, dying, has_died
from tests.kit.source_database import Row, SourceTable

pytest_plugins = ["tests.integration.source_fixtures"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]

KEYS = 12
TABLES_MAX = 5
RUNS = 20
KINDS = {"int": 31, "bigint": 50}
"""Bits of their values."""


class Changes:
    """A database that anything may happen to."""

    def __init__(self, world: SyncWorld, chance: random.Random) -> None:
        self.world, self._chance = world, chance
        self.broken = 0

    def new_table(self) -> SourceTable:
        name = f"t{len(self.world.tables)}"
        return self.world.table(name, {"id": "int", "n": "int", "text": "text"})

    def put(self, table: SourceTable) -> None:
        """Some changes of its rows; one of them may be broken."""
        chance = self._chance
        for _ in range(chance.randint(1, 6)):
            key = chance.randrange(KEYS)
            if key in table.rows and chance.random() < 0.3:
                self.world.send(table, table.delete(key))
                continue
            values: Row = {
                name: chance.getrandbits(KINDS[kind] - 1) if kind in KINDS else f"text {chance.random()}"
                for name, kind in table.columns.items()
            }
            self.world.send(table, table.upsert({**values, "id": key}))
        if chance.random() < 0.3:
            self.world.send(table, [(b'{"id": 1}', b"no record")])
            self.broken += 1

    def alter(self, table: SourceTable) -> None:
        """A new column, or a wider one where one is left."""
        narrow = [name for name, kind in table.columns.items() if kind == "int" and name != table.key]
        if narrow and self._chance.random() < 0.5:
            table.columns[self._chance.choice(narrow)] = "bigint"
        else:
            table.add_column(f"more{len(table.columns)}", self._chance.choice(["int", "text"]))

    def anything(self) -> None:
        """Between two runs."""
        tables = self.world.tables
        if len(tables) < TABLES_MAX and self._chance.random() < 0.4:
            self.put(self.new_table())
        for table in self._chance.sample(sorted(tables.values(), key=lambda each: each.name), min(3, len(tables))):
            self.put(table)
            if self._chance.random() < 0.5:
                self.alter(table)
                self.put(table)

    def check(self) -> None:
        world = self.world
        world.assert_equal()
        assert world.target("dead_letters").scan().to_arrow().num_rows == self.broken
        for name in (*world.tables, "_freshet_ledger_shop"):
            ours = [each for each in world.target(name).snapshots() if each.commit_user == "shop"]
            batches = [each.commit_identifier for each in ours if each.commit_kind is CommitKind.APPEND]
            assert batches == sorted(set(batches)), f"{name}: {batches}"
            assert name in world.tables or batches == list(range(len(batches))), f"{name}: {batches}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("point", SYNC_POINTS)
def test_the_other_engine_finishes_a_batch_whose_tables_were_altered(world: SyncWorld, engine: str, point: str) -> None:
    """Tables are altered before the batch that dies, and again before it is finished."""
    [other] = set(ENGINES) - {engine}
    changes = Changes(world, random.Random(f"{engine} {point}"))
    first, second = changes.new_table(), changes.new_table()
    for table in (first, second):
        changes.put(table)
    world.run(on=other)
    first.add_column("more", "text")
    second.columns["n"] = "bigint"
    for table in (first, second, changes.new_table()):
        changes.put(table)
    with dying(point):
        assert has_died(lambda: world.run(on=engine))
    second.add_column("later", "int")
    first.columns["n"] = "bigint"
    for table in (*world.tables.values(), changes.new_table()):
        changes.put(table)
    assert [each.report.micro_batch_id for each in world.run(on=other)] == [1, 2]
    changes.check()
    changes.anything()
    world.run(on=engine)
    changes.check()


def test_engines_in_turns_while_tables_are_altered_and_appear(world: SyncWorld) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    changes = Changes(world, chance)
    changes.put(changes.new_table())
    schedule = [(engine, point) for engine in ENGINES for point in (*SYNC_POINTS, None)]
    schedule += [(chance.choice(ENGINES), chance.choice(SYNC_POINTS)) for _ in range(RUNS - len(schedule))]
    chance.shuffle(schedule)
    for engine, point in schedule:
        changes.anything()
        with dying(point):
            has_died(lambda engine=engine: world.run(on=engine))  # type: ignore[misc]
    world.run(on="local")
    changes.check()
