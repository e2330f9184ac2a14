"""The tables and statements of a catalog in a database, as Apache Paimon 2.0 has them.

`:key` is the catalog key, `:db` and `:name` those of a table. Each statement is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from freshet.storage.catalogs.jdbc_options import POSTGRESQL, SQLITE

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


def lock_table(id_length_max: int) -> Mapping[str, str]:
    """What creates the table of locks."""
    text = (
        f"CREATE TABLE paimon_distributed_locks(lock_id VARCHAR({id_length_max}) NOT NULL,acquired_at TIMESTAMP "
        "DEFAULT CURRENT_TIMESTAMP NOT NULL,expire_time_seconds BIGINT DEFAULT 0 NOT NULL,PRIMARY KEY (lock_id))"
    )
    return {LOCKS: text}


_OF_DATABASE: Final = "WHERE catalog_key = :key AND database_name = :db"
_OF_TABLE: Final = f"{_OF_DATABASE} AND table_name = :name"

LIST_DATABASES: Final = " UNION ".join(
    f"SELECT database_name FROM {table} WHERE catalog_key = :key" for table in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
FIND_DATABASE: Final = " UNION ".join(
    f"SELECT database_name FROM {table} {_OF_DATABASE}" for table in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
LIST_TABLES: Final = f"SELECT table_name FROM {TABLES} {_OF_DATABASE}"
LIST_VIEWS: Final = f"SELECT view_name FROM {VIEWS} {_OF_DATABASE}"
FIND_TABLE: Final = f"SELECT table_name FROM {TABLES} {_OF_TABLE}"
FIND_VIEW: Final = f"SELECT view_name FROM {VIEWS} {_OF_DATABASE} AND view_name = :name"
INSERT_TABLE: Final = f"INSERT INTO {TABLES} (catalog_key, database_name, table_name) VALUES (:key, :db, :name)"
DELETE_TABLE: Final = f"DELETE FROM {TABLES} {_OF_TABLE}"
DELETE_TABLE_PROPERTIES: Final = f"DELETE FROM {TABLE_PROPERTIES} {_OF_TABLE}"
RENAME_TABLE: Final = f"UPDATE {TABLES} SET database_name = :new_db, table_name = :new_name {_OF_TABLE}"
RENAME_TABLE_PROPERTIES: Final = (
    f"UPDATE {TABLE_PROPERTIES} SET database_name = :new_db, table_name = :new_name {_OF_TABLE}"
)
DATABASE_PROPERTIES_OF: Final = f"SELECT property_key, property_value FROM {DATABASE_PROPERTIES} {_OF_DATABASE}"
DROP_DATABASE: Final = tuple(
    f"DELETE FROM {table} {_OF_DATABASE}" for table in (TABLES, DATABASE_PROPERTIES, TABLE_PROPERTIES, VIEWS)
)


def insert_properties(table: str, properties: Mapping[str, str], **of: str) -> tuple[str, dict[str, str]]:
    """One INSERT of all properties of a database or a table, with its values."""
    columns = ["catalog_key", "database_name", *(["table_name"] if "name" in of else [])]
    owner = ", ".join(f":{name}" for name in ("key", "db", "name") if name in of)
    rows = ", ".join(f"({owner}, :k{index}, :v{index})" for index in range(len(properties)))
    values = dict(of)
    for index, (key, text) in enumerate(properties.items()):
        values |= {f"k{index}": key, f"v{index}": text}
    return f"INSERT INTO {table} ({', '.join(columns)}, property_key, property_value) VALUES {rows}", values


def update_properties(properties: Mapping[str, str], **of: str) -> tuple[str, dict[str, str]]:
    """One UPDATE of several properties of a database, with its values."""
    cases = " ".join(f"WHEN property_key = :k{index} THEN :v{index}" for index in range(len(properties)))
    keys, values = _keys(list(properties), **of)
    values |= {f"v{index}": text for index, text in enumerate(properties.values())}
    return f"UPDATE {DATABASE_PROPERTIES} SET property_value = CASE {cases} END {_OF_DATABASE} AND {keys}", values


def delete_properties(keys: list[str], **of: str) -> tuple[str, dict[str, str]]:
    """One DELETE of several properties of a database, with its values."""
    among, values = _keys(keys, **of)
    return f"DELETE FROM {DATABASE_PROPERTIES} {_OF_DATABASE} AND {among}", values


def _keys(keys: list[str], **of: str) -> tuple[str, dict[str, str]]:
    names = ", ".join(f":k{index}" for index in range(len(keys)))
    return f"property_key IN ({names})", {**of, **{f"k{index}": key for index, key in enumerate(keys)}}


AGE_S: Final[Mapping[str, str]] = MappingProxyType(
    {
        SQLITE: "strftime('%s', 'now') - strftime('%s', acquired_at)",
        POSTGRESQL: "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))",
    }
)
"""Age of a row in the table of locks, by the clock and in the time zone of the session."""

SWEEP_LOCK: Final[Mapping[str, str]] = MappingProxyType(
    {kind: f"DELETE FROM {LOCKS} WHERE {age} > expire_time_seconds and lock_id = :id" for kind, age in AGE_S.items()}
)
INSERT_LOCK: Final = f"INSERT INTO {LOCKS} (lock_id,expire_time_seconds) VALUES (:id, :expire_s)"
READ_LOCK: Final = f"SELECT acquired_at, (SELECT COUNT(*) FROM {TABLES} {_OF_TABLE}) FROM {LOCKS} WHERE lock_id = :id"
"""When the own row was made, and whether the catalog knows the table."""
RELEASE_LOCK: Final = f"DELETE FROM {LOCKS} WHERE lock_id = :id AND acquired_at = :acquired_at"
LOCK_HOLDER: Final[Mapping[str, str]] = MappingProxyType(
    {
        kind: f"SELECT acquired_at, {age}, expire_time_seconds FROM {LOCKS} WHERE lock_id = :id"
        for kind, age in AGE_S.items()
    }
)
