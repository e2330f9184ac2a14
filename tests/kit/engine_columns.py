"""Columns of tables with merge engines: their types, functions, and the values that a source of chance draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final

from tests.contract.cases import EVERY_TYPE, SCALARS, any_value
from tests.kit.aggregate_oracles import Collect

NESTED: Final = "ARRAY<ROW<k0 INT, k1 STRING, v INT, s INT>>"
TIMED: Final = "MAP<STRING, ROW<v INT, ts STRING>>"
Pool = Sequence[Any] | Callable[[Random], Any]
SMALL: Final[Mapping[str, Sequence[Any]]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), (-7, -1, 0, 1, 2, 3, 30)),
    "FLOAT": (-0.0, 0.0, 0.1, 1.5, -2.25, 1e30, 3e38, float("inf"), float("-inf"), float("nan"), 16777216.0),
    "DOUBLE": (-0.0, 0.0, 0.1, 0.7, -2.25, 1e300, 1.7e308, float("inf"), float("nan"), 2.0**53),
    "DECIMAL(9, 2)": (Decimal("-1.25"), Decimal("0.00"), Decimal("0.01"), Decimal("3.00"), Decimal("199999.99")),
    "DECIMAL(18, 4)": (Decimal("-1.2500"), Decimal("2.0000"), Decimal("0.0001"), Decimal("1234567.8912")),
    "DECIMAL(38, 10)": (
        Decimal("-1.5000000000"),
        Decimal("2.5000000000"),
        Decimal("0.0000000001"),
        Decimal("9999999999999999999999999999.9999999999"),
    ),
}
NUMBERS: Final = tuple(SMALL)
COMPARABLE: Final = tuple(kind for kind in SCALARS if kind != "BOOLEAN")
"""What max and min take; the format's own 2.0.0 cannot compare booleans."""


@dataclass(frozen=True)
class Column:
    """A column: its type, the values it gets, and its options without the prefix `fields.NAME.`."""

    type_text: str
    pool: Pool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    nulls: float = 0.25

    def value(self, source: Random) -> Any:
        if source.random() < self.nulls:
            return None
        if self.pool is None:
            value = any_value(source, self.type_text)
        else:
            value = self.pool(source) if callable(self.pool) else source.choice(self.pool)
        # Freshet writes them so, Paimon as they come.
        is_distinct = (self.options.get("aggregate-function"), self.options.get("distinct")) == ("collect", "true")
        return Collect(self.type_text, self.options).agg(None, value) if is_distinct else value


def with_function(name: str, columns: Mapping[str, Column], **options: str) -> dict[str, Column]:
    """The same columns with this function and these options, `ignore_retract="true"` and the like."""
    more = {"aggregate-function": name, **{option.replace("_", "-"): value for option, value in options.items()}}
    return {
        f"{column}_{name}": Column(one.type_text, one.pool, {**one.options, **more}, one.nulls)
        for column, one in columns.items()
    }


def columns_of(kinds: Sequence[str], pools: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Column]:
    return {
        f"c{index}": Column(kind, None if pools is None else tuple(pools[kind])) for index, kind in enumerate(kinds)
    }


def list_of(*elements: Any, size: int = 3) -> Callable[[Random], Any]:
    return lambda source: [source.choice(elements) for _ in range(source.randint(0, size))]


def map_of(keys: Sequence[Any], values: Sequence[Any]) -> Callable[[Random], Any]:
    return lambda source: [(key, source.choice(values)) for key in keys if source.random() < 0.5]


def nested_rows(source: Random) -> Any:
    rows = [
        {
            "k0": source.choice((0, 1, 1, None)),
            "k1": source.choice(("a", "b", None)),
            "v": source.choice((1, 2, None)),
            "s": source.choice((1, 2, 3, None)),
        }
        for _ in range(source.randint(0, 3))
    ]
    return [None if source.random() < 0.1 else row for row in rows]


def timed_entries(source: Random) -> Any:
    times = ("50", "100", "200", "2", None)
    return [
        (key, None if source.random() < 0.15 else {"v": source.randrange(9), "ts": source.choice(times)})
        for key in ("p", "q", "r")
        if source.random() < 0.6
    ]


