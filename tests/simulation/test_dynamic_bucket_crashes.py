"""Crashes of a stream into a table with dynamic buckets: between the index and the snapshot, and everywhere else."""

from __future__ import annotations

import os

import pytest

from freshet.storage.metadata.hash_index_store import decode_hashes
from freshet.storage.model.data_file import EMPTY_ROW
from tests.kit.sim_env import Fault, FaultKind
from tests.kit.sim_world import World

SEED = int(os.environ.get("FRESHET_SEED", "20261121"))
TARGET = 7


class DynamicWorld(World):
    """Buckets of a few keys, so that most batches begin one."""

    def check(self) -> None:
        super().check()
        store = self.open()
        files = store.hash_indexes.files(store.snapshots.latest())[EMPTY_ROW]
        hashes = [decode_hashes(store.hash_indexes.read(file)).tolist() for _, file in sorted(files.items())]
        everything = [each for of_bucket in hashes for each in of_bucket]
        assert len(everything) == len(set(everything)), "a key is in the index of two buckets"
        assert [len(each) for each in hashes[:-1]] == [TARGET] * (len(hashes) - 1)
        assert len(hashes) > 2


def world() -> DynamicWorld:
    return DynamicWorld(SEED, batch_count=3, options={"bucket": "-1", "dynamic-bucket.target-row-num": str(TARGET)})


@pytest.mark.dear("a run for each point")
def test_crash_at_every_point() -> None:
    calm = world()
    visits = calm.run_stream().visits
    calm.check()
    for number, (point, count) in enumerate(sorted(visits.items())):
        world().assert_survives(Fault(point=point, visit=max(1, count - number % 2)), with_rival=number % 2 == 0)


@pytest.mark.dear("a run for each change of the disk")
def test_crash_at_changes_of_the_disk() -> None:
    mutations = world().run_stream().file_io.mutation_count
    for at in range(SEED % 7, mutations, 7):
        fault = Fault(FaultKind.CRASH, at=at, takes_effect=at % 2 == 0)
        world().assert_survives(fault, with_rival=at % 3 == 0)


@pytest.mark.slow
def test_crash_at_every_change_of_the_disk() -> None:
    mutations = world().run_stream().file_io.mutation_count
    for at in range(mutations):
        world().assert_survives(Fault(FaultKind.CRASH, at=at, takes_effect=False), with_rival=at % 3 == 0)
