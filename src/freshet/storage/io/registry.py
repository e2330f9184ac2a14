"""Which `FileIO` reaches a location: the scheme of the location decides. A new store is one entry of `SCHEMES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.file_io import FileIO
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import FILE_SCHEME, scheme_of

Opener: TypeAlias = Callable[[str, Mapping[str, str]], FileIO]
"""Makes the `FileIO` of a location, with the options of its store, resolved."""


@dataclass(frozen=True, slots=True)
class Store:
    """One kind of store. `options` are the keys that it takes of those given to a catalog, `s3.*` for a prefix."""

    open: Opener
    options: tuple[str, ...] = ()
    is_of_this_process: bool = False
    """Another process that opens the location finds other files, or none."""


_MEMORY: Final = MemoryFileIO()
"""What `memory:` locations of this process share."""

MEMORY_SCHEME: Final = "memory"

SCHEMES: Final[Mapping[str, Store]] = MappingProxyType(
    {
        FILE_SCHEME: Store(lambda location, options: LocalFileIO()),
        MEMORY_SCHEME: Store(lambda location, options: _MEMORY, is_of_this_process=True),
    }
)


def is_of_this_process(location: str) -> bool:
    """True where another process that opens the location finds other files, or none."""
    store = SCHEMES.get(scheme_of(location))
    return store is not None and store.is_of_this_process


def store_options(location: str) -> Sequence[str]:
    """The keys that the store of a location takes; none for an unknown scheme."""
    store = SCHEMES.get(scheme_of(location))
    return () if store is None else store.options


def open_file_io(location: str, options: Mapping[str, str]) -> FileIO:
    """The `FileIO` that reaches a location; a path without a scheme is on the local disk.

    `options` are those of the store (endpoint, credentials, …). Raises `InvalidRequestError` for an unknown scheme.
    """
    store = SCHEMES.get(scheme_of(location))
    if store is None:
        known = " and ".join(f"{scheme}:" for scheme in SCHEMES)
        raise InvalidRequestError(f"only local paths and {known} URIs can be opened, not {shown_text(location)}")
    return store.open(location, options)
