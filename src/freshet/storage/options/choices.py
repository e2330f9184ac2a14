"""Values of options that have a name."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

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


class ChangelogProducer(StrEnum):
    """Where changelog files come from."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class SortOrder(StrEnum):
    """Direction of the sequence fields."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(StrEnum):
    """When level 0 of a table that needs lookup is compacted: in every compaction round, or now and then."""

    RADICAL = "radical"
    GENTLE = "gentle"


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


class SequenceInitMode(StrEnum):
    """Where a writer takes its first sequence number from."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"
