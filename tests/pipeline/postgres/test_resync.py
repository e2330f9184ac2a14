"""Tables of a database that are emptied and copied again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from freshet import Catalog
from freshet.pipeline.commands.resume import resume, resync
from freshet.pipeline.exceptions import InvalidRequestError, PipelineFailedError
from freshet.pipeline.local.local_query import BatchPoint, LocalQuery
from freshet.pipeline.local.postgres_offset import going_on_problems
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.slots import drop_slot
from freshet.pipeline.sync import database_resync
from freshet.pipeline.sync.database_resync import planned_resync
from freshet.pipeline.sync.database_targets import targets_of
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import ONE, SYNC, Streamed

RULES = '[{from: "[^.]*.public.a", to: "db.a", options: {merge-engine: aggregation, fields.v.aggregate-function: sum}},'
RULES += '{from: "[^.]*.public.(.*)", to: "db.{table}"}]'


def _begun(tmp_path: Path, postgres: PostgresSource) -> Streamed:
    """A pipeline that has copied two tables, one of which is summed up, and has read a change of each."""
    for table in ("a", "t"):
        postgres.run(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, v bigint)",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 20) i",
        )
    postgres.run("CREATE PUBLICATION p FOR TABLE a, t")
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=RULES)
    streamed.run(SYNC)
    postgres.run("UPDATE a SET v = v + 1", "UPDATE t SET v = v + 1")
    streamed.run(SYNC)
    return streamed


def _drop_slot(streamed: Streamed) -> None:
    (source,) = streamed.config(SYNC).sources
    assert source.postgres is not None
    assert drop_slot(ServerPlace.of(source.postgres), streamed.slot)


def _change(postgres: PostgresSource) -> None:
    for table in ("a", "t"):
        postgres.run(
            f"UPDATE {table} SET v = v + 1 WHERE id < 9",
            f"DELETE FROM {table} WHERE id > 15",
            f"INSERT INTO {table} VALUES (100, 1)",
        )


def _is_the_source(streamed: Streamed, *tables: str) -> None:
    for table in tables or ("a", "t"):
        found = sorted((row["id"], row["v"]) for row in streamed.rows(f"db.{table}"))
        assert found == streamed.source.rows(f"SELECT id, v FROM {table} ORDER BY id"), table


@pytest.mark.dear("a pipeline on a real server")
def test_changes_that_came_by_another_index_than_the_key_s(tmp_path: Path, postgres: PostgresSource) -> None:
    """`check` sees the identity that a table has now, and no more what it had."""
    streamed = _begun(tmp_path, postgres)
    postgres.run(
        "CREATE UNIQUE INDEX i ON t (v)",
        "ALTER TABLE t ALTER v SET NOT NULL, REPLICA IDENTITY USING INDEX i",
        "UPDATE t SET id = -id WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
    )
    with pytest.raises(PipelineFailedError, match=r"public\.t had REPLICA IDENTITY USING INDEX.*resync FILE --table"):
        streamed.run(SYNC)
    planned_resync(streamed.config(SYNC), "db.t").run()
    streamed.run(SYNC)
    _is_the_source(streamed)


@pytest.mark.dear("a pipeline on a real server")
def test_a_slot_that_is_gone(tmp_path: Path, postgres: PostgresSource, capsys: pytest.CaptureFixture[str]) -> None:
    streamed = _begun(tmp_path, postgres)
    Catalog(tmp_path / "w").table("db.t").tags.create("before")
    _drop_slot(streamed)
    _change(postgres)
    with pytest.raises(
        PipelineFailedError, match="is not there any more, .* are missing.*To go on: freshet resync FILE"
    ):
        streamed.run(SYNC)
    with pytest.raises(InvalidRequestError, match="all tables, so without --table"):
        planned_resync(streamed.config(SYNC), "db.t")
    planned = planned_resync(streamed.config(SYNC), None)
    assert (planned.tables, planned.new_slots) == (("db.a", "db.t"), (streamed.slot,))
    capsys.readouterr()
    resync(tmp_path / "p.yaml", None, yes=True, as_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"tables": ["db.a", "db.t"], "batch": 2, "new_slots": [streamed.slot]}
    assert "is not there any more" in said.err
    assert "To go on" not in said.err
    assert streamed.rows("db.t") == []
    with pytest.raises(InvalidRequestError, match="no table of it is ever set apart.* freshet resync"):
        resume(tmp_path / "p.yaml", "db.t")
    postgres.run("UPDATE a SET v = v + 1 WHERE id < 5")
    streamed.run(SYNC)
    _is_the_source(streamed)
    assert Catalog(tmp_path / "w").table("db.t").scan(tag="before").count() == 20
    _change_back(postgres)
    streamed.run(SYNC)
    _is_the_source(streamed)


@pytest.mark.slow
def test_a_checkpoint_that_is_older_than_its_tables(tmp_path: Path, postgres: PostgresSource) -> None:
    streamed = _begun(tmp_path, postgres)
    kept, checkpoint = tmp_path / "kept", tmp_path / "c"
    shutil.copytree(checkpoint, kept)
    for number in range(4):
        postgres.run(f"UPDATE a SET v = v + {number}", f"DELETE FROM t WHERE id = {number}")
        streamed.run(SYNC)
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    with pytest.raises(PipelineFailedError, match="freshet resync FILE"):
        streamed.run(SYNC)
    assert planned_resync(streamed.config(SYNC), None).run() == 6, "tables have batches up to 5"
    streamed.run(SYNC)
    _is_the_source(streamed)


def _change_back(postgres: PostgresSource) -> None:
    postgres.run("UPDATE a SET v = v - 1", "DELETE FROM t WHERE id = 100")


ALONE: dict[str, Callable[[PostgresSource, Path], None]] = {
    "rolled back": lambda postgres, folder: Catalog(folder / "w").table("db.a").rollback(1),
    "made again": lambda postgres, folder: postgres.run(
        "DROP TABLE a; CREATE TABLE a (id bigint PRIMARY KEY, v bigint); ALTER TABLE a REPLICA IDENTITY FULL; "
        "INSERT INTO a VALUES (7, 7); ALTER PUBLICATION p ADD TABLE a; INSERT INTO a VALUES (8, 8)"
    ),
    "dropped in the lake": lambda postgres, folder: Catalog(folder / "w").drop_table("db.a"),
    "nothing": lambda postgres, folder: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_one_table_alone(tmp_path: Path, postgres: PostgresSource, name: str) -> None:
    streamed = _begun(tmp_path, postgres)
    ALONE[name](postgres, tmp_path)
    postgres.run("UPDATE a SET v = v + 1", "UPDATE t SET v = v + 1")
    if name != "nothing":
        with pytest.raises(PipelineFailedError):
            streamed.run(SYNC)
    planned_resync(streamed.config(SYNC), "db.a").run()
    postgres.run("UPDATE a SET v = v + 1", "UPDATE t SET v = v + 1")
    streamed.run(SYNC)
    _is_the_source(streamed)
    postgres.run("UPDATE a SET v = v + 1", "DELETE FROM t WHERE id = 3")
    streamed.run(SYNC)
    _is_the_source(streamed)


@pytest.mark.slow
def test_a_batch_that_was_begun_is_given_up(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = _begun(tmp_path, postgres)
    _change(postgres)

    def dies(query: LocalQuery, point: BatchPoint) -> None:
        if point is BatchPoint.WRITTEN:
            raise RuntimeError("dies")

    with monkeypatch.context() as patched:
        patched.setattr(LocalQuery, "reach", dies)
        with pytest.raises(PipelineFailedError, match="dies"):
            streamed.run(SYNC)
    with pytest.raises(InvalidRequestError, match="is not done, and some tables have it"):
        planned_resync(streamed.config(SYNC), "db.t")
    _drop_slot(streamed)
    postgres.run("DELETE FROM a WHERE id = 1")
    planned_resync(streamed.config(SYNC), None).run()
    streamed.run(SYNC)
    _is_the_source(streamed)


@pytest.mark.slow
@pytest.mark.parametrize("table", [None, "db.a"])
@pytest.mark.parametrize("step", ["_empty", "_note"])
def test_one_that_dies_is_run_again(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, table: str | None, step: str
) -> None:
    streamed = _begun(tmp_path, postgres)
    _change(postgres)

    def dies(*_: object) -> None:
        raise RuntimeError("dies")

    with monkeypatch.context() as patched:
        patched.setattr(database_resync, step, dies)
        with pytest.raises(RuntimeError, match="dies"):
            planned_resync(streamed.config(SYNC), table).run()
    with pytest.raises(PipelineFailedError, match="a resync was begun and has not ended"):
        streamed.run(SYNC)
    planned_resync(streamed.config(SYNC), None).run()
    streamed.run(SYNC)
    _is_the_source(streamed)


@pytest.mark.slow
def test_the_table_of_a_pipeline_of_one(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 20) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial", columns="{id: BIGINT, v: BIGINT}")
    streamed.run(ONE)
    postgres.run("UPDATE t SET v = v + 1")
    streamed.run(ONE)
    Catalog(tmp_path / "w").table("db.t").rollback(1)
    postgres.run("DELETE FROM t WHERE id > 9")
    with pytest.raises(PipelineFailedError):
        streamed.run(ONE)
    planned_resync(streamed.config(ONE), None).run()
    postgres.run("INSERT INTO t VALUES (50, 1)")
    streamed.run(ONE)
    _is_the_source(streamed, "t")


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE t", "CREATE TABLE t (id bigint PRIMARY KEY)"],
        pytest.param(["ALTER TABLE t RENAME TO old", "ALTER TABLE u RENAME TO t"], marks=pytest.mark.slow),
    ],
)
def test_a_table_that_takes_the_name_of_another_is_seen_at_its_first_change(
    tmp_path: Path, postgres: PostgresSource, statements: list[str]
) -> None:
    """Both are younger than the last look at the publication."""
    postgres.run("CREATE TABLE a (id bigint PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    streamed = Streamed(tmp_path, postgres)
    streamed.run(SYNC)
    postgres.run("INSERT INTO a VALUES (1)")
    streamed.run(SYNC)
    for table in ("t", "u"):
        postgres.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    postgres.run(*statements, "INSERT INTO t VALUES (2)")
    with pytest.raises(PipelineFailedError, match=r"table public\.t is another one than before"):
        streamed.run(SYNC)
    assert not Catalog(tmp_path / "w").has_table("db.t")


@pytest.mark.slow
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_table_without_a_key(tmp_path: Path, postgres: PostgresSource, is_alone: bool) -> None:
    """Rows that only come, each as often as the source has it."""
    postgres.run(
        "CREATE TABLE n (v bigint)",
        "ALTER TABLE n REPLICA IDENTITY FULL",
        "INSERT INTO n SELECT i % 9 FROM generate_series(1, 100) i",
        "CREATE TABLE t (id bigint PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE n, t",
    )
    rules = '[{from: "[^.]*.public.n", to: "db.n", without_key: append, options: {bucket: "-1"}}, '
    rules += '{from: "[^.]*.public.t", to: "db.t"}]'
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=rules, options="")
    for statement in ("INSERT INTO t VALUES (1)", "INSERT INTO n VALUES (1)"):
        streamed.run(SYNC)
        postgres.run(statement)
    if not is_alone:
        streamed.run(SYNC)
        _drop_slot(streamed)
    postgres.run("INSERT INTO n VALUES (2)", "INSERT INTO t VALUES (2)")
    planned_resync(streamed.config(SYNC), "db.n" if is_alone else None).run()
    for statement in ("INSERT INTO n VALUES (3), (3); INSERT INTO t VALUES (3)", "INSERT INTO n VALUES (4)"):
        postgres.run(statement)
        streamed.run(SYNC)
        found = [sorted(row[name] for row in streamed.rows(f"db.{table}")) for table, name in (("n", "v"), ("t", "id"))]
        assert found == [
            [value for (value,) in postgres.rows(f"SELECT * FROM {table} ORDER BY 1")] for table in ("n", "t")
        ]


MOVED = {
    "a table that goes elsewhere": ("t", '[{from: "[^.]*.public.(.*)", to: "db.{table}"}]', "went to db.t before"),
    "a table that was excluded": (
        "u",
        '[{exclude: ".*.u"}, {from: ".*.public.(.*)", to: "db.{table}"}]',
        "went nowhere",
    ),
    "a table that no rule took": ("u", '[{from: ".*.public.t", to: "db.{table}"}]', "went nowhere before"),
}


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize("name", MOVED)
def test_rows_that_the_rules_send_elsewhere_than_before(tmp_path: Path, postgres: PostgresSource, name: str) -> None:
    moved, before, wanted = MOVED[name]
    postgres.run(
        *(f"CREATE TABLE {each} (id bigint PRIMARY KEY, v bigint)" for each in ("t", "u")),
        *(f"INSERT INTO {each} VALUES (1, 1), (2, 2)" for each in ("t", "u")),
        "CREATE PUBLICATION p FOR TABLE t, u",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC, rules=before)
    streamed.said["rules"] = (
        f'[{{from: ".*.public.{moved}", to: "db.new"}}, {{from: ".*.public.(.*)", to: "db.{{table}}"}}]'
    )
    postgres.run(f"INSERT INTO {moved} VALUES (3, 3)")
    (problem,) = going_on_problems([streamed.config(SYNC)], targets_of)
    assert wanted in problem.message
    with pytest.raises(PipelineFailedError, match=rf"{wanted}.*resync FILE --table db\.new"):
        streamed.run(SYNC)
    planned_resync(streamed.config(SYNC), "db.new").run()
    streamed.run(SYNC)
    postgres.run(f"DELETE FROM {moved} WHERE id = 1")
    streamed.run(SYNC)
    found = sorted((row["id"], row["v"]) for row in streamed.rows("db.new"))
    assert found == postgres.rows(f"SELECT id, v FROM {moved} ORDER BY id") == [(2, 2), (3, 3)]


@pytest.mark.dear("a pipeline on a real server")
def test_a_table_of_the_lake_that_gets_another_name_with_its_rule_goes_on(
    tmp_path: Path, postgres: PostgresSource
) -> None:
    streamed = _begun(tmp_path, postgres)
    Catalog(tmp_path / "w").rename_table("db.t", "db.new")
    postgres.run("INSERT INTO t VALUES (100, 1)")
    streamed.run(SYNC, rules=RULES.replace("db.{table}", "db.new"))
    found = sorted((row["id"], row["v"]) for row in streamed.rows("db.new"))
    assert found == postgres.rows("SELECT id, v FROM t ORDER BY id")
