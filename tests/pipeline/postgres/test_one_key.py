"""A database into one table: its rows keep apart what their own primary key keeps apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local.postgres_offset import going_on_problems
from freshet.pipeline.sync.database_resync import planned_resync
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import ONE, Streamed

STOPS = {
    "no key": ("ALTER TABLE t DROP CONSTRAINT t_pkey", r"table public\.t has no primary key any more \(it was id\)"),
    "another": ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)", r"the primary key of .* is a \(it was id"),
    "a wider one": ("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)", "is id, a "),
}
FULL = "ALTER TABLE t REPLICA IDENTITY FULL"


def _begun(tmp_path: Path, postgres: PostgresSource, *statements: str, **said: str) -> Streamed:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL)", "CREATE PUBLICATION p FOR TABLE t", *statements)
    streamed = Streamed(tmp_path, postgres, columns="{id: INT, a: INT}", snapshot="initial", **said)
    postgres.run("INSERT INTO t VALUES (1, 1)")
    streamed.run(ONE)
    return streamed


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("is_full", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "key", ["a wider one", *(pytest.param(each, marks=pytest.mark.slow) for each in ("no key", "another"))]
)
def test_another_key_stops_the_pipeline(tmp_path: Path, postgres: PostgresSource, key: str, is_full: bool) -> None:
    """Two rows of the source would be one. Where that is meant, or never is so, the rows are copied again."""
    streamed = _begun(tmp_path, postgres, *([FULL] if is_full else []))
    statement, wanted = STOPS[key]
    postgres.run(statement, "INSERT INTO t VALUES (2, 2)")
    for _ in range(2):
        with pytest.raises(PipelineFailedError, match=f"{wanted}.*freshet resync FILE"):
            streamed.run(ONE)
    (problem,) = going_on_problems([streamed.config(ONE)])
    assert "freshet resync FILE" in problem.message
    assert streamed.rows() == [{"id": 1, "a": 1}]
    planned_resync(streamed.config(ONE), None if is_full else "db.t").run()
    for number in range(2):
        streamed.run(ONE)
        assert sorted(tuple(row.values()) for row in streamed.rows()) == postgres.rows("SELECT * FROM t ORDER BY 1, 2")
        postgres.run(f"INSERT INTO t VALUES ({10 + number}, {10 + number})")


@pytest.mark.slow
def test_a_key_that_was_another_one_for_a_while(tmp_path: Path, postgres: PostgresSource) -> None:
    """The changes say so: the deletion would take the row away that is left."""
    streamed = _begun(tmp_path, postgres)
    postgres.run(STOPS["a wider one"][0], "INSERT INTO t VALUES (2, 2), (2, 3)", "DELETE FROM t WHERE a = 3")
    postgres.run("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)")
    with pytest.raises(PipelineFailedError, match="is id, a .*freshet resync FILE"):
        streamed.run(ONE)
    assert streamed.rows() == [{"id": 1, "a": 1}]


GOES_ON = {
    "a narrower one": ("id, a", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)"),
    "the key has another name": ("id", "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT k PRIMARY KEY (id)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("key", GOES_ON)
def test_keys_of_the_source_that_keep_its_rows_apart(tmp_path: Path, postgres: PostgresSource, key: str) -> None:
    lake, statement = GOES_ON[key]
    streamed = _begun(tmp_path, postgres, FULL, key=lake)
    postgres.run(statement, "INSERT INTO t VALUES (2, 2)")
    streamed.run(ONE)
    assert len(streamed.rows()) == 2


@pytest.mark.slow
def test_a_table_of_the_lake_that_has_another_key_from_the_start(tmp_path: Path, postgres: PostgresSource) -> None:
    """That rows of the source are one is what the file says."""
    streamed = _begun(tmp_path, postgres, FULL, key="a")
    postgres.run(STOPS["no key"][0], "INSERT INTO t VALUES (2, 1)")
    streamed.run(ONE)
    assert streamed.rows() == [{"id": 2, "a": 1}]
