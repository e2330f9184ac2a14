"""All options that are declared, in the order of docs/reference/table-options.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from freshet.storage.options.declared.commits import CommitOptions, SchemaChangeOptions, SnapshotOptions
from freshet.storage.options.declared.files import BucketOptions, FileOptions, ManifestOptions, StatisticsOptions
from freshet.storage.options.declared.log import LogOptions
from freshet.storage.options.declared.merging import MergeOptions
from freshet.storage.options.declared.partitions import PartitionExpiryOptions
from freshet.storage.options.declared.performance import CompactionOptions, ReadOptions, WriteOptions
from freshet.storage.options.declared.refused import REFUSED
from freshet.storage.options.declared.tags import TagOptions
from freshet.storage.options.option import Option
from freshet.storage.options.refusal import Refusal


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


def refusals() -> list[tuple[str, Refusal]]:
    """What is refused, with the key of its option: what cannot even be read first."""
    found = [(option.key, refusal) for option in OPTIONS.values() for refusal in option.refusals]
    return sorted(found, key=lambda pair: pair[1].access)
