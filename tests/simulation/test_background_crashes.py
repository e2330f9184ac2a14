"""Crashes of a stream with background compaction: of the stream, of a compaction unit, before the commit of its files.

Each unit lasts over a batch: it runs before the batch commits, and is committed after. After every crash the stream
continues with new units; the changelog is folded from the first commit on, so no change was lost or emitted twice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import pytest

from freshet.storage.commit.commit_result import CommitResult
from freshet.storage.commit.committer import Committer
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.maintenance.background_compaction import BackgroundCompaction, BackgroundUnit, run_background_unit
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.table import Table
from freshet.storage.write.task_writer import TaskWriter
from tests.kit.changelog_files import changelog, folded
from tests.kit.sim_env import Fault, FaultKind, SimEnv
from tests.kit.sim_world import QUERY_ID, RIVAL, STREAM, World

SEED = int(os.environ.get("FRESHET_SEED", "20261122"))
PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "lookup": {"changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "5"},
    "full-compaction": {
        "changelog-producer": "full-compaction",
        "full-compaction.delta-commits": "9",
        "num-levels": "6",
    },
    "none": {"num-levels": "6"},
}


class BackgroundWorld(World):
    """Deduplicate; a process of the stream has a `BackgroundCompaction` and at most one unit under way."""

    rival_turns = 1
    units_committed = 0
    background: tuple[Env, BackgroundCompaction] | None = None
    pending: tuple[BackgroundUnit, list[CommitMessage]] | None = None

    def run_stream(self, fault: Fault | None = None) -> SimEnv:
        self.background = self.pending = None
        return super().run_stream(fault)

    def _commit_batch(self, env: Env, user: str, batch: int, query_id: str | None) -> CommitResult | None:
        if user != STREAM:
            return super()._commit_batch(env, user, batch, query_id)
        store = self.open(env)
        if self.background is None or self.background[0] is not env:
            self.background = (env, BackgroundCompaction(store, "stream-compact"))
        background = self.background[1]
        with background.batch(0) as limit:
            committer = Committer(store, user, query_id)
            if committer.has_committed(batch).is_committed:
                return None
            writer = TaskWriter(store, base_snapshot=store.snapshots.latest(), parallelism=1)
            try:
                writer.write(self.arrow(self.rows(batch, user)))
                messages = writer.prepare_commit(batch, limit=limit)
            finally:
                writer.close()
            result = committer.commit(batch, messages)
            assert not result.aborted_compactions
        background.note([(message.partition, message.bucket) for message in messages])
        self._go_on_with_units(background, store)
        return result

    def _go_on_with_units(self, background: BackgroundCompaction, store: TableStore) -> None:
        if self.pending is not None:
            unit, messages = self.pending
            self.units_committed += bool(background.commit(unit, messages).snapshots)
            background.release(unit)
            self.pending = None
        elif (found := background.next_unit()) is not None:
            self.pending = (found, run_background_unit(store, found))

    def run_rival(self) -> None:
        """Another user compacts the table in full, so that a unit is aborted."""
        self._commit_batch(self.disk.boot(), RIVAL, self.rival_batches, None)
        self.rival_batches += 1
        Table(self.open()).compact()

    def check(self) -> None:
        Table(self.open()).compact()
        super().check()
        if "changelog-producer" not in self.options:
            return
        emitted = folded(changelog(Table(self.open())).values(), ["id"])
        assert Counter((row["id"], row["v"]) for row in emitted.values()) == self.oracle()


def world_of(producer: str) -> BackgroundWorld:
    kept = {"snapshot.num-retained.min": "200", "snapshot.num-retained.max": "200"}
    return BackgroundWorld(SEED, batch_count=12, options={**kept, **PRODUCERS[producer]})


@pytest.mark.few(1)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_crash_at_every_point(producer: str, half: int) -> None:
    """Half of the points, in turn with a rival; every other producer begins with the other half."""
    calm = world_of(producer)
    visits = calm.run_stream().visits
    assert calm.units_committed >= 2
    calm.check()
    assert visits[CrashPoint.COMPACT_OUTPUT_WRITTEN] >= 2
    first = (half + list(PRODUCERS).index(producer)) % 2
    for number, (point, count) in enumerate(sorted(visits.items())[first::2]):
        world_of(producer).assert_survives(
            Fault(point=point, visit=max(1, count - number % 3)), with_rival=number % 2 == 0
        )


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_rival_compacts_what_a_unit_is_working_on(producer: str) -> None:
    world = world_of(producer)
    env = world.disk.boot()
    while world.pending is None and world.acknowledged < world.batch_count:
        world._commit_batch(env, STREAM, world.acknowledged, QUERY_ID)
        world.acknowledged += 1
    assert world.pending is not None
    assert world.background is not None
    world.run_rival()
    result = world.background[1].commit(*world.pending)
    assert result.aborted_compactions
    assert not result.snapshots
    world.check()


@pytest.mark.slow
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("takes_effect", [False, True])
def test_crash_at_every_change_of_the_disk(producer: str, takes_effect: bool) -> None:
    mutations = world_of(producer).run_stream().file_io.mutation_count
    for at in range(SEED % 7, mutations, 7):
        fault = Fault(FaultKind.CRASH, at=at, takes_effect=takes_effect)
        world_of(producer).assert_survives(fault, with_rival=at % 3 == 0)
