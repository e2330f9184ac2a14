"""Copies of tables without a key, of tables that come later, and copies that nothing follows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet import Catalog
from freshet.pipeline.checks.postgres_reach import database_problems
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local import postgres_copy, postgres_piece, postgres_source
from freshet.pipeline.local.postgres_copy import TableCopy
from freshet.pipeline.local.postgres_offset import going_on_problems
from freshet.pipeline.postgres import copied_table
from freshet.pipeline.postgres.copy_state import CopyState
from freshet.pipeline.sync.database_resync import planned_resync
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

SUMS = "options: {merge-engine: aggregation, fields.v.aggregate-function: sum}"
RULES = '[{from: "[^.]*.public.(log.*)", to: "db.{table}", without_key: append, options: {bucket: "-1"}}, '
RULES += '{from: "[^.]*.public.(k.*)", to: "db.{table}", primary_key: [id]}, '
RULES += '{from: "[^.]*.public.(.*)", to: "db.{table}", ' + SUMS + "}]"
LEFT_OUT = '[{exclude: ".*big"}, {from: "[^.]*.public.(.*)", to: "db.{table}"}]'
pytestmark = pytest.mark.dear("a pipeline on a real server")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MIN", 7)
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MAX", 35)
    monkeypatch.setattr(copied_table, "CHUNK_BYTES", 2 * 8192)
    monkeypatch.setattr(postgres_copy, "CHUNKS_MAX", 3)


def same(streamed: Streamed, *tables: str) -> bool:
    for table in tables:
        found = sorted(tuple(row.values()) for row in streamed.rows(f"db.{table}"))
        assert found == sorted(streamed.source.rows(f"SELECT * FROM {table}")), table
    return True


def without_key(postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE log (id int, v int)",
        "CREATE TABLE k (id int, v int, big text)",
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("log", "k", "t")),
        *(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 2000) i" for table in ("log", "k")),
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 50) i",
        "CREATE PUBLICATION p FOR TABLE t, log, k",
    )


def test_tables_without_a_key_are_copied_in_one_snapshot(tmp_path: Path, postgres: PostgresSource) -> None:
    """With pages that rows are moved between by updates meanwhile."""
    without_key(postgres)
    streamed, ends = Streamed(tmp_path, postgres, snapshot="initial", rules=RULES), threading.Event()

    def write() -> None:
        with postgres.connect() as connection:
            number = 2000
            while not ends.is_set():
                number += 1
                connection.execute(b"UPDATE k SET v = v + 1 WHERE id = (random() * 2000)::int")
                connection.execute(b"DELETE FROM k WHERE id = (random() * 2000)::int")
                connection.execute(b"UPDATE t SET v = v + 1 WHERE id = (random() * 50)::int")
                connection.execute(b"INSERT INTO log VALUES (%s, 0)", (number,))
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        streamed.run(SYNC)
    finally:
        ends.set()
        writer.join()
    streamed.run(SYNC)
    assert same(streamed, "t", "log", "k")


@pytest.mark.parametrize("at", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_table_without_a_key_is_read_anew_where_its_snapshot_is_gone(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Nothing of it is in the lake before all of it is."""
    without_key(postgres)
    streamed, run = Streamed(tmp_path, postgres, snapshot="initial", rules=RULES), postgres_copy.ChunkOfTable.run
    read = list[str]()

    def dies(chunk: Any, place: Any) -> Any:
        read.append(chunk.table.name)
        if read.count("log") > 4 * at:
            raise PipelineFailedError("the process dies")
        return run(chunk, place)

    with monkeypatch.context() as patch:
        patch.setattr(postgres_copy.ChunkOfTable, "run", dies)
        with pytest.raises(PipelineFailedError, match="dies"):
            streamed.run(SYNC)
    assert "log" in read
    postgres.run("UPDATE k SET v = 7 WHERE id % 3 = 0", "DELETE FROM log WHERE id < 5", "VACUUM log")
    postgres.run("INSERT INTO log SELECT i, 1 FROM generate_series(3000, 3100) i")
    postgres.run("UPDATE t SET v = v + 1")
    streamed.run(SYNC)
    assert same(streamed, "t", "log", "k")


