"""Databases and tables of one warehouse folder.

    <warehouse>/<database>.db/<table>/schema/schema-0        a folder with a schema file is a table

There is no catalog file: a table exists when it has a schema, and creating one is the exclusive create of `schema-0`,
so that of two creators one wins and the other is told. Source: FORMAT.md §1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Final, TypeAlias

import pyarrow as pa

from freshet.storage.catalogs.claims import FileClaims
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env, absolute_path, open_env
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.metadata.table_store import open_table_store
from freshet.storage.model.arrow_types import fields_from_arrow
from freshet.storage.model.data_type import DataField, DataType, with_nullable
from freshet.storage.model.schema import TableSchema, assign_ids
from freshet.storage.model.sql_type import column_type
from freshet.storage.options.values import option_texts
from freshet.storage.paths import FILE_SCHEME, TablePaths, canonical_location, scheme_of
from freshet.storage.schema.validation import validate_new_table
from freshet.storage.table import Table

DATABASE_SUFFIX: Final = ".db"
DATABASE_MARKER: Final = ".database"
"""An empty file that makes a database without tables show where a store has no folders."""
NAME_BYTES_MAX: Final = 250
"""Of 255 that file systems allow; a database's folder has a suffix."""

_NAME: Final = re.compile(r"^[^\s/\\.$@][^/\\$@]*$")

ColumnTypes: TypeAlias = pa.Schema | Mapping[str, str | DataType]
"""Columns of a new table: an Arrow schema, or names with types as people write them (`DECIMAL(14, 4) NOT NULL`)."""


