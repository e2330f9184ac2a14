"""A copy beside the stream on a real server: what was committed is counted once, however late others see it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from freshet import Catalog
from freshet.pipeline.commands.resume import resync
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local import postgres_copy
from freshet.pipeline.local.postgres_copy import TableCopy
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.postgres import copied_table
from freshet.pipeline.postgres.copy_state import CopyState
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.restarts import RestartRule
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

SUMS = "merge-engine: aggregation, fields.v.aggregate-function: sum"
RULES = '[{from: "[^.]*.public.t", to: "db.t"}, {from: "[^.]*.public.s", to: "db.s", options: {' + SUMS + "}}]"
LARGE = "(SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 200) j)"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MIN", 7)
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MAX", 35)
    monkeypatch.setattr(postgres_copy, "CHUNKS_MAX", 1)


def between_chunks(monkeypatch: pytest.MonkeyPatch, turn: Callable[[int], None]) -> None:
    """Before the next chunk is planned, with the number of those that are in the lake."""
    plan = TableCopy.plan

    def planned(copy: TableCopy, begun: CopyState) -> Any:
        turn(sum(each.count for each in begun.progress.values()))
        return plan(copy, begun)

    monkeypatch.setattr(TableCopy, "plan", planned)


def same(streamed: Streamed, *tables: str) -> bool:
    for table in tables:
        found = sorted(tuple(row.values()) for row in streamed.rows(f"db.{table}"))
        assert found == sorted(streamed.source.rows(f"SELECT * FROM {table}")), table
    return True


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.dear("a pipeline on a real server")
def test_changes_come_while_the_copy_goes_on(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that are copied; those of rows that come are in their chunk. The server keeps no log for the copy."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    streamed, seen, kept = Streamed(tmp_path, postgres, snapshot="initial"), list[Any](), list[Any]()

    def turn(count: int) -> None:
        if count > 2:
            seen.append({row["id"]: row["v"] for row in streamed.rows()})
            kept.extend(postgres.rows("SELECT confirmed_flush_lsn::text FROM pg_replication_slots"))
        if count == 2:
            postgres.run(
                "UPDATE t SET v = 1 WHERE id IN (3, 55)",
                "DELETE FROM t WHERE id IN (4, 56)",
                "INSERT INTO t VALUES (0, 7)",
            )
            [(lsn,)] = postgres.rows("SELECT pg_current_wal_lsn()::text")
            wait_for(lambda: postgres.rows(f"SELECT 1 FROM pg_stat_replication WHERE sent_lsn >= '{lsn}'"))
            time.sleep(0.1)

    between_chunks(monkeypatch, turn)
    streamed.run(SYNC)
    last = seen[-1]
    assert (last[3], last[0], 4 in last) == (1, 7, False)
    assert 60 not in last
    assert len(set(kept)) > 1
    assert same(streamed, "t")


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


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("begins", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_commit_that_hangs(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, begins: int
) -> None:
    """The stream has it and its place in the log is behind, but no snapshot holds it: the rule by LSN would take it for
    a part of the chunks, and lose it. It changes a row of a chunk that is copied, of one that is copied meanwhile, and
    of one that is copied after."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE s (id int PRIMARY KEY, v int)",
        "ALTER TABLE s REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i",
        "INSERT INTO s SELECT i, 0 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t, s",
    )
    hanging: list[Any] = []
    changes = "UPDATE {0} SET v = v + 1 WHERE id IN (3, 25, 59); INSERT INTO {0} VALUES ({1}, 1);"

    def turn(count: int) -> None:
        if count == begins:
            commit = hanging_commit(postgres, "BEGIN; " + changes.format("t", 70) + changes.format("s", 70) + "COMMIT")
            hanging.extend([commit, commit.__enter__()])
            wait_for(lambda: postgres.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        others = changes.replace("3, 25, 59", "4, 26, 60")
        postgres.run(others.format("t", 100 + count), others.format("s", 100 + count))
        if count == begins + 12:
            assert postgres.rows("SELECT id FROM t WHERE id = 70") == []
            hanging[1]()

    between_chunks(monkeypatch, turn)
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=RULES)
    streamed.run(SYNC)
    hanging[0].__exit__(None, None, None)
    streamed.run(SYNC)
    assert postgres.rows("SELECT count(*) FROM s WHERE id = 70") == [(1,)]
    assert same(streamed, "t", "s")


