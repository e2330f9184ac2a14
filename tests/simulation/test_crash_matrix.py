"""Crashes and failing disks at every point and at every change of the disk; after each, the stream runs on.

Every test first runs the world without a fault to learn how many mutations it makes and which points it visits, then
visits them. `FRESHET_SEED` replays one seed; the fault is in the name of the test or in the assertion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from freshet.storage.exceptions import StorageError
from freshet.storage.io.env import CrashPoint
from tests.kit.sim_env import Fault, FaultKind
from tests.kit.sim_world import World

SEED = int(os.environ.get("FRESHET_SEED", "20261121"))
SPILLS = {"write-buffer-size": "100 b"}


@cache
def calm_run(keyed: bool) -> tuple[int, dict[CrashPoint, int]]:
    """Mutations and visits of crash points of a run without faults."""
    world = World(SEED, keyed)
    env = world.run_stream()
    world.check()
    return env.file_io.mutation_count, dict(env.visits)


def point_faults(keyed: bool) -> Iterator[Fault]:
    for point, visits in sorted(calm_run(keyed)[1].items()):
        for visit in range(1, visits + 1):
            yield Fault(point=point, visit=visit)


def _visits_of(fault: Fault) -> str:
    return "first" if fault.visit == 1 else "odd" if fault.visit % 2 else "even"


@pytest.mark.few(1)
@pytest.mark.parametrize("visits", ["first", *(pytest.param(each, marks=pytest.mark.slow) for each in ("odd", "even"))])
@pytest.mark.parametrize("parity", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
def test_crash_at_every_point(keyed: bool, parity: int, visits: str) -> None:
    """In turn alone and with a rival; with the other parity those that were alone have one. Odd are the later ones."""
    faults = list(point_faults(keyed))
    assert {fault.point for fault in faults} >= {
        CrashPoint.COMMIT_MANIFESTS_WRITTEN,
        CrashPoint.COMMIT_SNAPSHOT_CREATED,
        CrashPoint.EXPIRE_SNAPSHOTS_REMOVED,
        CrashPoint.EXPIRE_DATA_REMOVED,
        *((CrashPoint.COMMIT_BEFORE_COMPACT,) if keyed else ()),
    }
    chosen = [fault for fault in faults if visits == _visits_of(fault)]
    for number, fault in enumerate(chosen, parity):
        World(SEED, keyed).assert_survives(fault, with_rival=number % 2 == 1)


def mutation_faults(keyed: bool, kind: FaultKind, stride: int, count: int = 1) -> Iterator[Fault]:
    mutations = calm_run(keyed)[0]
    for at in range(SEED % stride, mutations, stride):
        for takes_effect in (False, True):
            yield Fault(kind, at=at, count=count, takes_effect=takes_effect)


def check_crashes(keyed: bool, stride: int) -> int:
    faults = list(mutation_faults(keyed, FaultKind.CRASH, stride))
    if stride == 1:  # a crash right after a change leaves what one before the next change leaves
        faults = [*(fault for fault in faults if not fault.takes_effect), faults[-1]]
    for number, fault in enumerate(faults):
        World(SEED, keyed).assert_survives(fault, with_rival=number % 3 == 0)
    return len(faults)


@pytest.mark.few(1)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
def test_crash_at_changes_of_the_disk(keyed: bool) -> None:
    assert check_crashes(keyed, stride=9) > 4


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
def test_crash_at_every_change_of_the_disk(keyed: bool) -> None:
    assert check_crashes(keyed, stride=1) > 30


def check_errors(keyed: bool, stride: int, count: int) -> int:
    """The disk fails `count` times in a row; the process may raise, then the stream is started again."""
    faults = list(mutation_faults(keyed, FaultKind.ERROR, stride, count))
    for fault in faults:
        world = World(SEED, keyed)
        with suppress(StorageError):
            world.run_stream(fault)
        world.run_stream()
        assert world.acknowledged == world.batch_count
        world.check()
    return len(faults)


@pytest.mark.few(1)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
@pytest.mark.parametrize("count", [1, 5, 10_000], ids=["once", "five-times", "for-good"])
def test_failing_disk(keyed: bool, count: int) -> None:
    assert check_errors(keyed, stride=11, count=count) > 4


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
@pytest.mark.parametrize("count", [1, 3], ids=["once", "three-times"])
def test_failing_disk_at_every_change(keyed: bool, count: int) -> None:
    assert check_errors(keyed, stride=1, count=count) > 50


@pytest.mark.parametrize("offset", range(4))
def test_many_crashes_of_one_stream(offset: int) -> None:
    """A process that dies again and again, with a rival and its expiry between, another seed each time."""
    seed = SEED + offset
    world = World(seed, keyed=offset % 2 == 0, batch_count=8)
    for attempt in range(60):
        world.run_stream(
            Fault(at=2 + (seed * 31 + attempt * 17) % (40 if world.keyed else 12), takes_effect=attempt % 2 == 0)
        )
        if attempt % 4 == 3:
            world.run_rival()
        if world.acknowledged == world.batch_count:
            break
    world.run_stream()
    assert world.acknowledged == world.batch_count
    assert world.crash_count >= 3
    world.check()


def test_stream_that_was_expired_by_others_is_still_known() -> None:
    """The snapshot of a batch is gone by the time the batch is replayed: the carried map still knows it."""
    world = World(SEED, batch_count=1)
    world.run_stream(Fault(point=CrashPoint.COMMIT_SNAPSHOT_CREATED))
    assert world.acknowledged == 0
    for _ in range(4):
        world.run_rival()
    store = world.open()
    assert all(
        store.snapshots.snapshot(snapshot_id).commit_user != "stream" for snapshot_id in store.snapshots.list_ids()
    )
    world.run_stream()
    world.check()


def test_crash_while_spilling() -> None:
    world = World(SEED, options=SPILLS)
    env = world.run_stream()
    world.check()
    for point in (CrashPoint.WRITE_BEFORE_SPILL, CrashPoint.WRITE_SPILLED, CrashPoint.WRITE_FLUSHED):
        assert env.visits[point]
        World(SEED, options=SPILLS).assert_survives(Fault(point=point), with_rival=False)
