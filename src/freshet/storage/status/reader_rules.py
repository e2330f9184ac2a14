"""Readers that are late, and what is kept from them or for them."""

from __future__ import annotations

from typing import Final

from freshet.storage.model.display import size_text
from freshet.storage.status.examination import Examination
from freshet.storage.status.finding import Rule, Severity, Sign


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
