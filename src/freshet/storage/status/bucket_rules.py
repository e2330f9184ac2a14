"""Buckets of a wrong number, with the number to choose; those of the largest partition count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Final

from freshet.storage.model.display import size_text
from freshet.storage.status.examination import BucketFacts, Examination
from freshet.storage.status.finding import Rule, Severity, Sign

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
