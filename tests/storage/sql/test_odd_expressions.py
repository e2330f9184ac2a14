"""Expressions, filters and statements that nobody means: each is computed, or refused by an `InvalidRequestError`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest

from freshet import Catalog, InvalidRequestError, Table, col, expr, sql

MANY = 10_000
"""More than twice as many calls in each other as end a process."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("lake"))
    table = catalog.create_table("d.t", schema={"k": "BIGINT", "v": "STRING", "f": "DOUBLE"}, primary_keys=["k"])
    table.append([{"k": 1, "v": "a", "f": 1.0}])
    return catalog


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.table("d.t")


def alternating(number: int) -> Any:
    """A filter of ANDs and ORs in each other."""
    found: Any = col("k") == 1
    for each in range(number):
        found = (found | (col("k") == each)) & (col("k") != -1 - each)
    return found


LARGE: dict[str, Callable[[], Any]] = {
    "ORs of text": lambda: " OR ".join(f"k = {each}" for each in range(MANY)),
    "ORs": lambda: reduce(operator.or_, [col("k") == each for each in range(MANY)]),
    "ANDs": lambda: reduce(operator.and_, [col("k") != -1 - each for each in range(MANY)]),
    "a list of ANDs": lambda: [("k", "!=", -1 - each) for each in range(MANY)],
    "a list of numbers": lambda: col("f").is_in([float(each) for each in range(MANY)]),
    "nested": lambda: alternating(40),
}
DEEP: dict[str, Callable[[], Any]] = {
    "parentheses": lambda: "(" * 3000 + "k = 1" + ")" * 3000,
    "NOTs of text": lambda: "NOT " * 3000 + "k = 1",
    "NOTs": lambda: reduce(lambda found, _: ~found, range(MANY), col("k") == 1),
    "ANDs and ORs": lambda: alternating(3000),
    "a number": lambda: f"k = {'1' * 4301} + ",
    "half a character": lambda: "\ud800 = 1",
    "nothing": lambda: "",
    "a call": lambda: "k = map('a')",
    "a star": lambda: "* = 1",
}


SLOW = ("ORs of text", "ANDs", "a list of ANDs", "a list of numbers")


@pytest.mark.few(1)
@pytest.mark.parametrize("filter_of", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in LARGE])
def test_a_large_filter_is_answered(table: Table, filter_of: str) -> None:
    assert table.scan(filter=LARGE[filter_of]()).to_arrow().num_rows == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("filter_of", DEEP)
@pytest.mark.parametrize("verb", ["scan", pytest.param("delete", marks=pytest.mark.slow)])
def test_a_deep_filter_is_refused(table: Table, verb: str, filter_of: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        table.scan(filter=DEEP[filter_of]()) if verb == "scan" else table.delete(DEEP[filter_of]())
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "filter_of", [f"k = {'1' * 4301}", f"k IN ({'1' * 4301})", "k = 1e99999999", "k = 1e-99999999"]
)
def test_a_number_of_any_size_is_compared(table: Table, filter_of: str) -> None:
    assert table.scan(filter=filter_of).to_arrow().num_rows == 0


VALUES = [10**5000, -(10**5000), Decimal("1e5000"), Decimal("1e-5000"), Decimal("NaN"), float("inf"), "\ud800"]


def refusal(call: Callable[[], Any]) -> str:
    """What an error says; nothing where there is none."""
    try:
        call()
    except InvalidRequestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("column", ["k", "v", "f"])
def test_odd_values_are_compared_or_refused(table: Table, column: str) -> None:
    for value in VALUES:
        for found in (col(column) == value, col(column) < value, col(column).is_in([value])):
            assert len(refusal(lambda found=found: table.scan(filter=found).to_arrow())) < 1000  # type: ignore[misc]


EXPRESSIONS = {
    "parentheses": "(" * 3000 + "1" + ")" * 3000,
    "brackets": "[" * 3000,
    "a sum": "+".join("1" for _ in range(1200)),
    "a star": "*",
    "columns": "columns('.*')",
    "all fields": "t.*",
    "half a map": "map('a')",
    "nothing after it": "1 +",
    "half a character": "'\ud800'",
    "a null byte": "'\0'",
    "digits": "1" * 4301,
    "an exponent": "1e999999999",
    "a query": "(SELECT 1)",
    "statements": "1; DROP TABLE d.t",
    "a comment": "1 -- ",
    "a lambda": "x -> x",
    "a parameter": ":p",
    "no arguments": "date_trunc()",
    "arguments": "substr(v, 1, 2, 3, 4, 5)",
    "a cast": "CAST(1 AS NO_TYPE)",
    "a large cast": "CAST(1 AS DECIMAL(999999999999, 5))",
    "a window": "row_number() OVER ()",
    "an interval": "INTERVAL '1' NO_UNIT",
    "a hint": "/*+ x */ 1",
}
EVALUATORS: dict[str, Callable[[Catalog, str], Any]] = {
    "expr": lambda catalog, text: expr(text),
    "update": lambda catalog, text: catalog.table("d.t").update({"v": expr(text)}, "k = 1", dry_run=True),
    "merge": lambda catalog, text: (
        catalog.table("d.t").merge([{"k": 1}], on="k").when_matched_update({"v": expr(text)}).execute(dry_run=True)
    ),
    "condition": lambda catalog, text: (
        catalog.table("d.t").merge([{"k": 1}], on="k").when_matched_delete(text).execute(dry_run=True)
    ),
    "clause": lambda catalog, text: (
        catalog.table("d.t").merge([{"k": 1}], on="k").when(f"matched and {text} then delete").execute(dry_run=True)
    ),
    "SELECT": lambda catalog, text: sql(f"SELECT {text} FROM d.t", catalog).to_arrow(),
    "WHERE": lambda catalog, text: sql(f"SELECT * FROM d.t WHERE {text}", catalog).to_arrow(),
    "DELETE": lambda catalog, text: sql(f"DELETE FROM d.t WHERE k = 5 AND {text}", catalog),
    "MERGE": lambda catalog, text: sql(
        f"MERGE INTO d.t USING d.t s ON t.k = s.k WHEN MATCHED AND s.k = 5 AND {text} THEN DELETE", catalog
    ),
}


QUICK = ("expr", "update")


@pytest.mark.parametrize(
    "evaluator", [pytest.param(each, marks=[pytest.mark.slow] * (each not in QUICK)) for each in EVALUATORS]
)
def test_odd_expressions_are_computed_or_refused(catalog: Catalog, evaluator: str) -> None:
    for name, text in EXPRESSIONS.items():
        said = refusal(lambda text=text: EVALUATORS[evaluator](catalog, text))  # type: ignore[misc]
        assert said.isprintable() and len(said) < 1500, (name, said)
    assert catalog.has_table("d.t")


TYPES = {
    "lists": "ARRAY<" * 3000 + "INT" + ">" * 3000,
    "open maps": "MAP<INT, " * 3000,
    "digits": "DECIMAL(9" + "9" * 5000 + ")",
}


@pytest.mark.parametrize("kind", TYPES)
def test_odd_types_are_refused(catalog: Catalog, kind: str) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.create_table("d.odd", schema={"k": TYPES[kind]})
    with pytest.raises(InvalidRequestError):
        sql(f"CREATE TABLE d.odd (k {TYPES[kind]})", catalog)
    assert not catalog.has_table("d.odd")
