"""How often files are looked at for metrics, and what batches add up to."""

from __future__ import annotations

import pytest

from freshet.pipeline.decode.outcomes import EventTimes
from freshet.pipeline.query.driver.batch_report import BatchReport
from freshet.pipeline.query.wire.read_count import ReadCount
from freshet.pipeline.query.wire.task_result import TaskResult
from freshet.pipeline.running.metric_list import BATCH, COMMIT, EVENT_TO_COMMIT
from freshet.pipeline.running.metrics import KEPT_MAX_S, KEPT_S, FreshetCollector, KeptLook, registry_of
from freshet.pipeline.running.progress import Progress
from freshet.pipeline.running.run_totals import CAUSES_MAX, OTHER, RunTotals
from freshet.pipeline.running.seen import Seen


@pytest.mark.parametrize(
    ("cost_s", "kept_s"), [(0.01, KEPT_S), (0.1, 10.0), (5.0, KEPT_MAX_S)], ids=["cheap", "dear", "very dear"]
)
def test_a_look_is_kept(cost_s: float, kept_s: float) -> None:
    now_s, looks = [100.0], [0]

    def look() -> Seen:
        looks[0] += 1
        now_s[0] += cost_s
        return Seen()

    kept = KeptLook(look, share=0.01, clock_s=lambda: now_s[0], spent_s=lambda: now_s[0])
    kept()
    now_s[0] += kept_s - 0.01
    assert kept() == (Seen(), pytest.approx(cost_s)) and looks[0] == 1
    now_s[0] += 0.02
    kept()
    assert looks[0] == 2


def test_what_cannot_be_read_is_absent_until_it_can() -> None:
    now_s, errors = [0.0], [OSError("away")]

    def look() -> Seen:
        for error in errors:
            raise error
        return Seen()

    kept = KeptLook(look, share=0.01, clock_s=lambda: now_s[0])
    registry = registry_of(FreshetCollector(kept))
    assert registry.get_sample_value("freshet_look_success") == 0
    errors.clear()
    now_s[0] += KEPT_MAX_S
    assert registry.get_sample_value("freshet_look_success") == 1


def batch(number: int, read: int, times: EventTimes | None, **result: dict[str, int]) -> Progress:
    found = TaskResult(applied=read, read=ReadCount(times=times), **result)  # type: ignore[arg-type]
    report = BatchReport("a", number, found, read_count=read, times_ms={"commit": 20.0})
    return Progress(report, 0.0, 0, 400.0)


def test_batches_add_up() -> None:
    totals = RunTotals(["a", "b"], now_ms=lambda: 20_000)
    totals.take(batch(1, 210, EventTimes(10_000, 20_000), dead={"bad": 3}))
    totals.take(batch(2, 0, None, dead={"bad": 1, "worse": 2}))
    found = {counter.name: values for counter, values in totals.counters("a")}
    assert (found["batches"], found["records_read"]) == ({"": 2}, {"": 210})
    assert found["dead_letters"] == {"bad": 4, "worse": 2}
    assert {name: sum(values.values()) for name, values in dict(_found(totals, "b")).items()} == dict.fromkeys(found, 0)
    shown = {each.of: each for each in totals.distributions("a")}
    assert (sum(shown[BATCH].counts), shown[BATCH].sum_s) == (2, pytest.approx(0.8))
    assert shown[COMMIT].counts[COMMIT.bounds.index(0.025)] == 2
    ages = shown[EVENT_TO_COMMIT]
    assert (sum(ages.counts), ages.sum_s) == (210, pytest.approx(210 * 5.0))
    upto = EVENT_TO_COMMIT.bounds.index(5) + 1
    assert sum(ages.counts[:upto]) == pytest.approx(110), "half of them, and the one in the middle"


def _found(totals: RunTotals, pipeline: str) -> list[tuple[str, dict[str, float]]]:
    return [(counter.name, values) for counter, values in totals.counters(pipeline)]


def test_causes_are_bounded() -> None:
    totals = RunTotals(["a"])
    for number in range(CAUSES_MAX + 5):
        totals.take(batch(number, 1, None, dead={f"cause {number}": 1}))
    dead = dict(_found(totals, "a"))["dead_letters"]
    assert (len(dead), dead[OTHER], sum(dead.values())) == (CAUSES_MAX + 1, 5, CAUSES_MAX + 5)
