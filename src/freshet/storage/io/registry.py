"""Which `FileIO` reaches a location: the scheme of the location decides. A new store is one entry of `SCHEMES`, and of
`OF_THIS_PROCESS` where other processes do not see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.file_io import FileIO
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import FILE_SCHEME, scheme_of

Opener: TypeAlias = Callable[[str, Mapping[str, str]], FileIO]
"""Makes the `FileIO` of a location, with the settings of its store."""

_MEMORY: Final = MemoryFileIO()
"""What `memory:` locations of this process share."""

MEMORY_SCHEME: Final = "memory"

SCHEMES: Final[Mapping[str, Opener]] = MappingProxyType(
    {
        FILE_SCHEME: lambda location, settings: LocalFileIO(),
        MEMORY_SCHEME: lambda location, settings: _MEMORY,
    }
)

OF_THIS_PROCESS: Final = frozenset({MEMORY_SCHEME})


def is_of_this_process(location: str) -> bool:
    """True where another process that opens the location finds other files, or none."""
    return scheme_of(location) in OF_THIS_PROCESS


def open_file_io(location: str, settings: Mapping[str, str]) -> FileIO:
    """The `FileIO` that reaches a location; a path without a scheme is on the local disk.

    `settings` are those of the store (endpoint, credentials, …). Raises `InvalidRequestError` for an unknown scheme.
    """
    opener = SCHEMES.get(scheme_of(location))
    if opener is None:
        known = " and ".join(f"{scheme}:" for scheme in SCHEMES)
        raise InvalidRequestError(f"only local paths and {known} URIs can be opened, not {shown_text(location)}")
    return opener(location, settings)
