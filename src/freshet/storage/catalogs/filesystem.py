"""A warehouse folder as a catalog.

    <warehouse>/<database>.db/<table>/schema/schema-0        a folder with a schema file is a table

There is no catalog file: a table exists when it has a schema, and creating one is the exclusive create of `schema-0`,
so that of two creators one wins and the other gets an error. Source: FORMAT.md §1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from freshet.storage.catalogs.claims import FileClaims, TableClaims
from freshet.storage.catalogs.coordination import CommitRules, check_coordinated
from freshet.storage.catalogs.metastore import FoundTable, TableName
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, UnsupportedFeatureError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.io.file_io import FileIO, Folders, numbered_files
from freshet.storage.io.removal import Removal
from freshet.storage.model.schema import TableSchema
from freshet.storage.paths import SCHEMA_PREFIX, TablePaths

DATABASE_SUFFIX: Final = ".db"
DATABASE_MARKER: Final = ".database"
"""An empty file that makes a database without tables show where a store has no folders."""


class WarehouseFolder:
    """A folder below which tables lie where their names say; holds no state, so several may look at the same one."""

    def __init__(self, env: Env, warehouse: str) -> None:
        self._env = env
        self._warehouse = warehouse

    @property
    def warehouse(self) -> str:
        """The folder."""
        return self._warehouse

    def _folder(self, database: str) -> str:
        return f"{self._warehouse}/{database}{DATABASE_SUFFIX}"

    def _paths(self, name: TableName) -> TablePaths:
        return TablePaths(f"{self._folder(name.database)}/{name.table}")

    def _schema_ids(self, name: TableName) -> list[int]:
        return list(numbered_files(self._env.file_io, self._paths(name).schema_folder, SCHEMA_PREFIX))

    def _has_schema(self, name: TableName) -> bool:
        return bool(self._schema_ids(name))

    def _not_registered(self, name: TableName) -> NotFoundError:
        location = self._paths(name).location
        return NotFoundError(
            f"table {name} cannot be registered: there is no schema file at {location}", table=str(name), path=location
        )

    def _renaming(self, name: TableName, to: TableName) -> Folders:
        """What renames the folder of a table; `UnsupportedFeatureError` where the store cannot."""
        folders = self._env.file_io.folders
        if folders is None:
            raise UnsupportedFeatureError(
                f"table {name} cannot be renamed: its files bear its name, and the store of {self._warehouse} cannot "
                f"rename them at once; write its rows to a new table {to} and drop this one",
                table=str(name),
            )
        return folders


class FilesystemMetastore(WarehouseFolder):
    """The tables below one folder."""

    def __init__(self, env: Env, warehouse: str, rules: CommitRules = CommitRules()) -> None:  # noqa: B008 - frozen
        super().__init__(env, warehouse)
        self._rules = rules

    def list_databases(self) -> list[str]:
        """Folders with the suffix of databases."""
        entries = self._env.file_io.entries(self._warehouse)
        names = (entry.name for entry in entries if entry.is_folder and entry.name.endswith(DATABASE_SUFFIX))
        return sorted(name.removesuffix(DATABASE_SUFFIX) for name in names)

    def has_database(self, name: str) -> bool:
        """True when its folder is there."""
        return self._env.file_io.exists_prefix(self._folder(name))

    def create_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """Makes the folder, or a file in it; two creators both do."""
        self._refuse_properties(properties)
        if self.has_database(name):
            return False
        check_coordinated(self._rules, self._folder(name))
        folders = self._env.file_io.folders
        if folders is not None:
            folders.make(self._folder(name))
        else:
            self._env.file_io.create_exclusive(f"{self._folder(name)}/{DATABASE_MARKER}", b"")
        return True

    def database_properties(self, name: str) -> dict[str, str]:
        """None are kept."""
        return {}

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Refused; there is no file for them."""
        self._refuse_properties(changes)

    def drop_database(self, name: str) -> None:
        """Removes its tables one by one, so that none is half there after a crash, then the folder; a folder that is a
        link goes alone."""
        folder = self._folder(name)
        check_coordinated(self._rules, folder)
        for table in () if leads_elsewhere(self._env.file_io, folder) else self.list_tables(name):
            self.drop_table(TableName(name, table))
        self._env.file_io.delete_prefix(folder)

    def list_tables(self, database: str) -> list[str]:
        """Folders with a schema."""
        entries = self._env.file_io.entries(self._folder(database))
        names = (entry.name for entry in entries if entry.is_folder)
        return sorted(name for name in names if self._has_schema(TableName(database, name)))

    def list_remains(self, database: str, tables: Collection[str]) -> list[str]:
        """Folders with snapshots."""
        files = self._env.file_io
        folders = {each.name for each in files.entries(self._folder(database)) if each.is_folder}
        names = (TableName(database, name) for name in folders.difference(tables))
        return sorted(name.table for name in names if any(files.entries(self._paths(name).snapshot_folder)))

    def list_views(self, database: str) -> list[str]:
        """None: a folder keeps none."""
        return []

    def find_table(self, name: TableName) -> FoundTable | None:
        """By its folder; also where the schema cannot be read: such a table can be seen, and dropped."""
        paths = self._paths(name)
        schema_ids = self._schema_ids(name)
        return FoundTable(paths.location, self._claims(paths), max(schema_ids)) if schema_ids else None

    def table_claims(self, name: TableName) -> TableClaims | None:
        """By its folder."""
        found = self.find_table(name)
        return None if found is None else found.claims

    def find_remains(self, name: TableName) -> FoundTable | None:
        """A folder with snapshots, tags or branches."""
        paths = self._paths(name)
        return FoundTable(paths.location, self._claims(paths)) if has_leftover_files(self._env.file_io, paths) else None

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """Creates the first schema file, where nothing of an earlier table would show."""
        paths = self._paths(name)
        # looked at before the schema: another creator's snapshot follows its schema
        is_dropped_in_part = has_leftover_files(self._env.file_io, paths)
        if self._has_schema(name):
            return False
        if is_dropped_in_part:
            raise leftover_files_error(str(name), paths)
        claims = self._claims(paths)
        claims.check_writable()
        return claims.claim_schema(schema)

    def register_table(self, name: TableName) -> bool:
        """False: a folder with a schema is a table."""
        if not self._has_schema(name):
            raise self._not_registered(name)
        return False

    def drop_table(self, name: TableName) -> bool:
        """Removes the table by `remove_table`."""
        paths = self._paths(name)
        if not self._has_schema(name) and not has_leftover_files(self._env.file_io, paths):
            return False
        self._claims(paths).check_writable()
        remove_table(self._env, paths)
        return True

    def rename_table(self, name: TableName, to: TableName) -> None:
        """Renames the folder at once; a commit that comes after it finds no table and is refused."""
        self._renaming(name, to).rename(self._paths(name).location, self._paths(to).location)

    def _claims(self, paths: TablePaths) -> FileClaims:
        return FileClaims(self._env.file_io, paths, self._rules)

    def _refuse_properties(self, properties: Mapping[str, str | None]) -> None:
        if properties:
            raise UnsupportedFeatureError(
                f"the warehouse {self._warehouse} is a folder, which keeps no properties of databases "
                f"({', '.join(sorted(properties))}); leave them out, or give the tables options"
            )


