"""Rows that were there before a pipeline, and the changes that come while they are copied."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet import Catalog
from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.local import postgres_copy, postgres_piece, postgres_source
from freshet.pipeline.local.postgres_copy import TableCopy
from freshet.pipeline.local.postgres_offset import PostgresOffset
from freshet.pipeline.postgres import copied_table
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed

COLUMNS = "{id: BIGINT, v: BIGINT, big: STRING}"
RULES = """[{from: "[^.]*.public.(t)", to: "db.{table}"},
    {from: "[^.]*.public.(u)", to: "db.{table}", without_key: append, options: {bucket: "-1"}}]"""
SUMS = 'bucket: "1", merge-engine: aggregation, fields.v.aggregate-function: sum'


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MIN", 7)
    monkeypatch.setattr(copied_table, "CHUNK_ROWS_MAX", 35)
    monkeypatch.setattr(postgres_copy, "CHUNKS_MAX", 2)
    monkeypatch.setattr(postgres_piece, "MIXED_RECORDS", 5)


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
def test_rows_that_are_there_are_copied_and_changes_follow(tmp_path: Path, postgres: PostgresSource) -> None:
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, big text)",
        "CREATE TABLE u (a text, b int, PRIMARY KEY (b, a))",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, i, repeat('x', 10) FROM generate_series(1, 100) i",
        "INSERT INTO u SELECT 'k' || i, i % 3 FROM generate_series(1, 50) i",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC)
    postgres.run(
        "UPDATE t SET v = v + 1 WHERE id % 2 = 0", "DELETE FROM u WHERE b = 1", "INSERT INTO nothing VALUES (1)"
    )
    streamed.run(SYNC)
    for table in ("t", "u", "nothing"):
        found = sorted(tuple(row.values()) for row in streamed.rows(f"db.{table}"))
        assert found == sorted(postgres.rows(f"SELECT * FROM {table}")), table


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
def test_chunks_of_tables_that_are_new_are_read_once(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake has no table yet when the first batch is read; of each, one row is looked at before."""
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)",
        "CREATE TABLE u (v bigint)",
        "ALTER TABLE u REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i",
        "INSERT INTO u SELECT i FROM generate_series(1, 50) i",
        "CREATE PUBLICATION p FOR TABLE t, u",
    )
    rows, read = ChunkReader.rows, []

    def counted(*given: Any) -> Iterator[pa.Table]:
        for texts in rows(*given):
            read.append(texts.num_rows)
            yield texts

    monkeypatch.setattr(ChunkReader, "rows", counted)
    Streamed(tmp_path, postgres, snapshot="only", rules=RULES).run(SYNC)
    assert sum(read) == 1 + 50 + 1 + 50


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
def test_the_pieces_of_a_batch_are_planned_once(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a batch begins tables is asked without them."""
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    planned: list[str] = []
    for kind in (TableCopy, postgres_source.PostgresSource):
        _count(monkeypatch, kind, planned)
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    batches = len(streamed.run(SYNC))
    assert batches > 2
    # The copy is asked once more by the look that the first of its batches has.
    assert (planned.count("PostgresSource"), planned.count("TableCopy")) == (batches, 2 * batches + 1)
    planned.clear()
    postgres.run("UPDATE t SET v = v + 1")
    assert len(streamed.run(SYNC)) == 1
    assert planned.count("PostgresSource") == 1


def _count(monkeypatch: pytest.MonkeyPatch, kind: type[Any], planned: list[str]) -> None:
    pieces = kind.pieces

    def counted(*given: Any) -> Any:
        planned.append(kind.__name__)
        return pieces(*given)

    monkeypatch.setattr(kind, "pieces", counted)


PUBLISHED = {
    "some rows": ("t WHERE (id % 2 = 0)", "SELECT id, v, w FROM t WHERE id % 2 = 0", "id, v, w"),
    "some columns": ("t (v, id)", "SELECT id, v FROM t", "id, v"),
    "a key that includes a column": ("t", "SELECT id, v, w FROM t", "id, v, w"),
}


@pytest.mark.few(1)
@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", PUBLISHED)
def test_of_a_table_is_copied_what_is_published(tmp_path: Path, postgres: PostgresSource, name: str) -> None:
    published, wanted, columns = PUBLISHED[name]
    postgres.run(
        "CREATE TABLE t (id bigint, v bigint, w text, PRIMARY KEY (id) INCLUDE (v))",
        *([] if "columns" in name else ["ALTER TABLE t REPLICA IDENTITY FULL"]),
        "INSERT INTO t SELECT i, i, 'secret' FROM generate_series(1, 100) i",
        f"CREATE PUBLICATION p FOR TABLE {published}",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC)
    postgres.run(
        "DELETE FROM t WHERE id < 9", "UPDATE t SET v = v + 1 WHERE id > 80", "UPDATE t SET id = 201 WHERE id = 20"
    )
    streamed.run(SYNC)
    table = Catalog(tmp_path / "w").table("db.t")
    assert table.schema.primary_keys == ("id",)
    assert sorted(tuple(row.values()) for row in streamed.rows()) == sorted(postgres.rows(wanted))
    assert ", ".join(streamed.rows()[0]) == columns


def test_generated_columns_are_copied_where_they_are_sent(tmp_path: Path, postgres: PostgresSource) -> None:
    ((version,),) = postgres.rows("SELECT current_setting('server_version_num')::int")
    are_sent = version >= 180_000
    postgres.run(
        "CREATE TABLE t (a bigint, id bigint GENERATED ALWAYS AS (a * 2) STORED, v bigint, PRIMARY KEY (id))"
        if are_sent
        else "CREATE TABLE t (id bigint PRIMARY KEY, a bigint GENERATED ALWAYS AS (id * 2) STORED, v bigint)",
        f"CREATE PUBLICATION p FOR TABLE t{' WITH (publish_generated_columns = stored)' if are_sent else ''}",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    for number in (1, 2):
        postgres.run(f"INSERT INTO t ({'a' if are_sent else 'id'}, v) VALUES ({number}, 5)")
        streamed.run(SYNC)
    sent = "a, id, v" if are_sent else "id, v"
    assert [tuple(row.values()) for row in streamed.rows()] == postgres.rows(f"SELECT {sent} FROM t ORDER BY 1")


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("options", [pytest.param('bucket: "1"', marks=pytest.mark.slow), SUMS])
def test_each_change_counts_once_beside_the_copy(tmp_path: Path, postgres: PostgresSource, options: str) -> None:
    """Of sums too: the row before each update is sent (FULL)."""
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, big text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    streamed = Streamed(tmp_path, postgres, snapshot="initial", columns=COLUMNS, options=options)
    ends = threading.Event()

    def write() -> None:
        with postgres.connect() as connection:
            number = 100
            while not ends.is_set():
                number += 1
                connection.execute(b"UPDATE t SET v = v + 1 WHERE id = (random() * 120)::int")
                if number % 10 == 0 and number <= 600:  # a slow machine would never reach the end of the table
                    connection.execute(b"INSERT INTO t VALUES (%s, 0)", (number,))
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        streamed.run()
    finally:
        ends.set()
        writer.join()
    streamed.run()
    assert sorted(tuple(row.values()) for row in streamed.rows()) == postgres.rows("SELECT * FROM t ORDER BY id")


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.usefixtures("small_chunks")
def test_changes_before_the_last_chunks_are_read_again_count_once(
    tmp_path: Path, postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch of the copy was planned, and its process died: the snapshot that it is read in is a later one."""
    postgres.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v bigint, big text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    pieces = TableCopy.pieces

    def dies(copy: TableCopy, begun: PostgresOffset, ends: PostgresOffset, *rest: Any) -> Any:
        if ends.copy is not None and ends.copy.is_whole:
            raise PipelineFailedError("the process dies")
        return pieces(copy, begun, ends, *rest)

    streamed = Streamed(tmp_path, postgres, snapshot="initial", columns=COLUMNS, options=SUMS)
    with monkeypatch.context() as patch:
        patch.setattr(TableCopy, "pieces", dies)
        with pytest.raises(PipelineFailedError, match="dies"):
            streamed.run()
    postgres.run("UPDATE t SET v = v + 1000 WHERE id % 3 = 0", "INSERT INTO t VALUES (200, 1)")
    streamed.run()
    assert sorted(tuple(row.values()) for row in streamed.rows()) == postgres.rows("SELECT * FROM t ORDER BY id")
