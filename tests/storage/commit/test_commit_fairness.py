"""Writers that commit to one table without a pause go in turn, where a lost round is six requests for nothing."""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit.commit_fairness import WINDOW_MS, CommitFairness, users_ahead
from freshet.storage.commit.foreign_writers import ForeignWriters
from freshet.storage.commit.last_commits import CommitTrace
from freshet.storage.exceptions import RetryableError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place

SLEEPS_MAX = 100
TABLE: dict[str, Any] = {
    "schema": {"k": "BIGINT"},
    "primary_keys": ["k"],
    "options": {"bucket": "1", "write-only": "true"},
}


def traces(**times_ms: int) -> dict[str, CommitTrace]:
    return {user: CommitTrace(1, None, time_ms) for user, time_ms in times_ms.items()}


def test_those_go_first_whose_last_commit_is_older() -> None:
    users = traces(me=WINDOW_MS + 100, older=WINDOW_MS + 50, newer=WINDOW_MS + 150, stopped=99)
    assert users_ahead(users, "me") == {"older": WINDOW_MS + 50}
    assert users_ahead(users, "newer").keys() == {"me", "older"}
    assert users_ahead(users, "a new one") == {}


def test_a_user_that_did_not_come_is_waited_for_again_after_its_next_commit() -> None:
    absent = users_ahead(traces(me=20, other=10), "me")
    assert users_ahead(traces(me=30, other=10), "me", absent) == {}
    assert users_ahead(traces(me=30, other=25), "me", absent) == {"other": 25}


class Clock(Env):
    """A store whose clock goes on when somebody sleeps; then what the test wants to happen does."""

    def __init__(self) -> None:
        super().__init__(MemoryFileIO())
        self.time_ms = 1_000_000
        self.sleeps = 0
        self.on_sleep: Callable[[int], None] = lambda _: None

    @property
    def is_remote(self) -> bool:
        return True

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms

    def sleep_s(self, seconds: float) -> None:
        self.time_ms += int(seconds * 1000)
        self.sleeps += 1
        assert self.sleeps < SLEEPS_MAX, "it waits for ever"
        self.on_sleep(self.sleeps)


@pytest.fixture
def env() -> Clock:
    return Clock()


@pytest.fixture
def table(env: Clock) -> Table:
    made = Catalog("memory:/w", env=env).create_table("db.t", **TABLE)
    for user in ("a", "b", "c"):
        commit(made, user)
    return made


def commit(table: Table, user: str) -> None:
    with table.writer(user) as writer:
        writer.write({"k": [1]})
        writer.commit()


def lost(table: Table, user: str) -> CommitFairness:
    turns = CommitFairness(table.store, user, ForeignWriters(table.store))
    turns.look()
    turns.note_lost()
    return turns


def test_a_writer_that_has_lost_a_claim_waits_for_those_ahead(env: Clock, table: Table) -> None:
    turns = lost(table, "c")
    env.on_sleep = lambda count: commit(table, {2: "a", 4: "b"}[count]) if count in (2, 4) else None
    latest = turns.look().latest
    assert latest is not None
    assert (latest.commit_user, env.sleeps) == ("b", 4)
    turns.look()
    assert env.sleeps == 4, "it is the one whose last commit is the oldest"


def test_a_writer_whose_turn_it_is_does_not_wait(env: Clock, table: Table) -> None:
    lost(table, "a").look()
    assert env.sleeps == 0


def test_writers_that_have_stopped_are_waited_for_once(env: Clock, table: Table) -> None:
    turns = lost(table, "c")
    turns.look()
    waited = env.sleeps
    assert waited > 0
    turns.look()
    assert env.sleeps == waited


def test_a_commit_upon_a_view_that_was_not_waited_for_takes_its_own_time(env: Clock, table: Table) -> None:
    turns = CommitFairness(table.store, "c", ForeignWriters(table.store))
    turns.note_seen(ForeignWriters(table.store).look())
    turns.note_lost()
    started_ms = env.time_ms
    turns.look()
    assert 0 < env.time_ms - started_ms < 1000


def test_a_writer_that_pauses_between_its_commits_waits_for_nobody(env: Clock, table: Table) -> None:
    turns = CommitFairness(table.store, "c", ForeignWriters(table.store))
    turns.look()
    turns.note_won()
    env.time_ms += 60_000
    turns.look()
    assert env.sleeps == 0
    turns.note_won()
    turns.look()
    assert env.sleeps > 0, "without a pause it lets those go first that are ahead"


