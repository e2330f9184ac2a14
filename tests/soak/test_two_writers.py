"""Two real processes write to each kind of table, with and without kills: rows and changelog are what was committed.

`python -m tests.soak.two_writers` runs any of these cases again and takes the seed that a failure names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import counts
from tests.soak.busy_processes import BusyProcesses
from tests.soak.two_writers import Case, Outcome, fairness, run_case
from tests.soak.writer_stories import ENGINES, PRODUCERS, is_refused

pytestmark = [pytest.mark.soak]

KINDS = [
    (engine, producer, buckets)
    for engine in ENGINES
    for producer in PRODUCERS
    for buckets in (1, 3)
    if not is_refused(engine, producer)
]

KILLED = counts.chance_of("killed writers").sample(KINDS, min(len(KINDS), counts.TWO_WRITERS_KILLED.now()))

KILLED_SECONDS_MIN = 4
"""In less time no writer is killed."""

FAIR_SECONDS = 10
FAIR_SECONDS_MIN = 4
FAIR_TRIES = 3
"""In less time chance decides, the more the busier the machine is: then a quarter in one of three runs is enough."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyProcesses]:
    """Kept from case to case: loading the libraries takes longer than many a case."""
    with BusyProcesses(tmp_path_factory.mktemp("processes")) as found:
        yield found


def _run(case: Case, processes: BusyProcesses, folder: Path) -> Outcome:
    outcome = run_case(case, processes, folder)
    print(outcome)
    assert not outcome.faults, str(outcome)
    return outcome


def _seed(*names: object) -> int:
    return counts.chance_of("two writers", *names).randrange(1_000_000)


@pytest.mark.parametrize(("engine", "producer", "buckets"), KINDS)
def test_two_writers_as_fast_as_they_can(
    engine: str, producer: str, buckets: int, processes: BusyProcesses, tmp_path: Path
) -> None:
    seed = _seed(engine, producer, buckets)
    outcome = _run(Case(engine, producer, buckets, seed, counts.TWO_WRITERS_SECONDS.now()), processes, tmp_path)
    assert min(outcome.commits) > 0


@pytest.mark.parametrize(("engine", "producer", "buckets"), KILLED)
def test_writers_that_are_killed_and_a_third_process_that_compacts(
    engine: str, producer: str, buckets: int, processes: BusyProcesses, tmp_path: Path
) -> None:
    seconds = max(counts.TWO_WRITERS_SECONDS.now(), KILLED_SECONDS_MIN)
    case = Case(
        engine, producer, buckets, _seed("kills", engine, producer, buckets), seconds, kills=True, compactor=True
    )
    assert _run(case, processes, tmp_path).kills > 0


@pytest.mark.always("two writers")
@pytest.mark.parametrize("producer", ["none", "lookup", "vectors"])
def test_a_slow_writer_of_its_own_column_is_seen(producer: str, processes: BusyProcesses, tmp_path: Path) -> None:
    """The other one commits without a pause: no key keeps an old value of the slow one."""
    seconds = max(counts.TWO_WRITERS_SECONDS.now(), KILLED_SECONDS_MIN)
    case = Case("partial-update", producer, 2, _seed("slow", producer), seconds, pauses_s=(0.5, 0.0))
    assert min(_run(case, processes, tmp_path).commits) > 1


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("rows", [(), (1000, 1)])
def test_both_writers_commit(rows: tuple[int, ...], producer: str, processes: BusyProcesses, tmp_path: Path) -> None:
    """Neither makes less than half of the other's commits, even if one commits large batches, the other small ones."""
    seconds = max(counts.TWO_WRITERS_SECONDS.now(), FAIR_SECONDS_MIN)
    is_long = seconds >= FAIR_SECONDS
    asked = 0.5 if is_long else 0.25
    outcomes: list[Outcome] = []
    while not outcomes or (fairness(outcomes[-1]) < asked and len(outcomes) < (1 if is_long else FAIR_TRIES)):
        number = len(outcomes)
        case = Case("deduplicate", producer, 2, _seed("fair", rows, producer, number), seconds, rows=rows)
        outcomes.append(_run(case, processes, tmp_path / str(number)))
    assert fairness(outcomes[-1]) >= asked, "; ".join(map(str, outcomes))
