"""What is wrong with how a table is compacted, and what only a compaction mends; buckets of a wrong number, with the
number to choose: those of the largest partition count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Final

from freshet.storage.model.display import size_text
from freshet.storage.status.examination import BucketFacts, Examination
from freshet.storage.status.finding import Rule, Severity, Sign

SMALL_FILES_MIN: Final = 20
_COMPACT: Final = ("compact", "{warehouse}", "{table}")


def nobody_compacts(facts: Examination) -> bool:
    """Writers leave compaction to others, and there was none for as many commits as would have called for it."""
    levels = facts.detail.levels
    waits = max(facts.detail.hour.commits, levels.runs_max) >= levels.runs_trigger and levels.backlog_buckets > 0
    return facts.options.compacts_elsewhere and not facts.has_compactor and waits


def _waiting_rows(facts: Examination) -> Sign | int:
    rows = facts.detail.levels.waiting_rows
    return Sign(rows, {"producer": facts.options.changelog_producer}) if rows and nobody_compacts(facts) else 0


def _backlog(facts: Examination) -> int:
    levels = facts.detail.levels
    return levels.backlog_bytes if not levels.waiting_rows and nobody_compacts(facts) else 0


def _runs(facts: Examination) -> Sign | int:
    levels = facts.detail.levels
    if levels.runs_stop is None or levels.runs_max < levels.runs_stop or nobody_compacts(facts):
        return 0
    return Sign(levels.runs_max, {"stop": levels.runs_stop})


def _small_files(facts: Examination) -> Sign | int:
    """Small files of tables without a primary key; those of others are runs."""
    small = max((each.small_files for each in facts.buckets), default=0)
    if facts.options.has_primary_key or small < SMALL_FILES_MIN or nobody_compacts(facts):
        return 0
    return Sign(small, {"size": size_text(facts.options.compaction_file_size_bytes)})


def _overlaps(facts: Examination) -> int:
    return sum(each.overlapping_levels for each in facts.buckets)


def _old_files(facts: Examination) -> int:
    return sum(each.files_of_old_version for each in facts.buckets)


def _deletes(facts: Examination) -> int:
    return facts.deletes_with_values


def _store_bytes(facts: Examination) -> Sign | int:
    """What the largest file lacks."""
    stores = facts.lookup_stores
    lacking = 0 if stores is None else max(0, stores.needed_bytes - stores.room_bytes)
    if stores is None or not lacking:
        return 0
    return Sign(lacking, {"needed": size_text(stores.needed_bytes), "room": size_text(max(0, stores.room_bytes))})


def _unmerged_rows(facts: Examination) -> Sign | int:
    """Unmerged rows of a table that can be compacted: where files are lost no reader is right."""
    if facts.lost_files:
        return 0
    rows = sum(each.unmerged_rows for each in facts.buckets)
    total = facts.status.rows or 0
    return Sign(rows, {"total": f"{total:,}"}) if rows else 0


COMPACTION_RULES: Final = (
    Rule(
        "changelog not made",
        Severity.ERROR,
        _waiting_rows,
        "rows that readers of changes wait for",
        "changelog-producer={producer} makes changes in compactions; writers leave those to others, and nobody "
        "compacts",
        "Compact in the background, or let writers compact (write-only=false)",
        _COMPACT,
    ),
    Rule(
        "no compactor",
        Severity.WARNING,
        _backlog,
        "bytes to compact",
        "writers leave compaction to others (write-only, or bucket=-2), and no commit of the last hour is one",
        "Compact in the background, or let writers compact (write-only=false)",
        _COMPACT,
    ),
    Rule(
        "level 0 full",
        Severity.ERROR,
        _runs,
        "sorted runs in a bucket",
        "compaction is slower than writing: from {stop} runs on writers wait (num-sorted-run.stop-trigger), and "
        "readers merge them all",
        "Compact now; then in the background, or with more buckets",
        _COMPACT,
    ),
    Rule(
        "small files",
        Severity.WARNING,
        _small_files,
        "small files in a partition",
        "commits are smaller than {size}, and nobody joins their files",
        "Compact now and then, or commit less often",
        _COMPACT,
    ),
    Rule(
        "overlapping levels",
        Severity.ERROR,
        _overlaps,
        "levels whose files overlap",
        "two compactions were committed that did not know of each other, so that a key may be there twice",
        "Merge these levels again; find the program that commits without a look at others",
        (*_COMPACT, "--repair"),
    ),
    Rule(
        "deletes with values",
        Severity.WARNING,
        _deletes,
        "deletes at least that hold values of the row that they removed",
        "builds of Freshet before November 2026 and Apache Paimon write them so: a later row of the key goes on from "
        "these values, so that they come back",
        "Let Freshet compact the table in full, and go on writing with it",
        (*_COMPACT, "--full"),
    ),
    Rule(
        "files of an old version",
        Severity.WARNING,
        _old_files,
        "files that do not say how many deletes they have",
        "an old version of a program wrote them: readers merge them even where nothing is to be merged, and pypaimon "
        "shows rows that were deleted",
        "They say so once a full compaction has written them again",
        (*_COMPACT, "--full"),
    ),
    Rule(
        "lookup stores do not fit",
        Severity.WARNING,
        _store_bytes,
        "bytes too few for the store of one file",
        "a lookup store of {needed} has {room} on this machine (its disk, and lookup.cache-max-disk-size), so lookups "
        "read the data file again and again",
        "Free some space, or name a folder on a larger disk (lookup.cache-dir); more buckets make smaller stores. "
        "Where this machine does not write the table, look there",
    ),
)
READ_RULES: Final = (
    Rule(
        "readers that do not merge",
        Severity.NOTE,
        _unmerged_rows,
        "rows in files that must be merged",
        "the newest snapshot has several versions of keys among {total} rows of its files: ClickHouse and "
        "duckdb-paimon return them all",
        "Let these read a tag that is made after a full compaction; $ro gives Paimon, Freshet and Spark the rows that "
        "need no merging",
        (*_COMPACT, "--full"),
    ),
)
"""They come last: nothing is wrong with the table itself."""


BUCKET_FILES: Final = 4
"""Files of the target size that a bucket is best made of."""
BUCKET_FILES_MAX: Final = 16
BUCKETS_FEW: Final = 4
"""Buckets of a partition that are never too many."""
SKEW_MIN: Final = 4
"""Times the mean size of the other buckets."""
_RESCALE: Final = ("rescale", "{warehouse}", "{table}", "--bucket", "{number}")


def _small(facts: Examination) -> Sign | int:
    total, sizes = _largest_partition(facts)
    small = facts.options.target_file_size_bytes // 4
    if total <= BUCKETS_FEW or sum(sizes) >= total * small or _skew(facts):
        return 0
    return _mean(facts, total, sizes)


def _large(facts: Examination) -> Sign | int:
    total, sizes = _largest_partition(facts)
    if not total or sum(sizes) <= total * BUCKET_FILES_MAX * facts.options.target_file_size_bytes:
        return 0
    return _mean(facts, total, sizes)


def _mean(facts: Examination, total: int, sizes: Sequence[int]) -> Sign:
    number = max(1, ceil(sum(sizes) / (BUCKET_FILES * facts.options.target_file_size_bytes)))
    return Sign(sum(sizes) // total, {"total": total, "number": number})


def _skew(facts: Examination) -> Sign | int:
    total, sizes = _largest_partition(facts)
    largest, size_bytes = max(sizes, default=0), sum(sizes)
    others = (size_bytes - largest) / max(1, total - 1)
    if total < 2 or largest < facts.options.target_file_size_bytes or largest < SKEW_MIN * others:
        return 0
    words = {"total": total, "number": _number(total, sizes), "size": size_text(largest)}
    return Sign(round(100 * largest / size_bytes), words)


def _skew_of_several(facts: Examination) -> Sign | int:
    return _skew(facts) if _is_spread_by_more(facts) else 0


def _skew_of_one(facts: Examination) -> Sign | int:
    return 0 if _is_spread_by_more(facts) else _skew(facts)


def _is_spread_by_more(facts: Examination) -> bool:
    """Whether as many buckets as spread the largest are not too small."""
    total, sizes = _largest_partition(facts)
    size_bytes, small = sum(sizes), facts.options.target_file_size_bytes // 4
    return size_bytes > 0 and _number(total, sizes) * small <= size_bytes


def _number(total: int, sizes: Sequence[int]) -> int:
    return total * ceil(max(sizes) * total / sum(sizes))


def _largest_partition(facts: Examination) -> tuple[int, Sequence[int]]:
    """Its number of buckets, and their sizes; 0 of a table without a fixed number of buckets."""
    partitions: dict[str, list[BucketFacts]] = defaultdict(list)
    for each in facts.buckets:
        if each.total_buckets > 0 and each.bucket >= 0 and facts.options.bucket > 0:
            partitions[each.partition].append(each)
    if not partitions:
        return 0, ()
    largest = max(partitions.values(), key=lambda found: sum(each.size_bytes for each in found))
    return largest[0].total_buckets, [each.size_bytes for each in largest]


BUCKET_RULES: Final = (
    Rule(
        "buckets too small",
        Severity.NOTE,
        _small,
        "bytes in a bucket on average, of {total}",
        "each commit writes a small file into each bucket",
        "Unless the table is about to grow, choose {number}",
        _RESCALE,
    ),
    Rule(
        "buckets too large",
        Severity.WARNING,
        _large,
        "bytes in a bucket on average, of {total}",
        "a bucket is compacted by one task, as a whole in the end",
        "Choose {number}",
        _RESCALE,
    ),
    Rule(
        "buckets skewed",
        Severity.WARNING,
        _skew_of_one,
        "% of the bytes in one of {total} buckets",
        "it has {size}: one value of bucket-key, or few, have most of the rows; as many buckets as part them are all "
        "too small",
        "Copy the rows into a table with another bucket-key, or with dynamic buckets (bucket=-1)",
    ),
    Rule(
        "buckets skewed",
        Severity.WARNING,
        _skew_of_several,
        "% of the bytes in one of {total} buckets",
        "it has {size}: few values of bucket-key have most of the rows",
        "Where several values share the bucket, {number} buckets spread them; where it is one, copy the rows into a "
        "table with another bucket-key, or with dynamic buckets (bucket=-1)",
        _RESCALE,
    ),
)
