"""Transactions that are larger than what is held in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.local import postgres_copy, postgres_source
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.postgres import copied_table, received, receiver, replication, spilled_messages
from freshet.pipeline.postgres.received import Received
from freshet.pipeline.postgres.spilled_messages import SpilledMessages, TransactionFile, runs_of
from freshet.pipeline.postgres.wire import messages_of
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.runner import Runner
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed
from tests.pipeline.postgres.test_copy_beside_changes import between_chunks
from tests.pipeline.postgres.test_received import _transaction


def _made_small(monkeypatch: pytest.MonkeyPatch) -> list[SpilledMessages]:
    """What goes to files from now on, which is nearly all."""
    monkeypatch.setattr(received, "KEPT_MAX", 20_000)
    monkeypatch.setattr(postgres_source, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(receiver, "HELD_MAX", 20_000)
    monkeypatch.setattr(replication, "DRAINED_BYTES", 10_000)
    monkeypatch.setattr(spilled_messages, "RUN_BYTES", 30_000)
    found: list[SpilledMessages] = []
    put = TransactionFile.put
    monkeypatch.setattr(TransactionFile, "put", lambda self, messages: found.append(put(self, messages)) or found[-1])
    return found


def test_its_messages_come_back_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled = _made_small(monkeypatch)
    held = Received(0, TransactionFile())
    frames = [*_transaction(20, 3000), *_transaction(30, 1)]
    for at in range(0, len(frames), 100):
        held.add(messages_of(frames[at : at + 100])[0])
    held.forget_part()
    span = held.up_to(20)
    assert span is not None
    assert span.weight == 3000
    assert b"".join(messages.data for _, messages in runs_of(span.parts)) == b"".join(frames[:3002])
    assert max(len(messages.data) for parts, messages in runs_of(span.parts) if parts) < 35_000
    folder = Path(spilled[0].path).parent
    assert folder.exists()
    held.drop(20)
    assert held.end == 30
    assert not folder.exists()


@pytest.mark.dear("a pipeline on a real server")
def test_a_transaction_is_one_batch_however_large_it_is(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled = _made_small(monkeypatch)
    big = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i)"
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text)",
        "CREATE TABLE u (id bigint PRIMARY KEY, name text, big text)",
        "CREATE PUBLICATION p FOR TABLE t, u",
    )
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    with postgres.connect(autocommit=False) as connection:
        connection.execute(b"INSERT INTO t VALUES (0, 'before')")
        connection.commit()
        for start in range(1, 2001, 500):
            rows = f"generate_series({start}, {start + 499}) i"
            connection.execute(f"INSERT INTO t (id, name) SELECT i, repeat('x', 90) FROM {rows}".encode())
            connection.execute(f"INSERT INTO u (id, name, big) SELECT i, 'a', {big} FROM {rows} LIMIT 9".encode())
            connection.execute(f"ALTER TABLE t ADD COLUMN c{start} bigint DEFAULT {start}".encode())
            connection.execute(b"UPDATE u SET name = 'b' || id WHERE id % 2 = 0")
            connection.execute(f"UPDATE t SET id = id + 100000 WHERE id BETWEEN {start} AND {start + 20}".encode())
            connection.execute(f"DELETE FROM t WHERE id BETWEEN {start + 30} AND {start + 40}".encode())
        connection.commit()
        connection.execute(b"UPDATE t SET name = 'after' WHERE id = 0")
        connection.commit()
    batches = streamed.run(SYNC)
    assert len(spilled) > 5
    assert len(batches) <= 3
    columns = "id, name, c1, c501, c1001, c1501"
    for table, names in (("t", columns), ("u", "id, name, big")):
        found = sorted(tuple(row[name] for name in names.split(", ")) for row in streamed.rows(f"db.{table}"))
        wanted = postgres.rows(f"SELECT {names} FROM {table} ORDER BY id")
        assert [row[:2] for row in found] == [row[:2] for row in wanted]
        assert table == "t" or found == wanted
    assert not any(Path(each.path).exists() for each in spilled)


@pytest.mark.slow
@pytest.mark.parametrize("beside_a_copy", [False, True])
def test_keys_that_change_in_it(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, beside_a_copy: bool
) -> None:
    """Large values that did not change go with their rows: of rows that were there, that came with the transaction, and
    that get another key twice; a copy has some of the old keys, and some of the new ones."""
    spilled = _made_small(monkeypatch)
    big = "(SELECT string_agg(md5(i::text || k), '') FROM generate_series(1, 200) k)"
    postgres.run(
        "CREATE TABLE u (id bigint PRIMARY KEY, n int, big text)",
        "CREATE TABLE others (id bigint PRIMARY KEY, name text)",
        f"INSERT INTO u SELECT i, i, {big} FROM generate_series(1, 200) i",
        "INSERT INTO others SELECT i, 'a' FROM generate_series(1, 200) i",
        "CREATE PUBLICATION p FOR TABLE u, others",
    )
    changes = [
        "INSERT INTO others SELECT i, repeat('x', 90) FROM generate_series(1001, 2000) i",
        "UPDATE u SET id = -id WHERE id % 3 = 0",
        "UPDATE u SET id = id + 1000 WHERE id % 5 = 0 AND id > 0",
        f"INSERT INTO u SELECT i, i, {big} FROM generate_series(301, 350) i",
        "UPDATE u SET n = n + 1 WHERE id % 2 = 0",
        "INSERT INTO others SELECT i, repeat('x', 90) FROM generate_series(2001, 3000) i",
        "UPDATE u SET id = id + 5000 WHERE id > 300",
        "DELETE FROM u WHERE id % 7 = 1",
        "UPDATE others SET id = -id, name = 'moved' WHERE id % 2 = 0",
    ]

    def change() -> None:
        with postgres.connect(autocommit=False) as connection:
            for statement in changes:
                connection.execute(statement.encode())
            connection.commit()

    streamed = Streamed(tmp_path, postgres, snapshot="initial", options='bucket: "4"')
    if beside_a_copy:
        monkeypatch.setattr(copied_table, "CHUNK_ROWS_MIN", 20)
        monkeypatch.setattr(copied_table, "CHUNK_ROWS_MAX", 50)
        monkeypatch.setattr(postgres_copy, "CHUNKS_MAX", 2)
        between_chunks(monkeypatch, lambda count: change() if count == 2 else None)
    with WorkerPool(2) as pool:
        Runner(LocalPipelines(pool), [streamed.config(SYNC)]).run()
        if not beside_a_copy:
            change()
            Runner(LocalPipelines(pool), [streamed.config(SYNC)]).run()
    assert len(spilled) > 5
    for table in ("u", "others"):
        found = sorted(tuple(row.values()) for row in streamed.rows(f"db.{table}"))
        assert found == postgres.rows(f"SELECT * FROM {table} ORDER BY 1"), table
