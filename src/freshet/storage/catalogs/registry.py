"""Which catalog a warehouse has: the option `metastore` decides. A new catalog is one entry of `METASTORES`.

Options given to a catalog are divided: its entry here names those that the catalog takes, the entry in `io/registry`
those of the store; one that neither takes is refused. They travel in the handle of a table as they were given, secrets
as references; openers get them resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Final, TypeAlias

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import FileClaims, RefusedClaims, TableClaims
from freshet.storage.catalogs.coordination import COORDINATION_OPTIONS, commit_rules
from freshet.storage.catalogs.filesystem import FilesystemMetastore
from freshet.storage.catalogs.jdbc_options import absolute_uri
from freshet.storage.catalogs.metastore import Metastore, TableName
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env, absolute_path, resolved_options
from freshet.storage.io.env_settings import EnvSettings, is_among, is_reference
from freshet.storage.io.registry import any_store_options, store_options
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import TablePaths

Opener: TypeAlias = Callable[[Env, str, Mapping[str, str]], Metastore]
"""Makes the catalog of a warehouse, with its options, resolved."""

METASTORE: Final = "metastore"
WAREHOUSE: Final = "warehouse"
FILESYSTEM: Final = "filesystem"
JDBC: Final = "jdbc"
JDBC_SCHEME: Final = "jdbc:"
URI: Final = "uri"


class CatalogKind(Frozen):
    """One kind of catalog. `options` are the keys that it takes besides `metastore`, `jdbc.*` for a prefix."""

    open: Opener
    options: tuple[str, ...] = ()


JDBC_OPTIONS: Final = (
    *(URI, "jdbc.*", "catalog-key", "client-pool-size", "sync-all-properties", "lock.enabled", "lock.time-zone"),
    *("lock-acquire-timeout", "lock-check-max-sleep", "lock-key-max-length", *COORDINATION_OPTIONS),
)


def _open_jdbc(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    try:
        from freshet.storage.catalogs.jdbc import open_jdbc

        return open_jdbc(env, warehouse, options)
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"a catalog in a database (option uri) needs SQLAlchemy and psycopg, and {error.name} is not installed "
            "here; install Freshet's extra 'jdbc': pip install '.[jdbc]' in a clone of it, or pip install "
            "'WHEEL[jdbc]' with the path of its wheel",
            option=URI,
        ) from error


METASTORES: Final[Mapping[str, CatalogKind]] = MappingProxyType(
    {
        FILESYSTEM: CatalogKind(
            lambda env, warehouse, options: FilesystemMetastore(env, warehouse, commit_rules(options)),
            COORDINATION_OPTIONS,
        ),
        JDBC: CatalogKind(_open_jdbc, JDBC_OPTIONS),
    }
)


def metastore_name(options: Mapping[str, str]) -> str:
    """The kind of catalog that the options ask for; the URI of a database says so too, also one behind a reference."""
    uri = options.get(URI, "")
    return options.get(METASTORE, JDBC if uri.startswith(JDBC_SCHEME) or is_reference(uri) else FILESYSTEM)


def place_of_catalog(
    place: str | PathLike[str] | None, warehouse: str | PathLike[str] | None, options: Mapping[str, str]
) -> tuple[str | PathLike[str], dict[str, str]]:
    """The warehouse of a catalog and its options, from a place (a warehouse or the URI of a database), the warehouse
    besides, and options, which may name both."""
    texts = dict(options)
    if isinstance(place, str) and place.startswith(JDBC_SCHEME):
        _put(texts, URI, place)
        place = None
    named = [each for each in (place, warehouse, texts.pop(WAREHOUSE, None)) if each is not None]
    if not named:
        raise InvalidRequestError(
            'a catalog in a database needs the warehouse that its tables lie in: Catalog("jdbc:…", warehouse="s3://…")'
            if metastore_name(texts) == JDBC
            else "a catalog has a warehouse: give a path or a URI, for example file:///data/warehouse",
            option=WAREHOUSE,
        )
    for each in named:
        if not isinstance(each, (str, PathLike)):
            raise InvalidRequestError(f"warehouse {each!r}: give a path, for example file:///data/warehouse")
    if any(each != named[0] for each in named):
        shown = " and ".join(repr(shown_text(str(each))) for each in named)
        raise InvalidRequestError(
            f"the catalog has one warehouse, and {shown} are given; leave one out", option=WAREHOUSE
        )
    if URI in texts:
        texts[URI] = absolute_uri(texts[URI], absolute_path)
    return named[0], texts


def _put(options: dict[str, str], key: str, text: str) -> None:
    if options.setdefault(key, text) != text:
        raise InvalidRequestError(
            f"option {key}={shown_text(options[key])} is not {shown_text(text)}, which is given too; leave one out",
            option=key,
        )


def open_metastore(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    """The catalog of a warehouse; `InvalidRequestError` for a kind that there is not, or an option nobody takes."""
    kind = check_options(env, warehouse, options)
    return kind.open(env, warehouse, resolved_options(EnvSettings.of(options), kind.options))


def check_options(env: Env, warehouse: str, options: Mapping[str, str]) -> CatalogKind:
    """The kind of the catalog; raises as `open_metastore` does."""
    name = metastore_name(options)
    kind = METASTORES.get(name)
    if kind is None:
        raise InvalidRequestError(
            f"option {METASTORE}={name}: there is no such catalog; choose one of {', '.join(METASTORES)}",
            option=METASTORE,
        )
    for key, text in options.items():
        if not is_among(key, (METASTORE, *kind.options)):
            _check_store_option(env, warehouse, key, text, kind)
    return kind


def catalog_keys(warehouse: str, metastore: str) -> Sequence[str]:
    """The keys that a catalog of this kind and its store take; of a kind that there is not, those of the store."""
    kind = METASTORES.get(metastore)
    return (METASTORE, *(kind.options if kind else ()), *store_options(warehouse))


def known_options() -> Sequence[str]:
    """The keys that some catalog or some store takes."""
    keys = dict.fromkeys(each for kind in METASTORES.values() for each in kind.options)
    return (METASTORE, *keys, *any_store_options())


def is_catalog_option(key: str) -> bool:
    """Whether some catalog or some store takes an option."""
    return is_among(key, known_options())


def catalog_settings(warehouse: str, options: Mapping[str, str]) -> EnvSettings:
    """What other processes open the catalog and its store with; a plain folder is found by the location of a table."""
    if is_plain_folder(options):
        return EnvSettings.of({key: text for key, text in options.items() if key != METASTORE})
    return EnvSettings.of({**options, WAREHOUSE: warehouse})


def is_found_again(claims: TableClaims, settings: EnvSettings) -> bool:
    """True when another process that has the settings claims ids of the table in the same way."""
    options = dict(settings.catalog)
    if isinstance(claims, RefusedClaims):
        return False
    if is_plain_folder(options):
        return type(claims) is FileClaims and claims.rules == commit_rules(options)
    return True


def claims_of(env: Env, settings: EnvSettings, name: str) -> TableClaims | None:
    """The claims of a table that came from another process; None for the exclusive creates of a plain folder.

    Raises `NotFoundError` where its catalog knows it no more.
    """
    options = dict(settings.catalog)
    if is_plain_folder(options):
        return None
    database, _, table = name.partition(".")
    claims = open_metastore(env, options.pop(WAREHOUSE), options).table_claims(TableName(database, table))
    if claims is None:
        raise NotFoundError(f"there is no table {name} any more in its catalog", table=name)
    return claims


def folder_claims(env: Env, location: str) -> TableClaims:
    """The claims of a table that is opened by its location: exclusive creates, by the rules that its world names."""
    options = {} if env.settings is None else dict(env.settings.catalog)
    return FileClaims(env.file_io, TablePaths(location), commit_rules(options))


def is_plain_folder(options: Mapping[str, str]) -> bool:
    """True for a folder whose catalog was given no options of its own but those of its commits."""
    taken = METASTORES[FILESYSTEM].options
    own = (key for key in options if is_among(key, taken) and key not in COORDINATION_OPTIONS)
    return metastore_name(options) == FILESYSTEM and not any(own)


def _check_store_option(env: Env, warehouse: str, key: str, text: str, kind: CatalogKind) -> None:
    taken = store_options(warehouse)
    if not is_among(key, taken):
        known = ", ".join((METASTORE, *kind.options, *taken))
        raise InvalidRequestError(
            f"option {key}: neither the catalog nor the store of {shown_text(warehouse)} takes it; they take {known}; "
            "leave it out",
            option=key,
        )
    if env.settings is None or (key, text) not in env.settings.catalog:
        raise InvalidRequestError(
            f"option {key} is one of the store, which env= reaches without it; leave env= out, or make it with "
            "open_env(warehouse, EnvSettings.of(options))",
            option=key,
        )
