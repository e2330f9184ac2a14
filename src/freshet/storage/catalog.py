"""Databases and tables of one warehouse, as people hold them: names and schemas are checked here, errors worded; which
tables there are, and where, a metastore knows (`catalogs`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, cast

from freshet._frozen import Frozen
from freshet.storage.catalogs.coordination import ADOPT
from freshet.storage.catalogs.given import (
    NamedCatalog,
    absolute_place,
    given_catalog,
    is_word,
    named_catalogs,
    options_for_others,
    taken_options,
    warehouse_folder,
)
from freshet.storage.catalogs.metastore import (
    BRANCH,
    TableName,
    check_name,
    fault_of_name,
    split_branch,
    usable_names,
    with_branch,
)
from freshet.storage.catalogs.registry import catalog_settings, is_catalog_option, open_metastore
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env, open_env, process_environment
from freshet.storage.io.env_settings import WHY_NOT_SENT, check_no_secrets, holds_secret, shown_settings
from freshet.storage.metadata.schema_store import SchemaStore
from freshet.storage.metadata.snapshot_store import SnapshotStore
from freshet.storage.model.arguments import answering_callers
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.shown import ROWS_MAX, HtmlShown, facts_html, note_html, rows_html
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.options.core import readable_options
from freshet.storage.options.declaration import local_folders
from freshet.storage.options.risky import layout_warnings
from freshet.storage.options.secrets import shown_text
from freshet.storage.options.values import option_texts
from freshet.storage.paths import TablePaths

if TYPE_CHECKING:
    from freshet.storage.schema.new_table import ColumnTypes
    from freshet.storage.status.every_table import EveryTable
    from freshet.storage.status.finding import Finding
    from freshet.storage.status.report import ReportedTable
    from freshet.storage.status.table_status import TableStatus
    from freshet.storage.system_tables.system_table import SystemTable
    from freshet.storage.table import Table

__all__ = [
    "ADOPT", "WHY_NOT_SENT", "Catalog", "NamedCatalog", "SystemTable", "TableSummary", "absolute_place",
    "check_no_secrets", "holds_secret", "is_catalog_option", "is_system_name", "is_word", "known_catalogs",
    "options_for_others", "place_options", "shown_settings", "split_branch", "split_identifier", "taken_options",
    "warehouse_location", "with_branch",
]  # fmt: skip
"""The catalog, and what those who are given its options ask about them."""


_LOG: Final = logging.getLogger(__name__)


class TableSummary(Frozen):
    """What a list of tables says of one of them."""

    location: str
    primary_keys: tuple[str, ...]
    snapshot: Snapshot | None
    """The latest one."""


@answering_callers
class Catalog(HtmlShown):
    """The databases and tables of one warehouse; holds no state, so several may look at the same one.

        catalog = Catalog("/data/lake")
        catalog.create_table("shop.orders", schema={"id": "BIGINT", "total": "DOUBLE"}, primary_keys=["id"])
        catalog.table("shop.orders").append([{"id": 1, "total": 9.5}])
        catalog.list_tables("shop")

    Tables: `table`, `create_table`, `check_new_table`, `has_table`, `list_tables`, `summary`, `status`, `doctor`,
    `report`, `system_table`, `rename_table`, `register_table`, `drop_table`.
    Databases: `create_database`, `list_databases`, `database_properties`, `alter_database`, `drop_database`.
    What it was opened with: `options`.
    """

    def __init__(
        self,
        place: str | PathLike[str] | None = None,
        /,
        *,
        warehouse: str | PathLike[str] | None = None,
        options: Mapping[str, object] | None = None,
        env: Env | None = None,
    ) -> None:
        """`place` is the warehouse: a URI, or a path, a relative one against the current folder, which is made with the
        first database. Or it is the `jdbc:` URI of a database that keeps the catalog, whose tables lie below
        `warehouse`. A word, such as `lake`, is the catalog of that name where there is one (`catalogs.yaml`).

        `options` are those of the catalog, such as `metastore`, and of the store that the warehouse is in, such as
        `s3.endpoint`; what is not given is taken from the environment variable FRESHET_CATALOG_OPTIONS, a JSON object.
        The value `env:NAME` is an environment variable, which every process looks up: no secret is sent to other
        processes otherwise. With `env` neither variables nor names of catalogs count."""
        environment = process_environment() if env is None else {}
        given, texts = given_catalog(place, warehouse, option_texts(options), environment)
        self.warehouse = warehouse_folder(given)
        settings = catalog_settings(self.warehouse, texts)
        self._env = env or open_env(fspath(given), settings)  # as it was typed, for an error to show
        self._metastore = open_metastore(self._env, self.warehouse, texts)
        self._options = texts

    @property
    def options(self) -> dict[str, str]:
        """The options of this catalog and its store, wherever they were given, for another `Catalog` of the same
        warehouse. Secrets of the environment are references in it; those that the caller has written out are not."""
        return dict(self._options)

    def __repr__(self) -> str:
        return f"Catalog({shown_text(self.warehouse)!r})"

    def _html(self) -> str:
        """Asks for the databases alone: to list the tables of a folder may take a request for each."""
        databases = self._metastore.list_databases()
        left_out = f"{ROWS_MAX} of {len(databases):,} databases" if len(databases) > ROWS_MAX else None
        rows = [(name,) for name in databases[:ROWS_MAX]]
        table = rows_html(("database",), rows, left_out=left_out) if databases else note_html("no databases")
        return facts_html(f"Catalog {shown_text(self.warehouse)}", (), table)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Creates an empty database, with properties where the catalog keeps them."""
        check_name("database", name)
        if not self._metastore.create_database(name, properties or {}) and not if_not_exists:
            raise AlreadyExistsError(f"database {name!r} exists already in {self.warehouse}")

    def list_databases(self) -> list[str]:
        """Names, sorted."""
        return usable_names("database", self._metastore.list_databases(), self.warehouse)

    def database_properties(self, name: str) -> dict[str, str]:
        """What the catalog keeps about a database; a warehouse folder keeps nothing."""
        self._check_database(name)
        return self._metastore.database_properties(name)

    def alter_database(self, name: str, properties: Mapping[str, str | None]) -> None:
        """Sets properties of a database, where the catalog keeps them; None removes one."""
        self._check_database(name)
        self._metastore.alter_database(name, properties)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Removes a database; with tables in it only when `cascade` says so."""
        check_name("database", name)
        if not self._metastore.has_database(name):
            if if_exists:
                return
            raise NotFoundError(f"there is no database {name!r} in {self.warehouse}")
        tables = self._metastore.list_tables(name)
        if tables and not cascade:
            raise InvalidRequestError(
                f"database {name!r} holds tables ({', '.join(tables[:5])}); drop them, or drop it with all of them "
                "(cascade=True, CASCADE in SQL)"
            )
        views = self._metastore.list_views(name)
        if views and not cascade:
            raise InvalidRequestError(
                f"database {name!r} holds views ({', '.join(views[:5])}), which other programs have made; drop them "
                "there, or drop it with all of them (cascade=True, CASCADE in SQL)"
            )
        self._metastore.drop_database(name)

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
        given_options = option_texts(options)
        own_folders = local_folders(given_options)
        if if_not_exists and split_branch(identifier)[1] is not None:
            return self.table(identifier, options=own_folders)
        name = split_identifier(identifier)
        _check_column_list("primary_keys", primary_keys)
        _check_column_list("partition_keys", partition_keys)
        found = self._metastore.find_table(name)
        if found is not None:
            if if_not_exists:
                return self.table(identifier, options=own_folders)
            raise AlreadyExistsError(
                f"table {identifier} exists already at {found.location}; it is used with if_not_exists=True, in SQL "
                "IF NOT EXISTS",
                table=identifier,
                path=found.location,
            )
        from freshet.storage.schema.new_table import new_table

        new = new_table(
            schema,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=given_options,
            comment=comment,
            time_ms=self._env.now_ms(),
        )
        if not self._metastore.has_database(name.database):
            self._metastore.create_database(name.database, {})
        if not self._metastore.create_table(name, new) and not if_not_exists:
            raise AlreadyExistsError(
                f"table {identifier} was created by another program at this moment; open it", table=identifier
            )
        table = self.table(identifier, options=own_folders)
        for warning in layout_warnings(table.schema, table.options):
            _LOG.warning("table %s: %s", identifier, warning)
        return table

    @staticmethod
    def check_new_table(schema: TableSchema) -> None:
        """Raises what `create_table` would raise for a table of this schema; writes nothing."""
        from freshet.storage.schema.validation import validate_new_table

        validate_new_table(schema)

    def table(self, identifier: str, *, options: Mapping[str, object] | None = None) -> Table:
        """Opens a table at its latest schema; `options` override its own for this object only.

        `database.table$files` gives the system table `files` of a table: a `SystemTable`, which has `name`,
        `arrow_schema` and `scan` as a table has them, and refuses all else. `system_table` gives the same, typed so.
        `database.table$branch_<name>`, or the option `branch`, opens a branch of it (`Table.branches`).

        Raises `NotFoundError` when there is none, `MissingFileError` for one with snapshots and no schema.
        """
        if is_system_name(identifier):
            return cast("Table", self.system_table(identifier, options=options))
        identifier, branch = split_branch(identifier)
        name = split_identifier(identifier)
        found = self._metastore.find_table(name) or self._metastore.find_remains(name)
        if found is None:
            raise NotFoundError(self._missing(identifier))
        from freshet.storage.metadata.table_store import open_table_store
        from freshet.storage.table import Table

        dynamic = option_texts(options)
        store = open_table_store(
            self._env,
            found.location,
            options=dynamic or None,
            schema_id=found.schema_id if branch is None and BRANCH not in dynamic else None,
            name=identifier,
            claims=found.claims,
            branch=branch,
        )
        return Table(store)

    def system_table(self, identifier: str, *, options: Mapping[str, object] | None = None) -> SystemTable:
        """The system table `database.table$noun`, as `Table.system` gives it; raises as that and `table` do."""
        from freshet.storage.system_tables.system_table import split_system_name

        parts = split_system_name(identifier)
        if parts is None:
            raise InvalidRequestError(
                f"a system table is named as database.table$noun, such as shop.orders$files; got {identifier!r}"
            )
        table, noun = parts
        return self.table(table, options=options).system(noun)

    def summary(self, identifier: str) -> TableSummary:
        """What there is to say of a table without opening it; raises as `table` does."""
        base, branch = split_branch(identifier)
        found = self._metastore.find_table(split_identifier(base))
        if found is None:
            raise NotFoundError(self._missing(base))
        paths = TablePaths(found.location).branch(branch)
        schemas = SchemaStore(self._env, paths)
        is_known = found.schema_id is not None and branch is None
        schema = schemas.schema(found.schema_id or 0) if is_known else schemas.latest()
        if schema is None:
            missing = (
                self._missing(base) if branch is None else f"there is no branch {identifier}: see freshet branches"
            )
            raise NotFoundError(missing, table=identifier)
        readable_options(schema, paths.home)
        return TableSummary(paths.home, schema.primary_keys, SnapshotStore(self._env, paths).latest())

    def status(self, *, detailed: int = 0) -> list[TableStatus]:
        """Every table, those that cannot be read or are behind their target first: at a glance, as `Table.status` has
        it without detail, but for the first `detailed`."""
        return self._every_table().statuses(detailed)

    def doctor(self, *, warehouse: str | None = None) -> list[Finding]:
        """What is wrong with the tables, the worst first; `warehouse` is the place that commands name."""
        return self._every_table().findings(warehouse or self.warehouse)

    def report(
        self, table: str | None = None, *, detailed: int = 200, warehouse: str | None = None
    ) -> list[ReportedTable]:
        """What `freshet report` shows of a table, or of all, those that are behind first: of the first `detailed`
        status and findings of one moment, levels, schemas, and what commits say over time, of the others what
        `status` says. Together they share in 10,000 commits, the newest, of each at least 200; of a store 500 at most.
        """
        return self._every_table().reports(warehouse or self.warehouse, table, detailed)

    def _every_table(self) -> EveryTable:
        from freshet.storage.status.every_table import EveryTable

        def names() -> list[str]:
            """Names, those too of tables without a schema: they are no tables any more, and cannot be read."""
            found = []
            for database in self.list_databases():
                tables = self.list_tables(database)
                lost = self._metastore.list_remains(database, tables)
                found += [(database, name) for name in tables + [each for each in lost if fault_of_name(each) is None]]
            return [f"{database}.{name}" for database, name in sorted(found)]

        return EveryTable(names, lambda name: self.table(name).store, self._env)

    def has_table(self, identifier: str) -> bool:
        """True when the table exists, or the branch."""
        base, branch = split_branch(identifier)
        found = self._metastore.find_table(split_identifier(base))
        if found is None or branch is None:
            return found is not None
        return SchemaStore(self._env, TablePaths(found.location).branch(branch)).latest() is not None

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        self._check_database(database)
        return usable_names("table", self._metastore.list_tables(database), f"database {database}")

    def rename_table(self, identifier: str, new_identifier: str, *, if_exists: bool = False) -> None:
        """Gives a table another name, maybe in another database, which must be there; its snapshots stay.

        Where a table lies under its name (a warehouse folder), whoever has it open must open it anew: what is not
        committed by then is refused.
        """
        name, new_name = split_identifier(identifier), split_identifier(new_identifier)
        if self._metastore.find_table(name) is None:
            if if_exists:
                return
            raise NotFoundError(self._missing(identifier))
        self._check_database(new_name.database)
        if self._metastore.find_table(new_name) is not None:
            raise AlreadyExistsError(
                f"table {identifier} cannot be renamed: there is a table {new_identifier}; choose another name, or "
                "drop that one",
                table=new_identifier,
            )
        self._metastore.rename_table(name, new_name)

    def register_table(self, identifier: str) -> Table:
        """Makes a table of files that lie where one of this name would: after an interrupted create or rename, or of a
        warehouse that was used without this catalog. One that the catalog has already is returned.

        Raises `NotFoundError` when there are no files of a table.
        """
        self._metastore.register_table(split_identifier(identifier))
        return self.table(identifier)

    def drop_table(self, identifier: str, *, if_exists: bool = False) -> None:
        """Removes a table with all of its files, also what an interrupted call has left."""
        self._env.finish_later()  # an expiry of this process that is under way would write a hint into the folder
        if not self._metastore.drop_table(split_identifier(identifier)) and not if_exists:
            raise NotFoundError(self._missing(identifier))

    def _check_database(self, name: str) -> None:
        check_name("database", name)
        if not self._metastore.has_database(name):
            raise NotFoundError(f"there is no database {name!r} in {self.warehouse}; it has {self.list_databases()}")

    def _missing(self, identifier: str) -> str:
        database = split_identifier(identifier).database
        if not self._metastore.has_database(database):
            return f"there is no table {identifier}: no database {database!r} in {self.warehouse}"
        tables = ", ".join(self._metastore.list_tables(database)[:10]) or "none"
        return f"there is no table {identifier} in {self.warehouse}; tables of {database!r}: {tables}"


def warehouse_location(place: str, options: Mapping[str, str]) -> str:
    """The warehouse of `Catalog(place, options=options)`, from its root on; opens nothing, raises as that does."""
    return warehouse_folder(given_catalog(place, None, options, process_environment())[0])


def place_options(place: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of `Catalog(place, options=options)`, from wherever they come; secrets as references."""
    return given_catalog(place, None, options, process_environment())[1]


