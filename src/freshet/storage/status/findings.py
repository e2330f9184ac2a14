"""What is wrong with a table, by rules over its facts: each a small pure function, all in `RULES`.

A rule gives a finding or none. One cause is one finding: where nobody compacts, the files at level 0 are not another.
`note` is what to know before other programs read the table; it is no reason to act.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import ceil
from operator import attrgetter
from typing import Any, Final

import msgspec

from freshet._frozen import Frozen
from freshet.storage.model.display import size_text, sql_name
from freshet.storage.options.risky import unheeded_options
from freshet.storage.status.examination import BucketFacts, Examination

BUCKET_FILES: Final = 4
"""Files of the target size that a bucket is best made of."""
BUCKET_FILES_MAX: Final = 16
BUCKETS_FEW: Final = 4
"""Buckets of a partition that are never too many."""
SKEW_MIN: Final = 4
"""Times the mean size of the other buckets."""
SMALL_FILES_MIN: Final = 20
CLOCK_MIN_MS: Final = 2_000
"""What clocks that are kept right do not differ by."""


class Severity(StrEnum):
    """The worst first."""

    ERROR = "error"
    """Readers or writers get something wrong, or nothing."""
    WARNING = "warning"
    """It costs more with time."""
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Sorts the worst first."""
        return list(Severity).index(self)


