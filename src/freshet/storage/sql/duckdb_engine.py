"""Queries over Arrow in DuckDB: each table is a stream of the batches of its scan, opened whenever DuckDB reads it.

DuckDB reaches no file and no Python variable: what a query names is a table of a catalog, or nothing. It computes in
UTC. Rows come out as they are computed; what DuckDB must hold (sorts, joins, groups) has its own memory limit, and is
spilled into a scratch folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import tzinfo
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.scan.frame_outputs import RowStream
from freshet.storage.scan.locked_duckdb import LockedDuckDb
from freshet.storage.scan.table_scan import TableScan
from freshet.storage.sql.session import UTC_ZONE, Query, TableRead
from freshet.storage.system_tables.system_table import SystemScan, SystemTable

BATCH_ROWS: Final = 65_536
_FUNCTIONS: Final = frozenset({"range", "generate_series", "explode", "unnest", "generateseries"})
_HUGE: Final = "HUGEINT"


class DuckDbEngine(Frozen):
    """A `QueryEngine`."""

    zone: tzinfo = UTC_ZONE

    def knows(self, name: str) -> bool:
        """DuckDB has no tables of its own here."""
        del name
        return False

    def takes_function(self, name: str) -> bool:
        """Functions that make rows of their arguments alone."""
        return name.lower() in _FUNCTIONS

    def run(self, query: Query) -> DuckDbRows:
        """The rows; raises `InvalidRequestError` for a query that DuckDB refuses."""
        rows = DuckDbRows(replace(query, tree=_with_sparks_names(query.tree)))
        _ = rows.schema
        return rows


class DuckDbRows(Frozen, dict=True):
    """Rows of a query, computed anew for each caller."""

    query: Query

    @cached_property
    def given_names(self) -> Sequence[str]:
        """Names of the columns as the query has them; `schema` makes different ones of the same."""
        with _opened(self.query) as connection:
            names: list[str] = connection.sql(self._text()).columns
            return names

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns that come out."""
        with _opened(self.query) as connection:
            first = connection.sql(self._text(limit=0))
            found = first.to_arrow_table().schema
            kinds = [str(kind) for kind in first.types]
        fields = [
            field.with_type(pa.int64()) if kind == _HUGE else field for field, kind in zip(found, kinds, strict=True)
        ]
        return pa.schema([field.with_nullable(True) for field in fields])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as DuckDB computes them."""
        with _opened(self.query) as connection:
            reader = connection.sql(self._text()).to_arrow_reader(BATCH_ROWS)
            try:
                for batch in reader:
                    if batch.num_rows:
                        yield self._narrowed(batch)
            finally:
                reader.close()

    def _text(self, limit: int | None = None) -> str:
        tree = self.query.tree
        if limit is not None:
            query = Query(exp.select("*").from_(tree.copy().subquery("freshet_query")).limit(limit), self.query.reads)
            return query.sql("duckdb")
        return self.query.sql("duckdb")

    def _narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Sums of whole numbers as BIGINT, which Spark makes of them; an error where one does not fit."""
        arrays = []
        for array, field in zip(batch.columns, self.schema, strict=True):
            try:
                arrays.append(array if array.type == field.type else pc.cast(array, field.type))
            except pa.ArrowInvalid as error:
                raise InvalidRequestError(
                    f"column {field.name!r} of the result has values beyond BIGINT ({error}); cast it to DECIMAL(38, 0)"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def scan_of(read: TableRead) -> TableScan | SystemScan:
    """The scan of what a query reads of a table."""
    table = read.table
    if isinstance(table, SystemTable) or read.travel or read.latest is None:
        return table.scan(read.columns, read.predicate, **read.travel)
    return TableScan(table.store, columns=read.columns, filter=read.predicate, snapshot=read.latest)


def _stream(read: TableRead) -> RowStream:
    """The rows of one table for DuckDB, which opens it as often as it reads the table."""
    return RowStream(read.schema, lambda: scan_of(read).to_batches())


@contextmanager
def _opened(query: Query) -> Iterator[Any]:
    """A connection with the tables of a query; errors of DuckDB become ours."""
    duckdb = LockedDuckDb(query.env)
    streams = {read.label: _stream(read) for read in query.reads}
    try:
        for label, stream in streams.items():
            duckdb.connection.register(label, stream)
        yield duckdb.connection
    except (duckdb.errors, pa.ArrowException, OSError, MemoryError) as error:
        failed = next((failure for stream in streams.values() for failure in stream.failures), None)
        if failed is not None:
            raise failed from error
        raise duckdb.failure(error, "SQL: ") from error
    finally:
        duckdb.close()


def _with_sparks_names(tree: exp.Query) -> exp.Query:
    """The query with Spark's names of the columns of functions that make rows: `id` of range, `col` of explode."""
    tree = tree.copy()
    for table in tree.find_all(exp.Table):
        function = table.this
        name = function.name.lower() if isinstance(function, exp.Anonymous) else ""
        column = "id" if name == "range" else "col" if isinstance(function, exp.Explode) else None
        alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name or "explode"))
        if column is not None and not alias.args.get("columns"):
            alias.set("columns", [exp.to_identifier(column)])
            table.set("alias", alias)
    return tree
