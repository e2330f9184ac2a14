"""What is said of a server before a pipeline depends on it, and the commands for its slot."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from freshet import Catalog
from freshet.pipeline.checks.postgres_reach import database_problems, database_warnings
from freshet.pipeline.commands.slots import drop_slot, slots
from freshet.pipeline.config.pipeline_file import load_pipeline
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.local import postgres_source
from freshet.pipeline.local.postgres_offset import going_on_problems
from freshet.pipeline.local.workers import WorkerPool
from freshet.pipeline.postgres import receiver
from freshet.pipeline.postgres.replication import ReplicationStream
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.slots import Identity, identify
from freshet.pipeline.running.local_pipeline import LocalPipelines
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.runner import Runner
from freshet.pipeline.sync.database_resync import planned_resync
from freshet.pipeline.sync.routing_report import refusals, routed_tables
from tests.kit.postgres_server import USER
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import ALWAYS, SYNC, Streamed

T = "CREATE TABLE t (id bigint PRIMARY KEY, a int NOT NULL)"
P = "CREATE PUBLICATION p FOR TABLE t"
CASES = {
    "no publication": ([T], "CREATE PUBLICATION p FOR TABLE public.t"),
    "leaves out updates": ([T, f"{P} WITH (publish = 'insert')"], "leaves out update, delete, truncate"),
    "no such table": ([T, "CREATE PUBLICATION p"], "ADD TABLE public.t"),
    "no key": (["CREATE TABLE t (id bigint)", P], "ADD PRIMARY KEY"),
    "no key, but the whole row": (["CREATE TABLE t (id bigint)", "ALTER TABLE t REPLICA IDENTITY FULL", P], ""),
    "nothing": ([T, "ALTER TABLE t REPLICA IDENTITY NOTHING", P], "REPLICA IDENTITY DEFAULT"),
    "an index": (
        [T, "CREATE UNIQUE INDEX i ON t (a)", "ALTER TABLE t REPLICA IDENTITY USING INDEX i", P],
        "without the primary key",
    ),
    "all is well": ([T, P], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_server_lacks(tmp_path: Path, postgres: PostgresSource, name: str) -> None:
    statements, wanted = CASES[name]
    postgres.run(*statements)
    found = database_problems([Streamed(tmp_path, postgres, snapshot="initial").config(SYNC)])
    assert wanted in "\n".join(map(str, found))
    assert bool(found) is bool(wanted)


def test_what_becomes_of_each_table_is_said_before_the_first_run(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        'CREATE TABLE t (id bigint PRIMARY KEY, a int, "_KEY_id" int)', "CREATE TABLE u (a int)",
        "ALTER TABLE u REPLICA IDENTITY FULL", "CREATE PUBLICATION p FOR TABLE t, u",
    )  # fmt: skip
    config = Streamed(tmp_path, postgres, snapshot="initial").config(SYNC)
    assert isinstance(config, SyncPipelineConfig)
    routed = routed_tables(config) or []
    said = {each.target: each.text for each in routed}
    assert said["db.t"] == "is created: 2 columns, key id, without '_KEY_id', which cannot be a column"
    assert [each for each in refusals(config, routed) if "name no key" in each and "without_key: append" in each]


def test_patterns_that_take_no_table_are_told_what_they_are(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, P)
    (problem,) = database_problems([Streamed(tmp_path, postgres, tables="[public.(t|u)]").config(SYNC)])
    assert "has no table of public.(t|u): they are names as schema.table" in problem.message
    assert problem.message.endswith("no regular expressions; it has public.t")


def test_a_database_whose_texts_may_be_anything_is_warned_of(tmp_path: Path, postgres: PostgresSource) -> None:
    name = f"d{uuid4().hex[:12]}"
    made = f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    postgres.server.query(made)
    try:
        config = Streamed(tmp_path, PostgresSource(postgres.server, name)).config(SYNC)
        assert f"database {name} has the encoding SQL_ASCII" in "\n".join(database_warnings(config))
    finally:
        postgres.server.query(f"DROP DATABASE {name}")
    assert "SQL_ASCII" not in "\n".join(database_warnings(Streamed(tmp_path, postgres).config(SYNC)))


def test_rows_that_a_policy_hides_are_not_left_out(tmp_path: Path, postgres: PostgresSource) -> None:
    role = f"r{uuid4().hex[:12]}"
    postgres.run(
        T,
        P,
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{postgres.password}'",
        f"GRANT SELECT ON t TO {role}",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON t USING (id < 10)",
    )
    config = Streamed(tmp_path, postgres, snapshot="initial").config(SYNC)
    path = tmp_path / "p.yaml"
    path.write_text(path.read_text().replace(f"{USER}@", f"{role}@"))
    config = load_pipeline(path, {})
    try:
        assert "BYPASSRLS" in "\n".join(map(str, database_problems([config])))
        (source,) = config.sources
        assert source.postgres is not None
        with pytest.raises(PipelineFailedError, match="row-level security"):
            ServerPlace.of(source.postgres).rows("SELECT * FROM t")
    finally:
        postgres.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_database_is_not_read_on_spark(tmp_path: Path, postgres: PostgresSource) -> None:
    streamed = Streamed(tmp_path, postgres)
    with pytest.raises(ConfigurationError, match="sync-postgresql"):
        streamed.config(SYNC.replace("run_on: local", "run_on: spark"))


@pytest.mark.dear("a pipeline on a real server")
def test_slots(tmp_path: Path, postgres: PostgresSource, capsys: pytest.CaptureFixture[str]) -> None:
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    assert not going_on_problems([streamed.config(SYNC)])
    streamed.run(SYNC)
    slots(tmp_path / "p.yaml")
    said = capsys.readouterr().out
    assert "inactive, confirmed up to" in said
    assert "cannot go on" not in said
    drop_slot(tmp_path / "p.yaml", yes=True)
    assert "dropped" in capsys.readouterr().out
    slots(tmp_path / "p.yaml")
    assert "cannot go on: slot" in capsys.readouterr().out
    (problem,) = going_on_problems([streamed.config(SYNC)])
    assert "is not there any more" in problem.message
    with pytest.raises(PipelineFailedError, match="is not there any more"):
        streamed.run(SYNC)


@pytest.mark.dear("a pipeline on a real server")
def test_a_slot_of_others_is_left_alone(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    postgres.run(f"SELECT pg_create_logical_replication_slot('{streamed.slot}', 'pgoutput')")
    with pytest.raises(PipelineFailedError, match="has not made it"):
        streamed.run(SYNC)


@pytest.mark.dear("a pipeline on a real server")
def test_a_slot_that_is_ahead_of_the_lake_is_refused(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    while postgres.rows(f"SELECT FROM pg_replication_slots WHERE slot_name = '{streamed.slot}' AND active"):
        time.sleep(0.01)  # its process ends a little later than the connection
    postgres.run(
        "INSERT INTO t VALUES (1, 1)",
        f"SELECT pg_replication_slot_advance('{streamed.slot}', pg_current_wal_lsn())",
    )
    (problem,) = going_on_problems([streamed.config(SYNC)])
    assert "confirmed by somebody else" in problem.message
    with pytest.raises(PipelineFailedError, match="confirmed by somebody else"):
        streamed.run(SYNC)


NARROWED = {
    "a table taken out": ("ALTER PUBLICATION p SET TABLE t", "does not have public.u any more"),
    "fewer rows": ("ALTER PUBLICATION p SET TABLE t, u WHERE (id > 5)", "has other rows of public.u"),
    "a table that was not there for a while": (
        "ALTER PUBLICATION p DROP TABLE u; INSERT INTO u VALUES (7); ALTER PUBLICATION p ADD TABLE u",
        "table public.u was taken out of publication p and given to it again",
    ),
    "no updates for a while": (
        "ALTER PUBLICATION p SET (publish = 'insert'); "
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
        "publication p was altered",
    ),
    "another owner": ("ALTER PUBLICATION p OWNER TO pg_monitor", ""),
    "the same tables once more": ("ALTER PUBLICATION p SET TABLE u, t", ""),
    "a table that is dropped": ("DROP TABLE u", ""),
    "a table that is made again": (
        "DROP TABLE u; CREATE TABLE u (id bigint PRIMARY KEY); ALTER PUBLICATION p ADD TABLE u",
        "table public.u is another one than before",
    ),
    "a table that is renamed": ("ALTER TABLE u RENAME TO v", ""),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if number == 0 else pytest.mark.slow) for number, name in enumerate(NARROWED)]
)
@pytest.mark.dear("a pipeline on a real server")
def test_a_publication_that_has_less_than_before(
    tmp_path: Path, postgres: PostgresSource, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    statement, wanted = NARROWED[name]
    postgres.run(T, "CREATE TABLE u (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t, u")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run(statement, "INSERT INTO t VALUES (1, 1)")
    assert wanted in "".join(each.message for each in going_on_problems([streamed.config(SYNC)]))
    with pytest.raises(PipelineFailedError, match=wanted) if wanted else nullcontext():
        streamed.run(SYNC)
    assert ("u is not there any more" in caplog.text) is (
        name in ("a table that is dropped", "a table that is renamed")
    )
    if "out" in name:
        streamed.run(SYNC, tables='["public.t"]')
        assert len(streamed.rows()) == 1


@pytest.mark.dear("a pipeline on a real server")
def test_a_table_that_is_left_out_of_a_file_for_a_while_lacks_changes(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, "CREATE TABLE u (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t, u")
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    postgres.run("INSERT INTO u VALUES (1)")
    streamed.run(SYNC)
    for number in (2, 3):
        postgres.run(f"INSERT INTO u VALUES ({number})", f"INSERT INTO t VALUES ({number}, 1)")
        streamed.run(SYNC, tables='["public.t"]')
    (problem,) = going_on_problems([streamed.config(SYNC)])
    assert "public.u was left out of postgres.tables" in problem.message
    with pytest.raises(PipelineFailedError, match=r"public\.u was left out of postgres\.tables.*resync FILE --table"):
        streamed.run(SYNC)
    planned_resync(streamed.config(SYNC), "db.u").run()
    streamed.run(SYNC)
    assert sorted(row["id"] for row in streamed.rows("db.u")) == [1, 2, 3]
    assert len(streamed.rows("db.t")) == 2


@pytest.mark.dear("a pipeline on a real server")
def test_a_publication_is_looked_at_while_it_runs(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "LOOK_S", 0.0)
    postgres.run(T, "CREATE TABLE u (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t, u")
    streamed = Streamed(tmp_path, postgres)

    def narrowed(progress: Progress) -> None:
        postgres.run("ALTER PUBLICATION p SET TABLE t", "INSERT INTO t VALUES (2, 1)")

    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1, 1)")
    config = streamed.config(SYNC, trigger=ALWAYS)
    with pytest.raises(PipelineFailedError, match=r"does not have public\.u any more"):
        Runner(LocalPipelines(WorkerPool(0)), [config], on_progress=narrowed).run()


@pytest.mark.dear("a pipeline on a real server")
def test_a_table_that_was_rolled_back_is_read_anew_by_a_new_copy(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    for number in (0, 1, 2):  # the slot begins with the first
        postgres.run(f"INSERT INTO t VALUES ({number}, 1)")
        streamed.run(SYNC)
    Catalog(tmp_path / "w").table("db.t").rollback(1)
    postgres.run("INSERT INTO t VALUES (3, 1)")
    with pytest.raises(PipelineFailedError, match=r"copy it again, .* freshet resync FILE --table db\.t"):
        streamed.run(SYNC)


@pytest.mark.dear("a pipeline on a real server")
def test_a_publication_that_was_made_again(tmp_path: Path, postgres: PostgresSource) -> None:
    """Up to 17 the change in between stops the slot for good; 18 skips it."""
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("DROP PUBLICATION p", "INSERT INTO t VALUES (1, 1)", P)
    (problem,) = going_on_problems([streamed.config(SYNC)])
    assert "publication p is another one than before" in problem.message
    with pytest.raises(PipelineFailedError, match="publication p is another one than before"):
        streamed.run(SYNC)


@pytest.mark.dear("a pipeline on a real server")
def test_streams_that_end_at_once_are_not_opened_for_ever(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1, 1)")

    def ends(stream: ReplicationStream) -> list[Any]:
        raise PipelineFailedError("the stream has ended", kind=ErrorKind.RETRYABLE)

    monkeypatch.setattr(receiver, "RECONNECT_S", 0.1)
    monkeypatch.setattr(ReplicationStream, "drain", ends)
    with pytest.raises(PipelineFailedError, match="the stream has ended"):
        streamed.run(SYNC)


@pytest.mark.dear("a pipeline on a real server")
def test_a_log_that_ends_in_the_middle_of_a_record(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is a position that the stream does not come to."""
    postgres.run(T, P)
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("INSERT INTO t VALUES (1, 1)")

    def beyond(connection: Any) -> Identity:
        found = identify(connection)
        return Identity(found.systemid, found.timeline, found.lsn + (1 << 20), found.database)

    monkeypatch.setattr(postgres_source, "identify", beyond)
    monkeypatch.setattr(receiver, "AT_END_S", 0.1)
    streamed.run(SYNC)
    assert len(streamed.rows()) == 1
