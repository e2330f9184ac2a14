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

`DatabaseAddress` is where its `uri` leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote

from freshet._frozen import Frozen
from freshet.storage.catalogs.coordination import CommitRules, commit_rules
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.options.secrets import shown_text, without_secrets
from freshet.storage.options.values import parse_bool, parse_duration_ms, parse_int, parsed_option
from freshet.storage.paths import scheme_of

OBJECT_STORES: Final = frozenset(
    {
        *("s3", "s3a", "s3n", "oss", "gs", "az", "abfs", "abfss", "wasb", "wasbs", "cosn", "obs"),
        *("emr", "http", "https", "ftp"),
    }
)
"""Schemes of warehouses whose tables are locked unless `lock.enabled` says otherwise."""

LOCK_SECONDS_MIN: Final = 1
"""Rows of locks count whole seconds."""

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"

PREFIX: Final = "jdbc."
"""The beginning of options that are parameters of the driver."""

_BUSY_TIMEOUT_MS: Final = 30_000
"""How long a statement waits for another program that writes to the file."""

_POSTGRESQL_DEFAULTS: Final = {"connect_timeout": "10", "tcp_user_timeout": "60000", "application_name": "freshet"}
_TARGETS: Final = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "preferSecondary": "prefer-standby",
    "preferSlave": "prefer-standby",
}


class JdbcOptions(Frozen):
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
    is_locked = parsed_option(options, "lock.enabled", parse_bool, scheme_of(warehouse) in OBJECT_STORES)
    lock = _lock(options) if is_locked else None
    return JdbcOptions(
        address=parse_uri(uri, properties, busy_ms_max=lock.acquire_timeout_ms if lock else None),
        catalog_key=options.get("catalog-key", "jdbc"),
        pool_size=parsed_option(options, "client-pool-size", _positive, 2),
        keeps_table_properties=parsed_option(options, "sync-all-properties", parse_bool, True),
        time_zone=options.get("lock.time-zone"),
        lock=lock,
        rules=commit_rules(options, has_lock=is_locked),
    )


def _lock(options: Mapping[str, str]) -> LockOptions:
    timeout_ms = parsed_option(options, "lock-acquire-timeout", parse_duration_ms, 8 * 60_000)
    if timeout_ms < LOCK_SECONDS_MIN * 1000:
        raise InvalidRequestError(
            f"option lock-acquire-timeout={options['lock-acquire-timeout']}: a lock counts {LOCK_SECONDS_MIN} s at "
            "least; give more",
            option="lock-acquire-timeout",
        )
    max_sleep_ms = parsed_option(options, "lock-check-max-sleep", parse_duration_ms, 8_000)
    return LockOptions(timeout_ms, max_sleep_ms, parsed_option(options, "lock-key-max-length", _positive, 255))


def _positive(text: str) -> int:
    number = parse_int(text)
    if number < 1:
        raise ValueError("expected a number from 1 on")
    return number


class LockOptions(Frozen):
    """How long to wait for a lock, which is how long an own one counts, and between tries at most."""

    acquire_timeout_ms: int
    check_max_sleep_ms: int
    id_length_max: int


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseAddress:
    """One database: its kind, the URI as messages show it, and what its driver connects with, secrets among it."""

    kind: str
    shown: str
    parameters: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.shown})"

    def hide_secrets(self, text: str) -> str:
        """What a driver wrote, without the passwords in it."""
        return without_secrets(text, dict(self.parameters))


def absolute_uri(uri: str, absolute: Callable[[str], str]) -> str:
    """The same URI with the path of a SQLite file made absolute, so that other processes find the file."""
    beginning = f"jdbc:{SQLITE}:"
    place, mark, query = uri.removeprefix(beginning).partition("?")
    if not uri.startswith(beginning) or not place or place.startswith((":", "file:")):
        return uri
    return f"{beginning}{absolute(place)}{mark}{query}"


def parse_uri(uri: str, properties: Mapping[str, str], *, busy_ms_max: int | None = None) -> DatabaseAddress:
    """The database that a `jdbc:` URI leads to, in the words of the driver for Python; `properties` are the options
    `jdbc.<name>`, without that beginning. Who waits for a lock waits for a busy file no longer (`busy_ms_max`).

    | URI | database |
    |---|---|
    | `jdbc:sqlite:/folder/catalog.db` | a file of this machine |
    | `jdbc:postgresql://host:port/name?…` | PostgreSQL; hosts with commas; parameters of the JVM's driver |

    Parameters come from the URI and from options `jdbc.<name>`; the URI wins, as with the JVM's driver. Those that only
    concern the JVM's driver have no effect here; one that is not known is refused.
    """
    _, _, rest = uri.partition(":")
    kind, _, place = rest.partition(":")
    place, _, query = place.partition("?")
    given = {**properties, **dict(parse_qsl(query.replace(";", "&"), keep_blank_values=True))}
    if kind == SQLITE:
        parameters = _sqlite(place, given, min(_BUSY_TIMEOUT_MS, busy_ms_max or _BUSY_TIMEOUT_MS))
    elif kind == POSTGRESQL:
        parameters = _postgresql(place, given)
    else:
        raise UnsupportedFeatureError(
            f"option uri={shown_text(uri)}: catalogs are kept in SQLite (jdbc:sqlite:/path) or PostgreSQL "
            f"(jdbc:postgresql://host:port/name), not in {kind or 'a database without a name'}; use one of these, or a "
            "warehouse folder (metastore=filesystem)",
            option="uri",
        )
    return DatabaseAddress(kind, shown_text(uri), tuple(sorted(parameters.items())))


