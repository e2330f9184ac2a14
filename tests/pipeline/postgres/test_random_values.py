"""Random values made by a real server: the columns that their texts become, against what psycopg reads in binary."""

from __future__ import annotations

from datetime import UTC, time
from typing import Any, Final

import pyarrow as pa

from freshet.pipeline.postgres.chunk_reader import ChunkReader
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.source_types import TypesSeen
from freshet.pipeline.postgres.value_texts import SETTINGS_OPTION, text_converter
from freshet.storage.model.sql_type import parse_sql_type
from tests.kit.postgres_source import PostgresSource

ROWS: Final = 300
WORD: Final = (
    "(SELECT string_agg(chr(1 + (random() * 700)::int), '') FROM generate_series(1, (n + random() * 9)::int % 9))"
)
COLUMNS: Final = {
    "bigint": "((random() - 0.5) * 18446744073709551614::numeric)::bigint",
    "numeric(38,10)": "(random() - 0.5)::numeric * 10::numeric ^ (random() * 27)::int",
    "numeric(38,0)": "(random() - 0.5)::numeric * 10::numeric ^ (random() * 37)::int",
    "float8": "(random() - 0.5) * power(10::float8, random() * 600 - 300)",
    "real": "((random() - 0.5) * power(10::float8, random() * 70 - 35))::real",
    "boolean": "random() < 0.5",
    "date": "date '0001-01-01' + (random() * 3652058)::int",
    "timestamp": "timestamp '0001-01-01' + random() * 3652058 * interval '1 day'",
    "timestamp(2)": "timestamp '0001-01-01' + random() * 3652058 * interval '1 day'",
    "timestamptz": "timestamptz '0001-01-02 00:00:00+00' + random() * 3652057 * interval '1 day'",
    "time(3)": "time '00:00' + random() * interval '86399 s'",
    "text": WORD,
    "bytea": "substr(decode(md5(random()::text), 'hex'), 1, (random() * 16)::int)",
    "integer[]": "ARRAY[(random() * 1000)::int, NULL, n]",
    "text[]": f"ARRAY[{WORD}, NULL, {WORD}, 'NULL']",
    "timestamptz[]": "ARRAY[timestamptz '2024-01-01 00:00:00+00' + random() * interval '1 day']",
}


def plain(value: Any) -> Any:
    """As it is shown of both sides."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if getattr(value, "tzinfo", None) is not None:
        return value.astimezone(UTC).replace(tzinfo=UTC)
    return value


def test_columns_are_what_a_client_reads_in_binary(postgres: PostgresSource) -> None:
    names = [f"c{number}" for number in range(len(COLUMNS))]
    declared = ", ".join(f"{name} {kind}" for name, kind in zip(names, COLUMNS, strict=True))
    values = ", ".join(f"CASE WHEN random() < 0.9 THEN {each} END" for each in COLUMNS.values())
    postgres.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {declared})",
        f"INSERT INTO t SELECT n, {values} FROM generate_series(1, {ROWS}) n",
    )
    with postgres.connect(options=SETTINGS_OPTION, client_encoding="UTF8") as session:
        expected = session.execute("SELECT * FROM t ORDER BY id", binary=True).fetchall()
        table = CopiedTable.described(session, "public", "t")
        assert table is not None
        texts = pa.concat_tables(ChunkReader(session, table).rows(None, None)).combine_chunks()
    columns = []
    for index, column in enumerate(table.columns):
        source = TypesSeen().source_type(column.type_oid, column.modifier)
        array, bad = text_converter(source, parse_sql_type(source.sql_type)).of_texts(texts.column(index).chunk(0))
        assert bad is None
        columns.append([plain(value) for value in array.to_pylist()])
    rows = dict(zip(columns[0], zip(*columns, strict=True), strict=True))
    for row in expected:
        assert list(rows[row[0]]) == [plain(value) for value in row]
