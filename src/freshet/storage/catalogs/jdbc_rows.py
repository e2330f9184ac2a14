"""The rows of one catalog key, written in the order of the JVM's catalog; files are `jdbc`'s part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet.storage.catalogs import jdbc_sql as sql
from freshet.storage.catalogs.jdbc_database import Pool, open_pool
from freshet.storage.catalogs.jdbc_options import POSTGRESQL, JdbcOptions
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.model.schema import TableSchema

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
        locks = sql.lock_table(options.lock.id_length_max) if options.lock else {}
        pool.make_tables({**sql.CATALOG_TABLES, **locks})
        return pool

    def databases(self) -> list[str]:
        """The databases with a property, a table or a view, sorted."""
        return sorted(self._names(sql.LIST_DATABASES))

    def has_database(self, name: str) -> bool:
        """True when there is a row of it."""
        return bool(self._names(sql.FIND_DATABASE, db=name))

    def insert_database(self, name: str, properties: Mapping[str, str]) -> bool:
        """All of its properties in one INSERT; False when it is there already."""
        _check_properties(properties)
        if self.has_database(name):
            return False
        rows = {EXISTS: "true", **properties}
        with self.pool.session() as session:
            return session.insert(*sql.insert_properties(sql.DATABASE_PROPERTIES, rows, key=self._key, db=name))

    def database_properties(self, name: str) -> dict[str, str]:
        """All but `exists`."""
        with self.pool.session() as session:
            rows = session.rows(sql.DATABASE_PROPERTIES_OF, {"key": self._key, "db": name})
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
                session.run(*sql.insert_properties(sql.DATABASE_PROPERTIES, new, **of))
            if changed:
                session.run(*sql.update_properties(changed, **of))
            if removed:
                session.run(*sql.delete_properties(removed, **of))

    def delete_database(self, name: str) -> None:
        """Its tables, its properties, those of its tables, its views."""
        with self.pool.session() as session:
            for statement in sql.DROP_DATABASE:
                session.run(statement, {"key": self._key, "db": name})

    def tables(self, database: str) -> list[str]:
        """Names, sorted."""
        return sorted(self._names(sql.LIST_TABLES, db=database))

    def views(self, database: str) -> list[str]:
        """Names, sorted; the JVM makes them."""
        return sorted(self._names(sql.LIST_VIEWS, db=database))

    def has_table(self, name: TableName) -> bool:
        """True when there is a row of it."""
        return bool(self._names(sql.FIND_TABLE, db=name.database, name=name.table))

    def has_view(self, name: TableName) -> bool:
        """True when there is a view of this name."""
        return bool(self._names(sql.FIND_VIEW, db=name.database, name=name.table))

    def insert_table(self, name: TableName) -> bool:
        """False when there is a row already."""
        with self.pool.session() as session:
            return session.insert(sql.INSERT_TABLE, self._of(name))

    def delete_table(self, name: TableName) -> bool:
        """The table, then its properties; False when there was no table."""
        with self.pool.session() as session:
            count = session.run(sql.DELETE_TABLE, self._of(name))
            session.run(sql.DELETE_TABLE_PROPERTIES, self._of(name))
        return count > 0

    def rename_table(self, name: TableName, to: TableName) -> None:
        """The table, then its properties."""
        values = {**self._of(name), "new_db": to.database, "new_name": to.table}
        with self.pool.session() as session:
            renamed = session.update(sql.RENAME_TABLE, values)
            if renamed is None:
                raise AlreadyExistsError(f"table {to} exists already", table=str(to))
            if renamed == 0:
                raise NotFoundError(f"there is no table {name} any more", table=str(name))
            if session.update(sql.RENAME_TABLE_PROPERTIES, values) is None:
                session.run(sql.DELETE_TABLE_PROPERTIES, self._of(to))  # of a table that was dropped in part
                session.run(sql.RENAME_TABLE_PROPERTIES, values)

    def insert_properties(self, name: TableName, schema: TableSchema) -> None:
        """Writes the rows of a table that has none."""
        properties = table_properties(schema)
        if properties and self._options.keeps_table_properties:
            with self.pool.session() as session:
                session.run(*sql.insert_properties(sql.TABLE_PROPERTIES, properties, **self._of(name)))

    def replace_properties(self, name: TableName, schema: TableSchema) -> None:
        """Deletes those that are there, then inserts those of the schema."""
        if self._options.keeps_table_properties:
            with self.pool.session() as session:
                session.run(sql.DELETE_TABLE_PROPERTIES, self._of(name))
            self.insert_properties(name, schema)

    def check_lengths(self, schema: TableSchema) -> None:
        """Raises before anything is written for what PostgreSQL would refuse after the table is there."""
        if self._options.address.kind != POSTGRESQL or not self._options.keeps_table_properties:
            return
        for key, text in table_properties(schema).items():
            if len(text) > sql.PROPERTY_LENGTH_MAX:
                raise InvalidRequestError(
                    f"option {key} has {len(text)} characters, and {sql.TABLE_PROPERTIES} holds "
                    f"{sql.PROPERTY_LENGTH_MAX}; shorten it, or give the catalog the option sync-all-properties=false",
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
