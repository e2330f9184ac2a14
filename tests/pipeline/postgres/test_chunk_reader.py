"""A table copied in chunks from a real server: every row once, and each chunk as its snapshot has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from psycopg import errors

from freshet.pipeline.exceptions import PipelineFailedError
from freshet.pipeline.postgres import chunk_reader, copied_table
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.copy_rule import places_of_keys
from freshet.pipeline.postgres.copy_state import Bound
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.shared_snapshot import ImportedSnapshot, SharedSnapshot
from freshet.pipeline.postgres.source_types import LOOK_UP, TypesSeen, UserType
from freshet.pipeline.postgres.value_texts import SETTINGS_OPTION
from tests.kit.postgres_source import PostgresSource

Row = tuple[str | None, ...]


@contextmanager
def reader_of(postgres: PostgresSource, name: str) -> Iterator[tuple[ChunkReader, CopiedTable]]:
    with postgres.connect(options=SETTINGS_OPTION, client_encoding="UTF8") as session:
        table = CopiedTable.described(session, "public", name)
        assert table is not None
        with session.transaction():
            yield ChunkReader(session, table), table


def rows_of(pieces: Iterator[pa.Table]) -> list[Row]:
    return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]


def chunks(reader: ChunkReader, rows: int) -> list[tuple[Bound | None, Bound | None, list[Row]]]:
    found, after = [], None
    while True:
        until = reader.key_behind(after, rows)
        found.append((after, until, rows_of(reader.rows(after, until))))
        if until is None:
            return found
        after = until


TABLES = {
    "numbers": ("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "SELECT i, 'v' || i FROM generate_series(-20, 30) i"),
    "two columns": (
        "CREATE TABLE t (v text, b text, a int, PRIMARY KEY (a, b))",
        "SELECT NULL, chr(97 + i % 7), i / 7 FROM generate_series(0, 50) i",
    ),
    "a key with a column beside it": (
        "CREATE TABLE t (a int, v text, b int, PRIMARY KEY (b, a) INCLUDE (v))",
        "SELECT i, 'v', i % 5 FROM generate_series(0, 50) i",
    ),
    "a language's order": (
        'CREATE TABLE t (k text COLLATE "en-x-icu" PRIMARY KEY)',
        "SELECT chr(65 + i) || repeat('b', i % 3) FROM generate_series(0, 25) i"
        " UNION SELECT chr(97 + i) FROM generate_series(0, 24) i",
    ),
    "bytes' order": (
        'CREATE TABLE t (k varchar(9) COLLATE "C" PRIMARY KEY)',
        "SELECT unnest(ARRAY['', ' ', 'a', 'B', 'Ä', '\\', '''', '\"', '€', 'a,b', E'a\\nb', 'NULL', 'null', '\\.'])",
    ),
    "blanks": (
        'CREATE TABLE t (k char(4) COLLATE "C" PRIMARY KEY)', "SELECT unnest(ARRAY['', 'a', 'a!', 'b', E'a\\t'])",
    ),
    "uuid": ("CREATE TABLE t (k uuid PRIMARY KEY)", "SELECT md5(i::text)::uuid FROM generate_series(1, 51) i"),
    "bytea": (
        "CREATE TABLE t (k bytea PRIMARY KEY)", "SELECT decode(md5(i::text), 'hex') FROM generate_series(1, 51) i",
    ),
    "numeric": ("CREATE TABLE t (k numeric(9,2) PRIMARY KEY)", "SELECT i * 7.25 FROM generate_series(-20, 30) i"),
    "unbounded numeric": ("CREATE TABLE t (k numeric PRIMARY KEY)", "SELECT i / 7.0 FROM generate_series(-20, 30) i"),
    "times": (
        "CREATE TABLE t (d date, k timestamptz, PRIMARY KEY (d, k))",
        "SELECT date '2024-01-01' + i / 5, timestamptz '2024-01-01 10:00:00+02' - i * interval '1 h'"
        " FROM generate_series(0, 50) i",
    ),
    "infinite times": (
        "CREATE TABLE t (k timestamp PRIMARY KEY)",
        "SELECT unnest(ARRAY['-infinity', '2024-01-01', 'infinity']::timestamp[])",
    ),
    "an enum": (
        "CREATE TYPE e AS ENUM ('z', 'm', 'a'); CREATE TABLE t (k e PRIMARY KEY)",
        "SELECT unnest(ARRAY['a', 'm', 'z'])::e",
    ),
    "a domain of an odd name": (
        'CREATE DOMAIN "n%s" AS int; CREATE TABLE t (k "n%s" PRIMARY KEY)',
        "SELECT i FROM generate_series(1, 51) i",
    ),
    "booleans": (
        "CREATE TABLE t (k boolean, i int, PRIMARY KEY (k, i))", "SELECT i % 2 = 0, i FROM generate_series(1, 51) i",
    ),
    "partitions": (
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY HASH (id);"
        "CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "SELECT i, 'x' FROM generate_series(1, 51) i",
    ),
    "nothing": ("CREATE TABLE t (id int PRIMARY KEY)", "SELECT 1 WHERE false"),
}  # fmt: skip


@pytest.mark.dear("sixteen kinds of keys, each copied twice")
def test_every_row_comes_once_and_keys_are_placed(postgres: PostgresSource) -> None:
    for name, (made, filled) in TABLES.items():
        postgres.run("DROP TABLE IF EXISTS t", made, f"INSERT INTO t {filled}")
        everything = postgres.rows("SELECT count(*) FROM t")[0][0]
        with reader_of(postgres, "t") as (reader, table):
            assert [(table.columns[place].name,) for place in table.key] == postgres.rows(KEY), name
            [(after, until, whole)] = chunks(reader, 1000)
            assert (after, until, len(whole)) == (None, None, everything), name
            cut = chunks(reader, 7 if everything > 10 else 1)
            assert sorted(map(str, whole)) == sorted(str(row) for _, _, rows in cut for row in rows), name
            bounds = [until for _, until, _ in cut if until is not None]
            keys: list[Bound] = [tuple(str(row[place]) for place in table.key) for _, _, rows in cut for row in rows]
            expected = [number for number, (_, _, rows) in enumerate(cut) for _ in rows]
            assert reader.places(bounds, keys) == expected, name
            types = TypesSeen(UserType(*row) for row in postgres.rows(LOOK_UP % "'{}'"))
            by_us = places(bounds, keys, table, types)
        assert by_us == (None if name in ORDERED_BY_THE_SERVER else expected), name


KEY = "SELECT column_name FROM information_schema.key_column_usage WHERE table_name = 't' ORDER BY ordinal_position"
ORDERED_BY_THE_SERVER = {"a language's order", "unbounded numeric", "infinite times", "an enum"}


def places(bounds: Sequence[Bound], keys: Sequence[Bound], table: CopiedTable, types: TypesSeen) -> list[int] | None:
    columns = [table.columns[place] for place in table.key]
    arrays = [pa.array([key[index] for key in keys], pa.string()) for index in range(len(columns))]
    found = places_of_keys(
        bounds, arrays, columns, [types.source_type(each.type_oid, each.modifier) for each in columns]
    )
    return None if found is None else found.tolist()


def test_tables_of_odd_form(postgres: PostgresSource) -> None:
    postgres.run(
        'CREATE TABLE "T ""x"".%s" ("a b" int PRIMARY KEY, "%(c)s" text, g int GENERATED ALWAYS AS ("a b" * 2) STORED)',
        """INSERT INTO "T ""x"".%s" VALUES (1, repeat('x', 5000000)), (2, NULL), (3, ''), (4, '%s {}')""",
        'CREATE TABLE heir () INHERITS ("T ""x"".%s")',
        "INSERT INTO heir VALUES (99, 'of the heir')",
    )
    with reader_of(postgres, 'T "x".%s') as (reader, table):
        assert [each.name for each in table.columns] == ["a b", "%(c)s"]
        whole = chunks(reader, 3)
        assert [row for _, _, rows in whole for row in rows] == [
            ("1", "x" * 5_000_000), ("2", None), ("3", ""), ("4", "%s {}"),
        ]  # fmt: skip
        assert sorted(rows_of(reader.rows_of([("3",), ("1000",), ("2",)]))) == [("2", None), ("3", "")]
        assert rows_of(reader.rows_of([])) == []
        assert CopiedTable.described(reader._session, "public", "none") is None


def place_of(postgres: PostgresSource) -> ServerPlace:
    return ServerPlace(postgres.dsn, postgres.password)


def table_of(postgres: PostgresSource) -> CopiedTable:
    with postgres.connect() as session:
        table = CopiedTable.described(session, "public", "t")
    assert table is not None
    return table


def test_a_column_that_is_dropped_meanwhile_is_an_error_of_the_server(postgres: PostgresSource) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'x')")
    table, shared = table_of(postgres), SharedSnapshot(place_of(postgres))
    postgres.run("ALTER TABLE t DROP COLUMN v")
    with (
        pytest.raises(PipelineFailedError, match=r'public\.t: column "v" does not exist'),
        ImportedSnapshot(place_of(postgres), shared.name) as imported,
    ):
        rows_of(imported.rows(table, None, None))
    shared.close()


def test_all_who_read_see_one_snapshot(postgres: PostgresSource) -> None:
    postgres.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old')")
    place, table = place_of(postgres), table_of(postgres)
    shared = SharedSnapshot(place)
    postgres.run("UPDATE t SET v = 'new'", "INSERT INTO t VALUES (2, 'new')")
    [(writer,)] = postgres.rows("SELECT xmin::text::bigint FROM t WHERE id = 1")
    assert not shared.snapshot.holds(np.array([writer])).any()
    assert shared.key_behind(table, None, 2) is None
    for _ in range(2):
        with ImportedSnapshot(place, shared.name) as imported:
            assert rows_of(imported.rows(table, None, None)) == [("1", "old")]
    shared.close()
    later = SharedSnapshot(place)
    assert later.snapshot.holds(np.array([writer])).all()
    assert later.lsn > shared.lsn
    later.close()


def test_a_table_that_is_read_is_not_rewritten_meanwhile(postgres: PostgresSource) -> None:
    """A snapshot from before a rewrite sees a table that is empty."""
    postgres.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    shared = SharedSnapshot(place_of(postgres), [("public", "t"), ("public", "gone")])
    with pytest.raises(errors.LockNotAvailable):
        postgres.run("SET lock_timeout = 50; ALTER TABLE t ALTER id TYPE bigint")
    shared.close()
    postgres.run("ALTER TABLE t ALTER id TYPE bigint")


@pytest.mark.parametrize("partitions", ["", " PARTITION BY HASH (id)"])
def test_pages_of_a_table_without_a_key(
    postgres: PostgresSource, monkeypatch: pytest.MonkeyPatch, partitions: str
) -> None:
    monkeypatch.setattr(copied_table, "CHUNK_BYTES", 3 * 8192)
    monkeypatch.setattr(chunk_reader, "PIECE_BYTES", 1000)
    leaves = [f"CREATE TABLE t{i} PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER {i})" for i in (0, 1)]
    postgres.run(
        f"CREATE TABLE t (id int, v text){partitions}",
        *(leaves if partitions else []),
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 2000) i",
    )
    with reader_of(postgres, "t") as (reader, table):
        ranges = table.page_ranges
        assert len(ranges) > 3
        parts = [rows_of(reader.rows(*each)) for each in ranges]
        assert sum(map(bool, parts)) > 3
        assert sorted(int(str(row[0])) for part in parts for row in part) == list(range(1, 2001))
