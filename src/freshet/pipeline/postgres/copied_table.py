"""A table of the source as its copy reads it, and the SQL of its chunks: ranges of the whole key, in the key's order.

A range is compared as a row (`(a, b) > ('1'::bigint, 'x'::text)`), which the index of the key answers. A table without
a key has ranges of pages (`ctid`), which are right within one snapshot alone: an update moves a row to another page.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import psycopg
from psycopg import sql

from freshet._frozen import Frozen
from freshet.pipeline.postgres.copy_state import Bound
from freshet.pipeline.postgres.publications import published_part

CHUNK_BYTES: Final = 16 * 2**20
"""The rows of a batch, eight chunks, wait in the memory of two workers (`gathered_rows`). Of chunks twice as large they
went to the scratch disk and came back, for a tenth of the workers' processor time."""
CHUNK_ROWS_MIN, CHUNK_ROWS_MAX = 1_000, 500_000
_PARTITIONED: Final = "p"
_SINCE_14: Final = 140_000
"""Before, a range of pages reads the whole table."""
_SINCE_18: Final = 180_000
"""Before, no generated column is sent, though publications name them."""

_DESCRIBE: Final = """
SELECT c.relkind::text, c.reltuples::float8,
       COALESCE((SELECT sum(pg_catalog.pg_table_size(t.relid)) FROM pg_catalog.pg_partition_tree(c.oid) t),
                pg_catalog.pg_table_size(c.oid))::bigint,
       COALESCE((SELECT max(pg_catalog.pg_relation_size(t.relid)) FROM pg_catalog.pg_partition_tree(c.oid) t),
                pg_catalog.pg_relation_size(c.oid))::bigint / pg_catalog.current_setting('block_size')::bigint,
       a.attname::text, a.atttypid::bigint, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod),
       CASE WHEN co.collname IS NULL THEN NULL
            ELSE pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(co.collname) END,
       COALESCE(co.collprovider = 'c' AND co.collcollate IN ('C', 'POSIX')
                OR co.collprovider = 'd' AND d.datcollate IN ('C', 'POSIX')
                   AND COALESCE(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c') = 'c', true),
       pg_catalog.array_position((i.indkey::int2[])[0:i.indnkeyatts - 1], a.attnum), a.attgenerated <> ''
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = co.collnamespace
WHERE c.oid = pg_catalog.to_regclass(%s) ORDER BY a.attnum
"""


class CopiedColumn(Frozen):
    """A column: its type by oid and modifier, and as SQL writes it; the collation that its texts are sorted by, and
    whether they are in the order of their bytes."""

    name: str
    type_oid: int
    modifier: int
    type_sql: str
    collation: str | None = None
    is_byte_order: bool = True