@pytest.mark.dear("a pipeline on a real server")
def test_a_row_whose_key_changed_between_two_chunks(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither chunk has the row, and the change has not its large value: it is read again."""
    postgres.run(
        'CREATE TABLE t (id text COLLATE "C" PRIMARY KEY, v int, big text, n text)',
        f"INSERT INTO t SELECT lpad(i::text, 3, '0'), i, {LARGE}, NULL FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )

    def turn(count: int) -> None:
        if count == 3:
            postgres.run("UPDATE t SET id = '0' || id WHERE v = 50", "UPDATE t SET id = '9' || id, n = 'x' WHERE v = 2")
            postgres.run("UPDATE t SET v = v + 1000 WHERE v IN (2, 50)")

    between_chunks(monkeypatch, turn)
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC)
    assert [len(str(big)) for (big,) in postgres.rows("SELECT big FROM t WHERE v > 1000")] == [6400, 6400]
    assert same(streamed, "t")


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("at", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_a_table_that_is_truncated_meanwhile(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before its first chunk it is as any change; between two the rows of some are from before."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )

    def turn(count: int) -> None:
        if count == at:
            postgres.run("TRUNCATE t", "INSERT INTO t SELECT i, 1 FROM generate_series(1, 60, 2) i")

    between_chunks(monkeypatch, turn)
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    if at:
        with pytest.raises(PipelineFailedError, match=r"public\.t was truncated while it was copied"):
            streamed.run(SYNC)
    else:
        streamed.run(SYNC)
        assert same(streamed, "t")


@pytest.mark.dear("a pipeline on a real server")
def test_a_table_that_is_altered_or_renamed_meanwhile(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are copied already are not sent again, as after any ALTER TABLE."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, gone int)",
        "INSERT INTO t SELECT i, 0, 1 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )

    def turn(count: int) -> None:
        if count == 2:
            postgres.run(
                "ALTER TABLE t ADD COLUMN w int DEFAULT 5, DROP COLUMN gone, ALTER COLUMN v TYPE bigint",
                "UPDATE t SET v = 10000000000 WHERE id IN (1, 50)",
            )
        if count == 3:
            postgres.run("ALTER TABLE t RENAME TO u")

    between_chunks(monkeypatch, turn)
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    with pytest.raises(PipelineFailedError, match=r"table public\.t is u since it was renamed"):
        streamed.run(SYNC)
    monkeypatch.undo()
    postgres.run("ALTER TABLE u RENAME TO t")
    streamed.run(SYNC)
    rows = {row["id"]: (row["v"], row["w"]) for row in streamed.rows("db.t")}
    assert {key: rows[key] for key in (1, 2, 21, 50, 60)} == {
        1: (10**10, 5), 2: (0, None), 21: (0, 5), 50: (10**10, 5), 60: (0, 5),
    }  # fmt: skip
    assert len(rows) == 60


@pytest.mark.dear("a pipeline on a real server")
def test_who_alters_a_table_does_not_wait_for_who_waits_for_him(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He waits for the snapshot of the batch, and whoever reads the table next waits for him: a worker must not."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    pieces, altering = TableCopy.pieces, list[Any]()

    def alter() -> None:
        postgres.run("SET lock_timeout = '30 s'", "ALTER TABLE t ALTER COLUMN v TYPE bigint")

    with ThreadPoolExecutor(1) as other:

        def planned(copy: TableCopy, begun: Any, ends: Any, *others: Any) -> Any:
            found = list(pieces(copy, begun, ends, *others))
            if ends.copy is not None and ends.copy.of(("public", "t")).count == 3 and not altering:
                altering.append(other.submit(alter))
                wait_for(lambda: postgres.rows("SELECT 1 FROM pg_locks WHERE NOT granted"))
            return found

        monkeypatch.setattr(TableCopy, "pieces", planned)
        streamed = Streamed(tmp_path, postgres, snapshot="initial")
        config = streamed.config(SYNC)
        Runner(LocalPipelines(WorkerPool(0)), [config], restarts=RestartRule(3, first_wait_s=0.1)).run()
        altering[0].result()
    assert same(streamed, "t")


KEYS = {
    "a column more": "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, v)",
    "none": "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "another name": "ALTER TABLE t RENAME COLUMN id TO nr",
    "another order": "ALTER TABLE t ALTER COLUMN id TYPE text",
}


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("key", ["another order", *(pytest.param(key, marks=pytest.mark.slow) for key in [*KEYS][:3])])
def test_a_table_that_gets_another_key_meanwhile(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Its chunks are ranges of the one before: changes of the rest would be taken for those of a chunk that comes."""
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    changes = ["UPDATE t SET v = 1 WHERE id = 3", KEYS[key], "INSERT INTO t VALUES (70, 2)"]
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    with monkeypatch.context() as patched:
        between_chunks(patched, lambda count: postgres.run(*changes) if count == 2 else None)
        with pytest.raises(PipelineFailedError, match=r"public\.t got another key .* resync FILE --table TABLE"):
            streamed.run(SYNC)
    Catalog(tmp_path / "w").drop_table("db.t")
    resync(tmp_path / "p.yaml", "db.t", yes=True)
    append = ', without_key: append, options: {bucket: "-1"}' if key == "none" else ""
    streamed.run(SYNC, rules='[{from: "[^.]*.public.(.*)", to: "db.{table}"' + append + "}]")
    assert same(streamed, "t")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_counters_are_right_whatever_writers_do(
    tmp_path: Path, postgres: PostgresSource, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four writers with savepoints, rollbacks and keys that change, of which some commits hang; a copy in many chunks
    meanwhile, a table that comes later, and one without a key."""
    for table in ("t", "s", "k", "later"):
        key = "" if table == "k" else " PRIMARY KEY"
        postgres.run(
            f"CREATE TABLE {table} (id int{key}, v int, big text)",
            f"INSERT INTO {table} SELECT i, 0, {LARGE} FROM generate_series(1, 200) i",
        )
    postgres.run(
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("s", "k")),
        "CREATE PUBLICATION p FOR TABLE t, s, k",
    )
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MAX", 100)
    ends, waited = Event(), list[int]()

    def write(number: int) -> int:
        chance, written = random.Random(seed * 10 + number), 0
        with postgres.connect() as writer:
            while not ends.is_set():
                hangs = "on" if chance.random() < 0.05 else "local"
                first, second, third = sorted(chance.sample(range(1, 201), 3))  # in order: no deadlocks
                update = " ".join(
                    f"UPDATE {table} SET v = v + 1 WHERE id = {{0}};" for table in ("k", "later", "s", "t")
                )
                moved = f"UPDATE t SET id = id + 1000 * {number + 1} WHERE id = {second};" if written % 5 == 0 else ""
                writer.execute(
                    f"BEGIN; SET LOCAL synchronous_commit = {hangs}; {update.format(first)}"
                    f"SAVEPOINT a; {update.format(second)} {moved}"
                    f"SAVEPOINT b; {update.format(third)}"
                    f"{chance.choice(['ROLLBACK TO b;', 'RELEASE b;'])} COMMIT".encode()
                )
                written += 1
                time.sleep(0.01 if written < 300 else 0.3)  # or a busy machine is ever further behind
        return written

    def let_go() -> None:
        while not ends.is_set():
            waited.append(postgres.let_go())
            ends.wait(0.05)
        wait_for(lambda: postgres.let_go() or all(each.done() for each in writers))

    def turn(count: int) -> None:
        if count == 12:
            postgres.run("ALTER PUBLICATION p ADD TABLE later")
        time.sleep(0.02)

    between_chunks(monkeypatch, turn)
    rules = '[{from: "[^.]*.public.([tk])", to: "db.{table}", primary_key: [id]}, '
    rules += '{from: "[^.]*.public.(s|later)", to: "db.{table}", options: {' + SUMS + "}}]"
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=rules)
    postgres.run("ALTER TABLE later REPLICA IDENTITY FULL")
    with ThreadPoolExecutor(5) as others:
        writers = [others.submit(write, number) for number in range(4)]
        helper = others.submit(let_go)
        try:
            streamed.run(SYNC)
        finally:
            ends.set()
        assert sum(each.result() for each in writers) > 100
        helper.result()
    streamed.run(SYNC)
    assert any(waited)
    assert same(streamed, "t", "s", "k", "later")
