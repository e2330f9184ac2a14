"""Random schedules of drivers that publish a changelog: whatever crashes, each change is seen once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from freshet.logstore.exceptions import LogUnavailableError
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import fake_kafka, folded, held, rows
from tests.logstore.writing.published import Crash, changelog_by_bucket, changes, make, published
from tests.soak.counts import PUBLISHERS, seeds_of


class Driver:
    """One process that writes and publishes; `crash` says at which step of how many it dies, or meets a zombie."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.session: Any = None

    def commit(self, text: str) -> None:
        if self.session is None:
            self.session = self.table.writer("u")
        self.session.write(rows(text))
        self.session.commit()


def run_schedule(log: FakeLog, table: Table, seed: int, steps: int) -> dict[str, int]:
    """Drivers that crash, lose the brokers, or go on after they were replaced, at every step of their transactions."""
    chance = random.Random(seed)
    counts = {"crash": 0, "lost": 0, "zombie": 0}
    drivers = [Driver(table)]
    is_within = False

    def reach(step: str) -> None:
        nonlocal is_within
        what = chance.random()
        if is_within or what > 0.25:
            return
        if what < 0.08:
            counts["crash"] += 1
            raise Crash(step)
        if what < 0.16:
            counts["lost"] += 1
            raise LogUnavailableError(f"no answer to {step}")
        counts["zombie"] += 1
        is_within = True  # another process publishes everything while this one waits
        try:
            other = table.engine.log.open_publisher()
            if chance.random() < 0.5:
                other.publish()
        finally:
            is_within = False

    log.reach = reach
    for _ in range(steps):
        driver = chance.choice(drivers)
        text = " | ".join(f"{chance.choice(['+I', '+I', '-D'])} {key} {chance.randrange(99)}" for key in keys(chance))
        try:
            driver.commit(text)
        except (Crash, LogUnavailableError):
            drivers.append(Driver(table))
            if chance.random() < 0.7:
                drivers.remove(driver)  # dead; else a zombie, which commits once more
            elif driver.session is not None:
                driver.session.abort()
    log.reach = lambda step: None
    table.engine.log.open_publisher().close()
    return counts


def keys(chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(6), chance.randrange(1, 4)))


def check_schedules(tmp_path: Path, seeds: range, steps: int) -> dict[str, int]:
    counts = {"crash": 0, "lost": 0, "zombie": 0}
    for seed in seeds:
        with fake_kafka() as log:
            table = make(tmp_path / str(seed), bucket="2", snapshot__num_retained__max="1000")
            table.engine.log.open_publisher().close()
            for what, count in run_schedule(log, table, seed, steps).items():
                counts[what] += count
            expected = changelog_by_bucket(table)
            assert changes(log) == expected, f"seed {seed}"
            found: dict[int, str] = {}
            for part in changes(log):
                found |= folded(part)
            assert found == held(table), f"seed {seed}"
            # Sooner or later more is committed than the log holds: what is aborted is there, and not seen.
            ids = published(log)
            assert ids == sorted(set(ids)), f"seed {seed}"
    return counts


@pytest.mark.dear("four schedules of ten commits, each with a crash")
def test_each_change_is_seen_once_whatever_crashes(tmp_path: Path) -> None:
    counts = check_schedules(tmp_path, range(4), 10)
    assert min(counts.values()) > 3, counts


@pytest.mark.soak
def test_each_change_is_seen_once_in_many_schedules(tmp_path: Path) -> None:
    seeds = seeds_of(PUBLISHERS, "publishers")
    counts = check_schedules(tmp_path, seeds, 12)
    assert sum(counts.values()) > len(seeds), counts
    assert len(seeds) < 30 or min(counts.values()) > len(seeds) // 3, counts
