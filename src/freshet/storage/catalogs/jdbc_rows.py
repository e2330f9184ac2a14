"""The tables of a catalog in a database, as Apache Paimon 2.0 has them, and the rows of one catalog key in them.

Rows are written in the order of the JVM's catalog; files are `jdbc`'s part. In statements `:key` is the catalog key,
`:db` and `:name` those of a table. Each statement is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from freshet.storage.catalogs.jdbc_database import Pool, open_pool
from freshet.storage.catalogs.jdbc_options import POSTGRESQL, JdbcOptions
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.model.schema import TableSchema

TABLES: Final = "paimon_tables"
DATABASE_PROPERTIES: Final = "paimon_database_properties"
TABLE_PROPERTIES: Final = "paimon_table_properties"
VIEWS: Final = "paimon_views"
LOCKS: Final = "paimon_distributed_locks"

PROPERTY_LENGTH_MAX: Final = 1000
"""Characters of a property's value; SQLite does not count them."""

CATALOG_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        TABLES: (
            "CREATE TABLE paimon_tables(catalog_key VARCHAR(255) NOT NULL,database_name VARCHAR(255) NOT NULL,"
            "table_name VARCHAR(255) NOT NULL, PRIMARY KEY (catalog_key, database_name, table_name))"
        ),
        DATABASE_PROPERTIES: (
            "CREATE TABLE paimon_database_properties(catalog_key VARCHAR(255) NOT NULL,database_name VARCHAR(255) NOT "
            "NULL,property_key VARCHAR(255),property_value VARCHAR(1000),PRIMARY KEY (catalog_key, database_name, "
            "property_key))"
        ),
        TABLE_PROPERTIES: (
            "CREATE TABLE paimon_table_properties(catalog_key VARCHAR(255) NOT NULL,database_name VARCHAR(255) NOT "
            "NULL,table_name VARCHAR(255) NOT NULL,property_key VARCHAR(255) NOT NULL,property_value VARCHAR(1000),"
            "PRIMARY KEY (catalog_key, database_name, table_name, property_key))"
        ),
        VIEWS: (
            "CREATE TABLE paimon_views(catalog_key VARCHAR(255) NOT NULL,database_name VARCHAR(255) NOT NULL,"
            "view_name VARCHAR(255) NOT NULL,view_schema TEXT NOT NULL, PRIMARY KEY (catalog_key, database_name, "
            "view_name))"
        ),
    }
)
"""What creates each table, in this order."""

_OF_DATABASE: Final = "WHERE catalog_key = :key AND database_name = :db"
OF_TABLE: Final = f"{_OF_DATABASE} AND table_name = :name"

