"""A catalog in a database (SQLite, PostgreSQL), row for row as Apache Paimon's JDBC catalog, and shared with it.

    paimon_tables: catalog_key, database_name, table_name            a row is a table
    <warehouse>/<database>.db/<table>                                its files

The tables and the order of writes are the JVM's. Nothing spans two of them, so a crash leaves one of these:

| left by | state | handled |
|---|---|---|
| `create_table` | `schema-0` without a row | not listed; creating it again is refused; `register_table` makes the row |
| `create_table`, `alter` | no or old rows of properties | no matter: nothing reads them but other tools |
| `rename_table` | a row whose folder has the old name | opening it is refused; drop it, register the old name |
| `drop_table` | files without a row | without a schema: dropped again; with one: register it, then drop it |

Where the catalog has locks, tables are created, altered, renamed and committed to under them (`jdbc_lock`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from freshet.storage.catalogs.claims import ClaimAnswer, FileClaims, LockedClaims, TableClaims
from freshet.storage.catalogs.coordination import CommitRules
from freshet.storage.catalogs.filesystem import (
    DATABASE_SUFFIX,
    WarehouseFolder,
    has_leftover_files,
    leads_elsewhere,
    leftover_files_error,
    remove_table,
)
from freshet.storage.catalogs.jdbc_lock import JdbcLock
from freshet.storage.catalogs.jdbc_options import JdbcOptions, parse_options
from freshet.storage.catalogs.jdbc_rows import TABLE_PROPERTIES, TABLES, JdbcRows
from freshet.storage.catalogs.metastore import FoundTable, TableName
from freshet.storage.codec.metadata_json import decode_schema
from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, StorageError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot

LOCATION: Final = "location"

CREATOR_WAITS: Final = 10
CREATOR_WAIT_S: Final = 0.05
"""How often, and how long, the row of a table is awaited whose schema another program has just written."""

_LOG: Final = logging.getLogger(__name__)


def open_jdbc(env: Env, warehouse: str, options: Mapping[str, str]) -> JdbcMetastore:
    """The catalog of these options; nothing is connected yet."""
    return JdbcMetastore(env, warehouse, parse_options(options, warehouse))


class JdbcMetastore(WarehouseFolder):
    """The tables of one catalog key. May be shared by threads."""

    def __init__(self, env: Env, warehouse: str, options: JdbcOptions) -> None:
        super().__init__(env, warehouse)
        self._options = options
        self._rows = JdbcRows(env, options)

    def list_databases(self) -> list[str]:
        """The databases with a property, a table or a view."""
        return self._rows.databases()

    def has_database(self, name: str) -> bool:
        """True when one of the tables has a row of it."""
        return self._rows.has_database(name)

    def create_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """The rows of its properties; no folder is made."""
        return self._rows.insert_database(name, {LOCATION: self._folder(name), **properties})

    def database_properties(self, name: str) -> dict[str, str]:
        """With its `location`, which has no effect on where tables lie."""
        return {LOCATION: f"{name}{DATABASE_SUFFIX}", **self._rows.database_properties(name)}

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """In up to three statements."""
        self._rows.alter_database(name, changes)

    def drop_database(self, name: str) -> None:
        """All rows of it, then the files of its tables; those of others in its folder stay, and all behind a link."""
        tables = [TableName(name, table) for table in self._rows.tables(name)]
        for table in tables[:1]:
            self._found(table).claims.check_writable()
        self._rows.delete_database(name)
        self._env.reach(CrashPoint.TABLE_ROW_REMOVED)
        for table in () if leads_elsewhere(self._env.file_io, self._folder(name)) else tables:
            remove_table(self._env, self._paths(table))

    def list_tables(self, database: str) -> list[str]:
        """By their rows."""
        return self._rows.tables(database)

    def list_remains(self, database: str, tables: Collection[str]) -> list[str]:
        """None: tables are what the database has."""
        return []

    def list_views(self, database: str) -> list[str]:
        """By their rows."""
        return self._rows.views(database)

    def find_table(self, name: TableName) -> FoundTable | None:
        """A row, and a schema where it says."""
        return self._found(name) if self._rows.has_table(name) and self._has_schema(name) else None

    def find_remains(self, name: TableName) -> FoundTable | None:
        """A row and snapshots, tags or branches without a schema. Raises `NotFoundError` with what to do for what other
        interrupted calls leave."""
        has_row, paths = self._rows.has_table(name), self._paths(name)
        if has_row and has_leftover_files(self._env.file_io, paths):
            return self._found(name)
        if has_row:
            raise NotFoundError(
                f"table {name} has a row of {TABLES}, and no files at {paths.location}: renaming or dropping it "
                f"was interrupted. Remove the row with drop_table({str(name)!r}); if its folder still has another "
                "name, make that one a table with register_table or freshet register",
                table=str(name),
                path=paths.location,
            )
        if self._has_schema(name):
            raise NotFoundError(self._unregistered(name), table=str(name), path=paths.location)
        return None

    def table_claims(self, name: TableName) -> TableClaims | None:
        """The claims that `find_table` gives, without asking the database: the first claim does."""
        return self._found(name).claims

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """The schema file, then the row, then the rows of its properties."""
        paths = self._paths(name)
        self._found(name).claims.check_writable()
        self._rows.check_lengths(schema)
        with self._locked(name):
            if self._rows.has_view(name):
                raise AlreadyExistsError(
                    f"table {name} cannot be created: the catalog has a view of this name; choose another one",
                    table=str(name),
                )
            if self._rows.has_table(name):
                if not self._has_schema(name):
                    self.find_remains(name)  # raises, or there are snapshots
                return False
            if not self._has_schema(name) and has_leftover_files(self._env.file_io, paths):
                raise leftover_files_error(str(name), paths)
            if not FileClaims(self._env.file_io, paths, self._options.rules).claim_schema(schema):
                self._await_row(name)
                return False
            if not self._rows.insert_table(name):  # a rename to this name, without a lock
                self._env.file_io.delete(paths.schema(schema.id))
                return False
            self._rows.insert_properties(name, schema)
        return True

    def register_table(self, name: TableName) -> bool:
        """Makes the row of a table whose files are there; also of its database. False where it has one."""
        paths = self._paths(name)
        schema_ids = self._schema_ids(name)
        if not schema_ids:
            raise self._not_registered(name)
        latest = paths.schema(max(schema_ids))
        schema = decode_schema(self._env.file_io.read_bytes(latest), latest)
        self.create_database(name.database, {})
        is_new = self._rows.insert_table(name)
        self._rows.replace_properties(name, schema)
        return is_new

    def drop_table(self, name: TableName) -> bool:
        """The row, the rows of its properties, the files. Files that have a schema and no row stay, for another catalog
        may have them: `NotFoundError` says what to do."""
        self._found(name).claims.check_writable()
        paths = self._paths(name)
        had_row = self._rows.delete_table(name)
        self._env.reach(CrashPoint.TABLE_ROW_REMOVED)
        if not had_row and self._has_schema(name):
            raise NotFoundError(self._unregistered(name), table=str(name), path=paths.location)
        if not had_row and not has_leftover_files(self._env.file_io, paths):
            return False
        remove_table(self._env, paths)
        return True

    def rename_table(self, name: TableName, to: TableName) -> None:
        """The rows, then the folder. Where that cannot be renamed the rows get the old name back."""
        folders = self._renaming(name, to)
        with self._locked(*sorted((name, to))):
            target = self._paths(to)
            if (
                self._rows.has_table(to)
                or self._rows.has_view(to)
                or self._has_schema(to)
                or has_leftover_files(self._env.file_io, target)
            ):
                raise AlreadyExistsError(
                    f"table {name} cannot be renamed to {to}: the catalog has a table or a view of this name, or files "
                    f"of one are at {target.location}",
                    table=str(to),
                    path=target.location,
                )
            self._rows.rename_table(name, to)
            self._env.reach(CrashPoint.TABLE_ROW_RENAMED)
            try:
                folders.rename(self._paths(name).location, target.location)
            except StorageError:
                self._rows.rename_table(to, name)
                raise

    def _await_row(self, name: TableName) -> None:
        """After a schema without a row: another program may be about to make it; else nobody will."""
        for _ in range(CREATOR_WAITS):
            if self._rows.has_table(name):
                return
            self._env.sleep_s(CREATOR_WAIT_S)
        raise AlreadyExistsError(self._unregistered(name), table=str(name), path=self._paths(name).location)

    def _unregistered(self, name: TableName) -> str:
        return (
            f"there is no table {name} in the catalog, but files of one are at {self._paths(name).location}: creating "
            "or dropping it was interrupted, or it belongs to another catalog. Make it a table of this one with "
            f"register_table({str(name)!r}) or freshet register, and drop it then if it is not needed"
        )

    @contextmanager
    def _locked(self, *names: TableName) -> Iterator[None]:
        """Holds the locks of tables, where the catalog has locks."""
        with ExitStack() as held:
            for name in names if self._options.lock else ():
                held.enter_context(self._lock().held(name))
            yield

    @contextmanager
    def _locked_table(self, name: TableName, branch: str | None = None) -> Iterator[None]:
        """Holds the lock of a table that the catalog has, or of a branch of it."""
        with self._lock().held(name, branch) as held:
            if not held.is_table:
                raise NotFoundError(
                    f"table {name} was dropped or renamed while it was open: its catalog does not have it any more",
                    table=str(name),
                )
            yield

    def _lock(self) -> JdbcLock:
        assert self._options.lock is not None
        return JdbcLock(self._env, self._rows.pool, self._options.catalog_key, self._options.lock)

    def _found(self, name: TableName) -> FoundTable:
        paths = self._paths(name)
        claims: TableClaims = FileClaims(self._env.file_io, paths, self._options.rules)
        if self._options.lock is not None:
            claims = LockedClaims(
                claims,
                lambda: self._locked_table(name),
                lambda branch: lambda: self._locked_table(name, branch),
            )
        return FoundTable(paths.location, JdbcClaims(claims, self._rows, name))


class JdbcClaims:
    """The claims of a table in a JDBC catalog: under its lock where there is one, and its properties follow its
    schema.
    """

    def __init__(self, claims: TableClaims, rows: JdbcRows, name: TableName) -> None:
        self._claims = claims
        self._rows = rows
        self._name = name

    @property
    def rules(self) -> CommitRules:
        """The rules of the claims."""
        return self._claims.rules

    @property
    def has_lock(self) -> bool:
        """Whether the claims have one."""
        return self._claims.has_lock

    def by(self, rules: CommitRules) -> JdbcClaims:
        """The same by other rules."""
        return JdbcClaims(self._claims.by(rules), self._rows, self._name)

    def on_branch(self, branch: str) -> TableClaims:
        """The claims of a branch, which has no rows."""
        return self._claims.on_branch(branch)

    def check_writable(self) -> None:
        """Asks the claims."""
        self._claims.check_writable()

    def claim_schema(self, schema: TableSchema) -> bool:
        """Claims as the claims do; a schema whose properties do not fit into their rows is refused before.

        Rows that cannot be written afterwards are written with the next schema: only other tools read them.
        """
        self._rows.check_lengths(schema)
        is_ours = self._claims.claim_schema(schema)
        if is_ours:
            try:
                self._rows.replace_properties(self._name, schema)
            except StorageError as error:
                _LOG.warning(
                    "table %s was altered, and its rows of %s were not: %s", self._name, TABLE_PROPERTIES, error
                )
        return is_ours

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """Claims as the claims do."""
        return self._claims.claim_snapshot(snapshot)

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """Asks the claims."""
        return self._claims.ask_again(snapshot)
