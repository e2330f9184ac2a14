"""sum, product, max, min, bool_and, bool_or: MERGING.md §2.6.1, vector 44, and random events against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from freshet.storage.merge.aggregate.events import AggregationError, Event
from tests.storage.merge.aggregate.oracle_folds import Events, check, random_keys, reduced

ADD, LATE, RETRACT, SET, SKIP = Event.ADD, Event.ADD_LATE, Event.RETRACT, Event.SET, Event.SKIP
N = None
D = Decimal
LONG_MAX, LONG_MIN = (1 << 63) - 1, -(1 << 63)


@pytest.mark.parametrize(
    ("name", "type_text", "events", "result"),
    [
        ("sum", "INT", [(ADD, 10)], 10),
        ("sum", "INT", [(ADD, 10), (RETRACT, 5)], 5),
        ("sum", "INT", [(RETRACT, 5)], -5),
        ("sum", "INT", [(ADD, N), (RETRACT, N)], N),
        ("sum", "INT", [(ADD, 5), (SET, N), (SKIP, 9), (LATE, 3)], 3),
        ("sum", "TINYINT", [(ADD, 127), (RETRACT, 1), (ADD, 1)], 127),
        ("sum", "TINYINT", [(ADD, -1), (RETRACT, -128)], 127),
        ("sum", "BIGINT", [(ADD, LONG_MAX), (RETRACT, LONG_MAX), (ADD, LONG_MIN)], LONG_MIN),
        ("sum", "BIGINT", [(ADD, -1), (RETRACT, LONG_MIN)], LONG_MAX),
        ("sum", "FLOAT", [(ADD, 16777216.0), (ADD, 1.0), (ADD, 1.0)], 16777216.0),
        ("sum", "DOUBLE", [(ADD, 1e16), (ADD, 1.0), (RETRACT, 1e16)], 0.0),
        ("sum", "DOUBLE", [(RETRACT, 0.0)], -0.0),
        ("sum", "DECIMAL(4, 2)", [(ADD, D("99.99")), (ADD, D("0.02"))], D("100.01")),
        ("sum", "DECIMAL(20, 0)", [(ADD, D(10**20 - 1)), (ADD, D(1))], N),
        ("sum", "DECIMAL(20, 0)", [(ADD, D(10**20 - 1)), (ADD, D(1)), (ADD, D(7))], D(7)),
        ("sum", "DECIMAL(38, 0)", [(ADD, D(10**38 - 1)), (RETRACT, D(10**38 - 1)), (RETRACT, D(3))], D(-3)),
        ("product", "INT", [(ADD, 10), (RETRACT, 5)], 2),
        ("product", "INT", [(RETRACT, 5)], N),
        ("product", "INT", [(RETRACT, 5), (ADD, -7), (RETRACT, 2)], -3),
        ("product", "BIGINT", [(ADD, 1 << 62), (ADD, -2), (RETRACT, 2)], -(1 << 62)),
        ("product", "DOUBLE", [(ADD, 1.0), (RETRACT, 0.0)], float("inf")),
        ("product", "DECIMAL(5, 2)", [(ADD, D("1.15")), (ADD, D("0.10"))], D("0.12")),
        ("product", "DECIMAL(5, 2)", [(ADD, D("-1.15")), (ADD, D("0.10"))], D("-0.12")),
        ("product", "DECIMAL(5, 2)", [(ADD, D("100.00")), (ADD, D("10.00")), (ADD, D("2.00"))], D("2.00")),
        ("product", "DECIMAL(5, 2)", [(ADD, D("1.00")), (RETRACT, D("8.00"))], D("0.13")),
        ("max", "DOUBLE", [(ADD, -0.0), (ADD, 0.0)], 0.0),
        ("min", "DOUBLE", [(ADD, 0.0), (ADD, -0.0)], -0.0),
        ("min", "FLOAT", [(ADD, float("nan")), (ADD, float("inf"))], float("inf")),
        ("max", "STRING", [(ADD, "\uffff"), (ADD, "\U00010000")], "\U00010000"),
        ("min", "STRING", [(ADD, "ab"), (ADD, "a"), (ADD, N)], "a"),
        ("max", "BYTES", [(ADD, b"\x7f"), (ADD, b"\x80")], b"\x80"),
        ("bool_and", "BOOLEAN", [(ADD, True), (ADD, N), (ADD, False)], False),
        ("bool_or", "BOOLEAN", [(ADD, False), (ADD, N)], False),
    ],
)
def test_a_key(name: str, type_text: str, events: Events, result: Any) -> None:
    (found,) = reduced(name, type_text, [events])
    assert repr(found) == repr(result)
    check(name, type_text, [events])


@pytest.mark.parametrize(
    ("name", "type_text", "events", "at", "says"),
    [
        ("sum", "TINYINT", [(ADD, 127), (ADD, 1), (RETRACT, 1)], 1, "overflows TINYINT"),
        ("sum", "TINYINT", [(RETRACT, -128)], 0, "overflows TINYINT"),
        ("sum", "BIGINT", [(ADD, LONG_MAX), (SKIP, 1), (ADD, N), (ADD, 1), (ADD, -5)], 3, "wider type"),
        ("product", "INT", [(ADD, 1 << 30), (ADD, 2)], 1, "overflows INT"),
        ("product", "BIGINT", [(ADD, 1 << 62), (ADD, 2)], 1, "overflows BIGINT"),
        ("product", "BIGINT", [(ADD, LONG_MIN), (RETRACT, -1)], 1, "overflows BIGINT"),
        ("product", "INT", [(ADD, 3), (RETRACT, 0)], 1, "divided by zero"),
        ("product", "DECIMAL(5, 2)", [(ADD, D("1.00")), (RETRACT, D("3.00"))], 1, "no end"),
        ("max", "INT", [(ADD, 3), (RETRACT, N)], 1, "fields.v.ignore-retract=true"),
    ],
)
def test_refusals_name_the_event(name: str, type_text: str, events: Events, at: int, says: str) -> None:
    other: Events = [(ADD, N), (ADD, N)]
    with pytest.raises(AggregationError, match=says) as caught:
        reduced(name, type_text, [other, events, other])
    assert caught.value.event == 2 + at


SOURCES: dict[str, Callable[[Random], Callable[[], Any]]] = {
    "TINYINT": lambda r: lambda: r.choice([-128, -60, -1, 0, 1, 50, 127]),
    "SMALLINT": lambda r: lambda: r.randint(-900, 900),
    "INT": lambda r: lambda: r.choice([-(1 << 31), -3, 0, 2, 1 << 30, r.randint(-9, 9)]),
    "BIGINT": lambda r: lambda: r.choice([-(1 << 62), LONG_MIN, 1 << 62, LONG_MAX, r.randint(-9, 9), 0, 1]),
    "FLOAT": lambda r: lambda: r.choice([1.5, -0.0, 0.0, 2.0**24, 2.0**-20, float("inf"), float("nan"), -3.0]),
    "DOUBLE": lambda r: lambda: r.choice([1e300, -0.0, 0.0, 0.1, 1e16, float("nan"), float("-inf"), r.random()]),
    "DECIMAL(5, 2)": lambda r: lambda: D(r.choice([99999, -99999, 250, 125, 100, -400, 0, 1])).scaleb(-2),
    "DECIMAL(18, 3)": lambda r: lambda: D(r.choice([10**18 - 1, 1 - 10**18, r.randint(-99, 99), 1000])).scaleb(-3),
    "DECIMAL(25, 0)": lambda r: lambda: D(r.choice([10**25 - 1, 5 * 10**24, r.randint(-99, 99), 8 - 10**25])),
    "DECIMAL(38, 10)": lambda r: lambda: D(r.randint(-(10**20), 10**20)).scaleb(-10),
}


@pytest.mark.parametrize("type_text", SOURCES)
@pytest.mark.parametrize("name", ["sum", "product"])
@pytest.mark.parametrize("seed", range(3))
def test_random_sums_and_products(name: str, type_text: str, seed: int) -> None:
    source = Random(seed)
    keys = random_keys(source, SOURCES[type_text](source), (ADD, LATE, RETRACT, SKIP))
    check(name, type_text, keys)
    quiet = random_keys(source, SOURCES[type_text](source), (ADD, SKIP, SET), longest=3)
    check(name, type_text, [key for key in quiet if len(key) < 4])


EXTREMES: dict[str, Callable[[Random], Callable[[], Any]]] = {
    **SOURCES,
    "DATE": lambda r: lambda: r.randint(-9, 9),
    "STRING": lambda r: lambda: "".join(r.choices("ab\u00e9\uffff", k=r.randint(0, 20))),
    "BYTES": lambda r: lambda: bytes(r.choices([0, 1, 127, 128, 255], k=r.randint(0, 3))),
    "BOOLEAN": lambda r: lambda: r.random() < 0.5,
}


@pytest.mark.parametrize("type_text", [name for name in EXTREMES if name != "DATE"])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("seed", range(3))
def test_random_extremes(name: str, type_text: str, seed: int) -> None:
    source = Random(seed)
    check(name, type_text, random_keys(source, EXTREMES[type_text](source), (ADD, LATE, SKIP, SET)))


@pytest.mark.parametrize("name", ["bool_and", "bool_or"])
def test_random_booleans(name: str) -> None:
    source = Random(7)
    check(name, "BOOLEAN", random_keys(source, EXTREMES["BOOLEAN"](source), (ADD, LATE, SKIP, SET)))


def test_times_have_extremes_too() -> None:
    for type_text in ("DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)"):
        events: list[Events] = [[(ADD, 5), (ADD, -7 if type_text != "TIME(3)" else 7), (ADD, N)], [(ADD, N)]]
        lowest, nothing = reduced("min", type_text, events)
        highest, _ = reduced("max", type_text, events)
        assert lowest < highest
        assert nothing is None


def test_no_keys_and_no_values() -> None:
    for name in ("sum", "product", "max"):
        assert reduced(name, "INT", []) == []
        assert reduced(name, "DECIMAL(20, 0)", [[(ADD, N)], [(SKIP, D(1))]]) == [N, N]
        assert reduced(name, "DOUBLE", [[(ADD, N)]]) == [N]
