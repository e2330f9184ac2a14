"""last_value, last_non_null_value, first_value, first_non_null_value: MERGING.md §2.5, §2.6.1, and the oracle."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from freshet.storage.merge.aggregate.events import AggregationError, Event
from tests.storage.merge.aggregate.oracle_folds import Events, check, random_keys, reduced

ADD, LATE, RETRACT, SET, SKIP = Event.ADD, Event.ADD_LATE, Event.RETRACT, Event.SET, Event.SKIP
N = None

LAST = ("last_value", "last_non_null_value")
FIRST = ("first_value", "first_non_null_value")


@pytest.mark.parametrize(
    ("name", "events", "result"),
    [
        ("last_value", [(ADD, "a"), (ADD, N)], N),
        ("last_value", [(ADD, "a"), (LATE, "b")], "a"),
        ("last_value", [(ADD, "a"), (RETRACT, "b")], N),
        ("last_non_null_value", [(ADD, "a"), (ADD, N)], "a"),
        ("last_non_null_value", [(ADD, N), (LATE, "b"), (LATE, "c")], "b"),
        ("last_non_null_value", [(ADD, "a"), (RETRACT, N)], "a"),
        ("last_non_null_value", [(ADD, "a"), (SET, N), (RETRACT, "b")], N),
        ("first_value", [(ADD, N), (ADD, "b")], N),
        ("first_value", [(ADD, "a"), (LATE, "b"), (LATE, "c"), (ADD, "d")], "c"),
        ("first_value", [(SET, "a"), (LATE, "b"), (ADD, "c")], "a"),
        ("first_value", [(ADD, "a"), (SET, "b"), (ADD, "c")], "b"),
        ("first_non_null_value", [(ADD, N), (ADD, "b"), (ADD, "c")], "b"),
        ("first_non_null_value", [(ADD, "a"), (LATE, N)], N),
        ("first_non_null_value", [(SET, "a"), (LATE, "b"), (ADD, "c")], "a"),
    ],
)
def test_a_key(name: str, events: Events, result: str | None) -> None:
    assert reduced(name, "STRING", [events]) == [result]


@pytest.mark.parametrize("name", [*LAST, *FIRST])
def test_every_short_history(name: str) -> None:
    """All events up to four, each with a value or NULL."""
    kinds = [ADD, LATE, SET, SKIP, *([RETRACT] if name in LAST else [])]
    keys: list[Events] = []
    for length in range(1, 5):
        for choice in product(product(kinds, (True, False)), repeat=length):
            keys.append([(event, f"v{place}" if given else N) for place, (event, given) in enumerate(choice)])
    check(name, "STRING", keys)


@pytest.mark.parametrize("name", [*LAST, *FIRST])
@pytest.mark.parametrize("seed", range(5))
def test_random_events(name: str, seed: int) -> None:
    source = Random(seed)
    kinds = (ADD, LATE, SET, SKIP, RETRACT) if name in LAST else (ADD, LATE, SET, SKIP)
    check(name, "INT", random_keys(source, lambda: source.randint(0, 999), kinds, longest=40))
    check(name, "INT", random_keys(source, lambda: source.randint(0, 999), (ADD,), longest=40))
    nulls: list[Events] = [[(ADD, source.randint(0, 9)), *[(ADD, N)] * count] for count in range(30)]
    check(name, "INT", nulls)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_takes_no_retract(name: str) -> None:
    with pytest.raises(AggregationError, match="ignore-retract") as caught:
        reduced(name, "INT", [[(ADD, 1)], [(ADD, 2), (RETRACT, 2)]])
    assert caught.value.event == 2