class Catalog:
    """The tables below one warehouse folder; holds no state, so several may look at the same folder."""

    def __init__(self, warehouse: str | PathLike[str], *, env: Env | None = None) -> None:
        """`warehouse` is a path or a `file:` URI, a relative one against the current folder; the folder is created with
        the first database."""
        self.warehouse = _warehouse_folder(warehouse)
        self._env = env or open_env(fspath(warehouse))

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Creates an empty database."""
        folder = self._database_folder(name)
        if self._env.file_io.exists_prefix(folder):
            if if_not_exists:
                return
            raise AlreadyExistsError(f"database {name!r} exists already in {self.warehouse}")
        folders = self._env.file_io.folders
        if folders is not None:
            folders.make(folder)
        else:
            self._env.file_io.create_exclusive(f"{folder}/{DATABASE_MARKER}", b"")

    def list_databases(self) -> list[str]:
        """Names, sorted."""
        entries = self._env.file_io.entries(self.warehouse)
        names = (entry.name for entry in entries if entry.is_folder and entry.name.endswith(DATABASE_SUFFIX))
        return sorted(name.removesuffix(DATABASE_SUFFIX) for name in names)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Removes a database; with tables in it only when `cascade` says so."""
        folder = self._database_folder(name)
        if not self._env.file_io.exists_prefix(folder):
            if if_exists:
                return
            raise NotFoundError(f"there is no database {name!r} in {self.warehouse}")
        tables = self.list_tables(name)
        if tables and not cascade:
            raise InvalidRequestError(
                f"database {name!r} holds tables ({', '.join(tables[:5])}); drop them, or pass cascade=True"
            )
        self._env.file_io.delete_prefix(folder)

    def create_table(
        self,
        identifier: str,
        *,
        schema: ColumnTypes,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Creates `database.table`, and the database with it.

        Everything is checked before anything is written: types, keys and options. With `if_not_exists` an existing
        table is returned as it is, whatever its schema. Raises `InvalidRequestError`, `UnsupportedFeatureError` or
        `AlreadyExistsError`.
        """
        location = self._location(identifier)
        _check_column_list("primary_keys", primary_keys)
        _check_column_list("partition_keys", partition_keys)
        given_options = option_texts(options)
        store = SchemaStore(self._env, TablePaths(location))
        has_remains = self._has_remains(location)  # before the schema: another creator's snapshot follows its schema
        if store.list_ids():
            if if_not_exists:
                return self.table(identifier)
            raise AlreadyExistsError(
                f"table {identifier} exists already at {location}; pass if_not_exists=True to use it",
                table=identifier,
                path=location,
            )
        if has_remains:
            raise InvalidRequestError(
                f"table {identifier} cannot be created: {location} holds snapshots of an earlier table, which was not "
                "dropped to the end, and they would show in the new one; remove them with drop_table",
                table=identifier,
                path=location,
            )
        fields, highest = _columns(schema, primary_keys, partition_keys)
        new = TableSchema(
            id=0,
            fields=fields,
            highest_field_id=highest,
            partition_keys=tuple(partition_keys),
            primary_keys=tuple(primary_keys),
            options=given_options,
            comment=comment,
            time_ms=self._env.now_ms(),
        )
        validate_new_table(new)
        if not FileClaims(self._env.file_io, TablePaths(location)).claim_schema(new) and not if_not_exists:
            raise AlreadyExistsError(
                f"table {identifier} was created by somebody else at this moment; open it", table=identifier
            )
        return self.table(identifier)

    @staticmethod
    def check_new_table(schema: TableSchema) -> None:
        """Raises what `create_table` would raise for a table of this schema; writes nothing."""
        validate_new_table(schema)

    def table(self, identifier: str, *, options: Mapping[str, object] | None = None) -> Table:
        """Opens a table at its latest schema; `options` override its own for this object only."""
        location = self._location(identifier)
        if not self._is_table(location):
            raise NotFoundError(self._missing(identifier))
        dynamic = option_texts(options)
        return Table(open_table_store(self._env, location, options=dynamic or None), name=identifier)

    def has_table(self, identifier: str) -> bool:
        """True when the table exists."""
        return self._is_table(self._location(identifier))

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        folder = self._database_folder(database)
        if not self._env.file_io.exists_prefix(folder):
            raise NotFoundError(
                f"there is no database {database!r} in {self.warehouse}; it has {self.list_databases()}"
            )
        entries = self._env.file_io.entries(folder)
        return sorted(entry.name for entry in entries if entry.is_folder and self._is_table(entry.path))

    def drop_table(self, identifier: str, *, if_exists: bool = False) -> None:
        """Removes a table with all of its files, also what an interrupted call has left.

        The schema goes first: without it nobody reads or writes what is not removed yet.
        """
        location = self._location(identifier)
        if not self._is_table(location) and not self._has_remains(location):
            if if_exists:
                return
            raise NotFoundError(self._missing(identifier))
        self._env.file_io.delete_prefix(TablePaths(location).schema_folder)
        self._env.file_io.delete_prefix(location)

    def _is_table(self, location: str) -> bool:
        """Also where the schema cannot be read: such a table can be seen, and dropped."""
        return bool(SchemaStore(self._env, TablePaths(location)).list_ids())

    def _has_remains(self, location: str) -> bool:
        return any(self._env.file_io.entries(TablePaths(location).snapshot_folder))

    def _missing(self, identifier: str) -> str:
        database, _ = split_identifier(identifier)
        if not self._env.file_io.exists_prefix(self._database_folder(database)):
            return f"there is no table {identifier}: no database {database!r} in {self.warehouse}"
        tables = ", ".join(self.list_tables(database)[:10]) or "none"
        return f"there is no table {identifier} in {self.warehouse}; tables of {database!r}: {tables}"

    def _database_folder(self, name: str) -> str:
        _check_name("database", name)
        return f"{self.warehouse}/{name}{DATABASE_SUFFIX}"

    def _location(self, identifier: str) -> str:
        database, table = split_identifier(identifier)
        return f"{self._database_folder(database)}/{table}"


def split_identifier(identifier: str) -> tuple[str, str]:
    """`database.table` as its two names."""
    if not isinstance(identifier, str):
        raise InvalidRequestError(f"a table is named as database.table; got {identifier!r}")
    database, dot, table = identifier.partition(".")
    if not dot or not database or not table:
        raise InvalidRequestError(f"a table is named as database.table; got {identifier!r}")
    _check_name("database", database)
    _check_name("table", table)
    return database, table


def _warehouse_folder(warehouse: str | PathLike[str]) -> str:
    folder = canonical_location(absolute_path(fspath(warehouse))) if isinstance(warehouse, (str, PathLike)) else ""
    if "\0" in folder or (scheme_of(folder) == FILE_SCHEME and not folder.startswith("/")):
        raise InvalidRequestError(f"warehouse {warehouse!r}: give a path, for example file:///data/warehouse")
    return folder


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.match(name) or name != name.strip() or not name.isprintable():
        raise InvalidRequestError(
            f"{kind} name {name!r} cannot be used; avoid '/', '\\', '$', '@', a leading dot, blanks at the ends and "
            "control characters"
        )
    if len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequestError(
            f"{kind} name {name[:20]}… has {len(name.encode())} bytes; at most {NAME_BYTES_MAX} fit into a folder name"
        )


def _check_column_list(argument: str, names: Sequence[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidRequestError(f"{argument} is a list of column names such as ['id'], not {names!r}")


def _columns(
    schema: ColumnTypes, primary_keys: Sequence[str], partition_keys: Sequence[str]
) -> tuple[tuple[DataField, ...], int]:
    if isinstance(schema, pa.Schema):
        return fields_from_arrow(schema, primary_keys, partition_keys)
    if not isinstance(schema, Mapping):
        raise InvalidRequestError(
            f"schema is a pyarrow schema, or names with types such as {{'id': 'BIGINT'}}, not {schema!r}"
        )
    columns = []
    for name, written in schema.items():
        data_type = column_type(name, written)
        columns.append(DataField(0, name, with_nullable(data_type, False) if name in primary_keys else data_type))
    return assign_ids(columns)