def test_a_table_that_comes_later_is_copied_beside_the_stream(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the publication gets, with changes or without, one that is made, and one that was copied under another
    name, which is not copied again."""
    monkeypatch.setattr(postgres_source, "LOOK_S", 0.0)
    postgres.run(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("a", "b", "c", "moves")),
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("a", "b", "c", "moves")),
        *(f"INSERT INTO {name} SELECT i, 1 FROM generate_series(1, 40) i" for name in ("a", "b", "c", "moves")),
        "CREATE PUBLICATION p FOR TABLE a, moves",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=RULES)
    streamed.run(SYNC)
    postgres.run(
        "UPDATE b SET v = v + 1 WHERE id < 9",
        "ALTER PUBLICATION p ADD TABLE b, c",
        "UPDATE b SET v = v + 1 WHERE id < 9",
        "INSERT INTO b VALUES (100, 1)",
        "UPDATE a SET v = v + 1 WHERE id < 9",
    )
    plan = TableCopy.plan

    def planned(copy: TableCopy, begun: CopyState) -> Any:
        found = plan(copy, begun)
        postgres.run("UPDATE b SET v = v + 1 WHERE id IN (3, 39)", "UPDATE a SET v = v + 1 WHERE id = 3")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableCopy, "plan", planned)
        streamed.run(SYNC)
    streamed.run(SYNC)
    assert same(streamed, "a", "b", "c")
    postgres.run(
        "CREATE TABLE made (id int PRIMARY KEY, v int)",
        "ALTER TABLE made REPLICA IDENTITY FULL",
        "INSERT INTO made SELECT i, 1 FROM generate_series(1, 40) i",
        "ALTER TABLE moves RENAME TO moved",
        "INSERT INTO moved VALUES (41, 1)",
        "ALTER PUBLICATION p ADD TABLE made",
        "UPDATE made SET v = v + 1",
        "UPDATE b SET v = v + 1 WHERE id < 9",
    )
    streamed.run(SYNC)
    assert same(streamed, "a", "b", "c", "made")
    assert [tuple(row.values()) for row in streamed.rows("db.moved")] == [(41, 1)]


def test_what_was_streamed_is_not_copied_after_another_snapshot_in_the_file(
    tmp_path: Path, postgres: PostgresSource
) -> None:
    make = "CREATE TABLE {0} (id int PRIMARY KEY, v int); ALTER TABLE {0} REPLICA IDENTITY FULL"
    postgres.run(make.format("a"), make.format("b"), "INSERT INTO a VALUES (1, 1)", "CREATE PUBLICATION p FOR TABLE a")
    streamed = Streamed(tmp_path, postgres, snapshot="never", rules=RULES)
    streamed.run(SYNC)
    postgres.run("ALTER PUBLICATION p ADD TABLE b", "INSERT INTO a VALUES (2, 1)", "INSERT INTO b VALUES (2, 1)")
    streamed.run(SYNC)
    postgres.run(make.format("c"), "INSERT INTO c VALUES (1, 1)", "ALTER PUBLICATION p ADD TABLE c")
    postgres.run("UPDATE a SET v = v + 1", "UPDATE b SET v = v + 1", "UPDATE c SET v = v + 1")
    streamed.run(SYNC, snapshot="initial")
    assert same(streamed, "b", "c")
    assert {"id": 2, "v": 2} in streamed.rows("db.a")


def test_a_copy_is_no_faster_than_it_may_be(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    naps, at_s = list[float](), 0.0

    def sleep(duration_s: float) -> None:
        nonlocal at_s
        naps.append(duration_s)
        at_s += duration_s

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: at_s)
    monkeypatch.setattr(postgres_piece, "time", clock)
    streamed = Streamed(tmp_path, postgres, snapshot="initial, copy_mib_per_second: 0.01")
    streamed.run(SYNC)
    # the chunks of the first batch are read twice: the second time there is a table
    assert 50_000 / (0.01 * 2**20) < sum(naps) < 90_000 / (0.01 * 2**20)
    assert len(streamed.rows()) == 50


def test_a_copy_that_nothing_follows(tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is of one moment, and no slot keeps the log."""
    without_key(postgres)
    postgres.run(
        "CREATE TABLE k2 (id int PRIMARY KEY, v int)",
        "INSERT INTO k2 SELECT i, 0 FROM generate_series(1, 50) i",
        "ALTER PUBLICATION p ADD TABLE k2",
    )
    plan, count = TableCopy.plan, 0

    def planned(copy: TableCopy, begun: CopyState) -> Any:
        nonlocal count
        found = plan(copy, begun)
        count += 1
        if count < 4:
            postgres.run("UPDATE k2 SET id = id + 1000 WHERE id = (SELECT min(id) FROM k2)", "UPDATE k SET v = v + 1")
        return found

    monkeypatch.setattr(TableCopy, "plan", planned)
    streamed = Streamed(tmp_path, postgres, snapshot="only", rules=RULES)
    streamed.run(SYNC)
    assert same(streamed, "t", "k", "k2", "log")
    assert postgres.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
    assert not going_on_problems([streamed.config(SYNC)])
    postgres.run("INSERT INTO t VALUES (7000, 1)")
    streamed.run(SYNC)
    assert (7000, 1) not in [tuple(row.values()) for row in streamed.rows("db.t")]


@pytest.mark.parametrize("is_root", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_partitions_and_heirs(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, is_root: bool
) -> None:
    """Rows that move to another partition meanwhile; an heir is a table of its own."""
    leaves = " PARTITION OF {0} FOR VALUES IN ({1})"
    postgres.run(
        "CREATE TABLE k (id int, v int, PRIMARY KEY (id, v)) PARTITION BY LIST (v)",
        "CREATE TABLE log (id int, v int) PARTITION BY LIST (v)",
        *(f"CREATE TABLE k_{v} {leaves.format('k', v)}" for v in (0, 1)),
        *(f"CREATE TABLE log_{v} {leaves.format('log', v)}" for v in (0, 1)),
        *(f"ALTER TABLE log{leaf} REPLICA IDENTITY FULL" for leaf in ("", "_0", "_1")),
        "CREATE TABLE parent (id int PRIMARY KEY, v int)",
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (parent)",
        *(f"INSERT INTO {name} SELECT i, i % 2 FROM generate_series(1, 40) i" for name in ("k", "log", "parent")),
        "INSERT INTO heir SELECT i, 7 FROM generate_series(100, 120) i",
        f"CREATE PUBLICATION p FOR TABLE k, log, parent WITH (publish_via_partition_root = {is_root})",
    )
    plan, count = TableCopy.plan, 0

    def planned(copy: TableCopy, begun: CopyState) -> Any:
        nonlocal count
        count += 1
        if count < 5:
            postgres.run(f"UPDATE k SET v = 1 - v WHERE id % 5 = {count}", f"INSERT INTO log VALUES ({100 + count}, 1)")
            postgres.run("UPDATE heir SET v = v + 1 WHERE id < 105")
        return plan(copy, begun)

    monkeypatch.setattr(TableCopy, "plan", planned)
    rules = '[{from: "[^.]*.public.k.*", to: db.k, merge: true}, '
    rules += '{from: "[^.]*.public.log.*", to: db.log, without_key: append, options: {bucket: "-1"}, merge: true}, '
    rules += '{from: "[^.]*.public.(.*)", to: "db.{table}"}]'
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=rules, options="")
    streamed.run(SYNC)
    streamed.run(SYNC)
    assert same(streamed, "k", "log", "heir")
    assert len(streamed.rows("db.parent")) == 40


def test_tables_that_go_nowhere_are_not_copied(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor are those that come later, or in a resync of all; one that is sent somewhere later is copied by a resync."""
    monkeypatch.setattr(postgres_source, "LOOK_S", 0.0)
    names = ("t", "left_out", "no_rule", "late")
    postgres.run(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names),
        *(f"INSERT INTO {name} SELECT i, 1 FROM generate_series(1, 40) i" for name in names),
        "CREATE PUBLICATION p FOR TABLE t, left_out, no_rule",
    )
    rules = '[{exclude: ".*left_out|.*late"}, {from: "[^.]*.public.t", to: "db.t"}]'
    streamed = Streamed(tmp_path, postgres, snapshot="initial", rules=rules)
    assert sum(each.report.read_count for each in streamed.run(SYNC)) == 40
    assert (
        "not copied, as sync.tables excludes them or has no rule for them: public.left_out, public.no_rule"
        in caplog.text
    )
    postgres.run("ALTER PUBLICATION p ADD TABLE late", "UPDATE late SET v = 2 WHERE id < 3", "UPDATE t SET v = 2")
    assert sum(each.report.read_count for each in streamed.run(SYNC)) == 42
    assert planned_resync(streamed.config(SYNC), None).run()
    assert sum(each.report.read_count for each in streamed.run(SYNC)) == 40
    taken = rules.replace("|.*late", "").replace("public.t", "public.(t|late)").replace("db.t", "db.{table}")
    with pytest.raises(
        PipelineFailedError, match="late go to db.late .*went nowhere before.* resync FILE --table db.late"
    ):
        streamed.run(SYNC, rules=taken)
    planned_resync(streamed.config(SYNC, rules=taken), "db.late").run()
    postgres.run("UPDATE late SET v = 3 WHERE id > 38")
    streamed.run(SYNC, rules=taken)
    assert same(streamed, "t", "late")


def test_a_copy_ends_without_a_table_that_the_rules_leave_out_meanwhile(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_copy, "CHUNKS_MAX", 1)
    postgres.run(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("big", "t")),
        *(f"INSERT INTO {name} SELECT i, 1 FROM generate_series(1, 200) i" for name in ("big", "t")),
        "CREATE PUBLICATION p FOR TABLE big, t",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    with streamed.running(SYNC) as came:
        assert came.wait(60)
    copied = Catalog(tmp_path / "w").table("db.t").scan().count() if Catalog(tmp_path / "w").has_table("db.t") else 0
    rest = sum(each.report.read_count for each in streamed.run(SYNC, rules=LEFT_OUT))
    assert same(streamed, "t") and 200 <= rest + copied <= 235, "of the other one, the batch that was planned at most"


def test_a_table_whose_copy_cannot_end_can_be_left_out(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE a ()",
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "CREATE TABLE t (id bigint PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION p FOR TABLE a, t",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    (problem,) = database_problems([streamed.config(SYNC)])
    assert "table public.a has no columns" in problem.message
    with pytest.raises(PipelineFailedError, match=r"table a has no columns.*leave it out of postgres\.tables"):
        streamed.run(SYNC)
    postgres.run("INSERT INTO a DEFAULT VALUES")
    streamed.run(SYNC, tables='["public.t"]')
    assert len(streamed.rows("db.t")) == 1
    postgres.run("ALTER TABLE a ADD id bigint")
    with pytest.raises(PipelineFailedError, match=r"public\.a was left out"):
        streamed.run(SYNC)
