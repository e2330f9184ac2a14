"""Filters as SQL text: the same answers as plain Python, never a row lost by statistics, and clear refusals."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.storage.codec.stats import ColumnStats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.column import col
from freshet.storage.filters.filter_text import parse_filter, to_predicate
from freshet.storage.filters.literal import canonical
from freshet.storage.filters.predicate import Predicate
from tests.kit.filter_texts import SCHEMA, Condition, conditions, rows
from tests.kit.hypothesis_profile import examples


def truths(predicate: Predicate, table: pa.Table) -> list[bool | None]:
    """What a bound predicate says of each row."""
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    expression = predicate.to_arrow()
    true = set(numbered.filter(expression)["row"].to_pylist())
    false = set(numbered.filter(~expression)["row"].to_pylist())
    assert not true & false
    return [True if row in true else False if row in false else None for row in range(table.num_rows)]


def statistics(table: pa.Table) -> dict[str, ColumnStats]:
    """Bounds as a writer that leaves NaN out makes them."""
    found = {}
    for name in table.column_names:
        column = table[name]
        values = column.filter(pc.invert(pc.is_nan(column))) if pa.types.is_floating(column.type) else column
        bounds = pc.min_max(values)
        low, high = canonical(bounds["min"]), canonical(bounds["max"])
        found[name] = ColumnStats(low, high, column.null_count)
    return found


@pytest.mark.dear("texts that Hypothesis makes")
@settings(max_examples=examples(120), deadline=None)
@given(condition=conditions(), some_rows=rows())
def test_text_means_what_sql_means(condition: Condition, some_rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(some_rows, SCHEMA)
    bound = parse_filter(condition.text).bind(SCHEMA)
    expected = [condition.holds(row) for row in some_rows]
    assert truths(bound, table) == expected
    assert truths(bound.bind(SCHEMA), table) == expected, "binding again changes nothing"
    for wanted in (True, False):
        if wanted in expected:
            assert bound.may_be(wanted, statistics(table), len(some_rows))
            assert bound.may_be(wanted, {}, len(some_rows))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ID = 5", col("id") == 5),
        ("`id` == 5", col("id") == 5),
        ("10 > id", col("id") < 10),
        ("id IN (1, 2)", col("id").is_in([1, 2])),
        ("a = 1 AND b = 2 AND c = 3", (col("a") == 1) & (col("b") == 2) & (col("c") == 3)),
        ("name LIKE 'x%'", col("name").starts_with("x")),
        ("day >= DATE '2024-01-31'", col("day") >= datetime.date(2024, 1, 31)),
        ("t = TIME '12:30:00.5'", col("t") == datetime.time(12, 30, 0, 500_000)),
        ("v = -12.50", col("v") == Decimal("-12.50")),
        ("raw = X'0aFF'", col("raw") == b"\x0a\xff"),
    ],
)
def test_texts_and_columns_build_the_same(text: str, same: Predicate) -> None:
    assert repr(parse_filter(text)).lower() == repr(same).lower()


def test_what_users_may_give() -> None:
    predicate = col("id") == 1
    assert to_predicate(predicate) is predicate
    assert to_predicate("id = 1") == to_predicate([("id", "=", 1)]) == predicate
    assert to_predicate(None) is None


def test_nan_is_found_by_its_name() -> None:
    predicate = parse_filter("v = double('nan')")
    assert math.isnan(predicate.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the filter is empty"),
        ("id =", "line 1, column"),
        ("id = 5; DROP TABLE x", "DROP TABLE"),
        ("id = 5 x", "AS x"),
        ("SELECT 1", "SELECT 1"),
        ("id", "write id = TRUE"),
        ("TRUE", "'TRUE' is not possible"),
        ("a = b", "two columns cannot be compared"),
        ("a + 1 = 2", "a \\+ 1 is not a column"),
        ("upper(a) = 'x'", "UPPER\\(a\\) is not a column"),
        ("1 = 1", "1 is not a column"),
        ("a.b = 1", "backticks"),
        ("a = 1 AND length(b) > 3 OR c = 2", "LENGTH\\(b\\) is not a column"),
        ("a = (SELECT 1)", "only literals"),
        ("a IN (SELECT 1)", "SELECT 1"),
        ("a IN ()", "a IN \\(\\)"),
        ("a = abs(1)", "only literals"),
        ("a = current_date()", "CURRENT_DATE"),
        ("a BETWEEN SYMMETRIC 1 AND 2", "BETWEEN"),
        ("s LIKE '%x'", "LIKE takes a prefix"),
        ("s LIKE 'a_b%'", "LIKE takes a prefix"),
        ("s LIKE 'a%b%'", "LIKE takes a prefix"),
        ("s LIKE 'a!%' ESCAPE '!'", "ESCAPE"),
        ("s ILIKE 'a%'", "ILIKE"),
        ("s RLIKE 'a'", "RLIKE"),
        ("s = 'it''s'", "a quote within a text"),
        ("t IS TRUE", "write = TRUE"),
        ("d = DATE '2024-02-30'", "2024-02-30"),
        ("d = TIMESTAMP '2024-02-28 25:00:00'", "25:00"),
        ("d = TIMESTAMP 'yesterday'", "2024-01-31 12:00:00.5"),
        ("a = 128Y OR a = 300Y", "does not fit"),
        ("a = CAST(1.5 AS INT)", "does not fit"),
        ("a = CAST('x' AS DOUBLE)", "does not fit"),
        ("a = X'0G'", "."),
        ("a < 1 < 2", "a < 1 is not a column"),
        ("(" * 5000 + "a = 1" + ")" * 5000, "nested too deeply"),
    ],
)
def test_what_is_refused_is_named(text: str, part: str) -> None:
    with pytest.raises(InvalidRequestError, match=part):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 1", "there is no column 'nope'; columns are y, i"),
        ("i = '1'", "column 'i': '1' cannot be compared with its type int32: write a number, without quotes"),
        ("s = 1", "'s'"),
        ("t = 1", "'t'"),
        ("x = 'a'", "'x'"),
        ("i LIKE 'a%'", "'i'"),
        ("i LIKE 'a'", "'i'"),
        ("day = 5", "write a date"),
        ("day = 'x'", "'day'"),
        ("n = TIMESTAMP '2024-01-01 00:00:00Z'", "no time zone"),
    ],
)
def test_a_literal_that_does_not_fit_the_column(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_filter(text).bind(SCHEMA)


def test_a_list_has_one_type() -> None:
    """With a DOUBLE among them all are compared as DOUBLE, in which 2**53 and 2**53 + 1 are one number."""
    table = pa.table({"l": pa.array([2**53, 2**53 + 2], pa.int64())})
    for text, expected in (("9007199254740993", [False, False]), ("9007199254740993, 1.5D", [True, False])):
        assert truths(parse_filter(f"l IN ({text})").bind(table.schema), table) == expected


def test_many_alternatives_are_read() -> None:
    text = " OR ".join(f"i = {number}" for number in range(3000))
    assert len(parse_filter(text).children) == 3000  # type: ignore[attr-defined]


@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\\'"), max_size=6))
def test_texts_come_through_as_they_are(value: str) -> None:
    assert parse_filter(f"s = '{value}'") == (col("s") == value)


@pytest.mark.parametrize(
    ("number", "rows"),
    [("9" * 5000, 3), ("-" + "9" * 5000, 0), ("1e-99999999", 1), ("-1.2345678901234567890123456789012", 0)],
    ids=["5000 digits", "-5000 digits", "a far exponent", "33 digits"],
)
def test_numbers_of_any_length(number: str, rows: int) -> None:
    """A minus before a decimal kept 28 digits of it."""
    column = pa.array([Decimal("-1.2345678901234567890123456789012"), Decimal(0), Decimal(1)], pa.decimal128(38, 31))
    table = pa.table({"n": column})
    assert table.filter(to_predicate(f"n < {number}").bind(table.schema).to_arrow()).num_rows == rows


@pytest.mark.parametrize("text", ["0e" + "9" * 30, "1e99999999", "9" * 5000])
def test_a_typed_number_that_its_type_does_not_have(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="does not fit the type"):
        parse_filter(f"n = CAST('{text}' AS DECIMAL(10, 2))")