def _sqlite(place: str, given: Mapping[str, str], busy_ms: int) -> dict[str, str]:
    path = place.removeprefix("file:")
    if not path.startswith("/"):
        raise InvalidRequestError(
            f"option uri=jdbc:sqlite:{place}: give the absolute path of a file, such as jdbc:sqlite:/data/catalog.db; "
            "every process of a program must find the same one",
            option="uri",
        )
    parameters = {"path": path, "busy_timeout": str(busy_ms)}
    for key, text in given.items():
        if key == "busy_timeout" and text.isdigit():
            parameters[key] = text
        elif key not in ("user", "password", "journal_mode", "foreign_keys", "date_class", "cache"):
            raise _unknown(key, text, ("busy_timeout",))
    return parameters


def _postgresql(place: str, given: Mapping[str, str]) -> dict[str, str]:
    hosts, _, name = place.removeprefix("//").partition("/") if place.startswith("//") else ("", "", place)
    if "@" in hosts:
        raise InvalidRequestError(
            "option uri=jdbc:postgresql://…@…: user and password are no part of the URI; give the options jdbc.user "
            "and jdbc.password",
            option="uri",
        )
    parameters = dict(_POSTGRESQL_DEFAULTS)
    pairs = [_host_and_port(each) for each in hosts.split(",")] if hosts else [("localhost", "")]
    parameters["host"] = ",".join(host for host, _ in pairs)
    parameters["port"] = ",".join(port or "5432" for _, port in pairs)
    if name.strip("/"):
        parameters["dbname"] = unquote(name.strip("/"))
    for key, text in given.items():
        if key in _IGNORED:
            continue
        if key not in _TRANSLATED:
            raise _unknown(key, text, tuple(_TRANSLATED))
        parameters.update(_TRANSLATED[key](text))
    return parameters


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):  # an IPv6 address
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host or "localhost", port


def _unknown(key: str, text: str, known: tuple[str, ...]) -> InvalidRequestError:
    if not text:  # maybe the rest of a password
        return InvalidRequestError(
            "option uri: a parameter of the catalog's database has no value; write & and ; of a password as %26 and "
            "%3B, or give the option jdbc.password",
            option="uri",
        )
    return InvalidRequestError(
        f"parameter {key} of the catalog's database is not known; leave it out of the option uri and of the options "
        f"{PREFIX}*. Known are {', '.join(known)}",
        option=PREFIX + key,
    )


def _same(*names: str) -> dict[str, Callable[[str], dict[str, str]]]:
    return {name: lambda text, name=name: {name: text} for name in names}  # type: ignore[misc]


def _target(text: str) -> dict[str, str]:
    if text not in _TARGETS:
        raise InvalidRequestError(
            f"option {PREFIX}targetServerType={text}: expected one of {', '.join(_TARGETS)}",
            option=f"{PREFIX}targetServerType",
        )
    return {"target_session_attrs": _TARGETS[text]}


_TRANSLATED: Final[Mapping[str, Callable[[str], dict[str, str]]]] = MappingProxyType(
    {
        **_same("user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "options"),
        **_same("connect_timeout", "application_name", "target_session_attrs", "tcp_user_timeout", "passfile"),
        "ApplicationName": lambda text: {"application_name": text},
        "connectTimeout": lambda text: {"connect_timeout": text},
        "loginTimeout": lambda text: {"connect_timeout": text},
        "currentSchema": lambda text: {"options": f"-csearch_path={text}"},
        "ssl": lambda text: {} if text.lower() == "false" else {"sslmode": "verify-full"},
        "tcpKeepAlive": lambda text: {"keepalives": "0" if text.lower() == "false" else "1"},
        "loadBalanceHosts": lambda text: {"load_balance_hosts": "random" if text.lower() == "true" else "disable"},
        "targetServerType": _target,
    }
)
"""Parameters of the JVM's driver, as those of libpq."""

_IGNORED: Final = frozenset(
    {
        *("prepareThreshold", "preparedStatementCacheQueries", "preparedStatementCacheSizeMiB", "binaryTransfer"),
        *("reWriteBatchedInserts", "stringtype", "defaultRowFetchSize", "assumeMinServerVersion", "socketTimeout"),
        *("cancelSignalTimeout", "logUnclosedConnections", "loggerLevel", "loggerFile", "autosave", "sslfactory"),
        *("cleanupSavepoints", "databaseMetadataCacheFields", "databaseMetadataCacheFieldsMiB", "adaptiveFetch"),
        *("hostRecheckSeconds", "receiveBufferSize", "sendBufferSize", "disableColumnSanitiser", "driver"),
    }
)
"""Parameters that concern the JVM's driver alone."""
