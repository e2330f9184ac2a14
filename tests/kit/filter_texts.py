"""Random filter texts with their meaning: SQL's three values in plain Python, too simple to be wrong.

A `Condition` is the text and what it says of one row (True, False or None for unknown). Columns have few values, and
the literals lie at, between and beyond them, so that every comparison meets every case.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

Row = Mapping[str, Any]
Truth = bool | None


@dataclass(frozen=True)
class Condition:
    """A filter text and what it says of a row."""

    text: str
    holds: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.text


_DAY: Final = datetime.date(2024, 2, 29)
_NOON: Final = datetime.datetime(2024, 2, 29, 12, 0, 0, 5000)
_UTC: Final = datetime.UTC

# Column -> Arrow type and values. `n` has milliseconds, so that literals can be finer.
COLUMNS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "y": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i": (pa.int32(), [-(2**31), -2, 1, 2, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 2**53, 2**53 + 1, 2**53 + 2, 3, 2**63 - 1]),
    "d": (pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.10"), Decimal("1.50"), Decimal("2.00")]),
    "w": (pa.decimal128(30, 20), [Decimal("0.10000000000000000000"), Decimal("0.10000000000000000001"), Decimal(1)]),
    "f": (pa.float32(), [-math.inf, -0.0, 0.0, 0.10000000149011612, 1.5, math.inf, math.nan]),
    "g": (pa.float64(), [-math.inf, -0.0, 0.0, 0.1, 1.5, 1e300, math.inf, math.nan]),
    "s": (pa.string(), ["", "a", "a%", "a_b", "ab", "b'c", "b\\", "é", "\U0001f600"]),
    "t": (pa.bool_(), [True, False]),
    "x": (pa.binary(), [b"", b"\x00", b"\x0a\xff", b"\xff"]),
    "day": (pa.date32(), [_DAY - datetime.timedelta(days=1), _DAY, _DAY + datetime.timedelta(days=1)]),
    "n": (pa.timestamp("ms"), [_NOON, _NOON + datetime.timedelta(milliseconds=1), datetime.datetime(2024, 2, 29)]),
    "z": (
        pa.timestamp("us", "UTC"),
        [
            _NOON.replace(tzinfo=_UTC),
            datetime.datetime(2024, 2, 29, tzinfo=_UTC),
            datetime.datetime(1, 1, 2, tzinfo=_UTC),
        ],
    ),
}
SCHEMA: Final = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])

_WHOLE: Final[list[tuple[str, Any]]] = [
    *((str(number), number) for number in (-129, -128, -1, 0, 1, 2, 127, 300, 2**31, 2**53 + 1, 2**63 - 1)),
    ("9223372036854775808", 2**63),
    ("5L", 5),
    ("-1Y", -1),
]
_NUMBERS: Final[list[tuple[str, Any]]] = [
    *_WHOLE,
    ("0.1", Decimal("0.1")),
    ("1.5", Decimal("1.5")),
    ("-.5", Decimal("-0.5")),
    ("1.500001", Decimal("1.500001")),
    ("2BD", Decimal(2)),
    ("0.1D", 0.1),
    ("1.5D", 1.5),
    ("9007199254740992D", 2.0**53),
    ("1e300", 1e300),
    ("-1e300", -1e300),
    ("2.5E0", 2.5),
    ("0.1F", 0.10000000149011612),
    ("double('NaN')", math.nan),
    ("CAST('-Infinity' AS DOUBLE)", -math.inf),
    ("double('Infinity')", math.inf),
]
_TEXTS: Final[list[tuple[str, Any]]] = [
    ("''", ""),
    ("'a'", "a"),
    ("'a%'", "a%"),
    ('"ab"', "ab"),
    (r"'b\'c'", "b'c"),
    (r"'b\\'", "b\\"),
    (r"'\u00e9'", "é"),
    ("'\U0001f600'", "\U0001f600"),
    ("'zz'", "zz"),
]
_DAYS: Final[list[tuple[str, Any]]] = [
    ("DATE '2024-02-28'", datetime.date(2024, 2, 28)),
    ("DATE'2024-02-29'", _DAY),
    ("DATE '2024-03-02'", datetime.date(2024, 3, 2)),
    ("'2024-02-29'", _DAY),
]
_MOMENTS: Final[list[tuple[str, Any]]] = [
    ("TIMESTAMP_NTZ '2024-02-29 00:00:00'", datetime.datetime(2024, 2, 29)),
    ("TIMESTAMP_NTZ'2024-02-29 12:00:00.005'", _NOON),
    ("TIMESTAMP_NTZ '2024-02-29 12:00:00.0051'", _NOON.replace(microsecond=5100)),
    ("TIMESTAMP_NTZ '2024-02-29 12:00:00.006'", _NOON.replace(microsecond=6000)),
    ("TIMESTAMP_NTZ '2025-01-01'", datetime.datetime(2025, 1, 1)),
]
_INSTANTS: Final[list[tuple[str, Any]]] = [
    ("TIMESTAMP '2024-02-29 12:00:00.005'", _NOON.replace(tzinfo=_UTC)),
    ("TIMESTAMP '2024-02-29 13:00:00.005+01:00'", _NOON.replace(tzinfo=_UTC)),
    ("TIMESTAMP '2024-02-29 12:00:00.005Z'", _NOON.replace(tzinfo=_UTC)),
    ("TIMESTAMP '2024-02-29 00:00:00.000001'", datetime.datetime(2024, 2, 29, 0, 0, 0, 1, tzinfo=_UTC)),
    ("'2024-02-29 12:00:00.005'", _NOON.replace(tzinfo=_UTC)),
]
LITERALS: Final[dict[str, list[tuple[str, Any]]]] = {
    **dict.fromkeys(("y", "i", "l", "d", "w", "f", "g"), _NUMBERS),
    "s": _TEXTS,
    "t": [("TRUE", True), ("false", False)],
    "x": [("X''", b""), ("X'00'", b"\x00"), ("x'0AFF'", b"\x0a\xff"), ("X'A'", b"\x0a")],
    "day": [*_DAYS, *_MOMENTS],
    "n": [*_DAYS, *_MOMENTS],
    "z": [*_DAYS, *_INSTANTS],
}
_PREFIXES: Final = [("'a%'", "a"), ("'%'", ""), (r"'a\_%'", "a_"), (r"'a\%%'", "a%"), ("'b%%'", "b"), ("'é%'", "é")]
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def conditions(columns: Sequence[str] = tuple(COLUMNS)) -> st.SearchStrategy[Condition]:
    """Random conditions on the columns named."""
    leaves = st.sampled_from(list(columns)).flatmap(_leaf)
    return st.recursive(leaves, _joined, max_leaves=5)


def rows(columns: Sequence[str] = tuple(COLUMNS)) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Some rows of the columns named, with NULLs."""
    values = {name: st.none() | st.sampled_from(COLUMNS[name][1]) for name in columns}
    return st.lists(st.fixed_dictionaries(values), max_size=5)


