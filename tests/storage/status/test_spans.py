"""What commits say over time, against looks at every millisecond."""

from __future__ import annotations

from random import Random

import pytest

from freshet.storage.model.commit_facts import BatchFacts, CommitFacts
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.status.report import DAY_MS, PARTS_MAX, Span, spans_of
from freshet.storage.status.table_status import HOUR_MS
from freshet.storage.system_tables.commits import Commit


def commit(
    number: int, time_ms: int, kind: CommitKind = CommitKind.APPEND, facts: CommitFacts | None = None, rows: int = 5
) -> Commit:
    return Commit(Snapshot(number, 0, "base", "delta", "u", number, kind, time_ms, rows, rows), facts, False)


def facts_of(number: int) -> CommitFacts:
    batch = BatchFacts(number * 10, {"bad": number}, (number, number + 5))
    return CommitFacts(None, number, 1, 0, 0, 100, 0, 0, duration_ms=number * 3, conflicts=number % 2, batch=batch)


def freshness_by_looking(commits: list[Commit], span: Span, now_ms: int) -> tuple[list[int | None], list[int]]:
    """The largest age in each part, and every age, by a look at each millisecond: just before a commit and after."""
    times = sorted(each.snapshot.time_ms for each in commits if each.snapshot.commit_kind is not CommitKind.COMPACT)
    parts: list[int | None] = [None] * len(span.commits)
    ages = []
    for at in range(span.from_ms, now_ms):
        before = [each for each in times if each <= at]
        if before:
            ages.append(at - before[-1])
            part = min(len(parts) - 1, int((at - span.from_ms) / span.part_ms))
            parts[part] = max(parts[part] or 0, at + 1 - before[-1])
    return parts, ages


@pytest.mark.parametrize("seed", range(4))
def test_freshness_is_what_one_sees_by_looking_at_every_moment(seed: int) -> None:
    random, now_ms = Random(seed), 1_000_000
    times = sorted(random.sample(range(now_ms - 900, now_ms), random.choice([1, 2, 9])))
    kinds = [CommitKind.APPEND, *random.choices([CommitKind.APPEND, CommitKind.COMPACT], k=len(times))]
    commits = [commit(number, at, kinds[number]) for number, at in enumerate(times)]
    (span,) = spans_of(commits, now_ms)
    assert (span.part_ms * PARTS_MAX, span.from_ms) == (60_000, now_ms - 60_000)
    seen, ages = freshness_by_looking(commits, span, now_ms)
    near = zip(span.freshness_ms, seen, strict=True)
    assert all(a == b or (a is not None and b is not None and abs(a - b) <= 1) for a, b in near), (span, seen)
    for share, age in span.freshness_shares:
        fresher = sum(each < age for each in ages) / len(ages)
        assert abs(fresher - share) < 0.01 + 1 / len(ages), (share, age)
    assert span.freshness_shares[-1] == (1.0, max(ages) + 1)


def test_a_span_that_begins_between_two_commits() -> None:
    """Of the last hour the rows are 60 to 90 minutes old in the first half, 0 to 30 in the second."""
    minute_ms = 60_000
    commits = [commit(1, 0), commit(2, 90 * minute_ms)]
    hour, all_known = spans_of(commits, 120 * minute_ms)
    shares = dict(hour.freshness_shares)
    assert [round(shares[each] / minute_ms, 1) for each in (0.25, 0.475, 0.525, 0.75, 1.0)] == [15, 28.5, 61.5, 75, 90]
    assert (hour.freshness_ms[0], hour.freshness_ms[-1]) == (61 * minute_ms, 30 * minute_ms)
    assert dict(all_known.freshness_shares)[0.25] == 15 * minute_ms


def test_nothing_is_lost_between_parts() -> None:
    now_ms = 10 * DAY_MS
    random = Random(5)
    times = sorted(now_ms - int(3 * DAY_MS * random.random() ** 3) for _ in range(300))
    kinds = [CommitKind.COMPACT if number % 3 == 0 else CommitKind.APPEND for number in range(300)]
    commits = [
        commit(number, at, kinds[number], facts_of(number) if number % 4 else None) for number, at in enumerate(times)
    ]
    spans = spans_of(commits, now_ms)
    assert [round(each.part_ms * len(each.commits)) for each in spans[:2]] == [HOUR_MS, DAY_MS]
    assert spans[-1].from_ms == times[0]
    for span in spans:
        inside = [each for each in commits if each.snapshot.time_ms >= span.from_ms]
        rows = [each for each in inside if each.snapshot.commit_kind is CommitKind.APPEND]
        known = [each.facts for each in inside if each.facts is not None]
        assert (sum(span.commits), sum(span.compactions)) == (len(rows), len(inside) - len(rows))
        assert sum(span.rows) == sum(5 if each.facts is None else each.facts.rows_written for each in rows)
        batches = [each.batch for each in known if each.batch is not None]
        assert sum(span.records) == sum(each.records or 0 for each in batches)
        assert sum(span.dead_letters) == sum(each.dead_letters["bad"] for each in batches)
        assert sum(span.conflicts) == sum(each.conflicts for each in known)
        assert max(each or 0 for each in span.commit_ms) == max(each.duration_ms for each in known)


def test_without_commits_and_with_clocks_ahead() -> None:
    assert spans_of([], 1_000) == ()
    (ahead,) = spans_of([commit(1, 5_000)], 1_000)
    assert (sum(ahead.commits), ahead.freshness_shares, set(ahead.freshness_ms)) == (1, (), {None})
    (of_no_time,) = spans_of([commit(1, -(10**15)), commit(2, 500)], 100_000)
    assert (of_no_time.from_ms, sum(of_no_time.commits)) == (0, 1)
    (compacted,) = spans_of([commit(1, 500, CommitKind.COMPACT)], 1_000)
    assert (sum(compacted.compactions), sum(compacted.rows), set(compacted.freshness_ms)) == (1, 0, {None})


def test_what_does_not_happen_takes_no_room() -> None:
    found = spans_of([commit(1, 1_000, facts=facts_of(3))], 2_000)[0].facts()
    assert found["parts"] == PARTS_MAX and found["rows"] == {"236": 3}
    assert "compactions" not in found