def known_catalogs() -> list[NamedCatalog]:
    """The catalogs that have names here, sorted by them."""
    return named_catalogs(process_environment())


def is_system_name(identifier: str) -> bool:
    """Whether an identifier names a system table, `database.table$noun`, known or not."""
    if "$" not in identifier:
        return False
    from freshet.storage.system_tables.system_table import split_system_name

    return split_system_name(identifier) is not None


def split_identifier(identifier: str) -> TableName:
    """`database.table` as its two names."""
    if not isinstance(identifier, str):
        raise InvalidRequestError(f"a table is named as database.table; got {identifier!r}")
    if split_branch(identifier)[0] != identifier:
        raise InvalidRequestError(
            f"{identifier} names a branch: it is created and dropped with Catalog.table(…).branches or by CALL, "
            "and keeps its name",
            table=identifier,
        )
    database, dot, table = identifier.partition(".")
    if not dot or not database or not table:
        raise InvalidRequestError(f"a table is named as database.table; got {identifier!r}")
    check_name("database", database)
    if "$" in table and is_system_name(identifier):
        from freshet.storage.system_tables.system_table import is_noun

        of_table, _, noun = identifier.rpartition("$")
        if is_noun(noun):
            raise InvalidRequestError(
                f"{identifier} is the name of a system table, which is there with its table and is only read; name "
                f"{of_table}, or a table without $",
                table=identifier,
            )
    check_name("table", table)
    return TableName(database, table)


def _check_column_list(argument: str, names: Sequence[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidRequestError(f"{argument} is a list of column names such as ['id'], not {names!r}")