def compare(op: str, value: Any, literal: Any) -> Truth:
    """SQL's comparison of a value of a column with a literal, each possibly None."""
    if value is None or literal is None:
        return None
    if isinstance(literal, float) or isinstance(value, float):  # the wider type is DOUBLE
        value, literal = float(value), float(literal)
    return _OPERATORS[op](_ordered(value), _ordered(literal))


def _ordered(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo else value.replace(tzinfo=_UTC)
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day, tzinfo=_UTC)
    return value


def _leaf(name: str) -> st.SearchStrategy[Condition]:
    literal = st.sampled_from([*LITERALS[name], ("NULL", None)])
    options = [
        st.builds(_comparison, st.just(name), st.sampled_from(list(_OPERATORS)), literal, st.booleans()),
        st.builds(_null_safe, st.just(name), literal),
        st.builds(_in, st.just(name), st.lists(literal, min_size=1, max_size=4), st.booleans()),
        st.builds(_between, st.just(name), literal, literal, st.booleans()),
        st.builds(_is_null, st.just(name), st.booleans()),
    ]
    if name == "s":
        options.append(st.builds(_like, st.sampled_from(_PREFIXES), st.booleans()))
    return st.one_of(options)


def _comparison(name: str, op: str, literal: tuple[str, Any], mirrored: bool) -> Condition:
    text = f"{literal[0]} {_MIRRORED.get(op, op)} {name}" if mirrored else f"{name} {op} {literal[0]}"
    return Condition(text, lambda row: compare(op, row[name], literal[1]))


