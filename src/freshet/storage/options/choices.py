"""Values of options that have a name, and the formats of data files with their codecs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

from freshet._frozen import Frozen

DYNAMIC_BUCKET: Final = -1
"""`bucket=-1`: dynamic buckets of a keyed table, no buckets of an append table."""

UNAWARE_BUCKET: Final = -1
"""Value of the option `bucket`, and of the total recorded, for append tables without buckets."""


class MergeEngine(StrEnum):
    """How rows of one key become one row."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATE = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogEmission(Frozen):
    """When a changelog producer emits the changes of rows."""

    at_flush: bool = False
    """The rows as they were given, when they are written to level 0."""
    in_compactions: bool = False
    """What compactions change."""
    by_lookup: bool = False
    """Compactions of level 0 look up the rows that they replace: those emit, and need not reach the highest level."""
    only_at_highest_level: bool = False
    """Compactions to the highest level emit, no others."""

    @property
    def with_commit(self) -> bool:
        """True when the commit of rows can have their changes: nothing emits more of them later."""
        return self.at_flush or self.by_lookup


class ChangelogProducer(StrEnum):
    """Where changelog files come from. Who asks what a producer does asks `emits`, which every member declares."""

    NONE = "none", ChangelogEmission()
    INPUT = "input", ChangelogEmission(at_flush=True)
    LOOKUP = "lookup", ChangelogEmission(in_compactions=True, by_lookup=True)
    FULL_COMPACTION = "full-compaction", ChangelogEmission(in_compactions=True, only_at_highest_level=True)

    emits: ChangelogEmission

    def __new__(cls, text: str, emits: ChangelogEmission) -> Self:
        """A member: its text in options, and what it does."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.emits = emits
        return member


class SortOrder(StrEnum):
    """Direction of the sequence fields."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(StrEnum):
    """When level 0 of a table that needs lookup is compacted: in every compaction round, or now and then."""

    RADICAL = "radical"
    GENTLE = "gentle"


class LookupStoreChoice(StrEnum):
    """What holds the rows that are looked up by key."""

    AUTO = "auto"
    MAPPED = "mapped"
    ROCKSDB = "rocksdb"


class LogSystem(StrEnum):
    """Where changes are logged before their commit."""

    NONE = "none"
    KAFKA = "kafka"


class LogChangelogMode(StrEnum):
    """Which rows the log has: every kind, or no rows before an update."""

    AUTO = "auto"
    ALL = "all"
    UPSERT = "upsert"


class LogConsistency(StrEnum):
    """What consumers that know nothing of snapshots are promised."""

    EVENTUAL = "eventual"
    TRANSACTIONAL = "transactional"


class OnLakeOnly(StrEnum):
    """What a reader of the log does about a commit that was not logged."""

    FAIL = "fail"
    APPLY = "apply"
    SKIP = "skip"


class OnTruncated(StrEnum):
    """What a reader of the log does when retention has taken what it needs."""

    FAIL = "fail"
    FALL_BACK = "fall-back"


class TagCreation(StrEnum):
    """Whether tags are made automatically, and by which time."""

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class TagPeriodChoice(StrEnum):
    """How often tags are made automatically."""

    DAILY = "daily"
    HOURLY = "hourly"
    TWO_HOURS = "two-hours"


class TagPeriodFormat(StrEnum):
    """How the names of automatic tags are written."""

    WITH_DASHES = "with_dashes"
    WITHOUT_DASHES = "without_dashes"
    WITHOUT_DASHES_AND_SPACES = "without_dashes_and_spaces"


class SequenceInitMode(StrEnum):
    """Where a writer takes its first sequence number from."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"


CODECS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": ("zstd", "snappy", "gzip", "none", "lz4", "uncompressed"),
    "orc": ("zstd", "snappy", "zlib", "none", "lz4"),
    "avro": ("zstd", "snappy", "deflate", "null", "zstandard", "bzip2"),
}
"""Formats of data files, by the codecs that `file.compression` may name for each.

| format | refused by Apache Paimon | not written here |
|---|---|---|
| parquet | | brotli, lzo |
| orc | gzip, deflate, zstandard, null, uncompressed | lzo |
| avro | none, gzip, zlib, lz4 | xz |

Source: FORMAT.md §1.3, §2.3.
"""
FILE_FORMATS: Final = tuple(CODECS)
ALL_CODECS: Final = tuple(dict.fromkeys(codec for codecs in CODECS.values() for codec in codecs))

AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Avro takes for the name of a field."""
