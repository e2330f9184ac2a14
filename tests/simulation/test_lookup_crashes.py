"""Crashes of a stream into tables that need lookup: after each, the stream runs on and nothing is lost or doubled.

A crash between the APPEND and the COMPACT snapshot leaves rows at level 0. A first-row table does not show them until
the bucket is compacted again, by the next commit that touches it or by itself.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from freshet.storage.io.env import CrashPoint
from freshet.storage.table import Table
from tests.kit.sim_env import Fault
from tests.kit.sim_world import RIVAL, STREAM, Rows, World

SEED = int(os.environ.get("FRESHET_SEED", "20261121"))


class LookupWorld(World):
    """Deduplicate with force-lookup."""

    def check(self) -> None:
        Table(self.open()).compact(full=False)
        assert all(entry.file.level > 0 for entry in Table(self.open()).files())
        super().check()


class FirstRowWorld(LookupWorld):
    """Rows are added only, and the first one of a key stays."""

    def rows(self, batch: int, user: str = STREAM) -> Rows:
        return [("+I", key, value) for _, key, value in super().rows(batch, user)]

    def oracle(self, batches: int | None = None) -> Counter[tuple[int, str]]:
        held: dict[int, str] = {}
        for user, count in ((STREAM, self.acknowledged if batches is None else batches), (RIVAL, self.rival_batches)):
            for batch in range(count):
                for _, key, value in self.rows(batch, user):
                    held.setdefault(key, value)
        return Counter(held.items())


def world_of(engine: str, **options: str) -> World:
    if engine == "deletion-vectors":
        vectors = {"deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "5"}
        return LookupWorld(SEED, options={**vectors, **options})
    if engine == "first-row":
        return FirstRowWorld(SEED, options={"merge-engine": "first-row", **options})
    return LookupWorld(SEED, options={"force-lookup": "true", **options})


@pytest.mark.dear("a run for each point")
@pytest.mark.few(1)
@pytest.mark.parametrize("which", ["first", pytest.param("last", marks=pytest.mark.slow)])
@pytest.mark.parametrize("parity", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ["first-row", "force-lookup", "deletion-vectors"])
def test_crash_at_every_point(engine: str, parity: int, which: str) -> None:
    """In turn alone and with a rival; with the other parity those that were alone have one."""
    calm = world_of(engine)
    visits = calm.run_stream().visits
    calm.check()
    assert visits[CrashPoint.COMMIT_BEFORE_COMPACT] == calm.batch_count
    for number, (point, count) in enumerate(sorted(visits.items()), parity):
        for visit in {1} if which == "first" else {count} - {1}:
            fault = Fault(point=point, visit=visit)
            world_of(engine).assert_survives(fault, with_rival=(number + visit) % 2 == 1)


def test_rows_of_a_lost_compaction_show_with_the_next_commit() -> None:
    world = world_of("first-row")
    world.run_stream(Fault(point=CrashPoint.COMMIT_BEFORE_COMPACT, visit=2))
    table = Table(world.open())
    assert {entry.file.level for entry in table.files()} >= {0}
    shown = set(table.scan().to_arrow()["id"].to_pylist())
    assert shown == {key for _, key, _ in world.rows(0)}
    world.acknowledged = 1
    world.batch_count = 3
    world.run_stream()
    assert all(entry.file.level > 0 for entry in Table(world.open()).files())
    world.check()
