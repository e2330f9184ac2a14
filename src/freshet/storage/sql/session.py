"""Where statements act: a catalog, a database for names without one, and what computes queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from freshet._frozen import Frozen
from freshet.storage.catalog import Catalog, is_system_name, known_catalogs
from freshet.storage.filters.predicate import Predicate
from freshet.storage.io.env import Env
from freshet.storage.model.arguments import reading
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.sql.names import SqlName
from freshet.storage.sql.refusals import refused, shown, wrong
from freshet.storage.sql.result import Rows, SqlResult
from freshet.storage.system_tables.system_table import SystemTable

if TYPE_CHECKING:
    from freshet.storage.table import Table


UTC_ZONE = UTC
"""Of engines that compute in UTC."""

Travel = Mapping[str, Any]
"""`snapshot_id`, `tag` or `timestamp_ms` with its value, or nothing."""


class TableRead(Frozen):
    """One table of a query at one snapshot: what is read of it, and the name that it has in the query.

    `filter` and `predicate` are the same condition, as text and as value: rows for which it is true suffice. `travel`
    says which snapshot, as scans are told; where it is empty it is the latest one, in the columns of now.
    """

    label: str
    catalog: Catalog
    identifier: str
    table: Table | SystemTable
    schema: pa.Schema
    filter: str | None
    predicate: Predicate | None
    travel: Travel
    latest: Snapshot | None

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of each row."""
        return tuple(self.schema.names)

    @property
    def named_snapshot_id(self) -> int | None:
        """The latest snapshot by its id, for readers that read a snapshot they are told in the columns that it had;
        None where these are not those of now, or there is none."""
        if self.latest is None or isinstance(self.table, SystemTable):
            return None
        return self.latest.id if self.latest.schema_id == self.table.schema.id else None


class Query(Frozen):
    """A query of which every table is known; the tables in its tree are named by the labels of its reads."""

    tree: exp.Query
    reads: tuple[TableRead, ...]
    env: Env | None = None
    """That of a table, for what does not fit into memory."""

    def sql(self, dialect: str, prefix: str = "") -> str:
        """The query as text, with `prefix` before each label; every name is quoted."""
        with reading(f"SQL: the query {shown(self.tree)!r}"):
            return self._text(dialect, prefix)

    def _text(self, dialect: str, prefix: str) -> str:
        tree = self.tree.copy()
        labels = {read.label for read in self.reads}
        for table in list(tree.find_all(exp.Table)):
            if isinstance(table.this, exp.Identifier) and table.name in labels and not table.args.get("db"):
                table.set("this", exp.to_identifier(f"{prefix}{table.name}", quoted=True))
        try:
            return tree.sql(dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as error:
            raise refused(tree, f"{error}, in {dialect}") from error


class QueryEngine(Protocol):
    """Computes queries."""

    @property
    def zone(self) -> tzinfo:
        """The zone of moments that are written without one."""

    def knows(self, name: str) -> bool:
        """Whether the engine has a table of this name itself, such as a temporary view."""

    def takes_function(self, name: str) -> bool:
        """Whether a function of this name may stand where a table could."""

    def run(self, query: Query) -> Rows:
        """The rows of a query; raises `InvalidRequestError` for one that it cannot compute."""


class SqlSession(Frozen):
    """What statements are given besides their text."""

    catalog: Catalog
    engine: QueryEngine
    database: str | None = None
    dry_run: bool = False
    """Statements say what they would change, and commit nothing; those that cannot are refused."""
    allow_lossy: bool = False
    """ALTER TABLE may change types and options so that rows which are there lose values."""

    def catalog_of(self, name: SqlName) -> Catalog:
        """The catalog that a name begins with, one that has a name on this machine; without one the session's."""
        if name.catalog is None:
            return self.catalog
        known = [each.name for each in known_catalogs()]
        if name.catalog not in known:
            there = f"catalogs with names are {', '.join(known)}" if known else "no catalog has a name here"
            raise wrong(str(name), f"there is no catalog {name.catalog!r}; {there} (catalogs.yaml)")
        return Catalog(name.catalog)

    def place(self, name: SqlName) -> tuple[Catalog, str]:
        """The catalog and the identifier, `database.table`, that a name means."""
        database = name.database if name.database is not None else self.database
        if database is None:
            raise wrong(str(name), "say in which database it is: database.table, or give database=")
        if "." in database:
            raise wrong(str(name), "databases with a dot in their name are reached by other programs only")
        return self.catalog_of(name), f"{database}.{name.name}"

    def table(self, name: SqlName) -> Table:
        """A table, to be changed; system tables are refused."""
        catalog, identifier = self.place(name)
        if is_system_name(identifier):
            raise wrong(str(name), "a system table is only read")
        return catalog.table(identifier)

    def readable(self, name: SqlName) -> tuple[Catalog, str, Table | SystemTable]:
        """A table or a system table, to be read, with its catalog and its identifier."""
        catalog, identifier = self.place(name)
        if is_system_name(identifier):
            return catalog, identifier, catalog.system_table(identifier)
        return catalog, identifier, catalog.table(identifier)


class Plan(Frozen):
    """What a statement asks for: carried out as often as it is run."""

    run: Callable[[SqlSession], SqlResult]
    has_dry_run: bool = False
    """Whether it can say what it would change."""
