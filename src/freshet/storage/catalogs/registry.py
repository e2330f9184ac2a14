"""Which catalog a warehouse has: the option `metastore` decides. A new catalog is one entry of `METASTORES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from freshet.storage.catalogs.filesystem import FilesystemMetastore
from freshet.storage.catalogs.memory import MemoryMetastore
from freshet.storage.catalogs.metastore import Metastore
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env

Opener: TypeAlias = Callable[[Env, str, Mapping[str, str]], Metastore]
"""Makes the catalog of a warehouse, with its options."""

METASTORE: Final = "metastore"
FILESYSTEM: Final = "filesystem"

METASTORES: Final[Mapping[str, Opener]] = MappingProxyType(
    {
        FILESYSTEM: lambda env, warehouse, options: FilesystemMetastore(env, warehouse),
        "memory": lambda env, warehouse, options: MemoryMetastore(env, warehouse),
    }
)


def open_metastore(env: Env, warehouse: str, options: Mapping[str, str]) -> Metastore:
    """The catalog of a warehouse; `InvalidRequestError` for a kind that there is not, or an option that none reads."""
    for key in options.keys() - {METASTORE}:
        raise InvalidRequestError(f"option {key}: a catalog has the option {METASTORE} alone; leave it out", option=key)
    kind = options.get(METASTORE, FILESYSTEM)
    opener = METASTORES.get(kind)
    if opener is None:
        raise InvalidRequestError(
            f"option {METASTORE}={kind}: there is no such catalog; choose one of {', '.join(METASTORES)}",
            option=METASTORE,
        )
    return opener(env, warehouse, options)
