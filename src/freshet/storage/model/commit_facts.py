"""What a commit says of itself to people: how long it took, what it met, what it compacted and why.

Writers note a `CompactionFacts` of each compaction, whose reason the decision to compact gave; it travels in the commit
message. A pipeline adds a `BatchFacts`. The commit makes a `CommitFacts` of both and of what it changes, and its
snapshot carries that (`codec.commit_facts`). Nothing that a table means depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Final

from freshet._frozen import Frozen, field

TOLD_APART_MAX: Final = 40
"""Compactions of one commit that may be told one by one."""
KindCounts = tuple[int, int, int, int]
"""Rows by kind, in the order of their codes: +I, -U, +U, -D."""


class CompactionReason(StrEnum):
    """Why files were compacted; people read the text, and histories keep it."""

    SIZE_AMPLIFICATION = "size amplification"
    """The newer runs outweighed the last one (`compaction.max-size-amplification-percent`)."""
    SIZE_RATIO = "size ratio"
    """Runs of similar size (`compaction.size-ratio`)."""
    RUN_COUNT = "run count"
    """More runs than `num-sorted-run.compaction-trigger`."""
    SMALL_FILES = "small files"
    """Small files of an append table."""
    SIZE_THRESHOLD = "size threshold"
    """`compaction.total-size-threshold`, `compaction.incremental-size-threshold`."""
    FORCED = "forced"
    """Somebody asked for it."""
    FULL_BY_SCHEDULE = "full by schedule"
    """`full-compaction.delta-commits`, `compaction.optimization-interval`."""
    LOOKUP = "lookup"
    """Readers wait for level 0: a changelog is made by looking up old rows, or first rows are kept."""
    VECTORS = "vectors"
    """Readers wait for level 0, whose rows mark older ones as deleted; or files had rows that are marked."""
    DELETES_BELOW = "deletes below"
    """More than the rule asked for, to meet older rows of keys that were deleted."""
    EXPIRY = "expiry"
    """Files with rows that are older than `record-level.expire-time`."""
    WAITING_ROWS = "waiting rows"
    """Rows that waited for their buckets (`bucket=-2`)."""
    SORT = "sort"
    """Rows of an append table were sorted."""
    RESCALE = "rescale"
    """A partition got another number of buckets."""
    REPAIR = "repair"
    """Files of a level overlapped."""


class CompactionFacts(Frozen):
    """One compaction of a bucket, or several of one reason together. Levels are None where there are none."""

    reason: CompactionReason
    from_level: int | None
    to_level: int | None
    files_in: int
    bytes_in: int
    rows_in: int
    files_out: int
    bytes_out: int
    rows_out: int
    duration_ms: int
    bucket_count: int = 1
    """Buckets that it is about."""


_REASON, _FROM_LEVEL, _TO_LEVEL, *_COUNTS = map(attrgetter, CompactionFacts.__struct_fields__)


def together(compactions: Iterable[CompactionFacts]) -> list[CompactionFacts]:
    """One for each reason, of several buckets."""
    given = list(compactions)
    found = []
    for reason in dict.fromkeys(map(_REASON, given)):
        some = [each for each in given if each.reason is reason]
        levels = [set(map(level, some)) for level in (_FROM_LEVEL, _TO_LEVEL)]
        from_level, to_level = (each.pop() for each in levels) if list(map(len, levels)) == [1, 1] else (None, None)
        found.append(CompactionFacts(reason, from_level, to_level, *(sum(map(count, some)) for count in _COUNTS)))
    return found


class PlacedCompaction(Frozen):
    """A compaction and where it was: the path of its partition, empty without partitions, and its bucket. Both are None
    where several are told together."""

    partition: str | None
    bucket: int | None
    facts: CompactionFacts


class BatchFacts(Frozen):
    """What a pipeline knows of the batch that it commits."""

    records: int | None
    """None where the batch has other tables, and the ledger says it."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
    event_times_ms: tuple[int, int] | None = None
    """The earliest and the latest time of its records at the source; None where they carry none."""
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """How long each step of the batch took, up to the commit."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Records that broke a rule of `expect`, by rule, whatever became of them."""


class CommitFacts(Frozen):
    """One snapshot, as its commit saw it.

    `kinds` counts the changes that readers get from the snapshot; None where they are not known by kind, as of an
    overwrite. Files that only change their level are neither added nor deleted. `duration_ms` ends just before the
    claim of the snapshot.
    """

    kinds: KindCounts | None
    rows_written: int
    files_added: int
    files_deleted: int
    changelog_files: int
    bytes_added: int
    bytes_deleted: int
    changelog_bytes: int
    duration_ms: int
    tries: int = 1
    conflicts: int = 0
    """Claims that were lost to others, and buckets whose compaction did not fit any more."""
    conflicts_with: tuple[str, ...] = ()
    """Commit users who were first."""
    rewrites: int = 0
    """How often files were written again with larger sequence numbers."""
    rewritten_bytes: int = 0
    batch: BatchFacts | None = None
    compactions: tuple[PlacedCompaction, ...] = ()
    live: tuple[int, int] | None = None
    """Live files of the table and their bytes, with the snapshot; None where they are not known without reading all: a
    commit before was of another program."""
    rows_ms: int | None = None
    """Of a compaction: the time of the last commit before it that was none; None where that is not known."""
