"""Changes of a real server in tables of the lake."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from freshet.pipeline.local import postgres_source
from freshet.pipeline.postgres import receiver
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

T = "CREATE TABLE t (id bigint PRIMARY KEY, name text, total numeric(10,2), big text)"
COLUMNS = "{id: BIGINT, name: STRING, total: 'DECIMAL(10, 2)', big: STRING}"


@pytest.mark.dear("a pipeline on a real server")
def test_changes_of_a_table_arrive(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres, columns=COLUMNS)
    streamed.run()
    postgres.run(
        "INSERT INTO t SELECT i, 'n' || i, i / 100.0, NULL FROM generate_series(1, 5) i",
        "UPDATE t SET total = 7 WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
    )
    streamed.run()
    assert [tuple(row.values()) for row in streamed.rows()] == postgres.rows("SELECT * FROM t ORDER BY id::text")


BIG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i)"
HISTORIES = {
    "unchanged TOAST": [f"INSERT INTO t VALUES (1, 'a', 1, {BIG})", "-", "UPDATE t SET name = 'b'"],
    "unchanged TOAST in the batch of the insert": [
        f"INSERT INTO t VALUES (1, 'a', 1, {BIG})", "UPDATE t SET name = 'b'",
    ],
    "unchanged TOAST and another key": [f"INSERT INTO t VALUES (1, 'a', 1, {BIG})", "-", "UPDATE t SET id = 2"],
    "another key twice": [
        f"INSERT INTO t VALUES (1, 'a', 1, {BIG})", "-", "UPDATE t SET id = 2", "UPDATE t SET id = 3, name = 'c'",
    ],
    "all in one transaction": [
        f"BEGIN; INSERT INTO t VALUES (1, 'a', 1, {BIG}); UPDATE t SET name = 'b'; UPDATE t SET id = 2; COMMIT",
    ],
    "two updates of a key": [
        "INSERT INTO t VALUES (1)", "BEGIN; UPDATE t SET total = 1; UPDATE t SET total = 2; COMMIT",
    ],
    "keys that are swapped": [
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "-",
        "BEGIN; UPDATE t SET id = 3 WHERE id = 1; UPDATE t SET id = 1 WHERE id = 2; "
        "UPDATE t SET id = 2 WHERE id = 3; COMMIT",
    ],
    "deleted and inserted": ["INSERT INTO t VALUES (1, 'a')", "BEGIN; DELETE FROM t; INSERT INTO t VALUES (1); COMMIT"],
    "savepoints and rollbacks": [
        "BEGIN; INSERT INTO t VALUES (1); SAVEPOINT a; INSERT INTO t VALUES (2); ROLLBACK TO a; COMMIT",
        "BEGIN; INSERT INTO t VALUES (3); ROLLBACK",
    ],
    "many rows of one position": ["INSERT INTO t SELECT i, repeat('x', i) FROM generate_series(1, 300) i"],
    "truncate": ["INSERT INTO t VALUES (1), (2)", "-", "TRUNCATE t ", "INSERT INTO t VALUES (3)"],
}  # fmt: skip


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("identity", ["DEFAULT", pytest.param("FULL", marks=pytest.mark.slow)])
def test_histories_end_as_at_the_source(tmp_path: Path, postgres: PostgresSource, identity: str) -> None:
    names = {f"h{number}": name for number, name in enumerate(HISTORIES)}
    for table in names:
        postgres.run(T.replace("TABLE t", f"TABLE {table}"), f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    postgres.run("CREATE PUBLICATION p FOR ALL TABLES")
    streamed = Streamed(tmp_path, postgres, more=", on_truncate: apply")
    streamed.run(SYNC)
    rounds = [" ".join(each).count(" - ") for each in HISTORIES.values()]
    for number in range(max(rounds) + 1):
        for table, name in names.items():
            parts = "\0".join(HISTORIES[name]).split("\0-\0")
            for statement in parts[number].split("\0") if number < len(parts) else ():
                postgres.run(statement.replace(" t ", f" {table} ").replace(" t;", f" {table};"))
        streamed.run(SYNC)
    found = {name: [tuple(row.values()) for row in streamed.rows(f"db.{table}")] for table, name in names.items()}
    wanted = {name: postgres.rows(f"SELECT * FROM {table} ORDER BY id::text") for table, name in names.items()}
    assert found == wanted


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("identity", ["DEFAULT", pytest.param("FULL", marks=pytest.mark.slow)])
def test_a_key_with_a_large_value_that_does_not_change(tmp_path: Path, postgres: PostgresSource, identity: str) -> None:
    """The server sends the old key with each update then, and the new row without that value."""
    postgres.run(
        "CREATE TABLE t (part text, id int, name text, big text, PRIMARY KEY (part, id)) WITH (toast_tuple_target=128)",
        f"ALTER TABLE t ALTER part SET STORAGE EXTERNAL, REPLICA IDENTITY {identity}",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    for statements in (
        [f"INSERT INTO t SELECT repeat('k', 500) || i % 2, i, 'a', {BIG} FROM generate_series(1, 6) i"],
        [
            "UPDATE t SET name = 'b' WHERE id = 1",
            "UPDATE t SET id = 20 WHERE id = 2",
            "UPDATE t SET id = 30, name = 'c', big = 'small' WHERE id = 3",
            "UPDATE t SET part = repeat('l', 500), name = 'd' WHERE id = 4",
            "DELETE FROM t WHERE id = 5",
        ],
    ):
        postgres.run(*statements)
        streamed.run(SYNC)
    assert [tuple(row.values()) for row in streamed.rows()] == postgres.rows("SELECT * FROM t ORDER BY part, id::text")


def test_variables_of_libpq_change_no_value(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATESTYLE", "SQL, DMY")
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGOPTIONS", "-c bytea_output=escape")
    row = "'2020-02-01', '[2020-02-01,2020-02-03)', '2020-02-01 10:00Z', '[2020-02-01 10:00Z,)', U&'\\00e9', '\\x00ff'"
    columns = "d date, ds daterange, at timestamptz, ats tstzrange, name text, content bytea"
    postgres.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", "CREATE PUBLICATION p FOR TABLE t")
    postgres.run(f"INSERT INTO t VALUES (1, {row})")
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC)
    postgres.run(f"INSERT INTO t VALUES (2, {row})")
    streamed.run(SYNC)
    copied, came = streamed.rows()
    assert copied == came | {"id": 1}
    assert (came["d"], came["at"]) == (date(2020, 2, 1), datetime(2020, 2, 1, 10, tzinfo=UTC))
    assert (came["ds"], came["ats"]) == ("[2020-02-01,2020-02-03)", '["2020-02-01 10:00:00+00",)')
    assert (came["name"], came["content"]) == ("é", b"\x00\xff")


@pytest.mark.slow
def test_more_than_is_held_at_once_is_read_in_batches(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(receiver, "HELD_MAX", 50_000)
    postgres.run(T, "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres, columns=COLUMNS)
    streamed.run()
    with postgres.connect() as connection:
        for number in range(2000):
            connection.execute(b"INSERT INTO t VALUES (%s, repeat('x', 100))", (number,))
    assert len(streamed.run()) > 5
    assert len(streamed.rows()) == 2000
