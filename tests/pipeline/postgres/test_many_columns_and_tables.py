"""Databases that are drawn: tables of up to 300 columns, up to 1,000 tables, names that need quotes among them; what is
copied and what changes later, against what psycopg reads in binary."""

from __future__ import annotations

from datetime import UTC, time
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from psycopg import sql

from freshet import Catalog
from freshet.pipeline.postgres.value_texts import SETTINGS_OPTION
from tests.kit.postgres_source import PostgresSource
from tests.pipeline.postgres.streamed import SYNC, Streamed
from tests.pipeline.postgres.test_random_values import COLUMNS
from tests.soak.counts import chance_of

ROWS: Final = 5
LETTERS: Final = ("a", "B", "z9", "ü", "select", "two words", "$", "a.b", "%s", "{x}", "'", '"', "\\", "_KEY")
"""Parts of names. They differ in more than their case, which a table of the lake does not tell apart."""


@pytest.mark.dear("a pipeline on a real server")
@pytest.mark.parametrize(
    ("columns", "tables"),
    [
        pytest.param(12, 3, id="few"),
        pytest.param(300, 2, id="300 columns", marks=pytest.mark.slow),
        pytest.param(3, 1000, id="1000 tables", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_a_database_that_is_drawn(columns: int, tables: int, tmp_path: Path, postgres: PostgresSource) -> None:
    chance = chance_of("a database that is drawn", columns, tables)
    drawn = {f"t{number}": _columns(columns, chance) for number in range(tables)}
    with postgres.connect() as session:
        for table, of in drawn.items():
            names = [f"{_quoted(name)} {kind}" for name, kind in of.items()]
            session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {', '.join(names)})".encode())
            _insert(session, table, of, 1)
        session.execute(b"CREATE PUBLICATION p FOR ALL TABLES")
    streamed = Streamed(tmp_path, postgres, snapshot="initial")
    streamed.run(SYNC)
    _compare(tmp_path, postgres, drawn)
    with postgres.connect() as session:
        changed = chance.sample(sorted(drawn), max(1, tables // 3))
        for table in changed:
            of = drawn[table]
            _insert(session, table, of, ROWS + 1)
            name = chance.choice(list(of))
            session.execute(f"UPDATE {table} SET {_quoted(name)} = NULL, id = id + 100 WHERE id = 1".encode())
            session.execute(f"DELETE FROM {table} WHERE id = 2".encode())
    streamed.run(SYNC)
    _compare(tmp_path, postgres, drawn)


def _columns(most: int, chance: Random) -> dict[str, str]:
    count = max(1, most - chance.randrange(1 + most // 4))
    kinds = chance.choices(list(COLUMNS), k=count)
    return {f"{chance.choice(LETTERS)}{number}": kind for number, kind in enumerate(kinds)}


def _insert(session: Any, table: str, of: dict[str, str], first: int) -> None:
    values = ", ".join(f"CASE WHEN random() < 0.9 THEN {COLUMNS[kind]} END" for kind in of.values())
    session.execute(
        f"INSERT INTO {table} SELECT n, {values} FROM generate_series({first}, {first + ROWS - 1}) n".encode()
    )


def _compare(folder: Path, postgres: PostgresSource, drawn: dict[str, dict[str, str]]) -> None:
    catalog = Catalog(folder / "w")
    with postgres.connect(options=SETTINGS_OPTION, client_encoding="UTF8") as session:
        for table, of in drawn.items():
            cursor = session.execute(f"SELECT * FROM {table} ORDER BY id".encode(), binary=True)
            wanted = [[_plain(value) for value in row] for row in cursor.fetchall()]
            rows = catalog.table(f"db.{table}").scan().to_arrow().sort_by("id")
            assert rows.column_names == ["id", *of], table
            found = [[_plain(value) for value in row.values()] for row in rows.to_pylist()]
            assert found == wanted, (table, of)


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, time):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    if getattr(value, "tzinfo", None) is not None:
        return value.astimezone(UTC).replace(tzinfo=UTC)
    return value