class Crowd(Clock):
    """Writers in threads, of which one runs at a time: who sleeps lets the one go on that wakes first. Each round of a
    commit takes its time between the look and the claim."""

    ROUND_S = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self._chance = random.Random(19)
        self._change = threading.Condition()
        self._wakes: list[tuple[float, int, int]] = []
        self._running: int | None = None

    def now_ms(self) -> int:
        return self.time_ms

    def jitter(self) -> float:
        return self._chance.random()

    def reach(self, point: CrashPoint) -> None:
        if point is CrashPoint.COMMIT_MANIFESTS_WRITTEN and self._running is not None:
            self.rounds += 1
            self.sleep_s(self.ROUND_S)

    def sleep_s(self, seconds: float) -> None:
        assert self._running is not None
        number = self._running
        with self._change:
            heapq.heappush(self._wakes, (self.time_ms + 1000 * seconds, len(self._wakes), number))
            self._go_on()
            assert self._change.wait_for(lambda: self._running == number, 120)

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Runs all from the same moment on; raises what one of them raises."""

        def run(number: int) -> None:
            with self._change:
                assert self._change.wait_for(lambda: self._running == number, 120)
            try:
                works[number]()
            finally:
                with self._change:
                    self._go_on()

        self._wakes = [(self.time_ms, 0, number) for number in range(len(works))]
        with ThreadPoolExecutor(len(works)) as threads:
            ends = [threads.submit(run, number) for number in range(len(works))]
            with self._change:
                self._go_on()
        for end in ends:
            end.result()

    def _go_on(self) -> None:
        self._running = None
        if self._wakes:
            wake_ms, _, self._running = heapq.heappop(self._wakes)
            self.time_ms = max(self.time_ms, int(wake_ms))
        self._change.notify_all()


@pytest.mark.parametrize("count", [4, 16, pytest.param(40, marks=pytest.mark.slow)])
def test_writers_that_come_at_once_all_make_their_first_commit(count: int) -> None:
    crowd = Crowd()
    made = Catalog("memory:/w", env=crowd).create_table("db.t", **TABLE)
    started_ms = crowd.time_ms
    crowd.run([partial(commit, made, f"u{number}") for number in range(count)])
    assert {snapshot.commit_user for snapshot in made.snapshots()} == {f"u{number}" for number in range(count)}
    assert crowd.time_ms - started_ms <= 3 * count * 1000 * crowd.ROUND_S, "of as many commits one after the other"
    assert crowd.rounds <= max(3, count / 3) * count, "where all try at once it is half the square of their number"


def test_a_writer_that_comes_to_others_makes_its_first_commit_soon() -> None:
    crowd = Crowd()
    made = Catalog("memory:/w", env=crowd).create_table("db.t", **TABLE)
    others, commits, came_ms, done_ms = 6, 8, 500, []

    def run(number: int) -> None:
        with made.writer(f"u{number}") as writer:
            for _ in range(commits):
                writer.write({"k": [number]})
                writer.commit()

    def come() -> None:
        crowd.sleep_s(came_ms / 1000)
        started_ms = crowd.time_ms
        commit(made, "new")
        done_ms.append(crowd.time_ms - started_ms)

    crowd.run([come, *(partial(run, number) for number in range(others))])
    assert len(made.snapshots()) == others * commits + 1
    assert done_ms[0] <= 3 * others * 1000 * crowd.ROUND_S


def test_a_commit_is_overtaken_by_each_other_user_before_its_retries_count(
    env: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**TABLE["options"], "commit.max-retries": "1", "commit.max-retry-wait": "10 ms"}
    made = Catalog("memory:/w", env=env).create_table("db.t", **{**TABLE, "options": options})
    commit(made, "me")
    others = iter([f"u{number}" for number in range(20)])
    is_inner = False

    def overtake(point: CrashPoint) -> None:
        nonlocal is_inner
        if point is CrashPoint.COMMIT_MANIFESTS_WRITTEN and not is_inner and (user := next(others, None)):
            is_inner = True
            commit(made, user)
            is_inner = False

    monkeypatch.setattr(env, "reach", overtake)
    commit(made, "me")
    assert [snapshot.commit_user for snapshot in made.snapshots()][-1] == "me"
    assert len(made.snapshots()) == 22
    others = iter(["u0"] * 100)
    with pytest.raises(RetryableError, match=r"other writers were faster.*commit\.max-retries"):
        commit(made, "me")


@pytest.mark.dear("three writers at a store at once")
def test_all_commits_of_writers_at_a_store_are_there_once(s3: S3Place) -> None:
    options = {**s3.options, "commit.coordination": "single-writer"}
    Catalog(s3.root, options=options).create_table(
        "db.t", schema={"k": "BIGINT"}, primary_keys=["k"], options={"bucket": "1", "write-only": "true"}
    )
    writers, commits = 3, 4

    def run(number: int) -> int:
        rewrites = 0
        with Catalog(s3.root, options=options).table("db.t").writer(f"u{number}") as writer:
            for count in range(commits):
                writer.write(pa.table({"k": pa.array([number * commits + count, -1], pa.int64())}))
                rewrites += writer.commit().rewrite_count
        return rewrites

    with ThreadPoolExecutor(writers) as threads:
        assert len(list(threads.map(run, range(writers)))) == writers
    table = Catalog(s3.root, options=options).table("db.t")
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [-1, *range(writers * commits)]
    made = [(snapshot.commit_user, snapshot.commit_identifier) for snapshot in table.snapshots()]
    assert sorted(made) == [(f"u{number}", count) for number in range(writers) for count in range(commits)]
