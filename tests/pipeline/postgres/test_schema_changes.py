"""What becomes of DDL at the source: the tables of the lake follow as those of Debezium's records do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.exceptions import PipelineFailedError
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

BEFORE = "INSERT INTO {t} VALUES (1, 10, 'a')"
CASES = {
    "a column is added": (
        ["ALTER TABLE {t} ADD COLUMN c numeric(12,3) DEFAULT 7", "INSERT INTO {t} VALUES (2, 20, 'b', 1.5)"],
        [(1, 10, "a", None), (2, 20, "b", "1.500")],
    ),
    "a column is dropped": (
        ["ALTER TABLE {t} DROP COLUMN b", "INSERT INTO {t} VALUES (2, 20)"],
        [(1, 10, "a"), (2, 20, None)],
    ),
    "a column is dropped and added again": (
        ["ALTER TABLE {t} DROP COLUMN b", "ALTER TABLE {t} ADD COLUMN b text", "INSERT INTO {t} VALUES (2, 20, 'b')"],
        [(1, 10, "a"), (2, 20, "b")],
    ),
    "a column is renamed": (
        ["ALTER TABLE {t} RENAME COLUMN b TO z", "INSERT INTO {t} VALUES (2, 20, 'b')"],
        [(1, 10, "a", None), (2, 20, None, "b")],
    ),
    "a type is widened": (
        ["ALTER TABLE {t} ALTER COLUMN a TYPE bigint", "INSERT INTO {t} VALUES (2, 20000000000, 'b')"],
        [(1, 10, "a"), (2, 20000000000, "b")],
    ),
    "in mid-transaction": (
        [
            "BEGIN; INSERT INTO {t} VALUES (2, 20, 'b'); ALTER TABLE {t} ADD COLUMN c int; "
            "INSERT INTO {t} VALUES (3, 30, 'c', 300); ALTER TABLE {t} DROP COLUMN a; "
            "INSERT INTO {t} VALUES (4, 'd', 4); COMMIT"
        ],
        [(1, 10, "a", None), (2, 20, "b", None), (3, 30, "c", 300), (4, None, "d", 4)],
    ),
}


@pytest.mark.dear("a pipeline on a real server")
def test_tables_follow(tmp_path: Path, postgres: PostgresSource) -> None:
    tables = {f"h{number}": name for number, name in enumerate(CASES)}
    for table in tables:
        postgres.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, a int, b text)")
    postgres.run(f"CREATE PUBLICATION p FOR TABLE {', '.join(tables)}")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run(*(BEFORE.format(t=table) for table in tables))
    streamed.run(SYNC)
    for table, name in tables.items():
        postgres.run(*(statement.format(t=table) for statement in CASES[name][0]))
    streamed.run(SYNC)
    found = {name: [_shown(row) for row in streamed.rows(f"db.{table}")] for table, name in tables.items()}
    assert found == {name: wanted for name, (_, wanted) in CASES.items()}


@pytest.mark.dear("a pipeline on a real server")
def test_a_table_that_is_renamed_goes_on_under_its_new_name(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1)", "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (2)")
    streamed.run(SYNC)
    assert [row["id"] for name in ("db.t", "db.u") for row in streamed.rows(name)] == [1, 2]


@pytest.mark.dear("a pipeline on a real server")
def test_a_type_that_no_column_takes_makes_dead_letters(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run("CREATE TABLE t (id bigint PRIMARY KEY, a int)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1, 1)")
    streamed.run(SYNC)
    postgres.run("ALTER TABLE t ALTER COLUMN a TYPE text USING 'x'", "INSERT INTO t VALUES (2, 'y'), (3, '3')")
    streamed.run(SYNC)
    assert [(row["id"], row["a"]) for row in streamed.rows("db.t")] == [(1, 1), (3, 3)]
    (letter,) = Catalog(tmp_path / "w").table("db.dead_letters").scan().to_arrow().to_pylist()
    assert letter["reason"] == "the value of field a does not fit INT"


KEYS = {
    "no key": (
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        r"the records of \w+\.public\.t have no key .* is id: ",
    ),
    "another": (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)",
        "(the key of the records .* is a .* is id: |got another key while it was copied)",
    ),
}


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("key", ["no key", pytest.param("another", marks=pytest.mark.slow)])
def test_a_table_that_loses_its_key_stops_the_pipeline(tmp_path: Path, postgres: PostgresSource, key: str) -> None:
    """Two of its rows would be one. A rule that names the key goes on, as does a table that is copied anew."""
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    postgres.run("INSERT INTO t VALUES (1, 1)")
    streamed.run(SYNC)
    statement, wanted = KEYS[key]
    postgres.run(statement, "INSERT INTO t VALUES (2, 2)")
    with pytest.raises(PipelineFailedError, match=f"{wanted}.*freshet resync FILE --table TABLE"):
        streamed.run(SYNC)
    assert streamed.rows("db.t") == [{"id": 1, "a": 1}]
    streamed.run(SYNC, rules='[{from: "[^.]*.public.t", to: "db.t", primary_key: [id]}]')
    assert streamed.rows("db.t") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("is_root", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_partitions(tmp_path: Path, postgres: PostgresSource, is_root: bool) -> None:
    postgres.run(
        "CREATE TABLE t (id bigint, a int, PRIMARY KEY (id, a)) PARTITION BY LIST (a)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)",
        f"CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = {is_root})",
    )
    streamed = Streamed(tmp_path, postgres, rules='[{from: "[^.]*.public.(.).*", to: "db.$1", merge: true}]')
    streamed.run(SYNC)
    postgres.run(
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 1)",
        "UPDATE t SET a = 1 WHERE id = 2",
        "UPDATE t SET a = 2 WHERE id = 1",
    )
    streamed.run(SYNC)
    assert [tuple(row.values()) for row in streamed.rows("db.t")] == [(1, 2), (2, 1), (3, 1)]


def _shown(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(value if value is None or isinstance(value, int) else str(value) for value in row.values())


@pytest.mark.slow
def test_dead_letters_are_replayed(tmp_path: Path, postgres: PostgresSource) -> None:
    columns = "v int, d date, n numeric(10, 2), z timestamptz, b bytea, r int[]"
    postgres.run(f"CREATE TABLE t (id bigint PRIMARY KEY, {columns})", "CREATE PUBLICATION p FOR TABLE t")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    row = "'2024-01-01', 1.5, '2024-01-02 03:04:05.6+00', '\\x00ff', '{1,NULL}')"
    postgres.run(f"INSERT INTO t VALUES (1, 1, {row}")
    streamed.run(SYNC)
    postgres.run("ALTER TABLE t ALTER COLUMN v TYPE text", f"INSERT INTO t VALUES (2, 'y', {row}")
    streamed.run(SYNC)
    warehouse = str(tmp_path / "w")
    for arguments in (
        ["sql", warehouse, "ALTER TABLE db.t ALTER COLUMN v TYPE STRING"],
        ["dead-letters", warehouse, "db.dead_letters", "--replay", str(tmp_path / "p.yaml")],
    ):
        subprocess.run([sys.executable, "-m", "freshet", *arguments], check=True, capture_output=True)
    first, second = streamed.rows("db.t")
    assert second == {**first, "id": 2, "v": "y"}
