"""The system tables there are, and names of tables with one of them behind: `orders$files`.

Source: MERGING.md §6.6.
"""

from __future__ import annotations

from typing import Final

from freshet.storage.exceptions import NotFoundError, UnsupportedFeatureError
from freshet.storage.system_tables.commits import COMMITS, COMPACTIONS
from freshet.storage.system_tables.definition import SystemTableDefinition
from freshet.storage.system_tables.files import FILES
from freshet.storage.system_tables.metadata import BRANCHES, CONSUMERS, MANIFESTS, OPTIONS, SCHEMAS, SNAPSHOTS, TAGS
from freshet.storage.system_tables.partitions import BUCKETS, PARTITIONS
from freshet.storage.system_tables.table_rows import AUDIT_LOG, READ_OPTIMIZED

SYSTEM_TABLES: Final = {
    each.noun: each
    for each in (
        SNAPSHOTS,
        SCHEMAS,
        OPTIONS,
        FILES,
        PARTITIONS,
        BUCKETS,
        TAGS,
        BRANCHES,
        CONSUMERS,
        MANIFESTS,
        COMMITS,
        COMPACTIONS,
        AUDIT_LOG,
        READ_OPTIMIZED,
    )
}

_OF_PAIMON: Final = frozenset(
    {
        "aggregation_fields",
        "binlog",
        "file_key_ranges",
        "row_tracking",
        "statistics",
        "table_indexes",
    }
)
"""System tables that Apache Paimon 2.0 has besides."""


def is_noun(text: str) -> bool:
    """Whether a system table, of Freshet or Apache Paimon, is called so."""
    return text.lower() in SYSTEM_TABLES or text.lower() in _OF_PAIMON


def definition_of(noun: str, table: str) -> SystemTableDefinition:
    """The system table of this name, in any case; `table` is whose it would be.

    Raises `UnsupportedFeatureError` for one that Apache Paimon has and Freshet has not, else `NotFoundError`.
    """
    known = ", ".join(f"${each}" for each in SYSTEM_TABLES)
    found = SYSTEM_TABLES.get(noun.lower())
    if found is not None:
        return found
    if noun.lower() in _OF_PAIMON:
        raise UnsupportedFeatureError(
            f"{table}${noun}: Freshet does not have this system table of Apache Paimon; it has {known}", table=table
        )
    raise NotFoundError(f"{table}${noun}: there is no system table of this name; there are {known}", table=table)
