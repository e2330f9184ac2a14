"""Filters as SQL text, in Spark's dialect: `"total > 10 AND city IN ('Ulm', 'Rom')"` as a predicate.

| part | forms |
|---|---|
| column and literal, either first | `=` `==` `<>` `!=` `<` `<=` `>` `>=` `<=>`, `IS [NOT] DISTINCT FROM` |
| more | `[NOT] IN (…)`, `[NOT] BETWEEN … AND …`, `IS [NOT] NULL`, `[NOT] LIKE 'prefix%'` |
| together | `AND` `OR` `NOT`, parentheses |
| literals | `5` `-1.5` `1e3` `5L` `1.5D` `1.5BD` `double('NaN')`, `'text'`, `TRUE` `FALSE` `NULL`, `X'0AFF'` |
| | `DATE '2024-01-31'`, `TIMESTAMP '2024-01-31 12:00:00.5'` (also with `Z` or `+01:00`), `TIME '12:30:00'` |
| names | as they are, or in backticks; the case of letters does not matter where only one column is meant |

The meaning is Spark's: three-valued NULL, NaN equal to itself and above every number, backslash escapes in text,
numbers of different types compared in the wider one (`literal`). A TIMESTAMP without a zone is a wall-clock time for a
column without one and UTC for a column with one, as in a Spark session whose time zone is UTC.
One thing differs: a NULL integer compared (< <= > >=) with a number beyond BIGINT is unknown here, as in SQL, while
Spark 4.2 answers TRUE or FALSE for it.

Anything else is refused naming the part.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.filters.column import from_lists
from freshet.storage.filters.literal import timestamp_value
from freshet.storage.filters.predicate import (
    And,
    Comparison,
    IsIn,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    is_deep,
)
from freshet.storage.model.arguments import NESTING_MAX, reading

POSSIBLE: Final = (
    "a filter is made of comparisons of a column with a literal (= <> < <= > >= <=> IN BETWEEN IS NULL LIKE 'prefix%') "
    "joined by AND OR NOT"
)

_DIALECT: Final = "spark"
_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "==",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGER_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_TIMESTAMPS: Final = frozenset({"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"})
_INT_DIGITS_MAX: Final = 400
"""Python refuses to read some thousands; a longer number is larger than every value in any form."""
_NUMBER_TEXT: Final = re.compile(r"nan|[+-]?(inf|infinity|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)", re.IGNORECASE)
_SHOWN_MAX: Final = 120


FilterGiven = Predicate | str | Sequence[Any] | None
"""A filter as users give it: a predicate, SQL text, pyarrow's lists of (column, op, value), or nothing."""


def to_predicate(source: FilterGiven) -> Predicate | None:
    """The tree of a filter as users give it."""
    if isinstance(source, str):
        return parse_filter(source)
    with reading("the filter"):
        return None if (predicate := from_lists(source)) is None else _bounded(predicate)


def parse_filter(text: str) -> Predicate:
    """The predicate that SQL text says; `InvalidRequestError` names the part that cannot be taken."""
    if not text.strip():
        raise InvalidRequestError(f"the filter is empty: {POSSIBLE}")
    with reading(f"the filter {_cut(text)!r}"):
        try:
            tree = parse_one(text, read=_DIALECT)
        except SqlglotError as error:
            raise InvalidRequestError(
                f"the filter {_cut(text)!r} cannot be read: {reason_of(error)}; {POSSIBLE}"
            ) from error
        return predicate_of(tree)


def predicate_of(tree: exp.Expr) -> Predicate:
    """The predicate of a condition that is parsed already; raises as `parse_filter` does."""
    return _bounded(_condition(tree))


def _bounded(predicate: Predicate) -> Predicate:
    if is_deep(predicate, NESTING_MAX):
        raise InvalidRequestError(
            f"the filter is nested more than {NESTING_MAX} deep; many values of a column: IN, is_in"
        )
    return predicate


