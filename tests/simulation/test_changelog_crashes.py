"""Crashes of a stream into tables with a changelog: after each, the stream continues; the changelog gives the table.

Nothing is expired here, so that the changelog can be folded from the first commit on: every row that a change removes
was there with these values, and the result is the table. A crash between the two snapshots of a commit leaves rows at
level 0 whose changes were not emitted; the next compaction emits them, once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import pytest

from freshet.storage.io.env import CrashPoint
from freshet.storage.table import Table
from tests.kit.changelog_files import changelog, folded
from tests.kit.sim_env import Fault, FaultKind
from tests.kit.sim_world import RIVAL, World

SEED = int(os.environ.get("FRESHET_SEED", "20261121"))
KEPT: Mapping[str, str] = {"snapshot.num-retained.min": "100", "snapshot.num-retained.max": "100"}
PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup, spilled": {
        "changelog-producer": "lookup",
        "write-buffer-size": "100 b",
        "write-buffer-spillable": "false",
    },
    "input, spilled": {"changelog-producer": "input", "write-buffer-size": "100 b"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "input, packed": {"changelog-producer": "input", "precommit-compact": "true"},
    "lookup, packed": {"changelog-producer": "lookup", "precommit-compact": "true"},
    "every second": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"},
}


class ChangelogWorld(World):
    """Deduplicate with a changelog."""

    def run_rival(self) -> None:
        self._commit_batch(self.disk.boot(), RIVAL, self.rival_batches, None)
        self.rival_batches += 1

    def check(self) -> None:
        is_full = self.options["changelog-producer"] == "full-compaction"
        Table(self.open()).compact(full=is_full)
        super().check()
        table = Table(self.open())
        emitted = folded(changelog(table).values(), ["id"], is_strict=self.options["changelog-producer"] != "input")
        assert Counter((row["id"], row["v"]) for row in emitted.values()) == self.oracle()


def world_of(producer: str) -> ChangelogWorld:
    return ChangelogWorld(SEED, batch_count=3, options={**KEPT, **PRODUCERS[producer]})


SOME = [pytest.param(name, marks=pytest.mark.slow if "spilled" in name else ()) for name in PRODUCERS]


@pytest.mark.few(2)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("producer", SOME)
def test_crash_at_every_point(producer: str, half: int) -> None:
    """Half of the points, in turn with a rival; every other producer begins with the other half."""
    calm = world_of(producer)
    visits = calm.run_stream().visits
    calm.check()
    assert visits[CrashPoint.CHANGELOG_WRITTEN] >= 2
    first = (half + list(PRODUCERS).index(producer)) % 2
    for number, (point, count) in enumerate(sorted(visits.items())[first::2]):
        world_of(producer).assert_survives(
            Fault(point=point, visit=max(1, count - number % 2)), with_rival=number % 2 == 0
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("producer", ["input", "lookup", "every second"])
def test_crash_at_changes_of_the_disk(producer: str) -> None:
    mutations = world_of(producer).run_stream().file_io.mutation_count
    for at in range(SEED % 29, mutations, 29):
        fault = Fault(FaultKind.CRASH, at=at, takes_effect=at % 2 == 0)
        world_of(producer).assert_survives(fault, with_rival=at % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("producer", PRODUCERS)
def test_crash_at_every_change_of_the_disk(producer: str) -> None:
    """Before each change, which leaves what a crash right after the one before it leaves."""
    mutations = world_of(producer).run_stream().file_io.mutation_count
    for at in range(mutations):
        world_of(producer).assert_survives(Fault(FaultKind.CRASH, at=at, takes_effect=False), with_rival=at % 3 == 0)
