"""Writers that commit to one table without a pause go in turn, where a lost round is six requests for nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.commit.last_commits import CommitTrace
from freshet.storage.commit.neighbours import Neighbours
from freshet.storage.commit.turns import WINDOW_MS, Turns, users_ahead
from freshet.storage.io.env import Env
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.table import Table
from tests.kit.s3_server import S3Place

SLEEPS_MAX = 100


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
    made = Catalog("memory:/w", env=env).create_table(
        "db.t", schema={"k": "BIGINT"}, primary_keys=["k"], options={"bucket": "1", "write-only": "true"}
    )
    for user in ("a", "b", "c"):
        commit(made, user)
    return made


def commit(table: Table, user: str) -> None:
    with table.writer(user) as writer:
        writer.write({"k": [1]})
        writer.commit()


def lost(table: Table, user: str) -> Turns:
    turns = Turns(table.store, user, Neighbours(table.store))
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


def test_a_writer_that_pauses_between_its_commits_waits_for_nobody(env: Clock, table: Table) -> None:
    turns = Turns(table.store, "c", Neighbours(table.store))
    turns.look()
    turns.note_won()
    env.time_ms += 60_000
    turns.look()
    assert env.sleeps == 0
    turns.note_won()
    turns.look()
    assert env.sleeps > 0, "without a pause it lets those go first that are ahead"


def test_all_commits_of_writers_at_a_store_are_there_once(s3: S3Place) -> None:
    options = {**s3.options, "commit.coordination": "single-writer"}
    Catalog(s3.root, options=options).create_table(
        "db.t", schema={"k": "BIGINT"}, primary_keys=["k"], options={"bucket": "1", "write-only": "true"}
    )
    writers, commits = 4, 5

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
