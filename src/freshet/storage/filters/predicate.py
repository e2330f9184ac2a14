"""Filters on table columns: bound to a schema, sent to Arrow, and tested against column statistics.

A predicate is an immutable tree without types that can be pickled, built by `column` or `filter_text` and joined by
`p & q`, `p | q`, `~p` with SQL's three values: a comparison with NULL is neither true nor false. `bind` checks it
against a schema and gives every literal its column's type; only a bound tree is evaluated. Rows for which the tree is
not TRUE are left out. A literal that its column cannot hold is compared as SQL does (`literal`): `bind` then rewrites
the comparison, `i > 1.5` into `i > 1`, `i = 1.5` into FALSE. NaN equals itself and is above every number, as in Spark
SQL.

Values in `ColumnStats` and of bound literals are what `canonical` returns: bool, int, float, Decimal, str, bytes, date;
for TIME and TIMESTAMP the integer in the unit of the column's Arrow type. Statistics are bounds, not values (strings
are cut), so the answer of `may_match` is "no" only where it is certain. Writers may leave NaN out of the bounds: of
FLOAT and DOUBLE, lower bounds are certain and upper ones are not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.storage.codec.stats import NO_STATS, ColumnStats
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.literal import Between, Equal, Literal, locate
from freshet.storage.model.arguments import shown_value
from freshet.storage.model.schema import column_named

OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NEGATED: Final[Mapping[str, str]] = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_CHAIN_MAX: Final = 100


class Predicate(Frozen):
    """A node of the tree. Combine with `&`, `|` and `~`; `and` and `or` are refused because Python cannot pass them."""

    def __and__(self, other: Predicate) -> Predicate:
        return And((*_parts(self, And), *_parts(_checked(other), And)))

    def __or__(self, other: Predicate) -> Predicate:
        return Or((*_parts(self, Or), *_parts(_checked(other), Or)))

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise InvalidRequestError("a filter has no truth value: join filters with & | ~, each side in parentheses")

    def columns(self) -> frozenset[str]:
        """Names of the columns the filter looks at."""
        raise NotImplementedError

    def conjuncts(self) -> tuple[Predicate, ...]:
        """Filters that must all be true; the filter itself unless it is an AND."""
        return (self,)

    def bind(self, schema: pa.Schema) -> Predicate:
        """The same filter, literals checked and typed by the columns; InvalidRequestError names what does not fit."""
        raise NotImplementedError

    def to_arrow(self) -> pc.Expression:
        """The bound filter as an Arrow expression."""
        raise NotImplementedError

    def may_match(self, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        """False only if no row can be TRUE. A column missing in `stats` is unknown."""
        return row_count > 0 and self.may_be(True, stats, row_count)

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        """Whether some row may evaluate to exactly `wanted`; NULL is neither."""
        raise NotImplementedError


class _OfColumn(Predicate):
    """A filter on one column."""

    column: str

    def columns(self) -> frozenset[str]:
        return frozenset((self.column,))

    def bind(self, schema: pa.Schema) -> Predicate:
        return replace(self, column=field_of(self.column, schema).name)


class Comparison(_OfColumn):
    """`column op value`."""

    op: str
    value: Any

    def bind(self, schema: pa.Schema) -> Predicate:
        field = field_of(self.column, schema)
        return _exactly(field.name, self.op, _placed(self.value, field))

    def to_arrow(self) -> pc.Expression:
        column = pc.field(self.column)
        literal = self.value.value
        if isinstance(literal, float):
            return _compare_floats(column, self.op, self.value)
        expression: pc.Expression = OPERATORS[self.op](column, pc.scalar(self.value.scalar))
        return expression

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        bounds = stats.get(self.column, NO_STATS)
        if bounds.null_count == row_count:
            return False
        literal = self.value.value
        op = self.op if wanted else _NEGATED[self.op]
        if isinstance(literal, float) and (math.isnan(literal) or op in ("!=", ">", ">=")):
            return True  # NaN is above every number, and may hide from the bounds
        low, high = _bound(bounds.min_value), _bound(bounds.max_value)
        match op:
            case "==":
                return (low is None or low <= literal) and (high is None or literal <= high)
            case "!=":
                return low is None or high is None or not low == literal == high
            case "<" | "<=":
                return low is None or bool(OPERATORS[op](low, literal))
            case _:
                return high is None or bool(OPERATORS[op](high, literal))


class IsIn(_OfColumn):
    """`column IN (values)`; NULL for a NULL column. No values: never true."""

    values: tuple[Any, ...]

    def bind(self, schema: pa.Schema) -> Predicate:
        field = field_of(self.column, schema)
        values, ranges = [], []
        for value in self.values:
            match _placed(value, field):
                case Equal(first, last) as placed:
                    if first == last:
                        values.append(first)
                    else:
                        ranges.append(_exactly(field.name, "==", placed))
        listed = IsIn(field.name, tuple(values))
        return Or((listed, *ranges)) if ranges else listed

    def to_arrow(self) -> pc.Expression:
        column = pc.field(self.column)
        if self.values and pa.types.is_floating(self.values[0].type):
            # Arrow's lookup distinguishes -0.0 from 0.0; equality does not.
            return _joined(operator.or_, [Comparison(self.column, "==", each).to_arrow() for each in self.values])
        found = pc.scalar(False)
        if self.values:
            found = column.isin(pa.array([literal.value for literal in self.values], self.values[0].type))
        null = pc.scalar(pa.scalar(None, pa.bool_()))
        kept: pc.Expression = pc.if_else(column.is_valid(), found, null)
        return kept

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        equals = [Comparison(self.column, "==", value) for value in self.values]
        if wanted:
            return any(equal.may_be(True, stats, row_count) for equal in equals)
        bounds = stats.get(self.column, NO_STATS)
        return bounds.null_count != row_count and all(equal.may_be(False, stats, row_count) for equal in equals)


class IsNull(_OfColumn):
    """`column IS NULL`; never NULL itself."""

    def to_arrow(self) -> pc.Expression:
        return pc.field(self.column).is_null()

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        null_count = stats.get(self.column, NO_STATS).null_count
        return null_count is None or (null_count > 0 if wanted else null_count < row_count)


class Unknown(_OfColumn):
    """A comparison of `column` with NULL: neither true nor false for any row."""

    def to_arrow(self) -> pc.Expression:
        return pc.scalar(pa.scalar(None, pa.bool_()))

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        return False


class StartsWith(_OfColumn):
    """`column` begins with `prefix` (strings only)."""

    prefix: str

    def bind(self, schema: pa.Schema) -> Predicate:
        field = field_of(self.column, schema)
        if not pa.types.is_string(field.type) or not isinstance(self.prefix, str):
            raise InvalidRequestError(
                f"filter on column {self.column!r}: starts_with (LIKE 'prefix%') needs a STRING and a string"
            )
        _placed(self.prefix, field)
        return replace(self, column=field.name)

    def to_arrow(self) -> pc.Expression:
        return pc.starts_with(pc.field(self.column), self.prefix)

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        bounds = stats.get(self.column, NO_STATS)
        if bounds.null_count == row_count:
            return False
        size = len(self.prefix)
        if wanted:
            return (bounds.min_value is None or bounds.min_value[:size] <= self.prefix) and (
                bounds.max_value is None or self.prefix <= bounds.max_value[:size]
            )
        # Every string between two strings with the prefix has it too.
        inside = (bound is not None and bound.startswith(self.prefix) for bound in (bounds.min_value, bounds.max_value))
        return not all(inside)


class _Junction(Predicate):
    """Filters joined by AND or by OR."""

    children: tuple[Predicate, ...]

    def columns(self) -> frozenset[str]:
        return frozenset().union(*(child.columns() for child in self.children))

    def bind(self, schema: pa.Schema) -> Predicate:
        return type(self)(tuple(child.bind(schema) for child in self.children))


class And(_Junction):
    """All children."""

    def conjuncts(self) -> tuple[Predicate, ...]:
        return tuple(part for child in self.children for part in child.conjuncts())

    def to_arrow(self) -> pc.Expression:
        return _joined(operator.and_, [child.to_arrow() for child in self.children])

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        return (all if wanted else any)(child.may_be(wanted, stats, row_count) for child in self.children)


class Or(_Junction):
    """Any child."""

    def to_arrow(self) -> pc.Expression:
        return _joined(operator.or_, [child.to_arrow() for child in self.children])

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        return (any if wanted else all)(child.may_be(wanted, stats, row_count) for child in self.children)


class Not(Predicate):
    """The opposite; NULL stays NULL."""

    child: Predicate

    def columns(self) -> frozenset[str]:
        return self.child.columns()

    def bind(self, schema: pa.Schema) -> Predicate:
        return Not(self.child.bind(schema))

    def to_arrow(self) -> pc.Expression:
        return ~self.child.to_arrow()

    def may_be(self, wanted: bool, stats: Mapping[str, ColumnStats], row_count: int) -> bool:
        return self.child.may_be(not wanted, stats, row_count)


def is_deep(predicate: Predicate, levels: int) -> bool:
    """Whether a filter has more than so many levels of filters in each other."""
    layer: Sequence[Predicate] = (predicate,)
    for _ in range(levels):
        layer = [part for each in layer for part in _inner(each)]
        if not layer:
            return False
    return True


def _inner(node: Predicate) -> tuple[Predicate, ...]:
    if isinstance(node, Not):
        return (node.child,)
    return node.children if isinstance(node, _Junction) else ()


_Join = Callable[[pc.Expression, pc.Expression], pc.Expression]


def _joined(join: _Join, parts: Sequence[pc.Expression]) -> pc.Expression:
    """The parts in groups of groups. Arrow makes one chain of all AND or OR in each other, a call within a call for
    each, and thousands of them end the process: what is negated twice is no part of a chain."""
    while len(parts) > _CHAIN_MAX:
        starts = range(0, len(parts), _CHAIN_MAX)
        parts = [~~reduce(join, parts[start : start + _CHAIN_MAX]) for start in starts]
    return reduce(join, parts)


def conjunction(parts: Iterable[Predicate]) -> Predicate | None:
    """AND of the parts; None for no part, which keeps every row."""
    kept = tuple(parts)
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else And(kept)


def field_of(column: str, schema: pa.Schema, where: str = "filter") -> pa.Field[Any]:
    """The column named in a filter, or `where` else; the case of its letters may differ where only one is meant."""
    name = column_named(column, schema.names)
    if name is None:
        raise InvalidRequestError(
            f"{where}: there is no column {column!r}; columns are {', '.join(schema.names)}", column=column
        )
    return schema.field(schema.names.index(name))


def _parts(node: Predicate, kind: type[And] | type[Or]) -> tuple[Predicate, ...]:
    return node.children if isinstance(node, kind) else (node,)


def _checked(node: object) -> Predicate:
    if not isinstance(node, Predicate):
        raise InvalidRequestError(f"cannot join a filter with {node!r}; put each comparison in parentheses")
    return node


def _bound(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _placed(value: Any, field: pa.Field[Any]) -> Equal | Between:
    try:
        if isinstance(value, str):
            value.encode()  # half a character is in no column
        return locate(value, field.type)
    except (ValueError, ArithmeticError) as error:
        raise InvalidRequestError(
            f"filter on column {field.name!r}: {shown_value(value)} cannot be compared with its type "
            f"{field.type}: {error}",
            column=field.name,
        ) from error


def _exactly(column: str, op: str, placed: Equal | Between) -> Predicate:
    """`column op literal` in values that the column can have."""
    if isinstance(placed, Equal):
        first, last = placed.first, placed.last
        if first == last or op in ("<", ">="):
            return Comparison(column, op, first)
        if op in ("<=", ">"):
            return Comparison(column, op, last)
        equal = And((Comparison(column, ">=", first), Comparison(column, "<=", last)))
        return equal if op == "==" else Not(equal)
    never = IsIn(column, ())
    always = Not(never)
    match op:
        case "==":
            return never
        case "!=":
            return always
        case "<" | "<=":
            if placed.is_above_all:
                return always
            return never if placed.below is None else Comparison(column, "<=", placed.below)
        case _:
            if placed.is_above_all:
                return never
            return always if placed.below is None else Comparison(column, ">", placed.below)


def _compare_floats(column: pc.Expression, op: str, literal: Literal) -> pc.Expression:
    """The comparison with NaN above every number; Arrow's own is false for NaN on either side, but for `!=`."""
    nan = column.is_nan()
    if math.isnan(literal.value):
        answers = {"==": nan, "!=": ~nan, "<": ~nan, "<=": nan | ~nan, ">": nan & ~nan, ">=": nan}
        return answers[op]
    plain: pc.Expression = OPERATORS[op](column, pc.scalar(literal.scalar))
    return plain | nan if op in (">", ">=") else plain
