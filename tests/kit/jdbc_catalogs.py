"""Catalogs in a database, as tests open them: options, and their parts without a warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.storage.catalogs.jdbc_database import Pool, open_pool
from freshet.storage.catalogs.jdbc_lock import JdbcLock
from freshet.storage.catalogs.jdbc_options import JdbcOptions, parse_options
from freshet.storage.catalogs.jdbc_rows import CATALOG_TABLES, lock_table
from freshet.storage.io.env import Env, local_env

LOCKED: Mapping[str, str] = {"lock.enabled": "true"}


def sqlite_uri(path: object) -> str:
    """The URI of a file."""
    return f"jdbc:sqlite:{path}"


def opened(options: Mapping[str, str]) -> tuple[JdbcOptions, Pool]:
    """The options of a locked catalog, and its database with all tables."""
    parsed = parse_options({**LOCKED, **options}, "/w")
    pool = open_pool(parsed.address, parsed.time_zone or "UTC", parsed.pool_size)
    pool.make_tables({**CATALOG_TABLES, **lock_table(255)})
    return parsed, pool


def lock_of(options: Mapping[str, str], env: Env | None = None) -> JdbcLock:
    """The lock of a catalog with these options."""
    parsed, pool = opened(options)
    assert parsed.lock is not None
    return JdbcLock(env or local_env(), pool, parsed.catalog_key, parsed.lock)


def sqlite_lock(path: object, **options: str) -> JdbcLock:
    """The same in a file; options with `_` for `-`."""
    return lock_of({"uri": sqlite_uri(path), **{key.replace("_", "-"): text for key, text in options.items()}})


def rows(options: Mapping[str, str], table: str) -> list[tuple[Any, ...]]:
    """All rows of a table of the catalog, in order."""
    _, pool = opened(options)
    with pool.session() as session:
        return sorted(tuple(row) for row in session.rows(f"SELECT * FROM {table}"))