def remove_table(env: Env, paths: TablePaths) -> None:
    """The removal of the files of a table, and of what an interrupted one has left, which would show in a new one of
    its name. The schema goes first: without it what is not removed yet is neither read nor written. Where its folder is
    a link, that goes, and what it leads to stays.

    A folder is removed file by file, in no order, so snapshots may be gone while a tag or a branch is still there. Data
    files and manifests that no snapshot names show nowhere, and are removed as orphan files.
    """
    if not leads_elsewhere(env.file_io, paths.location):
        removal = Removal(env.file_io, paths.location)
        removal.delete_prefix(paths.schema_folder)
        env.reach(CrashPoint.TABLE_SCHEMAS_REMOVED)
    env.file_io.delete_prefix(paths.location)


def leads_elsewhere(file_io: FileIO, folder: str) -> bool:
    """True for a folder that is a link."""
    return Removal(file_io, folder.rpartition("/")[0]).way_out(f"{folder}/") is not None


def has_leftover_files(file_io: FileIO, paths: TablePaths) -> bool:
    """True where a folder has snapshots, changelogs, tags, branches or consumers."""
    shown = {
        paths.snapshot_folder,
        paths.changelog_folder,
        paths.tag_folder,
        paths.branch_folder,
        paths.consumer_folder,
    }
    return any(
        any(file_io.entries(entry.path))  # a folder may be empty where a store has folders
        for entry in file_io.entries(paths.location)
        if entry.is_folder and entry.path in shown
    )


def leftover_files_error(table: str, paths: TablePaths) -> InvalidRequestError:
    """Why a table is not created over them."""
    return InvalidRequestError(
        f"table {table} cannot be created: {paths.location} holds snapshots, tags or branches of an earlier table, "
        "which was not dropped to the end, and they would show in the new one; remove them with drop_table",
        table=table,
        path=paths.location,
    )
