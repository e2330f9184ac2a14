"""The facts of a commit ⇄ the text that its snapshot carries in its properties, 2 KB at most.

    freshet.commit = {"kinds": [i, -u, +u, d], "written": n, "files": [added, deleted, changelog],
                      "bytes": [added, deleted, changelog], "ms": n, "live": [files, bytes], "rows": time, "tries": n,
                      "conflicts": [n, "user", …],
                      "rewrites": [n, bytes], "batch": {…},
                      "compactions": [["partition", bucket, "reason", from, to, …counts], …]}

What is at its default is left out. Where it is too long, compactions are told together by reason, the smallest first,
so that their sums stay right; then causes of dead letters and broken rules, then phases. A text of a later release is
read as far as it is understood. Other programs pass the property over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from freshet.storage.model.commit_facts import (
    TOLD_APART_MAX,
    BatchFacts,
    CommitFacts,
    CompactionFacts,
    CompactionReason,
    PlacedCompaction,
    together,
)

FACTS_PROPERTY: Final = "freshet.commit"
"""Key of the facts in a snapshot's properties; part of what we write, do not change."""

FACTS_BYTES_MAX: Final = 2048
CAUSES_MAX: Final = 8
"""Causes of dead letters that are told apart; the rest are one."""
NAME_MAX: Final = 60
"""Characters of a cause or a user."""
USERS_MAX: Final = 3
GROWTH_BYTES: Final = 16
"""By which the sums of some compactions may be longer than those of all: levels that are the same."""
OTHER_CAUSES: Final = "other causes"


def facts_to_text(facts: CommitFacts) -> str:
    """The text, with less detail where there would be too much."""
    for less in _shorter(facts):
        text = _encoded(less)
        if len(text) <= FACTS_BYTES_MAX:
            return text.decode()
    return _encoded(replace(facts, compactions=(), batch=None, conflicts_with=())).decode()


def _shorter(facts: CommitFacts) -> Iterator[CommitFacts]:
    """The facts, each time with less detail."""
    if len(facts.compactions) <= TOLD_APART_MAX:
        yield facts
    if facts.compactions:
        largest_first = sorted(facts.compactions, key=lambda each: -each.facts.bytes_in)
        together = _together(largest_first)
        rest = replace(facts, compactions=together)
        kept = _count_within(FACTS_BYTES_MAX - len(_encoded(rest)) - GROWTH_BYTES * len(together), largest_first)
        yield replace(facts, compactions=(*largest_first[:kept], *_together(largest_first[kept:])))
        yield rest
        facts = rest
    if facts.batch is not None:
        batch = facts.batch
        batch = replace(batch, dead_letters=_fewer(batch.dead_letters, 1), broken=_fewer(batch.broken, 1))
        yield replace(facts, batch=batch)
        yield replace(facts, batch=replace(batch, phases_ms={}))


def _count_within(room: int, compactions: Sequence[PlacedCompaction]) -> int:
    """How many have room."""
    for count, each in enumerate(compactions):
        room -= len(orjson.dumps(_item(each))) + 1
        if room < 0:
            return count
    return len(compactions)


def _together(compactions: Sequence[PlacedCompaction]) -> tuple[PlacedCompaction, ...]:
    """One for each reason."""
    if len(compactions) == 1:
        return tuple(compactions)
    return tuple(PlacedCompaction(None, None, facts) for facts in together(each.facts for each in compactions))


def _fewer(counts: Mapping[str, int], count: int) -> dict[str, int]:
    """The largest, and the sum of the others."""
    largest_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    fewer: dict[str, int] = {}
    for name, number in largest_first[:count]:
        fewer[name[:NAME_MAX]] = fewer.get(name[:NAME_MAX], 0) + number
    rest = sum(number for _, number in largest_first[count:])
    return fewer | ({OTHER_CAUSES: rest} if rest else {})


