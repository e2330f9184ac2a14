"""Every type of PostgreSQL on a real server: what COPY and what the stream bring of it becomes the same column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql

from freshet.pipeline.decode.convert.converter import LOST as CONVERTED_LOST
from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.source_types import LOOK_UP, TYPES, USER_TYPES, SourceType, TypesSeen, UserType
from freshet.pipeline.postgres.value_texts import SETTINGS_OPTION, misfit_reason, text_converter
from freshet.storage.model.sql_type import parse_sql_type
from tests.kit.postgres_source import PostgresSource
from tests.kit.postgres_wire import changes
from tests.pipeline.postgres.type_cases import CASES, LOST, USER_SQL, TypeCase

FIXED_OF_SERVERS = {"gtsvector"}
"""Types that no column has."""


def shown(values: list[Any]) -> list[str]:
    """So that NaN is itself, and -0.0 is not 0.0."""
    return [repr(each.replace(tzinfo=UTC) if getattr(each, "tzinfo", None) else each) for each in _flat(values)]


def _flat(values: list[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list):
            yield f"{len(each)} elements"
            yield from _flat(each)
        else:
            yield each


def values(case: TypeCase, source: SourceType, texts: list[str | None]) -> list[Any]:
    """What becomes of the texts: all at once, a slice as the copy has them, and each by itself."""
    assert source.sql_type == case.column
    converter = text_converter(source, parse_sql_type(source.sql_type))
    array, bad = converter.of_texts(pa.array(["x", *texts], pa.string())[1:])
    whole = [LOST if bad is not None and bad[row] else value for row, value in enumerate(array.to_pylist())]
    for text, value in zip(texts, whole, strict=True):
        if text is not None:
            one = converter.one(text)
            assert shown([LOST if one is CONVERTED_LOST else one]) == shown([value]), text
    return whole


def insert(number: int, case: TypeCase) -> str:
    literals = [sql.Literal(each).as_string() for each in case.values]
    rows = ", ".join(f"({row}, {each}::{case.declared})" for row, each in enumerate([*literals, "NULL"]))
    return f"INSERT INTO t{number} VALUES {rows}"


def test_every_type_by_copy_and_by_the_stream(postgres: PostgresSource) -> None:
    version = int(postgres.rows("SHOW server_version_num")[0][0]) // 10_000
    cases = [case for case in CASES if case.since <= version]
    postgres.run(*USER_SQL)
    with postgres.connect(options=SETTINGS_OPTION, client_encoding="UTF8") as session:
        made = (f"CREATE TABLE t{n} (id int PRIMARY KEY, value {case.declared})" for n, case in enumerate(cases))
        session.execute("; ".join(made).encode())
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        session.execute("; ".join(insert(number, case) for number, case in enumerate(cases)).encode())
        types = TypesSeen(UserType(*row) for row in session.execute(LOOK_UP, ([],)).fetchall())
        streamed = defaultdict(list)
        for change in changes(session, "s", "p"):
            streamed[change.table].append(change.row[1])
        for number, case in enumerate(cases):
            table = CopiedTable.described(session, "public", f"t{number}")
            assert table is not None
            source = types.source_type(table.columns[1].type_oid, table.columns[1].modifier)
            texts = pa.concat_tables(ChunkReader(session, table).rows(None, None))
            rows = {int(row["0"]): row["1"] for row in texts.to_pylist()}
            copied = [rows[number] for number in range(len(rows))]
            by_stream = streamed[f"t{number}"]
            assert copied == by_stream, case.declared
            expected = [*case.values.values(), None]
            assert shown(values(case, source, by_stream)) == shown(expected), case.declared


def test_each_line_of_the_table_has_a_case() -> None:
    shown = {case.shows for case in CASES}
    assert {each.name for each in TYPES} <= shown
    assert {name for name, _, _ in USER_TYPES if not name.startswith("arrays")} <= shown


def test_the_table_has_the_oids_of_the_server(postgres: PostgresSource) -> None:
    here = {each.oid: each.array for each in TYPES}
    found = postgres.rows(
        "SELECT oid::int, typarray::int, typname::text, typdelim::text FROM pg_type "
        "WHERE oid < 10000 AND typarray <> 0 AND typtype IN ('b', 'r', 'm')"
    )
    types = TypesSeen()
    for oid, array, name, delimiter in found:
        assert here.get(oid) == array or name in FIXED_OF_SERVERS
        assert types.source_type(array).delimiter == delimiter


OTHER_COLUMNS = [
    (23, "BIGINT", {"-5": -5}),
    (23, "DOUBLE", {"12": 12.0}),
    (23, "STRING", {"12": "12"}),
    (20, "INT", {"2147483648": LOST, "7": 7}),
    (20, "DECIMAL(21, 2)", {"9223372036854775807": Decimal("9223372036854775807.00")}),
    (16, "STRING", {"t": "true", "f": "false"}),
    (16, "INT", {"t": LOST}),
    (25, "BOOLEAN", {"true": True, "x": LOST}),
    (25, "VARCHAR(2)", {"ab": "ab", "abc": LOST}),
    (1700, "DECIMAL(9, 2)", {"12.50": Decimal("12.50"), "12.500": Decimal("12.50"), "12.505": LOST, "NaN": LOST}),
    (701, "FLOAT", {"0.5": 0.5, "1e300": LOST}),
    (790, "DECIMAL(5, 1)", {"$1,234.50": Decimal("1234.5"), "$0.01": LOST}),
    (17, "VARBINARY(2)", {"\\x00ff": b"\0\xff", "\\x00ffff": LOST}),
    (1184, "TIMESTAMP(6)", {"2024-01-02 03:04:05.6+00": datetime(2024, 1, 2, 3, 4, 5, 600000), "infinity": LOST}),
    (1184, "STRING", {"2024-01-02 03:04:05.6+00": "2024-01-02 03:04:05.6+00", "infinity": "infinity"}),
    (1114, "TIMESTAMP(3)", {"2024-01-02 00:00:00": datetime(2024, 1, 2), "2024-01-02 00:00:00.0001": LOST}),
    (1083, "TIME(3)", {"10:00:00.5": 36_000_500, "10:00:00.0001": LOST}),
    (1007, "STRING", {"{1,NULL}": "{1,NULL}"}),
    (1007, "ARRAY<STRING>", {"{1,NULL}": ["1", None]}),
    (1007, "ARRAY<INT NOT NULL>", {"{1,2}": [1, 2], "{1,NULL}": LOST}),
    (114, "ARRAY<INT>", {"[1, null]": [1, None], "1": LOST}),
    (3802, "MAP<STRING, INT>", {'{"a": 1}': [("a", 1)], "[]": LOST}),
]  # fmt: skip


@pytest.mark.parametrize(("oid", "column", "values"), OTHER_COLUMNS, ids=lambda each: str(each)[:20])
def test_into_a_column_of_another_type(oid: int, column: str, values: dict[str, Any]) -> None:
    converter = text_converter(TypesSeen().source_type(oid), parse_sql_type(column))
    array, bad = converter.of_texts(pa.array(["x", *values, None], pa.string())[1:])
    found = [LOST if bad is not None and bad[row] else value for row, value in enumerate(array.to_pylist())]
    assert shown(found) == shown([*values.values(), None])


def test_a_type_that_is_gone_is_what_its_message_names() -> None:
    types = TypesSeen(named={20001: "int4", 20002: "numeric"})
    assert types.source_type(20001).sql_type == "INT"
    assert types.source_type(20002).sql_type == types.source_type(20003).sql_type == "STRING"
    assert types.unknown([23, 20001]) == (20001,)


def test_a_reason_says_what_does_not_fit() -> None:
    types, date, whole = TypesSeen(), parse_sql_type("DATE"), parse_sql_type("ARRAY<INT>")
    assert misfit_reason("d", types.source_type(1082), date) == (
        "the value of field d does not fit DATE (infinity and years BC or after 9999 do not)"
    )
    assert "fit ARRAY<INT> (one dimension that begins at 1 does)" in misfit_reason("a", types.source_type(1007), whole)
    assert misfit_reason("a", types.source_type(1182), parse_sql_type("ARRAY<DATE>")).endswith(
        "ARRAY<DATE> (one dimension that begins at 1 does; infinity and years BC or after 9999 do not)"
    )
