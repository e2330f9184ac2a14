"""A catalog in the memory of this process: names and properties there, the files of tables below the warehouse.

For tests and trials, and as the smallest catalog that is not the folder: a table lies in a folder that does not bear
its name, and its ids are claimed while a lock is held. Catalogs of one warehouse in a process are one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from freshet.storage.catalogs.claims import FileClaims, LockedClaims, TableClaims
from freshet.storage.catalogs.metastore import FoundTable, TableName
from freshet.storage.catalogs.remains import leads_elsewhere, remove_table
from freshet.storage.exceptions import AlreadyExistsError, NotFoundError, UnsupportedFeatureError
from freshet.storage.io.env import Env
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import TablePaths


@dataclass(slots=True)
class _Database:
    properties: dict[str, str]
    tables: dict[str, str] = field(default_factory=dict)
    """Locations by name."""


class _Names:
    """What the catalogs of one warehouse share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.databases: dict[str, _Database] = {}


_WAREHOUSES: Final[dict[str, _Names]] = {}


class MemoryMetastore:
    """Databases and tables of a warehouse, as far as this process has made them."""

    def __init__(self, env: Env, warehouse: str) -> None:
        self._env = env
        self._warehouse = warehouse
        self._names = _WAREHOUSES.setdefault(warehouse, _Names())

    @property
    def warehouse(self) -> str:
        """Below it lie the files."""
        return self._warehouse

    def list_databases(self) -> list[str]:
        """In memory."""
        with self._names.lock:
            return sorted(self._names.databases)

    def has_database(self, name: str) -> bool:
        """In memory."""
        return name in self._names.databases

    def create_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """Of two creators one wins."""
        with self._names.lock:
            if name in self._names.databases:
                return False
            self._names.databases[name] = _Database(dict(properties))
            return True

    def database_properties(self, name: str) -> dict[str, str]:
        """A copy."""
        with self._names.lock:
            return dict(self._database(name).properties)

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """All changes at once."""
        with self._names.lock:
            properties = {**self._database(name).properties, **changes}
            self._database(name).properties = {key: text for key, text in properties.items() if text is not None}

    def drop_database(self, name: str) -> None:
        """The names first; files behind a link stay."""
        with self._names.lock:
            dropped = self._names.databases.pop(name, None)
        for location in dropped.tables.values() if dropped else ():
            if not leads_elsewhere(self._env.file_io, location.rpartition("/")[0]):
                self._remove(location)

    def list_tables(self, database: str) -> list[str]:
        """In memory."""
        with self._names.lock:
            return sorted(self._database(database).tables)

    def list_views(self, database: str) -> list[str]:
        """None."""
        return []

    def find_table(self, name: TableName) -> FoundTable | None:
        """By its name; the location stays with the table."""
        with self._names.lock:
            database = self._names.databases.get(name.database)
            location = database.tables.get(name.table) if database else None
        if location is None:
            return None
        claims = FileClaims(self._env.file_io, TablePaths(location))
        return FoundTable(location, LockedClaims(claims, lambda: self._names.lock))

    def table_claims(self, name: TableName) -> TableClaims | None:
        """By its name."""
        found = self.find_table(name)
        return None if found is None else found.claims

    def find_remains(self, name: TableName) -> FoundTable | None:
        """None: the name goes first."""
        return None

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """The file, then the name."""
        with self._names.lock:
            tables = self._database(name.database).tables
            if name.table in tables:
                return False
            location = f"{self._warehouse}/{self._env.new_uuid()}"
            FileClaims(self._env.file_io, TablePaths(location)).claim_schema(schema)
            tables[name.table] = location
            return True

    def register_table(self, name: TableName) -> bool:
        """Refused: a folder does not say which table it is of."""
        raise UnsupportedFeatureError(
            f"table {name} cannot be registered: a catalog in memory gives its tables folders of other names",
            table=str(name),
        )

    def drop_table(self, name: TableName) -> bool:
        """The name, then the files."""
        with self._names.lock:
            database = self._names.databases.get(name.database)
            location = database.tables.pop(name.table, None) if database else None
        if location is None:
            return False
        self._remove(location)
        return True

    def rename_table(self, name: TableName, to: TableName) -> None:
        """The name alone: tables that are open stay usable."""
        with self._names.lock:
            source, target = self._database(name.database).tables, self._database(to.database).tables
            if name.table not in source:
                raise NotFoundError(f"there is no table {name} any more", table=str(name))
            if to.table in target:
                raise AlreadyExistsError(f"table {to} exists already", table=str(to))
            target[to.table] = source.pop(name.table)

    def _remove(self, location: str) -> None:
        remove_table(self._env, TablePaths(location))

    def _database(self, name: str) -> _Database:
        database = self._names.databases.get(name)
        if database is None:
            raise NotFoundError(f"there is no database {name!r} any more in {self._warehouse}")
        return database
