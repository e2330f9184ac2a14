"""Filters: what they accept, what Arrow makes of them, and that statistics never exclude a row that matches."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.column import col, from_lists
from freshet.storage.filters.literal import canonical
from freshet.storage.filters.predicate import (
    And,
    Comparison,
    IsIn,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    conjunction,
)
from tests.kit.hypothesis_profile import examples

TABLE = pa.table(
    {
        "i": pa.array([1, 2, None], pa.int32()),
        "s": ["x", "xy", None],
        "f": [0.0, -0.0, math.nan],
        "d": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(10, 2)),
        "b": pa.array([b"\x00", b"\xff", None], pa.binary()),
        "day": pa.array([0, 1, None], pa.date32()),
        "t": pa.array([0, 1, None], pa.time32("ms")),
        "ts": pa.array([0, 1, None], pa.timestamp("ns")),
        "tz": pa.array([0, 1_000_000, None], pa.timestamp("us", tz="UTC")),
        "l": pa.array([[1], [], None], pa.list_(pa.int32())),
    }
)


def matches(predicate: Predicate | list[Any]) -> list[int]:
    bound = from_lists(predicate).bind(TABLE.schema)  # type: ignore[union-attr]
    assert repr(pickle.loads(pickle.dumps(bound))) == repr(bound)
    table = TABLE.append_column("row", pa.array([0, 1, 2]))
    return table.filter(bound.to_arrow())["row"].to_pylist()


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("i") == 1, [0]),
        (col("i") != 1, [1]),
        (~(col("i") == 1), [1]),
        (col("i") >= 2, [1]),
        (col("i").between(1, 2), [0, 1]),
        (col("i").is_null(), [2]),
        (col("i").is_not_null(), [0, 1]),
        (col("i").is_in([1, 3]), [0]),
        (~col("i").is_in([1, 3]), [1]),
        (col("i").is_in([]), []),
        (~col("i").is_in([]), [0, 1]),
        ((col("i") == 1) | (col("s") == "xy"), [0, 1]),
        ((col("i") < 5) & ~(col("s") == "x"), [1]),
        (col("i").is_null() | (col("i") > 1), [1, 2]),
        (col("s").starts_with("xy"), [1]),
        (~col("s").starts_with("xy"), [0]),
        (col("f") == 0.0, [0, 1]),
        (col("f").is_in([0]), [0, 1]),
        (~(col("f") < 1), [2]),
        (col("f") != 7, [0, 1, 2]),
        (col("f").is_in([math.nan]), [2]),
        (col("f") > 1, [2]),
        (col("f") <= math.inf, [0, 1]),
        (col("f") < math.nan, [0, 1]),
        (col("f") <= math.nan, [0, 1, 2]),
        (col("f") != math.nan, [0, 1]),
        (col("f") > math.nan, []),
        (col("d") > 1.5, [1]),
        (col("d").is_in([Decimal("1.5"), 7]), [0]),
        (col("b") > b"\x7f", [1]),
        (col("day") == datetime.date(1970, 1, 2), [1]),
        (col("day") == "1970-01-02", [1]),
        (col("t") == datetime.time(0, 0, 0, 1000), [1]),
        (col("ts") == pa.scalar(1, pa.timestamp("ns")), [1]),
        (col("ts").is_in([pa.scalar(1, pa.timestamp("ns"))]), [1]),
        (col("ts") == datetime.datetime(1970, 1, 1), [0]),
        (col("tz") > datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), [1]),
        (col("l").is_null(), [2]),
        ([("i", "=", 1)], [0]),
        ([("i", ">=", 1), ("s", "not in", ["x"])], [1]),
        ([[("i", "=", 1)], [("s", "in", ["xy"])]], [0, 1]),
    ],
    ids=str,
)
def test_rows_that_match(predicate: Predicate | list[Any], rows: list[int]) -> None:
    assert matches(predicate) == rows


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (lambda: col("nope") == 1, "there is no column 'nope'"),
        (lambda: col("nope").is_null(), "there is no column 'nope'"),
        (lambda: col("i") == True, "'i'"),  # noqa: E712
        (lambda: col("i") == "1", "'i': '1' cannot be compared with its type int32: write a number"),
        (lambda: col("s") == 1, "'s'"),
        (lambda: col("s").starts_with(1), "'s'"),  # type: ignore[arg-type]
        (lambda: col("i").starts_with("1"), "'i'"),
        (lambda: col("s").is_in("abc"), "needs a list"),
        (lambda: col("ts") == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), "'ts'"),
        (lambda: col("tz") == datetime.datetime(1970, 1, 1), "'tz'"),
        (lambda: col("day") == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), "'day'"),
        (lambda: col("day") == "1970-01-01 12:00", "'day'"),
        (lambda: col("t") == "25:00", "'t'"),
        (lambda: col("l") == [1], "'l'"),
        (lambda: col("i") == None, "use is_null"),  # noqa: E711
        (lambda: col("i").is_in([1, None]), "use is_null"),
        (lambda: (col("i") == 1) and (col("i") == 2), "join filters with & | ~"),
        (lambda: (col("i") == 1) & True, "cannot join"),
        (lambda: [("i", "like", 1)], "unknown operator 'like'"),
        (lambda: [("i", 1)], "expected \\(column, op, value\\)"),
        (list, "cannot read the filter"),
        (lambda: "i > 1", "cannot read the filter"),
    ],
)
def test_mistakes_are_named(predicate: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        from_lists(predicate()).bind(TABLE.schema)  # type: ignore[union-attr]


def test_conjuncts_and_columns() -> None:
    first, second, third = col("a") == 1, col("b") == 2, (col("c") == 3) | (col("a") == 4)
    joined = first & second & third
    assert joined.conjuncts() == (first, second, third)
    assert joined.columns() == {"a", "b", "c"}
    assert conjunction(joined.conjuncts()) == joined
    assert conjunction([first]) is first
    assert conjunction([]) is None
    assert from_lists(None) is None


# --- statistics ------------------------------------------------------------------------------------------------------

STRINGS = ["", "a", "aa", "ab", "b", "é", "\uffff", "\U0001f600"]
FLOATS = [-1.5, -0.0, 0.0, 2.0, math.inf, math.nan]
INTS = [-2, -1, 0, 1, 2]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), INTS),
    "s": (pa.string(), STRINGS),
    "f": (pa.float64(), FLOATS),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def literals(name: str) -> st.SearchStrategy[Any]:
    """Values of the column, and for numbers such as it cannot hold."""
    values = st.sampled_from(COLUMNS[name][1])
    return values if name == "s" else values | st.sampled_from([-0.5, 0.5, Decimal("1.25"), 2**70, -(2**70), *FLOATS])


def leaf(name: str) -> st.SearchStrategy[Predicate]:
    values = st.sampled_from(COLUMNS[name][1])
    options = [
        st.builds(Comparison, st.just(name), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), literals(name)),
        st.builds(IsIn, st.just(name), st.lists(literals(name), max_size=3).map(tuple)),
        st.just(IsNull(name)),
    ]
    if name == "s":
        options.append(st.builds(StartsWith, st.just(name), values))
    return st.one_of(options)


PREDICATES = st.recursive(
    st.sampled_from(list(COLUMNS)).flatmap(leaf),
    lambda children: st.one_of(
        st.builds(Not, children),
        st.builds(And, st.lists(children, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(children, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, (_, values) in COLUMNS.items()}),
    max_size=4,
)


def ordered(value: Any) -> Any:
    """NaN is above every number and equals itself."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """SQL's three values, by definition."""
    match predicate:
        case And(children) | Or(children):
            parts = [truth(child, row) for child in children]
            decisive = isinstance(predicate, Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        case Not(child):
            inner = truth(child, row)
            return None if inner is None else not inner
        case IsNull(column):
            return row[column] is None
        case Comparison(column, op, value):
            if row[column] is None:
                return None
            left, right = ordered(row[column]), ordered(value)
            return bool(eval("left op right".replace("op", op), {"left": left, "right": right}))
        case IsIn(column, values):
            return None if row[column] is None else any(ordered(row[column]) == ordered(value) for value in values)
        case StartsWith(column, prefix):
            return None if row[column] is None else row[column].startswith(prefix)
    raise AssertionError(predicate)


@pytest.mark.dear("trees that Hypothesis makes")
@settings(max_examples=examples(250), deadline=None)
@given(predicate=PREDICATES, rows=ROWS, cut=st.booleans())
def test_arrow_agrees_and_statistics_are_safe(predicate: Predicate, rows: list[dict[str, Any]], cut: bool) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA).append_column("row", pa.array(range(len(rows)), pa.int64()))
    bound = predicate.bind(SCHEMA)
    expected = [i for i, row in enumerate(rows) if truth(predicate, row) is True]
    assert table.filter(bound.to_arrow())["row"].to_pylist() == expected
    stats = {name: stats_of([row[name] for row in rows], cut) for name in COLUMNS}
    may = bound.may_match(stats, len(rows))
    assert may or not expected
    assert bound.may_match({}, len(rows)) or not expected