WORDS: Final = Column("STRING", ("a", "b", "a,b", "b,,c", " ", "", "d e", "\t", "\u3000", "\u00a0", "é|x", "x-y"))
ORDER: Final = Column("INT", (0, 1, 2, 3), nulls=0.2)
LISTS: Final = {
    "ints": Column("ARRAY<INT>", list_of(1, 2, 3, None)),
    "texts": Column("ARRAY<STRING>", list_of("a", "b", "", None)),
    "doubles": Column("ARRAY<DOUBLE>", list_of(0.0, -0.0, 1.5, float("nan"))),
    "decimals": Column("ARRAY<DECIMAL(9, 2)>", list_of(Decimal("1.00"), Decimal("2.50"))),
    "dates": Column("ARRAY<DATE>", list_of(date(1970, 1, 1), date(2024, 2, 29))),
    "times": Column("ARRAY<TIMESTAMP(6)>", list_of(datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4))),
    "flags": Column("ARRAY<BOOLEAN>", list_of(True, False)),
}
CONSTRUCTED_LISTS: Final = {
    "rows": Column("ARRAY<ROW<x INT, y STRING>>", list_of({"x": 1, "y": "a"}, {"x": 1, "y": None}, {"x": 2, "y": ""})),
    "lists": Column("ARRAY<ARRAY<INT>>", list_of([1], [1, 2], [])),
    "maps": Column("ARRAY<MAP<STRING, INT>>", list_of([("a", 1)], [("b", 2), ("a", 1)], [])),
}
MAPS: Final = {
    "m0": Column("MAP<STRING, BIGINT>", map_of(("a", "b", "c"), (1, 2, None))),
    "m1": Column("MAP<INT, STRING>", map_of((1, 2, -3), ("x", "", None))),
    "m2": Column("MAP<DATE, DOUBLE>", map_of((date(1970, 1, 1), date(2024, 1, 1)), (0.5, -0.0))),
    "m3": Column("MAP<STRING, ARRAY<INT>>", map_of(("a", "b"), ([1], [], [None, 2]))),
}
NESTED_COLUMNS: Final = {
    "plain": Column(NESTED, nested_rows),
    "limited": Column(NESTED, nested_rows, {"count-limit": "2"}),
}
KEYED_COLUMNS: Final = {
    "keyed": Column(NESTED, nested_rows, {"nested-key": "k0"}),
    "keyed2": Column(NESTED, nested_rows, {"nested-key": "k0,k1", "nested-key-null-strategy": "ignore"}),
}
SEQUENCED_COLUMNS: Final = {
    "newest": Column(NESTED, nested_rows, {"nested-key": "k0", "nested-sequence-field": "s"}),
    "newest2": Column(NESTED, nested_rows, {"nested-key": "k1,k0", "nested-sequence-field": "s,v"}),
}
# Nested nanoseconds have no Python value; 2.0.0 compares binary values by identity.
_ELEMENTS: Final = tuple(kind for kind in SCALARS if not kind.startswith("TIMESTAMP(9)"))
_COMPARED: Final = tuple(kind for kind in _ELEMENTS if not kind.startswith("B") or kind in ("BOOLEAN", "BIGINT"))


def _lists_of(kind: str) -> Callable[[Random], Any]:
    return lambda source: [any_value(source, kind) for _ in range(source.randint(0, 3))]


def _maps_of(key: str, value: str) -> Callable[[Random], Any]:
    def draw(source: Random) -> Any:
        keys = {repr(one): one for one in (any_value(source, key) for _ in range(3))}
        return [(one, any_value(source, value)) for one in keys.values()]

    return draw


EVERY_LIST: Final = {f"a{index}": Column(f"ARRAY<{kind}>", _lists_of(kind)) for index, kind in enumerate(_ELEMENTS)}
EVERY_COMPARED_LIST: Final = {name: one for name, one in EVERY_LIST.items() if one.type_text[6:-1] in _COMPARED}
EVERY_MAP: Final = {
    **{f"k{index}": Column(f"MAP<{kind}, INT>", _maps_of(kind, "INT")) for index, kind in enumerate(_COMPARED)},
    **{f"v{index}": Column(f"MAP<INT, {kind}>", _maps_of("INT", kind)) for index, kind in enumerate(_ELEMENTS)},
}
EVERY_COLUMN: Final = {name: Column(kind) for name, kind in EVERY_TYPE.items()}


def all_ignoring(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {
        name: Column(one.type_text, one.pool, {**one.options, "ignore-retract": "true"}, one.nulls)
        for name, one in columns.items()
    }