class Finding(Frozen):
    """One thing that is wrong with a table. `evidence` is a number of what `unit` says; `command` mends it, None where
    no single one does."""

    table: str
    name: str
    severity: Severity
    evidence: int | float
    unit: str
    cause: str
    remedy: str
    command: str | None

    @property
    def asks_to_act(self) -> bool:
        """False for a note."""
        return self.severity is not Severity.NOTE

    def facts(self) -> dict[str, Any]:
        """The same for JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class _Verdict(Frozen):
    """A finding but for the names of table and rule."""

    severity: Severity
    evidence: int | float
    unit: str
    cause: str
    remedy: str
    command: tuple[str, ...] = ()
    """Words: `WAREHOUSE` and `TABLE` stand for those of the call."""


Rule = Callable[[Examination], _Verdict | None]


def findings(facts: Examination, warehouse: str = "WAREHOUSE") -> list[Finding]:
    """What the rules find, the worst first; `warehouse` is its place, for the commands."""
    names = {"WAREHOUSE": warehouse, "TABLE": facts.status.name}
    found = []
    for name, rule in RULES.items():
        verdict = rule(facts)
        if verdict is not None:
            words = [names.get(word, word) for word in verdict.command]
            found.append(
                Finding(
                    facts.status.name,
                    name,
                    verdict.severity,
                    verdict.evidence,
                    verdict.unit,
                    verdict.cause,
                    verdict.remedy,
                    shlex.join(["freshet", *words]) if words else None,
                )
            )
    return sorted(found, key=attrgetter("severity.rank"))


def cannot_be_read(table: str, error: Exception, warehouse: str) -> Finding:
    """Of a table whose files say nothing to the rules."""
    return Finding(
        table,
        "cannot be read",
        Severity.ERROR,
        1,
        "table that no rule could look at",
        str(error),
        "Restore what is damaged from a copy, or mend what keeps it from being read; check-table looks for more",
        shlex.join(["freshet", "check-table", warehouse, table]),
    )


def _nobody_compacts(facts: Examination) -> bool:
    """Writers leave compaction to others, and there was none for as many commits as would have called for it."""
    levels = facts.detail.levels
    waits = max(facts.detail.hour.commits, levels.runs_max) >= levels.runs_trigger and levels.backlog_buckets > 0
    return facts.options.compacts_elsewhere and not facts.has_compactor and waits


def changelog_not_made(facts: Examination) -> _Verdict | None:
    rows = facts.detail.levels.waiting_rows
    if not rows or not _nobody_compacts(facts):
        return None
    producer = str(facts.options.changelog_producer)
    return _Verdict(
        Severity.ERROR,
        rows,
        "rows that readers of changes wait for",
        f"changelog-producer={producer} makes changes in compactions; writers leave those to others, and nobody "
        "compacts",
        "Compact in the background, or let writers compact (write-only=false)",
        ("compact", "WAREHOUSE", "TABLE"),
    )


def no_compactor(facts: Examination) -> _Verdict | None:
    if facts.detail.levels.waiting_rows or not _nobody_compacts(facts):
        return None
    return _Verdict(
        Severity.WARNING,
        facts.detail.levels.backlog_bytes,
        "bytes to compact",
        "writers leave compaction to others (write-only, or bucket=-2), and no commit of the last hour is one",
        "Compact in the background, or let writers compact (write-only=false)",
        ("compact", "WAREHOUSE", "TABLE"),
    )


def reader_behind_retention(facts: Examination) -> _Verdict | None:
    oldest, newest = facts.oldest_readable_id, facts.status.newest
    if oldest is None or newest is None:
        return None
    late = [
        (each.snapshot_id, each.name)
        for each in facts.detail.holds
        if each.kind == "consumer" and each.snapshot_id is not None and each.snapshot_id < oldest
    ]
    if not late:
        return None
    wanted, name = min(late)
    return _Verdict(
        Severity.ERROR,
        oldest - wanted,
        "snapshots that expired before they were read",
        f"consumer {name!r} wants snapshot {wanted} next; the oldest is {oldest}",
        f"Let its reader copy the table as of snapshot {newest.snapshot_id} and go on after it; keep snapshots for "
        "longer (snapshot.time-retained, snapshot.num-retained.min)",
        ("consumers", "WAREHOUSE", "TABLE", "--reset", name, "--next", str(newest.snapshot_id + 1)),
    )


def expiry_held(facts: Examination) -> _Verdict | None:
    """A reader that is further behind than everything that would be kept without it."""
    held, detail = facts.held_snapshots, facts.detail
    if held <= detail.history.snapshots - held or reader_behind_retention(facts) is not None:
        return None
    first = next(each for each in detail.holds if each.kind == "consumer" and each.name == facts.holder)
    size = "" if first.kept_bytes is None else f", which keeps {size_text(first.kept_bytes)}"
    return _Verdict(
        Severity.WARNING,
        held,
        "snapshots kept for consumers alone",
        f"consumer {first.name!r} wants snapshot {first.snapshot_id} next{size}",
        "Start its reader again, or delete the consumer; with consumer.expiration-time those that stand still go",
        ("consumers", "WAREHOUSE", "TABLE", "--delete", first.name),
    )


def level_0_full(facts: Examination) -> _Verdict | None:
    levels = facts.detail.levels
    if levels.runs_stop is None or levels.runs_max < levels.runs_stop or _nobody_compacts(facts):
        return None
    return _Verdict(
        Severity.ERROR,
        levels.runs_max,
        "sorted runs in a bucket",
        f"compaction is slower than writing: from {levels.runs_stop} runs on writers wait "
        "(num-sorted-run.stop-trigger), and readers merge them all",
        "Compact now; then in the background, or with more buckets",
        ("compact", "WAREHOUSE", "TABLE"),
    )


def buckets_too_small(facts: Examination) -> _Verdict | None:
    total, sizes = _largest_partition(facts)
    small = facts.options.target_file_size_bytes // 4
    if total <= BUCKETS_FEW or sum(sizes) >= total * small or buckets_skewed(facts) is not None:
        return None
    number = _buckets_for(facts, sum(sizes))
    return _Verdict(
        Severity.NOTE,
        sum(sizes) // total,
        f"bytes in a bucket on average, of {total}",
        "each commit writes a small file into each bucket",
        f"Unless the table is about to grow, choose {number}",
        ("rescale", "WAREHOUSE", "TABLE", "--bucket", str(number)),
    )


def buckets_too_large(facts: Examination) -> _Verdict | None:
    total, sizes = _largest_partition(facts)
    if not total or sum(sizes) <= total * BUCKET_FILES_MAX * facts.options.target_file_size_bytes:
        return None
    number = _buckets_for(facts, sum(sizes))
    return _Verdict(
        Severity.WARNING,
        sum(sizes) // total,
        f"bytes in a bucket on average, of {total}",
        "a bucket is compacted by one task, as a whole in the end",
        f"Choose {number}",
        ("rescale", "WAREHOUSE", "TABLE", "--bucket", str(number)),
    )


def buckets_skewed(facts: Examination) -> _Verdict | None:
    total, sizes = _largest_partition(facts)
    largest, size_bytes = max(sizes, default=0), sum(sizes)
    others = (size_bytes - largest) / max(1, total - 1)
    if total < 2 or largest < facts.options.target_file_size_bytes or largest < SKEW_MIN * others:
        return None
    number = total * ceil(largest * total / size_bytes)
    return _Verdict(
        Severity.WARNING,
        round(100 * largest / size_bytes),
        f"% of the bytes in one of {total} buckets",
        f"it has {size_text(largest)}: few values of bucket-key have most of the rows",
        f"Where several values share the bucket, {number} buckets spread them; where it is one, copy the rows into a "
        "table with another bucket-key, or with dynamic buckets (bucket=-1)",
        ("rescale", "WAREHOUSE", "TABLE", "--bucket", str(number)),
    )


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


def _buckets_for(facts: Examination, size_bytes: int) -> int:
    return max(1, ceil(size_bytes / (BUCKET_FILES * facts.options.target_file_size_bytes)))


def small_files(facts: Examination) -> _Verdict | None:
    """Of tables without a primary key; those of others are runs."""
    small = max((each.small_files for each in facts.buckets), default=0)
    if facts.options.has_primary_key or small < SMALL_FILES_MIN or _nobody_compacts(facts):
        return None
    return _Verdict(
        Severity.WARNING,
        small,
        "small files in a partition",
        f"commits are smaller than {size_text(facts.options.compaction_file_size_bytes)}, and nobody joins their files",
        "Compact now and then, or commit less often",
        ("compact", "WAREHOUSE", "TABLE"),
    )


def overlapping_files(facts: Examination) -> _Verdict | None:
    levels = sum(each.overlapping_levels for each in facts.buckets)
    if not levels:
        return None
    return _Verdict(
        Severity.ERROR,
        levels,
        "levels whose files overlap",
        "two compactions were committed that did not know of each other, so that a key may be there twice",
        "Merge these levels again; find the program that commits without a look at others",
        ("compact", "WAREHOUSE", "TABLE", "--repair"),
    )


def statistics_missing(facts: Examination) -> _Verdict | None:
    files = sum(each.files_without_statistics for each in facts.buckets)
    if not files:
        return None
    if facts.options.metadata_stats_mode != "none":
        return _Verdict(
            Severity.NOTE,
            files,
            "files without bounds of any column",
            "a program wrote them that notes none (pypaimon), or metadata.stats-mode was none: filters have to read "
            "each of them",
            "They have bounds once a compaction or a rescale writes them again",
        )
    return _Verdict(
        Severity.WARNING,
        files,
        "files without bounds of any column",
        "they were written with metadata.stats-mode=none: filters have to read each of them",
        "Set metadata.stats-mode to truncate(16): files that are written from then on have bounds, those of "
        "compactions and of a rescale too",
        ("sql", "WAREHOUSE", _alter(facts, "SET TBLPROPERTIES ('metadata.stats-mode' = 'truncate(16)')")),
    )


def _alter(facts: Examination, change: str) -> str:
    return f"ALTER TABLE {sql_name(*facts.status.name.split('.', 1))} {change}"


def options_without_effect(facts: Examination) -> _Verdict | None:
    said = unheeded_options(facts.options)
    keys = [key for key in facts.options.given if any(key in sentence for sentence in said)]
    if not said:
        return None
    return _Verdict(
        Severity.WARNING,
        len(said),
        "options without effect",
        "; ".join(said),
        "Unset them",
        (
            "sql",
            "WAREHOUSE",
            _alter(facts, f"UNSET TBLPROPERTIES ({', '.join(repr(key) for key in keys)})"),
        ),
    )


def writers_not_coordinated(facts: Examination) -> _Verdict | None:
    if facts.has_coordination and not facts.foreign_commits:
        return None
    return _Verdict(
        Severity.ERROR if facts.foreign_commits else Severity.WARNING,
        facts.foreign_commits,
        "of the newest snapshots by other programs",
        "in this store a program without conditional puts can replace the commit of another one: JVM writers need a "
        "lock that all of them hold",
        "Let all writers use a catalog with a lock (commit.coordination=jdbc-lock), or Freshet alone "
        "(exclusive-put); then look for commits that were lost",
        ("check-table", "WAREHOUSE", "TABLE"),
    )


def clocks_differ(facts: Examination) -> _Verdict | None:
    if facts.clock_off_ms < CLOCK_MIN_MS:
        return None
    return _Verdict(
        Severity.WARNING,
        facts.clock_off_ms,
        "ms that a snapshot is ahead",
        f"the clock of writer {facts.clock_writer!r} is ahead of others: ages of snapshots, expiry and reads as of a "
        "time go by the clocks of writers",
        "Keep the clocks of the machines that write right, by NTP",
    )


def readers_that_do_not_merge(facts: Examination) -> _Verdict | None:
    rows = sum(each.unmerged_rows for each in facts.buckets)
    if not rows:
        return None
    return _Verdict(
        Severity.NOTE,
        rows,
        "rows in files that must be merged",
        "the newest snapshot has several versions of keys: ClickHouse and duckdb-paimon return them all",
        "Let these read a tag that is made after a full compaction; $ro gives Paimon, Freshet and Spark the rows that "
        "need no merging",
        ("compact", "WAREHOUSE", "TABLE", "--full"),
    )


RULES: Final[dict[str, Rule]] = {
    "changelog not made": changelog_not_made,
    "no compactor": no_compactor,
    "reader behind retention": reader_behind_retention,
    "expiry held back": expiry_held,
    "level 0 full": level_0_full,
    "buckets too small": buckets_too_small,
    "buckets too large": buckets_too_large,
    "buckets skewed": buckets_skewed,
    "small files": small_files,
    "overlapping levels": overlapping_files,
    "statistics missing": statistics_missing,
    "options without effect": options_without_effect,
    "writers not coordinated": writers_not_coordinated,
    "clocks differ": clocks_differ,
    "readers that do not merge": readers_that_do_not_merge,
}
"""In the order in which one looks."""
