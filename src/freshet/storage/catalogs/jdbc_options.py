"""The options of a catalog in a database, as the JVM's catalog has them; `lock.time-zone` is Freshet's own.

| option | default | |
|---|---|---|
| `uri` | - | `jdbc:sqlite:/path` or `jdbc:postgresql://host:port/name` |
| `jdbc.<name>` | - | parameters of the driver: `jdbc.user`, `jdbc.password`, … |
| `catalog-key` | jdbc | first column of every row, first part of every lock id: the same for all who share tables |
| `client-pool-size` | 2 | connections of a process |
| `sync-all-properties` | true | keep options of tables in `paimon_table_properties` too, for other tools to read |
| `lock.enabled` | by the warehouse | true where the warehouse is in an object store |
| `lock-acquire-timeout` | 8 min | how long to wait for a lock, and how long an own one counts |
| `lock-check-max-sleep` | 8 s | longest wait between tries |
| `lock-key-max-length` | 255 | characters of a lock id |
| `lock.time-zone` | the machine's | zone of the sessions of PostgreSQL: the one of the JVMs that share the catalog |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from freshet.storage.catalogs.coordination import CommitRules, commit_rules
from freshet.storage.catalogs.jdbc_lock import LockOptions
from freshet.storage.catalogs.jdbc_uri import PREFIX, DatabaseAddress, parse_uri
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.secrets import shown_option
from freshet.storage.options.values import parse_bool, parse_duration_ms, parse_int
from freshet.storage.paths import scheme_of

T = TypeVar("T")

OBJECT_STORES: Final = frozenset(
    {
        *("s3", "s3a", "s3n", "oss", "gs", "az", "abfs", "abfss", "wasb", "wasbs", "cosn", "obs"),
        *("emr", "http", "https", "ftp"),
    }
)
"""Schemes of warehouses whose tables are locked unless `lock.enabled` says otherwise."""

LOCK_SECONDS_MIN: Final = 1
"""Rows of locks count whole seconds."""


@dataclass(frozen=True, slots=True)
class JdbcOptions:
    """The options of one catalog; `lock` is None where tables are not locked."""

    address: DatabaseAddress
    catalog_key: str
    pool_size: int
    keeps_table_properties: bool
    time_zone: str | None
    lock: LockOptions | None
    rules: CommitRules


def parse_options(options: Mapping[str, str], warehouse: str) -> JdbcOptions:
    """The options, resolved; `InvalidRequestError` names one that cannot be used."""
    uri = options.get("uri", "")
    if not uri:
        raise InvalidRequestError(
            "option uri is missing: a catalog in a database needs jdbc:sqlite:/path or jdbc:postgresql://host:port/name",
            option="uri",
        )
    properties = {key.removeprefix(PREFIX): text for key, text in options.items() if key.startswith(PREFIX)}
    is_locked = _parsed(options, "lock.enabled", parse_bool, scheme_of(warehouse) in OBJECT_STORES)
    lock = _lock(options) if is_locked else None
    return JdbcOptions(
        address=parse_uri(uri, properties, busy_ms_max=lock.acquire_timeout_ms if lock else None),
        catalog_key=options.get("catalog-key", "jdbc"),
        pool_size=_parsed(options, "client-pool-size", _positive, 2),
        keeps_table_properties=_parsed(options, "sync-all-properties", parse_bool, True),
        time_zone=options.get("lock.time-zone"),
        lock=lock,
        rules=commit_rules(options, has_lock=is_locked),
    )


def _lock(options: Mapping[str, str]) -> LockOptions:
    timeout_ms = _parsed(options, "lock-acquire-timeout", parse_duration_ms, 8 * 60_000)
    if timeout_ms < LOCK_SECONDS_MIN * 1000:
        raise InvalidRequestError(
            f"option lock-acquire-timeout={options['lock-acquire-timeout']}: a lock counts {LOCK_SECONDS_MIN} s at "
            "least; give more",
            option="lock-acquire-timeout",
        )
    max_sleep_ms = _parsed(options, "lock-check-max-sleep", parse_duration_ms, 8_000)
    return LockOptions(timeout_ms, max_sleep_ms, _parsed(options, "lock-key-max-length", _positive, 255))


def _positive(text: str) -> int:
    number = parse_int(text)
    if number < 1:
        raise ValueError("expected a number from 1 on")
    return number


def _parsed(options: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    if key not in options:
        return default
    try:
        return parse(options[key])
    except ValueError as error:
        raise InvalidRequestError(f"option {key}={shown_option(key, options[key])}: {error}", option=key) from error
