"""Which `FileIO` reaches a location: the scheme of the location decides. A new store is one entry of `SCHEMES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.file_cache import CACHE_OPTIONS
from freshet.storage.io.file_io import FileIO
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import FILE_SCHEME, scheme_of

Opener: TypeAlias = Callable[[str, Mapping[str, str]], FileIO]
"""Makes the `FileIO` of a location, with the options of its store, resolved."""


class Store(Frozen):
    """One kind of store. `options` are the keys that it takes of those given to a catalog, `s3.*` for a prefix."""

    open: Opener
    options: tuple[str, ...] = ()
    is_of_this_process: bool = False
    """Another process that opens the location finds other files, or none."""
    needs_coordination: bool = True
    """Programs that do not create exclusively replace what another has created: writers have to be coordinated."""


_MEMORY: Final = MemoryFileIO()
"""What `memory:` locations of this process share."""

MEMORY_SCHEME: Final = "memory"
S3_SCHEMES: Final = ("s3", "s3a")
AZURE_SCHEMES: Final = ("az", "abfs", "abfss")

S3_OPTIONS: Final = ("s3.*", "s3a.*", "fs.s3a.*")
"""Options as Paimon takes them, whatever the scheme."""

GOOGLE_OPTIONS: Final = ("gs.*", "fs.gs.*")
AZURE_OPTIONS: Final = ("azure.*", "fs.azure.*")


def _objects_of(location: str, options: Mapping[str, str]) -> FileIO:
    if "@" in urlsplit(location).netloc and scheme_of(location) in S3_SCHEMES:
        raise InvalidRequestError(
            f"{shown_text(location)}: credentials do not belong into a location, which is shown and sent; give the "
            "options s3.access-key and s3.secret-key, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    from freshet.storage.io.object_file_io import ObjectFileIO

    return ObjectFileIO(options)


SCHEMES: Final[Mapping[str, Store]] = MappingProxyType(
    {
        FILE_SCHEME: Store(lambda location, options: LocalFileIO(), needs_coordination=False),
        MEMORY_SCHEME: Store(lambda location, options: _MEMORY, is_of_this_process=True, needs_coordination=False),
        **{scheme: Store(_objects_of, S3_OPTIONS) for scheme in S3_SCHEMES},
        "gs": Store(_objects_of, GOOGLE_OPTIONS),
        **{scheme: Store(_objects_of, AZURE_OPTIONS) for scheme in AZURE_SCHEMES},
    }
)


def is_of_this_process(location: str) -> bool:
    """True where another process that opens the location finds other files, or none."""
    store = SCHEMES.get(scheme_of(location))
    return store is not None and store.is_of_this_process


def needs_coordination(location: str) -> bool:
    """True where writers of a location have to be coordinated by more than its exclusive create."""
    store = SCHEMES.get(scheme_of(location))
    return store is not None and store.needs_coordination


def store_options(location: str) -> Sequence[str]:
    """The keys that the store of a location takes, those of the local cache among them; none for an unknown scheme."""
    store = SCHEMES.get(scheme_of(location))
    return () if store is None else (*store.options, CACHE_OPTIONS)


def option_identity(key: str) -> str:
    """One text for the keys that mean the same to a store: `s3.access-key` for `fs.s3a.access.key`."""
    prefix = next((each[:-1] for each in S3_OPTIONS if key.startswith(each[:-1])), None)
    return key if prefix is None else f"s3.{key.removeprefix(prefix).replace('.', '-')}"


def any_store_options() -> Sequence[str]:
    """The keys that stores take, whichever."""
    return sorted({key for store in SCHEMES.values() for key in store.options})


def open_file_io(location: str, options: Mapping[str, str]) -> FileIO:
    """The `FileIO` that reaches a location; a path without a scheme is on the local disk.

    `options` are those of the store (endpoint, credentials, …). Raises `InvalidRequestError` for an unknown scheme.
    """
    store = SCHEMES.get(scheme_of(location))
    if store is None:
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise InvalidRequestError(f"only local paths and URIs of {known} can be opened, not {shown_text(location)}")
    return store.open(location, options)