def _encoded(facts: CommitFacts) -> bytes:
    source: dict[str, object] = {
        "kinds": facts.kinds,
        "written": facts.rows_written,
        "files": (facts.files_added, facts.files_deleted, facts.changelog_files),
        "bytes": (facts.bytes_added, facts.bytes_deleted, facts.changelog_bytes),
        "ms": facts.duration_ms,
    }
    if facts.live is not None:
        source["live"] = facts.live
    if facts.rows_ms is not None:
        source["rows"] = facts.rows_ms
    if facts.tries > 1:
        source["tries"] = facts.tries
    if facts.conflicts:
        users = list(dict.fromkeys(user[:NAME_MAX] for user in facts.conflicts_with))
        source["conflicts"] = (facts.conflicts, *users[:USERS_MAX])
    if facts.rewrites:
        source["rewrites"] = (facts.rewrites, facts.rewritten_bytes)
    if facts.batch is not None:
        source["batch"] = {
            "records": facts.batch.records,
            **({"dead": _fewer(facts.batch.dead_letters, CAUSES_MAX)} if facts.batch.dead_letters else {}),
            **({"broken": _fewer(facts.batch.broken, CAUSES_MAX)} if facts.batch.broken else {}),
            **({"times": [*facts.batch.event_times_ms]} if facts.batch.event_times_ms else {}),
            **({"phases": facts.batch.phases_ms} if facts.batch.phases_ms else {}),
        }
    if facts.compactions:
        source["compactions"] = [_item(each) for each in facts.compactions]
    return orjson.dumps(source)


def _item(each: PlacedCompaction) -> list[object]:
    facts = each.facts
    counts = (facts.files_in, facts.bytes_in, facts.rows_in, facts.files_out, facts.bytes_out, facts.rows_out)
    places = (each.partition, each.bucket, str(facts.reason), facts.from_level, facts.to_level)
    return [*places, *counts, facts.duration_ms, *([] if facts.bucket_count == 1 else [facts.bucket_count])]


def parse_facts(properties: Mapping[str, str] | None) -> CommitFacts | None:
    """The facts among the properties of a snapshot; None where there are none, or none that can be read."""
    text = (properties or {}).get(FACTS_PROPERTY)
    if text is None:
        return None
    try:
        return _parsed(orjson.loads(text))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None  # nothing depends on them, and a table must not become unreadable by a note


def _parsed(source: Mapping[str, Any]) -> CommitFacts:
    added, deleted, changelog = source["files"][:3]
    bytes_added, bytes_deleted, changelog_bytes = source["bytes"][:3]
    conflicts, *users = source.get("conflicts", (0,))
    rewrites, rewritten_bytes = source.get("rewrites", (0, 0))[:2]
    kinds, batch, live, rows_ms = (source.get(key) for key in ("kinds", "batch", "live", "rows"))
    return CommitFacts(
        kinds=None if kinds is None else (int(kinds[0]), int(kinds[1]), int(kinds[2]), int(kinds[3])),
        rows_written=int(source["written"]),
        files_added=int(added),
        files_deleted=int(deleted),
        changelog_files=int(changelog),
        bytes_added=int(bytes_added),
        bytes_deleted=int(bytes_deleted),
        changelog_bytes=int(changelog_bytes),
        duration_ms=int(source["ms"]),
        tries=int(source.get("tries", 1)),
        conflicts=int(conflicts),
        conflicts_with=tuple(str(user) for user in users),
        rewrites=int(rewrites),
        rewritten_bytes=int(rewritten_bytes),
        batch=None if batch is None else _parsed_batch(batch),
        compactions=tuple(_parsed_item(item) for item in source.get("compactions", ())),
        live=None if live is None else (int(live[0]), int(live[1])),
        rows_ms=None if rows_ms is None else int(rows_ms),
    )


def _parsed_batch(source: Mapping[str, Any]) -> BatchFacts:
    times, records = source.get("times"), source.get("records")
    return BatchFacts(
        records=None if records is None else int(records),
        dead_letters={str(cause): int(count) for cause, count in source.get("dead", {}).items()},
        event_times_ms=None if times is None else (int(times[0]), int(times[1])),
        phases_ms={str(name): int(ms) for name, ms in source.get("phases", {}).items()},
        broken={str(rule): int(count) for rule, count in source.get("broken", {}).items()},
    )


def _parsed_item(item: Sequence[Any]) -> PlacedCompaction:
    partition, bucket, reason, from_level, to_level, *counts = item
    return PlacedCompaction(
        None if partition is None else str(partition),
        None if bucket is None else int(bucket),
        CompactionFacts(CompactionReason(reason), from_level, to_level, *(int(count) for count in counts[:8])),
    )