def _condition(node: exp.Expr) -> Predicate:
    match node:
        case exp.Paren():
            return _condition(node.this)
        case exp.And() | exp.Or():
            parts = tuple(_condition(part) for part in node.flatten(unnest=False))
            return And(parts) if isinstance(node, exp.And) else Or(parts)
        case exp.Not():
            return Not(_condition(node.this))
        case exp.NullSafeEQ():
            return _null_safe_equal(node)
        case exp.NullSafeNEQ():
            return Not(_null_safe_equal(node))
        case exp.In():
            return _is_in(node)
        case exp.Between():
            _only(node, "this", "low", "high")
            column = _column(node.this, node)
            return And((_compare(column, ">=", node.args["low"]), _compare(column, "<=", node.args["high"])))
        case exp.Is():
            if not isinstance(node.expression, exp.Null):
                raise _refused(node, "IS takes NULL; write = TRUE or = FALSE")
            return IsNull(_column(node.this, node))
        case exp.Like():
            _only(node, "this", "expression", "negate")
            like = _like(node)
            return Not(like) if node.args.get("negate") else like
        case exp.Column():
            raise _refused(node, f"a column alone is not a condition; write {_shown(node)} = TRUE")
    if type(node) not in _COMPARISONS:
        raise _refused(node)
    op = _COMPARISONS[type(node)]
    column, literal, is_mirrored = _sides(node)
    return _compare(column, _MIRRORED[op] if is_mirrored else op, literal)


def _compare(column: str, op: str, literal: exp.Expr) -> Predicate:
    value = _value(literal)
    return Unknown(column) if value is None else Comparison(column, op, value)


def _null_safe_equal(node: exp.Expr) -> Predicate:
    column, literal, _ = _sides(node)
    value = _value(literal)
    if value is None:
        return IsNull(column)
    return And((Not(IsNull(column)), Comparison(column, "==", value)))


def _is_in(node: exp.In) -> Predicate:
    _only(node, "this", "expressions")
    column = _column(node.this, node)
    if not node.expressions:
        raise _refused(node)
    values = [_value(literal) for literal in node.expressions]
    if any(isinstance(value, float) for value in values):
        # The whole list has one type in SQL: with a DOUBLE in it, all are, and an exact column is compared as DOUBLE.
        values = [float(value) if isinstance(value, (int, Decimal)) else value for value in values]
    listed = IsIn(column, tuple(value for value in values if value is not None))
    return Or((listed, Unknown(column))) if None in values else listed


def _like(node: exp.Like) -> Predicate:
    column = _column(node.this, node)
    pattern = _value(node.expression)
    if pattern is None:
        return Unknown(column)
    if not isinstance(pattern, str):
        raise _refused(node, "LIKE takes text")
    stem = pattern.rstrip("%")
    if (len(stem) - len(stem.rstrip("\\"))) % 2 and len(stem) < len(pattern):
        stem = pattern[: len(stem) + 1]  # the first % is an escaped one
    has_wildcard = len(stem) < len(pattern)
    text = re.sub(r"\\([%_\\])", r"\1", stem)
    if re.search(r"[%_]|\\", re.sub(r"\\[%_\\]", "", stem)):
        raise _refused(
            node, r"LIKE takes a prefix and % at its end; an underscore or % of the text itself is written \_ or \%"
        )
    starts = StartsWith(column, text)
    return starts if has_wildcard else And((starts, Comparison(column, "==", text)))


def _sides(node: exp.Expr) -> tuple[str, exp.Expr, bool]:
    """Column and literal of a comparison, and whether the literal came first."""
    left, right = node.this.unnest(), node.expression.unnest()
    is_mirrored = isinstance(right, exp.Column)
    if is_mirrored and isinstance(left, exp.Column):
        raise _refused(node, "two columns cannot be compared")
    column, literal = (right, left) if is_mirrored else (left, right)
    return _column(column, node), literal, is_mirrored


def _column(node: exp.Expr, whole: exp.Expr) -> str:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        raise _refused(whole, f"{_shown(node)} is not a column")
    if any(node.args.get(part) for part in ("table", "db", "catalog")):
        raise _refused(node, "fields of a column cannot be compared; a name with a dot is written in backticks")
    return str(node.name)


