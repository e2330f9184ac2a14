"""Which catalog a warehouse has: the option `metastore` decides. A new catalog is one entry of `METASTORES`, and of
`OF_THIS_PROCESS` where other processes do not see it. A table that travels names its catalog in the settings of its
handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from freshet.storage.catalogs.claims import FileClaims, TableClaims
from freshet.storage.catalogs.filesystem import FilesystemMetastore
from freshet.storage.catalogs.memory import MemoryMetastore
from freshet.storage.catalogs.metastore import Metastore, TableName
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.env_settings import EnvSettings

Opener: TypeAlias = Callable[[Env, str, Mapping[str, str]], Metastore]
"""Makes the catalog of a warehouse, with its options."""

METASTORE: Final = "metastore"
WAREHOUSE: Final = "warehouse"
FILESYSTEM: Final = "filesystem"
MEMORY: Final = "memory"


def _without_options(make: Callable[[Env, str], Metastore]) -> Opener:
    def opened(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
        for key in options.keys() - {METASTORE}:
            raise InvalidRequestError(
                f"option {key}: this catalog has the option {METASTORE} alone; leave it out", option=key
            )
        return make(env, warehouse)

    return opened


METASTORES: Final[Mapping[str, Opener]] = MappingProxyType(
    {FILESYSTEM: _without_options(FilesystemMetastore), MEMORY: _without_options(MemoryMetastore)}
)

OF_THIS_PROCESS: Final = frozenset({MEMORY})


def open_metastore(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    """The catalog of a warehouse; `InvalidRequestError` for a kind that there is not, or an option that it has not."""
    kind = options.get(METASTORE, FILESYSTEM)
    opener = METASTORES.get(kind)
    if opener is None:
        raise InvalidRequestError(
            f"option {METASTORE}={kind}: there is no such catalog; choose one of {', '.join(METASTORES)}",
            option=METASTORE,
        )
    return opener(env, warehouse, options)


def catalog_settings(warehouse: str, options: Mapping[str, str]) -> EnvSettings:
    """What other processes open the catalog with; nothing for a folder, where the location of a table says all."""
    if options.get(METASTORE, FILESYSTEM) == FILESYSTEM:
        return EnvSettings()
    return EnvSettings.of({**options, WAREHOUSE: warehouse})


def is_found_again(claims: TableClaims, settings: EnvSettings) -> bool:
    """True when another process that has the settings claims ids of the table in the same way."""
    kind = dict(settings.catalog).get(METASTORE, FILESYSTEM)
    return type(claims) is FileClaims if kind == FILESYSTEM else kind not in OF_THIS_PROCESS


def claims_of(env: Env, settings: EnvSettings, name: str) -> TableClaims | None:
    """The claims of a table that came from another process; None for the exclusive creates of a folder.

    Raises `NotFoundError` where its catalog knows it no more.
    """
    options = dict(settings.catalog)
    if options.get(METASTORE, FILESYSTEM) == FILESYSTEM:
        return None
    database, _, table = name.partition(".")
    found = open_metastore(env, options.pop(WAREHOUSE), options).find_table(TableName(database, table))
    if found is None:
        raise NotFoundError(f"there is no table {name} any more in its catalog", table=name)
    return found.claims
