"""What the commits of a table say of the batches of the pipelines that wrote them: rates, event → commit, dead letters.

The times of the records of a batch are known by the first and the last: those between count as spread evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from freshet._frozen import Frozen, field
from freshet.storage.model.commit_facts import BatchFacts
from freshet.storage.system_tables.commits import Commit

QUARTER_MS = 15 * 60_000
HOUR_MS = 3_600_000
COMMIT = "commit"
"""The step of a batch that commits its tables."""
_POINTS = np.linspace(0, 1, 21)
"""Where in a batch its records are looked at."""


class Batches(Frozen):
    """The batches of one commit user: dead letters and broken rules of the last hour, else the last 15 minutes."""

    batches: int = 0
    records: int = 0
    records_per_s: float | None = None
    """Over the time since the first of them; None of one batch."""
    event_to_commit_ms_p50: int | None = None
    event_to_commit_ms_p99: int | None = None
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """Of a batch on average, the longest first."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
    last_ms: int | None = None
    """When the newest batch was committed."""
    broken_rules: Mapping[str, int] = field(default_factory=dict)
    """Records that broke a rule of `expect`, by what it is called."""


def batches_by_user(commits: Iterable[Commit], now_ms: int) -> dict[str, Batches]:
    """The batches of every user whose commits say so."""
    users: dict[str, list[tuple[int, BatchFacts]]] = {}
    for each in commits:
        if each.facts is not None and each.facts.batch is not None and each.snapshot.time_ms >= now_ms - HOUR_MS:
            batch = _with_commit(each.facts.batch, each.facts.duration_ms)
            users.setdefault(each.snapshot.commit_user, []).append((each.snapshot.time_ms, batch))
    return {user: _batches(found, now_ms) for user, found in users.items()}


def _with_commit(batch: BatchFacts, commit_ms: int) -> BatchFacts:
    """What a snapshot says of its batch ends before its own commit, which is where a slow store shows."""
    phases = {**batch.phases_ms, COMMIT: batch.phases_ms.get(COMMIT, 0) + commit_ms}
    return replace(batch, phases_ms=phases)


def _batches(found: Sequence[tuple[int, BatchFacts]], now_ms: int) -> Batches:
    lately = [(time_ms, batch) for time_ms, batch in found if time_ms >= now_ms - QUARTER_MS]
    dead: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    for _, batch in found:
        dead.update(batch.dead_letters)
        broken.update(batch.broken)
    for _, batch in lately:
        phases.update(batch.phases_ms)
    records = sum(batch.records or 0 for _, batch in lately)
    # The records of the first batch came before it was committed.
    span_ms = lately[-1][0] - lately[0][0] if lately else 0
    later = records - (lately[0][1].records or 0) if lately else 0
    p50, p99 = _event_to_commit(lately)
    return Batches(
        batches=len(lately),
        records=records,
        records_per_s=round(later * 1000 / span_ms, 1) if span_ms else None,
        event_to_commit_ms_p50=p50,
        event_to_commit_ms_p99=p99,
        phases_ms={name: round(ms / len(lately)) for name, ms in phases.most_common()},
        dead_letters=dict(dead.most_common()),
        last_ms=max((time_ms for time_ms, _ in found), default=None),
        broken_rules=dict(broken.most_common()),
    )


def _event_to_commit(lately: Sequence[tuple[int, BatchFacts]]) -> tuple[int | None, int | None]:
    known = [(time_ms, batch) for time_ms, batch in lately if batch.event_times_ms and batch.records != 0]
    if not known:
        return None, None
    first, last = np.array([batch.event_times_ms for _, batch in known], np.float64).T
    commits = np.array([time_ms for time_ms, _ in known], np.float64)
    spread = commits[:, None] - (first[:, None] + (last - first)[:, None] * _POINTS)
    weights = np.repeat([float(batch.records or 1) for _, batch in known], len(_POINTS))
    order = np.argsort(spread.ravel())
    shares = np.cumsum(weights[order]) / weights.sum()
    ages = np.maximum(spread.ravel()[order], 0)
    p50, p99 = (int(ages[min(len(ages) - 1, int(np.searchsorted(shares, share)))]) for share in (0.5, 0.99))
    return p50, p99