def _value(node: exp.Expr) -> Any:
    """The value of a literal; None for NULL."""
    node = node.unnest()
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal() if node.is_string:
            return node.this
        case exp.Literal():
            return _number(node.this)
        case exp.RawString():
            return node.this
        case exp.HexString():
            digits = str(node.this)
            return _typed(node, lambda: bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
        case exp.Neg():
            value = _value(node.this)
            if isinstance(value, Decimal):
                return value.copy_negate()  # a minus would round it to 28 digits
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return -value
        case exp.Cast():
            return _cast(node)
        case exp.Column():
            raise _refused(node, "a literal is needed here; write text in single quotes")
        case exp.Concat():
            raise _refused(node, r"adjacent texts are joined; a quote within a text is written \'")
    raise _refused(node, "only literals can be compared with")


def _cast(node: exp.Cast) -> Any:
    """A literal with its type: DATE '…', 5L, CAST('NaN' AS DOUBLE)."""
    source, kind = node.this, node.to.this.value
    is_negative = isinstance(source, exp.Neg)
    source = source.this if is_negative else source
    if not isinstance(source, exp.Literal):
        raise _refused(node, "only literals can be compared with")
    text = f"{'-' if is_negative else ''}{source.this}"
    if kind == "DATE":
        return _typed(node, lambda: datetime.date.fromisoformat(text.strip()))
    if kind == "TIME":
        return _typed(node, lambda: datetime.time.fromisoformat(text.strip()))
    if kind in _TIMESTAMPS:
        return _typed(node, lambda: timestamp_value(text))
    number = _typed_number(text.strip(), kind, [int(parameter.name) for parameter in node.to.expressions])
    if number is None:
        raise _refused(node, "the value does not fit the type, or nothing is compared with this type")
    return number


def _typed_number(text: str, kind: str, parameters: Sequence[int]) -> int | float | Decimal | None:
    """The number in a numeric type; None where the type cannot hold it exactly."""
    if not _NUMBER_TEXT.fullmatch(text):
        return None
    if kind == "DOUBLE":
        return float(text)
    if kind == "FLOAT":
        return float(np.float32(text))
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits
        return None
    exponent = value.as_tuple().exponent
    if kind in _INTEGER_BITS and text.lstrip("-").isdigit():
        # Up to 128 for a TINYINT: the minus of -128Y is applied to this value.
        return int(value) if value.copy_abs() <= 1 << (_INTEGER_BITS[kind] - 1) else None
    if kind == "DECIMAL" and isinstance(exponent, int):
        precision, scale = (*(parameters or (10,)), 0)[:2]
        return value if -exponent <= scale and value.adjusted() < precision - scale else None
    return None


def _number(text: str) -> int | float | Decimal:
    if text.isdigit() and len(text) <= _INT_DIGITS_MAX:
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _typed(node: exp.Expr, read: Any) -> Any:
    try:
        return read()
    except ValueError as error:
        raise _refused(node, str(error)) from error


def _only(node: exp.Expr, *known: str) -> None:
    """Refuses what the parser understood and this module does not."""
    if any(value for name, value in node.args.items() if name not in known):
        raise _refused(node)


def _refused(node: exp.Expr, why: str = "") -> InvalidRequestError:
    return InvalidRequestError(f"filter: {_shown(node)!r} is not possible{f' ({why})' if why else ''}: {POSSIBLE}")


def _shown(node: exp.Expr) -> str:
    return _cut(node.sql(dialect=_DIALECT))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def reason_of(error: SqlglotError) -> str:
    """Where SQL text cannot be read, in one line."""
    found: Iterable[Mapping[str, Any]] = getattr(error, "errors", ())
    for item in found:
        where = f"line {item.get('line')}, column {item.get('col')}"
        return f"{str(item.get('description')).rstrip('.')} at {where}, near {item.get('highlight')!r}"
    return str(error).splitlines()[0]
