"""Two long-lived writers, a compactor, hasty expiry and schema changes take turns at random on one table.

Each step is one of a few small ones, so that everything happens between the first row of a writer and its commit. The
oracle is a dict; the writers' keys are disjoint. `FRESHET_SEED` replays one seed.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

from freshet.storage.cleaning.expire import expire_snapshots
from freshet.storage.cleaning.orphan_files import remove_orphan_files
from freshet.storage.schema.change import AddColumn
from freshet.storage.table import Table
from freshet.storage.table_session import TableSession
from tests.kit.hand_made import assert_contiguous, assert_everything_named_is_there
from tests.kit.quick import some_now
from tests.kit.sim_world import Rows, World, read

SEEDS = [int(os.environ["FRESHET_SEED"])] if "FRESHET_SEED" in os.environ else some_now(range(12), stride=4)
STEPS = 70
OPTIONS = {"num-sorted-run.compaction-trigger": "3", "snapshot.num-retained.max": "2"}


class Actor:
    """A writer that stays open, and what it has written and committed."""

    def __init__(self, world: World, name: str, first_key: int) -> None:
        self.name = name
        self._world = world
        self._first_key = first_key
        self._store = world.open()
        self.session = TableSession(self._store, name, parallelism=1)
        self.pending: Rows = []
        self.committed: Rows = []
        self._batch = 0

    def write(self, chance: random.Random) -> None:
        rows = [
            (
                chance.choice(("+I", "+U", "-D") if self._world.keyed else ("+I",)),
                self._first_key + chance.randrange(12),
                f"{self.name}-{self._batch}-{chance.randrange(10**6)}",
            )
            for _ in range(chance.randrange(1, 6))
        ]
        table = self._world.arrow(rows)
        for name in self._store.schema.column_names[2:]:
            table = table.append_column(name, pa.nulls(len(rows), pa.int32()))
        self.session.write(table)
        self.pending += rows

    def commit(self) -> None:
        self.session.commit(self._batch)
        self._batch += 1
        self.committed += self.pending
        self.pending = []

    def reopen(self) -> None:
        """The process ends without a commit; its rows are gone."""
        self.session.close()
        self._store = self._world.open()
        self.session = TableSession(self._store, self.name, parallelism=1)
        self.pending = []


def oracle(keyed: bool, actors: list[Actor]) -> list[tuple[int, str]]:
    """Rows that must be there, sorted."""
    rows = [row for actor in actors for row in actor.committed]
    if not keyed:
        return sorted((key, value) for _, key, value in rows)
    held: dict[int, str] = {}
    for kind, key, value in rows:
        held.pop(key, None)
        if kind != "-D":
            held[key] = value
    return sorted(held.items())


@pytest.mark.few(3)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
@pytest.mark.parametrize("seed", SEEDS)
def test_turns(seed: int, keyed: bool) -> None:
    chance = random.Random(seed)
    world = World(seed, keyed, options=OPTIONS)
    actors = [Actor(world, "a", 0), Actor(world, "b", 100)]
    columns = 0
    for step in range(STEPS):
        actor = chance.choice(actors)
        match chance.choices(
            ("write", "commit", "compact", "minor", "expire", "clean", "reopen", "alter"), (9, 6, 2, 1, 3, 1, 1, 0.3)
        )[0]:
            case "write":
                actor.write(chance)
            case "commit":
                actor.commit()
            case "compact":
                Table(world.open()).compact(full=True)
            case "minor":
                Table(world.open()).compact(full=False)
            case "expire":
                expire_snapshots(world.open(), retain_max=chance.randrange(1, 4))
            case "clean" if not any(known.pending for known in actors):
                remove_orphan_files(world.open(), older_than_ms=-1_000_000)
            case "reopen":
                actor.reopen()
            case "alter":
                columns += 1
                Table(world.open()).alter(AddColumn(f"extra{columns}", "INT"))
            case _:
                continue
        store = world.open()
        assert sorted(read(store).elements()) == oracle(keyed, actors), f"seed {seed}, step {step}"
        assert_contiguous(store)
        assert_everything_named_is_there(store)
    for actor in actors:
        actor.session.close()
    remove_orphan_files(world.open(), older_than_ms=-1_000_000)
    assert sorted(read(world.open()).elements()) == oracle(keyed, actors)
    assert pa.total_allocated_bytes() < 500_000_000
