"""What commits say over time, in equal parts of a span: the curves of a report. Pure functions of commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from freshet._frozen import Frozen
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.status.batches import HOUR_MS
from freshet.storage.status.observe import rows_written
from freshet.storage.system_tables.commits import Commit

DAY_MS = 24 * HOUR_MS
PARTS_MAX = 240
_LENGTHS = ((HOUR_MS, 60), (DAY_MS, 144))
"""Spans that are shown beside all that is known, with their number of parts."""
_LEAST_MS = 60_000
_SHARES = np.append(np.arange(0, 39) / 40, (0.97, 0.98, 0.99, 0.995, 0.999, 1.0))
_NONE = -1


class Span(Frozen):
    """A span up to now in equal parts, the oldest first; each tuple has a value a part. Times are milliseconds."""

    from_ms: int
    part_ms: float
    freshness_ms: tuple[int | None, ...]
    """The largest age that the newest rows had in the part; None before the first commit that is known."""
    freshness_shares: tuple[tuple[float, int], ...]
    """(share, age): for so large a share of the span the newest rows were not older."""
    commits: tuple[int, ...]
    """Those that were no compactions."""
    compactions: tuple[int, ...]
    """Commits that were compactions."""
    rows: tuple[int, ...]
    """Rows written."""
    records: tuple[int, ...]
    """Of the batches of pipelines."""
    dead_letters: tuple[int, ...]
    conflicts: tuple[int, ...]
    commit_ms: tuple[int | None, ...]
    """The longest commit."""
    event_to_commit_ms: tuple[int | None, ...]
    """From the earliest record of a batch to its commit, the longest."""

    def facts(self) -> dict[str, Any]:
        """The same for JSON. A series without values is left out, one of few values is an object of them by part."""
        found: dict[str, Any] = {"parts": len(self.commits)}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, tuple) or name == "freshness_shares":
                found[name] = value
            elif any(value):
                few = {str(part): each for part, each in enumerate(value) if each}
                found[name] = few if 2 * len(few) < len(value) else value
        return found


def spans_of(commits: Sequence[Commit], now_ms: int) -> tuple[Span, ...]:
    """The last hour and the last day where they have commits and are not all that is known, and all; none without a
    commit. `commits` are in order."""
    if not commits:
        return ()
    times = np.array([each.snapshot.time_ms for each in commits], np.int64)
    known_ms = max(_LEAST_MS, now_ms - max(0, int(times.min())))  # no clock shows what was before 1970
    wanted = [each for each in _LENGTHS if each[0] < known_ms and times.max() >= now_ms - each[0]]
    return tuple(_span(commits, times, now_ms, *each) for each in (*wanted, (known_ms, PARTS_MAX)))


def _span(commits: Sequence[Commit], times: np.ndarray, now_ms: int, length_ms: int, parts: int) -> Span:
    from_ms, part_ms = now_ms - length_ms, length_ms / parts
    inside = times >= from_ms
    place = np.clip((times - from_ms) / part_ms, 0, parts - 1).astype(np.int64)
    is_compaction = np.array([each.snapshot.commit_kind is CommitKind.COMPACT for each in commits])

    def total(value: Callable[[Commit], int]) -> tuple[int, ...]:
        found = np.zeros(parts, np.int64)
        np.add.at(found, place[inside], np.array([value(each) for each in commits], np.int64)[inside])
        return tuple(found.tolist())

    def longest(value: Callable[[Commit], int | None]) -> tuple[int | None, ...]:
        given = [value(each) for each in commits]
        found = np.full(parts, _NONE, np.int64)
        np.maximum.at(
            found, place[inside], np.array([_NONE if each is None else each for each in given], np.int64)[inside]
        )
        return _with_none(found)

    ages, shares = _freshness(np.sort(times[~is_compaction]), now_ms, from_ms, part_ms, parts)
    return Span(
        from_ms=from_ms,
        part_ms=part_ms,
        freshness_ms=ages,
        freshness_shares=shares,
        commits=total(lambda each: each.snapshot.commit_kind is not CommitKind.COMPACT),
        compactions=total(lambda each: each.snapshot.commit_kind is CommitKind.COMPACT),
        rows=total(rows_written),
        records=total(lambda each: 0 if (batch := _batch(each)) is None else batch.records or 0),
        dead_letters=total(lambda each: 0 if (batch := _batch(each)) is None else sum(batch.dead_letters.values())),
        conflicts=total(lambda each: 0 if each.facts is None else each.facts.conflicts),
        commit_ms=longest(lambda each: None if each.facts is None else each.facts.duration_ms),
        event_to_commit_ms=longest(_event_to_commit),
    )


def _batch(commit: Commit) -> BatchFacts | None:
    return None if commit.facts is None else commit.facts.batch


def _event_to_commit(commit: Commit) -> int | None:
    batch = _batch(commit)
    if batch is None or batch.event_times_ms is None or batch.records == 0:
        return None
    return max(0, commit.snapshot.time_ms - batch.event_times_ms[0])


def _with_none(found: np.ndarray) -> tuple[int | None, ...]:
    return tuple(None if each == _NONE else each for each in found.tolist())


def _freshness(
    times: np.ndarray, now_ms: int, from_ms: int, part_ms: float, parts: int
) -> tuple[tuple[int | None, ...], tuple[tuple[float, int], ...]]:
    """The age of the newest rows: from each commit on it grows from 0 until the next one."""
    times = times[times <= now_ms]
    if not len(times):
        return (None,) * parts, ()
    # At the end of a part it is the time since the last commit; just before a commit that since the one before it.
    ends = from_ms + part_ms * np.arange(1, parts + 1)
    before = np.searchsorted(times, ends, "right") - 1
    worst = np.where(before >= 0, ends - times[np.maximum(before, 0)], _NONE)
    gaps, at = np.diff(times), times[1:]
    inside = at >= from_ms
    np.maximum.at(worst, np.clip((at - from_ms) / part_ms, 0, parts - 1).astype(np.int64)[inside], gaps[inside])
    return _with_none(np.round(worst).astype(np.int64)), _shares(times, now_ms, from_ms)


def _shares(times: np.ndarray, now_ms: int, from_ms: int) -> tuple[tuple[float, int], ...]:
    """How the age is spread over the span: it takes each value from `low` to `high` of a stretch as long."""
    ends = np.append(times[1:], now_ms)
    seen = ends > max(from_ms, int(times[0]))
    starts, ends = times[seen], ends[seen]
    high, low = ends - starts, np.maximum(from_ms - starts, 0)
    if not high.sum():
        return ()
    ages = np.unique(np.concatenate((low, high)))
    # Of the stretches that reach an age each has spent all it has below it: sums by order, not age by age.
    spent = _spent(high, ages) - _spent(low, ages)
    found = np.interp(_SHARES, spent / spent[-1], ages)
    return tuple(zip(_SHARES.round(3).tolist(), np.round(found).astype(np.int64).tolist(), strict=True))


def _spent(limits: np.ndarray, ages: np.ndarray) -> np.ndarray:
    """The sum of min(limit, age) over the limits, for each age."""
    ordered = np.sort(limits)
    below = np.searchsorted(ordered, ages, "right")
    return np.append(0, np.cumsum(ordered))[below] + ages * (len(ordered) - below)
