"""What is wrong with a table, by the rules of all that it is made of. Here are those of writers (what they do to each
other, and what they write that helps no reader) and of readers that are late, with what is kept from them or for them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from freshet.storage.model.display import size_text, sql_name
from freshet.storage.options.risky import unheeded_options
from freshet.storage.status.compaction_rules import BUCKET_RULES, COMPACTION_RULES, READ_RULES
from freshet.storage.status.examination import Examination
from freshet.storage.status.finding import Finding, Rule, Severity, Sign, findings_of

CLOCK_MIN_MS: Final = 2_000
"""What clocks that are kept right do not differ by."""
CONFLICTS_MIN: Final = 5
CONFLICTS_SHARE: Final = 0.2
"""Conflicts for each commit; now and then two writers always meet."""
SLOW_COMMIT_MS: Final = 2_000
"""A commit writes a few small files, which takes a disk milliseconds and a store some hundred."""
SLOW_COMMITS_MIN: Final = 3

_STORES: Final = (
    "in this store a program without conditional puts can replace the commit of another one: JVM writers need a lock "
    "that all of them hold"
)
_LOCK: Final = (
    "Let all writers use a catalog with a lock (commit.coordination=jdbc-lock), or Freshet alone (exclusive-put); then "
    "look for commits that were lost"
)
_CHECK: Final = ("check-table", "{warehouse}", "{table}")
_ALTER: Final = ("sql", "{warehouse}", "ALTER TABLE {sql_name} {change}")


def _statistics(facts: Examination) -> Sign | int:
    return _without_statistics(facts) if facts.options.metadata_stats_mode == "none" else 0


def _foreign_statistics(facts: Examination) -> Sign | int:
    return _without_statistics(facts) if facts.options.metadata_stats_mode != "none" else 0


def _without_statistics(facts: Examination) -> Sign | int:
    files = sum(each.files_without_statistics for each in facts.buckets)
    change = "SET TBLPROPERTIES ('metadata.stats-mode' = 'truncate(16)')"
    return Sign(files, {"sql_name": _sql_name(facts), "change": change}) if files else 0


def _options(facts: Examination) -> Sign | int:
    said = unheeded_options(facts.options)
    keys = [key for key in facts.options.given if any(key in sentence for sentence in said)]
    change = f"UNSET TBLPROPERTIES ({', '.join(map(repr, keys))})"
    return Sign(len(said), {"said": "; ".join(said), "sql_name": _sql_name(facts), "change": change}) if said else 0


def _sql_name(facts: Examination) -> str:
    return sql_name(*facts.status.name.split(".", 1))


def _foreign(facts: Examination) -> int:
    return facts.foreign_commits


def _uncoordinated(facts: Examination) -> Sign | int:
    return 0 if facts.has_coordination or facts.foreign_commits else Sign(0)


def _conflicts(facts: Examination) -> Sign | int:
    hour = facts.detail.hour
    if hour.conflicts < max(CONFLICTS_MIN, CONFLICTS_SHARE * (hour.commits + hour.compactions)):
        return 0
    table = sql_name(*f"{facts.status.name}$commits".split(".", 1))
    rivals = " and ".join(map(repr, facts.rivals)) or "writers"
    return Sign(hour.conflicts, {"rivals": rivals, "commits": hour.commits, "history": table})


def _slow_commits(facts: Examination) -> Sign | int:
    hour = facts.detail.hour
    if hour.commits < SLOW_COMMITS_MIN or (hour.commit_ms_p50 or 0) < SLOW_COMMIT_MS:
        return 0
    return Sign(hour.commit_ms_p50 or 0, {"commits": hour.commits, "p99": hour.commit_ms_p99})


def _clocks(facts: Examination) -> Sign | int:
    off_ms = facts.clock_off_ms
    return Sign(off_ms, {"writer": facts.clock_writer}) if off_ms >= CLOCK_MIN_MS else 0


WRITER_RULES: Final = (
    Rule(
        "statistics missing",
        Severity.WARNING,
        _statistics,
        "files without bounds of any column",
        "they were written with metadata.stats-mode=none: filters have to read each of them",
        "Set metadata.stats-mode to truncate(16): files that are written from then on have bounds, those of "
        "compactions and of a rescale too",
        _ALTER,
    ),
    Rule(
        "statistics missing",
        Severity.NOTE,
        _foreign_statistics,
        "files without bounds of any column",
        "a program wrote them that notes none (pypaimon), or metadata.stats-mode was none: filters have to read each "
        "of them",
        "They have bounds once a compaction or a rescale writes them again",
    ),
    Rule(
        "options without effect",
        Severity.WARNING,
        _options,
        "options without effect",
        "{said}",
        "Unset them",
        _ALTER,
    ),
    Rule(
        "writers not coordinated",
        Severity.ERROR,
        _foreign,
        "of the newest snapshots by other programs",
        _STORES,
        _LOCK,
        _CHECK,
    ),
    Rule(
        "writers not coordinated",
        Severity.WARNING,
        _uncoordinated,
        "of the newest snapshots by other programs",
        _STORES,
        _LOCK,
        _CHECK,
    ),
    Rule(
        "writers in conflict",
        Severity.WARNING,
        _conflicts,
        "claims and compactions lost to others, in {commits} commits of the last hour",
        "{rivals} met others who were first: who loses does its commit, or its compaction, again",
        "Let one of them write the table, or let one alone compact it (write-only for the others); $commits says who "
        "met whom",
        (
            "sql",
            "{warehouse}",
            "SELECT commit_time, commit_user, tries, conflicts, conflicts_with FROM {history} WHERE conflicts > 0",
        ),
    ),
    Rule(
        "commits slow",
        Severity.WARNING,
        _slow_commits,
        "ms for half of {commits} commits of the last hour",
        "a commit writes a few small files; the slowest took {p99} ms: the disk or the store of the warehouse is slow",
        "Measure it with another program (for a disk: fio with fsync), and look for what else writes there",
    ),
    Rule(
        "clocks differ",
        Severity.WARNING,
        _clocks,
        "ms that a snapshot is ahead",
        "the clock of writer {writer!r} is ahead of others: ages of snapshots, expiry and reads as of a time go by the "
        "clocks of writers",
        "Keep the clocks of the machines that write right, by NTP",
    ),
)


def _late(facts: Examination) -> Sign | int:
    oldest, newest = facts.oldest_readable_id, facts.status.newest
    late = [
        (each.snapshot_id, each.name)
        for each in facts.detail.holds
        if each.kind == "consumer" and each.snapshot_id is not None and each.snapshot_id < (oldest or 0)
    ]
    if oldest is None or newest is None or not late:
        return 0
    wanted, name = min(late)
    words = {"name": name, "wanted": wanted, "oldest": oldest}
    return Sign(oldest - wanted, {**words, "newest": newest.snapshot_id, "next": newest.snapshot_id + 1})


def _held(facts: Examination) -> Sign | int:
    """A reader that is further behind than everything that would be kept without it."""
    held, detail = facts.held_snapshots, facts.detail
    if held <= detail.history.snapshots - held or _late(facts):
        return 0
    first = next(each for each in detail.holds if each.kind == "consumer" and each.name == facts.holder)
    size = "" if first.kept_bytes is None else f", which keeps {size_text(first.kept_bytes)}"
    return Sign(held, {"name": first.name, "wanted": first.snapshot_id, "size": size})


def _orphans(facts: Examination) -> Sign | int:
    files, size_bytes = facts.orphans
    return Sign(files, {"size": size_text(size_bytes)}) if files else 0


def _iceberg(facts: Examination) -> int:
    return facts.iceberg_behind


def _lost(facts: Examination) -> Sign | int:
    return Sign(len(facts.lost_files), {"path": facts.lost_files[0]}) if facts.lost_files else 0


READER_RULES: Final = (
    Rule(
        "data files lost",
        Severity.ERROR,
        _lost,
        "data files at least that the newest snapshot names, and that are not there",
        "reads and compactions that need them fail; one is {path}",
        "Restore them from a copy; check-table lists all that is missing",
        ("check-table", "{warehouse}", "{table}"),
    ),
    Rule(
        "reader behind retention",
        Severity.ERROR,
        _late,
        "snapshots that expired before they were read",
        "consumer {name!r} wants snapshot {wanted} next; the oldest is {oldest}",
        "Let its reader copy the table as of snapshot {newest} and go on after it; keep snapshots for longer "
        "(snapshot.time-retained, snapshot.num-retained.min)",
        ("consumers", "{warehouse}", "{table}", "--reset", "{name}", "--next", "{next}"),
    ),
    Rule(
        "expiry held back",
        Severity.WARNING,
        _held,
        "snapshots kept for consumers alone",
        "consumer {name!r} wants snapshot {wanted} next{size}",
        "Start its reader again, or delete the consumer; with consumer.expiration-time those that stand still go",
        ("consumers", "{warehouse}", "{table}", "--delete", "{name}"),
    ),
    Rule(
        "orphans",
        Severity.WARNING,
        _orphans,
        "files at least that nothing names, older than a day",
        "writers that died have left {size}, or more: not all folders are looked at",
        "Have all of them listed, then removed (--delete)",
        ("orphans", "{warehouse}", "{table}", "--delete"),
    ),
    Rule(
        "Iceberg metadata behind",
        Severity.WARNING,
        _iceberg,
        "snapshots that readers of Iceberg do not see",
        "metadata.iceberg.storage is set, which Apache Paimon follows with its own commits and Freshet does not; files "
        "that expire are missing there",
        "Let Apache Paimon commit to the table, which writes the metadata anew, or unset metadata.iceberg.storage",
    ),
)


RULES: Final[tuple[Rule[Examination], ...]] = (
    *COMPACTION_RULES,
    *READER_RULES,
    *BUCKET_RULES,
    *WRITER_RULES,
    *READ_RULES,
)
"""In the order in which one looks. A name may have several rules, of which one finds at most."""


def findings(facts: Examination, warehouse: str = "WAREHOUSE") -> list[Finding]:
    """What the rules find, the worst first; `warehouse` is its place, for the commands."""
    name = facts.status.name
    found = findings_of(RULES, facts, name, warehouse=warehouse, table=name)
    return sorted(found, key=attrgetter("severity.rank"))