def stats_of(values: list[Any], cut: bool) -> ColumnStats:
    """As writers of the format make them: NaN is the largest float; strings may be cut to one character."""
    present = [value for value in values if value is not None]
    nulls = len(values) - len(present)
    if not present:
        return ColumnStats(None, None, nulls)
    low = min(present, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
    high = max(present, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
    if cut and isinstance(low, str):
        low = low[:1]
        high = high if len(high) <= 1 else chr(ord(high[0]) + 1)
    return ColumnStats(low, high, nulls)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("i") == 10, False),
        (col("i") == 5, True),
        (col("i") != 5, True),
        (col("i") < 1, False),
        (col("i") <= 1, True),
        (col("i") > 9, False),
        (~(col("i") <= 9), False),
        (col("i").is_in([0, 10]), False),
        (col("i").is_null(), False),
        (col("i").is_not_null(), True),
        (col("s").is_not_null(), False),
        (col("s") == "a", False),
        (~(col("s") == "a"), False),
        (col("s").is_null(), True),
        ((col("i") > 9) | (col("i") < 1), False),
        ((col("i") > 8) & (col("s") == "x"), False),
    ],
    ids=str,
)
def test_statistics_exclude_what_they_can(predicate: Predicate, expected: bool) -> None:
    stats = {"i": ColumnStats(1, 9, 0), "s": ColumnStats(None, None, 100)}
    assert predicate.bind(SCHEMA).may_match(stats, 100) is expected


def test_canonical_values() -> None:
    assert canonical(pa.scalar(5, pa.timestamp("ns"))) == 5
    assert canonical(pa.scalar(5, pa.time32("ms"))) == 5
    assert canonical(pa.scalar(5, pa.date32())) == datetime.date(1970, 1, 6)
    assert canonical(pa.scalar(None, pa.timestamp("ns"))) is None
