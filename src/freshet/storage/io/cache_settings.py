"""The options `local-cache.*` of a catalog: what of a store is kept on local disks.

| option | meaning | default |
|---|---|---|
| `local-cache.enabled` | whether anything is kept | `true` for object stores, `false` for disks |
| `local-cache.dir` | the folder | the one for scratch files |
| `local-cache.max-size` | of all files together | `1 gb` |
| `local-cache.block-size` | of blocks of data files | `1 mb` |
| `local-cache.whitelist` | what is kept | `meta`; also `bucket-index`, `file-index` and `data` |

`bucket-index` are deletion vectors and hash indexes, `file-index` the indexes next to data files.

The keys are those of Apache Paimon, where the cache is off, in memory without a folder, and not bounded by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.options.values import parse_bool, parse_names, parse_size_bytes

CACHE_OPTIONS: Final = "local-cache.*"
_PREFIX: Final = "local-cache."
_NAMES: Final = ("enabled", "dir", "max-size", "block-size", "whitelist")

MAX_BYTES: Final = 1024**3
BLOCK_BYTES: Final = 1024**2
BLOCK_BYTES_MIN: Final = 4096

T = TypeVar("T")


class CacheKind(StrEnum):
    """What may be kept, as Paimon names it. Freshet reads no global indexes."""

    META = "meta"
    BUCKET_INDEX = "bucket-index"
    FILE_INDEX = "file-index"
    DATA = "data"
    GLOBAL_INDEX = "global-index"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The options, parsed."""

    folder: str | None = None
    max_bytes: int = MAX_BYTES
    block_bytes: int = BLOCK_BYTES
    kinds: frozenset[CacheKind] = frozenset({CacheKind.META})


def cache_settings(options: Mapping[str, str], *, is_on: bool) -> CacheSettings | None:
    """The settings; None where nothing is to be kept. `is_on` is the default of `local-cache.enabled`."""
    for key in options:
        if key.removeprefix(_PREFIX) not in _NAMES:
            known = ", ".join(_PREFIX + name for name in _NAMES)
            raise InvalidRequestError(f"option {key} is not known; there are {known}", option=key)
    settings = CacheSettings(
        options.get(f"{_PREFIX}dir") or None,
        _parsed(options, f"{_PREFIX}max-size", parse_size_bytes, MAX_BYTES),
        max(BLOCK_BYTES_MIN, _parsed(options, f"{_PREFIX}block-size", parse_size_bytes, BLOCK_BYTES)),
        _parsed(options, f"{_PREFIX}whitelist", _kinds, frozenset({CacheKind.META})),
    )
    is_on = _parsed(options, f"{_PREFIX}enabled", parse_bool, is_on)
    return settings if is_on and settings.max_bytes > 0 else None


def _kinds(text: str) -> frozenset[CacheKind]:
    known = {kind.value for kind in CacheKind}
    for name in parse_names(text):
        if name not in known:
            raise ValueError(f"{name!r} is no kind of files; there are {', '.join(CacheKind)}")
    return frozenset(CacheKind(name) for name in parse_names(text))


def _parsed(options: Mapping[str, str], key: str, parse: Callable[[str], T], default: T) -> T:
    if key not in options:
        return default
    try:
        return parse(options[key])
    except ValueError as error:
        raise InvalidRequestError(f"option {key}={options[key]}: {error}", option=key) from error