class CopiedTable(Frozen):
    """What a copy has to know of a table. `key` are the places of the columns of its primary key, in its order; `rows`
    is an estimate, 0 where there is none, `octets` what the table has with its large values (TOAST), `pages` what its
    largest partition has. Of a table that others inherit from, the rows are its own. `row_filter` is the condition that
    a publication has for its rows, in SQL."""

    schema: str
    name: str
    columns: tuple[CopiedColumn, ...]
    key: tuple[int, ...]
    is_partitioned: bool = False
    rows: int = 0
    octets: int = 0
    pages: int = 0
    row_filter: str | None = None

    @classmethod
    def described(
        cls, session: psycopg.Connection[Any], schema: str, name: str, publication: str | None = None
    ) -> CopiedTable | None:
        """The table as the catalogue has it now; None where there is no such table. Of columns, generated ones too, and
        of rows what the publication has: the stream brings no change of others."""
        named = sql.Identifier(schema, name).as_string(session)
        found = session.execute(_DESCRIBE.encode(), (named,)).fetchall()
        if not found:
            return None
        part = published_part(session, publication, schema, name)
        if session.info.server_version < _SINCE_18 or part.columns is None:
            found = [row for row in found if not row[11]]
        found = [row for row in found if part.columns is None or row[4] in part.columns]
        columns = tuple(CopiedColumn(*row[4:10]) for row in found)
        places = sorted((row[10], place) for place, row in enumerate(found) if row[10] is not None)
        kind, rows, octets, pages = found[0][:4]
        key = tuple(place for _, place in places)
        pages = pages if session.info.server_version >= _SINCE_14 else 0
        is_partitioned = kind == _PARTITIONED
        return cls(schema, name, columns, key, is_partitioned, max(int(rows), 0), octets, pages, part.row_filter)

    @property
    def key_text(self) -> str:
        """What its rows are sorted by; empty where it has no key."""
        columns = (self.columns[place] for place in self.key)
        return ", ".join(f"{each.name} {each.type_oid} {each.collation}" for each in columns)

    @property
    def chunk_rows(self) -> int:
        """How many rows a chunk should have: by the width of a row, where the server has an estimate."""
        wanted = CHUNK_BYTES * self.rows // self.octets if self.rows and self.octets else CHUNK_ROWS_MAX // 5
        return min(max(wanted, CHUNK_ROWS_MIN), CHUNK_ROWS_MAX)

    @property
    def page_ranges(self) -> list[tuple[Bound | None, Bound | None]]:
        """The whole of a table without a key in ranges of pages, each of about `CHUNK_BYTES`."""
        size = max(1, CHUNK_BYTES * self.pages // max(1, self.octets))
        cuts = [(str(page),) for page in range(size, self.pages, size)]
        return list(pairwise([None, *cuts, None]))

    # --- statements ---------------------------------------------------------------------------------------------------

    def copy(self, after: Bound | None, until: Bound | None, rows_max: int | None = None) -> sql.Composed:
        """The rows of a range, or so many of them, as CSV, the columns in their order."""
        names = sql.SQL(", ").join(sql.Identifier(each.name) for each in self.columns)
        return sql.SQL("COPY (SELECT {} FROM {} WHERE {} LIMIT {}) TO STDOUT (FORMAT csv)").format(
            names, self._from, self._range(after, until), sql.Literal(rows_max)
        )

    def copy_keys(self, keys: Sequence[Bound]) -> sql.Composed:
        """The rows of some keys, which are many fewer than those of a chunk."""
        names = sql.SQL(", ").join(sql.Identifier(each.name) for each in self.columns)
        values = sql.SQL(", ").join(map(self._literal, keys))
        return sql.SQL("COPY (SELECT {} FROM {} WHERE {} IN ({})) TO STDOUT (FORMAT csv)").format(
            names, self._from, sql.SQL(" AND ").join([self._published, self._key]), values
        )

    def key_behind(self, after: Bound | None, rows: int) -> sql.Composed:
        """The last key of a chunk of so many rows; no row where the table has fewer."""
        return sql.SQL("SELECT {0} FROM {1} WHERE {2} ORDER BY {0} OFFSET {3} LIMIT 1").format(
            self._key_names, self._from, self._range(after, None), sql.Literal(rows - 1)
        )

    @property
    def places(self) -> sql.Composed:
        """How many of some bounds are below each of some keys, in the order of the keys, by the server's own order. The
        parameters are an array of texts for each column of the key, of the bounds first, then of the keys."""
        names = [sql.Identifier(f"k{number}") for number in range(len(self.key))]
        arrays = sql.SQL(", ").join(sql.SQL("%s::text[]") for _ in names)
        columns = sql.SQL(", ").join(
            sql.SQL("{0}::{1} AS {0}").format(name, sql.SQL(self._type(column).replace("%", "%%")))
            for name, column in zip(names, self._key_columns, strict=True)
        )
        listed = sql.SQL(", ").join(names)
        # Of equal ones the key comes first, so a bound that equals it is not counted.
        return sql.SQL(
            "WITH u AS (SELECT number, true AS is_bound, {2} FROM unnest({1}) WITH ORDINALITY AS b ({0}, number)"
            " UNION ALL SELECT number, false, {2} FROM unnest({1}) WITH ORDINALITY AS k ({0}, number)), "
            "placed AS (SELECT number, is_bound,"
            " count(*) FILTER (WHERE is_bound) OVER (ORDER BY {0}, is_bound) AS below FROM u) "
            "SELECT below FROM placed WHERE NOT is_bound ORDER BY number"
        ).format(listed, arrays, columns)

    @property
    def _from(self) -> sql.Composable:
        named = sql.Identifier(self.schema, self.name)
        return named if self.is_partitioned else sql.SQL("ONLY {}").format(named)

    @property
    def _published(self) -> sql.Composable:
        return sql.SQL("true") if self.row_filter is None else sql.SQL("({})").format(sql.SQL(self.row_filter))

    @property
    def _key_columns(self) -> list[CopiedColumn]:
        return [self.columns[place] for place in self.key]

    @property
    def _key_names(self) -> sql.Composable:
        return sql.SQL(", ").join(sql.Identifier(each.name) for each in self._key_columns)

    @property
    def _key(self) -> sql.Composable:
        return sql.SQL("({})").format(self._key_names)

    def _literal(self, key: Bound) -> sql.Composable:
        """A key as a row: a cast and, where texts have one, the collation of each column."""
        parts = [
            sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(self._type(column)))
            for column, text in zip(self._key_columns, key, strict=True)
        ]
        return sql.SQL("({})").format(sql.SQL(", ").join(parts))

    @staticmethod
    def _type(column: CopiedColumn) -> str:
        return f"{column.type_sql} COLLATE {column.collation}" if column.collation else column.type_sql

    def _range(self, after: Bound | None, until: Bound | None) -> sql.Composable:
        parts: list[sql.Composable] = [] if self.row_filter is None else [self._published]
        if not self.key:
            pages = ((bound[0], mark) for bound, mark in ((after, ">="), (until, "<")) if bound is not None)
            parts += [sql.SQL(f"ctid {mark} '({int(page)},0)'") for page, mark in pages]
            after = until = None
        if after is not None:
            parts.append(sql.SQL("{} > {}").format(self._key, self._literal(after)))
        if until is not None:
            parts.append(sql.SQL("{} <= {}").format(self._key, self._literal(until)))
        return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true")
