"""Filters as Python code says them: `col`, and the lists of pyarrow.

col("total") > 10          == != < <= > >=
col("city").is_in([...])   is_null() is_not_null() between(a, b) starts_with("x")
[("total", ">", 10)]       pyarrow's lists: a list is AND, a list of lists is OR of ANDs
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.literal import Literal, canonical
from freshet.storage.filters.predicate import OPERATORS, Comparison, IsIn, IsNull, Not, Predicate, StartsWith
from freshet.storage.model.arguments import shown_value


class Column:
    """A column in a filter under construction; see `col`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison(self.name, "==", _not_none(self.name, value))

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison(self.name, "!=", _not_none(self.name, value))

    def __lt__(self, value: object) -> Predicate:
        return Comparison(self.name, "<", _not_none(self.name, value))

    def __le__(self, value: object) -> Predicate:
        return Comparison(self.name, "<=", _not_none(self.name, value))

    def __gt__(self, value: object) -> Predicate:
        return Comparison(self.name, ">", _not_none(self.name, value))

    def __ge__(self, value: object) -> Predicate:
        return Comparison(self.name, ">=", _not_none(self.name, value))

    __hash__ = None  # type: ignore[assignment]

    def is_in(self, values: Iterable[object]) -> Predicate:
        """True for any of the values; None among them is refused (`| col(…).is_null()` says that)."""
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidRequestError(f"filter on column {self.name!r}: is_in needs a list of values")
        return IsIn(self.name, tuple(_not_none(self.name, value) for value in values))

    def is_null(self) -> Predicate:
        """True where the value is NULL."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """True where there is a value."""
        return Not(IsNull(self.name))

    def between(self, low: object, high: object) -> Predicate:
        """Both ends included."""
        return (self >= low) & (self <= high)

    def starts_with(self, prefix: str) -> Predicate:
        """True for strings with this prefix."""
        return StartsWith(self.name, prefix)


def col(name: str) -> Column:
    """Begins a filter: `col("total") > 10`."""
    if not isinstance(name, str):
        raise InvalidRequestError(f"col takes the name of a column, not {shown_value(name)}")
    return Column(name)


def from_lists(source: Predicate | Sequence[Any] | None) -> Predicate | None:
    """pyarrow's list of tuples, or a list of such lists, as a predicate; a predicate or None as it is."""
    if source is None or isinstance(source, Predicate):
        return source
    if not isinstance(source, (list, tuple)) or not source:
        raise InvalidRequestError(
            f"cannot read the filter {source!r}: use SQL text, col(…) or a list of (column, op, value)"
        )
    if all(isinstance(item, list) and item for item in source):
        return reduce(operator.or_, (reduce(operator.and_, map(_from_triple, part)) for part in source))
    return reduce(operator.and_, map(_from_triple, source))


def _not_none(column: str, value: object) -> object:
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        raise InvalidRequestError(f"filter on column {column!r}: a comparison with None is never true; use is_null()")
    return Literal(canonical(value), value.type) if isinstance(value, pa.Scalar) else value


def _from_triple(item: Any) -> Predicate:
    if not isinstance(item, (list, tuple)) or len(item) != 3 or not isinstance(item[0], str):
        raise InvalidRequestError(f"cannot read the filter {item!r}: expected (column, op, value)")
    name, op, value = item
    op = "==" if op == "=" else str(op).lower()
    if op in OPERATORS:
        return Comparison(name, op, _not_none(name, value))
    if op in ("in", "not in"):
        found = col(name).is_in(value)
        return found if op == "in" else ~found
    raise InvalidRequestError(f"filter on column {name!r}: unknown operator {op!r}; use = != < <= > >= in, not in")
