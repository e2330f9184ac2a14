"""All options that are declared, in the order of docs/reference/table-options.md, and what the key of an option means,
so that a misspelt one is distinguished from one that has no meaning here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from freshet.storage.options.declared.commits import (
    CommitOptions,
    LogOptions,
    PartitionExpiryOptions,
    SchemaChangeOptions,
    SnapshotOptions,
    TagOptions,
)
from freshet.storage.options.declared.files import BucketOptions, FileOptions, ManifestOptions, StatisticsOptions
from freshet.storage.options.declared.merging import MergeOptions
from freshet.storage.options.declared.performance import CompactionOptions, ReadOptions, WriteOptions
from freshet.storage.options.declared.unsupported import ENGINE_KEYS, FORMAT_KEYS, KEY_PREFIXES, MOVED_OUT, REFUSED
from freshet.storage.options.option import LOCAL_FOLDER, Option, Refusal, Status


class DeclaredOptions(
    BucketOptions,
    FileOptions,
    StatisticsOptions,
    ManifestOptions,
    MergeOptions,
    SnapshotOptions,
    PartitionExpiryOptions,
    TagOptions,
    CommitOptions,
    SchemaChangeOptions,
    LogOptions,
    WriteOptions,
    CompactionOptions,
    ReadOptions,
):
    """The options that are attributes of `CoreOptions`."""


GROUPS: Final = DeclaredOptions.__bases__

ATTRIBUTES: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {name: option for group in GROUPS for name, option in vars(group).items() if isinstance(option, Option)}
)
"""Options by the attribute that has their value."""

OPTIONS: Final[Mapping[str, Option[Any]]] = MappingProxyType(
    {option.key: option for option in (*REFUSED, *ATTRIBUTES.values())}
)
"""Options by their key."""

_FORMER_KEYS: Final = frozenset(key for option in OPTIONS.values() for key in option.former)
_PRESENT: Final = {former: key for key, option in OPTIONS.items() for former in option.former}
_OUR_KEYS: Final = sorted({*OPTIONS, *_FORMER_KEYS, *MOVED_OUT, *FORMAT_KEYS})

IMMUTABLE_KEYS: Final = frozenset({key for key, option in OPTIONS.items() if option.immutable} | MOVED_OUT.keys())
"""Options that cannot change once the table has a snapshot."""

LOCAL_FOLDERS: Final = frozenset(key for key, option in OPTIONS.items() if option.kind is LOCAL_FOLDER)
"""Options that name folders of the local disk, for scratch files and caches."""

_REINTERPRETING: Final = frozenset(
    name for key, option in OPTIONS.items() if option.reinterprets for name in (key, *option.former)
)
_FIELDS: Final = "fields."
_NOT_MERGED_BY: Final = re.compile(r".*\.(stats-mode|(map|pk)[.-].*)")


def refusals() -> list[tuple[str, Refusal]]:
    """What is refused, with the key of its option: what cannot even be read first."""
    found = [(option.key, refusal) for option in OPTIONS.values() for refusal in option.refusals]
    return sorted(found, key=lambda pair: pair[1].access)


def local_folders(options: Mapping[str, str]) -> dict[str, str]:
    """The options among these that name local folders."""
    return {key: text for key, text in options.items() if key in LOCAL_FOLDERS}


def reinterprets(key: str) -> bool:
    """Whether the option says what rows are there, where several files have rows of one key."""
    return key in _REINTERPRETING or (key.startswith(_FIELDS) and _NOT_MERGED_BY.fullmatch(key) is None)


def present_key(key: str) -> str:
    """The key by its present name, where it is a former one."""
    return _PRESENT.get(key, key)


def option_status(key: str) -> Status | None:
    """What is done with an option; None for one that has no meaning anywhere."""
    if key in OPTIONS:
        return OPTIONS[key].status
    if key in _FORMER_KEYS:
        return Status.READ
    if key in MOVED_OUT:
        return Status.REFUSED
    is_known = key in FORMAT_KEYS or key in ENGINE_KEYS or key.startswith(KEY_PREFIXES)
    return Status.TOLERATED if is_known else None


def nearest_key(key: str) -> str | None:
    """The known option whose name is most like the one given, if any is."""
    candidates = difflib.get_close_matches(key, _OUR_KEYS, n=1, cutoff=0.6)
    return candidates[0] if candidates else None