def _null_safe(name: str, literal: tuple[str, Any]) -> Condition:
    def holds(row: Row) -> Truth:
        if row[name] is None or literal[1] is None:
            return row[name] is literal[1]
        return compare("=", row[name], literal[1])

    return Condition(f"`{name}` <=> {literal[0]}", holds)


def _in(name: str, literals: list[tuple[str, Any]], negated: bool) -> Condition:
    values = [value for _, value in literals]
    if any(isinstance(value, float) for value in values):  # one type for the whole list
        values = [None if value is None else float(value) for value in values]

    def holds(row: Row) -> Truth:
        return _either([compare("=", row[name], value) for value in values])

    text = f"{name} {'NOT ' if negated else ''}IN ({', '.join(text for text, _ in literals)})"
    return Condition(text, _negated(holds) if negated else holds)


def _between(name: str, low: tuple[str, Any], high: tuple[str, Any], negated: bool) -> Condition:
    def holds(row: Row) -> Truth:
        return _both([compare(">=", row[name], low[1]), compare("<=", row[name], high[1])])

    text = f"{name} {'NOT ' if negated else ''}BETWEEN {low[0]} AND {high[0]}"
    return Condition(text, _negated(holds) if negated else holds)


def _is_null(name: str, negated: bool) -> Condition:
    return Condition(f"{name} IS {'NOT ' if negated else ''}NULL", lambda row: (row[name] is None) != negated)


def _like(prefix: tuple[str, str], negated: bool) -> Condition:
    def holds(row: Row) -> Truth:
        return None if row["s"] is None else row["s"].startswith(prefix[1])

    return Condition(f"s {'NOT ' if negated else ''}LIKE {prefix[0]}", _negated(holds) if negated else holds)


def _joined(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(parts, min_size=2, max_size=3)
    return st.one_of(
        st.builds(lambda part: Condition(f"NOT ({part.text})", _negated(part.holds)), parts),
        st.builds(lambda items: _join(items, " AND ", _both), several),
        st.builds(lambda items: _join(items, " OR ", _either), several),
        st.builds(lambda a, b, c: Condition(f"{a.text} AND {b.text} OR {c.text}", _precedence(a, b, c)), *[
            st.sampled_from(["i", "s", "g"]).flatmap(_leaf) for _ in range(3)
        ]),
    )  # fmt: skip


def _join(items: list[Condition], word: str, together: Callable[[list[Truth]], Truth]) -> Condition:
    return Condition(
        word.join(f"({item.text})" for item in items), lambda row: together([item.holds(row) for item in items])
    )


def _precedence(first: Condition, second: Condition, third: Condition) -> Callable[[Row], Truth]:
    return lambda row: _either([_both([first.holds(row), second.holds(row)]), third.holds(row)])


def _negated(holds: Callable[[Row], Truth]) -> Callable[[Row], Truth]:
    return lambda row: None if (truth := holds(row)) is None else not truth


def _both(parts: list[Truth]) -> Truth:
    return False if False in parts else None if None in parts else True


def _either(parts: list[Truth]) -> Truth:
    return True if True in parts else None if None in parts else False
