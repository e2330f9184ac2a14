"""A copy beside the stream on a real server: what was committed is counted once, however late others see it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_chunks import Bound, Chunk, CopyProgress
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.key_order import places_of_keys
from freshet.pipeline.postgres.source_types import TypesSeen
from freshet.pipeline.postgres.value_texts import SETTINGS_OPTION
from tests.kit.postgres_source import PostgresSource
from tests.kit.postgres_wire import Change, changes

WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"


class Lake:
    """Two tables of one copy: the last row of each key, and the sum of what each change adds to it."""

    def __init__(self, session: psycopg.Connection[object]) -> None:
        self.session = session
        table = CopiedTable.described(session, "public", "t")
        assert table is not None
        self.table, self.reader = table, ChunkReader(session, table)
        self.progress = CopyProgress()
        self.last: dict[str, str | None] = {}
        self.sums: dict[str, int] = {}

    def copy(self, until: Bound | None) -> bool:
        """Reads the next chunk, unless it has to wait for a transaction."""
        after = self.progress.after
        with self.reader.chunk(after, until, self.progress.may_be_read_in) as found:
            if found is None:
                return False
            snapshot, pieces = found
            rows = [(row["0"], row["1"]) for piece in pieces for row in piece.to_pylist()]
        self.progress = self.progress.with_chunk(Chunk(after, until, snapshot))
        self.last |= dict(rows)
        self.sums |= {key: int(number) for key, number in rows}
        return True

    def follow(self, consume: bool = True) -> list[Change]:
        """Applies what waits in the slot; gives the changes that count."""
        found = changes(self.session, "s", "p", consume=consume)
        columns = [self.table.columns[place] for place in self.table.key]
        keys = pa.array([change.row[0] for change in found], pa.string())
        places = places_of_keys(self.progress.bounds, [keys], columns, [TypesSeen().source_type(20)])
        assert places is not None
        transactions = np.array([change.xid for change in found], np.uint32)
        counts, self.progress = self.progress.applied(places, transactions)
        applied = [change for change, is_one in zip(found, counts, strict=True) if is_one]
        for change in applied:
            key = change.row[0]
            assert key is not None
            self.last[key] = change.row[1]
            self.sums[key] = self.sums.get(key, 0) + 1  # each change adds one
        return applied


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def prepared(postgres: PostgresSource, rows: int) -> None:
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, n bigint)",
        f"INSERT INTO t SELECT i, 0 FROM generate_series(1, {rows}) i",
        "CREATE PUBLICATION p FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )


@contextmanager
def hanging_commit(postgres: PostgresSource, statement: str) -> Iterator[Callable[[], None]]:
    """A transaction whose commit hangs until the block ends, or until what this gives is called."""

    def commit() -> None:
        with postgres.connect() as writer:
            writer.execute("SET synchronous_commit = on")
            writer.execute(statement.encode())

    with ThreadPoolExecutor(1) as other:
        commits = other.submit(commit)

        def release() -> None:
            wait_for(lambda: postgres.let_go() or commits.done())
            commits.result()

        try:
            yield release
        finally:
            release()


@pytest.mark.parametrize("copied_first", [True, False])
def test_a_commit_that_hangs(postgres: PostgresSource, copied_first: bool) -> None:
    """The stream has it and its place in the log is behind, but no snapshot holds it: the rule by LSN would take it for
    a part of the chunk, and lose it."""
    prepared(postgres, 4)
    with postgres.connect(options=SETTINGS_OPTION) as session:
        lake = Lake(session)
        with hanging_commit(postgres, "UPDATE t SET n = n + 1 WHERE id = 2") as released:
            wait_for(lambda: postgres.rows(WAITS) and changes(session, "s", "p"))
            postgres.run("UPDATE t SET n = n + 1 WHERE id = 3")  # later, and over
            assert postgres.rows("SELECT id, n FROM t WHERE id IN (2, 3) ORDER BY id") == [(2, 0), (3, 1)]
            if copied_first:
                assert lake.copy(None)
                assert [change.row for change in lake.follow()] == [["2", "1"]]
            else:
                assert lake.follow() == []
                assert not lake.copy(None), "it would bring the row of before, and the change is gone"
                released()
                assert lake.copy(None)
        postgres.run("UPDATE t SET n = n + 1 WHERE id <= 2")
        lake.follow()
        assert postgres.rows("SELECT id, n FROM t ORDER BY id") == [(1, 1), (2, 2), (3, 1), (4, 0)]
        assert lake.last == {"1": "1", "2": "2", "3": "1", "4": "0"}
        assert lake.sums == {key: int(number or 0) for key, number in lake.last.items()}


@pytest.mark.slow
def test_counters_are_right_whatever_writers_do(postgres: PostgresSource) -> None:
    """Four writers with savepoints and rollbacks, of which some commits hang; a copy in forty chunks meanwhile."""
    prepared(postgres, 400)
    ends = Event()

    def write(seed: int) -> int:
        chance, written = random.Random(seed), 0
        with postgres.connect() as writer:
            while not ends.is_set():
                hangs = "on" if chance.random() < 0.05 else "local"
                first, second, third = sorted(chance.sample(range(1, 401), 3))  # in order: no deadlocks
                writer.execute(
                    f"BEGIN; SET LOCAL synchronous_commit = {hangs}; UPDATE t SET n = n + 1 WHERE id = {first};"
                    f"SAVEPOINT a; UPDATE t SET n = n + 1 WHERE id = {second};"
                    f"SAVEPOINT b; UPDATE t SET n = n + 1 WHERE id = {third};"
                    f"{chance.choice(['ROLLBACK TO b;', 'RELEASE b;'])} COMMIT".encode()
                )
                written += 1
        return written

    def let_go() -> None:
        while not ends.is_set():
            postgres.let_go()
            ends.wait(0.05)
        wait_for(lambda: postgres.let_go() or all(each.done() for each in writers))

    with postgres.connect(options=SETTINGS_OPTION) as session, ThreadPoolExecutor(5) as others:
        lake = Lake(session)
        writers = [others.submit(write, seed) for seed in range(4)]
        helper = others.submit(let_go)
        try:
            waited = applied = 0
            for until in [*((str(10 * n),) for n in range(1, 40)), None]:
                while not lake.copy(until):
                    waited += 1
                applied += len(lake.follow())
            applied += len(lake.follow())
        finally:
            ends.set()
        assert sum(each.result() for each in writers) > 100
        helper.result()
        lake.follow()
        assert waited, "some chunk had to wait"
        assert applied, "some changes came beside the copy"
        expected = {str(key): number for key, number in postgres.rows("SELECT id, n FROM t")}
        assert lake.sums == expected
        assert {key: int(number or 0) for key, number in lake.last.items()} == expected