LIST_DATABASES: Final = " UNION ".join(
    f"SELECT database_name FROM {table} WHERE catalog_key = :key" for table in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
FIND_DATABASE: Final = " UNION ".join(
    f"SELECT database_name FROM {table} {_OF_DATABASE}" for table in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
LIST_TABLES: Final = f"SELECT table_name FROM {TABLES} {_OF_DATABASE}"
LIST_VIEWS: Final = f"SELECT view_name FROM {VIEWS} {_OF_DATABASE}"
FIND_TABLE: Final = f"SELECT table_name FROM {TABLES} {OF_TABLE}"
FIND_VIEW: Final = f"SELECT view_name FROM {VIEWS} {_OF_DATABASE} AND view_name = :name"
INSERT_TABLE: Final = f"INSERT INTO {TABLES} (catalog_key, database_name, table_name) VALUES (:key, :db, :name)"
DELETE_TABLE: Final = f"DELETE FROM {TABLES} {OF_TABLE}"
DELETE_TABLE_PROPERTIES: Final = f"DELETE FROM {TABLE_PROPERTIES} {OF_TABLE}"
RENAME_TABLE: Final = f"UPDATE {TABLES} SET database_name = :new_db, table_name = :new_name {OF_TABLE}"
RENAME_TABLE_PROPERTIES: Final = (
    f"UPDATE {TABLE_PROPERTIES} SET database_name = :new_db, table_name = :new_name {OF_TABLE}"
)
DATABASE_PROPERTIES_OF: Final = f"SELECT property_key, property_value FROM {DATABASE_PROPERTIES} {_OF_DATABASE}"
DROP_DATABASE: Final = tuple(
    f"DELETE FROM {table} {_OF_DATABASE}" for table in (TABLES, DATABASE_PROPERTIES, TABLE_PROPERTIES, VIEWS)
)

EXISTS: Final = "exists"
"""The property that every database has, so that one without others can be seen."""


class JdbcRows:
    """The rows of one catalog key. May be shared by threads."""

    def __init__(self, env: Env, options: JdbcOptions) -> None:
        self._env = env
        self._options = options
        self._key = options.catalog_key

    @property
    def pool(self) -> Pool:
        """The pool of the process that asks, with all tables: a forked child makes its own."""
        options = self._options
        pool = open_pool(options.address, options.time_zone or self._env.time_zone(), options.pool_size)
        locks = lock_table(options.lock.id_length_max) if options.lock else {}
        pool.make_tables({**CATALOG_TABLES, **locks})
        return pool

    def databases(self) -> list[str]:
        """The databases with a property, a table or a view, sorted."""
        return sorted(self._names(LIST_DATABASES))

    def has_database(self, name: str) -> bool:
        """True when there is a row of it."""
        return bool(self._names(FIND_DATABASE, db=name))

    def insert_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """All of its properties in one INSERT; False when it is there already."""
        _check_properties(properties)
        if self.has_database(name):
            return False
        rows = {EXISTS: "true", **properties}
        with self.pool.session() as session:
            return session.insert(*_insert_sql(DATABASE_PROPERTIES, rows, key=self._key, db=name))

    def database_properties(self, name: str) -> dict[str, str]:
        """All but `exists`."""
        with self.pool.session() as session:
            rows = session.rows(DATABASE_PROPERTIES_OF, {"key": self._key, "db": name})
        return {str(key): str(text) for key, text in rows if key != EXISTS}

    def alter_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        """New properties first, then changed ones, then removed ones."""
        _check_properties(changes)
        there, of = self.database_properties(name), {"key": self._key, "db": name}
        given = {key: text for key, text in changes.items() if text is not None}
        new = {key: text for key, text in given.items() if key not in there}
        changed = {key: text for key, text in given.items() if key in there}
        removed = [key for key, text in changes.items() if text is None and key in there]
        with self.pool.session() as session:
            if new:
                session.run(*_insert_sql(DATABASE_PROPERTIES, new, **of))
            if changed:
                session.run(*_update_sql(changed, **of))
            if removed:
                session.run(*_delete_sql(removed, **of))

    def delete_database(self, name: str) -> None:
        """Its tables, its properties, those of its tables, its views."""
        with self.pool.session() as session:
            for statement in DROP_DATABASE:
                session.run(statement, {"key": self._key, "db": name})

    def tables(self, database: str) -> list[str]:
        """Names, sorted."""
        return sorted(self._names(LIST_TABLES, db=database))

    def views(self, database: str) -> list[str]:
        """Names, sorted; the JVM makes them."""
        return sorted(self._names(LIST_VIEWS, db=database))

    def has_table(self, name: TableName) -> bool:
        """True when there is a row of it."""
        return bool(self._names(FIND_TABLE, db=name.database, name=name.table))

    def has_view(self, name: TableName) -> bool:
        """True when there is a view of this name."""
        return bool(self._names(FIND_VIEW, db=name.database, name=name.table))

    def insert_table(self, name: TableName) -> bool:
        """False when there is a row already."""
        with self.pool.session() as session:
            return session.insert(INSERT_TABLE, self._of(name))

    def delete_table(self, name: TableName) -> bool:
        """The table, then its properties; False when there was no table."""
        with self.pool.session() as session:
            count = session.run(DELETE_TABLE, self._of(name))
            session.run(DELETE_TABLE_PROPERTIES, self._of(name))
        return count > 0

    def rename_table(self, name: TableName, to: TableName) -> None:
        """The table, then its properties."""
        values = {**self._of(name), "new_db": to.database, "new_name": to.table}
        with self.pool.session() as session:
            renamed = session.update(RENAME_TABLE, values)
            if renamed is None:
                raise AlreadyExistsError(f"table {to} exists already", table=str(to))
            if renamed == 0:
                raise NotFoundError(f"there is no table {name} any more", table=str(name))
            if session.update(RENAME_TABLE_PROPERTIES, values) is None:
                session.run(DELETE_TABLE_PROPERTIES, self._of(to))  # of a table that was dropped in part
                session.run(RENAME_TABLE_PROPERTIES, values)

    def insert_properties(self, name: TableName, schema: TableSchema) -> None:
        """Writes the rows of a table that has none."""
        properties = table_properties(schema)
        if properties and self._options.keeps_table_properties:
            with self.pool.session() as session:
                session.run(*_insert_sql(TABLE_PROPERTIES, properties, **self._of(name)))

    def replace_properties(self, name: TableName, schema: TableSchema) -> None:
        """Deletes those that are there, then inserts those of the schema."""
        if self._options.keeps_table_properties:
            with self.pool.session() as session:
                session.run(DELETE_TABLE_PROPERTIES, self._of(name))
            self.insert_properties(name, schema)

    def check_lengths(self, schema: TableSchema) -> None:
        """Raises before anything is written for what PostgreSQL would refuse after the table is there."""
        if self._options.address.kind != POSTGRESQL or not self._options.keeps_table_properties:
            return
        for key, text in table_properties(schema).items():
            if len(text) > PROPERTY_LENGTH_MAX:
                raise InvalidRequestError(
                    f"option {key} has {len(text)} characters, and {TABLE_PROPERTIES} holds "
                    f"{PROPERTY_LENGTH_MAX}; shorten it, or give the catalog the option sync-all-properties=false",
                    option=key,
                )

    def _names(self, statement: str, **values: str) -> list[str]:
        with self.pool.session() as session:
            return [str(row[0]) for row in session.rows(statement, {"key": self._key, **values})]

    def _of(self, name: TableName) -> dict[str, str]:
        return {"key": self._key, "db": name.database, "name": name.table}


def table_properties(schema: TableSchema) -> dict[str, str]:
    """What `paimon_table_properties` has of a table: its options, and its keys, which are no options."""
    given = schema.options.get("bucket-key")
    bucket_key = tuple(given.split(",")) if given else schema.trimmed_primary_keys
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys, "bucket-key": bucket_key}
    return {**schema.options, **{key: ",".join(names) for key, names in keys.items() if names}}


def _check_properties(properties: Mapping[str, str | None]) -> None:
    if EXISTS in properties:
        raise InvalidRequestError(
            f"property {EXISTS!r} of a database is the catalog's own; leave it out, or choose another name"
        )


def lock_table(id_length_max: int) -> Mapping[str, str]:
    """What creates the table of locks."""
    text = (
        f"CREATE TABLE paimon_distributed_locks(lock_id VARCHAR({id_length_max}) NOT NULL,acquired_at TIMESTAMP "
        "DEFAULT CURRENT_TIMESTAMP NOT NULL,expire_time_seconds BIGINT DEFAULT 0 NOT NULL,PRIMARY KEY (lock_id))"
    )
    return {LOCKS: text}


def _insert_sql(table: str, properties: Mapping[str, str], **of: str) -> tuple[str, dict[str, str]]:
    """One INSERT of all properties of a database or a table, with its values."""
    columns = ["catalog_key", "database_name", *(["table_name"] if "name" in of else [])]
    owner = ", ".join(f":{name}" for name in ("key", "db", "name") if name in of)
    rows = ", ".join(f"({owner}, :k{index}, :v{index})" for index in range(len(properties)))
    values = dict(of)
    for index, (key, text) in enumerate(properties.items()):
        values |= {f"k{index}": key, f"v{index}": text}
    return f"INSERT INTO {table} ({', '.join(columns)}, property_key, property_value) VALUES {rows}", values


def _update_sql(properties: Mapping[str, str], **of: str) -> tuple[str, dict[str, str]]:
    """One UPDATE of several properties of a database, with its values."""
    cases = " ".join(f"WHEN property_key = :k{index} THEN :v{index}" for index in range(len(properties)))
    keys, values = _keys(list(properties), **of)
    values |= {f"v{index}": text for index, text in enumerate(properties.values())}
    return f"UPDATE {DATABASE_PROPERTIES} SET property_value = CASE {cases} END {_OF_DATABASE} AND {keys}", values


def _delete_sql(keys: list[str], **of: str) -> tuple[str, dict[str, str]]:
    """One DELETE of several properties of a database, with its values."""
    among, values = _keys(keys, **of)
    return f"DELETE FROM {DATABASE_PROPERTIES} {_OF_DATABASE} AND {among}", values


def _keys(keys: list[str], **of: str) -> tuple[str, dict[str, str]]:
    names = ", ".join(f":k{index}" for index in range(len(keys)))
    return f"property_key IN ({names})", {**of, **{f"k{index}": key for index, key in enumerate(keys)}}
